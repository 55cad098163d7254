import colorsys
import importlib.util
import json
import os
import re
import shutil
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.charts.plotly import drawable, for_dark
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, registry
from oni.recipes.methods import METHODS
from oni.recipes.report import sources as report_sources
from oni.recipes.report.charts import run_charts, run_colours, run_labels
from oni.recipes.report.sources import RecordedRun, read_sources
from oni.recipes.report.write import write_report
from oni.style import COLOURS

ROOT = Path(__file__).parents[3]
CSS = Path(report_sources.__file__).with_name("page") / "report.css"
COMMITTED = sorted(path.parent for path in (ROOT / "results").glob("*/results.json"))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--<script>&amp;\u2028\ud800"

spec = importlib.util.spec_from_file_location("browser", Path(__file__).with_name("browser.py"))
driven = importlib.util.module_from_spec(spec)
spec.loader.exec_module(driven)


# What reports are made from.


def toy_charts(results):
    name = results[0].parameters["name"]
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
        ),
        Chart("Plain", "x", "y", [Series("one", [1, 10, 100], [0, 1, 2], "k")], x_log=True, y_range=(-1, 3)),
    ]


TOY = Experiment(
    id="fig99",
    title="A toy",
    shows="Nothing <b>bold</b>.",
    choices="None.",
    presets={"smoke": {}},
    runs=lambda seed: [],
    measure=lambda: {},
    paper={},
    claims=[Claim("A third", lambda results: (True, ""))],
    table=lambda results: Comparison(
        ["what", "paper", "ours"], [[run.parameters["name"], "1.0", f"{run.measured['value']:.2f}"] for run in results]
    ),
    draw=lambda results: Figure(),
)


@pytest.fixture
def toy(monkeypatch):
    """An experiment fig99, as one with charts."""
    object.__setattr__(one := Experiment(**vars(TOY)), "charts", toy_charts)
    monkeypatch.setattr(report_sources, "everything", lambda: {"fig99": one})
    return one


def record(name="ours", **changes):
    return {
        "id": "fig99",
        "preset": "smoke",
        "machine": {"cpu": "a cpu", "threads": 1},
        "versions": {"torch": "2.13.0"},
        "command": "oni reproduce fig99",
        "runs": [
            {"parameters": {"seed": seed, "name": name, "mean": 3.0}, "measured": {"value": 0.5}} for seed in (0, 1)
        ],
        "paper": {},
        "claims": [
            {"text": "It works", "held": True, "detail": "0.5 < 1"},
            {"text": "It is fast", "held": False, "detail": "it is not"},
        ],
        **changes,
    }


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path.parent


def rows(count, error=0.1):
    return [
        {"epoch": epoch, "train_loss": 2.0 / epoch, "train_error": error / epoch, "test_error": error, "seconds": 1.5}
        for epoch in range(1, count + 1)
    ]


def csv_of(of):
    lines = [",".join(of[0]), *(",".join("" if cell is None else str(cell) for cell in row.values()) for row in of)]
    return "\n".join(lines) + "\n"


def write_run(folder, status="finished", epochs=3, error=0.1, **config):
    of = {"method": "oni", "network_options": {"depth": 10}, "learning_rate": 0.1, "seed": 0, "epochs": 3, **config}
    write(folder / "config.json", of)
    session = {"from_step": 0, "started": "2026-01-01", "code": "abc", "versions": {"torch": "2.13"}, "machine": {}}
    write(folder / "run.json", {"name": folder.name, "sessions": [session]})
    done = rows(epochs, error)
    if done:
        write(folder / "epochs.csv", csv_of(done))
    if status != "unfinished":
        end = done[-1] if status == "finished" else {}
        metrics = {"status": status, **{key: end.get(key) for key in ("train_error", "test_error")}, "seconds": 4.5}
        watched = {
            "spectrum": {str(step): {"1": [1.5, 1.0, 0.5], "5": [1.1, 0.9]} for step in (0, 20)},
            "signal": {
                "0": {"input": [1, 0.1], "gradient": [1e-3, 1.0]},
                "20": {"input": [1, 1], "gradient": [1, None]},
            },
        }
        write(folder / "metrics.json", {"metrics": metrics, "epochs": done, "watched": watched})
    return folder


def recorded(**config):
    return RecordedRun("a-run", {"method": "oni", **config}, "finished", [])


class Page(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.inside = [], [], [], []
        self.words = ""
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, *each) for each in attributes]
        if tag not in ("meta", "img", "br"):
            self.inside.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        if self.inside[-1:] == ["script"]:
            self.scripts[-1] += data
        elif self.inside[-1:] != ["style"]:
            self.words += data

    @property
    def charts(self):
        return [json.loads(script) for script in self.scripts if script.startswith("{")]


@pytest.fixture
def report(tmp_path):
    return lambda *sources: Page(write_report(sources, tmp_path / "made" / "report.html"))


# The page.


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_every_committed_experiment(report, folder):
    page = report(folder)
    known = json.loads((folder / "results.json").read_text())
    subject = registry()[known["id"]]
    for text in (subject.title, subject.shows, subject.choices, known["command"], known["versions"]["torch"]):
        assert text in page.words
    for claim in known["claims"]:
        assert claim["text"] in page.words
        assert claim["detail"] in page.words
    assert page.words.count("NOT held") == sum(not claim["held"] for claim in known["claims"])
    drawn = getattr(subject, "charts", None) is not None
    assert page.tags.count("img") == (not drawn)
    assert bool(page.charts) == drawn
    assert not page.inside


def test_all_committed_experiments_in_one(report):
    page = report(ROOT / "results")
    claims = [claim for path in COMMITTED for claim in json.loads((path / "results.json").read_text())["claims"]]
    assert f"{len(COMMITTED)} experiments" in page.words
    assert f"{sum(claim['held'] for claim in claims)} of {len(claims)} claims held" in page.words
    links = [value[1:] for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert set(links) <= set(ids)
    assert len(ids) == len(set(ids))
    assert {path.name for path in COMMITTED} <= set(links)


def test_nothing_comes_from_elsewhere(report, toy, tmp_path):
    page = report(write(tmp_path / "fig99" / "results.json", record()), write_run(tmp_path / "a"))
    for tag, name, value in page.attributes:
        assert name not in ("src", "href", "srcset", "action") or re.match(r"#|data:image/", value), (tag, name, value)
    (policy,) = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content") and "src" in value]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "link" not in page.tags
    assert not re.search(r"@import|url\(", page.source[: page.source.index("</style>")])
    assert "plotly.js v" in page.source


def test_without_charts_there_is_no_plotly(report, monkeypatch, tmp_path):
    monkeypatch.setattr(report_sources, "everything", lambda: {"fig99": TOY})
    page = report(write(tmp_path / "fig99" / "results.json", record()))
    assert "plotly" not in page.source
    assert "img" not in page.tags  # nor is there a picture
    write(tmp_path / "fig99" / "fig99.png", "no image at all")
    assert "img" in report(tmp_path / "fig99").tags


def test_the_same_bytes(toy, tmp_path):
    write(tmp_path / "a" / "fig99" / "results.json", record())
    write_run(tmp_path / "a" / "run")
    shutil.copytree(tmp_path / "a", tmp_path / "elsewhere")
    made = [write_report([tmp_path / folder], tmp_path / f"{folder}.html") for folder in ("a", "elsewhere")]
    assert made[0].read_bytes() == made[1].read_bytes()
    assert str(tmp_path) not in made[0].read_text()


def test_hostile_texts(report, toy, tmp_path):
    claims = [{"text": HOSTILE, "held": True, "detail": HOSTILE}]
    of = record(
        HOSTILE, preset=HOSTILE, command=HOSTILE, claims=claims, machine={HOSTILE: HOSTILE}, versions={"a": [HOSTILE]}
    )
    write(tmp_path / "in" / "fig99" / "results.json", of)
    harmless = report(write(tmp_path / "harmless" / "fig99" / "results.json", record()), write_run(tmp_path / "a"))
    write_run(tmp_path / "in" / "<img onerror=alert(3)>", method=HOSTILE, data=HOSTILE, **{HOSTILE: HOSTILE})
    page = report(tmp_path / "in")
    assert page.tags.count("script") == harmless.tags.count("script")
    assert page.tags.count("img") == 0
    assert {"alert", "onerror"}.isdisjoint(page.tags + [name for _, name, _ in page.attributes])
    assert page.charts[0]["names"][0] == HOSTILE
    assert page.words.count(HOSTILE.replace("\ud800", "?")) > 10
    assert "<img onerror=alert(3)>" in page.words
    assert not page.inside


# Runs.


def test_runs_and_their_states(report, tmp_path):
    write_run(tmp_path / "good", error=0.1)
    write_run(tmp_path / "better", error=0.05, learning_rate=0.5)
    write_run(tmp_path / "diverged", "diverged", epochs=1, method="plain")
    write_run(tmp_path / "unfinished", "unfinished", epochs=2, error=0.01, seed=1)
    write_run(tmp_path / "begun", "unfinished", epochs=0, seed=2)
    page = report(tmp_path)
    table = re.findall(r"<tr>(.*?)</tr>", page.source)
    lines = {re.sub("<.*?>", " ", row).split()[0]: " ".join(re.sub("<.*?>", " ", row).split()) for row in table}
    assert lines["good"] == "good finished oni 10 0.1 0 3 / 3 3.33 10.00 4.5"
    assert lines["better"] == "better finished oni 10 0.5 0 3 / 3 1.67 best 5.00 4.5"
    assert lines["diverged"] == "diverged diverged plain 10 0.1 0 1 / 3 – – 4.5"
    assert lines["unfinished"] == "unfinished unfinished oni 10 0.1 1 2 / 3 0.50 1.00 3.0"
    assert lines["begun"] == "begun unfinished oni 10 0.1 2 0 / 3 – – 0.0"
    assert page.words.count("Configuration") == 5
    assert "5 runs" in page.words
    assert "claims" not in page.words


def test_charts_of_runs(tmp_path):
    folders = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", method="plain"),
        write_run(tmp_path / "c", "diverged", epochs=0, method="olm"),
        write_run(tmp_path / "d", "unfinished", epochs=2, method="lecun"),
    ]
    _, runs = read_sources(folders)
    charts = {chart.title: chart for chart in run_charts(runs)}
    error, loss, first, fifth, activations, gradients = charts.values()
    assert [(line.name, line.dash) for line in error.series] == [
        (name, dash) for name in ("oni", "plain", "lecun") for dash in ("solid", "dash")
    ]
    assert error.series[0].y == pytest.approx([10, 5, 10 / 3])
    assert error.series[-1].x == [1, 2]
    assert [line.name for line in loss.series] == ["oni", "plain", "lecun"]
    assert "layer 1" in first.title
    assert [list(line.y) for line in fifth.series] == [[1.1, 0.9]] * 3
    assert activations.y_log
    assert [(line.dash, list(line.y)) for line in gradients.series[:2]] == [("solid", [1, None]), ("dot", [1e-3, 1.0])]
    assert run_charts([]) == []


@pytest.mark.parametrize(
    ("configs", "labels"),
    [
        ([{}], ["oni"]),
        ([{}, {"method": "plain"}], ["oni", "plain"]),
        (
            [{"learning_rate": 0.5, "seed": 0}, {"learning_rate": 0.1, "seed": 1}],
            ["oni, lr 0.5, seed 0", "oni, lr 0.1, seed 1"],
        ),
        ([{"network_options.depth": 6}, {"network_options.depth": 20}], ["oni, depth 6", "oni, depth 20"]),
        ([{"method_options.center": True}, {"method_options.center": False}], ["oni, center", "oni, not center"]),
        # An option that only one method has tells nothing apart; neither does a setting, once all are told apart.
        ([{"method_options.steps": 5, "epochs": 1}, {"method": "plain", "epochs": 2}], ["oni", "plain"]),
        ([{"epochs": 1, "drops": []}, {"epochs": 2, "drops": [1]}], ["oni, epochs 1", "oni, epochs 2"]),
        ([{}, {}], ["oni (a-run)", "oni (a-run)"]),
    ],
)
def test_labels(configs, labels):
    assert run_labels([recorded(**config) for config in configs]) == labels


def test_colours_of_methods():
    methods = [*METHODS, *(f"new {number}" for number in range(20))]
    colours = run_colours([recorded(method=method) for method in methods for _ in range(2)])
    of = {method: set(colours[2 * index : 2 * index + 2]) for index, method in enumerate(methods)}
    assert all(len(shades) == 2 for shades in of.values())
    assert all(of[a].isdisjoint(of[b]) for a, b in combinations(methods, 2))
    assert run_colours([recorded(), recorded(method="olm")]) == [COLOURS["oni"], COLOURS["olm"]]


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [*COLOURS.values(), "#000000"])
def test_contrast_on_dark(colour):
    page = re.search(r"--page: light-dark\(#\w+, (#\w+)\)", CSS.read_text())[1]
    contrast = (luminance(for_dark(colour)) + 0.05) / (luminance(page) + 0.05)
    assert contrast >= 3.0  # what WCAG 2 asks of lines in a chart


def test_what_is_drawn():
    chart, plain = map(drawable, toy_charts([type("Run", (), {"parameters": {"name": "ours"}})]))
    first, second, _ = chart["lines"]
    assert first["y"] == [1000.0, 10.0, None, 1e-05]
    assert second["y"] == [1.0, None, 2.0, 3.0]
    # Two stretches with a gap between, each there and back; what has no logarithm is at the least of all numbers.
    assert first["band"]["x"] == [1, 2, 2, 1, None, 4, 4, None]
    assert first["band"]["y"] == [2000.0, 2000.0, 5.0, 1e-05, None, 2000.0, 1e-05, None]
    assert "band" not in second
    assert chart["names"] == ["ours", "other"]
    assert [line["name"] for line in chart["lines"]] == [0, 1, 1]
    assert plain["y"] == {"title": "y", "log": False, "range": [-1, 3], "ticks": None}
    assert plain["lines"][0]["light"] == "#000000"
    assert plain["x"]["ticks"][0] == 1


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="'a line' has 2 x and 1 y"):
        drawable(Chart("A chart", "x", "y", [Series("a line", [1, 2], [1.0], "k")]))


# What it is made from, and where it goes.


def test_folders_up_to_two_below(toy, tmp_path):
    write_run(tmp_path / "one" / "two" / "run")
    write(tmp_path / "one" / "fig99" / "results.json", record())
    write(tmp_path / "one" / ".unfinished-x" / "results.json", "{")
    write(tmp_path / "one" / "model" / "config.json", {"hidden_size": 64})
    experiments, runs = read_sources([tmp_path / "one", tmp_path / "one" / "two" / "run"])
    assert [one.subject.id for one in experiments] == ["fig99"]
    assert [run.name for run in runs] == ["run"]  # once
    assert len(read_sources([tmp_path])[1]) == 0  # three below
    shutil.rmtree(tmp_path / "one" / "fig99")
    with pytest.raises(ValueError, match="folders up to 2 below"):
        read_sources([tmp_path])


def test_runs_beside_their_experiments_are_left_out(toy, tmp_path):
    write(tmp_path / "fig99" / "results.json", record())
    write_run(tmp_path / "runs" / "one")
    experiments, runs = report_sources.read_sources([tmp_path])
    assert (len(experiments), len(runs)) == (1, 0)
    assert len(report_sources.read_sources([tmp_path, tmp_path / "runs"])[1]) == 1


def test_an_experiment_twice(report, toy, tmp_path):
    page = report(*(write(tmp_path / at / "fig99" / "results.json", record()) for at in "ab"))
    ids = [value for tag, name, value in page.attributes if (tag, name) == ("section", "id")]
    assert ids == ["summary", "fig99", "fig99-2"]


BROKEN = {
    "not JSON": ("results.json", "{", "not JSON"),
    "not text": ("results.json", "\x00", "not JSON"),
    "too deep": ("results.json", "[" * 100_000, "not JSON"),
    "NaN": ("results.json", '{"id": NaN}', "NaN is no number"),
    "a list": ("results.json", [], "must be an object, got"),
    "no claims": ("results.json", record(claims=None), '"claims" must be a list, got nothing'),
    "claim": ("results.json", record(claims=[{"text": "a", "held": "yes", "detail": ""}]), '"held" of each claim'),
    "runs": ("results.json", record(runs=[1]), "each run must be an object"),
    "keys": ("results.json", record(runs=[{"parameters": {}, "measured": {}, "x": 1}]), '"parameters" and "measured"'),
    "id": ("results.json", record(id="fig98"), "no experiment 'fig98'; the nearest is 'fig99'"),
    "measured": ("results.json", record(runs=[{"parameters": {"name": "a"}, "measured": {}}]), "KeyError: 'value'"),
    "config": ("config.json", "[1]", "must be an object"),
    "status": ("metrics.json", {"metrics": {}}, '"status" must be a text, got nothing'),
    "number": ("metrics.json", {"metrics": {"status": "finished", "steps": "1"}}, '"steps" must be a number'),
    "epochs": ("metrics.json", {"metrics": {"status": "finished"}, "epochs": {}}, '"epochs" must be a list'),
    "step": (
        "metrics.json",
        {"metrics": {"status": "finished"}, "epochs": [], "watched": {"signal": {"x": {}}}},
        "whole numbers, got 'x'",
    ),
    "sessions": ("run.json", {"sessions": {}}, '"sessions" must be a list'),
    "csv": ("epochs.csv", "epoch,train_error\n1,abc\n", "not the table of epochs"),
    "cells": ("epochs.csv", "epoch,train_error\n1,2,3\n", "not the table of epochs"),
}


@pytest.mark.parametrize(("name", "content", "said"), BROKEN.values(), ids=BROKEN)
def test_broken_files(toy, tmp_path, name, content, said):
    folder = tmp_path / "of-it"
    if name != "results.json":
        write_run(folder, "unfinished")
    write(folder / name, content)
    to = tmp_path / "report.html"
    with pytest.raises(ValueError, match=re.escape(said)) as error:
        write_report([folder], to)
    assert str(error.value).startswith(str(folder / name))
    assert "\n" not in str(error.value)
    assert not to.exists()


@pytest.mark.parametrize(
    ("source", "kind", "said"),
    [
        ("missing", FileNotFoundError, "no such folder"),
        ("file", ValueError, "is a file"),
        ("empty", ValueError, "neither results.json"),
        (None, ValueError, "no folder given"),
    ],
)
def test_sources_that_are_none(tmp_path, source, kind, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(kind, match=said) as error:
        write_report([tmp_path / source] if source else [], tmp_path / "report.html")
    assert (source or "") in str(error.value)
    assert "oni reproduce fig5 --preset smoke" in str(error.value)


def test_a_report_is_whole_or_not_there(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "run")
    to = tmp_path / "deep" / "er" / "report.html"
    assert write_report([folder], to) == to
    before = to.read_bytes()
    write_run(folder, error=0.2)

    def fails(*paths):
        raise OSError(28, "No space left on device", str(to))

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space"):
        write_report([folder], to)
    assert to.read_bytes() == before
    assert list(to.parent.iterdir()) == [to]
    with pytest.raises(ValueError, match="is a folder"):
        write_report([folder], to.parent)


# In a browser.


@pytest.fixture(scope="module")
def opened():
    if driven.missing:
        pytest.skip(f"there is no {' and no '.join(driven.missing)}")
    with driven.browser() as browser:
        yield browser


@pytest.fixture
def browser(opened, toy, tmp_path):
    """The browser, showing a report of an experiment and of runs, on a laptop."""
    write(tmp_path / "in" / "fig99" / "results.json", record(SPOKEN))
    for index, method in enumerate(["oni", "plain", SPOKEN]):
        write_run(tmp_path / "in" / f"run-{index}", method=method, error=0.1 * (index + 1))
    write_run(tmp_path / "in" / "unfinished", "unfinished", epochs=1)
    opened.size(1280, 800)
    opened.prefer("light")
    opened.console()
    opened.open(write_report([tmp_path / "in"], tmp_path / "report.html"))
    opened.until("document.querySelectorAll('.plot .main-svg').length")
    return opened


SPOKEN = HOSTILE.replace("\ud800", "")  # which can't be said in the protocol
LINES = """return [...document.querySelectorAll("figure.chart")].map((figure) =>
  [...figure.querySelectorAll(".trace")].filter((trace) => [...trace.querySelectorAll(".js-line")].some(
    (line) => /[LC]/.test(line.getAttribute("d")) && parseFloat(line.style.strokeWidth) > 0)).length)"""


def test_it_opens_without_a_word(browser):
    # Of the experiment; then of runs: errors, loss, spectra, signals. One point alone is no line.
    assert browser.run(LINES) == [3, 1, 6, 3, 3, 3, 6, 3]
    assert browser.console() == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.run("return document.querySelectorAll('script').length") == 2 + 8
    assert browser.run("return document.querySelectorAll('img').length") == 0


def test_the_network_is_forbidden(browser):
    browser.run("new Image().src = 'http://127.0.0.1:9/x.png'; fetch('http://127.0.0.1:9/').catch(() => 0)")
    said = [message for _, message in browser.console()]
    assert len(said) >= 2
    assert all("Content Security Policy" in message for message in said)


def test_the_legend(browser):
    shown = "return document.querySelectorAll('figure.chart .trace').length"
    pressed = "return [...document.querySelector('.legend').children].map((each) => each.getAttribute('aria-pressed'))"
    all_lines = browser.run(shown)
    second = ".legend button:nth-child(2)"
    browser.click(second)
    assert browser.run(shown) == all_lines - 2  # both lines of that name
    assert browser.run(pressed) == ["true", "false"]
    browser.click(second)
    assert browser.run(shown) == all_lines
    assert browser.run(pressed) == ["true", "true"]
    isolate = f"document.querySelector('{second}').dispatchEvent(new MouseEvent('dblclick'))"
    browser.run(isolate)
    assert browser.run(pressed) == ["false", "true"]
    browser.run(isolate)
    assert browser.run(pressed) == ["true", "true"]


def test_hovering_shows_all_values_with_their_names(browser):
    browser.run("Plotly.Fx.hover(document.querySelectorAll('.plot')[0], {xval: 1})")
    words = browser.run("return document.querySelector('.hoverlayer').textContent")
    assert "other" in words
    assert SPOKEN[:40] in words


def lightness(browser, script):
    red, green, blue = map(float, re.findall(r"[\d.]+", browser.run(script))[:3])
    return colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)[1]


PAPER = "return getComputedStyle(document.body).backgroundColor"
TICK = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
CURVE = "return getComputedStyle(document.querySelector('.chart:nth-child(2) .js-line')).stroke"


def test_dark(browser):
    light = [lightness(browser, of) for of in (PAPER, TICK, CURVE)]
    browser.prefer("dark")
    dark = [lightness(browser, of) for of in (PAPER, TICK, CURVE)]
    assert light[0] > 0.9
    assert dark[0] < 0.15
    assert light[1] < 0.5 < dark[1]
    assert light[2] < dark[2]
    assert browser.run("return document.getElementById('theme').textContent") == "Light"
    browser.click("#theme")  # against what the system says
    assert [lightness(browser, of) for of in (PAPER, TICK, CURVE)] == pytest.approx(light)
    browser.prefer("light")
    assert browser.console() == []


def test_no_page_is_too_wide(browser):
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    for width, height in [(1280, 800), (390, 844), (320, 568)]:
        browser.size(width, height, phone=width < 1000)
        browser.until("[...document.querySelectorAll('.plot .main-svg')].every((svg) => svg.clientWidth < innerWidth)")
        assert browser.run("return document.scrollingElement.scrollWidth - innerWidth") <= 0
        assert browser.run("return innerWidth") == width


def test_a_link_to_a_run_opens_it(browser):
    browser.click("a[href='#run-2']")
    browser.until("document.getElementById('run-2').open")
    assert not browser.run("return document.getElementById('run-1').open")
