"""Several threads at once: optimizers, scopes, baking and first forward passes do not disturb each other."""

import copy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import count

import torch
from held_weights import FLOAT32, X, baked_output, mlp, proxy
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.testing import assert_close

import oni
from oni.models.cache import CACHE
from oni.models.proxied import find_orthogonal


@contextmanager
def at_every_line(act, *files):
    """At every line of such files that this thread runs, have another thread do this."""
    done = []

    def trace(frame, event, _):
        file = frame.f_code.co_filename
        if event == "line" and any(part in file for part in files):
            done.append(thread.submit(act))
            # This thread may hold a lock here, for which the other one waits.
            wait(done[-1:], timeout=0.01)
        return trace

    with ThreadPoolExecutor(1) as thread:
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(None)
    assert done
    for future in done:
        future.result()


def test_scopes_open_and_close_while_an_optimizer_steps():
    """torch goes through the hooks of optimizers one by one; here a scope opens and closes in the midst of it."""
    model, other = oni.convert(mlp()), nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    scope = oni.cached(model)
    with ThreadPoolExecutor(1) as thread:

        def open_scope(*_):
            thread.submit(scope.__enter__).result()

        def close_scope(*_):
            thread.submit(scope.__exit__, None, None, None).result()

        handles = [register_optimizer_step_post_hook(hook) for hook in (open_scope, close_scope, lambda *_: None)]
        try:
            optimizer.step()
        finally:
            for handle in handles:
                handle.remove()


def test_an_optimizer_steps_while_weights_are_computed(monkeypatch):
    monkeypatch.setattr("oni.models.cache.is_small", lambda Z: False)  # small ones would be computed together
    layers = oni.convert(nn.ModuleList(nn.Linear(width, 2) for width in range(2, 200)))
    optimizer = torch.optim.SGD([proxy(layers[0])], lr=0.5)
    waiting = list(layers[2:])

    def compute_another():
        layer = waiting.pop()
        layer(torch.ones(layer.in_features))

    with oni.cached(layers):
        before = layers[0](torch.ones(2)).detach()
        layers[1](torch.ones(3)).sum().backward()
        proxy(layers[0]).grad = torch.randn_like(proxy(layers[0]))
        with at_every_line(compute_another, "cache.py"):
            optimizer.step()
        after = layers[0](torch.ones(2))
    assert not torch.allclose(after, before), "the change must show"
    assert_close(after, baked_output(layers[0], torch.ones(2)), **FLOAT32)


def test_baking_while_copies_run_for_the_first_time():
    model, other = oni.convert(mlp(2)), oni.convert(mlp(2))
    expected = other(X).detach()
    copies = []

    def run_a_copy():
        copies.append(copy.deepcopy(other))
        assert_close(copies[-1](X).detach(), expected, **FLOAT32)

    with at_every_line(run_a_copy, "weak"):
        oni.bake(model)
    assert not model._forward_pre_hooks


def test_the_garbage_collector_closes_a_scope_in_a_thread_that_has_the_lock():
    model = oni.convert(mlp())
    forgotten = [oni.cached(model)]
    forgotten[0].__enter__()

    def forget():
        with CACHE.lock:
            forgotten.clear()

    thread = threading.Thread(target=forget, daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert CACHE.scopes == ()


def test_the_walk_while_another_thread_adds_modules():
    model = oni.convert(mlp(3))
    numbers = count()

    def change_modules():
        """Add one to each layer; after ten, remove them, or the walk would have ever more to pass."""
        number = next(numbers) % 11
        for layer in model:
            if number < 10:
                layer.add_module(f"added{number}", nn.Identity())
            else:
                for added in range(10):
                    delattr(layer, f"added{added}")

    with at_every_line(change_modules, "proxied.py"):
        assert len(list(find_orthogonal(model))) == 3
