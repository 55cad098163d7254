"""One process of two: train a converted model in every way, and save what came out of each.

python distributed_worker.py RANK WORLD INIT_FILE FOLDER
"""

import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import oni

STEPS, BATCH = 3, 8
UNUSED = {"static_graph": {"static_graph": True}, "find_unused": {"find_unused_parameters": True}}
"""How DDP is told of a layer without a gradient."""
WAYS = ("ddp", "accumulate", "fsdp2", "recurrent", *UNUSED)


def model():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)
    )
    return oni.convert(net, steps=3, learn_scale=True).double()


class WithUnusedLayer(nn.Sequential):
    """Its last layer, of the shape of others, takes no part."""

    def forward(self, x):
        for layer in self[:-1]:
            x = layer(x)
        return x


def model_with_unused_layer():
    net = model()
    return oni.convert(WithUnusedLayer(*net, nn.Linear(8, 8).double()), steps=3, learn_scale=True)


class Recurrent(nn.Module):
    """Reads each row as three positions."""

    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(4, 5, num_layers=2, bidirectional=True, batch_first=True, proj_size=3)

    def forward(self, x):
        return self.memory(x.view(-1, 3, 4))[0]


def recurrent_model():
    torch.manual_seed(0)
    return oni.convert(Recurrent(), steps=3, learn_scale=True).double()


MODELS = {"recurrent": recurrent_model, **dict.fromkeys(UNUSED, model_with_unused_layer)}


def build(way):
    return MODELS.get(way, model)()


def data():
    return torch.randn(STEPS, 2, BATCH, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def check_target_of_shards(mesh):
    """A shard does not tell the spectrum: retune says so, and works on what is gathered."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layer = oni.convert(nn.Linear(12, 8), sigma_min=0.9)
    fully_shard(layer, mesh=mesh)
    for look in (oni.retune, oni.summary):
        with pytest.raises(ValueError, match="Linear: its proxy is sharded"):
            look(layer)
    layer.unshard()
    with torch.no_grad():
        layer.parametrizations.weight.original[0] *= 30
    assert len(oni.retune(layer)) == 1
    (row,) = oni.summary(layer).rows
    assert row.sigma[0] >= 0.9, row
    layer.reshard()


def losses(net, x):
    return net(x).square().mean()


def full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def train(rank, world, way):
    net = build(way)
    if way == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (world,))
        check_target_of_shards(mesh)
        before = oni.share(model())
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        run = net
        # What is sharded is not shared, whichever comes first.
        fully_shard(before, mesh=mesh)
        for call in (lambda: oni.share(net), lambda: before(data()[0, 0])):
            try:
                call()
            except ValueError as error:
                refusal = str(error)
            assert "is sharded by fully_shard" in refusal
            del refusal
    else:
        run = nn.parallel.DistributedDataParallel(net, **UNUSED.get(way, {}))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for both in data():
        first, second = (x.chunk(world)[rank] for x in both)
        optimizer.zero_grad()
        if way == "accumulate":
            # Two backward passes for one step, the first without communication, inside one scope.
            with oni.cached(net):
                with run.no_sync():
                    losses(run, first).backward()
                losses(run, second).backward()
        else:
            losses(run, first).backward()
        optimizer.step()
    return {name: full(value) for name, value in net.state_dict().items()}


def main(rank, world, init_file, folder):
    rank, world = int(rank), int(world)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world)
    for way in WAYS:
        state = train(rank, world, way)
        if rank == 0:
            torch.save(state, Path(folder, f"{way}.pt"))
        dist.barrier()
    # gloo's threads race with the interpreter's own exit, and now and then abort it.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
