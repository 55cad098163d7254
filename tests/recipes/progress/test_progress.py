"""Bars that fit the terminal, and the time left for many runs."""

import io
from contextlib import contextmanager

import pytest
from rich.console import Console

from oni.recipes.progress import reporters
from oni.recipes.progress.overall import Estimate, Overall
from oni.recipes.progress.reporters import Bar

NAME = "resnet-cifar-centred-wn-lr0.05-seed12-0123456789ab"


@contextmanager
def terminal(monkeypatch, width):
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None, legacy_windows=False)
    monkeypatch.setattr(reporters, "console", lambda **_: screen)
    yield screen


def last_frame(screen, bars):
    """The bars as they are now, line by line."""
    # On a console of its own, without the control codes of a live display.
    paper = Console(file=io.StringIO(), width=screen.width, color_system=None)
    paper.print(bars.get_renderable())
    return paper.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 140])
def test_times_are_never_cut(width, monkeypatch):
    with terminal(monkeypatch, width) as screen:
        bar = Bar()
        bar.start(NAME, steps=1000, done=0)
        bar.step(500, "12/80", {"loss": 0.1234, "error": 0.1234})
        bar.bars.update(bar.task, left=754)
        (line,) = last_frame(screen, bar.bars)
        assert len(line.rstrip()) <= width
        assert line.rstrip().endswith(", 12:34 left")
        assert "12/80 loss 0.123 error 12.3%" in line
        assert ("resnet-cifar-centred-wn-lr0.05-seed12 " in line) == (width == 140)
        bar.end("finished")
        assert "resnet-cifar-centred-wn-lr0.05-seed12: finished\n" in screen.file.getvalue()


def test_estimate():
    estimate = Estimate(total=4)
    assert estimate.seconds_left([(100, 0, 1.0)]) is None
    estimate.work, estimate.seconds = 50, 5.0
    # 50 steps are left of this run, and three runs like it.
    assert estimate.seconds_left([(100, 50, 1.0)]) == pytest.approx(35.0)
    for steps in (100, 300):
        estimate.finish(steps)
    # This run, and another one of 200 steps, the mean.
    assert estimate.seconds_left([(400, 0, 1.0)]) == pytest.approx(60.0)
    # Two at once, which then go on being two.
    assert estimate.seconds_left([(400, 0, 1.0), (300, 100, 1.0)]) == pytest.approx(30.0)
    assert estimate.seconds_left([(400, 0, 1.0)]) == pytest.approx(30.0)
    for _ in range(2):
        estimate.finish()
    assert estimate.seconds_left() == 0


def test_the_estimate_is_right_from_the_first_run_on_where_steps_differ_in_cost():
    """Runs of 100 steps of 1, 5 and 2 seconds, and one that trains nothing."""
    seconds = [1.0, 5.0, 2.0]
    estimate = Estimate(4, [*(10 * cost for cost in seconds), 0.0])
    for number, cost in enumerate(seconds):
        left = estimate.seconds_left([(100, 0, 10 * cost)])
        assert left is None if number == 0 else left == pytest.approx(100 * sum(seconds[number:]))
        estimate.work += 100 * 10 * cost
        estimate.seconds += 100 * cost
        estimate.finish(100, 10 * cost)
    assert estimate.seconds_left() == pytest.approx(0.0)


def train(run, steps, name="run-0"):
    run.start(name, steps, 0)
    run.step(steps, "1/1", {"loss": 1.0})
    run.epoch({"epoch": 1, "steps": steps, "loss": 1.0, "seconds": 0.1})
    run.end("finished")


def test_a_bar_for_each_run_and_one_for_all(monkeypatch):
    with terminal(monkeypatch, 80) as screen, Overall("fig5", total=4, kind="bar", at_once=True) as overall:
        runs = [overall.begin("10-layer MLP"), overall.begin("20-layer MLP")]
        for run in runs:
            run.start(NAME, 100, 0)
            run.step(50, "1/2", {"loss": 1.0, "error": 0.5})
        lines = last_frame(screen, overall.bars)
        assert len(lines) == 3
        assert lines[0].startswith("fig5 ")
        assert "0/4 runs" in lines[0]
        assert overall.bars.tasks[0].completed == 1.0  # half of each
        assert all(line.rstrip().endswith(" left") for line in lines)
        assert "-:--" not in lines[0]
        runs[0].end("finished")
        runs[0].finish()
        lines = last_frame(screen, overall.bars)
        assert len(lines) == 2
        assert "1/4 runs" in lines[0]
        runs[1].end("its process died")
        runs[1].end("twice")  # nothing trains any more
        assert "twice" not in screen.file.getvalue()


def test_headings_are_of_runs_that_train(capsys):
    with Overall("fig5", total=3, kind="lines") as overall:
        overall.begin("busy elsewhere")  # nothing starts, so nothing is printed
        run = overall.begin("first")
        train(run, 10)
        train(run, 10)  # a second training of the same run
        run.finish()
        overall.begin("second").finish()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("fig5")] == [
        "fig5, 1 of 3: first",
        "fig5, 2 of 3: second (finished before), about 0:00 left after it",
    ]


def test_for_programs(capsys):
    with Overall("fig5", total=1, kind="json") as overall:
        run = overall.begin("first")
        train(run, 10)
        run.finish()
    shown = capsys.readouterr()
    assert shown.err == ""
    assert len(shown.out.splitlines()) == 3


def test_several_at_once_are_told_apart(capsys):
    with Overall("fig5", total=2, kind="lines", at_once=True) as overall:
        for name in ("run-0", "run-1"):
            train(overall.begin(name), 10, name)
    assert [line for line in capsys.readouterr().err.splitlines() if "epoch 1" in line] == [
        f"run-{number}: epoch 1: loss 1.0000, 0.1 s" for number in (0, 1)
    ]
