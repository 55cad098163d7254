"""A real browser for tests: chromium, driven by Selenium. Nothing is downloaded for it."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
SECONDS = 120
"""To wait for a browser on a busy machine."""


class Browser:
    """The few things that these tests do with a driver."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path):
        self.driver.get(Path(path).resolve().as_uri())

    def run(self, script):
        """Run a function body in JavaScript and return its value."""
        return self.driver.execute_script(script)

    def click(self, selector):
        self.driver.find_element("css selector", selector).click()

    def wait(self, condition):
        """Wait for a JavaScript expression to be true."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, SECONDS, 0.05).until(
            lambda driver: driver.execute_script(f"return Boolean({condition})"), f"never true: {condition}"
        )

    def resize(self, width, height):
        phone = width < 1000
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme):
        """Light or dark, as the system asks for it."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def allow_scripts(self, allowed):
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def messages(self):
        """What the console got since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextmanager
def open_browser(home):
    """Start a browser that keeps its files in this folder; skip the test if there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    missing = [name for name, path in {"chromium": CHROMIUM, "chromedriver": CHROMEDRIVER}.items() if path is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS, f"--user-data-dir={home / 'data'}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With the driver's path given, Selenium looks for none; SE_OFFLINE keeps it from downloading one in any case.
    service = webdriver.ChromeService(CHROMEDRIVER, env={**os.environ, "HOME": str(home)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SE_OFFLINE", "true")
        patch.setenv("NO_PROXY", "localhost,127.0.0.1")
        driver = webdriver.Chrome(options, service)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
