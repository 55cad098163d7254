"""What the tests of reports share: a toy experiment, folders of results and runs, and a page as a browser reads it."""

import json
from dataclasses import make_dataclass
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.report import sources
from oni.recipes.report.write import write_report
from oni.style import COLOURS


def toy_charts(results):
    name = results[0].measured["name"]
    return [
        Chart(
            "Distance",
            "step",
            "delta",
            [
                Series(
                    name, [1, 2, 3, 4], [1e3, 10.0, None, 1e-5], COLOURS["oni"], low=[0, 5, None, 1e-6], high=[2e3] * 4
                ),
                Series("other", [1, 2, 3, 4], [1.0, float("nan"), 2.0, 3.0], COLOURS["olm"], "dash"),
                Series("other", [1, 2, 3], [3.0, 4.0, 5.0], COLOURS["olm"], "dot"),
            ],
            y_log=True,
            caption="What to see.",
            dashes={"solid": "on time", "dash": "late", "dot": "later"},
        ),
        Chart("Plain", "x", "y", [Series("one", [1, 10, 100], [0, 1, 2], "#000000")], x_log=True, y_range=(-1, 3)),
    ]


@pytest.fixture
def toy(monkeypatch):
    """An experiment fig99 of the paper, with charts."""
    experiment = SimpleNamespace(
        id="fig99",
        file_name="fig99",
        title="A toy",
        shows="Nothing <b>bold</b>.",
        choices="None.",
        findings="",
        photographs=False,
        images=None,
        charts=toy_charts,
        parameters=(make_dataclass("Parameters", [("seed", int), ("mean", float)], frozen=True),),
        table=lambda results: Comparison(
            ["what", "paper", "ours", "runs"],
            [[run.measured["name"], "1.0", f"{run.measured['value']:.2f}", "1"] for run in results],
        ),
    )
    monkeypatch.setattr(sources, "MODULES", {"fig99": "nowhere"})
    monkeypatch.setattr(sources, "PAPER", ("fig99",))
    monkeypatch.setattr(sources, "load_experiment", lambda id: experiment)
    return experiment


@pytest.fixture
def make_record():
    """A results.json of the toy experiment."""

    def make(name="ours", **changes):
        runs = [
            {"parameters": {"seed": seed, "mean": 3.0}, "measured": {"value": 0.5, "name": name}} for seed in (0, 1)
        ]
        claims = [
            {"kind": kind, "text": text, "verdict": verdict, "detail": detail}
            for kind, text, verdict, detail in (
                ("paper", "It works", "held", "0.5 < 1"),
                ("paper", "It is fast", "not held", "it is not"),
                ("paper", "It is small", "not tested", "the runs have 2 epochs, and this needs 10"),
                ("ours", "It is new", "undecided", "one seed decides nothing"),
            )
        ]
        record = {
            "id": "fig99",
            "preset": "smoke",
            "machine": {"cpu": "a cpu", "threads": 1},
            "versions": {"torch": "2.13.0"},
            "command": "oni reproduce fig99",
            "runs": runs,
            "paper": {},
            "claims": claims,
        }
        return {**record, **changes}

    return make


@pytest.fixture
def write():
    """Write a file, as JSON unless it is a string, and return its folder."""

    def write(path, content):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path.parent

    return write


def make_rows(count, error):
    return [
        {"epoch": epoch, "train_loss": 2.0 / epoch, "train_error": error / epoch, "test_error": error, "seconds": 1.5}
        for epoch in range(1, count + 1)
    ]


def to_csv(rows):
    cells = [",".join("" if cell is None else str(cell) for cell in row.values()) for row in rows]
    return "\n".join([",".join(rows[0]), *cells]) + "\n"


@pytest.fixture
def write_run(write):
    """Write the folder of a run: finished, diverged or unfinished."""

    def write_run(folder, status="finished", epochs=3, error=0.1, validation=None, **config):
        defaults = {"method": "oni", "network_options": {"depth": 10}, "learning_rate": 0.1, "seed": 0, "epochs": 3}
        write(folder / "config.json", {**defaults, **config})
        session = {
            "from_step": 0,
            "started": "2026-01-02T03:04:05+00:00",
            "code": "0123456789" * 4,
            "versions": {"torch": "2.13"},
            "machine": {},
        }
        write(folder / "run.json", {"name": folder.name, "sessions": [session]})
        rows = [{**row, "validation_error": validation} for row in make_rows(epochs, error)]
        if rows:
            write(folder / "epochs.csv", to_csv(rows))
        if status != "unfinished":
            last = rows[-1] if status == "finished" else {}
            names = ("train_error", "validation_error", "test_error")
            metrics = {"status": status, **{name: last.get(name) for name in names}, "seconds": 4.5}
            watched = {
                "spectrum": {str(step): {"1": [1.5, 1.0, 0.5], "5": [1.1, 0.9]} for step in (0, 20)},
                "signal": {
                    "0": {"input": [1, 0.1], "gradient": [1e-3, 1.0]},
                    "20": {"input": [1, 1], "gradient": [1, None]},
                },
            }
            write(folder / "metrics.json", {"metrics": metrics, "epochs": rows, "watched": watched})
        return folder

    return write_run


class Page(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.open_tags = [], [], [], []
        self.words = ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attributes]
        if tag not in ("meta", "img", "br"):
            self.open_tags.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag

    def handle_data(self, data):
        if self.open_tags[-1:] == ["script"]:
            self.scripts[-1] += data
        elif self.open_tags[-1:] != ["style"]:
            self.words += data

    @property
    def charts(self):
        return [json.loads(script) for script in self.scripts if script.startswith("{")]


@pytest.fixture
def report(tmp_path):
    """Make a report of folders and read it."""
    return lambda *folders: Page(write_report(folders, tmp_path / "made" / "report.html"))
