"""``oni bench matrices``: weights of the shapes and spectra that networks have, at equal orthogonality."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor

from oni.bench.contender import Contender, Gives, WeightJob, make_job
from oni.bench.inputs import SPECTRA, draw_inputs
from oni.bench.limit import count_products
from oni.bench.matrices.result import ASKED, MatrixResult
from oni.bench.peers import list_peers
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes
from oni.bench.turns import measure_contenders
from oni.newton.orthogonalize import orthogonalize
from oni.newton.target import Choice, Target, choose
from oni.timing import Watch

__all__ = ["MATRIX_CASES", "SHAPES", "MatrixCase", "list_oni", "measure_matrix"]

PAPER_STEPS = 5


@dataclass(frozen=True)
class MatrixCase:
    """A shape and a spectrum."""

    shape: tuple[int, ...]
    spectrum: str
    about: str
    quick: bool = False
    """Part of a quick run."""

    @property
    def name(self) -> str:
        return f"{'x'.join(map(str, self.shape))}/{self.spectrum}"

    @property
    def centred(self) -> bool:
        """Whether rows are centred, which is the default where it costs no rank."""
        return self.shape[-2] < self.shape[-1]


SHAPES = {
    (256, 256): "a layer of 256 units",
    (512, 512): "a layer of 512 units",
    (1024, 1024): "a layer of 1024 units",
    (2048, 2048): "a layer of 2048 units",
    (3, 192, 192): "q, k and v of a transformer of width 192, out of a fused 576 x 192",
    (256, 784): "28 x 28 pixels to 256 units",
    (256, 2304): "a 3 x 3 convolution of 256 channels",
    (512, 4608): "a 3 x 3 convolution of 512 channels",
    (1024, 256): "a layer from 256 to 1024 units",
    (2048, 512): "a layer from 512 to 2048 units",
    (36, 16, 144): "the 36 convolutions of the first stage of ResNet-110",
}
QUICK = ("256x256/trained", "3x192x192/trained", "256x784/gaussian", "36x16x144/gaussian")


def list_cases() -> tuple[MatrixCase, ...]:
    """Every shape with every spectrum."""
    cases = [MatrixCase(shape, spectrum, about) for shape, about in SHAPES.items() for spectrum in SPECTRA]
    return tuple(MatrixCase(case.shape, case.spectrum, case.about, case.name in QUICK) for case in cases)


MATRIX_CASES = list_cases()


def list_oni(Z: Tensor) -> list[Contender]:
    """``oni`` with what ``sigma_min`` chooses for each that is asked, and with the paper's five steps."""
    contenders = []
    for asked, sigma_min in ASKED.items():
        try:
            contenders.append(oni_contender(f"oni {asked}", choose(Z, Target(sigma_min))))
        except ValueError as error:
            contenders.append(Contender(f"oni {asked}", partial(refuse, str(error))))
    return [*contenders, oni_contender(f"oni T={PAPER_STEPS}", Choice("compact", "newton", PAPER_STEPS))]


def oni_contender(name: str, choice: Choice) -> Contender:
    """``oni.orthogonalize`` with some steps, bound and schedule."""
    bound, schedule, steps = choice
    return Contender(
        name,
        partial(make_job, partial(orthogonalize, steps=steps, bound=bound, schedule=schedule)),
        steps,
        patient=True,
        products=count_products(steps, bound=bound, schedule=schedule),
        remark=str(choice),
        gives=Gives(polar=True, partial=True, full_rank=False),
    )


def refuse(reason: str, Z: Tensor, G: Tensor) -> WeightJob:
    """Say why there is no way."""
    raise ValueError(reason)


def measure_matrix(case: MatrixCase, result: MatrixResult, settings: Settings, watch: Watch) -> None:
    """Measure everyone on a case; what ``oni`` was asked for it must reach, or it is not timed."""
    draw = partial(draw_inputs, spectrum=case.spectrum, device=settings.device)
    watch("choosing steps", 0.0)
    contenders = [*list_oni(draw(case.shape)[0]), *list_peers(center=case.centred)]

    def check(entry: ContenderTimes, W: Tensor, dZ: Tensor) -> str:
        asked = entry.contender.name.removeprefix("oni ")
        if asked in ASKED and asked not in result.reaches(entry.contender.name):
            result.disagreement = True
            return f"not timed: does not reach its level, {asked}"
        return ""

    measure_contenders(contenders, result, draw, settings, watch, check=check)
