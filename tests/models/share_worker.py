"""Several processes: train the same models with and without ``oni.share``, in every way, and compare.

python share_worker.py WORLD INIT_FILE OUT

Every rank writes OUT/rank.json: for each scenario "ok", or what was wrong. The last scenario ends one of the processes.
OUT/codes.json has the exit code of each. They are forks of one process, so that torch is loaded once.
"""

import copy
import gc
import json
import os
import signal
import sys
import time
import traceback
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import oni
from oni.models import cache

STEPS, BATCH = 3, 4
SECONDS = 30


class Net(nn.Module):
    """Convolutions and linear layers, several of one shape, with learnable scales."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(2, 6, 3), nn.Tanh(), nn.Conv2d(6, 6, 3, groups=2), nn.Tanh())
        self.up = nn.ConvTranspose2d(6, 4, 2)
        self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(5))
        self.first, self.last = nn.Linear(36, 12), nn.Linear(12, 5)
        self.spare = nn.Linear(12, 12)
        self.used = lambda: range(5)
        self.checkpointed = False

    def forward(self, x):
        x = self.first(self.up(self.conv(x)).flatten(1))
        for index in self.used():
            layer = self.layers[index]
            x = torch.tanh(checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x))
        return self.last(x)


def build(**options):
    torch.manual_seed(0)
    net = oni.convert(Net(), **{"steps": 3, "learn_scale": True, **options}).double()
    for parameter in net.spare.parameters():
        parameter.requires_grad = False
    return net


def images(step, rank=None):
    generator = torch.Generator().manual_seed(100 * step + (dist.get_rank() if rank is None else rank))
    return torch.randn(BATCH, 2, 6, 6, dtype=torch.float64, generator=generator)


def loss_of(run, x):
    return run(x).square().mean()


# Ways to train.


def one_pass(run, net, optimizer, step):
    loss_of(run, images(step)).backward()


def accumulate(run, net, optimizer, step):
    with run.no_sync():
        loss_of(run, images(step)).backward()
    loss_of(run, images(step + 10)).backward()


def accumulate_cached(run, net, optimizer, step):
    with oni.cached(net):
        accumulate(run, net, optimizer, step)


def two_forwards(run, net, optimizer, step):
    (loss_of(run, images(step)) + 2 * loss_of(run, images(step + 10))).backward()


def two_forwards_cached(run, net, optimizer, step):
    with oni.cached(net):
        two_forwards(run, net, optimizer, step)


def evaluations_between(run, net, optimizer, step):
    """On the first rank alone: they must not wait for the others."""
    if dist.get_rank() == 0:
        with torch.no_grad():
            net(images(step))
        net.eval()
        loss_of(net, images(step)).backward()
        net.train()
        net.layers[0](torch.ones(12, dtype=torch.float64))
        optimizer.zero_grad()
    one_pass(run, net, optimizer, step)


def update_inside_cached(run, net, optimizer, step):
    """A part of the proxies changes inside the scope."""
    with oni.cached(net):
        one_pass(run, net, optimizer, step)
        with torch.no_grad():
            net.layers[0].parametrizations.weight.original.mul_(1.5)
        one_pass(run, net, optimizer, step + 10)


WAYS = {
    "one pass": (one_pass, {}, None),
    "accumulation, no_sync": (accumulate, {}, None),
    "accumulation inside cached": (accumulate_cached, {}, None),
    "two forwards before backward": (two_forwards, {}, None),
    "two forwards inside cached": (two_forwards_cached, {}, None),
    "evaluations on one rank": (evaluations_between, {}, None),
    "an update inside cached": (update_inside_cached, {}, None),
    "a layer that no rank uses": (one_pass, {"find_unused_parameters": True}, lambda: [0, 1, 3, 4]),
    "static graph": (one_pass, {"static_graph": True}, lambda: [0, 1, 3, 4]),
    "a layer that some ranks use": (
        one_pass,
        {"find_unused_parameters": True},
        lambda: range(5) if dist.get_rank() else range(3),
    ),
    "checkpointing": (one_pass, {}, "checkpointed"),
}


def train(way, options, used, shared, **convert):
    net = build(**convert)
    if used == "checkpointed":
        net.checkpointed = True
    elif used is not None:
        net.used = used
    run = DistributedDataParallel(net, **options)
    if shared is not None:
        assert oni.share(run, **shared) is run
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9, weight_decay=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        way(run, net, optimizer, step)
        optimizer.step()
    return net


def compare(net, expected):
    state = expected.state_dict()
    for name, value in net.state_dict().items():
        # float64; gradients are summed in another order, and amplified over a few steps.
        assert_close(value, state[name], atol=1e-11, rtol=1e-11, msg=lambda text, name=name: f"{name}: {text}")
    for (name, parameter), other in zip(net.named_parameters(), expected.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None), name


def scenario_ways():
    for title, (way, options, used) in WAYS.items():
        yield (
            title,
            lambda way=way, options=options, used=used: compare(
                train(way, options, used, {}), train(way, options, used, None)
            ),
        )


def options_of_every_kind():
    for convert in ({"learn_scale": False}, {"bound": "tight", "groups": 1}, {"schedule": "minimax", "scale": "relu"}):
        compare(train(one_pass, {}, None, {}, **convert), train(one_pass, {}, None, None, **convert))


def shares():
    """Each rank computes its own weights, each weight once in a scope, those of one shape in one call."""
    calls, compute = [], cache.orthogonalize_each

    def count(Zs, **options):
        calls.append((tuple(Zs[0].shape), len(Zs)))
        return compute(Zs, **options)

    cache.orthogonalize_each = count
    try:
        net = build()
        oni.share(net)
        with oni.cached(net):
            for step in range(2):
                loss_of(net, images(step)).backward()
    finally:
        cache.orthogonalize_each = compute
    everybody = [None] * dist.get_world_size()
    dist.all_gather_object(everybody, calls)
    linear = [number for rank in everybody for shape, number in rank if shape == (12, 12)]
    assert sum(linear) == 5, everybody
    assert max(linear) - min(linear) <= 1, everybody
    assert sum(number for rank in everybody for _, number in rank) == 10, everybody
    assert all(len({shape for shape, _ in rank}) == len(rank) for rank in everybody), everybody


def nothing_is_left():
    """Of one step in the next, without the help of the garbage collector."""
    net = build()
    run = DistributedDataParallel(net)
    oni.share(run)
    counts = []
    gc.collect()
    gc.disable()
    for step in range(8):
        net.zero_grad()
        accumulate_cached(run, net, None, step)
        one_pass(run, net, None, step)
        counts.append(sum(map(torch.is_tensor, gc.get_objects())))
    gc.enable()
    # gloo's threads let go of a tensor now and then a moment late; a leak would grow from step to step.
    assert min(counts[4:]) <= min(counts[1:4]), counts


def subgroup():
    """Pairs share, all average."""
    world, rank = dist.get_world_size(), dist.get_rank()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    compare(train(one_pass, {}, None, {"process_group": pairs[rank // 2]}), train(one_pass, {}, None, None))


def after_bake():
    shared, alone = train(one_pass, {}, None, {}), train(one_pass, {}, None, None)
    again = copy.deepcopy(shared)
    assert cache.CACHE.models[shared] is not None
    assert cache.CACHE.models.get(again) is None
    if dist.get_rank() == 0:  # neither a copy nor a baked model waits for anybody
        loss_of(again, images(0)).backward()
    oni.bake(shared)
    oni.bake(alone)
    assert shared not in cache.CACHE.models
    compare(shared, alone)
    if dist.get_rank() == 0:
        assert_close(shared(images(0)), alone(images(0)), atol=1e-11, rtol=1e-11)


def retuned():
    """Other options from one pass to the next."""
    nets = []
    for shared in (True, False):
        net = build(steps=None, sigma_min=0.5)
        run = DistributedDataParallel(net)
        if shared:
            oni.share(net)
        one_pass(run, net, None, 0)
        with torch.no_grad():  # a wider spectrum takes more steps
            net.layers[1].parametrizations.weight.original[0] *= 0.02
        assert oni.retune(net)
        one_pass(run, net, None, 1)
        nets.append(net)
    compare(*nets)


def a_part_is_baked():
    """What is left goes on being shared."""
    nets = []
    for shared in (True, False):
        net = build()
        run = DistributedDataParallel(net)
        if shared:
            oni.share(net)
        one_pass(run, net, None, 0)
        oni.bake(net.layers[1])
        one_pass(run, net, None, 1)
        nets.append(net)
    compare(*nets)


# Ranks that fail. Each has groups of its own, so the next scenario begins afresh.


def expect_failure(*words, of, function):
    try:
        function()
    except RuntimeError as error:
        found = error
    else:
        raise AssertionError("no error")
    assert all(word in str(found) for word in words), str(found)
    assert dist.get_rank() == of or type(found).__name__ == "RankFailed", repr(found)


def computing_fails():
    """All end with an error that names the rank, now and in every pass that follows."""
    net, compute = build(), cache.orthogonalize_each
    oni.share(net)
    if dist.get_rank() == 1:

        def fail(*_, **__):
            raise MemoryError("none left")

        cache.orthogonalize_each = fail
    for _ in range(2):
        expect_failure("rank 1 failed: MemoryError: none left", of=1, function=lambda: loss_of(net, images(0)))
    cache.orthogonalize_each = compute


def passes_differ():
    net = build()
    oni.share(net)
    loss = loss_of(net, images(0))
    if dist.get_rank() == 1:
        expect_failure("rank 0 at backward of pass 1, rank 1 at forward pass 2", of=-1, function=lambda: net(images(1)))
    else:
        expect_failure("rank 0 at backward of pass 1, rank 1 at forward pass 2", of=-1, function=loss.backward)


def models_differ():
    net = build(steps=4 if dist.get_rank() == 1 else 3)
    expect_failure("rank 1 differs from rank 0 in the weights", of=-1, function=lambda: oni.share(net))


def freezing_differs():
    net = build()
    oni.share(net)
    if dist.get_rank() == 1:
        net.last.requires_grad_(False)
    expect_failure("rank 1 needs other weights than rank 0", of=-1, function=lambda: net(images(0)))


def create_graph():
    net = build()
    oni.share(net)
    loss = loss_of(net, images(0))
    expect_failure(
        "create_graph=True does not work with oni.share",
        of=-1,
        function=lambda: torch.autograd.grad(loss, list(net.first.parameters()), create_graph=True),
    )


def a_rank_sleeps():
    """One that is alive but does not come is named after the time that the group allows."""
    group = dist.new_group(timeout=timedelta(seconds=3))
    net = build()
    dist.barrier()
    oni.share(net, group)
    if dist.get_rank() == 1:
        time.sleep(5)
    else:
        expect_failure("rank 1 did not answer in 3 s", of=-1, function=lambda: net(images(0)))
    dist.barrier()


def a_rank_ends(how):
    """The others name it; nobody waits."""
    net = build()
    run = DistributedDataParallel(net)
    oni.share(run)
    ending = dist.get_world_size() - 1

    def end(module, *_):
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("bad batch")

    one_pass(run, net, None, 0)
    if dist.get_rank() == ending:
        net.first.register_forward_hook(end)
    began = time.monotonic()
    with nullcontext() if dist.get_rank() != ending else Ending():
        expect_failure(f"rank {ending} has ended", of=ending, function=lambda: one_pass(run, net, None, 1))
    assert time.monotonic() - began < SECONDS / 2


class Ending:
    """Leave this process as an error that nobody catches would."""

    def __enter__(self):
        pass

    def __exit__(self, kind, *_):
        assert kind is ValueError
        os._exit(3)


COMMON = {
    "shares": shares,
    "after bake": after_bake,
    "computing fails": computing_fails,
    "passes differ": passes_differ,
    "models differ": models_differ,
}
ONLY_TWO = {
    **dict(scenario_ways()),
    "options of every kind": options_of_every_kind,
    "retuned": retuned,
    "nothing is left": nothing_is_left,
    "a part is baked": a_part_is_baked,
    "freezing differs": freezing_differs,
    "create_graph": create_graph,
    "a rank sleeps": a_rank_sleeps,
    **COMMON,
    "an error": lambda: a_rank_ends("error"),
}
ONLY_FOUR = {
    **{title: function for title, function in scenario_ways() if "cached" in title or "some ranks" in title},
    "a subgroup": subgroup,
    **COMMON,
    "killed": lambda: a_rank_ends("killed"),
}
SCENARIOS = {2: ONLY_TWO, 4: ONLY_FOUR}


def main(world, init_file, out):
    children = []
    for rank in range(int(world)):
        child = os.fork()
        if not child:
            take_part(rank, int(world), init_file, out)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    Path(out, "codes.json").write_text(json.dumps(codes))


def take_part(rank, world, init_file, out):
    """As one of the processes; does not return."""
    timeout = timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world, timeout=timeout)
    found = {}
    for title, scenario in SCENARIOS[world].items():
        began = time.monotonic()
        try:
            scenario()
            found[title] = "ok"
        except Exception:
            found[title] = traceback.format_exc()
        print(f"{title}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        Path(out, f"{rank}.json").write_text(json.dumps(found))
        if found[title] != "ok":
            break  # the ranks may no longer be at the same point
    # gloo's threads race with the interpreter's own exit, and now and then abort it.
    os._exit(0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    import torch._dynamo  # DistributedDataParallel would load it in each

    main(*sys.argv[1:])
