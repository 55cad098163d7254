import json
import re
import signal

import pytest
import torch

from oni.bench import turns
from oni.bench.forms import cases as forms
from oni.bench.targets import FORM_TARGETS
from oni.cli import main
from oni.machine import code_version


@pytest.fixture
def run(capsys):
    def run(*arguments):
        words = [] if arguments[0] in ("forms", "lamps") else ["forms"]
        code = main(["bench", *words, *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def keys(record):
    return {key: keys(value) if isinstance(value, dict) else ... for key, value in record.items()}


QUARTILES = {"low": ..., "median": ..., "high": ...}


def test_quick_to_json(run, tmp_path):
    path = tmp_path / "bench.json"
    code, out, err = run("forms", "--quick", "--cases", "256x256*", "--json", path, "--plain", "--threads", 1)
    assert code == 0
    assert err == "256x256 (1 of 1)\n"
    assert out.isascii()
    assert "oni T=5" in out

    record = json.loads(path.read_text())
    versions, machine = record.pop("versions"), record.pop("machine")
    assert {"python", "torch", "oni"} <= versions.keys()
    assert machine["threads"] == 1
    assert {"cpu", "cores", "platform", "device"} < machine.keys()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["date"])
    assert record["command"].startswith("oni bench forms --quick '--cases=256x256*' --threads=1 --json=")
    assert record["complete"] is True
    assert record["code"] == code_version()
    assert record["settings"] == {
        "dtype": "float32",
        "seed": 0,
        "seconds_per_case": 0.3,
        "least_rounds": 3,
        "patience_seconds": 0.25,
    }

    (case,) = record["cases"]
    assert (case["name"], case["shape"]) == ("256x256", [256, 256])
    rate = {"flop": ..., "gflop_per_second": QUARTILES, "rounds": ...}
    assert keys(case["products"]) == {"short": rate, "long": rate}
    rows = {contender["name"]: contender for contender in case["contenders"]}
    assert {"oni T=2", "oni T=5", "literal T=2", "authors T=5"} <= rows.keys()
    assert len({tuple(contender) for contender in rows.values()}) == 1
    for name in ("oni T=2", "oni T=5"):
        ours = rows[name]
        assert keys(ours["milliseconds"]) == keys(ours["nearness_to_limit"]) == QUARTILES
        assert ours["rounds"] >= 3
        assert ours["peak_bytes"] > 3 * 256 * 256 * 4
    assert rows["oni T=5"]["products"] == {
        "short_forward": 10,
        "short_backward": 14,
        "long_forward": 2,
        "long_backward": 3,
    }
    # A word, or a measurement: nobody is left without either.
    for contender in rows.values():
        assert bool(contender["note"]) != bool(contender["milliseconds"])

    assert len(record["targets"]) == len(FORM_TARGETS)
    for target in record["targets"]:
        if target["case"] != "256x256":
            assert (target["measured"], target["interval"], target["reached"]) == (None, None, None)


@pytest.fixture
def cheap(monkeypatch):
    """Small cases."""
    monkeypatch.setattr(forms, "FORM_CASES", [forms.FormCase((8, 12), quick=True), forms.FormCase((6, 4))])


def test_a_batch_and_all_cases(run, cheap, monkeypatch):
    batch = forms.FormCase((3, 8, 12), beyond=True, quick=True)
    monkeypatch.setattr(forms, "FORM_CASES", [batch])
    code, out, _ = run("--quick")
    assert code == 0
    assert "3 single calls T=5" in out
    assert "oni minimax" in out
    assert "differs" not in out


def test_quick_leaves_the_large_ones_out(run, cheap):
    assert run("--quick")[2] == "8x12 (1 of 1)\n"
    assert run("--quick", "--cases", "*")[2] == "8x12 (1 of 2)\n6x4 (2 of 2)\n"
    assert run("--quick", "--cases", "6*")[2] == "6x4 (1 of 1)\n"
    assert run("--quick", "--cases", "6*,8x12")[2] == "8x12 (1 of 2)\n6x4 (2 of 2)\n"


def test_nothing_is_written_unless_asked(run, cheap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--quick")[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_threads_are_set_and_given_back(run, cheap, tmp_path):
    before = torch.get_num_threads()
    run("--quick", "--threads", before + 1, "--json", tmp_path / "bench.json")
    assert json.loads((tmp_path / "bench.json").read_text())["machine"]["threads"] == before + 1
    assert torch.get_num_threads() == before


def test_ctrl_c_keeps_what_was_measured(run, cheap, tmp_path, monkeypatch):
    whole = turns.interleaved

    def interrupted(calls, times, **options):
        rounds = whole(calls, times, **options)
        next(rounds)
        next(rounds)
        yield 0.1
        raise KeyboardInterrupt

    monkeypatch.setattr(turns, "interleaved", interrupted)
    code, out, err = run("--quick", "--json", tmp_path / "bench.json")
    assert code == 130
    assert err == "8x12 (1 of 1)\noni: interrupted\n"
    assert "literal T=5" in out
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["complete"] is False
    assert [contender["rounds"] for contender in record["cases"][0]["contenders"]] == [1] * 6


def test_a_time_limit_keeps_what_was_measured(run, cheap, monkeypatch, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    real = turns.interleaved

    def ended(calls, times, **options):
        for _ in real(calls, times, **options):
            if all(times.values()):
                signal.raise_signal(signal.SIGTERM)
            yield 0.0

    monkeypatch.setattr(turns, "interleaved", ended)
    code, _, err = run("--quick", "--json", tmp_path / "bench.json")
    assert code == 130
    assert err.endswith("oni: interrupted\n")
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["complete"] is False
    assert [contender["rounds"] for contender in record["cases"][0]["contenders"]] == [1] * 6
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_keeps_what_was_measured(run, cheap, monkeypatch, tmp_path):
    whole = turns.measure_orthogonality

    def fail(W):
        if W.shape == (6, 4):
            raise ZeroDivisionError("a defect")
        return whole(W)

    monkeypatch.setattr(turns, "measure_orthogonality", fail)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        run("--quick", "--cases", "*", "--json", tmp_path / "bench.json")
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["complete"] is False
    first, second = record["cases"]
    assert all(contender["milliseconds"] for contender in first["contenders"])
    assert not any(contender["milliseconds"] for contender in second["contenders"])


def test_ctrl_c_before_anything_was_measured(run, cheap, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(turns, "probe", interrupted)
    code, out, err = run("--quick")
    assert code == 130
    assert "not measured" in out
    assert err.endswith("oni: interrupted\n")


def test_a_wrong_form_is_not_timed(run, cheap, monkeypatch):
    wrong = forms.authors
    monkeypatch.setattr(forms, "authors", lambda Z, steps, center: wrong(Z, steps + 1, center=center))
    code, out, _ = run("--quick")
    assert code == 1
    rows = {line.split()[0]: line for line in out.splitlines() if " T=" in line}
    assert "not timed" in rows["authors"]
    assert "not timed" not in rows["literal"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["lamps"], "unknown bench 'lamps'; choose from matrices, forms, choices, models, processes, images"),
        (["--cases", "7x*"], "'7x*' matches none of: 256x256/gaussian, 256x256/trained"),
        (["--seconds", "0"], "--seconds must be positive"),
        (["--seconds", "nan"], "--seconds must be positive"),
        (["--seconds", "soon"], "--seconds"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--processes", "2"], "--processes is for oni bench processes, not matrices; leave it out"),
        (["models", "--processes", "2"], "--processes is for oni bench processes, not models; leave it out"),
        (["processes", "--processes", "1"], "--processes must be at least 2, got 1"),
        (["processes", "--device", "cuda"], "oni bench processes runs on the CPU; leave out --device"),
        (["--device", "abacus"], "--device must be cpu or cuda, got 'abacus'"),
        (["--device", "meta"], "--device must be cpu or cuda, got 'meta'"),
        (["--json", "."], "--json"),
        (["matrices", "models"], "models"),
    ],
)
def test_what_a_user_can_mend_is_one_line(capsys, tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    code = main(["bench", *arguments])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("oni: ")
    assert err.count("\n") == 1
    assert complaint in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_no_cuda_here(run):
    code, _, err = run("--device", "cuda")
    assert code == 2
    assert "no CUDA device" in err
