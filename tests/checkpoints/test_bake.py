import copy
import importlib.util
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import oni
from oni.checkpoints import files as weight_files
from oni.cli import main
from oni.newton.matrix import Layout
from oni.nn.options import make_options
from oni.nn.options_codec import decode_options, encode_options

spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
hostile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hostile)


EPS = torch.finfo(torch.float32).eps


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 6, 3, bias=False)
        )
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.head = nn.Linear(6, 3)
        self.twin = nn.Linear(6, 3, bias=False)
        self.twin.weight = self.head.weight

    def forward(self, x):
        x = self.features(x).flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x)[0]) + self.twin(x)


def converted(**options):
    torch.manual_seed(0)
    net = Net()
    oni.convert(net, only=["head", "twin"], steps=7, schedule="minimax", bound="tight")
    return oni.convert(net, skip=["head", "twin"], **options)


OPTIONS = [
    {},
    {"steps": 3, "scale": "relu", "center": True},
    {"steps": 2, "learn_scale": True, "scale": 0.5, "bound": "frobenius", "center": False},
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("source", "target"), [(".pt", ".safetensors"), (".safetensors", ".pt"), (".pth", ".pth")])
def test_a_file_baked_is_the_model_baked(run, tmp_path, options, dtype, source, target):
    net = converted(**options).to(dtype)
    if options.get("learn_scale"):
        with torch.no_grad():
            net.features[0].parametrizations.weight[0].scale.uniform_(0.5, 2)
    path, out = tmp_path / f"train{source}", tmp_path / f"plain{target}"
    weight_files.write(net.state_dict(), path)
    code, text, err = run("bake", path, "-o", out)
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: ")
    written = weight_files.read(out)
    expected = oni.bake(net).state_dict()
    assert written.keys() == expected.keys()
    for key, value in expected.items():
        assert written[key].dtype == value.dtype
        # One by one here, in batches there. The work is done in float32 or float64: up to 30 products of matrices with
        # up to 36 columns, times values up to 2. Then rounded to the weight's dtype, of which bfloat16 has 8 bits.
        assert_close(
            written[key],
            value,
            atol=30 * 36**0.5 * 2 * torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps,
            rtol=1e-2 if dtype is torch.bfloat16 else 0,
        )
    Net().to(dtype).load_state_dict(written, strict=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([path.name, out.name])


def test_keys_stand_as_in_the_plain_architecture():
    assert list(oni.models.bake_state_dict(converted().state_dict())) == list(Net().state_dict())
    shared = oni.models.bake_state_dict(converted().state_dict())
    assert shared["head.weight"].data_ptr() == shared["twin.weight"].data_ptr()


def test_gates_are_never_guessed():
    layer = oni.convert(nn.LSTM(3, 4, bidirectional=True), steps=2)
    state = layer.state_dict()
    expected = oni.bake(copy.deepcopy(layer)).state_dict()
    # In one call each here, batched there: 5 products of matrices with 4 columns.
    assert_close(oni.models.bake_state_dict(state), dict(expected), atol=5 * 2 * 2**-23, rtol=0)
    without = {key: value for key, value in state.items() if "_extra_state" not in key}
    with pytest.raises(ValueError, match=r"weight_hh_l0: no options were saved .* groups, .* 4 for an LSTM"):
        oni.models.bake_state_dict(without, steps=2)
    found = oni.models.bake_state_dict(without, steps=2, groups=4)
    assert_close(found, dict(expected), atol=5 * 2 * 2**-23, rtol=0)


def test_options_survive_what_is_done_to_state_dicts():
    net = converted(scale="relu")
    expected = oni.models.bake_state_dict(net.state_dict())
    for change in (lambda v: v.half(), lambda v: v.bfloat16(), lambda v: 0.9 * v + 0.1 * v):
        state = {key: change(value) if value.is_floating_point() else value for key, value in net.state_dict().items()}
        baked = oni.models.bake_state_dict(state)
        assert baked.keys() == expected.keys()
        for key, value in expected.items():
            # bfloat16 has 8 bits, and a weight moves about as far as its proxy did, times the slope of 5 steps.
            assert_close(baked[key].to(value.dtype), value, atol=0.1, rtol=0.05)


def test_state_dicts_load_with_and_without_options(tmp_path):
    net = converted()
    state = net.state_dict()
    without = {key: value for key, value in state.items() if "_extra_state" not in key}
    for held in (state, without):
        torch.save(held, tmp_path / "x.pt")
        other = converted()
        assert not any(other.load_state_dict(torch.load(tmp_path / "x.pt", weights_only=True), strict=True))
    with pytest.raises(RuntimeError, match="original"):
        other.load_state_dict({key: value for key, value in state.items() if "original" not in key}, strict=True)


def saved_before(schedule):
    """Options as the first version saved them."""
    text = bytes(encode_options(make_options(schedule=schedule), Layout()).byte().tolist())
    return torch.tensor(list(text.replace(b'"oni":2', b'"oni":1'))).float()


def test_options_of_the_first_version():
    assert decode_options(saved_before("newton"))[0] == make_options()


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (None, "not the saved options"),
        (torch.ones(2, 2), "not the saved options"),
        (torch.randn(80), "not the saved options"),
        (torch.full((9,), float("nan")), "not the saved options"),
        (torch.full((10**5,), 91.0), "not the saved options"),
        (torch.full((4000,), 91.0), "not the saved options"),
        (torch.tensor(list(b"[]")).float(), "not the saved options"),
        (
            torch.tensor(
                list(encode_options(make_options(), Layout()).byte().numpy().tobytes().replace(b'"oni":2', b'"oni":3'))
            ),
            "version 3",
        ),
        (saved_before("minimax"), "two best cubics"),
        (encode_options(make_options(), Layout(groups=0)), "unknown format"),
        (encode_options(make_options(), Layout())[:-1], "not the saved options"),
    ],
)
def test_options_that_are_none(tensor, words):
    with pytest.raises(ValueError, match=words):
        decode_options(tensor)
    state = {"parametrizations.weight.original": torch.ones(2, 2), "parametrizations.weight.0._extra_state": tensor}
    with pytest.raises(ValueError, match=r"parametrizations.weight.0._extra_state: "):
        oni.models.bake_state_dict(state)


class TestWithoutSavedOptions:
    @pytest.fixture
    def path(self, tmp_path):
        net = oni.convert(
            nn.Sequential(nn.Linear(8, 4), nn.MultiheadAttention(4, 2)), steps=3, scale="relu", center=True
        )
        state = {key: value for key, value in net.state_dict().items() if "_extra_state" not in key}
        weight_files.write(state, tmp_path / "old.pt")
        self.expected = oni.bake(net).state_dict()
        return tmp_path / "old.pt"

    def test_flags_are_asked_for(self, run, path):
        code, out, err = run("bake", path, "-o", path.with_name("new.pt"))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert re.search(r"old.pt: 0.weight: no options were saved .*--steps 5, --scale relu", err)
        assert [p.name for p in path.parent.iterdir()] == ["old.pt"]

    def test_flags(self, run, path):
        out = path.with_name("new.pt")
        assert run("bake", path, "-o", out, "--steps", 3, "--scale", "relu", "--center", "true")[0] == 0
        written = weight_files.read(out)
        for key, value in self.expected.items():
            # 10 products of matrices with 8 columns, one by one here and in batches there, values up to sqrt 2.
            assert_close(written[key], value, atol=10 * 8**0.5 * 2**0.5 * EPS, rtol=0)


def test_flags_override_what_was_saved(run, tmp_path):
    layer = oni.nn.Linear(8, 4, steps=1, scale="relu")
    weight_files.write(layer.state_dict(), tmp_path / "x.pt")
    code, _, err = run("bake", tmp_path / "x.pt", "-o", tmp_path / "y.pt", "--steps", 12, "--scale", "1.0")
    assert (code, err) == (0, "")
    W = weight_files.read(tmp_path / "y.pt")["weight"]
    # After 12 steps, rounding is all that is left: of 30 products of matrices with 8 columns.
    assert_close(W @ W.T, torch.eye(4), atol=30 * 8**0.5 * EPS, rtol=0)


def test_several_state_dicts(run, tmp_path):
    layer = oni.nn.Linear(8, 4)
    held = {"model": layer.state_dict(), "ema": layer.state_dict(), "optimizer": {"state": {}, "param_groups": []}}
    torch.save(held, tmp_path / "x.pt")
    code, _, err = run("bake", tmp_path / "x.pt", "-o", tmp_path / "y.pt")
    assert code == 2
    assert "choose one with --key: 'model', 'ema'" in err
    assert run("bake", tmp_path / "x.pt", "-o", tmp_path / "y.pt", "--key", "ema")[0] == 0
    nn.Linear(8, 4).load_state_dict(weight_files.read(tmp_path / "y.pt"), strict=True)
    assert (
        "unknown state dict 'emma'; did you mean 'ema'?"
        in run("bake", tmp_path / "x.pt", "-o", tmp_path / "y.pt", "--key", "emma")[2]
    )


def on_top(layer):
    return nn.utils.parametrizations.spectral_norm(layer)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (nn.Linear(3, 2).state_dict(), "nothing to bake"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).state_dict(), "nothing to bake"),
        (on_top(oni.nn.Linear(3, 2)).state_dict(), "another parametrization on top"),
        ({**oni.nn.Linear(3, 2).state_dict(), "weight": torch.ones(2, 3)}, "both as a weight and as a proxy"),
        (
            {**oni.nn.Linear(3, 2).state_dict(), "parametrizations.weight.original": torch.full((2, 3), 7).long()},
            "nothing to bake",
        ),
        (
            {
                **oni.nn.Conv2d(4, 4, 1, groups=4).state_dict(),
                "parametrizations.weight.original": torch.ones(3, 1, 1, 1),
            },
            "weight: its proxy of shape",
        ),
        (
            {k: v for k, v in oni.nn.Linear(3, 2, learn_scale=True).state_dict().items() if not k.endswith("scale")},
            "its learnable scale",
        ),
        (
            {**oni.nn.Linear(3, 2, learn_scale=True).state_dict(), "parametrizations.weight.0.scale": torch.ones(7)},
            "can't be baked",
        ),
        (
            {**oni.nn.Linear(3, 2).state_dict(), "parametrizations.weight.original": torch.ones(2, 3).to_sparse()},
            "weight: its proxy can't be baked: sparse",
        ),
        (
            {
                **oni.nn.Linear(3, 2).state_dict(),
                "parametrizations.weight.0._extra_state": encode_options(make_options(steps=2 * 10**9), Layout()),
            },
            "weight: its proxy can't be baked: steps=2000000000 is over 1000",
        ),
    ],
)
def test_wrong_tensors(run, tmp_path, state, words):
    torch.save(state, tmp_path / "x.pt")
    code, out, err = run("bake", tmp_path / "x.pt", "-o", tmp_path / "y.pt")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]


def test_the_input_is_safe_and_the_output_whole(run, tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    weight_files.write(oni.nn.Linear(8, 4).state_dict(), path)
    before = path.read_bytes()
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    for out in (path, link):
        code, _, err = run("bake", path, "-o", out)
        assert code == 2
        assert "is the checkpoint itself" in err
    assert "must end in" in run("bake", path, "-o", tmp_path / "y.bin")[2]
    assert "--center must be" in run("bake", path, "-o", tmp_path / "y.pt", "--center", "maybe")[2]
    assert "scale must be" in run("bake", path, "-o", tmp_path / "y.pt", "--scale", "rellu")[2]

    def interrupted(held, file):
        file.write(b"half")
        raise KeyboardInterrupt

    old = tmp_path / "old.pt"
    old.write_bytes(b"old")
    monkeypatch.setattr(torch, "save", interrupted)
    assert run("bake", path, "-o", old)[0] == 130
    assert (path.read_bytes(), old.read_bytes()) == (before, b"old")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.pt", "old.pt", "x.pt"]


@pytest.mark.parametrize("command", ["inspect", "bake"])
@pytest.mark.parametrize("make", hostile.FILES, ids=lambda make: make.__name__)
def test_hostile_files(run, tmp_path, command, make):
    path, trace = tmp_path / "x.pt", tmp_path / "ran"
    make(path, trace)
    code, out, err = run(command, path, *(["-o", tmp_path / "y.pt"] if command == "bake" else []))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert re.search(hostile.FILES[make], err)
    assert str(path) in err
    assert [p.name for p in tmp_path.iterdir()] == ["x.pt"]
