"""Tables and numbers out of ``results/bench``: what `oni bench` measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import wraps
from pathlib import Path
from typing import Any

from oni.bench.command import SUBJECTS
from oni.bench.contender import Gives
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.table_formats import format_markdown
from oni.recipes.report.provenance import describe_code

__all__ = [
    "BENCH",
    "NOT_MEASURED",
    "find_case",
    "find_contender",
    "is_measured",
    "read_bench",
    "show",
    "training_cost",
    "unless_missing",
]

NOT_MEASURED = "*Not yet measured.*"


class NotMeasured(ValueError):
    """There is no record of it yet."""


def unless_missing(write: Callable[..., str]) -> Callable[..., str]:
    """The same, but for results that are not there yet it says so."""

    @wraps(write)
    def wrapper(results: Path, *args: Any, **arguments: Any) -> str:
        try:
            return write(results, *args, **arguments)
        except NotMeasured:
            return NOT_MEASURED

    return wrapper


def read_bench(results: Path, kind: str) -> dict[str, Any]:
    """What ``oni bench`` wrote of one subject."""
    if not is_measured(results, kind):
        raise NotMeasured(f"there is no record of oni bench {kind}")
    record: dict[str, Any] = json.loads((results / "bench" / f"{kind}.json").read_text("utf-8"))
    for path in sorted((results / "bench").glob(f"{kind}_*.json")):
        record = add_cases(record, json.loads(path.read_text("utf-8")))
    return record


def add_cases(record: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the cases that only another run on the same machine has, as after an interruption."""
    for key in ("machine", "versions"):
        if record[key] != more[key]:
            raise ValueError(f"cases of two runs can't stand in one table: {key} {record[key]} and {more[key]}")
    known = {case["name"] for case in record["cases"]}
    new = [case for case in more["cases"] if case["name"] not in known]
    names = {case["name"] for case in new}
    # A run has all targets, those of cases that it leaves out without a measurement.
    targets = [target for target in record["targets"] if target["case"] not in names]
    return {
        **record,
        "command": f"{record['command']}` and `{more['command']}",
        "cases": [*record["cases"], *new],
        "targets": [*targets, *(target for target in more["targets"] if target["case"] in names)],
    }


def is_measured(results: Path, kind: str) -> bool:
    """Whether there is a record of this kind."""
    return (results / "bench" / f"{kind}.json").exists()


def find_case(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The case of this name."""
    cases: dict[str, dict[str, Any]] = {case["name"]: case for case in record["cases"]}
    if name not in cases:
        known = any(case.name == name for subject in SUBJECTS.values() for case in subject.cases())
        raise (NotMeasured if known else ValueError)(f"no case {name!r} was measured; there are {', '.join(cases)}")
    return cases[name]


def find_contender(case: Mapping[str, Any], name: str, part: str = "contenders") -> dict[str, Any] | None:
    """The contender of this name, if it took part."""
    return next((contender for contender in case[part] if contender["name"] == name), None)


def show(value: float) -> str:
    """Three digits, as a person would write them.

    >>> show(0.01234), show(2.345), show(43.21), show(2983.4), show(0)
    ('0.0123', '2.35', '43.2', '2983', '0')
    """
    if not value:
        return "0"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def forms(results: Path, case: str) -> str:
    """The forms of the iteration on one matrix: time, time over oni's, memory, delta."""
    rows = []
    for contender in find_case(read_bench(results, "forms"), case)["contenders"]:
        if contender["steps"] is None:
            continue
        if contender["milliseconds"] is None:
            rows.append([contender["name"], "-", "-", "-", contender["note"]])
            continue
        ratio = contender["time_ratio"]
        rows.append([
            contender["name"],
            show(contender["milliseconds"]["median"]),
            show(ratio["median"]) if ratio else "",
            show(contender["peak_bytes"] / 2**20),
            show(contender["delta"]),
        ])  # fmt: skip
    return render(["", "ms", "x oni", "MiB", "delta"], rows)


def against(results: Path, contender: str) -> str:
    """Contenders of such a name beside those that they are compared with: delta of both, and the ratio of times."""
    rows = []
    for case in read_bench(results, "forms")["cases"]:
        for one in case["contenders"]:
            if fnmatchcase(one["name"], contender) and one["time_ratio"] is not None:
                other = find_contender(case, one["against"])
                assert other is not None
                names = f"{one['name']} / {one['against']}"
                rows.append(
                    [case["name"], names, show(one["delta"]), show(other["delta"]), show(one["time_ratio"]["median"])]
                )
    return render(["matrix", "", "delta", "delta of the other", "time over the other's"], rows)


def matrices(results: Path, case: str) -> str:
    """Every method on one weight: its time, that over the fastest of all who reach the same, and what it gives."""
    found = find_case(read_bench(results, "matrices"), case)
    rows = []
    for contender in found["contenders"]:
        words = describe_gives(contender["gives"])
        if contender["milliseconds"] is None:
            rows.append([contender["name"], "-", *("" for _ in found["asked"]), "", "", contender["note"]])
            continue
        ratios = [contender["times_fastest"][asked] for asked in found["asked"]]
        rows.append([
            contender["name"],
            show(contender["milliseconds"]["median"]),
            *(f"x {show(ratio['median'])}" if ratio else "not reached" for ratio in ratios),
            show_smallest(contender["smallest"]),
            show(contender["delta"]),
            words,
        ])  # fmt: skip
    return render(["", "ms", *found["asked"], "smallest", "delta", "gives"], rows)


def describe_gives(gives: Mapping[str, bool] | None) -> str:
    """What kind of orthogonal weight it is.

    >>> describe_gives({"polar": False, "partial": False, "full_rank": True})
    'not polar, needs full rank'
    """
    return "" if gives is None else str(Gives(**gives))


def show_smallest(value: float) -> str:
    """A smallest singular value.

    >>> show_smallest(0.9012), show_smallest(0.9999975)
    ('0.901', '1 - 2.5e-06')
    """
    return f"{value:.3f}" if value < 0.9985 else f"1 - {max(0.0, 1 - value):.2g}"


def asked(results: Path, asked: str, spectrum: str = "*") -> str:
    """Of every weight: oni beside the fastest other method that reaches what is asked, and the paper's five steps."""
    record = read_bench(results, "matrices")
    verdicts = {target["case"]: target for target in record["targets"] if target["of"] == [f"oni {asked}"]}
    rows = []
    for case in record["cases"]:
        if not fnmatchcase(case["spectrum"], spectrum):
            continue
        at, verdict = case["asked"][asked], verdicts.get(case["name"])
        ratio = at["oni_over_fastest_other"]
        rows.append([
            case["name"],
            show_time(find_contender(case, f"oni {asked}"), asked),
            show_time(find_contender(case, at["fastest_other"]), asked),
            at["fastest_other"] or "",
            show(ratio["value"]) if ratio else "",
            f"{show(ratio['low'])} - {show(ratio['high'])}" if ratio else "",
            "" if verdict is None else verdict_word(verdict),
            show_time(find_contender(case, "oni T=5"), asked),
        ])  # fmt: skip
    columns = ["weight", "oni, ms", "fastest other, ms", "", "oni / other", "9 of 10", "asked: at most"]
    limits = {target["at_most"] for target in verdicts.values()}
    columns[-1] += f" {max(limits):g}" if limits else ""
    return render([*columns, "5 Newton steps, ms"], rows)


def show_time(contender: Mapping[str, Any] | None, asked: str) -> str:
    """The milliseconds of a contender, and its delta where it does not reach what is asked."""
    if contender is None:
        return ""
    if contender["milliseconds"] is None:
        return contender["note"] or "not measured"
    text = show(contender["milliseconds"]["median"])
    return text if asked in contender["reaches"] else f"{text} (delta {show(contender['delta'])}: not reached)"


def choices(results: Path) -> str:
    """What ``sigma_min`` chooses by counted products beside the fastest other choice by the clock."""
    record = read_bench(results, "choices")
    verdicts = {target["case"]: target for target in record["targets"]}
    rows = []
    for case in record["cases"]:
        ratio = case["chosen_over_fastest_other"]
        times = [find_contender(case, case[key]) for key in ("chosen", "fastest_other")]
        shown = [show(one["milliseconds"]["median"]) if one and one["milliseconds"] else "" for one in times]
        rows.append([
            case["name"],
            case["chosen"],
            shown[0],
            case["fastest_other"] or "",
            shown[1],
            f"{show(ratio['value'])} ({show(ratio['low'])} - {show(ratio['high'])})" if ratio else "",
            verdict_word(verdicts[case["name"]]),
        ])  # fmt: skip
    columns = ["weight, asked", "chosen", "ms", "fastest other", "ms", "ratio (9 of 10)"]
    return render([*columns, f"asked: at most {max(t['at_most'] for t in verdicts.values()):g}"], rows)


def models(results: Path) -> str:
    """Time of a training step of every network over that of the plain network."""
    cases = read_bench(results, "models")["cases"]
    names = dict.fromkeys(contender["name"] for case in cases for contender in case["contenders"])
    rows = [["plain", *(f"{number(results, 'models', case['name'], 'plain', 'milliseconds')} ms" for case in cases)]]
    rows += [[name, *(training_cost(case, name) for case in cases)] for name in sorted(names) if name != "plain"]
    return render(["", *(case["about"] for case in cases)], rows)


def training_cost(case: Mapping[str, Any], name: str) -> str:
    """The time of a training step over the plain network's."""
    contender = find_contender(case, name)
    if contender is None:
        return ""
    if contender["times_plain"] is None:
        return str(contender["note"] or "skipped")
    return f"x {contender['times_plain']['median']:.2f}"


def forward(results: Path) -> str:
    """Time of a forward pass in evaluation over the plain network's."""
    record = read_bench(results, "models")
    names = [contender["name"] for contender in record["cases"][0]["forward"] if contender["name"] != "plain"]
    rows = []
    for case in record["cases"]:
        found = [find_contender(case, name, "forward") for name in names]
        rows.append([case["about"], *(f"x {one['times_plain']['median']:.2f}" if one else "" for one in found)])
    return render(["network", *names], rows)


def sharing(results: Path) -> str:
    """What oni adds to a step of processes that train together, with ``oni.share`` and without."""
    rows = []
    for case in read_bench(results, "processes")["cases"]:
        for count, measured in case["processes"].items():
            for steps in (2, 5):
                alone, shared = (find_contender(measured, f"oni T={steps}{suffix}") for suffix in ("", " shared"))
                if alone is None or shared is None:
                    continue
                added = [show_added(contender) for contender in (alone, shared)]
                share = shared["share_of_addition"]
                part = (show(share["value"]), f"{show(share['low'])} - {show(share['high'])}") if share else ("", "")
                rows.append([case["about"], count, str(steps), *added, *part])
    columns = ["network, in each process", "processes", "steps", "adds", "adds, shared", "part", "9 of 10"]
    return render(columns, rows)


def show_added(contender: Mapping[str, Any]) -> str:
    """The milliseconds that a contender adds, or why they are unknown."""
    added = contender["added_milliseconds"]
    return f"{show(added['median'])} ms" if added else str(contender["note"] or NOT_MEASURED)


def overhead(results: Path) -> str:
    """What oni adds to a step of ImageNet's networks: measured here, and predicted for the paper's batch."""
    rows = []
    for case in read_bench(results, "overhead")["cases"]:
        plain = find_contender(case, "plain")
        assert plain is not None
        predicted, paper = case["predicted"], case["paper_percent"]
        rows.append([
            case["about"],
            f"{show(plain['milliseconds']['median'] / 1e3)} s",
            f"{show(case['added_milliseconds']['median'])} ms",
            percent(case["part_of_plain"]),
            f"{percent(predicted['one_device'])} ({predicted['batch']})",
            "" if paper is None else percent(paper / 100),
            percent(predicted["8_devices"]),
            percent(predicted["8_devices_sharing"]),
        ])  # fmt: skip
    columns = ["network", "plain step", "adds", "+ here", "+ predicted (batch)", "+ in the paper"]
    return render([*columns, "8 devices", "8 that share"], rows)


def percent(part: float) -> str:
    """A part of one as percent.

    >>> percent(0.0721), percent(0.18)
    ('7.21 %', '18 %')
    """
    return f"{show(100 * part)} %"


def images(results: Path) -> str:
    """Training steps with images channels last over those with everything contiguous, and what augmentation adds."""
    record = read_bench(results, "images")
    names = dict.fromkeys(contender["name"] for case in record["cases"] for contender in case["contenders"])
    rows = []
    for case in record["cases"]:
        steps = find_contender(case, "contiguous")
        assert steps is not None
        ratios = [find_contender(case, name) for name in names if name != "contiguous"]
        rows.append([
            case["about"],
            f"{show(steps['milliseconds']['median'])} ms",
            *(f"x {show(one['times_contiguous']['median'])}" if one else "" for one in ratios),
        ])  # fmt: skip
    return render(["network", *names], rows)


def targets(results: Path, kind: str, reached: bool | None = None) -> str:
    """What the project asks of itself, and what was measured; all of it, or only what was (not) reached."""
    rows = []
    for target in read_bench(results, kind)["targets"]:
        if reached is not None and target["reached"] is not reached:
            continue
        asked = f">= {target['at_least']:g}" if target["at_least"] is not None else f"<= {target['at_most']:.3g}"
        what = f"{target['quantity']} of {' or '.join(target['of'])} / {target['over']}"
        verdict = verdict_word(target)
        measured = "" if target["measured"] is None else f"{target['measured']:.2f}"
        rows.append([target["case"], what, asked, measured, verdict])
    return render(["case", "ratio", "asked", "measured", ""], rows)


def verdict_word(target: Mapping[str, Any]) -> str:
    """Whether a target was reached.

    >>> verdict_word({"reached": None, "measured": 1.02})
    'undecided'
    """
    if target["reached"] is None:
        return "not measured" if target["measured"] is None else "undecided"
    return "reached" if target["reached"] else "**not reached**"


def number(results: Path, kind: str, case: str, contender: str, field: str, part: str = "contenders") -> str:
    """One number: a field of a contender, ``milliseconds``, ``time_ratio``, ``times_plain``, ``delta``, ..."""
    try:
        found = find_contender(find_case(read_bench(results, kind), case), contender, part)
    except NotMeasured:
        return "(not yet measured)"
    if found is None or found[field] is None:
        raise ValueError(f"{contender!r} has no {field!r} in {case!r} of {kind}")
    value = found[field]
    if field == "peak_bytes":
        return f"{show(value / 2**20)} MiB"
    if isinstance(value, dict):
        value = value["median"] if "median" in value else value["value"]
    return show(value)


def machine(results: Path, kind: str) -> str:
    """Where and when it was measured, and by which command."""
    if not is_measured(results, kind):
        return f"`oni bench {kind}`, which has not been run yet."
    record = read_bench(results, kind)
    machine, versions = record["machine"], record["versions"]
    interrupted = "" if record["complete"] else " It was interrupted before all cases were measured."
    code = f" ({describe_code(record['code'])})" if "code" in record else ""
    return (
        f"`{record['command']}`, {record['date'][:10]}: {machine['cpu']}, {machine['threads']} threads of "
        f"{machine['cores']} cores, {machine['device']}; Python {versions['python']}, torch {versions['torch']} "
        f"({versions['blas']}), oni {versions['oni']}{code}.{interrupted}"
    )


def render(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown with numbers to the right."""
    return format_markdown(Comparison(columns, rows, note=" ")).rstrip()


WRITERS: Mapping[str, Callable[..., str]] = {
    "bench-matrices": matrices,
    "bench-asked": asked,
    "bench-choices": choices,
    "bench-forms": forms,
    "bench-against": against,
    "bench-models": models,
    "bench-sharing": sharing,
    "bench-overhead": overhead,
    "bench-images": images,
    "bench-forward": forward,
    "bench-targets": targets,
    "bench-number": number,
    "bench-machine": machine,
}
BENCH: Mapping[str, Callable[..., str]] = {name: unless_missing(write) for name, write in WRITERS.items()}
