"""A real headless Chromium, driven over its DevTools protocol: what a person would see, press and type."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from httpx2.websockets import HTTPXWSException

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--mute-audio",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    # Names other than loopback lead to this machine or nowhere: nothing leaves it.
    "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


class Page:
    """One tab."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a DevTools call and give its result."""
        with self._changed:
            self._number += 1
            number = self._number
        self._session.send_text(json.dumps({"id": number, "method": method, "params": params}))
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._answers, 20):
                raise TimeoutError(f"{method} was not answered")
            answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url: str) -> None:
        """Go to an address and wait until the page has loaded."""
        before = self._loads()
        self.call("Page.navigate", url=url)
        self.loaded(before)

    def loaded(self, before: int) -> None:
        """Wait for the next load after there were `before`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._loads() > before, 20):
                raise TimeoutError("the page did not load")

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Do something that leads to another page, and wait for that."""
        before = self._loads()
        yield
        self.loaded(before)

    def eval(self, code: str) -> Any:
        """Run JavaScript in the page, promises awaited, and give its value."""
        result = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "failed"))
        return result["result"].get("value")

    def until(self, code: str, timeout_s: float = 10.0) -> Any:
        """Wait until JavaScript gives something true: the page itself watches for it."""
        ticks = int(timeout_s * 50)
        watch = (
            f"(async () => {{ for (let i = 0; i < {ticks}; i++) {{ const v = ({code});"
            " if (v) return v instanceof Node || v; await new Promise(r => setTimeout(r, 20)); }"
            " return null; })()"
        )
        try:
            found = self.eval(watch)
        except RuntimeError as error:
            if "navigated" not in str(error) and "context" not in str(error):
                raise
            found = self.eval(watch)  # the page went elsewhere meanwhile; the new one is watched
        if not found:
            raise TimeoutError(f"never true: {code}\n{self.text()[:2000]}")
        return found

    def text(self) -> str:
        """Give the text that the page shows."""
        return str(self.eval("document.body.innerText"))

    def click(self, selector: str) -> None:
        """Press the mouse button on the middle of an element."""
        box = self.eval(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def key(self, key: str, code: int = 0) -> None:
        """Press and release one key."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=codes.get(key, code),
                **extra,
            )

    def shape(self, width: int, height: int, *, is_phone: bool = False, is_dark: bool = False) -> None:
        """Take the size and the colours of a device."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if is_phone else 1,
            mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def shot(self, path: Path) -> None:
        """Save a picture of what is seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def problems(self) -> list[str]:
        """Give what the browser complained about: errors, refused scripts and styles."""
        found: list[str] = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(event["params"]["exceptionDetails"].get("exception", {}).get("description")))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                found.append(event["params"]["entry"]["text"])
        return found

    def _loads(self) -> int:
        return sum(event["method"] == "Page.loadEventFired" for event in self.events)

    def _read(self) -> None:
        while True:
            try:
                message = json.loads(self._session.receive_text())
            except (HTTPXWSException, httpx2.HTTPError, OSError):
                return
            with self._changed:
                if "id" in message:
                    self._answers[message["id"]] = message
                else:
                    self.events.append(message)
                self._changed.notify_all()


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own below `folder`."""
    profile = folder / "chromium"
    profile.mkdir()
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TZ": "UTC", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environ,
    )
    try:
        yield Browser(_port(profile, process))
    finally:
        process.kill()
        process.wait()


class Browser:
    """A running Chromium; each page has cookies of its own."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    @contextlib.contextmanager
    def page(self) -> Iterator[Page]:
        """Open a tab in a fresh, private context."""
        port = self._base.rpartition(":")[2]
        with httpx2.Client(trust_env=False) as client:
            root_url = client.get(f"{self._base}/json/version").json()["webSocketDebuggerUrl"]
            with client.websocket(root_url, max_message_size_bytes=1 << 20) as root:
                context = _ask(root, "Target.createBrowserContext")["browserContextId"]
                made = _ask(root, "Target.createTarget", url="about:blank", browserContextId=context)
                url = f"ws://127.0.0.1:{port}/devtools/page/{made['targetId']}"
                with client.websocket(url, max_message_size_bytes=1 << 26) as session:
                    yield Page(session)
                _ask(root, "Target.disposeBrowserContext", browserContextId=context)


def _ask(root: Any, method: str, **params: Any) -> Any:
    root.send_text(json.dumps({"id": 1, "method": method, "params": params}))
    while True:
        message = json.loads(root.receive_text())
        if message.get("id") == 1:
            return message["result"]


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    """Read the port that Chromium chose, as soon as it has written it down."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, "chromium ended at once"
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            return int((profile / "DevToolsActivePort").read_text().split("\n")[0])
        time.sleep(0.02)
    raise TimeoutError("chromium did not start")
