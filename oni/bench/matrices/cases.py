"""``oni bench matrices``: single weights and a batch of them, in the shapes that networks have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from oni.bench.matrices.contender import Contender, Job, make_job
from oni.bench.matrices.limit import count_products, product_calls
from oni.bench.matrices.peers import authors, list_peers
from oni.bench.matrices.probe import probe
from oni.bench.matrices.result import CaseResult, Entry
from oni.bench.memory import peak_memory
from oni.bench.settings import SEED, Settings
from oni.newton.matrix import is_tall
from oni.newton.orthogonalize import orthogonalize
from oni.newton.reference import literal
from oni.newton.target import steps_for
from oni.timing import Watch, interleaved

__all__ = ["CASES", "Case", "draw_inputs", "list_contenders", "measure"]

STEPS = (2, 5)
SIGMA_MIN = 0.9
"""What the schedules are asked to certify when their costs are compared."""
AGREEMENT = 1e-4
"""Relative; the forms of the iteration differ by less than 1e-5 in float32 at these steps."""


@dataclass(frozen=True)
class Case:
    """A shape, and what is worth comparing on it."""

    shape: tuple[int, ...]
    beyond: bool = False
    """Also compare the tight bound and the minimax schedule, which the paper does not have."""
    quick: bool = False
    """Part of a quick run."""

    @property
    def name(self) -> str:
        return "x".join(map(str, self.shape))

    @property
    def literal_steps(self) -> tuple[int, ...]:
        """On tall matrices the literal form takes seconds, so it runs but once there."""
        return (5,) if is_tall(*self.shape[-2:]) else STEPS


CASES = (
    Case((256, 256), quick=True),
    Case((256, 784), beyond=True, quick=True),
    Case((256, 2304), beyond=True),
    Case((512, 4608), beyond=True),
    Case((1024, 256)),
    Case((2048, 512)),
    Case((36, 16, 144), quick=True),
)


def draw_inputs(shape: tuple[int, ...], device: str = "cpu") -> tuple[Tensor, Tensor]:
    """The same Gaussian Z and G for the same shape, always."""
    generator = torch.Generator().manual_seed(SEED)
    Z, G = torch.randn((2, *shape), generator=generator).to(device).unbind()
    return Z, G


def oni_contender(name: str, steps: int, *, against: str = "", remark: str = "", **options: str) -> Contender:
    """``oni.orthogonalize`` with some options."""
    return Contender(
        name,
        lambda Z, G: make_job(lambda Z: orthogonalize(Z, steps, **options), Z, G),  # type: ignore[arg-type]
        steps,
        against,
        patient=True,
        products=count_products(steps, **options),
        remark=remark,
    )


def list_contenders(case: Case, Z: Tensor) -> list[Contender]:
    """Every contender of a case. Only the schedules depend on Z: they need the interval its spectrum is in."""
    center = not is_tall(*case.shape[-2:]) and case.shape[-2] != case.shape[-1]
    contenders = []
    for steps in STEPS:
        contenders.append(oni_contender(f"oni T={steps}", steps))
        if steps in case.literal_steps:
            for name, form in (("literal", literal), ("authors", authors)):
                contenders.append(other_form(name, partial(form, steps=steps, center=center), steps))
        if len(case.shape) > 2:
            contenders.append(single_calls(case.shape[0], steps))
    if case.beyond:
        contenders.append(oni_contender("oni tight T=3", 3, bound="tight", against="oni T=5"))
        contenders += compare_schedules(Z)
    return contenders + list_peers(center=center, against="oni T=5")


def other_form(name: str, function: Callable[[Tensor], Tensor], steps: int) -> Contender:
    """Another evaluation of the same iteration. The literal one is what oni is measured by."""
    return Contender(
        f"{name} T={steps}",
        lambda Z, G: make_job(function, Z, G),
        steps,
        f"oni T={steps}",
        same=True,
        patient=name == "literal",
    )


def single_calls(count: int, steps: int) -> Contender:
    """A batch, one matrix after the other."""

    def prepare(Z: Tensor, G: Tensor) -> Job:
        leaves = [matrix.clone().requires_grad_() for matrix in Z]
        return Job(lambda: [orthogonalize(leaf, steps) for leaf in leaves], leaves, list(G))

    name, against = f"{count} single calls T={steps}", f"oni T={steps}"
    return Contender(name, prepare, steps, against, same=True, patient=True)


def compare_schedules(Z: Tensor) -> list[Contender]:
    """Each schedule with as many steps as it needs to certify the same."""
    newton, minimax = (steps_for(Z, SIGMA_MIN, schedule=name) for name in ("newton", "minimax"))
    remark = f"certifies sigma >= {SIGMA_MIN}"
    plain = f"oni T={newton}"
    contenders = [oni_contender(f"oni minimax T={minimax}", minimax, schedule="minimax", against=plain, remark=remark)]
    return contenders if newton in STEPS else [oni_contender(plain, newton, remark=remark), *contenders]


def measure(case: Case, result: CaseResult, settings: Settings, watch: Watch) -> None:
    """Try every contender, measure its memory, then the times in turns; ``result`` is filled on the way."""
    draw = partial(draw_inputs, device=settings.device)
    Z, _ = draw(case.shape)
    jobs: dict[str, Job] = {}
    outputs: dict[str, tuple[Tensor, Tensor]] = {}
    contenders = list_contenders(case, Z)
    for number, contender in enumerate(contenders):
        name = contender.name
        watch(f"trying {name}", 0.3 * number / len(contenders))
        entry = result.entries[name] = Entry(contender)
        if settings.quick and not contender.products:
            contender = replace(contender, patient=False)
        tried = probe(contender, case.shape, draw, patience=settings.patience)
        entry.word = tried.word
        # A quick run has too little patience for its skipping to prove anything.
        entry.at_least = None if settings.quick else tried.at_least
        if tried.job is None:
            continue
        W, dZ = join(tried.W), join(tried.dZ)
        outputs[name] = W, dZ
        entry.delta = distance_from_orthogonal(W)
        if contender.same and contender.against in outputs:
            pairs = zip((W, dZ), outputs[contender.against], strict=True)
            difference = max(float((a - b).norm() / b.norm()) for a, b in pairs)
            if not difference <= AGREEMENT:
                entry.word = f"not timed: differs from {contender.against} by {difference:.1e}"
                result.disagreement = True
                continue
        entry.peak = peak_memory(tried.job.run, settings.device)
        jobs[name] = tried.job
    outputs.clear()
    bare = product_calls(Z)
    for call in bare.values():
        call()
    calls = {name: job.run for name, job in jobs.items()} | bare
    times = {name: result.entries[name].times for name in jobs} | result.products
    for done in interleaved(calls, times, seconds=settings.seconds, least_rounds=settings.least_rounds):
        watch("taking turns", 0.3 + 0.7 * done)


def join(tensors: Sequence[Tensor]) -> Tensor:
    """A batch as one tensor, whether it was computed at once or one by one."""
    return torch.stack(list(tensors)) if len(tensors) > 1 else tensors[0]


def distance_from_orthogonal(W: Tensor) -> float:
    r""":math:`\|W W^\top - I\|_F` on the short side, in float64; the largest of a batch."""
    W = W.double()
    M = W.mT @ W if is_tall(*W.shape[-2:]) else W @ W.mT
    identity = torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)
    return float(torch.linalg.matrix_norm(M - identity).max())
