"""A headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds that the browser may take for anything; a loaded machine is slow."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str | None:
    """Where a Chromium is: the one that CHROMIUM names, or one on the path."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Left(RuntimeError):  # noqa: N818  nothing is wrong: ask again
    """The page was left for another one while it was asked."""


class Page:
    """A tab."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._sent = 0
        self.complaints: list[str] = []
        """Errors and warnings of the console, exceptions, and requests that were made or refused."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something."""
        self._sent += 1
        self._connection.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(timeout=PATIENCE))
            if message.get("id") == self._sent:
                if "error" in message:
                    kind = Left if "navigated" in message["error"].get("message", "") else RuntimeError
                    raise kind(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, facts = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(facts["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(facts["args"])[:2000])
        elif method == "Log.entryAdded" and facts["entry"]["level"] in ("error", "warning"):
            self.complaints.append(facts["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = facts["request"]["url"]
            if not address.startswith(("file:", "data:")):
                self.complaints.append(f"asked for {address}")

    def size(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """Be a screen of this size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path) -> None:
        """Load a file, and wait until its script is through."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def reload(self) -> None:
        """Load the page anew, and wait until its script is through."""
        with contextlib.suppress(Left):
            self.evaluate("window.old = true; location.reload()")
        self.wait("!window.old && document.documentElement?.dataset.ready === 'yes'")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        deadline = time.monotonic() + PATIENCE
        while not self._holds(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} did not become true; complaints: {self.complaints}")

    def _holds(self, condition: str) -> bool:
        try:
            return bool(self.evaluate(condition))
        except Left:
            return False

    def evaluate(self, expression: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click on the first element that a selector finds."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def move(self, x: float, y: float) -> None:
        """Point somewhere."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, whole: bool = False) -> bytes:
        """A picture of what is to be seen, or of the whole page."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, fromSurface=True,
                          **self._clip(whole))  # fmt: skip
        picture = base64.b64decode(answer["data"])
        path.write_bytes(picture)
        return picture

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        area = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": area["width"], "height": area["height"], "scale": 1}}


@contextlib.contextmanager
def chromium() -> Iterator[Page]:
    """A tab of a new browser."""
    from websockets.sync.client import connect

    program = executable()
    assert program is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        arguments = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={profile}",
            "--disable-background-networking", "--disable-extensions", "--hide-scrollbars", "about:blank",
        ]  # fmt: skip
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with connect(_address(Path(profile), process), max_size=None, open_timeout=PATIENCE) as connection:
                yield Page(connection)
        finally:
            process.terminate()
            try:
                process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the first tab listens."""
    deadline = time.monotonic() + PATIENCE
    note = profile / "DevToolsActivePort"
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            port = note.read_text().splitlines()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
                tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
            if tabs:
                return str(tabs[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise RuntimeError(f"the browser did not start (exit code {process.poll()})")
