"""Drives headless Chromium over its DevTools protocol: keys, media, what scripts find, pictures."""

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
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
KEYS = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
"""Codes of the keys that `Tab.press` knows."""


class Tab:
    """One tab. ``complaints`` are errors of scripts and what the console or network warns of."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._number = self._loads = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._send(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                found: dict[str, Any] = answer["result"]
                return found
            self._heard(answer)

    def open(
        self, address: str, width: int = 1280, height: int = 900, scheme: str = "light"
    ) -> None:
        """At that size in pixels, in that colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        self.media(scheme)
        for url in ("about:blank", address):
            before = self._loads
            self.call("Page.navigate", url=url)
            while self._loads == before:  # scripts that run meanwhile get no answer
                self._heard(self._message())

    def media(self, scheme: str = "light", kind: str = "screen") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript, or of the promise that it is."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str) -> None:
        """Until an expression is true."""
        end = time.monotonic() + PATIENCE_S
        while not self.run(script):
            assert time.monotonic() < end, f"never: {script}; {self.complaints}"
            time.sleep(0.05)

    def press(self, key: str) -> None:
        code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
        typed = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **code, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def write(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def roles(self) -> list[tuple[str, str, dict[str, Any]]]:
        """What a screen reader is told: (role, name, properties) of all that it is told of."""
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""),
             {one["name"]: one["value"].get("value") for one in node.get("properties", ())})
            for node in self.call("Accessibility.getFullAXTree")["nodes"]
            if not node["ignored"]
        ]  # fmt: skip

    def picture(self, path: Path, whole: bool = True) -> None:
        """PNG; ``whole``: all of the page, not only what is in the window."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _send(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._writes, message) :]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reads], [], [], PATIENCE_S)
            assert ready, f"the browser says nothing; {self.complaints}"
            part = os.read(self._reads, 1 << 20)
            assert part, "the browser has gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _heard(self, event: dict[str, Any]) -> None:
        self._loads += event.get("method") == "Page.loadEventFired"
        if event.get("method") == "Runtime.exceptionThrown":
            details = event["params"]["exceptionDetails"]
            self.complaints.append(details.get("exception", details).get("description", "thrown"))
        elif event.get("method") == "Log.entryAdded":
            entry = event["params"]["entry"]
            if entry["level"] in ("error", "warning"):
                self.complaints.append(f"{entry['text']} {entry.get('url', '')}")


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """A browser whose own files are in ``folder``."""
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--remote-debugging-pipe", f"--user-data-dir={folder}",
    ]  # fmt: skip
    # The protocol is spoken over file descriptors 3 and 4.
    shell = ["bash", "-c", f'exec "$@" 3<&{from_us} 4>&{to_us}', "browser", *command]
    process = subprocess.Popen(
        shell, pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(from_us)
    os.close(to_us)
    try:
        yield Tab(from_browser, to_browser)
    finally:
        os.close(to_browser)
        os.close(from_browser)
        process.kill()
        process.wait()
