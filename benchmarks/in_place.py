"""What operations take alone and in their place, where others have swept the cache: python benchmarks/in_place.py."""

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import oni
from oni.models import cache
from oni.newton import batched
from oni.recipes.networks.resnet_imagenet import resnet18
from oni.recipes.networks.vgg import VGG

ROUNDS = 100


def measure(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of its seconds."""
    seconds = []
    for _ in range(rounds + 3):
        before = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds[3:])


def compare_operations() -> None:
    """Those of ``orthogonalize`` on 256 x 256 with 2 steps."""
    Z, G = torch.randn(2, 256, 256).unbind()
    Z.requires_grad_()

    def step() -> Tensor:
        return torch.autograd.grad(oni.orthogonalize(Z, 2), Z, G)[0]

    measure(step)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        for _ in range(ROUNDS):
            step()
    inside = {event.key: event.self_cpu_time_total / event.count for event in profiled.key_averages()}
    X, Y = torch.randn(2, 256, 256).unbind()
    alone: dict[str, Callable[[], object]] = {
        "aten::mm": lambda: X @ Y,
        "aten::dot": lambda: torch.dot(X.reshape(-1), Y.reshape(-1)),
        "aten::add": lambda: X + X.mT,
    }
    for name, call in alone.items():
        print(f"{name}, microseconds: {1e6 * measure(call):.0f} alone, {inside[name]:.0f} in its place (profiled)")


def compare_weights() -> None:
    """The weights of the VGG-style net with 2 steps: inside a training step, and by themselves."""
    net = oni.convert(VGG(2, 1), steps=2)
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    spent = 0.0

    def timed(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal spent
            before = time.perf_counter()
            result = function(*arguments, **options)
            spent += time.perf_counter() - before
            return result

        return call

    cache.orthogonalize_each = timed(cache.orthogonalize_each)  # type: ignore[assignment]
    batched._Batch.pull_back_collected = timed(batched._Batch.pull_back_collected)  # type: ignore[method-assign]
    proxies = [p.detach().flatten(1).requires_grad_() for p in net.parameters() if p.dim() > 1]

    def train() -> None:
        net.zero_grad()
        F.cross_entropy(net(images), labels).backward()

    def weights_alone() -> None:
        for Z in proxies:
            (W,) = cache.orthogonalize_each([Z], 2)
            torch.autograd.grad(W.sum(), Z)

    for words, call in (("inside the step", train), ("alone", weights_alone)):
        seconds = []
        for _ in range(12):
            spent = 0.0
            call()
            seconds.append(spent)
        print(f"VGG's weights, forward and backward, {words}: {1e3 * statistics.median(seconds):.1f} ms")


def compare_access() -> None:
    """A weight that ``oni.cached`` holds: asked for again and again, and by the layers of ResNet-18."""
    net = oni.convert(resnet18(classes=200), steps=5).eval()
    layers = [module for module in net.modules() if hasattr(module, "parametrizations")]
    with torch.no_grad(), oni.cached(net):
        images = torch.randn(32, 3, 64, 64)
        net(images)
        seconds: list[float] = []
        for layer in layers:
            computed = vars(type(layer))["weight"]

            def get(module: torch.nn.Module, computed: property = computed) -> Tensor:
                before = time.perf_counter()
                weight: Tensor = computed.fget(module)  # type: ignore[misc]
                seconds.append(time.perf_counter() - before)
                return weight

            type(layer).weight = property(get, computed.fset)  # type: ignore[attr-defined]
        for _ in range(6):
            net(images)
    print(f"a held weight in ResNet-18: {1e6 * statistics.median(seconds):.0f} microseconds")


if __name__ == "__main__":
    torch.manual_seed(0)
    compare_operations()
    compare_access()
    compare_weights()
