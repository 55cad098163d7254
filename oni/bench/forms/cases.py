"""``oni bench forms``: the same iteration in other forms (the paper's, the authors', one matrix at a time)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from oni.bench.contender import Contender, WeightJob, make_job
from oni.bench.forms.result import FormResult
from oni.bench.inputs import draw_inputs
from oni.bench.limit import count_products
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes
from oni.bench.turns import measure_contenders
from oni.newton.matrix import is_tall
from oni.newton.orthogonalize import orthogonalize
from oni.newton.reference import authors, literal
from oni.newton.target import steps_for
from oni.timing import Watch

__all__ = ["FORM_CASES", "FormCase", "list_contenders", "measure_forms"]

STEPS = (2, 5)
SIGMA_MIN = 0.9
"""What the schedules are asked to certify when their costs are compared."""
AGREEMENT = 1e-4
"""Relative; the forms of the iteration differ by less than 1e-5 in float32 at these steps."""


@dataclass(frozen=True)
class FormCase:
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


FORM_CASES = (
    FormCase((256, 256), quick=True),
    FormCase((256, 784), beyond=True, quick=True),
    FormCase((256, 2304), beyond=True),
    FormCase((512, 4608), beyond=True),
    FormCase((1024, 256)),
    FormCase((2048, 512)),
    FormCase((36, 16, 144), quick=True),
)


def oni_form(name: str, steps: int, *, against: str = "", remark: str = "", **options: str) -> Contender:
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


def list_contenders(case: FormCase, Z: Tensor) -> list[Contender]:
    """Every contender of a case. Only the schedules depend on Z: they need the interval its spectrum is in."""
    center = not is_tall(*case.shape[-2:]) and case.shape[-2] != case.shape[-1]
    contenders = []
    for steps in STEPS:
        contenders.append(oni_form(f"oni T={steps}", steps))
        if steps in case.literal_steps:
            for name, form in (("literal", literal), ("authors", authors)):
                contenders.append(other_form(name, partial(form, steps=steps, center=center), steps))
        if len(case.shape) > 2:
            contenders.append(single_calls(case.shape[0], steps))
    if case.beyond:
        contenders.append(oni_form("oni tight T=3", 3, bound="tight", against="oni T=5"))
        contenders += compare_schedules(Z)
    return contenders


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

    def prepare(Z: Tensor, G: Tensor) -> WeightJob:
        leaves = [matrix.clone().requires_grad_() for matrix in Z]
        return WeightJob(lambda: [orthogonalize(leaf, steps) for leaf in leaves], leaves, list(G))

    name, against = f"{count} single calls T={steps}", f"oni T={steps}"
    return Contender(name, prepare, steps, against, same=True, patient=True)


def compare_schedules(Z: Tensor) -> list[Contender]:
    """Each schedule with as many steps as it needs to certify the same."""
    newton, minimax = (steps_for(Z, SIGMA_MIN, schedule=name) for name in ("newton", "minimax"))
    remark = f"certifies sigma >= {SIGMA_MIN}"
    plain = f"oni T={newton}"
    contenders = [oni_form(f"oni minimax T={minimax}", minimax, schedule="minimax", against=plain, remark=remark)]
    return contenders if newton in STEPS else [oni_form(plain, newton, remark=remark), *contenders]


def measure_forms(case: FormCase, result: FormResult, settings: Settings, watch: Watch) -> None:
    """Measure every form of a case; those that should compute the same must, or they are not timed."""
    draw = partial(draw_inputs, device=settings.device)
    outputs: dict[str, tuple[Tensor, Tensor]] = {}

    def check(entry: ContenderTimes, W: Tensor, dZ: Tensor) -> str:
        contender = entry.contender
        outputs[contender.name] = W, dZ
        if contender.same and contender.against in outputs:
            pairs = zip((W, dZ), outputs[contender.against], strict=True)
            difference = max(float((a - b).norm() / b.norm()) for a, b in pairs)
            if not difference <= AGREEMENT:
                result.disagreement = True
                return f"not timed: differs from {contender.against} by {difference:.1e}"
        return ""

    measure_contenders(list_contenders(case, draw(case.shape)[0]), result, draw, settings, watch, check=check)
