import json
from pathlib import Path

import pytest

from oni.recipes.report import markdown

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_results_say():
    page = markdown.render_page(ROOT / "results", ROOT / "docs")
    assert page == (ROOT / "docs" / "reproduction.md").read_text("utf-8"), "run: make docs"


def test_the_page_is_written_whole(tmp_path):
    markdown.write_page(ROOT / "results", tmp_path / "docs" / "page.md")
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["page.md"]
    assert (tmp_path / "docs" / "page.md").read_text("utf-8").startswith(markdown.HEAD)


@pytest.fixture
def fig1():
    return json.loads((ROOT / "results" / "fig1" / "results.json").read_text())


def test_three_verdicts_date_commit_and_overrides(fig1):
    fig1 |= {"date": "2026-11-16T00:00:00", "code": "ab" * 20, "overrides": {"seeds": 2}}
    fig1["claims"] = [
        {"text": f"Claim {verdict}", "verdict": verdict, "detail": "so"}
        for verdict in ("held", "not held", "not tested", "not tested")
    ]
    section = markdown.render_section(fig1, "results")
    assert "\n1 held, 1 not held, 2 not tested:\n" in section
    assert "\n| held | Claim held | so |\n" in section
    assert "\n| **NOT held** | Claim not held | so |\n" in section
    assert "\n| *not tested at this preset* | Claim not tested | so |\n" in section
    assert f"`{fig1['command']}` (2026-11-16, commit ababababab): " in section
    assert "*Changed from the preset laptop:* `seeds=2`" in section


def test_the_overview_counts_every_claim(fig1):
    fig1["claims"] = [{"text": "", "verdict": verdict, "detail": ""} for verdict in ("held", "held", "not tested")]
    overview = markdown.render_overview({"fig1": fig1})
    assert overview.startswith("Of 3 claims: **2 held, 0 not held, 1 not tested**.")
    assert "| laptop | 2 | 0 | 1 |" in overview
    assert "| not run | - | - | - |" in overview
