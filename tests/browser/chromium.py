"""A real headless Chromium, driven over its DevTools protocol: what a person would see, press and type.

Chromium needs more of a machine than all else here. Every wait on it has a limit; one that stops answering is
replaced, and where none works (no memory, no namespaces) the tests that need it are skipped, and say why.
"""

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
from typing import Any, NoReturn

import httpx2
import pytest
from httpx2.websockets import HTTPXWSException
from wsproto.utilities import ProtocolError

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--password-store=basic",
    "--use-mock-keychain", "--disable-breakpad", "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--remote-debugging-port=0",
    # Names other than loopback lead to this machine or nowhere: nothing leaves it.
    "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
# No answer of a Chromium that works takes longer, on the slowest machine.
_ANSWER_S = 30.0
_START_S = 60.0


class Sick(Exception):
    """Chromium does not start, or does not answer; not the fault of what it shows."""


class Page:
    """One tab of `browser`."""

    def __init__(self, session: Any, browser: Browser) -> None:
        self._session = session
        self._browser = browser
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, limit_s: float = _ANSWER_S, **params: Any) -> dict[str, Any]:
        """Make a DevTools call and give its result."""
        with self._changed:
            self._number += 1
            number = self._number
        self._session.send_text(json.dumps({"id": number, "method": method, "params": params}))
        with self._changed:
            answered = self._changed.wait_for(lambda: number in self._answers, limit_s)
            answer = self._answers.pop(number) if answered else None
        if answer is None:
            self._browser.skip_if_sick()
            raise TimeoutError(f"{method} was not answered within {limit_s:g} s")
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url: str) -> None:
        """Go to an address and wait until the page has loaded."""
        before = self._loads()
        self.call("Page.navigate", url=url)
        self.loaded(before)

    def loaded(self, before: int) -> None:
        with self._changed:
            if self._changed.wait_for(lambda: self._loads() > before, _ANSWER_S):
                return
        self._browser.skip_if_sick()
        raise TimeoutError("the page did not load")

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Do something that leads to another page, and wait for that."""
        before = self._loads()
        yield
        self.loaded(before)

    def eval(self, code: str, limit_s: float = _ANSWER_S) -> Any:
        """Run JavaScript in the page, promises awaited, and give its value."""
        how = {"expression": code, "awaitPromise": True, "returnByValue": True}
        result = self.call("Runtime.evaluate", limit_s, **how)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "failed"))
        return result["result"].get("value")

    def until(self, code: str, timeout_s: float = 30.0) -> Any:
        """Wait until JavaScript gives something true: the page itself watches for it."""
        ticks = int(timeout_s * 50)
        watch = (
            f"(async () => {{ for (let i = 0; i < {ticks}; i++) {{ const v = ({code});"
            " if (v) return v instanceof Node || v; await new Promise(r => setTimeout(r, 20)); }"
            " return null; })()"
        )
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = self.eval(watch, timeout_s + _ANSWER_S)
                break
            except RuntimeError as error:
                # The page went elsewhere meanwhile, perhaps more than once; the new one is watched.
                moved = "navigated" in str(error) or "context" in str(error)
                if not moved or time.monotonic() > deadline:
                    raise
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
        self.call("Input.insertText", text=text)

    def key(self, key: str, code: int = 0) -> None:
        """Press and release one key."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            extra: dict[str, Any] = {"text": text} if text and kind == "keyDown" else {}
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
        texts: list[str] = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                texts.append(str(event["params"]["exceptionDetails"].get("exception", {}).get("description")))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                texts.append(event["params"]["entry"]["text"])
        return texts

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


class Browser:
    """A Chromium that is started when a page is asked for; each page has cookies of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._given_up = ""

    @contextlib.contextmanager
    def page(self) -> Iterator[Page]:
        """Open a tab in a fresh, private context. Skips the test where no Chromium works."""
        with contextlib.ExitStack() as stack:
            try:
                made = Page(self._tab(stack), self)
            except Sick:
                stack.close()
                self._stop()
                try:
                    made = Page(self._tab(stack), self)
                except Sick as again:
                    self._give_up(str(again))
            yield made

    def eval_worker(self, target_id: str, code: str) -> Any:
        """Run JavaScript in a service worker and give its value."""
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(httpx2.Client(timeout=_ANSWER_S))
            url = f"ws://127.0.0.1:{self._port}/devtools/page/{target_id}"
            session = _enter(stack, client.websocket(url))
            result = _ask(session, "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
            assert "exceptionDetails" not in result, result
            return result["result"].get("value")

    def skip_if_sick(self) -> None:
        """Skip the test where even an empty page gets no answer now; the next one gets a new Chromium."""
        with contextlib.ExitStack() as stack:
            try:
                self._tab(stack)
            except Sick as why:
                self._stop()
                pytest.skip(f"chromium stopped answering: {why}")

    def close(self) -> None:
        """End it, whatever it does."""
        self._stop()

    def _tab(self, stack: contextlib.ExitStack) -> Any:
        """Open a tab that has proved to run scripts."""
        if self._given_up:
            self._give_up(self._given_up)
        try:
            self._start()
            client = stack.enter_context(httpx2.Client(timeout=_ANSWER_S))
            version = client.get(f"http://127.0.0.1:{self._port}/json/version").json()
            url = version["webSocketDebuggerUrl"]
            root = _enter(stack, client.websocket(url, max_message_size_bytes=1 << 20))
            context = _ask(root, "Target.createBrowserContext")["browserContextId"]
            stack.callback(_forget, root, context)
            made = _ask(root, "Target.createTarget", url="about:blank", browserContextId=context)
            url = f"ws://127.0.0.1:{self._port}/devtools/page/{made['targetId']}"
            session = _enter(stack, client.websocket(url, max_message_size_bytes=1 << 26))
            _ask(session, "Runtime.evaluate", expression="1 + 1")
        except (HTTPXWSException, httpx2.HTTPError, OSError, ValueError, KeyError, ProtocolError) as error:
            raise Sick(f"{type(error).__name__}: {error}") from error
        return session

    def _start(self) -> None:
        """Start Chromium with a profile of its own, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        self._starts += 1
        profile = self._folder / f"chromium-{self._starts}"
        profile.mkdir()
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "TZ": "UTC",
            "LANG": "C.UTF-8",
            # Without an address it looks for a bus, and may wait for one.
            "DBUS_SESSION_BUS_ADDRESS": "disabled:",
            "DBUS_SYSTEM_BUS_ADDRESS": "disabled:",
        }
        command, none = [PROGRAM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"], subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdin=none, stdout=none, stderr=none, env=environ)
        self._port = _port(profile, self._process)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # its children end when their channel to it breaks
        process.wait(30)

    def _give_up(self, why: str) -> NoReturn:
        self._given_up = why
        self._stop()
        pytest.skip(f"chromium does not work here: {why}")


def _enter(stack: contextlib.ExitStack, connection: Any) -> Any:
    """Open a connection; at the stack's end it is closed, also where the browser is gone."""
    session = connection.__enter__()

    def leave() -> None:
        with contextlib.suppress(HTTPXWSException, httpx2.HTTPError, OSError, ProtocolError):
            connection.__exit__(None, None, None)

    stack.callback(leave)
    return session


def _ask(session: Any, method: str, **params: Any) -> Any:
    """Make the one call of a session and give its result. Raises Sick where none comes."""
    session.send_text(json.dumps({"id": 1_000_000, "method": method, "params": params}))
    deadline = time.monotonic() + _ANSWER_S
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            message = json.loads(session.receive_text(timeout=left_s))
        except TimeoutError:
            break
        if message.get("id") == 1_000_000:
            return message["result"]
    raise Sick(f"{method} was not answered within {_ANSWER_S:g} s")


def _forget(root: Any, context: str) -> None:
    """Close a private context; a browser that is gone has none."""
    with contextlib.suppress(Sick, HTTPXWSException, httpx2.HTTPError, OSError, KeyError, ProtocolError):
        _ask(root, "Target.disposeBrowserContext", browserContextId=context)


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    """Read the port that Chromium chose, as soon as it has written it down."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Sick(f"it ended at once with {process.returncode}")
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError):
            return int((profile / "DevToolsActivePort").read_text().split("\n")[0])
        time.sleep(0.02)
    raise Sick(f"it did not start within {_START_S:g} s")
