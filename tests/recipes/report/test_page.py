import base64
import json
import re
import shutil
from pathlib import Path

import pytest
from markupsafe import escape

from oni.recipes.report.verdicts import KINDS, VERDICTS, read_claim
from oni.recipes.report.write import write_report

ROOT = Path(__file__).parents[3]
COMMITTED = sorted(path.parent for path in (ROOT / "results").glob("*/results.json"))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--<script>&amp;"


def read_results(folder):
    record = json.loads((folder / "results.json").read_text())
    return record, [read_claim(claim) for claim in record["claims"]]


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_a_committed_experiment_shows_its_claims_and_numbers(report, folder):
    page = report(folder)
    record, claims = read_results(folder)
    for text in (record["command"], record["versions"]["torch"], record["machine"]["cpu"]):
        assert text in page.words
    for claim in claims:
        assert claim["text"] in page.words
        assert claim["detail"] in page.words
    for verdict, badge in (("held", "good"), ("not held", "bad"), ("undecided", "neutral"), ("not tested", "neutral")):
        count = page.source.count(f'class="badge {badge}">{verdict}')
        assert count == sum(claim["verdict"] == verdict for claim in claims)
    for kind, words in KINDS.items():
        count = page.source.count(f'<span class="whose">{escape(words)}</span>')
        assert count == sum(claim["kind"] == kind for claim in claims)
    # One picture, in place of charts or for those who have no JavaScript.
    assert page.tags.count("img") == 1
    assert page.tags.count("noscript") == 1 + bool(page.charts)
    assert not page.open_tags


def test_all_committed_experiments_are_counted_and_linked(report):
    page = report(ROOT / "results")
    claims = [claim for folder in COMMITTED for claim in read_results(folder)[1]]
    assert f"{len(COMMITTED)} experiments" in page.words
    for kind, words in KINDS.items():
        verdicts = [claim["verdict"] for claim in claims if claim["kind"] == kind]
        counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS]
        assert f"{words}: {', '.join(counts)}" in page.words
    links = [value[1:] for tag, name, value in page.attributes if (tag, name) == ("a", "href")]
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert set(links) <= set(ids)
    assert len(ids) == len(set(ids))
    assert {path.name for path in COMMITTED} <= set(links)


def test_a_claim_that_was_not_tested_says_why(report, toy, make_record, write, tmp_path):
    page = report(write(tmp_path / "fig99" / "results.json", make_record()))
    assert '<span class="badge neutral">not tested at this preset</span>' in page.source
    assert "the runs have 2 epochs, and this needs 10" in page.words
    assert "the paper's claims: 1 held, 1 not held, 0 undecided, 1 not tested" in page.words


def test_an_undecided_claim_is_neither_good_nor_bad(report, toy, make_record, write, tmp_path):
    page = report(write(tmp_path / "fig99" / "results.json", make_record()))
    assert '<span class="badge neutral">undecided</span>' in page.source
    assert "questions of our own: 0 held, 0 not held, 1 undecided, 0 not tested" in page.words


def test_results_of_an_earlier_version_are_read(report, toy, make_record, write, tmp_path):
    claims = [{"text": "It works", "held": True, "detail": ""}, {"text": "It is fast", "held": False, "detail": ""}]
    page = report(write(tmp_path / "fig99" / "results.json", make_record(claims=claims)))
    assert '<span class="badge good">held</span>' in page.source
    assert '<span class="badge bad">not held</span>' in page.source


def test_date_commit_and_overrides_are_shown(report, toy, make_record, write, tmp_path):
    folder = tmp_path / "fig99"
    record = make_record(date="2026-11-16T03:36:52+00:00", code="ab" * 20 + "+", overrides={"epochs": 30})
    page = report(write(folder / "results.json", record))
    assert "measured 2026-11-16, commit ababababab with local changes" in page.words
    assert "Changed from the preset: epochs=30" in page.words
    page = report(write(folder / "results.json", make_record()))
    assert "Preset smoke." in page.words
    assert "Changed from" not in page.words


def test_when_runs_were_trained_is_shown(report, write_run, tmp_path):
    assert "Trained 2026-01-02, commit 0123456789." in report(write_run(tmp_path / "a")).words


def test_nothing_comes_from_elsewhere(report, toy, make_record, write, write_run, tmp_path):
    page = report(write(tmp_path / "fig99" / "results.json", make_record()), write_run(tmp_path / "a"))
    for tag, name, value in page.attributes:
        assert name not in ("src", "href", "srcset", "action") or re.match(r"#|data:image/", value), (tag, name, value)
    (policy,) = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content") and "src" in value]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert "link" not in page.tags
    assert not re.search(r"@import|url\(", page.source[: page.source.index("</style>")])
    assert "plotly.js v" in page.source


def test_the_newest_sheet_of_generated_images_is_shown(report, write_run, tmp_path):
    png = b"\x89PNG\r\n\x1a\n"
    runs = [write_run(tmp_path / name) for name in ("gan", "other", "hostile")]
    for number, content in ((200, png + b"old"), (1000, png + b"new")):
        (runs[0] / "samples").mkdir(exist_ok=True)
        (runs[0] / "samples" / f"update-{number:07d}.png").write_bytes(content)
    (runs[2] / "samples").mkdir()
    (runs[2] / "samples" / "update-0000001.png").write_bytes(b"<svg onload='alert(1)'>")
    page = report(*runs)
    sources = [value for tag, name, value in page.attributes if (tag, name) == ("img", "src")]
    assert sources == ["data:image/png;base64," + base64.b64encode(png + b"new").decode()]
    assert "Generated images" in page.words


def test_a_page_without_charts_has_no_plotly(report, toy, make_record, write, tmp_path):
    toy.charts = None
    page = report(write(tmp_path / "fig99" / "results.json", make_record()))
    assert "plotly" not in page.source
    assert "img" not in page.tags
    write(tmp_path / "fig99" / "fig99.png", "no image at all")
    assert "img" in report(tmp_path / "fig99").tags


def test_without_javascript_there_is_the_picture(report, toy, make_record, write, write_run, tmp_path):
    folder = write(tmp_path / "fig99" / "results.json", make_record())
    assert "<noscript>\n<p" in report(folder).source  # no picture: it says what is missing
    write(folder / "fig99.svg", "<svg/>")
    page = report(folder)
    inside = page.source[page.source.rindex("<noscript>") : page.source.rindex("</noscript>")]
    assert 'src="data:image/svg+xml;base64,PHN2Zy8+"' in inside
    assert ".charts, #theme { display: none; }" in page.source


def test_the_same_sources_give_the_same_bytes(toy, make_record, write, write_run, tmp_path):
    write(tmp_path / "a" / "fig99" / "results.json", make_record())
    write_run(tmp_path / "a" / "run")
    shutil.copytree(tmp_path / "a", tmp_path / "elsewhere")
    pages = [write_report([tmp_path / folder], tmp_path / f"{folder}.html") for folder in ("a", "elsewhere")]
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert str(tmp_path) not in pages[0].read_text()


def test_hostile_texts_are_text(report, toy, make_record, write, write_run, tmp_path):
    harmless = report(
        write(tmp_path / "harmless" / "fig99" / "results.json", make_record()), write_run(tmp_path / "harmless" / "a")
    )
    record = make_record(
        HOSTILE,
        preset=HOSTILE,
        command=HOSTILE,
        date=HOSTILE,
        code=HOSTILE,
        overrides={HOSTILE: HOSTILE},
        claims=[{"kind": "ours", "text": HOSTILE, "verdict": "held", "detail": HOSTILE}],
        machine={HOSTILE: HOSTILE},
        versions={"a": [HOSTILE]},
    )
    write(tmp_path / "in" / "fig99" / "results.json", record)
    write_run(tmp_path / "in" / "<img onerror=alert(3)>", method=HOSTILE, data=HOSTILE, **{HOSTILE: HOSTILE})
    page = report(tmp_path / "in")
    assert page.tags.count("script") == harmless.tags.count("script")
    assert page.tags.count("img") == 0
    assert {"alert", "onerror"}.isdisjoint(page.tags + [name for _, name, _ in page.attributes])
    assert page.charts[0]["names"][0] == HOSTILE
    assert page.words.count(HOSTILE) > 10
    assert "<img onerror=alert(3)>" in page.words
    assert not page.open_tags


def test_control_characters_are_shown_escaped(report, toy, make_record, write, write_run, tmp_path):
    name = "a\x1b[2Jb\u202e\ud800"
    write(tmp_path / "in" / "fig99" / "results.json", make_record(name))
    write_run(tmp_path / "in" / "run", method=name, **{name: name})
    page = report(tmp_path / "in")
    shown = r"a\x1b[2Jb\u202e\ud800"
    assert not re.search("[\x1b\u202e]", page.source)
    assert page.charts[0]["names"][0] == shown
    assert page.charts[-1]["names"] == [shown]
    assert page.words.count(shown) > 5


def test_an_experiment_may_come_twice(report, toy, make_record, write, tmp_path):
    page = report(*(write(tmp_path / at / "fig99" / "results.json", make_record()) for at in "ab"))
    ids = [value for tag, name, value in page.attributes if (tag, name) == ("section", "id")]
    assert ids == ["summary", "fig99", "fig99-2"]


def test_a_table_of_many_columns_has_its_names_in_every_cell(report, toy, make_record, write, tmp_path):
    """On a phone each row is a card: without the names its numbers would mean nothing."""
    page = report(write(tmp_path / "fig99" / "results.json", make_record()))
    names = [value for tag, name, value in page.attributes if (tag, name) == ("td", "data-column")]
    assert names[:4] == ["what", "paper", "ours", "runs"]
    assert '<table class="stack">' in page.source
