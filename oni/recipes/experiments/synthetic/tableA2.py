"""Table A2: how orthogonal ONI and OLM in groups make the rows and columns of a 64 x 32 matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.synthetic.family import CLOSE, MANY_SEEDS
from oni.recipes.experiments.synthetic.groups import (
    FULL_STEPS,
    GROUPED,
    Grouping,
    make_grouping_plan,
    measure_grouping,
    smaller_is_worse,
)
from oni.recipes.experiments.texts import format_range
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

PRINTED = {"ONI": (5.66, 0.0), "OLM-G32": (8.0, 5.66), "OLM-G16": (9.85, 8.07), "OLM-G8": (10.58, 8.94)}
"""Row and column delta, by method."""
DELTAS = ("delta_row", "delta_column")
TALL, WIDE = (64, 32), (32, 64)


# Claims.


def columns_orthonormal(results: Results) -> Judgement:
    runs = results.where(shape=TALL, method="ONI")
    row, column = (runs.values(name) for name in DELTAS)
    return max(column) < CLOSE, f"column delta at most {max(column):.0e}, row delta {format_range(row, 4)}"


def neither_is_orthonormal(results: Results) -> Judgement:
    least = {
        method: [min(results.where(shape=TALL, method=method).values(name)) for name in DELTAS] for method in GROUPED
    }
    text = "; ".join(f"{method}: {row:.2f} and {column:.2f}" for method, (row, column) in least.items())
    return min(map(min, least.values())) > 1, f"smallest row and column delta of any seed: {text}"


def printed_is_a_draw(results: Results) -> Judgement:
    held, texts = True, []
    for method, printed in PRINTED.items():
        runs = results.where(shape=TALL, method=method)
        for name, value in zip(DELTAS, printed, strict=True):
            deviation = runs.deviation(name)
            # The paper has one draw: three deviations, and the rounding of what is printed.
            distance = abs(runs.mean(name) - value)
            held &= distance <= 3 * deviation + 0.005
            in_deviations = f" ({distance / deviation:.1f} sd)" if deviation > 1e-6 else ""
            texts.append(f"{value:g} by {distance:.3f}{in_deviations}")
    return held, f"our means miss the printed {', '.join(texts)}"


def caption_is_right(results: Results) -> Judgement:
    runs = results.where(shape=WIDE, method="OLM-G32")
    row, column = runs.mean("delta_row"), runs.mean("delta_column")
    return abs(row - 8) < 0.1 and abs(column - 5.66) < 0.1, (
        f"32 x 64 gives OLM-G32 a row delta of {row:.2f} and a column delta of {column:.2f}, but 8 and 5.66 are "
        "printed: the shape is 64 x 32, as in the text of the section"
    )


CLAIMS = [
    Claim(Kind.MATHEMATICS, "ONI makes the columns orthonormal", columns_orthonormal, MANY_SEEDS),
    Claim(Kind.MATHEMATICS, "Groups make neither rows nor columns orthonormal", neither_is_orthonormal, MANY_SEEDS),
    Claim(Kind.MATHEMATICS, "Smaller groups are less orthogonal", smaller_is_worse(TALL, GROUPED, DELTAS), MANY_SEEDS),
    Claim(
        Kind.MATHEMATICS, "The printed numbers are a draw of what is measured here", printed_is_a_draw, {"seeds": 50}
    ),
    Claim(Kind.MATHEMATICS, "Z is 32 x 64, as the table's caption says", caption_is_right, MANY_SEEDS),
]


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for method, (row, column) in PRINTED.items():
        runs = results.where(shape=TALL, method=method)
        ours = [Quantity(runs.mean(name), runs.deviation(name)) for name in DELTAS]
        cells.append([method, Quantity(row, digits=None), ours[0], Quantity(column, digits=None), ours[1]])
    note = "Ours: means over seeds, ± their standard deviation."
    return Comparison(["method", "row: paper", "row: ours", "column: paper", "column: ours"], cells, note)


def draw(results: Results) -> Figure:
    """Bars for ours, marks for the paper's."""
    from matplotlib.figure import Figure

    from oni.recipes.experiments.synthetic.drawing import HEIGHT
    from oni.style import COLOURS, PAGE_WIDTH

    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT - 0.3))
    panels = figure.subplots(1, 2, sharey=True)
    titles = (r"(a) Rows: $\|WW^\top - I\|_F$", r"(b) Columns: $\|W^\top W - I\|_F$")
    for index, (axes, name, title) in enumerate(zip(panels, DELTAS, titles, strict=True)):
        for place, (method, printed) in enumerate(PRINTED.items()):
            runs = results.where(shape=TALL, method=method)
            colour = COLOURS["oni" if method == "ONI" else "olm"]
            axes.bar(place, runs.mean(name), 0.6, yerr=runs.deviation(name), color=colour, error_kw={"linewidth": 2.0})
            (mark,) = axes.plot(
                place,
                printed[index],
                "kD",
                markersize=5,
                markerfacecolor="none",
                label="printed in the paper",
                zorder=3,
            )
        axes.set_xticks(range(len(PRINTED)), list(PRINTED))
        axes.grid(visible=False, axis="x")
        axes.set_title(title)
    panels[0].set(ylabel=r"$\delta$, mean and deviation of seeds", ylim=(-0.2, 12.5))
    panels[0].legend(handles=[mark], loc="upper left")
    return figure


EXPERIMENT = Experiment(
    id="tableA2",
    title="Row and column orthogonality of ONI and of OLM in groups",
    shows="On Z of 64 x 32 entries N(0, 1), OLM in groups makes neither rows nor columns orthogonal, and smaller "
    "groups are worse; ONI makes the columns orthogonal.",
    choices=f"No centring: with it, a group of 32 rows of 32 entries would be singular. ONI with {FULL_STEPS} steps.",
    presets={"smoke": {"seeds": 8}, "laptop": {"seeds": 100}, "paper": {"seeds": 500}},
    parameters=(Grouping,),
    plan=make_grouping_plan((TALL, list(PRINTED)), (WIDE, ["OLM-G32"])),
    measure=measure_grouping,
    paper={method: {"delta_row": row, "delta_column": column} for method, (row, column) in PRINTED.items()},
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
