"""``oni train``: a user's own run; which data it was; networks of the user's own."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml

from oni.cli import main
from oni.recipes.data import datasets, fashion_mnist
from oni.recipes.data.idx import write_idx
from oni.recipes.networks.registry import NETWORKS
from oni.recipes.tasks import classification
from oni.recipes.training import run as engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.yaml"
TINY = """\
data: fashion-mnist-sample
network_options: {depth: 1, width: 8}
method: plain
batch_size: 64
samples: 256
epochs: 1
"""


@pytest.fixture
def train(capsys, tmp_path, monkeypatch):
    """Run the command in a folder of its own; return its exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine, "warned", set())
    (tmp_path / "tiny.yaml").write_text(TINY)

    def train(*arguments):
        code = main(["train", *map(str, arguments)])
        return code, *capsys.readouterr()

    return train


def test_the_example(train, tmp_path):
    out = tmp_path / "runs"
    code, printed, err = train(EXAMPLE, "samples=256", "epochs=1", "network_options.depth=2", "--out", out, "--plain")
    assert code == 0, err
    (folder,) = out.iterdir()
    assert str(folder) in printed
    assert "test_error" in printed
    config = json.loads((folder / "config.json").read_text())
    assert (config["epochs"], config["network_options"]["depth"], config["augment"]) == (1, 2, ["crop", "flip"])
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["format"] == 1
    # Watched at the start and at the end: two batches of 128.
    assert list(metrics["watched"]["signal"]) == ["0", "2"]
    assert list(metrics["watched"]["spectrum"]["0"]) == ["1"]
    # The same again trains nothing.
    code, printed, err = train(EXAMPLE, "samples=256", "epochs=1", "network_options.depth=2", "--out", out, "--plain")
    assert (code, err) == (0, "")
    assert printed.startswith("finished before, not trained again\n")


def test_for_programs(train):
    code, printed, err = train("tiny.yaml", "--json")
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in printed.splitlines()]
    assert [event["event"] for event in events] == ["start", "epoch", "end", "result"]
    assert events[-1]["metrics"]["status"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["tiny.yaml", "epoch=1"], "unknown key 'epoch'; did you mean 'epochs'"),
        (["tiny.yaml", "watch=spectra"], "unknown watch 'spectra'; did you mean 'spectrum'"),
        (["tiny.yaml", "network_options.width=0"], "width must be at least 1, got 0"),
        (["tiny.yaml", "--data", "nowhere"], "--data nowhere: no such folder"),
        (["tiny.yaml", "--download"], "pass --data DIR"),
        (["tiny.yaml", "--devices", "9999"], "--devices 9999: this machine has at most"),
        (["tiny.yaml", "network=nowhere_at_all:Net"], "no module 'nowhere_at_all'"),
        (["tiny.yaml", "network=json:JSONDecoderr"], "unknown network 'JSONDecoderr' for json"),
        (["tiny.yaml", "network=:Net"], "write package.module:Network"),
        (["tiny.yaml", "network=../../x:Net"], "'../../x' is not a module name; start oni in the folder of the file"),
        (["tiny.yaml", "network=x.py:Net"], "'x.py' is not a module name"),
        (["tiny.yaml", "network_options.norm=batch", "--devices", "2", "--dry"], "No such option"),
        (["tiny.yaml", f"network_options.width={10**9}"], "width=1000000000, inputs=784, classes=10, bias=True, norm="),
        (["tiny.yaml", f"network_options.width={10**30}"], "does not fit into memory; choose smaller sizes"),
        (["tiny.yaml", f"seed={2**62}"], f"seed must be below 2**62, got {2**62}"),
        (["tiny.yaml", f"seed={10**30}"], "seed must be below 2**62, got 1000"),
    ],
)
def test_errors_are_one_line(train, tmp_path, arguments, message):
    code, printed, err = train(*arguments)
    assert (code, printed) == (2, "")
    assert len(err.splitlines()) == 1
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_too_many_steps_for_the_memory(train):
    code, printed, err = train("tiny.yaml", "method=oni", f"method_options.steps={10**15}", "--plain")
    assert (code, printed) == (2, "")
    assert err.splitlines()[-1].startswith(
        "oni: there is not enough memory for this; choose smaller sizes, fewer steps"
    )
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "seed: 2024-01-01",
            "seed must be a number, a string, or a list or map of these, got datetime.date(2024, 1, 1)",
        ),
        ("seed: !!binary aGVsbG8=", "seed must be a number, a string, or a list or map of these, got b'hello' (bytes)"),
        ("network_options: {width: 2024-01-01}", "network_options must be a number, a string, or a list or map"),
        ("drops: [2024-01-01]", "drops must be a number"),
        ("network_options: " + "{a: " * 3000 + "1" + "}" * 3000, "nested more than 20 deep"),
        ("- " * 3000, "nested more than 20 deep"),
    ],
    ids=["date", "bytes", "option", "list", "maps", "lists"],
)
def test_values_that_no_configuration_has(train, tmp_path, text, message):
    (tmp_path / "odd.yaml").write_text(f"{text}\n")
    code, printed, err = train("odd.yaml")
    assert (code, printed, len(err.splitlines())) == (2, "", 1)
    assert err.startswith("oni: odd.yaml: ")
    assert message in err
    assert not (tmp_path / "runs").exists()


NETWORKS_OF_OTHERS = """
from torch import nn


def nothing():
    return None


class Returns(nn.Module):
    def __init__(self, what="none"):
        super().__init__()
        self.hidden, self.what = nn.Linear(784, 8), what
        self.drop, self.output = nn.Dropout(), nn.Linear(8, 7 if what == "few" else 10)

    def forward(self, images):
        logits = self.output(self.drop(self.hidden(images.flatten(1))))
        return {"none": None, "sum": logits.sum(), "few": logits, "logits": logits}[self.what]
"""


@pytest.fixture
def own_networks(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_networks.py").write_text(NETWORKS_OF_OTHERS)
    (tmp_path / "own.yaml").write_text(TINY.replace("network_options: {depth: 1, width: 8}\n", ""))
    yield
    sys.modules.pop("own_networks", None)
    for name in [name for name in NETWORKS if name.startswith("own_networks")]:
        del NETWORKS[name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["network=own_networks:nothing"],
            "network 'own_networks:nothing' must return a torch.nn.Module, got NoneType",
        ),
        (["network=own_networks:Returns"], "with 10 classes or more; got NoneType"),
        (["network=own_networks:Returns", "network_options.what=sum"], "for 64 images, with 10 classes or more; got"),
        (["network=own_networks:Returns", "network_options.what=few"], "got shape (64, 7)"),
    ],
)
def test_networks_without_logits(train, own_networks, tmp_path, arguments, message):
    code, printed, err = train("own.yaml", *arguments)
    assert (code, printed, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_trying_a_network_changes_nothing(train, own_networks, monkeypatch, tmp_path):
    arguments = ["own.yaml", "network=own_networks:Returns", "network_options.what=logits", "--json", "--out"]
    assert train(*arguments, "tried")[0] == 0
    monkeypatch.setattr(classification, "check_logits", lambda *_: None)
    assert train(*arguments, "untried")[0] == 0
    tried, untried = (
        json.loads(next(tmp_path.glob(f"{out}/*/metrics.json")).read_text()) for out in ("tried", "untried")
    )
    assert tried["metrics"]["train_loss"] == untried["metrics"]["train_loss"]
    assert tried["metrics"]["test_loss"] == untried["metrics"]["test_loss"]


def test_metrics_that_are_nested_too_deeply(train, tmp_path):
    assert train("tiny.yaml")[0] == 0
    (path,) = tmp_path.glob("runs/*/metrics.json")
    path.write_text("[" * 100_000 + "]" * 100_000)
    code, _, err = train("tiny.yaml")
    assert code == 2
    assert err == (
        f"oni: {path.relative_to(tmp_path)}: not JSON (nested too deeply); delete it to train this run again\n"
    )


def test_no_gpu(train, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, _, err = train("tiny.yaml", "--accelerator", "cuda")
    assert code == 2
    assert err == "oni: --accelerator cuda: torch finds no such device; pass --accelerator cpu\n"


def test_files_of_a_newer_version(train, tmp_path):
    assert train("tiny.yaml")[0] == 0
    (path,) = tmp_path.glob("runs/*/metrics.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({"format": 99, "numbers": record}))
    code, _, err = train("tiny.yaml")
    assert code == 2
    assert err == (
        f"oni: {path.relative_to(tmp_path)}: written in format 99 by a newer version of oni; this one reads up to 1; "
        "update oni, or train into another --out\n"
    )
    # Runs from before formats had numbers are still read.
    del record["format"]
    path.write_text(json.dumps(record))
    assert train("tiny.yaml")[0] == 0
    path.write_text("{}")
    assert "incomplete for a finished run; delete it" in train("tiny.yaml")[2]


# Which data.


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The official data, which are here the sample's, and the same with labels in another order."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    shutil.copytree(fashion_mnist.SAMPLE, right)
    shutil.copytree(fashion_mnist.SAMPLE, wrong)
    write_idx(wrong / "train-labels-idx1-ubyte.gz", fashion_mnist.load("sample").train_labels.flip(0))
    entry = datasets.RegisteredDataset(
        datasets.load_full_fashion_mnist, datasets.DATASETS["fashion-mnist-sample"].sha256, fashion_mnist.download
    )
    monkeypatch.setitem(datasets.DATASETS, "fashion-mnist", entry)
    return right, wrong


def last_error(printed):
    return float(re.search(r"train_error +(\S+)", printed)[1])


def test_changed_data_are_not_taken_for_the_official_ones(train, tmp_path, folders):
    right, wrong = folders
    code, printed_wrong, err = train("tiny.yaml", "data=fashion-mnist", "--data", wrong, "--plain")
    assert code == 0
    assert err.count("warning: these are not the official data of fashion-mnist (sha256 ") == 1
    code, printed, err = train("tiny.yaml", "data=fashion-mnist", "--data", right, "--plain")
    assert code == 0
    assert "warning" not in err
    assert ": finished" in err
    assert last_error(printed) != last_error(printed_wrong)
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names[1].startswith(f"{names[0]}-data-")
    records = [json.loads((tmp_path / "runs" / name / "run.json").read_text())["data"] for name in names]
    assert [record["official"] for record in records] == [True, False]
    # Each is found again, with its own data.
    for folder, expected in ((wrong, printed_wrong), (right, printed)):
        code, again, err = train("tiny.yaml", "data=fashion-mnist", "--data", folder, "--plain")
        assert again.startswith("finished before")
        assert last_error(again) == last_error(expected)


def test_changed_data_are_noticed_in_a_folder_of_an_older_version(train, tmp_path, folders):
    right, _ = folders
    assert train("tiny.yaml", "data=fashion-mnist", "--data", right)[0] == 0
    (path,) = tmp_path.glob("runs/*/run.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "data_sha256": "0" * 64}))
    code, printed, err = train("tiny.yaml", "data=fashion-mnist", "--data", right)
    assert (code, printed) == (2, "")
    assert "was trained on other data (sha256 00000000...)" in err
    assert "move this folder away" in err


@pytest.mark.parametrize("name", ["fashion-mnist-sample"])
def test_official_digests(name):
    assert datasets.is_official(name, datasets.load_dataset(name).sha256)
    assert not datasets.is_official(name, "0" * 64)


# Networks of one's own.

OWN = """\
from torch import nn


class Tiny(nn.Sequential):
    def __init__(self, width: int, **others):
        super().__init__(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


marker = open("imported", "w").close()
"""


@pytest.fixture
def own_network(tmp_path, monkeypatch):
    """A module in the current folder; nothing of it is left afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(NETWORKS)
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text(
        TINY.replace("{depth: 1, width: 8}", "{width: 8}") + "network: own_models:Tiny\n"
    )
    yield
    NETWORKS.clear()
    NETWORKS.update(before)
    sys.modules.pop("own_models", None)


def test_a_network_of_ones_own(train, tmp_path, own_network):
    code, _, err = train("own.yaml", "method=oni", "network_options.width=8")
    assert code == 0, err
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("own_models-Tiny-oni-")
    config = json.loads((folder / "config.json").read_text())
    assert config["network"] == "own_models:Tiny"
    code, _, err = train("own.yaml", "network_options.width=narrow")
    assert "network_options.width of 'own_models:Tiny' must be of type int" in err


def test_a_changed_network_is_noticed(train, tmp_path, own_network):
    assert train("own.yaml")[0] == 0
    (tmp_path / "own_models.py").write_text(OWN.replace("nn.ReLU()", "nn.Tanh()"))
    code, _, err = train("own.yaml")
    assert code == 2
    assert "the file of network own_models:Tiny has changed since this run" in err


def test_no_code_because_a_run_folder_says_so(train, tmp_path, own_network):
    assert train("own.yaml")[0] == 0
    (folder,) = (tmp_path / "runs").iterdir()
    NETWORKS.pop("own_models:Tiny")
    sys.modules.pop("own_models")
    (tmp_path / "imported").unlink()
    code, _, err = train(folder / "config.json")
    assert code == 2
    assert "add network=own_models:Tiny to the command" in err
    assert main(["report", str(folder), "--out", str(tmp_path / "report.html")]) == 0
    assert not (tmp_path / "imported").exists()
    assert train(folder / "config.json", "network=own_models:Tiny")[0] == 0
    assert (tmp_path / "imported").exists()


def test_another_method_than_the_file_has(train, tmp_path):
    options = "method: oni\nmethod_options: {steps: 2}"
    (tmp_path / "other.yaml").write_text(TINY.replace("method: plain", options))
    code, printed, err = train("other.yaml", "method=he", "--plain")
    assert code == 0, err
    assert "mlp-he-" in printed


DOCUMENTATION = Path(__file__).parents[2] / "docs" / "running.md"


@pytest.mark.skipif(not DOCUMENTATION.exists(), reason="the documentation is not part of the installed package")
def test_the_documented_example(train, tmp_path):
    example, of_a_gan = re.findall(r"```yaml\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert yaml.safe_load(of_a_gan) == yaml.safe_load(EXAMPLE.with_name("gan.yaml").read_text())
    (tmp_path / "example.yaml").write_text(example)
    code, printed, err = train("example.yaml", "epochs=1", "samples=256", "--plain")
    assert code == 0, err
    assert "train_error" in printed
