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
from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.gan import fig8a, fig8b, fig9
from oni.recipes.experiments.gan.table import judge_closer, outcome
from oni.recipes.experiments.registry import load_experiment
from oni.recipes.experiments.setting import Setting, find_loaded
from oni.recipes.tasks.gan import kept_updates


def test_as_the_paper_has_it():
    runs = load_experiment("fig8a").planned("paper")
    assert len(runs) == 1 + 6 + 5
    assert {run.steps for run in runs} == {200 * 781}
    config = runs[1].config
    assert (config.learning_rate, config.momentum, config.batch_size) == (2e-4, 0.0, 64)
    options = config.task_options
    assert (options["beta2"], options["n_dis"], options["loss"]) == (0.9, 5, "non-saturating")
    assert (config.network_options["width"], config.network_options["latent"]) == (64, 128)
    assert (config.method, config.method_options["steps"], config.method_options["learn_scale"]) == ("oni-ns", 0, False)
    settings = [run.config for run in load_experiment("fig8b").planned("paper")]
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
    residual = [run.config for run in load_experiment("fig9").planned("paper")]
    assert [(c.task_options["loss"], c.network_options["pooling"]) for c in residual[::2]] == [
        ("non-saturating", "sum"),
        ("hinge", "sum"),
        ("non-saturating", "average"),
        ("hinge", "average"),
    ]
    assert {config.network_options["width"] for config in residual} == {128}


def test_narrower_networks_learn_at_a_larger_rate():
    runs = load_experiment("fig8a").planned("full")
    assert {(run.config.network_options["width"], run.steps) for run in runs} == {(16, 1600), (16, 20_000)}
    assert {run.learning_rate for run in runs} == {8e-4}
    # The slip with one seed, the others with two; of the longer ones, two rows with three seeds and two with two.
    assert [len([run for run in runs if run.steps == steps]) for steps in (1600, 20_000)] == [2 * 7 + 5, 2 * 3 + 2 * 2]


def test_longer_runs_keep_generators_at_three_points_on_the_way():
    experiment = load_experiment("fig8a")
    longer = [run for run in experiment.planned("full") if run.steps == 20_000]
    assert {tuple(kept_updates(run.config)) for run in longer} == {(5000, 10_000, 15_000)}
    assert [experiment.describe(run) for run in longer[:2]] == [
        "DCGAN/SN, 20,000 updates, seed 0",
        "DCGAN/ONI, T = 2, 20,000 updates, seed 0",
    ]
    assert {run.steps for run in experiment.planned("laptop")} == {400}
    # What the user asks for applies to them, too, and to their names.
    shorter = [experiment.describe(run) for run in experiment.planned("full", epochs=2)]
    assert shorter[-1] == "DCGAN/ONI, T = 2, 400 updates, seed 2"
    assert {run.epochs for run in load_experiment("table2").planned("full", epochs=1)} == {1}


def test_the_figures_share_their_runs():
    def names(id):
        return {run.config.name for run in load_experiment(id).planned("full") if run.steps < 20_000}

    assert names("figA7") == names("fig8a") | names("fig8b")
    assert names("figA8") == names("fig9")
    assert names("figA9") < names("fig8a")
    assert names("figA10") < names("fig8b")
    assert names("figA11") < names("fig9")


def make_results(experiment, kids, preset="full", seeds=None, spread=0.001, **measured):
    """Results of all runs, with the KID of each by its description; each seed has ``spread`` more.

    ``seeds``: so many of all rows, also where the preset spares some.
    """
    runs = []
    for parameters in experiment.planned(preset, seeds=seeds):
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
            values |= {"kid": kid + spread * parameters.seed, "kid_error": 0.002, "fid": 1000 * kid}
        runs.append(Run(parameters, {**values, **measured}))
    return Results(runs)


def judge(experiment, results, preset="full", planned=()):
    return {claim["text"]: claim for claim in experiment.judge(results, preset, planned)}


def verdicts(experiment, *arguments, **options):
    """By kind: those of the paper, and those of our own."""
    preset = options.get("preset", "full")
    claims = experiment.judge(make_results(experiment, *arguments, **options), preset)
    return [[claim["verdict"] for claim in claims if claim["kind"] == kind] for kind in ("paper", "ours")]


BEGINNING = "Early in training: "
AS_PRINTED = {"SN,": 0.10, "T = 0,": 0.15, "unnormalised": 0.30, "T = 1,": 0.08, "T = 2,": 0.06, "": 0.09}


def test_claims_of_figure_8a():
    experiment = load_experiment("fig8a")
    results = make_results(experiment, AS_PRINTED)
    judged = judge(experiment, results)
    # One step is not trained for long.
    paper = [claim["verdict"] for claim in judged.values() if claim["kind"] == "paper"]
    assert paper == ["held", "not tested", "held", "held"]
    beginnings = Results(run for run in results if run.parameters.steps < 20_000)
    for planned in ([run.parameters for run in results], ()):
        early = judge(experiment, beginnings, planned=planned)
        for text, claim in judged.items():
            # The beginning says nothing of the end, nor waits for it.
            assert early[text] == claim if claim["kind"] == "ours" else early[text]["verdict"] == "not tested"
    assert "this needs at least 20000" in early["T = 2 is better than SN"]["detail"]
    # Of the slip there is one seed.
    assert verdicts(experiment, AS_PRINTED)[1] == [*4 * ["held"], "undecided"]
    details = [claim["detail"] for text, claim in judged.items() if text.startswith(BEGINNING)]
    assert details[0].startswith("KID x 1000 (FID): SN 100 (100), T = 0 150 (150), T = 1 80 (80), T = 2 60 (60), ")
    assert "T = 5 with it 300 (300)" in details[-1]
    assert details[-1].startswith("one seed decides nothing; ")
    # At the paper's own length its claims are judged, if there are two seeds.
    assert verdicts(experiment, AS_PRINTED, preset="paper", seeds=2)[0] == ["held"] * 4
    assert verdicts(experiment, AS_PRINTED, preset="paper")[0] == ["not tested"] * 4
    mirrored = {part: 0.2 - kid for part, kid in AS_PRINTED.items() if part != "unnormalised"}
    mirrored = {"unnormalised": 0.2, **mirrored}
    assert verdicts(experiment, mirrored, preset="paper", seeds=2)[0] == ["not held"] * 4
    # A network that diverges is not one that trains, and is worse.
    diverged = verdicts(experiment, {**AS_PRINTED, "T = 0,": None}, preset="paper", seeds=2)[0]
    assert diverged == ["not held", *3 * ["held"]]
    # Nor is the paper's network judged by a much narrower one.
    narrow = Results(
        Run(run.parameters.override({"network_options.width": 8}), run.measured)
        for run in make_results(experiment, AS_PRINTED, preset="paper", seeds=2)
    )
    assert {claim["verdict"] for claim in judge(experiment, narrow, "paper").values() if claim["kind"] == "paper"} == {
        "not tested"
    }
    # Without the Inception network there is no verdict.
    results = make_results(experiment, AS_PRINTED)
    unmeasured = Results(Run(run.parameters, {**run.measured, "kid": None}) for run in results)
    for claim in judge(experiment, unmeasured).values():
        assert claim["verdict"] == "not tested"
    assert "pass --inception FILE" in claim["detail"]


def test_some_rows_alone_are_not_judged():
    experiment = load_experiment("fig8a")
    whole = make_results(experiment, AS_PRINTED)
    part = Results(run for run in whole if run.parameters.config.method_options.get("steps", 0) < 3)
    judged = experiment.judge(part, "full", [run.parameters for run in whole])
    # Two claims are about rows that are measured, one of them at a length that one of its rows does not have.
    paper = [(claim["text"], claim["verdict"]) for claim in judged if claim["kind"] == "paper"]
    assert paper == [
        ("T = 0 trains, and is worse than SN", "held"),
        ("T = 1 is already better than SN", "not tested"),
        ("T = 2 is better than SN", "held"),
        ("T = 5 is worse than T = 2", "not tested"),
    ]
    assert {claim["verdict"] for claim in judged if claim["kind"] == "ours"} == {"not tested"}


def test_zero_steps_fail_if_no_seed_trains_and_spectral_normalisation_does():
    def judge_zero(*, sn=("trained", "trained"), zero=("trained", "trained")):
        results = make_results(load_experiment("fig8a"), AS_PRINTED, preset="paper", seeds=2)
        for row, ends in ((fig8a.SN, sn), (fig8a.BY_STEPS[0], zero)):
            for run, end in zip(find_runs(results, row), ends, strict=True):
                if end == "diverged":
                    run.measured["status"] = "diverged"
                if end == "collapsed":
                    run.measured["pixel_deviation"] = [0.4, 0.01]
        return fig8a.zero_trains_and_is_worse(results)[0].value, fig8a.judge((fig8a.BY_STEPS[2], fig8a.SN))(results)[0]

    assert judge_zero() == ("held", "held")
    for end in ("diverged", "collapsed"):
        assert judge_zero(zero=(end, end)) == ("not held", "held")
        assert judge_zero(zero=("trained", end)) == ("undecided", "held"), "one seed decides nothing"
        assert judge_zero(sn=(end, end), zero=(end, end)) == ("not tested", "not tested")
        assert judge_zero(sn=("trained", end)) == ("not tested", "not tested")


def test_seeds_that_differ_as_much_decide_nothing():
    experiment = load_experiment("fig8a")
    one_step = f"{BEGINNING}T = 1 is already better than SN"

    def judge_both(kid, **options):
        results = make_results(experiment, {**AS_PRINTED, "T = 1,": kid}, **options)
        (swapped, _) = judge_closer(results, [(fig8a.SN, fig8a.BY_STEPS[1])], fig8a.ROWS)
        return judge(experiment, results)[one_step]["verdict"], swapped.value

    assert judge_both(0.08) == ("held", "not held")
    assert judge_both(0.12) == ("not held", "held")
    assert judge_both(0.0995) == ("undecided", "undecided")
    assert judge_both(0.08, spread=0.05) == ("undecided", "undecided")


def test_a_run_that_diverged_is_farthest():
    experiment = load_experiment("fig8b")
    kids = {"SN, setting D": None, "SN": 0.1, "setting F": 0.2, "": 0.05}
    assert verdicts(experiment, kids) == [["not tested"], ["undecided", "not held"]], "one seed decides nothing"
    # ONI is closer in five settings, and farther in one; where SN diverged in all seeds, that is sure.
    assert verdicts(experiment, kids, seeds=2)[1] == ["not held", "not held"]
    assert verdicts(experiment, {**kids, "setting F": 0.05}, seeds=2)[1] == ["held", "not held"]
    assert verdicts(experiment, {"SN": 0.1, "": 0.05}, seeds=2) == [["not tested"], ["held", "held"]]
    assert verdicts(experiment, {"SN": 0.1, "": 0.05}, preset="paper", seeds=2)[0] == ["held"]
    assert verdicts(experiment, {"SN": 0.05, "": 0.1}, preset="paper", seeds=2)[0] == ["not held"]
    assert verdicts(experiment, {"SN": 0.1, "": 0.1}, preset="paper", seeds=2)[0] == ["undecided"]
    results = make_results(experiment, kids)
    judged = list(judge(experiment, results).values())
    assert "D SN diverged (diverged)" in judged[1]["detail"]
    assert judged[2]["detail"] == "SN, setting D: diverged after 400 updates"
    table = experiment.table(results)
    row = dict(zip(table.columns, next(row for row in table.rows if row[0] == "SN, setting D"), strict=True))
    assert (row["FID"], row["KID x 1000"]) == ("diverged", "diverged")
    assert (row["training"], row["seeds"], row["ms per step"]) == ("diverged after 400 updates", "1", "-")
    collapsed = make_results(load_experiment("fig9"), {"": 0.1}, pixel_deviation=[0.4, 0.01])
    assert {outcome(run) for run in collapsed} == {"collapsed: all images alike"}
    assert all(math.isfinite(value) for chart in fig9.charts(collapsed) for line in chart.series for value in line.y)
    distances, *_ = charts = fig8b.charts(results)
    assert len(charts) == 2 + 6
    assert distances.x_names == list("ABCDEF")
    assert distances.series[0].x == [1, 2, 3, 5, 6], "none of what diverged"


def test_the_table_says_what_the_paper_does_not_have_and_what_it_took():
    experiment = load_experiment("fig8a")
    cost = {"steps": 1600, "seconds": 3600.0, "threads": 2, "precision": "32-true"}
    table = experiment.table(make_results(experiment, AS_PRINTED, cost=cost))
    note = "1,600 or 20,000 of the paper's 156,200 updates, width 16 instead of 64, at 4 times the learning rate."
    assert note in table.note
    row = dict(zip(table.columns, table.rows[0], strict=True))
    # 3600 seconds of 1600 steps; of two seeds, on two threads each.
    assert (row["ms per step"], row["core-hours"]) == ("2250", "4.00")
    printed = experiment.table(make_results(experiment, AS_PRINTED, preset="paper", seeds=2))
    assert "156,200 of the paper's 156,200 updates." in printed.note


def test_claims_of_class_scores():
    experiment = load_experiment("figA8")

    def judged(scores, seeds=2, spread=0.1):
        results = make_results(experiment, {"": 0.1}, seeds=seeds)
        runs_of_seed = [[run for run in results if run.parameters.seed == seed] for seed in range(seeds)]
        for seed, runs in enumerate(runs_of_seed):
            for run, score in zip(runs, scores, strict=True):
                run.measured["status" if score is None else "class_score"] = (
                    "diverged" if score is None else score + spread * seed
                )
        return list(judge(experiment, results).values())

    ours, sn = 8.5, 8.0
    theirs, own = judged(4 * [sn, ours])
    assert (theirs["kind"], theirs["verdict"]) == ("paper", "not tested")
    assert (own["kind"], own["verdict"]) == ("ours", "held")
    assert own["detail"].startswith("non-saturating, sum pooling: SN 8.05, ONI 8.55; hinge, sum pooling: SN 8.05")
    assert judged([*3 * [sn, ours], ours, sn])[1]["verdict"] == "undecided", "one of four, by 3.5 deviations"
    assert judged([*3 * [sn, ours], ours + 1, sn])[1]["verdict"] == "not held"
    assert judged(4 * [ours + 1, sn])[1]["verdict"] == "not held"
    assert judged([*3 * [sn, ours], sn, sn])[1]["verdict"] == "undecided"
    assert judged(4 * [sn, ours], spread=1.0)[1]["verdict"] == "undecided"
    assert judged(4 * [sn, ours], seeds=1)[1]["verdict"] == "undecided", "one seed decides nothing"
    # A run that diverged has the least score there is.
    assert judged([*3 * [sn, ours], None, ours])[1]["verdict"] == "held"
    assert judged([*3 * [sn, ours], sn, None])[1]["verdict"] == "not held"
    [_, unmeasured] = judge(experiment, make_results(experiment, {"": 0.1})).values()
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
    here = setting.loaded.extractors["inception"]
    assert here.kind == "inception"
    sent = pickle.dumps(setting.prepare_elsewhere([]))
    assert len(sent) < 2000, "what was loaded stays here"
    find_loaded.cache_clear()  # as in another process
    there = pickle.loads(sent)
    assert not there.loaded.extractors
    there.check_extractors()
    loaded = there.loaded.extractors["inception"]
    assert loaded is not here
    assert loaded.sha256 == setting.inception_sha256
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
