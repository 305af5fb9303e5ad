"""A Chromium of the demo's own, controlled over a pair of pipes; its security key is a virtual one.

It has its own profile in the demo's folder and ends with the chapter. This module knows nothing about the
demo's output.
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
_SECURITY_KEY = {
    "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
    "isUserVerified": True, "automaticPresenceSimulation": True,
}  # fmt: skip
# Chromium reads its commands from file descriptor 3 and answers on 4.
_LAUNCHER = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    " os.execv(sys.argv[3], sys.argv[3:])"
)
_MAX_WAIT_S = 60.0


def find_program() -> str:
    """Return the path of an installed Chromium, or an empty string."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), "")


class DemoBrowser:
    """One tab with a virtual security key. Every wait has a limit; when it passes, Unavailable is raised."""

    def __init__(self, command_writer: int, answer_reader: int) -> None:
        """Open a tab. The arguments are this end's descriptors of the two pipes."""
        self._command_writer = command_writer
        self._answer_reader = answer_reader
        self._buffer = b""
        self._number = 0
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")
        attachment = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session: str = attachment["sessionId"]
        self.call("WebAuthn.enable")
        self.call("WebAuthn.addVirtualAuthenticator", options=_SECURITY_KEY)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a DevTools call and return its result. Raises Unavailable."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        request |= {"sessionId": self._session} if self._session else {}
        os.write(self._command_writer, msgspec.json.encode(request) + b"\0")
        deadline_s = time.monotonic() + _MAX_WAIT_S
        while (answer := self._read_answer(deadline_s)).get("id") != self._number:
            pass
        if "error" in answer:
            raise Unavailable(f"the browser: {answer['error']['message']}")
        return answer["result"]

    def open(self, address: str) -> None:
        """Go to an address. Does not wait for the page; `wait_until` does."""
        self.call("Page.navigate", url=address)

    def run(self, code: str) -> Any:
        """Run JavaScript in the page and return its value (any JSON), or None if the page navigates away."""
        try:
            result = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        except Unavailable as error:
            if "navigated" in error.message or "context" in error.message:
                return None
            raise
        return result["result"].get("value")

    def wait_until(self, code: str) -> None:
        """Wait until JavaScript returns a true value, on this page or the next. Raises Unavailable."""
        deadline_s = time.monotonic() + _MAX_WAIT_S
        while not self.run(f"document.readyState === 'complete' && !!({code})"):
            if time.monotonic() > deadline_s:
                raise Unavailable(f"the browser waited too long for: {code}")
            time.sleep(0.05)

    def _read_answer(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._answer_reader], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                raise Unavailable("the browser does not answer")
            part = os.read(self._answer_reader, 1 << 16)
            if not part:
                raise Unavailable("the browser ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        return from_json(line, dict[str, Any])


@contextmanager
def open_browser(program: str, profile: Path) -> Generator[DemoBrowser]:
    """Run Chromium with a new profile, and end it when the context ends. Raises Unavailable."""
    flags = [*_FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    # Keep files outside the profile out of the person's home.
    home = {"HOME": str(profile), "XDG_CONFIG_HOME": str(profile), "XDG_CACHE_HOME": str(profile)}
    command_reader, command_writer = (_move_handle(handle) for handle in os.pipe())
    answer_reader, answer_writer = (_move_handle(handle) for handle in os.pipe())
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCHER, str(command_reader), str(answer_writer), program, *flags],
        pass_fds=(command_reader, answer_writer), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, **home},
    )  # fmt: skip
    os.close(command_reader)
    os.close(answer_writer)
    try:
        yield DemoBrowser(command_writer, answer_reader)
    finally:
        os.close(command_writer)  # Chromium ends when its command pipe closes
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answer_reader)


def _move_handle(handle: int) -> int:
    """Move a descriptor to 10 or above, away from 3 and 4."""
    copy = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(handle)
    return copy
