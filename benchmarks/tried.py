"""What was tried to make the iteration faster, timed side by side: run it to see the numbers on your machine.

python benchmarks/tried.py [--rounds 300]
"""

import argparse
import statistics
import time

import torch

import oni
from oni.newton.evaluation import evaluate, pullback
from oni.newton.precision import planned
from oni.newton.product import product
from oni.torch_internals import multiply_by_onednn


def race(contenders, rounds):
    """Median milliseconds of each, all of them once in every round."""
    times = {name: [] for name in contenders}
    for contender in contenders.values():
        contender()
    for _ in range(rounds):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            times[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(ts) for name, ts in times.items()}


@torch.no_grad()
def who_multiplies(m, d, rounds):
    """The same product by MKL and by oneDNN; oni/newton/product.py chooses."""
    X, Y = torch.randn(m, m), torch.randn(m, d)
    contenders = {"torch.mm": lambda: torch.mm(X, Y), "oni's choice": lambda: product(X, Y)}
    if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        contenders["oneDNN"] = lambda: multiply_by_onednn(X, Y)
    return race(contenders, rounds)


def symmetric_products(m, rounds):
    """A product of commuting symmetric matrices is symmetric: half of it is enough. Can less than all be faster?"""
    X, Y = torch.randn(m, m), torch.randn(m, m)
    X, Y = X + X.T, Y + Y.T
    half = m // 2

    def blocks():
        C = torch.empty(m, m)
        torch.mm(X[half:], X, out=C[half:])
        torch.mm(X[:half], X[:, :half], out=C[:half, :half])
        C[:half, half:] = C[half:, :half].mT
        return C

    return race({"whole product": lambda: X @ X, "three blocks of four": blocks}, rounds)


def tangent_of_a_square(m, rounds):
    """dX X + X dX, for symmetric matrices the sum of one product and its transpose."""
    X, dX = torch.randn(m, m), torch.randn(m, m)
    beside, below = torch.cat([dX, X], 1), torch.cat([X, dX], 0)

    def transpose():
        T = dX @ X
        return T + T.mT

    def padded():
        # A row length that is no power of two, so that reading columns does not hit the same cache sets.
        T = torch.empty(m, m + 16)[:, :m]
        torch.mm(dX, X, out=T)
        return T + T.mT

    def copied():
        T = dX @ X
        return T.add_(T.mT.contiguous())

    return race(
        {
            "one product": lambda: dX @ X,
            "product, plus its transpose (used)": transpose,
            "the same in padded rows": padded,
            "the same, transpose copied first": copied,
            "two products": lambda: (dX @ X).addmm_(X, dX),
            "one product of doubled length": lambda: beside @ below,
        },
        rounds,
    )


def largest_entry(m, d, rounds):
    """The scale of a matrix: anything that reads it once will do."""
    Z = torch.randn(m, d)
    return race(
        {
            "aminmax (used)": lambda: torch.aminmax(Z),
            "amax and amin": lambda: (Z.amax((-2, -1)), Z.amin((-2, -1))),
            "infinity norm": lambda: torch.linalg.vector_norm(Z, ord=float("inf"), dim=(-2, -1)),
        },
        rounds,
    )


def overhead(m, d, steps, rounds):
    """What is left beside the products, and what autograd itself takes."""
    Z, G = torch.randn(m, d, requires_grad=True), torch.randn(m, d)
    _, (spec,) = planned("newton", steps, torch.float32, "cpu", "compact", m < d)
    S, A = torch.randn(m, m), torch.randn(m, d)
    short = {2: 4, 5: 24}[steps]

    @torch.no_grad()
    def bare_formulas():
        pullback(G, evaluate(Z, spec), spec)

    def products():
        for _ in range(short):
            S @ S
        for _ in range(5):
            S @ A

    def whole():
        Z.grad = None
        oni.orthogonalize(Z, steps).backward(G)

    return race({"bare products": products, "our formulas without autograd": bare_formulas, "oni": whole}, rounds)


def show(title, results):
    print(f"\n{title}")
    for name, ms in results.items():
        print(f"  {name:40} {ms:8.3f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {rounds} rounds")
    for m, d in ((64, 576), (128, 128), (256, 256), (512, 512), (256, 2304)):
        show(f"{m} x {m} times {m} x {d}", who_multiplies(m, d, rounds))
    for m in (256, 512):
        show(f"squaring a symmetric {m} x {m}", symmetric_products(m, rounds))
        show(f"the tangent of that square, {m} x {m}", tangent_of_a_square(m, rounds))
    show("largest entry of 256 x 2304", largest_entry(256, 2304, rounds))
    show("256 x 256, 2 steps, forward and backward", overhead(256, 256, 2, rounds))
    show("256 x 256, 5 steps", overhead(256, 256, 5, rounds))
    show("256 x 2304, 5 steps", overhead(256, 2304, 5, rounds // 3))


if __name__ == "__main__":
    main()
