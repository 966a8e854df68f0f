"""Drives a headless Chromium over its debugging pipe: no port, no driver, nothing to install beside the browser.

Messages of the DevTools protocol are JSON, each ended by a zero byte; the browser reads descriptor 3 and writes
descriptor 4. A ``Tab`` keeps what its page has asked of the network and what its console has said.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0


def executable() -> str | None:
    """The browser, or None where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    """A browser that can resolve no name, with a profile of its own."""

    def __init__(self, program: str, profile: Path) -> None:
        here, there = os.pipe(), os.pipe()
        reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (here[0], there[1]))

        def place() -> None:
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        self._process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "--disable-background-networking",
             "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (here[0], there[1], reads, writes):
            os.close(end)
        self._to, self._from = here[1], there[0]
        self._buffer, self._number = b"", 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The result of one command; what the browser says in the meantime goes to ``events``."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def wait(self, method: str, session: str) -> None:
        """Until the browser has sent an event."""
        while not any(event.get("method") == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self._next(method))

    def _next(self, waiting_for: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(until - time.monotonic(), 0))[0]:
                raise TimeoutError(f"the browser did not answer {waiting_for}")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise EOFError(f"the browser has gone before {waiting_for}")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """End the browser."""
        os.close(self._to)
        os.close(self._from)
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)


class Tab:
    """One page, in a scheme, a width and a medium, with or without scripts."""

    def __init__(
        self,
        browser: Chromium,
        file: Path,
        *,
        width: int = 1280,
        height: int = 900,
        scheme: str = "light",
        media: str = "",
        scripts: bool = True,
    ) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self._target = target
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", media=media, features=features)
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self._call("Page.navigate", url=file.resolve().as_uri())
        browser.wait("Page.loadEventFired", self._session)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        """Another window."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that matches."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, selector: str) -> None:
        """Move the mouse over the middle of the first element that matches."""
        x, y = self.middle(selector)
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Press a key."""
        text = {"text": "\r"} if key == "Enter" else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def middle(self, selector: str) -> tuple[float, float]:
        """The middle of the first element that matches, brought into view."""
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center', behavior: 'instant'}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        return float(box[0]), float(box[1])

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        return base64.b64decode(self._call("Page.printToPDF", **paper)["data"])

    @property
    def requests(self) -> list[str]:
        """What the page has asked for, beside itself."""
        urls = [event["params"]["request"]["url"] for event in self._events("Network.requestWillBeSent")]
        return [url for url in urls if not url.startswith("data:")][1:]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the page and its policy."""
        said = [event["params"]["entry"]["text"] for event in self._events("Log.entryAdded")]
        thrown = [str(event["params"]["exceptionDetails"]) for event in self._events("Runtime.exceptionThrown")]
        return said + thrown + [str(event["params"]["args"]) for event in self._events("Runtime.consoleAPICalled")]

    def _events(self, method: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self._browser.events
            if event.get("method") == method and event.get("sessionId") == self._session
        ]

    def close(self) -> None:
        """Leave the page."""
        self._browser.call("Target.closeTarget", targetId=self._target)
