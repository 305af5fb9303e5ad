"""A gateway as a process of its own, against vendors' servers next to the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.confirm.vendors.telegram import TOKEN
from whet.practice.server import PracticeServer

TELEGRAM = """\
[[channel]]
kind = "telegram"
base_url = "{url}"

[people.ann]
telegram = 7
owner = true
"""


class GatewayProcess:
    """`whet gateway run` in a home; start, kill and stop it as often as you like."""

    def __init__(self, home: Path, file: str, model: PracticeServer, **settings: object) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        (home / "gateway.toml").write_text(file)
        lines = "\n".join(f"  {name}: {value}" for name, value in settings.items())
        (home / "config.yaml").write_text(
            f"model:\n  provider: practice\n  base_url: {model.base_url}\n  model: practice\n"
            f"approval:\n  mode: {settings.pop('mode', 'auto')}\n"
            f"gateway:\n  stream_after_s: 0\n"
            + "".join(f"  {name}: {value}\n" for name, value in settings.items())
        )
        del lines
        self.process: subprocess.Popen[bytes] | None = None

    def environ(self) -> Mapping[str, str]:
        return {**os.environ, "WHET_HOME": str(self.home), "TELEGRAM_BOT_TOKEN": TOKEN}

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        work = self.home / "work"
        work.mkdir(exist_ok=True)
        log = (self.home / "output").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "whet", "gateway", "run", "--workspace", str(work)],
            env={**self.environ(), **more},
            stdout=log,
            stderr=log,
            cwd=self.home,
            start_new_session=True,
        )
        log.close()
        return self.process

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def whet(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "whet", *arguments],
            env=dict(self.environ()),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def output(self) -> str:
        return (self.home / "output").read_text()


@contextmanager
def running(process: GatewayProcess) -> Iterator[GatewayProcess]:
    """Start a gateway, and kill it at the end whatever happens."""
    process.start()
    try:
        yield process
    finally:
        if process.process is not None and process.process.poll() is None:
            process.kill()
