import json
from pathlib import Path

import pytest

from website import experiments

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reproduction"


def test_the_pages_are_what_the_results_say():
    pages = experiments.render_pages(ROOT / "results", FOLDER)
    kept = {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    assert kept.keys() == pages.keys(), "run: make docs"
    for name, text in pages.items():
        assert kept[name] == text, f"{name}; run: make docs"


def test_pages_are_written_and_old_ones_removed(tmp_path):
    results, folder = tmp_path / "results", tmp_path / "docs"
    (results / "fig1").mkdir(parents=True)
    (results / "fig1" / "results.json").write_bytes((ROOT / "results" / "fig1" / "results.json").read_bytes())
    folder.mkdir()
    (folder / "gone.md").write_text("of an experiment that is no longer there")
    experiments.write_pages(results, folder)
    assert {path.name for path in folder.iterdir()} == {"index.md", "fig1.md"}
    assert "(../results/fig1/fig1.png)" in (folder / "fig1.md").read_text("utf-8")


@pytest.fixture
def fig1():
    return json.loads((ROOT / "results" / "fig1" / "results.json").read_text())


def test_verdicts_kinds_date_commit_and_overrides(fig1):
    fig1 |= {"date": "2026-11-16T00:00:00", "code": "ab" * 20, "overrides": {"seeds": 2}}
    fig1["claims"] = [
        {"kind": kind, "text": f"Claim {verdict}", "verdict": verdict, "detail": "so"}
        for kind, verdict in (
            ("paper", "held"),
            ("mathematics", "not held"),
            ("ours", "undecided"),
            ("ours", "not tested"),
        )
    ]
    page = experiments.render_experiment(fig1, "results")
    assert "\n| held | the paper's claims | Claim held | so |\n" in page
    assert "\n| **NOT held** | mathematics | Claim not held | so |\n" in page
    assert "\n| *undecided* | questions of our own | Claim undecided | so |\n" in page
    assert "\n| *not tested* | questions of our own | Claim not tested | so |\n" in page
    assert f"```sh\n{fig1['command']}\n```" in page
    assert f"{len(fig1['runs'])} runs (2026-11-16, commit ababababab) on " in page
    assert "**Changed from the preset laptop:** `seeds=2`" in page


def test_the_overview_counts_and_lists_every_claim(fig1):
    fig1["claims"] = [
        {"kind": kind, "text": f"Something {verdict}", "verdict": verdict, "detail": ""}
        for kind, verdict in (("paper", "held"), ("ours", "held"), ("ours", "undecided"), ("paper", "not tested"))
    ]
    overview = experiments.render_overview({"fig1": fig1}, "../../results")
    assert overview.splitlines()[:2] == [
        "- the paper's claims: **1 held, 0 not held, 0 undecided, 1 not tested**",
        "- questions of our own: **1 held, 0 not held, 1 undecided, 0 not tested**",
    ]
    paper, _, ours = overview.partition("## The paper's claims")[2].partition("## Questions of our own")
    seeds = f"preset laptop, {len(fig1['seeds'])} seeds"
    assert f"| [fig1](fig1.md) | {seeds} | Something held | held |\n" in paper
    assert f"| [fig1](fig1.md) | {seeds} | Something not tested | *not tested* |\n" in paper
    assert f"| [fig1](fig1.md) | {seeds} | Something undecided | *undecided* |\n" in ours
    # Of trained networks, how long and with how many seeds each claim's own were trained, and what they took.
    table2 = json.loads((ROOT / "results" / "table2" / "results.json").read_text())
    (line,) = [
        line
        for line in experiments.render_overview({"table2": table2}, "..").splitlines()
        if "as in the released code |" in line
    ]
    assert line.startswith(
        "| [table2](table2.md) | preset full, 1,170 steps, 2 seeds, 2.8 core-hours | ONI trains Res-110 "
    )
    assert "## Mathematics" not in overview
    assert "\n- fig2: Convergence of Algorithm 1\n" in overview.partition("## Not run")[2]


def test_the_overview_is_a_gallery(fig1):
    sheets = {**fig1, "id": "figA9", "claims": []}
    overview = experiments.render_overview({"fig1": fig1, "figA9": sheets}, "../../results")
    gallery = overview.partition('<div class="gallery" markdown>')[2].partition("</div>")[0].strip().splitlines()
    assert len(gallery) == 2
    assert '<img src="../../results/fig1/fig1.png" ' in gallery[0]
    assert gallery[0].endswith("Fig. 1: singular values by step](fig1.md)")
    # Photographs are not turned over on a dark page.
    assert '<img src="../../results/figA9/figA9.png#photographs" ' in gallery[1]
    assert "figA9.png#photographs)" in experiments.render_experiment({**sheets, "runs": []}, "results")


def test_an_experiment_without_claims_has_no_empty_table(fig1):
    assert "## Claims" in experiments.render_experiment(fig1, "results")
    assert "## Claims" not in experiments.render_experiment({**fig1, "claims": []}, "results")
