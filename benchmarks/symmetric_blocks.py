"""Products that are known to be symmetric, by blocks: 10 of 16 at four blocks a side. Is a large weight faster so?

python benchmarks/symmetric_blocks.py [--sizes 1024 2048] [--blocks 4] [--seconds 60] [--asked 0.9 0.99 0.99999]

Forward: the Gram matrix and every product of the iteration, whose factors commute. Backward: the sums of two products,
dB Q + B dQ and dP R + P dR. A square's tangent stays one product plus its transpose: by blocks it would be 1.25.
"""

import argparse
import itertools
from contextlib import contextmanager

import torch

from oni.bench.inputs import draw_inputs
from oni.newton import evaluation, iteration
from oni.newton.evaluation import evaluate, pullback
from oni.newton.iteration import twice_symmetric_part
from oni.newton.precision import planned
from oni.newton.product import accumulated, product
from oni.newton.target import Target, choose
from oni.timing import interleaved, median_ratio

BLOCKS = 4
whole_product, whole_tangent = iteration.product, iteration.inverse_root_tangent


def symmetric_product(*pairs, plus=None, alpha=1, beta=1):
    """``alpha (X Y + ...) + beta plus`` where all of it is symmetric: the lower blocks, and their transposes."""
    m = len(pairs[0][0])
    C = pairs[0][0].new_empty(m, m)
    ends = [round(m * number / BLOCKS) for number in range(BLOCKS + 1)]
    for start, end in itertools.pairwise(ends):
        (X, Y), *others = pairs
        added = None if plus is None else plus[start:end, :end]
        strip = whole_product(X[start:end], Y[:, :end], plus=added, alpha=alpha, beta=beta)
        for X, Y in others:
            strip = accumulated(strip, X[start:end], Y[:, :end])
        C[start:end, :end] = strip
        C[:start, start:end] = strip[:, :start].mT
    return C


def product_by_blocks(X, Y, *, plus=None, alpha=1, beta=1):
    """In place of ``product`` in the forward pass of the iteration, where every product is symmetric."""
    return symmetric_product((X, Y), plus=plus, alpha=alpha, beta=beta)


def product_or_gram(X, Y):
    """In place of ``product`` around the iteration, where only the Gram matrix is symmetric."""
    return symmetric_product((X, Y)) if X.data_ptr() == Y.data_ptr() else whole_product(X, Y)


def tangent_by_blocks(E, plan, traces):
    """``inverse_root_tangent`` with its sums of two products by blocks."""
    dP, dB = E, E
    for index, (stage, trace) in enumerate(zip(plan, traces, strict=True)):
        if trace.X is None:
            dQ = stage.e * dP
        else:
            dX = twice_symmetric_part(product(dP, trace.P, plus=dP, beta=-0.5 * stage.h))
            dQ = twice_symmetric_part(product(dX, trace.X, plus=dP, alpha=stage.l, beta=0.5 * stage.e))
        dB = symmetric_product((dB, trace.Q), (traces[index - 1].B, dQ)) if index else dQ
        if trace.R is not None:
            dR = twice_symmetric_part(product(dQ, trace.Q))
            dP = symmetric_product((dP, trace.R), (trace.P, dR))
    return dB


@contextmanager
def by_blocks(*, forward):
    """Inside, products are done by blocks: those of the forward pass, or those of the backward pass."""
    if forward:
        iteration.product, evaluation.product = product_by_blocks, product_or_gram
    else:
        evaluation.inverse_root_tangent = tangent_by_blocks
    try:
        yield
    finally:
        iteration.product = evaluation.product = whole_product
        evaluation.inverse_root_tangent = whole_tangent


@torch.no_grad()
def run(Z, G, parts, blocks):
    """Forward and backward of all parts, whole or by blocks."""
    of, A = [], Z
    for spec in parts:
        if blocks:
            with by_blocks(forward=True):
                of.append(evaluate(A, spec))
        else:
            of.append(evaluate(A, spec))
        A = of[-1].W
    for one, spec in zip(reversed(of), reversed(parts), strict=True):
        if blocks:
            with by_blocks(forward=False):
                G = pullback(G, one, spec)
        else:
            G = pullback(G, one, spec)
    return A, G


def difference(a, b):
    return float((a - b).norm() / b.norm())


def compare(size, sigma_min, seconds):
    Z, G = draw_inputs((size, size), "trained")
    bound, schedule, steps = choice = choose(Z, Target(sigma_min))
    dtype, parts = planned(schedule, steps, torch.float32, "cpu", bound, False)
    Z, G = Z.to(dtype), G.to(dtype)
    off = [difference(*pair) for pair in zip(run(Z, G, parts, True), run(Z, G, parts, False), strict=True)]
    calls = {"blocks": lambda: run(Z, G, parts, True), "whole": lambda: run(Z, G, parts, False)}
    X, Y = torch.randn(2, size, size)
    X, Y = X + X.T, Y + Y.T
    calls["one product by blocks"] = lambda: symmetric_product((X, X))
    calls["one whole product"] = lambda: whole_product(X, X)
    times = {name: {} for name in calls}
    for _ in interleaved(calls, times, seconds=seconds):
        pass
    print(f"\n{size} x {size}, {sigma_min}: {choice}; differs by {off[0]:.1e} in W, {off[1]:.1e} in its gradient")
    for name, over in (("one product by blocks", "one whole product"), ("blocks", "whole")):
        low, value, high = median_ratio(times[name], times[over])
        rounds = len(times[name].keys() & times[over].keys())
        print(f"  {name:22} / {over:18} {value:.3f} (9 of 10: {low:.3f} - {high:.3f}), {rounds} rounds")


def main():
    global BLOCKS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048])
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--asked", type=float, nargs="+", default=[0.9, 0.99, 0.99999])
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    BLOCKS = options.blocks
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {BLOCKS} blocks a side, forward and backward")
    for size in options.sizes:
        for sigma_min in options.asked:
            compare(size, sigma_min, options.seconds)


if __name__ == "__main__":
    main()
