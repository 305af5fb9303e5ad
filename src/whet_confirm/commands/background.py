"""Finds the running service, or starts it as a process that outlives the command."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet_confirm.client import BlockingClient
from whet_confirm.commands.files import find_program
from whet_confirm.tickets import Failed, Unreachable

_START_S = 60.0
_POLL_S = 0.05
_ADDRESS = re.compile(r"^confirmation service: (\S+)$", re.MULTILINE)
_PAGE = re.compile(r"^web page and browsers: (\S+)$", re.MULTILINE)


class RunningService(msgspec.Struct, frozen=True):
    """A service that answers at `url`.

    The other fields are empty unless this command started it; `command` would start it again.
    """

    url: str
    pid: int = 0
    log: str = ""
    page_url: str = ""
    command: tuple[str, ...] = ()


def find_service(url: str, hint: str = "another --port and --web-port") -> RunningService | None:
    """Return the service at `url` if it knows this home's approve token, or None if nothing listens there.

    Raises ConfigError if another program or another home's service does.
    """
    with BlockingClient(url, role="approve") as client:
        try:
            client.run(client.calls.list("pending", 1))
        except Unreachable:
            return None
        except Failed as error:
            raise ConfigError(f"something else answers at {url}: {error.message}", hint=hint) from error
    return RunningService(url)


def start_service(home: Home, words: Sequence[str], owner: str) -> RunningService:
    """Run `whet confirm serve` with these options, and return when it listens. Its output goes to a log.

    The first approve token is `owner`'s. Raises ConfigError with the last output if the process ended, or if
    it did not listen within 60 s and was killed.
    """
    home.logs.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = home.logs / "confirm-serve.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        begin = os.fstat(descriptor).st_size
        process = subprocess.Popen(
            [*find_program(), "confirm", "serve", *words, "--owner", owner],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,  # it outlives this command and its terminal
        )
    finally:
        os.close(descriptor)
    text = _wait_or_kill(process, path, begin)
    address, page = _ADDRESS.search(text), _PAGE.search(text)
    assert address is not None  # else it has not started
    return RunningService(
        address[1], process.pid, str(path), page[1] if page else "", ("whet", "confirm", "serve", *words)
    )


def _wait_or_kill(process: subprocess.Popen[bytes], path: Path, begin: int) -> str:
    """Return what the service printed once it listens.

    Raises ConfigError with its last output if it ended, or if it did not listen within 60 s and was killed.
    """
    deadline = time.monotonic() + _START_S
    while True:
        has_ended = process.poll() is not None
        text = path.read_bytes()[begin:].decode("utf-8", "replace")
        # The addresses are printed together, the page's last.
        if _ADDRESS.search(text) and text.endswith("\n") and not has_ended:
            return text
        if has_ended or time.monotonic() > deadline:
            process.kill()
            last = next((line for line in text.splitlines() if line.startswith("error: ")), text[-300:])
            raise ConfigError(
                f"the service did not start: {last.removeprefix('error: ').strip()}",
                hint=f"whet confirm serve shows it all; the log is {path}",
            )
        time.sleep(_POLL_S)
