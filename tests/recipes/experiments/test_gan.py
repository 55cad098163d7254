"""The GAN figures: what they train, how claims are judged, and that the commands run from start to end."""

import base64
import hashlib
import io
import json
import math
import pickle

import pytest
import torch
from PIL import Image
from torch import nn

from oni.cli import main
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.gan import fig8a, fig8b, fig9
from oni.recipes.experiments.gan.family import make_config
from oni.recipes.experiments.gan.reading import is_closer, outcome
from oni.recipes.experiments.registry import load_experiment
from oni.recipes.experiments.setting import Setting

SEEDS = (0, 1)


def test_as_the_paper_has_it():
    runs = load_experiment("fig8a").planned("paper")
    assert len(runs) == 1 + 6 + 5
    assert {run.generator_updates for run in runs} == {200 * 781}
    config = make_config(runs[1])
    assert (config.learning_rate, config.momentum, config.batch_size) == (2e-4, 0.0, 64)
    options = config.task_options
    assert (options["beta2"], options["n_dis"], options["loss"]) == (0.9, 5, "non-saturating")
    assert (config.network_options["width"], config.network_options["latent"]) == (64, 128)
    assert (config.method, config.method_options["steps"], config.method_options["learn_scale"]) == ("oni-ns", 0, False)
    settings = [make_config(run) for run in load_experiment("fig8b").planned("paper")]
    assert [
        (
            config.learning_rate,
            config.momentum,
            config.task_options["beta2"],
            config.task_options["n_dis"],
            config.method,
        )
        for config in settings[::2]
    ] == [
        (1e-4, 0.5, 0.9, 5, "sn"),
        (1e-4, 0.5, 0.999, 1, "sn"),
        (2e-4, 0.5, 0.999, 1, "sn"),
        (1e-3, 0.5, 0.9, 5, "sn"),
        (1e-3, 0.5, 0.999, 5, "sn"),
        (1e-3, 0.9, 0.999, 5, "sn"),
    ]
    residual = [make_config(run) for run in load_experiment("fig9").planned("paper")]
    assert [(c.task_options["loss"], c.network_options["pooling"]) for c in residual[::2]] == [
        ("non-saturating", "sum"),
        ("hinge", "sum"),
        ("non-saturating", "average"),
        ("hinge", "average"),
    ]
    assert {config.network_options["width"] for config in residual} == {128}


def test_narrower_networks_learn_at_a_larger_rate():
    runs = load_experiment("fig8a").planned("full")
    assert {(run.width, run.generator_updates) for run in runs} == {(16, 1600)}
    assert {make_config(run).learning_rate for run in runs} == {8e-4}
    # The slip with one seed, the others with two.
    assert len(runs) == 2 * 7 + 5


def test_the_figures_share_their_runs():
    def names(id):
        return {make_config(run).name for run in load_experiment(id).planned("full")}

    assert names("figA7") == names("fig8a") | names("fig8b")
    assert names("figA8") == names("fig9")
    assert names("figA9") < names("fig8a")
    assert names("figA10") < names("fig8b")
    assert names("figA11") < names("fig9")


def make_results(experiment, kids, **measured):
    """Results of all runs, with the KID of each by its description."""
    runs = []
    for parameters in experiment.planned("full"):
        label = experiment.describe(parameters)
        kid = next(value for part, value in kids.items() if part in label)
        values = {
            "status": "diverged" if kid is None else "finished",
            "updates": [200, 400],
            "pixel_deviation": [0.4, 0.5],
            "random_feature_distance": [2.0, 1.0],
            "run": "run",
        }
        if kid is not None:
            values |= {"kid": kid + 0.001 * parameters.seed, "kid_error": 0.002, "fid": 1000 * kid}
        runs.append(Run(parameters, {**values, **measured}))
    return Results(runs)


def verdicts(experiment, results):
    return {claim["text"]: claim for claim in experiment.judge(results, "full")}


ONE_STEP = "T = 1 is better than SN in the beginning of training (not a claim of the paper)"


def test_claims_of_figure_8a():
    experiment = load_experiment("fig8a")
    kids = {"SN,": 0.10, "T = 0,": 0.15, "unnormalised": 0.30, "T = 1,": 0.08, "T = 2,": 0.06, "": 0.09}
    judged = verdicts(experiment, make_results(experiment, kids))
    for text, claim in judged.items():
        if "not a claim" not in text:
            assert claim["verdict"] == "not tested"
            assert "this needs at least 20000" in claim["detail"], "the beginning says nothing of the end"
    later = {text: claim["verdict"] for text, claim in judged.items() if "in the beginning" in text}
    assert list(later.values()) == ["held", "held", "held", "held", "not held"]
    details = [claim["detail"] for text, claim in judged.items() if "in the beginning" in text]
    assert details[0].startswith("KID x 1000 (FID): SN 100 (100), T = 0 150 (150), T = 1 80 (80), T = 2 60 (60), ")
    assert "T = 5 with it 300 (300)" in details[-1]
    # A difference that is less than two standard errors decides nothing.
    close = {**kids, "T = 1,": 0.097}
    assert is_closer(make_results(experiment, close), fig8a.BY_STEPS[1], fig8a.SN) is None
    claim = verdicts(experiment, make_results(experiment, close))[ONE_STEP]
    assert claim["verdict"] == "not tested"
    assert is_closer(make_results(experiment, close), fig8a.SN, fig8a.BY_STEPS[1]) is False
    # Without the Inception network there is no verdict.
    unmeasured = Results(Run(run.parameters, {**run.measured, "kid": None}) for run in make_results(experiment, kids))
    for claim in verdicts(experiment, unmeasured).values():
        assert claim["verdict"] == "not tested"
    assert "pass --inception FILE" in claim["detail"]


def test_a_run_that_diverged_is_farthest():
    experiment = load_experiment("fig8b")
    results = make_results(experiment, {"SN, setting D": None, "SN": 0.1, "setting F": 0.2, "": 0.05})
    judged = list(verdicts(experiment, results).values())
    assert [claim["verdict"] for claim in judged] == ["not tested", "not held", "not held"]
    assert "ONI closer: A, B, C, D, E; SN closer: F" in judged[1]["detail"]
    assert "D SN diverged (diverged)" in judged[1]["detail"]
    assert judged[2]["detail"] == "SN, setting D: diverged after 400 updates"
    table = experiment.table(results)
    row = next(row for row in table.rows if row[0] == "SN, setting D")
    assert row[1:3] == ["inf", "inf"]
    assert row[-2:] == ["diverged after 400 updates", "1"]
    collapsed = make_results(load_experiment("fig9"), {"": 0.1}, pixel_deviation=[0.4, 0.01])
    assert {outcome(run) for run in collapsed} == {"collapsed: all images alike"}
    assert all(math.isfinite(value) for chart in fig9.charts(collapsed) for line in chart.series for value in line.y)
    distances, *_ = charts = fig8b.charts(results)
    assert len(charts) == 2 + 6
    assert distances.x_names == list("ABCDEF")
    assert distances.series[0].x == [1, 2, 3, 5, 6], "none of what diverged"


def test_claims_of_class_scores():
    experiment = load_experiment("figA8")

    def judged(scores):
        results = make_results(experiment, {"": 0.1})
        for run, score in zip(results, scores, strict=True):
            run.measured["status" if score is None else "class_score"] = "diverged" if score is None else score
        return list(verdicts(experiment, results).values())

    ours, sn = 8.5, 8.0
    theirs, own = judged(4 * [sn, ours])
    assert theirs["verdict"] == "not tested"
    assert own["verdict"] == "held"
    assert own["detail"].startswith("non-saturating, sum pooling: SN 8.00, ONI 8.50; hinge, sum pooling: SN 8.00")
    assert judged([*3 * [sn, ours], ours, sn])[1]["verdict"] == "not held"
    # A run that diverged has the least score there is.
    assert judged([*3 * [sn, ours], None, ours])[1]["verdict"] == "held"
    assert judged([*3 * [sn, ours], sn, None])[1]["verdict"] == "not held"
    [_, unmeasured] = verdicts(experiment, make_results(experiment, {"": 0.1})).values()
    assert unmeasured["verdict"] == "not tested"
    assert unmeasured["detail"].endswith("not yet measured; pass --classifier RUN")


class Pooled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(x, (2, 2)).flatten(1)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_setting_goes_to_other_processes(tmp_path):
    inception = tmp_path / "inception.pt"
    torch.jit.script(Pooled()).save(inception)
    setting = Setting(
        tmp_path, inception=inception, inception_sha256=hashlib.sha256(inception.read_bytes()).hexdigest()
    )
    setting.check_extractors()
    assert setting.extractors["inception"].kind == "inception"
    there = pickle.loads(pickle.dumps(setting.prepare_elsewhere([])))
    there.check_extractors()
    assert there.extractors["inception"].sha256 == setting.inception_sha256
    with pytest.raises(ValueError, match="--inception-sha256 is the digest of a file: pass --inception FILE as well"):
        Setting(tmp_path, inception_sha256="00").check_extractors()


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_reproduce(tmp_path, capsys):
    """Sheets of four runs, then all eight measured, then read again."""
    out = ["--preset", "smoke", "--out", str(tmp_path), "--plain"]
    assert main(["reproduce", "figA11", *out]) == 0
    record = json.loads((tmp_path / "figA11" / "results.json").read_text())
    assert len(record["runs"]) == 4
    sheet = base64.b64decode(record["runs"][0]["measured"]["sheet"]["png"])
    assert Image.open(io.BytesIO(sheet)).size == (8 * 34 - 2, 2 * 34 - 2)
    assert (tmp_path / "figA11" / "figA11.png").stat().st_size < 400_000
    capsys.readouterr()
    inception = tmp_path / "inception.pt"
    torch.jit.script(Pooled()).save(inception)
    digest = hashlib.sha256(inception.read_bytes()).hexdigest()
    assert main(["reproduce", "fig9", *out, "--inception", str(inception)]) == 2
    error = capsys.readouterr().err
    assert f"pass --inception-sha256 {digest}" in error
    assert "steps" not in error, "before anything is trained"
    assert main(["reproduce", "fig9", *out, "--inception", str(inception), "--inception-sha256", digest]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "20 generated and 20 test images, resized to 299 x 299, bilinear" in text
    assert f"(sha256 {digest[:8]})" in text
    record = json.loads((tmp_path / "fig9" / "results.json").read_text())
    measured = record["runs"][0]["measured"]
    assert {"fid", "kid", "kid_error", "by_inception"} <= measured.keys()
    assert measured["by_inception"]["extractor_sha256"] == digest
    # What was measured stays, also without the file.
    assert main(["reproduce", "fig9", *out, "--json"]) == 0
    again = json.loads((tmp_path / "fig9" / "results.json").read_text())
    assert again["runs"] == record["runs"]
    assert main(["reproduce", "figA11", *out, "--inception", str(inception)]) == 2
    assert "figA11 measures no generated images" in capsys.readouterr().err
