"""A page in a real browser, without a driver: Chromium, spoken to over its debugging pipe.

The protocol is JSON messages that end with a NUL byte, on the descriptors 3 (to the browser) and 4 (from it). What the
page complains of on its console, and what it asks the network for, is collected from the start.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """The browser of this machine; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


@dataclass
class Tab:
    """One page. Units are CSS pixels."""

    to_browser: int
    from_browser: int
    session: str = ""
    complaints: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and exceptions."""
    requests: list[str] = field(default_factory=list)
    """Addresses that were asked for."""
    happened: list[str] = field(default_factory=list)
    number: int = 0
    pending: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command of the protocol."""
        self.number += 1
        said: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.to_browser, json.dumps(said).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self.number:
                if "error" in heard:
                    raise RuntimeError(f"{method}: {heard['error']}")
                result: dict[str, Any] = heard["result"]
                return result

    def open(self, page: Path | str, width: int, height: int, *, dark: bool = False) -> None:
        """Show a file, or what is at an address, as a window of this size does; below 600 pixels, as a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.happened.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while "Page.loadEventFired" not in self.happened:
            self._hear()

    def evaluate(self, expression: str) -> Any:
        """The value of a script's expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait until a script's expression is true, and return its value. Raises AssertionError if it never is."""
        ends_at = time.monotonic() + WAIT_S / 3
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < ends_at, f"never true: {expression}; {self.evaluate('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def picture(self, path: Path) -> Path:
        """The whole page as a PNG."""
        height = self.evaluate("document.documentElement.scrollHeight")
        width = self.evaluate("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def _hear(self) -> dict[str, Any]:
        until = time.monotonic() + WAIT_S
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.from_browser], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self.from_browser, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError(f"the browser said nothing for {WAIT_S:.0f} s" if not ready else "it ended")
            self.pending += data
        text, _, self.pending = self.pending.partition(b"\0")
        heard: dict[str, Any] = json.loads(text)
        self._note(heard.get("method", ""), heard.get("params", {}))
        return heard

    def _note(self, method: str, said: dict[str, Any]) -> None:
        match method:
            case "Log.entryAdded":
                self.complaints.append(f"{said['entry']['level']}: {said['entry']['text']}")
            case "Runtime.consoleAPICalled":
                self.complaints.append(f"{said['type']}: {said['args']}")
            case "Runtime.exceptionThrown":
                self.complaints.append(str(said["exceptionDetails"]))
            case "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
            case _:
                pass
        self.happened.append(method)


@contextmanager
def browsing(browser: str, profile: Path) -> Iterator[Tab]:
    """A browser of its own, with an empty profile in the folder `profile`. It ends with the block."""
    read_theirs, write_ours = os.pipe()
    read_ours, write_theirs = os.pipe()
    # The shell puts them where the browser wants them, whatever numbers they have here.
    command = f'exec "$0" "$@" 3<&{read_theirs} 4>&{write_theirs}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", command, browser, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(read_theirs, write_theirs),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_theirs)
    os.close(write_theirs)
    try:
        tab = Tab(write_ours, read_ours)
        targets = tab.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        session = tab.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        tab.session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        yield tab
        tab.session = ""
        tab.call("Browser.close")
    finally:
        os.close(write_ours)
        os.close(read_ours)
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
