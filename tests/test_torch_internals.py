"""Each fails when torch changes what ``oni/torch_internals.py`` relies on."""

import ast
import copy
import re
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrize
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import oni
from oni import torch_internals
from oni.torch_internals import (
    can_use_onednn,
    collect_weights,
    find_load,
    find_returned,
    follow_weights,
    get_backward_id,
    get_caller_frame,
    get_saving_hook,
    get_timeout,
    get_version,
    has_hooks,
    has_pre_hook,
    has_stand_ins,
    has_tangents,
    has_transforms,
    has_values,
    is_called_by,
    is_exporting_onnx,
    is_shard,
    is_sharded_module,
    keeps_graph,
    may_keep_results,
    multiply_by_onednn,
    remove_hooks,
)

PACKAGE = Path(oni.__file__).parent


def ask_within(question, run):
    """The answers to a question, each time the function that ``run`` gets is called."""
    answers = []

    def function(x):
        answers.append(question())
        return x.sin()

    run(function)
    assert answers
    return set(answers)


# Tensors


def test_get_version():
    Z = nn.Parameter(torch.ones(2))
    seen = [get_version(Z)]
    with torch.no_grad():
        Z.add_(1)
        seen.append(get_version(Z))
        Z.detach().add_(1)  # shares the count
        seen.append(get_version(Z))
        Z.data.add_(1)  # does not
        seen.append(get_version(Z))
    assert seen == [0, 1, 2, 2]


def test_has_values():
    assert has_values(torch.ones(2))
    assert not has_values(torch.ones(2, device="meta"))
    real = torch.ones(2)
    with FakeTensorMode():
        fake = torch.ones(2)
        # What is computed from it here would be fake.
        assert not has_values(real)
    assert has_values(real)
    assert not has_values(fake)
    assert not has_values(nn.Parameter(fake))
    assert ask_within(lambda: has_values(real), lambda run: make_fx(run, tracing_mode="fake")(X)) == {False}


@pytest.fixture
def alone():
    """A process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=77))
    yield
    dist.destroy_process_group()


def test_sharded(alone):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    layer = nn.Linear(4, 4)
    assert not is_shard(layer.weight)
    assert not is_sharded_module(layer)
    fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    assert is_shard(layer.weight)
    assert is_sharded_module(layer)
    layer.unshard()
    assert not is_shard(layer.weight)
    assert is_sharded_module(layer)


# Who else is at work


X = torch.ones(3)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # torch's own forward-mode code
@pytest.mark.parametrize(
    "run",
    [
        lambda function: torch.func.vmap(function)(X),
        lambda function: torch.func.grad(lambda x: function(x).sum())(X),
        lambda function: torch.func.jvp(function, (X,), (X,)),
        lambda function: torch.func.functionalize(function)(X),
    ],
    ids=["vmap", "grad", "jvp", "functionalize"],
)
def test_has_transforms(run):
    assert ask_within(has_transforms, run) == {True}
    assert not has_transforms()


def test_has_tangents():
    assert not has_tangents()
    with forward_ad.dual_level():
        assert has_tangents()
    assert not has_tangents()


def fake(function):
    with FakeTensorMode():
        function(torch.ones(3))


def functional(function):
    with FunctionalTensorMode():
        function(X)


def count(function):
    with FlopCounterMode(display=False):
        function(X)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda function: function(X), False),
        (count, False),
        (fake, True),
        (functional, True),
        *((lambda function, mode=mode: make_fx(function, tracing_mode=mode)(X), True) for mode in ("real", "fake")),
    ],
    ids=["nothing", "a counter", "fake", "functional", "make_fx", "make_fx, fake"],
)
def test_has_stand_ins(run, expected):
    assert ask_within(has_stand_ins, run) == {expected}
    assert not has_stand_ins()


def test_may_keep_results():
    policy = partial(create_selective_checkpoint_contexts, lambda *_, **__: CheckpointPolicy.MUST_SAVE)

    def run(function):
        checkpoint(function, X.clone().requires_grad_(), use_reentrant=False, context_fn=policy).sum().backward()

    # Both when it runs and when it runs again.
    assert ask_within(may_keep_results, run) == {True}
    assert not may_keep_results()


def test_torch_compile_is_not_asked_whether_it_keeps_results():
    compiled = torch.compile(lambda x: x.sin() if may_keep_results() else x.cos(), fullgraph=True, backend="eager")
    assert torch.equal(compiled(X), X.cos())


def test_get_saving_hook():
    def pack(tensor):
        return tensor

    def unpack(tensor):
        return tensor

    assert get_saving_hook() is None
    with saved_tensors_hooks(pack, unpack):
        assert get_saving_hook() is pack
    assert get_saving_hook() is None
    hooks = []

    def function(x):
        hooks.append(get_saving_hook())
        return x.sin()

    checkpoint(function, X.clone().requires_grad_(), use_reentrant=False).sum().backward()
    # Others when the block runs again than when it ran first.
    assert None not in hooks
    assert len(set(map(id, hooks))) == len(hooks) == 2


# The backward pass that runs in this thread


def test_the_backward_pass():
    assert get_backward_id() == -1
    seen = []
    x = X.clone().requires_grad_()
    for retain_graph in (True, False):
        y = x.sin()
        for tensor in (x, y):
            tensor.register_hook(lambda _: seen.append((get_backward_id(), keeps_graph())))
        y.sum().backward(retain_graph=retain_graph)
    ids, kept = zip(*seen[:2], *seen[-2:], strict=True)
    assert kept == (True, True, False, False)
    assert ids[0] == ids[1] != ids[2] == ids[3] != -1
    assert get_backward_id() == -1


# Hooks of modules, and the calls that they are called in


def remember_frame(module, _):
    module.frame = get_caller_frame()


class Asks(nn.Module):
    """Remembers the frame that calls its hooks, and says whether that is on the stack while forward runs."""

    def __init__(self, error=None):
        super().__init__()
        self.error = error
        self.register_forward_pre_hook(remember_frame)

    def forward(self, x):
        self.found = not find_returned([self.frame])
        if self.error is not None:
            raise self.error
        return x


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("always_called", [False, True])
def test_the_frame_that_calls_hooks_lasts_as_long_as_the_call(error, always_called):
    module = Asks(error)
    # torch calls hooks that are always called in another way.
    module.register_forward_hook(lambda *_: None, always_call=always_called)
    if error is None:
        module(X)
    else:
        with pytest.raises(error):
            module(X)
    assert module.found
    assert find_returned([module.frame, sys._getframe()]) == {id(module.frame)}


def test_is_called_by():
    def inside():
        return is_called_by("outside")

    def outside():
        return inside()

    assert outside()
    assert not inside()


class Asked(nn.Module):
    """Notes what is found while it is loaded."""

    def _load_from_state_dict(self, *arguments):
        super()._load_from_state_dict(*arguments)
        self.found = find_load()


def test_find_load():
    assert find_load() is None
    model = nn.Sequential(nn.Sequential(Asked()))
    model.load_state_dict({})
    root, level = model[0][0].found
    assert root is model
    # Asked, load for each of three modules, load_state_dict, this function.
    assert level == 6
    model[0].load_state_dict({})
    assert model[0][0].found == (model[0], 5)


class Exported(nn.Module):
    """Notes whether it is exported to ONNX."""

    def forward(self, x):
        answers.append(is_exporting_onnx())
        return x + 1


answers = []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_is_exporting_onnx(tmp_path, dynamo):
    pytest.importorskip("onnxscript")
    answers.clear()
    torch.onnx.export(Exported(), (X,), str(tmp_path / "model.onnx"), dynamo=dynamo, verbose=False)
    assert answers
    assert all(answers)
    Exported()(X)
    assert not answers[-1]
    torch.export.export(Exported(), (X,))
    assert not answers[-1]


def noted(module, *_):
    module.__dict__["noted"] = module.__dict__.get("noted", 0) + 1


def other(module, *_):
    pass


def test_hooks_without_handles():
    layer = nn.Linear(3, 3)
    assert not has_hooks(layer)
    handle = layer.register_forward_pre_hook(other)
    assert has_hooks(layer)
    handle.remove()
    layer.register_forward_hook(other)
    assert has_hooks(layer)
    layer.register_forward_pre_hook(noted)
    layer.register_forward_hook(noted, always_call=True)
    layer.register_state_dict_pre_hook(noted)
    layer = copy.deepcopy(layer)
    assert has_pre_hook(layer, noted)
    assert not has_pre_hook(layer, other)
    layer(X)
    layer.state_dict()
    assert layer.noted == 3
    remove_hooks(layer, lambda hook: hook is noted)
    layer(X)
    layer.state_dict()
    with pytest.raises(RuntimeError):
        layer(torch.ones(4))
    assert layer.noted == 3
    assert list(layer._forward_hooks.values()) == [other]
    assert not layer._forward_hooks_always_called


# Recurrent layers


class Twice(nn.Module):
    calls = 0

    def forward(self, Z):
        self.calls += 1
        return 2 * Z


def test_follow_weights_and_collect_weights():
    x, twice = torch.ones(3, 1, 2), Twice()
    layer = parametrize.register_parametrization(nn.GRU(2, 4), "weight_hh_l0", twice, unsafe=True)

    def count_calls():
        twice.calls = 0
        layer(x)
        return twice.calls

    # This is why: torch computes a weight several times for one forward pass, and keeps it.
    assert count_calls() > 1
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(layer)
    follow_weights(layer)
    assert count_calls() == 1
    copy.deepcopy(layer)
    first = layer(x)[0]
    with torch.no_grad():
        layer.parametrizations.weight_hh_l0.original.neg_()
    changed = layer(x)[0]
    assert not torch.allclose(changed, first, atol=1e-3)
    parametrize.remove_parametrizations(layer, "weight_hh_l0")
    collect_weights(layer)
    assert layer._flat_weights[1] is layer.weight_hh_l0
    assert torch.equal(layer(x)[0], changed)
    for other in (nn.Linear(2, 2), nn.GRUCell(2, 2)):
        before = dict(vars(other))
        follow_weights(other)
        collect_weights(other)
        assert vars(other) == before


# Processes


def test_get_timeout(alone):
    assert get_timeout(None) == timedelta(seconds=77)
    assert get_timeout(dist.new_group(timeout=timedelta(seconds=5))) == timedelta(seconds=5)


# The file itself


def test_onednn_multiplies_what_is_plain(monkeypatch):
    monkeypatch.setattr(torch_internals, "is_onednn_faster", lambda: True)
    X, Y = torch.eye(4)[[2, 0, 1, 3]], torch.arange(24.0).reshape(4, 6)
    with torch.no_grad():
        assert can_use_onednn(X, Y) == torch.backends.mkldnn.is_available()
        if can_use_onednn(X, Y):
            assert multiply_by_onednn(X, Y).equal(X @ Y)
            assert multiply_by_onednn(Y.mT.contiguous(), X.mT).equal(Y.mT @ X.mT)
        assert not can_use_onednn(X.double(), Y.double())
        assert not can_use_onednn(X.bfloat16(), Y.bfloat16())
        assert not can_use_onednn(X.to("meta"), Y.to("meta"))
        with FakeTensorMode():
            assert not can_use_onednn(torch.ones(4, 4), torch.ones(4, 4))
        assert not any(ask_within(lambda: can_use_onednn(X, Y), lambda f: torch.func.vmap(f)(X)))
    assert not can_use_onednn(X, Y)


def test_every_function_is_tested():
    source = Path(__file__).read_text()
    assert [name for name in torch_internals.__all__ if source.count(f"{name}(") < 1] == []


INTERNAL = re.compile(
    r"torch\._C\b|\._version\b|_getframe|_current_level|_get_backend|_forward(_pre)?_hooks|_flat_weight|_state_dict_pre_hooks|FakeTensor"
)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_file_names_internals(path):
    if path.name == "torch_internals.py":
        return
    named = [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
    assert [name for name in named if INTERNAL.search(name)] == []
