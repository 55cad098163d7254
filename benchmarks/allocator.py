"""What it saves if glibc keeps freed memory: python benchmarks/allocator.py --rounds 5.

Training steps (forward, backward, SGD with momentum, float32) in processes of their own, in turns with and without the
two environment variables that docs/benchmarks.md recommends. One number is the median of a process.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial

import torch

import oni
from oni.machine import cpu_model
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.resnet_imagenet import resnet18

KEEP = {"MALLOC_TRIM_THRESHOLD_": "2147483647", "MALLOC_MMAP_THRESHOLD_": "67108864"}
NETWORKS = {
    "20-layer 784-256 MLP, batch 256": (partial(MLP, 20), (256, 784)),
    "ResNet-18 at 64x64, batch 32": (partial(resnet18, classes=200), (32, 3, 64, 64)),
}
METHODS = {
    "plain": None,
    "sigma_min=0.9": {"sigma_min": 0.9, "start": "orthogonal"},
    "steps=5": {"steps": 5},
}
WARM_UP, STEPS = 3, 15


def time_step(network: str, method: str, threads: int) -> float:
    """Milliseconds of a training step, the median of one process."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    build, shape = NETWORKS[network]
    net = build()
    if (options := METHODS[method]) is not None:
        oni.convert(net, **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(shape), torch.randint(0, 10, shape[:1])
    times = []
    for _ in range(WARM_UP + STEPS):
        before = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - before)
    return 1e3 * statistics.median(times[WARM_UP:])


def compare(network: str, method: str, threads: int, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds with glibc's defaults and with the variables, of a process each per round."""
    command = [sys.executable, __file__, "--one", network, method, "--threads", str(threads)]
    clean = {name: value for name, value in os.environ.items() if name not in KEEP}
    usual: list[float] = []
    kept: list[float] = []
    for number in range(rounds):
        pair = [(usual, clean), (kept, {**clean, **KEEP})]
        for times, environment in pair if number % 2 else reversed(pair):
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            times.append(float(done.stdout))
    return usual, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(time_step(*arguments.one, arguments.threads))
        return
    print(f"{cpu_model()}, torch {torch.__version__}, {arguments.threads} threads")
    print(f"{'':50} {'usual, ms':>10} {'kept, ms':>10} {'kept / usual':>13} {'of all rounds':>15}")
    for network in NETWORKS:
        for method in METHODS:
            usual, kept = compare(network, method, arguments.threads, arguments.rounds)
            ratios = [b / a for a, b in zip(usual, kept, strict=True)]
            medians = (statistics.median(times) for times in (usual, kept, ratios))
            cells = "{:10.1f} {:10.1f} {:13.2f}".format(*medians)
            print(f"{network + ', ' + method:50} {cells} {min(ratios):8.2f} - {max(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
