"""The report in a real browser."""

import colorsys
import re

import pytest
from browser import open_browser

from oni.recipes.report.write import write_report

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!--<script>&amp;\u2028"
SHOWN = HOSTILE.replace("\u2028", r"\u2028")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def page(toy, make_record, write, write_run, tmp_path):
    """A report of an experiment with a picture, and of runs."""
    folder = write(tmp_path / "in" / "fig99" / "results.json", make_record(HOSTILE))
    picture = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 200"><rect width="600" height="200"/></svg>'
    write(folder / "fig99.svg", picture)
    for index, method in enumerate(["oni", "plain", HOSTILE]):
        write_run(tmp_path / "in" / f"run-{index}", method=method, error=0.1 * (index + 1))
    write_run(tmp_path / "in" / "unfinished", "unfinished", epochs=1)
    return write_report([tmp_path / "in"], tmp_path / "report.html")


@pytest.fixture
def browser(opened, page):
    """The browser, showing the report on a laptop."""
    opened.allow_scripts(True)
    opened.resize(1280, 800)
    opened.prefer("light")
    opened.messages()
    opened.open(page)
    opened.wait("document.querySelectorAll('.plot .main-svg').length")
    return opened


LINES = """return [...document.querySelectorAll("figure.chart")].map((figure) =>
  [...figure.querySelectorAll(".trace")].filter((trace) => [...trace.querySelectorAll(".js-line")].some(
    (line) => /[LC]/.test(line.getAttribute("d")) && parseFloat(line.style.strokeWidth) > 0)).length)"""


def test_the_page_opens_without_a_message(browser):
    # The charts of the experiment; then of runs: two errors, loss, spectra, signals. One point alone is no line.
    assert browser.run(LINES) == [3, 1, 3, 3, 3, 3, 3, 6, 3]
    assert browser.messages() == []
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    assert browser.run("return document.querySelectorAll('script').length") == 2 + 9
    assert browser.run("return document.querySelectorAll('img').length") == 0


def test_the_policy_forbids_every_request(browser):
    browser.run("new Image().src = 'http://127.0.0.1:9/x.png'; fetch('http://127.0.0.1:9/').catch(() => 0)")
    messages = browser.messages()
    assert len(messages) >= 2
    assert all("Content Security Policy" in message for message in messages)


COUNT = "return document.querySelector('figure.chart').querySelectorAll('.trace').length"
PRESSED = """return [...document.querySelector('figure.chart').querySelectorAll('.legend button')].map(
  (button) => button.getAttribute('aria-pressed') === 'true')"""


def test_the_legend_hides_names_and_kinds_of_lines(browser):
    before = browser.run(COUNT)
    assert browser.run(PRESSED) == [True] * 5
    browser.click(".legend button:nth-child(2)")
    assert browser.run(COUNT) == before - 2  # both lines of that name
    assert browser.run(PRESSED) == [True, False, True, True, True]
    browser.click(".legend button:nth-child(2)")
    assert browser.run(COUNT) == before
    browser.click(".legend [data-dash=dot]")
    assert browser.run(COUNT) == before - 1
    assert browser.run(PRESSED) == [True, True, True, True, False]
    browser.click(".legend [data-dash=dot]")
    isolate = "document.querySelector('.legend button:nth-child(2)').dispatchEvent(new MouseEvent('dblclick'))"
    browser.run(isolate)
    assert browser.run(PRESSED)[:2] == [False, True]
    browser.run(isolate)
    assert browser.run(PRESSED) == [True] * 5


def test_hovering_shows_all_values_with_names_and_kinds(browser):
    browser.run("Plotly.Fx.hover(document.querySelectorAll('.plot')[0], {xval: 1})")
    words = browser.run("return document.querySelector('.hoverlayer').textContent")
    assert "other, late" in words
    assert "other, later" in words
    assert SHOWN[:40] in words


def test_every_chart_has_numbers_on_both_axes(browser):
    for axis in ("xtick", "ytick"):
        script = f"""return [...document.querySelectorAll('.plot')].map((plot) =>
          [...plot.querySelectorAll('.{axis} text')].filter((tick) => tick.textContent.trim()).length)"""
        assert min(browser.run(script)) >= 2


def lightness(browser, script):
    red, green, blue = map(float, re.findall(r"[\d.]+", browser.run(script))[:3])
    return colorsys.rgb_to_hls(red / 255, green / 255, blue / 255)[1]


PAPER = "return getComputedStyle(document.body).backgroundColor"
TICK = "return getComputedStyle(document.querySelector('.plot .xtick text')).fill"
CURVE = "return getComputedStyle(document.querySelector('.chart:nth-child(2) .js-line')).stroke"


def test_dark(browser):
    light = [lightness(browser, script) for script in (PAPER, TICK, CURVE)]
    browser.prefer("dark")
    browser.wait("document.getElementById('theme').textContent === 'Light'")  # the page is told a frame later
    dark = [lightness(browser, script) for script in (PAPER, TICK, CURVE)]
    assert light[0] > 0.9
    assert dark[0] < 0.15
    assert light[1] < 0.5 < dark[1]
    assert light[2] < dark[2]
    browser.click("#theme")  # against what the system says
    assert [lightness(browser, script) for script in (PAPER, TICK, CURVE)] == pytest.approx(light)
    browser.prefer("light")
    assert browser.messages() == []


def test_without_javascript_the_picture_is_shown_instead_of_charts(opened, page):
    opened.resize(1280, 800)
    opened.allow_scripts(False)
    try:
        opened.open(page)
        (image,) = opened.driver.find_elements("css selector", "noscript img")
        assert image.is_displayed()
        assert image.size["width"] > 500
        assert not any(figure.is_displayed() for figure in opened.driver.find_elements("css selector", ".charts"))
        assert not opened.driver.find_element("css selector", "#theme").is_displayed()
    finally:
        opened.allow_scripts(True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_is_turned_over_in_the_dark(opened, toy, page, tmp_path, scheme):
    toy.charts = None
    opened.resize(1280, 800)
    opened.prefer(scheme)
    opened.open(write_report([tmp_path / "in" / "fig99"], page))
    turned = opened.run("return getComputedStyle(document.querySelector('.picture img')).filter")
    assert turned == ("none" if scheme == "light" else "invert(1) hue-rotate(180deg)")
    opened.prefer("light")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (320, 568)])
def test_nothing_is_wider_than_the_screen(browser, width, height):
    browser.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    browser.resize(width, height)
    browser.wait("[...document.querySelectorAll('.plot .main-svg')].every((svg) => svg.clientWidth < innerWidth)")
    assert browser.run("return document.scrollingElement.scrollWidth - innerWidth") <= 0
    assert browser.run("return innerWidth") == width


@pytest.mark.parametrize("width", [390, 320])
def test_no_table_is_cut_off_on_a_phone(browser, width):
    """Each row is a card with the column's name above each value, and nothing has to be scrolled to be read."""
    label = "return getComputedStyle(document.querySelector('.stack td:nth-child(2)'), '::before').content"
    assert browser.run(label) == "none"
    browser.resize(width, 800)
    browser.wait("[...document.querySelectorAll('.plot .main-svg')].every((svg) => svg.clientWidth < innerWidth)")
    assert browser.run(label) == '"paper"'
    boxes = "[...document.querySelectorAll('.scroll:has(.stack)')]"
    assert max(browser.run(f"return {boxes}.map((box) => box.scrollWidth - box.clientWidth)")) <= 0


def test_a_link_to_a_run_opens_it(browser):
    browser.click("a[href='#run-2']")
    browser.wait("document.getElementById('run-2').open")
    assert not browser.run("return document.getElementById('run-1').open")
