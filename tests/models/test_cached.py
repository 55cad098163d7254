"""``oni.cached``: one computation for many passes; checkpointing, saved-tensor hooks and second derivatives."""

import copy
import gc
import threading
import weakref
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from held_weights import FLOAT32, FLOAT64, X, baked_output, gradients, mlp, proxy
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import oni
from oni.models.cache import CACHE
from oni.newton import batched


class TestCached:
    def test_gradients_equal_the_uncached_ones(self, computed):
        model = oni.convert(mlp(), learn_scale=True, steps=3).double()
        x, y = torch.randn(2, 5, 6, dtype=torch.float64)

        def run_all(model):
            model(x).square().sum().backward()
            model(y).sum().backward()
            model[:3](x).sum().backward()

        with oni.cached(model):
            run_all(model)
        assert computed == [4]
        with_scope = gradients(model)
        model.zero_grad()
        run_all(model)
        for gradient, expected in zip(with_scope, gradients(model), strict=True):
            assert_close(gradient, expected, **FLOAT64)

    def test_only_what_changed(self, computed):
        model = oni.convert(mlp())
        with oni.cached(model):
            model(X)
            with torch.no_grad():
                proxy(model[2]).mul_(-1)
            model(X)
        assert computed == [4, 1]

    def test_a_gradient_wanted_after_none_was(self, computed):
        model = oni.convert(mlp())
        with oni.cached(model):
            with torch.no_grad():
                model(X)
            model(X).sum().backward()
            with torch.no_grad():
                model(X)
        assert computed == [4, 4]
        assert proxy(model[0]).grad is not None

    def test_the_optimizer_of_another_model(self, computed):
        model, other = oni.convert(mlp()), mlp()
        with oni.cached(model):
            model(X)
            optimizer = torch.optim.Adam(other.parameters(), fused=True)
            other(X).sum().backward()
            optimizer.step()
            model(X)
        assert computed == [4]

    def test_layers_made_orthogonal_one_by_one(self, computed):
        model = mlp()
        for layer in model[::2]:
            oni.orthogonal(layer)
        model(X)
        assert computed == [1] * 4
        computed.clear()
        with oni.cached(model):
            model(X)
            model(X)
        assert computed == [4]

    def test_in_worker_threads(self, computed):
        model = oni.convert(mlp())
        results = []
        with oni.cached(model):
            expected = model(X)
            threads = [threading.Thread(target=lambda: results.append(model(X))) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert computed == [4]
        for result in results:
            assert_close(result, expected)

    def test_nested_and_after_an_error(self):
        model = oni.convert(mlp())

        def fail():
            model(X)
            raise KeyError

        with pytest.raises(KeyError), oni.cached(model), oni.cached(model):
            fail()
        assert CACHE.scopes == ()

    def test_nothing_is_held_after_the_scope(self):
        model = oni.convert(mlp())
        with oni.cached(model):
            held = weakref.ref(CACHE.scopes[0])
            model(X).sum().backward()
        gc.collect()
        assert held() is None

    def test_two_losses_through_one_weight_without_retain_graph(self):
        model = oni.convert(mlp())
        with oni.cached(model):
            real, fake = model(X).sum(), model(-X).sum()
            real.backward()
            fake.backward()
        with_scope = gradients(model)
        model.zero_grad()
        (model(X).sum() + model(-X).sum()).backward()
        for gradient, expected in zip(with_scope, gradients(model), strict=True):
            assert_close(gradient, expected, **FLOAT32)

    def test_copies_have_a_cache_of_their_own(self):
        model = oni.convert(mlp())
        with oni.cached(model):
            y = model(X)
            twin = copy.deepcopy(model)
            with torch.no_grad():
                proxy(twin[0]).neg_()
            assert_close(twin(X), baked_output(twin), **FLOAT32)
            assert_close(model(X), y)


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("converted", [True, False], ids=["whole model", "layer by layer"])
@pytest.mark.parametrize("scope", [False, True], ids=["one forward", "cached"])
def test_gradient_checkpointing(use_reentrant, converted, scope):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(mlp(2) for _ in range(3))
            self.checkpointing = True

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=use_reentrant) if self.checkpointing else block(x)
            return x

    model = Checkpointed().double()
    if converted:
        oni.convert(model, learn_scale=True)
    else:
        for block in model.blocks:
            for layer in block[::2]:
                oni.orthogonal(layer, learn_scale=True)
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    results = []
    for model.checkpointing in (True, False):
        model.zero_grad()
        if scope:
            with oni.cached(model):
                model(x).square().sum().backward()
        else:
            model(x).square().sum().backward()
        results.append(gradients(model))
    for with_checkpoints, without in zip(*results, strict=True):
        assert_close(with_checkpoints, without, **FLOAT64)


PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
PRODUCTS |= {torch.ops.aten.bmm.default, torch.ops.aten.baddbmm.default}


@pytest.mark.parametrize("saved", ["products", "everything"])
@pytest.mark.parametrize("whole", [False, True], ids=["layer by layer", "whole model"])
@pytest.mark.parametrize("scope", [False, True], ids=["one forward", "cached"])
@pytest.mark.parametrize(
    "options",
    [{"steps": 1}, {"steps": 6, "bound": "tight", "center": True}, {"steps": 5, "bound": "frobenius", "groups": 2}],
    ids=lambda options: f"T={options['steps']}",
)
def test_selective_checkpointing(saved, whole, scope, options):
    """What is computed may be kept until the backward pass, so nothing may be written to it."""
    model = oni.convert(mlp(2), **options).double()
    x = X.double().requires_grad_()

    def choose(context, operation, *_, **__):
        keep = saved == "everything" or operation in PRODUCTS
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    for part in [model] if whole else model:
        contexts = partial(create_selective_checkpoint_contexts, choose)
        part.forward = partial(checkpoint, part.forward, use_reentrant=False, context_fn=contexts)
    with oni.cached(model) if scope else nullcontext():
        model(x).square().sum().backward()
    found = gradients(model)
    model.zero_grad()
    for part in [model] if whole else model:
        del part.forward
    model(x).square().sum().backward()
    for gradient, expected in zip(found, gradients(model), strict=True):
        assert_close(gradient, expected, **FLOAT64)


@pytest.mark.parametrize("scope", [False, True], ids=["one forward", "cached"])
def test_saved_tensors_on_another_device(scope):
    model = oni.convert(mlp()).double()
    x = X.double()
    model(x).square().sum().backward()
    expected = gradients(model)
    model.zero_grad()
    moved = []

    def pack(tensor):
        moved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        if scope:
            with oni.cached(model):
                model(x).square().sum().backward()
        else:
            model(x).square().sum().backward()
            # The intermediates of each of the four weights pass through the hook.
            assert len(moved) > 4 * 6
    for gradient, other in zip(gradients(model), expected, strict=True):
        assert_close(gradient, other, **FLOAT64)


@pytest.mark.parametrize("scope", [False, True], ids=["one forward", "cached"])
def test_second_derivatives(scope):
    model = oni.convert(mlp(), steps=2).double()
    x = X.double().requires_grad_()

    def penalty(model):
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return slope.square().sum()

    if scope:
        with oni.cached(model):
            penalty(model).backward()
    else:
        penalty(model).backward()
    found = gradients(model)
    model.zero_grad()
    for module in model.modules():
        module._forward_pre_hooks.clear()  # each layer computes its weight alone
    penalty(model).backward()
    expected = gradients(model)
    assert sum(gradient is not None for gradient in expected) > 4
    for gradient, other in zip(found, expected, strict=True):
        assert_close(gradient, other, **FLOAT64)


def test_gradients_of_gradients_of_a_batch():
    Zs = [torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)]

    def outputs(*Zs):
        return torch.stack(batched.orthogonalize_each(Zs, 2))

    assert torch.autograd.gradcheck(outputs, Zs)
    assert torch.autograd.gradgradcheck(outputs, Zs)
