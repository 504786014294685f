"""A headless Chromium that opens a page, spoken to by its DevTools protocol over two pipes.

https://chromedevtools.github.io/devtools-protocol/
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium() -> str | None:
    """The browser of this machine: that of ENVDOCTOR_TEST_CHROMIUM, or one on PATH."""
    return os.environ.get("ENVDOCTOR_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One page of a browser with a profile of its own; ``said`` are the messages of its console and its log."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        options = ["--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--disable-dev-shm-usage"]
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, "--headless=new", *options, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=[theirs_in, theirs_out],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._number, self._session = b"", 0, None
        self.said: list[str] = []
        pages = [one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        target = pages[0]["targetId"] if pages else self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.killpg(self._process.pid, 9)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def ask(self, method: str, **parameters: Any) -> Any:
        """Call a method and return its result; what the browser tells meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Load a file at a width, as a phone below 600."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=path.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def value(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._in, 1 << 16)
            assert piece, "the browser went away"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, told = message.get("method"), message.get("params", {})
        if method == "Log.entryAdded":
            self.said.append(told["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.said.append(str(told["args"]))
        elif method == "Network.requestWillBeSent":
            self.said += [] if told["request"]["url"].startswith("file:") else [told["request"]["url"]]
        return message
