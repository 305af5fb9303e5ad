"""A Chromium of the demo's own, driven over a pair of pipes; its security key is a virtual one.

It has its own profile in the demo's folder and ends with the chapter. It knows nothing of what is shown.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from whet.contract.errors import Unavailable
from whet.contract.texts import from_json

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--disable-extensions", "--password-store=basic", "--use-mock-keychain",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
_KEY = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
    "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip
# Chromium reads its orders from file descriptor 3 and answers on 4.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    " os.execv(sys.argv[3], sys.argv[3:])"
)
_LIMIT_S = 60.0


def find_program() -> str:
    """Give the path of a Chromium, "" where none is installed."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), "")


class DemoBrowser:
    """One tab with a virtual security key. Every wait has a limit, after which Unavailable is raised."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders = orders
        self._answers = answers
        self._buffer = b""
        self._number = 0
        self._session = ""
        made = self.call("Target.createTarget", url="about:blank")
        attached = self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session: str = attached["sessionId"]
        self.call("WebAuthn.enable")
        self.call("WebAuthn.addVirtualAuthenticator", options=_KEY)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a DevTools call and give its result."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        asked |= {"sessionId": self._session} if self._session else {}
        os.write(self._orders, msgspec.json.encode(asked) + b"\0")
        deadline_s = time.monotonic() + _LIMIT_S
        while (answer := self._next(deadline_s)).get("id") != self._number:
            pass
        if "error" in answer:
            raise Unavailable(f"the browser: {answer['error']['message']}")
        return answer["result"]

    def open(self, address: str) -> None:
        """Go to an address; `until` waits for what is there."""
        self.call("Page.navigate", url=address)

    def run(self, code: str) -> Any:
        """Run JavaScript in the page and give its value; None where the page goes elsewhere meanwhile."""
        try:
            found = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        except Unavailable as error:
            if "navigated" in error.message or "context" in error.message:
                return None
            raise
        return found["result"].get("value")

    def until(self, code: str) -> None:
        """Wait until JavaScript gives something true, on this page or the next."""
        deadline_s = time.monotonic() + _LIMIT_S
        while not self.run(f"document.readyState === 'complete' && !!({code})"):
            if time.monotonic() > deadline_s:
                raise Unavailable(f"the browser waited in vain for: {code}")
            time.sleep(0.05)

    def _next(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._answers], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise Unavailable("the browser does not answer")
            part = os.read(self._answers, 1 << 16)
            if not part:
                raise Unavailable("the browser ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return from_json(line, dict[str, Any])


@contextmanager
def browser(program: str, profile: Path) -> Generator[DemoBrowser]:
    """Run Chromium with a new profile; it ends with the context. Raises Unavailable."""
    flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    # What it keeps besides its profile goes there, too, not into the person's home.
    home = {"HOME": str(profile), "XDG_CONFIG_HOME": str(profile), "XDG_CACHE_HOME": str(profile)}
    theirs, orders = (_high(one) for one in os.pipe())
    answers, replies = (_high(one) for one in os.pipe())
    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(theirs), str(replies), program, *flags],
        pass_fds=(theirs, replies), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, **home},
    )  # fmt: skip
    os.close(theirs)
    os.close(replies)
    try:
        yield DemoBrowser(orders, answers)
    finally:
        os.close(orders)  # a Chromium without orders ends
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)


def _high(handle: int) -> int:
    """Move a descriptor out of the way of 3 and 4."""
    moved = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(handle)
    return moved
