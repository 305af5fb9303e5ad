"""A service as a process, a person's browser, an agent: for tests that look at the page as people do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.browser.chromium import PROGRAM, Browser, Page
from tests.serve.conftest import board
from tests.support import within

__all__ = ["board"]  # a fixture


class Daemon:
    """`whet confirm serve` as people run it. `program` starts whet."""

    def __init__(
        self,
        home: Path,
        *options: str,
        environ: dict[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "whet"),
    ) -> None:
        self.home = home
        command = [*program, "confirm", "serve", "--port", "0", "--web-port", "0", *options]
        variables = {**os.environ, "WHET_HOME": str(home), **(environ or {})}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
        )
        assert self.process.stdout is not None
        texts: list[str] = []
        try:
            while not texts or not texts[-1].startswith("web page"):
                texts.append(within(self.process.stdout.readline, f"the service to listen; it said {texts}"))
                if not texts[-1]:
                    raise RuntimeError("".join(texts))
        except (TimeoutError, RuntimeError):
            self.process.kill()
            raise
        self.api = texts[0].split()[-1]
        self.url = texts[-1].split()[-1]
        self._drain = threading.Thread(target=self.process.stdout.read, daemon=True)
        self._drain.start()
        self.agent = httpx2.Client(base_url=self.url, headers=self._bearer("submit"), timeout=30)

    def token(self, role: str = "approve") -> str:
        return (self.home / "confirm" / f"{role}.token").read_text().strip()

    def submit(self, **fields: Any) -> str:
        """Submit as the agent; gives the id."""
        body = {"action": "delete_data", "description": "Clean up", "details": {"table": "old"}, **fields}
        answer = self.agent.post("/confirm", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def status(self, request_id: str, wait_s: float = 0) -> dict[str, Any]:
        return self.agent.get(f"/confirm/{request_id}", params={"wait": wait_s}, timeout=wait_s + 30).json()

    def stop(self) -> None:
        self.agent.close()
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.process.kill()
        self.process.wait(30)
        assert self.process.stdout is not None
        self._drain.join(30)
        self.process.stdout.close()

    def _bearer(self, role: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token(role)}"}


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """One Chromium for all tests; each gets a private page."""
    if not PROGRAM:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """One service for the tests of a module."""
    made = Daemon(tmp_path_factory.mktemp("home"), "--rate-limit", "1000")
    yield made
    made.stop()


@pytest.fixture
def page(chromium):
    with chromium.page() as found:
        found.shape(1280, 860)
        yield found


def sign_in(page: Page, daemon: Daemon, path: str = "/") -> None:
    """Sign in as a person does, and wait until the page, where it is one that lives, is live."""
    page.open(daemon.url + path)
    page.click("#token")
    page.type(daemon.token())
    with page.loading():
        page.key("Enter")
    if path == "/" or path.startswith("/r/"):
        page.until("document.querySelector('#live') && !document.querySelector('#live').hidden")
