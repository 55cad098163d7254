"""Figure 8a: DCGAN with spectral normalisation, and with ONI of 0 to 5 steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import about, find_runs
from oni.recipes.experiments.experiment import Claim, Results, Run
from oni.recipes.experiments.gan.family import (
    LONG,
    PAPER_LENGTH,
    describe_choices,
    make_plan,
    make_presets,
    make_sweeps,
    oni,
    spectral,
)
from oni.recipes.experiments.gan.table import DISTANCES, judge_closer, make_figure, outcome
from oni.recipes.experiments.runs import Row, Training
from oni.recipes.experiments.verdicts import Judgement, Kind, Verdict

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["BY_STEPS", "EXPERIMENT", "PRESETS", "SN", "UNNORMALISED"]

SN = spectral(seeds=2)
BY_STEPS = {steps: oni(steps, seeds=2) for steps in range(6)}
# Without steps the slip changes nothing.
UNNORMALISED = {steps: oni(steps, first_layer="unnormalised", seeds=1) for steps in range(1, 6)}
TRAINED = [SN, *BY_STEPS.values(), *UNNORMALISED.values()]
ROWS = {"SN": SN, **{f"T = {steps}": row for steps, row in BY_STEPS.items()}}
PRESETS = make_presets()
LONGER_ROWS = [
    replace(row, seeds=seeds) for row, seeds in ((SN, 3), (BY_STEPS[2], 3), (BY_STEPS[0], 2), (BY_STEPS[5], 2))
]
"""Trained once more in preset full, long enough for the paper's claims."""


def plan(seed: int, *, longer: Mapping[str, Any] | None = None, **sizes: Any) -> list[Training]:
    """The runs of all rows, and those of some with ``longer`` sizes."""
    runs = make_plan(TRAINED)(seed, **sizes)
    if not longer:
        return runs
    sizes |= longer
    return [*runs, *make_plan(LONGER_ROWS, f"{sizes['updates'] * sizes['epochs']:,} updates")(seed, **sizes)]


def find_longest(results: Results) -> Results:
    """The longer runs where there are any, all others elsewhere."""
    return Results(run for run in results if is_longer(run)) or results


def find_shortest(results: Results) -> Results:
    """All but the longer runs."""
    return Results(run for run in results if not is_longer(run))


def is_longer(run: Run) -> bool:
    return run.parameters.group.endswith(" updates")


# Claims.


def judge(*pairs: tuple[Row, Row]) -> Callable[[Results], Judgement]:
    """Whether the first of each pair is closer to real images than the second; spectral normalisation has to train."""

    def judge_pairs(results: Results) -> Judgement:
        if any(SN in pair for pair in pairs) and (failed := failures(results, SN)):
            return Verdict.NOT_TESTED, f"the control, SN, does not always train: {', '.join(failed)}"
        return judge_closer(results, pairs, ROWS)

    return judge_pairs


def failures(results: Results, row: Row) -> list[str]:
    """How those runs of a row ended that did not train."""
    return [how for run in find_runs(results, row) if (how := outcome(run)) != "trained"]


def zero_trains_and_is_worse(results: Results) -> Judgement:
    """Whether T = 0 trains in every seed, and is surely farther than SN; not held if it trains in none."""
    worse, text = judge((SN, BY_STEPS[0]))(results)
    failed = failures(results, BY_STEPS[0])
    if worse is Verdict.NOT_TESTED or not failed:
        return worse, text
    every_run = len(failed) == len(find_runs(results, BY_STEPS[0])) > 1
    return Verdict.NOT_HELD if every_run else Verdict.UNDECIDED, f"T = 0 {', '.join(failed)}; {text}"


def slip_makes_more_worse(results: Results) -> Judgement:
    """Whether each T above 2 is farther with the slip than without, and farther than T = 2 with it."""
    pairs = [(BY_STEPS[steps], UNNORMALISED[steps]) for steps in (3, 4, 5)]
    pairs += [(UNNORMALISED[2], UNNORMALISED[steps]) for steps in (3, 4, 5)]
    shown = {f"T = {steps} with it": row for steps, row in UNNORMALISED.items()}
    shown |= {f"T = {steps} without": BY_STEPS[steps] for steps in UNNORMALISED}
    return judge_closer(results, pairs, shown)


def among_longest(*rows: Row) -> Callable[[Results], Results]:
    """Selects the runs of rows that a claim about final images is about."""
    return lambda results: about(*rows)(find_longest(results))


COMPARED = (
    ("T = 0 trains, and is worse than SN", zero_trains_and_is_worse, (0,)),
    ("T = 1 is already better than SN", judge((BY_STEPS[1], SN)), (1,)),
    ("T = 2 is better than SN", judge((BY_STEPS[2], SN)), (2,)),
)
CLAIMS = [
    *(
        Claim(
            Kind.PAPER, text, judge_pair, PAPER_LENGTH["dcgan"], among_longest(SN, *(BY_STEPS[each] for each in steps))
        )
        for text, judge_pair, steps in COMPARED
    ),
    Claim(
        Kind.PAPER,
        "T = 5 is worse than T = 2",
        judge((BY_STEPS[2], BY_STEPS[5])),
        PAPER_LENGTH["dcgan"],
        among_longest(BY_STEPS[2], BY_STEPS[5]),
    ),
    *(
        Claim(Kind.OURS, f"Early in training: {text}", judge_pair, {**LONG, "seeds": 2}, find_shortest)
        for text, judge_pair in (
            *((text, judge_pair) for text, judge_pair, _ in COMPARED),
            ("T > 2 is worse than T = 2", judge(*((BY_STEPS[2], BY_STEPS[steps]) for steps in (3, 4, 5)))),
        )
    ),
    Claim(
        Kind.OURS,
        "Early in training: the slip in the authors' first layer makes T > 2 worse",
        slip_makes_more_worse,
        LONG,
        find_shortest,
    ),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.colours import ramp
    from oni.recipes.experiments.gan.charts import COLOURS, drawn, end_chart, training_chart, way_chart

    longest, results = find_longest(results), find_shortest(results)
    colours = dict(zip(BY_STEPS, ramp(COLOURS["ONI"], len(BY_STEPS)), strict=True))
    ours, slips = (
        {f"T = {steps}": (colours[steps], row) for steps, row in rows.items()} for rows in (BY_STEPS, UNNORMALISED)
    )
    across = ("SN", COLOURS["SN"], SN)
    lines = {"ONI": (COLOURS["ONI"], BY_STEPS), "ONI, slip in the first layer": (COLOURS["slip"], UNNORMALISED)}
    return drawn(
        [
            *(
                end_chart(f"At the end: {column.title}", "steps T", column, results, lines, across)
                for column in DISTANCES[:2]
            ),
            way_chart("On the way", DISTANCES[1], longest, {"SN": (COLOURS["SN"], SN), **ours}),
            training_chart("As in the paper", results, {"SN": (COLOURS["SN"], SN), **ours}),
            training_chart("With the slip in the first layer", results, {"SN": (COLOURS["SN"], SN), **slips}),
        ]
    )


EXPERIMENT = make_figure(
    TRAINED,
    DISTANCES,
    id="fig8a",
    title="DCGAN: spectral normalisation and ONI of 0 to 5 steps",
    shows="T = 0, which only bounds the spectrum, trains but has a worse FID than SN. T = 1 already beats SN, T = 2 "
    "is best (FID 20.75, SN 23.31), and larger T is worse.",
    choices=describe_choices(
        "DCGAN of width 64",
        "width 16, 1,600 updates, and 20,000 updates of SN and of ONI with 0, 2 and 5 steps",
        "The authors' code does not divide by the norm inside the iteration if a layer has more filters than inputs. "
        "In DCGAN this is the first layer. ONI is also run with that slip in the first layer, whatever its shape, to "
        "see whether it makes larger T worse.",
    ),
    presets={**PRESETS, "full": {**PRESETS["full"], "seeds": 3, "longer": {"epochs": 100, "keep_every": 25}}},
    plan=plan,
    parts=("longer",),
    sweeps={**make_sweeps(TRAINED), "task_options.updates": "trains some rows longer than others"},
    paper={"FID": {"SN": 23.31, "ONI, T = 2": 20.75}},
    claims=CLAIMS,
    charts=charts,
    findings="This early, two seeds differ as much as the methods do: the two seeds of SN are further apart than most "
    "means. On average SN is ahead of ONI with 1 and 2 steps, by less than that. The discriminator does "
    "depend on the number of steps, in both seeds: more steps give a smaller loss, and the loss of SN equals "
    "that of 0 steps. On average, images are further from real ones with 3 to 5 steps than with 0 to 2. The "
    "reason may be that such a strong discriminator leaves its generator behind at first; this was not "
    "tested. Only training of the paper's length would show whether ONI overtakes SN later. One seed shows "
    "no effect of the slip in the first layer: no run with it diverged, and images are further from real "
    "ones with 2, 4 and 5 steps, and closer with 1 and 3, than the mean of two seeds without it. A first "
    "layer of 16 filters has fewer filters than its 27 inputs, so the slip is added here on purpose; at the "
    "paper's width of 64, the authors' code has it because of the shape.",
)
