"""Every example runs, and what it prints is what it promises."""

import io
import os
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("**/*.py"))


def run(script, *arguments, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", script, *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_here(script, *arguments):
    """The same in this process, which has loaded torch already."""
    out = io.StringIO()
    with patch.object(sys, "argv", [str(script), *map(str, arguments)]), redirect_stdout(out):
        runpy.run_path(str(script), run_name="__main__")
    return out.getvalue()


def losses(text):
    """The last row of a table of losses, by its headings."""
    headings = re.search(r"^steps +(.+)$", text, re.MULTILINE)[1]
    last = re.findall(r"^ *\d+ - +\d+ +(.+)$", text, re.MULTILINE)[-1]
    return dict(zip(re.split(r"  +", headings), map(float, last.split()), strict=True))


def before_and_after(script, folder):
    text = run(script, "--steps", 80, "--out", folder / "kept", folder=folder)
    last = losses(text)
    # A guess has ln 10 = 2.303, and so has the first. The last ends at 1.54, and at 1.80 and 1.98 with seeds 1 and 2.
    assert last["after"] < 2.2
    assert last["before"] > 2.28
    assert "20 of 20 weights are orthogonalised" in text
    difference = float(re.search(r"differs from the trained one by at most (\S+)\.$", text, re.MULTILINE)[1])
    # 20 layers, each the result of fewer than 29 products (five Newton steps) of matrices with 64 columns.
    assert difference < 20 * 29 * 64**0.5 * 2**-23
    assert (folder / "kept" / "model.pt").is_file()


def gan_discriminator(script, folder):
    text = run(script, "--steps", 60, "--newton", 10, folder=folder)
    rows = {}
    for name, low, high, middle in re.findall(r"^(\w+) +\d of 8 .* (\S+) - (\S+), median (\S+)$", text, re.MULTILINE):
        rows[name] = float(low), float(high), float(middle)
    assert set(rows) == {"spectral_norm", "orthogonal"}
    # One power iteration a step estimates the largest singular value to a few percent.
    assert rows["spectral_norm"][1] == pytest.approx(1, abs=0.1)
    assert rows["spectral_norm"][2] < 0.7
    # Ten steps take all but the very smallest to 1, and none beyond, as far as three decimals show.
    assert rows["orthogonal"][1] <= 1.001
    assert rows["orthogonal"][2] > 0.99


def recurrent_copy_task(script, folder):
    last = losses(run(script, "--steps", 64, "--delay", 20, folder=folder))
    # ln 8 = 2.079 is the loss without a memory; both orthogonal layers reach 1.45.
    assert last["steps=8"] < 1.8
    assert last["sigma_min"] < 1.8
    assert last["plain"] > 2.0
    for layer in ("lstm", "gru"):
        text = run_here(script, "--steps", 8, "--delay", 4, "--layer", layer)
        assert all(value < 2.2 for value in losses(text).values())


def character_model(script, folder):
    text = run(script, "--steps", 2, "--seeds", 1, "--rates", 1e-2, folder=folder)
    rows = re.findall(r"^(\w+) +1e-02 +(\S+)  \S+$", text, re.MULTILINE)
    assert [name for name, _ in rows] == ["plain", "start", "attention", "mlp", "both"]
    # Some 100 letters: a guess has ln 100 = 4.6, and two steps do not go far from it.
    assert all(2.0 < float(loss) < 6.0 for _, loss in rows)


CHECKS = {
    check.__name__: check for check in (before_and_after, character_model, gan_discriminator, recurrent_copy_task)
}


def test_no_example_is_left_out():
    assert {script.stem for script in EXAMPLES} == set(CHECKS)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example(script, tmp_path):
    CHECKS[script.stem](script, tmp_path)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_help(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(script), run_name="__main__")
    assert stop.value.code == 0
    assert "--steps" in capsys.readouterr().out
