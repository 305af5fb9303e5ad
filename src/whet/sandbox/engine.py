"""Find the best engine on this machine by running `true` in a sandbox, and record why better ones don't work.

Bubblewrap is tried first, then Landlock with its own namespaces, then Landlock alone; on a Mac
sandbox-exec. The result is cached for the process. `EngineStatus.line` reports which engine is used and
its gaps.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from whet.contract.errors import ToolError
from whet.sandbox.bubblewrap import find_bubblewrap
from whet.sandbox.engine_cache import OPEN
from whet.sandbox.filter import has_filter
from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.landlock import OLDEST_ABI, landlock_abi
from whet.sandbox.scratch import Scratch
from whet.sandbox.seatbelt import SANDBOX_EXEC
from whet.sandbox.setup import JailPlan
from whet.sandbox.status import Engine, EngineName, EngineStatus
from whet.sandbox.system_folders import default_policy

MakeJail = Callable[[Engine], Jail]
_ORDER: tuple[EngineName, ...] = ("bubblewrap", "landlock")
_lock = threading.Lock()
statuses: dict[EngineName | None, EngineStatus] = {}


def probe(only: EngineName | None = None, make_jail: MakeJail | None = None) -> EngineStatus:
    """Return the best engine that works here, or whether `only` works. The first call takes 0.2 s.

    A jail made by `make_jail` is tried first. If it works, it stays open and belongs to the caller.
    """
    with _lock:
        if only not in statuses:
            statuses[only] = _probe(only, make_jail)
        return statuses[only]


def _probe(only: EngineName | None, make_jail: MakeJail | None) -> EngineStatus:
    if sys.platform == "darwin":
        return _probe_mac()
    if sys.platform != "linux":
        return EngineStatus("none", f"no sandbox: there is none for {sys.platform}; {OPEN}")
    if not has_filter(platform.machine()):
        return EngineStatus("none", f"no sandbox: none for {platform.machine()}; {OPEN}")
    tried: list[tuple[str, str]] = []
    for name, engine, problem in candidates():
        if only is not None and engine.name != only:
            continue
        holds = not problem and make_jail is not None and _holds(make_jail(engine))
        why = "" if holds else problem or find_problem(engine)
        if not why:
            return EngineStatus(engine.name, _line(engine, tried), engine, tuple(tried))
        tried.append((name, why))
    why = "; ".join(f"{name}: {reason}" for name, reason in tried)
    return EngineStatus("none", f"no sandbox ({why}); {OPEN}", tried=tuple(tried))


def candidates() -> list[tuple[str, Engine, str]]:
    """Return (display name, engine, why it can't be tried) of each engine, best first."""
    program, abi = find_bubblewrap(Path.cwd()), landlock_abi()
    old = ""
    if abi < OLDEST_ABI:
        old = f"the kernel's version is {abi}, {OLDEST_ABI} is needed" if abi else "the kernel has none"
    return [
        ("bubblewrap", Engine("bubblewrap", program or ""), "" if program else "bwrap is not installed"),
        ("Landlock with namespaces", Engine("landlock", abi=abi, namespaces=True), old),
        ("Landlock", Engine("landlock", abi=abi), old),
    ]


def find_problem(engine: Engine) -> str:
    """Run `true` under this engine. Returns why it does not work, or an empty string if it does."""
    scratch = Scratch()
    try:
        with tempfile.TemporaryDirectory(prefix="whet-probe-") as folder:
            workspace = Path(folder).resolve()
            policy = default_policy(workspace, workspace / "none", os.environ)
            jail = Jail(JailPlan(engine, policy, scratch, Path(os.path.expanduser("~")).resolve()))
            try:
                return _run_true(jail)
            finally:
                jail.close()
    except ToolError as error:
        return error.message.removeprefix("the sandbox can't be started: ")
    except OSError as error:
        return error.strerror or str(error)
    finally:
        scratch.close()


def _holds(jail: Jail) -> bool:
    """Return whether this jail works. Closes it if not; its policy may be the cause."""
    try:
        if not _run_true(jail):
            return True
    except (OSError, ToolError, subprocess.TimeoutExpired):
        pass
    jail.close()
    return False


def _run_true(jail: Jail) -> str:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        true = JailedCommand(["true"], {"PATH": "/usr/bin:/bin"}, jail.policy.workspace, is_probe=True)
        code = jail.spawn(true, (null, null, null)).wait(20)
        return f"true exits {code} in it" if code else ""
    finally:
        os.close(null)


def _line(engine: Engine, tried: list[tuple[str, str]]) -> str:
    holds = {
        "bubblewrap": "bubblewrap holds: own files, network, processes",
        "landlock": f"Landlock {engine.abi} and seccomp hold"
        + (
            ", with own mounts, network and processes"
            if engine.namespaces
            else ": files, and no sockets at all"
        ),
    }[engine.name]
    return holds + (f" (not {tried[0][0]}: {tried[0][1]})" if tried else "")


def _probe_mac() -> EngineStatus:
    engine = Engine("seatbelt", SANDBOX_EXEC)
    why = find_problem(engine) if os.access(engine.program, os.X_OK) else "sandbox-exec is not there"
    if why:
        return EngineStatus("none", f"no sandbox ({why}); {OPEN}")
    line = "sandbox-exec holds: files, and no network (untried by us on a real Mac)"
    return EngineStatus("seatbelt", line, engine)
