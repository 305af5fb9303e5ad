"""Runs a temporary PostgreSQL server for tests and demos.

Its folder is removed afterwards, even if the process that started it is killed. Writes are not synced to
disk unless requested. It uses the system's programs (Debian's package postgresql), which refuse to run as
root; root runs them as another user.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import NotRequired, TypedDict

from whet.contract.errors import Unavailable

_OTHER_USER, _OTHER_GROUP = "nobody", 65534
_TIMEOUT_S = 90
_KEEPER = """read -r _ # returns when the owner closes the pipe or dies
[ -e "$1/data/postmaster.pid" ] && "$0" -D "$1/data" -m immediate -w stop
rm -rf "$1"
"""


def find_programs() -> Path | None:
    """Return the folder of the newest PostgreSQL programs, or None if they are not installed."""
    folders = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if (on_path := shutil.which("initdb")) is not None:
        folders.append(Path(on_path).resolve().parent)
    return max(folders, key=_version, default=None)


def _version(path: Path) -> tuple[int, str]:
    name = path.parent.name
    return (int(name) if name.isdigit() else 0, str(path))


class TrialServer:
    """A running server. With `primary` it is a replica that follows that server's log.

    Raises Unavailable if it can't be started.
    """

    def __init__(
        self, *, connections: int = 60, syncs: bool = False, primary: TrialServer | None = None
    ) -> None:
        self._primary = primary
        programs_folder = find_programs()
        if programs_folder is None:
            raise Unavailable("PostgreSQL's programs are not installed", hint="apt install postgresql")
        self._programs = programs_folder
        self.folder: Path = Path(tempfile.mkdtemp(prefix="whet-pg-"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, _OTHER_USER)
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, programs_folder / "pg_ctl", self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # survives a signal to its owner's whole process group
            **_process_options(),
        )
        try:
            self._start(connections, syncs)
        except BaseException:
            self.close()
            raise

    def _start(self, connections: int, syncs: bool) -> None:
        if self._primary is None:
            init_options = ("--auth=trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
            self._run("initdb", "-D", str(self.folder / "data"), "-U", "whet", *init_options)
        else:
            replica_options = (
                "-d",
                self._primary.url,
                "-D",
                str(self.folder / "data"),
                "-R",
                "--checkpoint=fast",
            )
            self._run("pg_basebackup", *replica_options)
        for is_last in (False, False, True):
            port = _free_port()
            self.port: int = port
            self.url: str = f"postgresql://whet@127.0.0.1:{port}/postgres"
            options = (
                f"-p {port} -k {self.folder} -c listen_addresses=127.0.0.1"
                f" -c fsync={'on' if syncs else 'off'} -c max_connections={connections}"
            )
            try:
                self.control("-l", str(self.folder / "log"), "-o", options, "-w", "start")
            except Unavailable:  # another process may have taken the port
                if is_last:
                    raise
            else:
                return

    def control(self, *arguments: str) -> None:
        """Run pg_ctl with these arguments."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), *arguments)

    def close(self) -> None:
        """Stop the server if it runs, and remove its folder."""
        self._keeper.communicate()

    def _run(self, program: str, *arguments: str) -> None:
        process = subprocess.run(
            [self._programs / program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the server would keep a pipe open
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
            **_process_options(),
        )
        if process.returncode:
            lines = (process.stderr or b"").decode(errors="replace").strip().splitlines()
            raise Unavailable(
                f"PostgreSQL's {program} failed: {lines[-1] if lines else 'it said nothing'}",
                hint=f"its log, if it began one, is {self.folder / 'log'}",
            )


class _ProcessOptions(TypedDict):
    cwd: str
    env: dict[str, str]
    user: NotRequired[str]
    group: NotRequired[int]
    extra_groups: NotRequired[list[str]]


def _process_options() -> _ProcessOptions:
    """Return process options for PostgreSQL's programs: a clean environment, and another user than root."""
    process_options = _ProcessOptions(cwd="/", env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
    if os.geteuid() == 0:
        process_options.update(user=_OTHER_USER, group=_OTHER_GROUP, extra_groups=[])
    return process_options


def _free_port() -> int:
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
