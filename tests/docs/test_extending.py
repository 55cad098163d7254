"""What the page for contributors says one can add, added: its files and its commands as they stand, on less data."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from oni.cli import main
from oni.recipes.methods import METHODS
from oni.recipes.networks.registry import NETWORKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contributing.md").read_text("utf-8")
FILES = dict(re.findall(r'^```python title="([^"]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL))
SMALL = ["samples=256", "epochs=1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with the files of the page; nothing of them is left afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, code in FILES.items():
        (tmp_path / name).write_text(code, "utf-8")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    yield tmp_path
    for registry in (NETWORKS, METHODS):
        for name in [name for name in registry if name.startswith("my_")]:
            del registry[name]
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def command(name):
    """The command of the page that names this file."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith("oni ") and f"{name}:" in line]
    return shlex.split(line)[1:]


def only_run(folder):
    (run,) = (folder / "runs").iterdir()
    return run, {name: json.loads((run / f"{name}.json").read_text()) for name in ("config", "run", "metrics")}


def test_the_page_has_three_files():
    assert list(FILES) == ["my_network.py", "my_method.py", "my_study.py"]


def test_a_network(folder):
    assert main([*command("my_network"), *SMALL]) == 0
    _, record = only_run(folder)
    assert record["config"]["network_options"] == {"width": 64}
    assert record["metrics"]["metrics"]["epochs"] == 1


def test_a_method_and_a_change_of_its_file(folder, capsys):
    arguments = [*command("my_method"), *SMALL]
    assert main(arguments) == 0
    run, record = only_run(folder)
    assert "my_method" in run.name
    assert record["config"]["method_options"] == {"gain": 1.5}
    assert len(record["run"]["method_sha256"]) == 64
    (folder / "my_method.py").write_text(FILES["my_method.py"] + "\n# changed\n", "utf-8")
    assert main(arguments) == 2
    assert "the file of method my_method:METHOD has changed since this run" in capsys.readouterr().err
    assert main(["report", str(run)]) == 0
    METHODS.pop("my_method:METHOD")
    assert main(["train", str(run / "config.json")]) == 2
    assert "add method=my_method:METHOD to the command" in capsys.readouterr().err


def test_an_experiment(folder, capsys):
    assert main(command("my_study")) == 0
    assert "held" in capsys.readouterr().out
    record = json.loads((folder / "oni-results" / "my_study-EXPERIMENT" / "results.json").read_text())
    assert record["command"] == "oni reproduce my_study:EXPERIMENT --preset laptop"
    assert [claim["verdict"] for claim in record["claims"]] == ["held"]
    assert (folder / "oni-results" / "my_study-EXPERIMENT" / "my_study-EXPERIMENT.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "my_study:"], "write package.module:EXPERIMENT"),
        (["reproduce", "nowhere:EXPERIMENT"], "no module 'nowhere'"),
        (["reproduce", "my_study:EXPERIMNT"], "did you mean 'EXPERIMENT'"),
        (["reproduce", "my_study:plan"], "must be an Experiment, got function"),
        (["train", "examples/train.yaml", "method=my_method:start_orthogonal"], "must be a Method, got function"),
    ],
)
def test_what_is_not_there(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
