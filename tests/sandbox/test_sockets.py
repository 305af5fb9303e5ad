"""Sockets and terminals of programs outside are out of reach wherever they lie; a jail's own ones work."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.attempts import Attempt, attempts
from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.world import World
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.policy import Opening
from whet.sandbox.scratch import Scratch
from whet.sandbox.setup import JailPlan
from whet.sandbox.system_folders import default_policy

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")

_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
_TRY = """\
import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try:
        s = socket.socket(socket.AF_UNIX, kind)
        s.connect(sys.argv[1] + (".d" if kind == socket.SOCK_DGRAM else ""))
        s.send(b"x")
        print("OUT", kind)
    except OSError as error:
        print(error)
"""


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder with sockets that listen, below none of the places that every jail has a private one of."""
    with tempfile.TemporaryDirectory(prefix=".s-", dir=Path(__file__).parent) as folder:
        stream, packets = (socket.socket(socket.AF_UNIX, kind) for kind in (1, 2))
        with stream, packets:
            stream.bind(f"{folder}/s")
            stream.listen()
            packets.bind(f"{folder}/s.d")
            yield Path(folder)


def said(case: EngineCase, workspace: Path, argv: list[str], *openings: Opening) -> str:
    workspace.mkdir(exist_ok=True)
    scratch = Scratch()
    policy = default_policy(workspace, workspace / "none", {**_ENVIRONMENT, "HOME": str(Path.home())})
    jail = Jail(JailPlan(case.engine(), policy.with_openings(openings), scratch, Path.home().resolve()))
    try:
        inside = jail.environment(_ENVIRONMENT)
        return jail.run(JailedCommand([sys.executable, *argv], inside, workspace), 30)[1]
    finally:
        jail.close()
        scratch.close()


@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_socket_outside_is_out_of_reach_by_its_path(
    case: EngineCase, tmp_path: Path, elsewhere: Path
) -> None:
    printed = said(case, tmp_path / "w", ["-c", _TRY, str(elsewhere / "s")])
    assert "OUT" not in printed and len(printed.splitlines()) == 2, printed


@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_socket_in_a_hidden_folder_of_the_workspace_is_out_of_reach(case: EngineCase) -> None:
    """Whet's own home in the workspace, with a service's socket in it."""
    with tempfile.TemporaryDirectory(prefix=".s-", dir=Path(__file__).parent) as folder:
        path = Path(folder) / "none"
        path.mkdir()
        with socket.socket(socket.AF_UNIX) as stream, socket.socket(socket.AF_UNIX, 2) as packets:
            stream.bind(f"{path}/s")
            stream.listen()
            packets.bind(f"{path}/s.d")
            printed = said(case, Path(folder), ["-c", _TRY, str(path / "s")])
    assert "OUT" not in printed and len(printed.splitlines()) == 2, printed


_CLOSED = """\
import ctypes, os, sys
from pathlib import Path
from tests.sandbox.engines import EngineCase
from tests.sandbox.test_sockets import _TRY, said
for capability in (1, 2):  # root reads everything by these two
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
folder = Path(sys.argv[2])
if os.getuid() == 0 and not sys.argv[3:]:
    os.execv(sys.executable, [*sys.orig_argv, "dropped"])
text = "import contextlib, os\\nwith contextlib.suppress(OSError): os.chmod('c', 0o700)\\n" + _TRY
print(said(EngineCase(sys.argv[1]), folder, ["-c", text, f"{folder}/c/s"]).strip())
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_socket_in_a_folder_that_is_closed_to_the_person_is_out_of_reach(case: EngineCase) -> None:
    """As another person's in /tmp. A command could open a folder of the person's own again."""
    case.engine()
    with tempfile.TemporaryDirectory(prefix=".s-", dir=Path(__file__).parent) as folder:
        closed = Path(folder) / "c"
        closed.mkdir()
        with socket.socket(socket.AF_UNIX) as stream, socket.socket(socket.AF_UNIX, 2) as packets:
            stream.bind(f"{closed}/s")
            stream.listen()
            packets.bind(f"{closed}/s.d")
            closed.chmod(0)
            argv = [sys.executable, "-c", _CLOSED, case.name, folder]
            result = subprocess.run(argv, capture_output=True, text=True, cwd=Path(__file__).parents[2])
            closed.chmod(0o700)
    assert result.returncode == 0, result.stderr
    assert "OUT" not in result.stdout and len(result.stdout.splitlines()) == 2, result.stdout


@pytest.mark.parametrize("case", ENGINES, ids=str)
@pytest.mark.parametrize("what", ["", "/s"])
def test_a_socket_in_a_folder_that_was_opened_for_reading_is_out_of_reach(
    case: EngineCase, tmp_path: Path, elsewhere: Path, what: str
) -> None:
    """In mode auto such an opening asks nobody."""
    printed = said(
        case, tmp_path / "w", ["-c", _TRY, f"{elsewhere}/s"], Opening("read", f"{elsewhere}{what}")
    )
    assert "OUT" not in printed and len(printed.splitlines()) == 2, printed


@pytest.mark.parametrize("case", [engine for engine in ENGINES if engine.name != "Landlock"], ids=str)
def test_a_socket_that_was_opened_by_its_name_is_in_reach(
    case: EngineCase, tmp_path: Path, elsewhere: Path
) -> None:
    opening = Opening("write", f"{elsewhere}/s")
    assert "OUT 1" in said(case, tmp_path / "w", ["-c", _TRY, f"{elsewhere}/s"], opening)


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_pairs_of_sockets_lead_nowhere(case: EngineCase, tmp_path: Path) -> None:
    pairs: list[Attempt] = [attempt for attempt in attempts() if "socketpair" in attempt.text]
    assert len(pairs) >= 5
    with World(tmp_path) as world:
        assert world.attack(case.engine(), pairs) == []


_OWN = """\
import asyncio, os, socket, subprocess, multiprocessing as m
a, b = socket.socketpair(); a.send(b"1"); assert b.recv(1) == b"1"
async def go():
    p = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1)
    assert (await p.communicate())[0] == b"hi\\n"
asyncio.run(go())
print("WORKS")
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_what_a_jail_makes_itself_works(case: EngineCase, tmp_path: Path) -> None:
    assert "WORKS" in said(case, tmp_path / "w", ["-c", _OWN])
    if case.name == "Landlock":
        return
    text = "import socket as s; a, b = s.socket(1), s.socket(1); a.bind('s'); a.listen(); b.connect('s')"
    assert "WORKS" in said(case, tmp_path / "w", ["-c", text + "; print('WORKS')"])


_TERMINALS = """\
import contextlib
import os
for name in os.listdir("/dev/pts") if os.access("/dev/pts", os.R_OK) else map(str, range(50)):
    try:
        os.write(os.open("/dev/pts/" + name, os.O_WRONLY | os.O_NOCTTY), b"ESCAPED")
        print("wrote to", name)
    except OSError:
        pass
try:
    a, b = os.openpty(); os.write(b, b"x"); print("own", os.read(a, 1))
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_persons_terminal_is_out_of_reach(case: EngineCase, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    try:
        printed = said(case, tmp_path / "w", ["-c", _TERMINALS])
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):
            os.read(ours, 100)
    finally:
        os.close(ours)
        os.close(theirs)
    assert "wrote to" not in printed.replace("wrote to ptmx", "")
    assert ("own b'x'" in printed) is (case.name != "Landlock"), printed


@pytest.mark.parametrize("case", ENGINES, ids=str)
@pytest.mark.parametrize("bound", ["whole", "relative"])
def test_a_socket_of_a_program_outside_in_the_workspace_is_out_of_reach(case: EngineCase, bound: str) -> None:
    with tempfile.TemporaryDirectory(prefix=".s-", dir=Path(__file__).parent) as folder:
        stream, packets = (socket.socket(socket.AF_UNIX, kind) for kind in (1, 2))
        with contextlib.chdir(folder), stream, packets:
            text = folder if bound == "whole" else "."
            stream.bind(f"{text}/s")
            stream.listen()
            packets.bind(f"{text}/s.d")
            printed = said(case, Path(folder), ["-c", _TRY, f"{folder}/s"])
    assert "OUT" not in printed and len(printed.splitlines()) == 2, printed
