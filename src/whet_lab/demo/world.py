"""The demo's world: one temporary folder with home, project and processes, removed at the end.

The children are real `whet` processes with an environment of their own: no keys, none of the person's
settings, a home and a HOME inside the folder. This module knows nothing about the demo's output.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec

from whet.config.paths import Home
from whet.contract.errors import Unavailable
from whet.contract.texts import from_json
from whet_lab.practice.project import make_project

_KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE")
_MARK = "OpenAI base URL:"
_SETTINGS = """\
model:
  provider: practice
  model: practice
  base_url: {base_url}
approval:
  mode: auto
"""


class SeenRequest(msgspec.Struct, frozen=True):
    """One request as the practice server recorded it. `refused` is the reason if the server refused it."""

    body: str
    refused: str = ""


class _RecordedRequests(msgspec.Struct, frozen=True):
    requests: list[SeenRequest]


class DemoWorld:
    """The folder and its processes. Leaving the context ends them, and removes the folder unless `keep`."""

    def __init__(self, *, keep: bool = False) -> None:
        self.folder: Path = Path(tempfile.mkdtemp(prefix="whet-demo-")).resolve()
        self.project: Path = self.folder / "orders"
        self.home: Home = Home(self.folder / "home")
        self._keep = keep
        self._address = ""
        self._children: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """The practice server's root, as an OpenAI base URL."""
        return self._address

    def whet(self, arguments: Sequence[str], *, extra: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start `whet` in the project; its output and errors are pipes."""
        return self._start([sys.executable, "-P", "-m", "whet", *arguments], extra=extra)

    def run(self, command: Sequence[str], *, extra: dict[str, str] | None = None) -> tuple[int, str]:
        """Run a program in the project to its end; return its exit code and its output, errors included."""
        process = self._start(command, extra=extra, merged=True)
        text, _ = process.communicate(timeout=60)
        return process.returncode, text

    def requests(self) -> list[SeenRequest]:
        """Return the requests that the practice server has received so far, oldest first."""
        with closing(http.client.HTTPConnection(urlsplit(self._address).netloc, timeout=10)) as connection:
            connection.request("GET", "/practice/requests")
            return from_json(connection.getresponse().read(), _RecordedRequests).requests

    def close(self) -> None:
        """End the processes that still run, and remove the folder unless it is kept."""
        running = [child for child in self._children if child.poll() is None]
        for child in running:
            child.terminate()
        for child in running:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for child in self._children:
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _set_up(self) -> None:
        make_project(self.project)
        for name in ("me", "tmp"):
            (self.folder / name).mkdir()
        self.home.ensure()
        server = self.whet(["practice", "serve", "--port", "0"])
        assert server.stdout is not None
        address = next((line for line in server.stdout if line.startswith(_MARK)), "")
        if not address:
            errors = server.communicate(timeout=10)[1].strip().splitlines()
            raise Unavailable(
                f"the practice server did not start: {errors[-1] if errors else 'it said nothing'}",
                hint="`whet practice serve --port 0` shows why",
            )
        self._address = address.removeprefix(_MARK).strip()
        self.home.config.write_text(_SETTINGS.format(base_url=self._address), "utf-8")

    def _start(
        self, command: Sequence[str], *, extra: dict[str, str] | None = None, merged: bool = False
    ) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            cwd=self.project,
            env={**self._environment(), **(extra or {})},
            encoding="utf-8",
            errors="replace",
            # Ctrl-C at the terminal must reach the demo alone, which then ends its children.
            start_new_session=True,
        )
        self._children.append(child)
        return child

    def _environment(self) -> dict[str, str]:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        # Relative entries would mean something else in the project's folder.
        sources = [str(Path(p).absolute()) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        if sources:
            environment["PYTHONPATH"] = os.pathsep.join(sources)
        python = str(Path(sys.executable).parent)
        return environment | {
            "PATH": os.pathsep.join([python, os.environ.get("PATH", os.defpath)]),
            "HOME": str(self.folder / "me"),
            "TMPDIR": str(self.folder / "tmp"),
            "WHET_HOME": str(self.home.root),
            # Measurements must not depend on the progress of a background review.
            "WHET_REVIEW_WORKER": "off",
            "NO_PROXY": "*",
            "TERM": "dumb",
            "COLUMNS": str(shutil.get_terminal_size((80, 24)).columns),
            "PYTHONUTF8": "1",
        }


def signal_pid(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
