"""A real browser for tests: chromium, driven by chromedriver in the W3C WebDriver protocol."""

import base64
import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key by which the protocol marks an element
FLAGS = [
    "--headless",
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
SECONDS = 120  # to wait for a browser on a busy machine

missing = [name for name, path in {"chromium": CHROMIUM, "chromedriver": CHROMEDRIVER}.items() if path is None]


class Browser:
    def __init__(self, url):
        self.url = url
        self.opener = build_opener(ProxyHandler({}))

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with self.opener.open(request, timeout=SECONDS) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {error.read().decode()[:2000]}") from None

    def open(self, path):
        self.ask("POST", "/url", {"url": Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        """What a function body in JavaScript returns."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector):
        found = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        self.ask("POST", f"/element/{found[ELEMENT]}/click", {})

    def until(self, condition, *arguments):
        """Wait for a JavaScript expression to be true."""
        end = time.monotonic() + SECONDS
        while not self.run(f"return Boolean({condition})", *arguments):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.05)

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height, *, phone=False):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)

    def prefer(self, scheme):
        """Light or dark, as the system asks for it."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])

    def console(self):
        """What was said since the last call, as (level, message)."""
        return [(entry["level"], entry["message"]) for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, to):
        Path(to).write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))


@contextmanager
def browser():
    """A browser of its own, gone at the end."""
    with socket.socket() as free, TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        driver = subprocess.Popen(
            [CHROMEDRIVER, f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        try:
            server = Browser(f"http://127.0.0.1:{port}")
            wait(server)
            options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}/data"]}
            capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            session = server.ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
            opened = Browser(f"{server.url}/session/{session}")
            try:
                yield opened
            finally:
                opened.ask("DELETE", "")
        finally:
            driver.terminate()
            driver.wait(SECONDS)


def wait(server):
    end = time.monotonic() + SECONDS
    while True:
        try:
            if server.ask("GET", "/status")["ready"]:
                return
        except (URLError, OSError):
            pass
        assert time.monotonic() < end, "chromedriver does not answer"
        time.sleep(0.05)
