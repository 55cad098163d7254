import cProfile
import json
import math
import os
import pstats

import pytest
import torch
from PIL import Image
from rich.cells import cell_len
from rich.console import Console
from torch import nn

import oni
from oni.checkpoints import matrices, picture
from oni.checkpoints.files import state_dicts
from oni.checkpoints.inspect import show
from oni.checkpoints.matrices import Matrix, singular_values
from oni.checkpoints.picture import draw
from oni.cli import main
from oni.newton.matrix import Layout
from oni.nn.options import make_options
from oni.nn.options_codec import encode_options
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
    # The same functions in float64: 1e-9 is 5e6 times its rounding.
    assert row["sigma"] == pytest.approx(oni.spectrum(W).tolist(), rel=1e-9)
    assert row["delta_row"] == pytest.approx(float(oni.orthogonality(W).row), rel=1e-9)
    assert row["delta_column"] == pytest.approx(float(oni.orthogonality(W).column), rel=1e-9)
    assert row["condition_number"] == pytest.approx(float(oni.diagnostics.condition_number(W)), rel=1e-9)
    assert row["effective_rank"] == pytest.approx(float(oni.diagnostics.effective_rank(W)), rel=1e-9)
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
    # float32 weights of 16 columns, the result of some 20 products, with singular values up to sqrt 2: computed one by
    # one here and in a batch there.
    rounding = 20 * torch.finfo(torch.float32).eps * 16**0.5 * 2**0.5
    assert transposed["sigma"] == pytest.approx(sorted(oni.spectrum(W).flatten().tolist(), reverse=True), abs=rounding)
    assert max(transposed["sigma"]) <= 2**0.5 + rounding


def test_gates_are_matrices_of_their_own(run, tmp_path):
    model = oni.convert(nn.ModuleDict({"memory": nn.LSTM(8, 16)}), steps=12)
    code, _, _ = run(saved(tmp_path / "x.pt", model.state_dict()), "--json", tmp_path / "out.json")
    assert code == 0
    _, weight, proxy = json.loads((tmp_path / "out.json").read_text())["matrices"]
    assert weight["shape"] == proxy["shape"] == [64, 16]
    assert weight["matrix"] == proxy["matrix"] == [16, 16]
    _, summary = oni.summary(model).rows
    # Singular values up to 1 of the same float32 weight: 1e-6 is 8 epsilons.
    assert (weight["sigma_min"], weight["sigma_max"]) == pytest.approx(summary.sigma, abs=1e-6)


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
        "meta": torch.empty(300, 300, device="meta"),
    }
    code, out, err = run(
        saved(tmp_path / "x.pt", state), "--limit", 20, "--json", tmp_path / "x.json", "--plot", tmp_path / "x.png"
    )
    assert (code, err) == (0, "")
    assert "[bold]$x$ :smile:" in out
    assert "Left out: vast: not stored in full" in out
    assert "Left out: large: its short side is over 20; --limit 30 takes it in." in out
    assert "Left out: sparse: sparse (torch.sparse_coo)" in out
    assert "Left out: meta: on the meta device" in out
    rows = {row["name"]: row for row in json.loads((tmp_path / "x.json").read_text())["matrices"]}
    assert "none" not in rows
    assert rows["nan"]["sigma"] == [None] * 3
    assert rows["zero"]["condition_number"] is rows["zero"]["effective_rank"] is None
    assert rows["half"]["delta_row"] == 0


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("original", torch.ones(4, 8).to_sparse(), "sparse"),
        ("original", torch.empty(4, 8, device="meta"), "on the meta device"),
        ("0._extra_state", encode_options(make_options(steps=2_000_000_000), Layout()), "steps=2000000000 is over"),
    ],
    ids=["sparse", "meta", "steps"],
)
def test_proxies_that_give_no_weight(run, tmp_path, key, value, why):
    state = {**oni.nn.Linear(8, 4).state_dict(), f"parametrizations.weight.{key}": value}
    path = saved(tmp_path / "x.pt", state)
    code, out, err = run(path)
    assert (code, err) == (0, "")
    assert f"Left out: weight: {why}" in out
    assert main(["bake", str(path), "-o", str(tmp_path / "y.pt")]) == 2
    assert not (tmp_path / "y.pt").exists()


def test_many_that_are_left_out_are_counted(run, tmp_path):
    state = {f"layer.{i}": torch.empty(2, 2, device="meta") for i in range(30)}
    code, out, _ = run(saved(tmp_path / "x.pt", state))
    assert (code, out.count("Left out: layer")) == (0, 20)
    assert "Left out: 10 more; --json FILE says why each." in out


def test_large_matrices_by_the_gram_matrix(monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK", 2000)
    for shape in ((300, 340), (340, 300)):
        W = torch.randn(shape)
        # Squaring halves the digits of the smallest, about 1e-2 of the largest here.
        torch.testing.assert_close(singular_values(W), oni.spectrum(W), atol=1e-9, rtol=0)
    W[0, 0] = math.inf
    assert singular_values(W).isnan().all()


def make_matrix(name, kind="weight"):
    return Matrix(name, kind, (8, 9), (8, 9), oni.spectrum(torch.randn(8, 9)))


def show_at(width, matrices):
    """What is printed at a width: the lines of the table, and the whole text."""
    terminal = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    show(matrices, terminal, "file.pt")
    terminal.file.close()
    text = terminal.export_text()
    _, _, heading, _, *lines = text.splitlines()
    return [heading, *lines[: len(matrices)]], text


@pytest.mark.parametrize(
    ("width", "shown", "missing"),
    [
        (140, {"weight", "median", "cond", "eff. rank", "δ row", "σ / σ max"}, set()),
        (100, {"weight", "matrix", "δ row", "σ min", "median", "max", "cond", "eff. rank"}, {"σ / σ max"}),
        (80, {"weight", "matrix", "σ min", "max"}, {"σ / σ max", "median", "eff. rank"}),
        (60, {"weight", "σ min", "max"}, {"σ / σ max", "median", "eff. rank"}),
    ],
)
def test_names_stay_on_their_line(width, shown, missing):
    names = [f"encoder.layers.{i}.self_attention.out_proj.weight" for i in range(3)]
    (heading, *lines), text = show_at(width, [make_matrix(name) for name in names])
    assert max(map(len, text.splitlines())) <= width
    for column in shown:
        assert column in heading
    for column in missing:
        assert column not in heading
        assert column in text  # what is missing is named
    for index, line in enumerate(lines):
        assert line.startswith(names[index] if width > 120 else f"encoder.layers.{index}.self")
        assert line.split()[0].endswith(".out_proj.weight" if width > 120 else ".out_proj")


def test_short_names_are_whole_and_proxies_marked():
    (_, *lines), text = show_at(60, [make_matrix("conv.weight", "baked"), make_matrix("conv.weight", "proxy")])
    assert [line.split("  ")[0] for line in lines] == ["conv", "conv *"]
    assert "A proxy (*) is what trains" in " ".join(text.split())
    # Without its ending, a name would be that of another.
    (_, *lines), _ = show_at(60, [make_matrix("conv.weight"), make_matrix("conv")])
    assert [line.split()[0] for line in lines] == ["conv.weight", "conv"]


@pytest.mark.parametrize("width", [1, 20, 60, 80])
def test_names_of_wide_letters_and_of_any_length(width):
    names = ["层" * 50, "x" * 5000, ".".join("abcdefgh" * 9), "weight"]
    lines, _ = show_at(width, [make_matrix(name) for name in names])
    # A narrower terminal than the numbers and a name of 8 columns take is too narrow.
    assert max(map(cell_len, lines)) <= max(width, 40)


def test_many_keys_take_few_calls_each():
    """Of Python's functions, counted because a machine may be busy: rich's table makes some 4,500 for each row."""
    matrices = [make_matrix(f"block.{i}.layer.weight") for i in range(500)]
    profile = cProfile.Profile()
    profile.enable()
    show_at(80, matrices)
    profile.disable()
    assert pstats.Stats(profile).total_calls < 700 * len(matrices)


def test_plain_is_ascii(run, tmp_path, network):
    code, out, _ = run(saved(tmp_path / "x.pt", network.state_dict()), "--plain")
    assert code == 0
    assert out.isascii()


@pytest.mark.parametrize("count", [1, 60, 200])
def test_picture(count, tmp_path):
    shown = [Matrix(f"layer {i}", "weight", (8, 9), (8, 9), oni.spectrum(torch.randn(8, 9))) for i in range(count)]
    with drawing():
        figure = draw(shown, "file.pt")
        assert sum(len(axes.get_yticklabels()) for axes in figure.axes) == count
        assert figure.get_suptitle() == f"file.pt: singular values of {count} weight matrices"
        assert all(axes.get_xlabel() for axes in figure.axes)
        if count == 1:
            figure.savefig(tmp_path / "x.png", dpi=60)
            with Image.open(tmp_path / "x.png") as picture:
                assert len(picture.getcolors(100_000)) > 10


def test_picture_counts_what_was_left_out(monkeypatch):
    monkeypatch.setattr(picture, "MOST", 3)
    left_out = Matrix("b", "weight", (8, 9), (8, 9), None, "sparse")
    for more, total in (
        ([left_out, left_out], "1 weight matrices (2"),
        ([make_matrix("c")] * 9, "3 weight matrices (7"),
    ):
        with drawing():
            figure = draw([make_matrix("a"), *more], "file.pt")
        assert figure.get_suptitle() == f"file.pt: singular values of {total} left out)"


def test_picture_of_nothing_finite(run, tmp_path):
    path = saved(tmp_path / "x.pt", {"nan": torch.full((3, 3), math.nan)})
    assert run(path, "--plot", tmp_path / "x.svg")[0] == 0
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


HOSTILE = "a\x1b[2J\x1b]0;title\x07\n\u202e.weight"
SHOWN = r"a\x1b[2J\x1b]0;title\x07\n\u202e.weight"


def test_a_name_can_not_steer_the_terminal(run, tmp_path):
    state = {HOSTILE: torch.randn(3, 4), f"large {HOSTILE}": torch.randn(30, 40)}
    path = saved(tmp_path / "x.pt", state)
    code, out, _ = run(path, "--limit", 20, "--json", tmp_path / "x.json", "--plot", tmp_path / "x.png")
    assert code == 0
    assert f"\n{SHOWN} " in out
    assert f"Left out: large {SHOWN}: its short side" in out
    assert all(character == "\n" or character.isprintable() for character in out)
    # Programs get the name as it is; JSON escapes it.
    rows = json.loads((tmp_path / "x.json").read_text())["matrices"]
    assert [row["name"] for row in rows] == list(state)


def test_nor_can_the_name_of_a_file_or_of_a_refused_class(run, tmp_path):
    for path in (tmp_path / f"{HOSTILE[:9]}.pt", tmp_path / "broken.pt"):
        code, out, err = run(path)
        assert (code, out) == (2, "")
        assert err.removesuffix("\n").isprintable()
    pickled = b"\x80\x02cos\x1b[31m\nsystem\n(X\x04\x00\x00\x00truetR."
    (tmp_path / "x.pt").write_bytes(pickled)
    code, out, err = run(tmp_path / "x.pt")
    assert (code, out) == (2, "")
    assert err.removesuffix("\n").isprintable()


def test_plain_shows_any_name_in_ascii(run, tmp_path):
    code, out, _ = run(saved(tmp_path / "x.pt", {"größe": torch.randn(3, 4)}), "--plain")
    assert code == 0
    assert out.isascii()
    assert r"gr\xf6\xdfe" in out


@pytest.mark.parametrize("columns", [60, 90, 140])
def test_columns_are_kept_to_when_piped(run, tmp_path, monkeypatch, network, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = run(saved(tmp_path / "x.pt", network.state_dict()))
    assert code == 0
    lines = out.splitlines()[1:]
    # Prose fills the lines, so that the longest is nearly as long as it may be.
    assert columns - 15 < max(map(len, lines)) <= columns
    assert ("median" in lines[1]) == ("σ / σ max" in lines[1]) == (columns > 80)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/urandom"])
def test_what_has_no_end_is_refused(run, device):
    code, out, err = run(device)
    assert (code, out, err) == (2, "", f"oni: {device}: not a regular file; copy its contents into one\n")


def test_a_pipe_is_not_waited_for(run, tmp_path):
    os.mkfifo(tmp_path / "x.pt")
    code, out, err = run(tmp_path / "x.pt")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "not a regular file" in err


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize("start", [b"", b"PK\x03\x04", b"\x80\x02", b"\x00" * 7 + b"\x7f"])
def test_a_vast_file_is_refused_at_once(run, tmp_path, start, suffix):
    path = tmp_path / f"x{suffix}"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(1 << 40)  # sparse: it takes no room on the disk
    code, out, err = run(path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(path) in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.pt"], "missing.pt: No such file"),
        (["."], "directory"),
        (["x.pt", "--plot", "x.gif"], "must end in .png"),
        (["x.pt", "--limit", "0"], "--limit must be at least 1"),
        (["x.safetensors"], "not a complete safetensors file"),
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
