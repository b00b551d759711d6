"""A headless Chromium driven over the DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from tests.peers import missing

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
STARTS_WITHIN, ANSWERS_WITHIN = 60.0, 30.0  # seconds


def chromium_path() -> str:
    """Return the path of the browser; without one, skip, or fail in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return found or missing("chromium is not installed")


class BrowserError(AssertionError):
    """The browser refused a command, or a script failed."""


class Chromium:
    """One browser with one page and a blocking API; use it as a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._number = 0
        self.complaints: list[str] = []  # console errors, including what the content security policy blocked
        self.requests: list[str] = []

    def __enter__(self) -> Chromium:
        program = chromium_path()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._run(self._connect(self._port()))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._disconnect())
        self._end()

    def _end(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        self._loop.close()
        self._profile.cleanup()

    def _port(self) -> int:
        told = Path(self._profile.name) / "DevToolsActivePort"
        until = time.monotonic() + STARTS_WITHIN
        while not (told.exists() and told.read_text().count("\n")):
            assert self._process.poll() is None, f"chromium has ended with {self._process.returncode}"
            assert time.monotonic() < until, "chromium did not start"
            time.sleep(0.02)
        return int(told.read_text().splitlines()[0])

    async def _connect(self, port: int) -> None:
        self._client = aiohttp.ClientSession()
        pages: list[Any] = []
        while not pages:  # it reports its port before its first page is open
            async with self._client.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [each for each in await answer.json() if each["type"] == "page"]
        (target,) = pages
        self._socket = await self._client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._ask(f"{domain}.enable")

    async def _disconnect(self) -> None:
        await self._socket.close()
        await self._client.close()

    def _run(self, what: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(what, ANSWERS_WITHIN))

    def ask(self, method: str, **parameters: object) -> Any:
        """Send a command of the protocol and return its result."""
        return self._run(self._ask(method, **parameters))

    async def _ask(self, method: str, **parameters: object) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            said = json.loads(await self._socket.receive_str())
            self._note(said)
            if said.get("id") == self._number:
                if "error" in said:
                    raise BrowserError(f"{method}: {said['error']['message']}")
                return said["result"]

    def _note(self, said: dict[str, Any]) -> None:
        told = said.get("params", {})
        match said.get("method"):
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"])[:2000])
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])

    # -- the API of the tests

    def open(self, url: str) -> None:
        """Navigate to a URL."""
        self.ask("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """Evaluate a script in the page and return its value."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def wait_for(self, expression: str, within: float = 20.0) -> Any:
        """Wait until the expression is true and return it; on failure, show the text of the page."""
        until = time.monotonic() + within
        while time.monotonic() < until:
            try:
                if found := self.value(expression):
                    return found
            except BrowserError:
                pass  # the page is still loading
            time.sleep(0.05)
        raise AssertionError(f"not so within {within:g} s: {expression}\n{self.text()}\n{self.complaints}")

    def wait_for_text(self, text: str, within: float = 20.0) -> None:
        """Wait until the page shows the text."""
        self.wait_for(f"document.body.innerText.includes({json.dumps(text)})", within)

    def text(self) -> str:
        """Return the visible text of the page."""
        return str(self.value("document.body ? document.body.innerText : ''"))

    def click(self, selector: str) -> None:
        """Click the first element that matches the selector."""
        self.wait_for(f"!!document.querySelector({json.dumps(selector)})")
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def resize(self, width: int, height: int, *, scale: float = 1, dark: bool = False) -> None:
        """Set the screen size and the colour scheme."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        light = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": light}])

    def screenshot(self, path: Path, *, kind: str = "png") -> None:
        """Write a screenshot to a file."""
        quality = {"quality": 82} if kind != "png" else {}
        taken = self.ask("Page.captureScreenshot", format=kind, **quality)
        path.write_bytes(base64.b64decode(taken["data"]))
