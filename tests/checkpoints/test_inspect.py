import json
import math
import os

import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn

import oni
from oni.checkpoints import inspect
from oni.checkpoints.files import state_dicts
from oni.checkpoints.picture import draw
from oni.cli import main
from oni.style import drawing


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main(["inspect", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 2, groups=2),
        nn.Flatten(),
        nn.Linear(24, 5),
    )


def saved(path, held):
    if path.suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(held, path)
    else:
        torch.save(held, path)
    return path


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "model.safetensors"])
def test_plain_checkpoint_to_json(run, tmp_path, network, name):
    path = saved(tmp_path / name, network.state_dict())
    code, out, err = run(path, "--json", tmp_path / "out.json")
    assert (code, err) == (0, "")
    for layer in ("0.weight", "3.weight", "5.weight"):
        assert layer in out
    assert "1.weight" not in out
    record = json.loads((tmp_path / "out.json").read_text())
    rows = {row["name"]: row for row in record["matrices"]}
    row = rows["5.weight"]
    W = network[5].weight.detach()
    assert (row["kind"], row["shape"], row["matrix"]) == ("weight", [5, 24], [5, 24])
    assert rows["0.weight"]["matrix"] == [8, 27]
    # The same functions in float64.
    assert row["sigma"] == pytest.approx(oni.spectrum(W).tolist(), rel=1e-9)
    assert row["delta_row"] == pytest.approx(float(oni.orthogonality(W).row), rel=1e-9)
    assert row["delta_column"] == pytest.approx(float(oni.orthogonality(W).column), rel=1e-9)
    assert row["condition_number"] == pytest.approx(float(oni.condition_number(W)), rel=1e-9)
    assert row["effective_rank"] == pytest.approx(float(oni.effective_rank(W)), rel=1e-9)
    assert row["sigma_median"] == pytest.approx(float(oni.spectrum(W).median()), rel=1e-9)


def test_training_checkpoint_shows_proxies_and_their_weights(run, tmp_path, network):
    oni.convert(network, steps=4, scale="relu")
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.randn(2, 3, 3, 3)).sum().backward()
    optimizer.step()
    held = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    code, out, _ = run(saved(tmp_path / "train.pt", held), "--json", tmp_path / "out.json")
    assert code == 0
    assert "3.weight (proxy)" in out
    assert "A proxy is what trains" in out
    rows = json.loads((tmp_path / "out.json").read_text())["matrices"]
    assert [(row["name"], row["kind"]) for row in rows] == [
        (f"{layer}.weight", kind) for layer in (0, 3, 5) for kind in ("baked", "proxy")
    ]
    # Two groups of 3 filters on 4 channels: each a matrix of its own.
    transposed = rows[2]
    assert transposed["matrix"] == [3, 16]
    W = network[3].weight.detach().view(2, 4, 3, 4).transpose(1, 2).reshape(2, 3, 16)
    # float32 weights, computed one by one here and in a batch there.
    assert transposed["sigma"] == pytest.approx(sorted(oni.spectrum(W).flatten().tolist(), reverse=True), abs=1e-5)
    assert max(transposed["sigma"]) <= 2**0.5 + 1e-5


def test_proxies_of_others_and_without_options(run, tmp_path):
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
    state = {f"a.{key}": value for key, value in layer.state_dict().items()}
    state |= {
        f"b.{key}": value for key, value in nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).state_dict().items()
    }
    state |= {f"c.{key}": value for key, value in oni.nn.Linear(4, 3).state_dict().items() if "extra" not in key}
    state["d.parametrizations.weight.original"] = torch.ones(2, 2)
    state["d.parametrizations.weight.0._extra_state"] = torch.randn(5)
    code, out, _ = run(saved(tmp_path / "x.pt", state))
    assert code == 0
    for name in ("a.weight (proxy)", "b.parametrizations.weight.original1", "c.weight (proxy)", "d.weight (proxy)"):
        assert name in out


def test_several_state_dicts_are_told_apart():
    W = torch.ones(2, 2)
    held = {
        "state_dict": {"net.weight": W},
        "ema": {"weight": W},
        "optimizer_states": [{"state": {0: {"exp_avg": W}}, "param_groups": []}],
        "sgd": {"state": {0: {"momentum_buffer": W}}, "param_groups": [{}]},
        "lr_schedulers": [{"base": W}],
        "deep": {"a": [{"b": W}]},
        "epoch": 3,
    }
    assert {where: list(state) for where, state in state_dicts(held).items()} == {
        "state_dict": ["net.weight"],
        "ema": ["weight"],
        "deep/a/0": ["b"],
    }
    held["self"] = held
    assert "ema" in state_dicts(held)
    assert state_dicts([W, W]) == {"": {"0": W, "1": W}}


def test_odd_tensors(run, tmp_path):
    state = {
        "nan": torch.full((3, 3), math.nan),
        "zero": torch.zeros(3, 3),
        "vast": torch.zeros(1).expand(10**6, 10**6),
        "large": torch.zeros(30, 40),
        "half": torch.eye(3).bfloat16(),
        "huge entries": torch.full((3, 3), 1e300, dtype=torch.float64),
        "none": torch.zeros(0, 3),
        "[bold]$x$ :smile:": torch.eye(2),
        "sparse": torch.eye(3).to_sparse(),
    }
    code, out, err = run(
        saved(tmp_path / "x.pt", state), "--limit", 20, "--json", tmp_path / "x.json", "--plot", tmp_path / "x.png"
    )
    assert (code, err) == (0, "")
    assert "[bold]$x$ :smile:" in out
    assert "Left out: vast: not stored in full" in out
    assert "Left out: large: its short side is over 20; --limit 30 takes it in." in out
    assert "Left out: sparse" in out
    rows = {row["name"]: row for row in json.loads((tmp_path / "x.json").read_text())["matrices"]}
    assert "none" not in rows
    assert rows["nan"]["sigma"] == [None] * 3
    assert rows["zero"]["condition_number"] is rows["zero"]["effective_rank"] is None
    assert rows["half"]["delta_row"] == 0


def test_large_matrices_by_the_gram_matrix(monkeypatch):
    monkeypatch.setattr(inspect, "BLOCK", 2000)
    for shape in ((300, 340), (340, 300)):
        W = torch.randn(shape)
        # Squaring halves the digits of the smallest, about 1e-2 of the largest here.
        torch.testing.assert_close(inspect.singular_values(W), oni.spectrum(W), atol=1e-9, rtol=0)
    W[0, 0] = math.inf
    assert inspect.singular_values(W).isnan().all()


@pytest.mark.parametrize("width", [60, 80, 132])
def test_tables_fit(width):
    found = [
        inspect.Matrix(
            f"encoder.layers.{i}.attention.query.weight", "weight", (8, 9), (8, 9), oni.spectrum(torch.randn(8, 9))
        )
        for i in range(3)
    ]
    terminal = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    inspect.show(found, terminal, "file.pt")
    text = terminal.export_text()
    terminal.file.close()
    assert max(map(len, text.splitlines())) <= width
    assert ("eff. rank" in text) == (width > 120)
    assert text.count("encoder") == 3


def test_plain_is_ascii(run, tmp_path, network):
    code, out, _ = run(saved(tmp_path / "x.pt", network.state_dict()), "--plain")
    assert code == 0
    assert out.isascii()


@pytest.mark.parametrize("count", [1, 60, 200])
def test_picture(count, tmp_path):
    found = [
        inspect.Matrix(f"layer {i}", "weight", (8, 9), (8, 9), oni.spectrum(torch.randn(8, 9))) for i in range(count)
    ]
    with drawing():
        figure = draw(found, "file.pt")
        assert sum(len(axes.get_yticklabels()) for axes in figure.axes) == count
        assert all(axes.get_xlabel() for axes in figure.axes)
        if count == 1:
            figure.savefig(tmp_path / "x.png", dpi=60)
            with Image.open(tmp_path / "x.png") as picture:
                assert len(picture.getcolors(100_000)) > 10


def test_picture_of_nothing_finite(run, tmp_path):
    path = saved(tmp_path / "x.pt", {"nan": torch.full((3, 3), math.nan)})
    assert run(path, "--plot", tmp_path / "x.svg")[0] == 0
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.pt"], "missing.pt: No such file"),
        (["."], "directory"),
        (["x.pt", "--plot", "x.gif"], "must end in .png"),
        (["x.pt", "--limit", "0"], "--limit must be at least 1"),
        (["x.pt", "--plot", "no/such/folder.png"], "no/such/folder.png"),
        (["x.safetensors"], "not a whole safetensors file"),
        ([], "CHECKPOINT"),
    ],
)
def test_what_a_user_can_mend(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "x.pt", {"weight": torch.ones(2, 2)})
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 40)
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
