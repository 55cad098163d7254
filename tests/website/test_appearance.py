"""A page of the site in a real browser: no code is cut off, and pictures suit a dark page."""

import io
import shutil
from pathlib import Path

import pytest
from browser import open_browser
from matplotlib.image import imread

ROOT = Path(__file__).parents[2]
PAGE = f"""# Page

```python
{" + ".join(["one_long_line()"] * 30)}
```

![lines](assets/oni.png)

![layers](assets/layers.svg)

![photographs](assets/oni.png#photographs)
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A small site with the theme, the extensions and the style sheet of the real one."""
    mkdocs = pytest.importorskip("mkdocs.config", reason="mkdocs is not installed", exc_type=ImportError)
    from mkdocs.commands.build import build

    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs" / "assets", folder / "docs" / "assets")
    (folder / "docs" / "index.md").write_text(PAGE, "utf-8")
    changes = {"nav": [{"Page": "index.md"}], "hooks": [], "plugins": [], "use_directory_urls": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_MKDOCS_2_WARNING", "true")
        config = mkdocs.load_config(
            str(ROOT / "mkdocs.yml"), docs_dir=str(folder / "docs"), site_dir=str(folder / "site"), **changes
        )
        build(config)
    return folder / "site" / "index.html"


@pytest.fixture(scope="module")
def browser(page, tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.mark.parametrize("width", [1280, 390])
def test_no_code_is_cut_off(browser, page, width):
    browser.resize(width, 800)
    browser.open(page)
    assert browser.run("return document.querySelector('pre > code').textContent.length") > 500
    hidden = "const code = document.querySelector('pre > code'); return code.scrollWidth - code.clientWidth"
    assert browser.run(hidden) <= 0
    assert browser.run("return document.scrollingElement.scrollWidth - innerWidth") <= 0


def brightness(browser, name):
    """The mean over the pixels of a picture as it is shown, from 0 to 1."""
    image = browser.driver.find_element("css selector", f"img[alt={name}]")
    return float(imread(io.BytesIO(image.screenshot_as_png))[..., :3].mean())


def test_pictures_suit_a_dark_page(browser, page):
    browser.resize(1280, 800)
    shown = {}
    for scheme, theme in {"light": "default", "dark": "slate"}.items():
        browser.prefer(scheme)
        browser.open(page)
        browser.run("localStorage.clear()")  # the theme remembers the colours of the first visit
        browser.open(page)
        browser.wait(f"document.body.dataset.mdColorScheme === '{theme}'")
        shown[scheme] = {name: brightness(browser, name) for name in ("lines", "layers", "photographs")}
    # Lines on a white background are mostly white.
    assert min(shown["light"].values()) > 0.7
    assert shown["dark"]["lines"] < 0.3
    assert shown["dark"]["layers"] < 0.3
    # Photographs are shown as they are; here the picture of lines stands in for one.
    assert shown["dark"]["photographs"] == pytest.approx(shown["light"]["photographs"], abs=0.02)
