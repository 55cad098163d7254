"""Within one forward pass each weight is computed once, and nothing outlives the pass."""

import copy
import gc
import pickle
import threading
import weakref
from contextlib import nullcontext

import pytest
import torch
from held_weights import FLOAT32, FLOAT64, TwoHeads, X, baked_output, gradients, mlp, proxy
from torch import nn
from torch.nn.utils import parametrize
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import oni
from oni.models.cache import CACHE
from oni.newton import batched


class TestOneForward:
    def test_same_shapes_in_one_call(self, computed):
        model = oni.convert(nn.Sequential(mlp(4), nn.Linear(6, 3), nn.Linear(3, 3)))
        model(X).sum().backward()
        assert sorted(computed) == [1, 1, 4]

    @pytest.mark.parametrize(("width", "already"), [(3, 2), (1 << 16, 1)], ids=["small", "large"])
    def test_small_weights_of_other_shapes_are_computed_before_the_first_layer(self, computed, width, already):
        """On a CPU, where calls after a convolution take longer; the products of large ones take longer still."""
        first, second = nn.Linear(6, 6), nn.Linear(6, width)
        model = oni.convert(nn.Sequential(first, second), steps=0)
        before_second = []
        second.register_forward_pre_hook(lambda *_: before_second.append(len(computed)))
        model(X).sum().backward()
        assert before_second == [already]
        assert len(computed) == 2

    def test_what_is_checkpointed_is_not_computed_with_others_again(self, computed):
        class Checkpointed(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x, checkpointed=True):
                x = self.first(x)
                return checkpoint(self.second, x, use_reentrant=False) if checkpointed else self.second(x)

        model = oni.convert(Checkpointed())
        for checkpointed, expected in ((True, [2, 1, 1]), (True, [1, 1, 1]), (False, [1, 1]), (False, [2])):
            computed.clear()
            model(X, checkpointed).sum().backward()
            assert computed == expected

    def test_the_next_forward_computes_anew(self, computed):
        model = oni.convert(mlp())
        model(X).sum().backward()
        with torch.no_grad():
            model(X)
        assert computed == [4, 4]

    def test_inference_mode(self):
        model = oni.convert(mlp())
        with torch.inference_mode():
            y = model(X)
        model(X).sum().backward()
        assert_close(model(X), y.clone())

    def test_a_cell_in_a_loop(self, computed):
        class Loop(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.RNNCell(6, 6)
                self.out = nn.Linear(6, 2)

            def forward(self, x):
                h = None
                for _ in range(7):
                    h = self.cell(x, h)
                return self.out(h)

        model = Loop()
        oni.orthogonal(model.cell, "weight_hh")
        oni.convert(model)
        model(X).sum().backward()
        assert sorted(computed) == [1, 1]

    def test_unused_layers_are_no_part_of_the_graph(self):
        model = oni.convert(TwoHeads())
        model(X).sum().backward()
        assert proxy(model.first).grad is not None
        assert proxy(model.second).grad is None

    def test_nested_converted_models(self, computed):
        inner = oni.convert(mlp(2))
        outer = oni.convert(nn.Sequential(inner, nn.Linear(6, 6)))
        outer(X)
        assert computed == [3]
        assert_close(outer(X), baked_output(outer), **FLOAT32)

    def test_a_model_that_calls_itself(self):
        class Again(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 6)

            def forward(self, x, times=2):
                return self.layer(x) if times == 0 else self(self.layer(x), times - 1)

        model = oni.convert(Again())
        assert_close(model(X), baked_output(model), **FLOAT32)
        assert CACHE.threads.passes == []

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
    def test_nothing_is_trusted_after_an_error_in_forward(self, error):
        class Fails(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.fails = nn.Linear(6, 6), True

            def forward(self, x):
                y = self.layer(x)
                if self.fails:
                    raise error
                return y

        model = oni.convert(Fails())
        with pytest.raises(error):
            model(X)
        proxy(model.layer).data.neg_()  # no version counts this
        assert_close(model.layer(X), baked_output(model.layer), **FLOAT32)
        model.fails = False
        assert_close(model(X), baked_output(model), **FLOAT32)
        assert CACHE.threads.passes == []

    def test_another_thread_inside_forward(self):
        class Waits(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 6)
                self.entered, self.go_on = threading.Event(), threading.Event()

            def forward(self, x):
                y = self.layer(x)
                self.entered.set()
                assert self.go_on.wait(10)
                return y

        model = oni.convert(Waits())
        thread = threading.Thread(target=model, args=(X,))
        thread.start()
        assert model.entered.wait(10)
        proxy(model.layer).data.neg_()
        found = model.layer(X)
        model.go_on.set()
        thread.join()
        expected = X @ oni.orthogonalize(proxy(model.layer)).T + model.layer.bias
        assert_close(found, expected, **FLOAT32)

    def test_a_replaced_layer_is_neither_kept_nor_computed(self, computed):
        model = oni.convert(mlp(2))
        model(X)
        old = weakref.ref(model[0])
        model[0] = nn.Linear(6, 6)
        gc.collect()
        assert old() is None
        computed.clear()
        model(X)
        assert computed == [1]

    def test_frozen_after_a_backward(self):
        model = oni.convert(mlp())
        model(X).sum().backward()
        model.requires_grad_(False)
        assert not model(X).requires_grad

    def test_memory_is_free_after_the_backward(self):
        def batches():
            return [obj for obj in gc.get_objects() if type(obj) is batched._Batch]

        of_other_tests = batches()
        model = oni.convert(mlp())
        loss = model(X).sum()  # held, as training loops do
        loss.backward()
        own = [batch for batch in batches() if all(batch is not other for other in of_other_tests)]
        assert all(batch.chain == [] for batch in own)
        assert own, "the graph that loss holds has a batch"

    def test_two_losses_of_two_layers_of_one_batch(self):
        class BothHeads(TwoHeads):
            def forward(self, x):
                return self.first(x), self.second(x)

        model = oni.convert(BothHeads())
        first, second = model(X)
        # In plain torch these are two graphs, so neither needs retain_graph.
        first.square().sum().backward()
        second.square().sum().backward()
        separate = gradients(model)
        model.zero_grad()
        first, second = model(X)
        (first.square().sum() + second.square().sum()).backward()
        for gradient, expected in zip(separate, gradients(model), strict=True):
            assert_close(gradient, expected, **FLOAT32)

    def test_a_second_backward_is_an_error_as_in_torch(self):
        model = oni.convert(mlp())
        loss = model(X).sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        loss = model(X).sum()
        loss.backward(retain_graph=True)
        once = gradients(model)
        loss.backward()
        # The first backward of this loss came on top of the one before.
        for gradient, twice in zip(once, gradients(model), strict=True):
            assert_close(1.5 * gradient, twice, **FLOAT32)

    @pytest.mark.parametrize("scope", [False, True], ids=["one forward", "cached"])
    @pytest.mark.parametrize("create_graph", [False, True])
    def test_an_update_before_the_backward_is_an_error(self, scope, create_graph):
        model = oni.convert(mlp())

        def run():
            loss = model(X).square().sum()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(1.0)
            loss.backward(create_graph=create_graph)

        with (
            oni.cached(model) if scope else nullcontext(),
            pytest.raises(RuntimeError, match="modified by an inplace operation"),
        ):
            run()


class TestHandingOut:
    def test_writes_to_a_weight_go_nowhere(self):
        model = oni.convert(mlp())
        y = model(X)
        model[0].weight.data.mul_(0)
        nn.init.xavier_uniform_(model[0].weight)
        assert_close(model(X), y)

    def test_writes_to_a_weight_go_nowhere_inside_cached(self):
        model = oni.convert(mlp())
        for grad in (False, True):
            with torch.set_grad_enabled(grad), oni.cached(model):
                y = model(X)
                model[0].weight.data.mul_(0)
                nn.init.xavier_uniform_(model[0].weight)
                assert_close(model(X), y)

    def test_a_parametrization_on_top(self):
        class Double(nn.Module):
            def forward(self, W):
                return 2 * W

        model = oni.convert(mlp(2))
        parametrize.register_parametrization(model[0], "weight", Double())
        with_graph = model(X)
        with torch.no_grad():
            assert_close(model(X), with_graph)
            with oni.cached(model):
                assert_close(model(X), with_graph)
                assert_close(model(X), with_graph)

    def test_tying_by_assignment_is_refused(self):
        encoder, decoder = nn.Linear(6, 6), oni.nn.Linear(6, 6)
        for value in (encoder.weight, oni.nn.Linear(6, 6).weight):
            with pytest.raises(ValueError, match=r"weight is computed from a proxy.*detach"):
                decoder.weight = value
        decoder.weight = encoder.weight.detach()
        assert torch.equal(proxy(decoder), encoder.weight)


def test_nothing_piles_up():
    model = oni.convert(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def live():
        gc.collect()
        return sum(issubclass(type(obj), torch.Tensor) for obj in gc.get_objects())

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()

    def count_batches():
        return sum(type(obj) is batched._Batch for obj in gc.get_objects())

    train(2)
    before, batches = live(), count_batches()
    gc.disable()
    try:
        train(300)
        # Without a garbage collection: no reference cycle keeps an old graph alive.
        assert count_batches() <= batches
    finally:
        gc.enable()
    # A leak would leave a tensor or more per step.
    assert live() < before + 100


class TestHooks:
    def test_baking_child_by_child_leaves_no_hooks(self):
        model = oni.convert(mlp(2))
        for layer in model:
            oni.bake(layer)
        assert not model._forward_pre_hooks
        assert b"oni.models" not in pickle.dumps(model)

    def test_a_copy_baked_child_by_child(self):
        model = copy.deepcopy(oni.convert(mlp(2)))
        model(X)
        for layer in model:
            oni.bake(layer)
        assert b"oni.models" not in pickle.dumps(model)

    def test_converting_twice_adds_no_second_hook(self):
        model = oni.convert(oni.convert(mlp(2)))
        assert len(model._forward_pre_hooks) == len(model._forward_hooks) == 1

    def test_swapping_parameters_on_conversion(self):
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            model = oni.convert(mlp(2))
            model(X).sum().backward()
            model.double()
            assert_close(model(X.double()), baked_output(model, X.double()), **FLOAT64)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
