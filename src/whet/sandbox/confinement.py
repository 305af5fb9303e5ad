"""Which jail a call's command runs in: the everyday policy of its workspace, and what a person opened for it.

One per program. Openings are for one call, or for a session; lasting ones are the settings' or the gate's to
bring. A session's jails share private folders. Jails that run nothing are closed when there are many.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from whet.contract.errors import ToolDenied, ToolError
from whet.sandbox import known
from whet.sandbox.backend import CommandBackend
from whet.sandbox.places import Wishes, everyday
from whet.sandbox.policy import TEMPORARY, Opening, SandboxPolicy, in_temporary
from whet.sandbox.scratch import Scratch, remove_abandoned
from whet.sandbox.status import Engine, EngineStatus

if TYPE_CHECKING:  # 15 ms with all that they stand on, which is for nothing where commands run unconfined
    from whet.sandbox.denial import Denial
    from whet.sandbox.elsewhere import Elsewhere
    from whet.sandbox.jail import Jail

SandboxMode = Literal["auto", "strict", "off"]
_MOST_IDLE_JAILS = 16
_MOST_DENIALS = 200
_KNOWN_S = 60.0  # looking for what a machine has takes 12 ms


class ConfinementSettings(msgspec.Struct, frozen=True):
    """How a program confines: `home` is Whet's own."""

    mode: SandboxMode
    home: Path
    wishes: Wishes = Wishes()
    backend: CommandBackend = CommandBackend()


class Confinement:
    """Gives each call its jail. Thread-safe; nothing is started before the first command."""

    def __init__(self, settings: ConfinementSettings, environment: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._environment = os.environ if environment is None else environment
        self._lock = threading.Lock()
        self._is_kept = False
        self._jails: dict[tuple[str, SandboxPolicy], Jail] = {}
        self._scratches: dict[str, Scratch] = {}
        self._opened: dict[str, tuple[Opening, ...]] = {}
        self._denials: dict[str, Denial] = {}
        self._known: dict[tuple[Path, bool, bool], tuple[float, SandboxPolicy]] = {}

    @property
    def mode(self) -> SandboxMode:
        """What the settings say."""
        return self._settings.mode

    @property
    def is_local(self) -> bool:
        """Whether the shell's commands run on this machine's own system."""
        return self._settings.backend.kind == "local"

    def status(self) -> EngineStatus:
        """Say what holds here; the first call tries it out."""
        if self._settings.mode == "off":
            return EngineStatus("none", known.OFF)
        return self._probed()

    def standing(
        self, workspace: Path | None = None, session_id: str = "", call_id: str = ""
    ) -> EngineStatus:
        """Say what holds the shell's commands, wherever they run. Where that is not known, it is tried out in
        the jail of this call's command, whose launcher goes on to run it."""
        if not self.is_local:
            return self._elsewhere.status()
        if workspace is None or self.settled is not None:
            return self.status()
        policy = self._local(workspace, session_id, call_id)
        tried: list[Jail] = []

        def make(engine: Engine) -> Jail:
            with self._lock:
                tried.append(self._made(engine, policy, self._scratch(session_id)))
            return tried[-1]

        found = self._probed(make)
        with self._lock:
            if tried and tried[-1].launcher_pid:
                kept = self._jails.setdefault((session_id, policy), tried[-1])
                if kept is not tried[-1]:
                    tried[-1].close()
        return found

    def _probed(self, own: Callable[[Engine], Jail] | None = None) -> EngineStatus:
        from whet.sandbox.engine import probe  # noqa: PLC0415  as above

        found = probe(own=own)
        if not self._is_kept:
            self._is_kept = True
            known.keep(self._settings.home, "" if found.holds else found.line)
        return found

    def _scratch(self, session_id: str) -> Scratch:
        scratch = self._scratches.get(session_id)
        if scratch is None:
            scratch = self._scratches[session_id] = Scratch()
        return scratch

    @property
    def settled(self) -> EngineStatus | None:
        """What `standing` says, where that is known without trying anything out."""
        here = self._settings.backend.kind == "local"
        return self.status() if here and (self._is_kept or self._settings.mode == "off") else None

    def open(self, whose: str, openings: Iterable[Opening]) -> None:
        """Let the commands of `whose`, a session's id or a call's, do this much more."""
        with self._lock:
            kept = self._opened.get(whose, ())
            self._opened[whose] = tuple(dict.fromkeys((*kept, *openings)))

    def open_call(self, session_id: str, call_id: str, openings: Iterable[Opening]) -> None:
        """Let one call do this much more, and nothing that a call of the same id was opened before."""
        with self._lock:
            self._denials.pop(call_id, None)
            given = tuple(openings)
            if given:
                self._opened[_call_key(session_id, call_id)] = given
            else:
                self._opened.pop(_call_key(session_id, call_id), None)

    def policy(self, workspace: Path, session_id: str = "", call_id: str = "") -> SandboxPolicy:
        """Give what a command of this call may do."""
        if self._settings.backend.kind != "local":
            return self._elsewhere.policy(workspace)
        return self._local(workspace, session_id, call_id)

    def _local(self, workspace: Path, session_id: str, call_id: str) -> SandboxPolicy:
        wanted = self._openings(session_id, call_id)
        return self._everyday(workspace).opened(one for one in wanted if one.kind != "run")

    def private(self, session_id: str) -> tuple[Path, ...]:
        """Give the temporary folders that are a session's own, by the names that its commands know."""
        with self._lock:
            scratch = self._scratches.get(session_id)
        own = (scratch.root,) if scratch is not None else ()
        return (*TEMPORARY, *own) if self.standing().engine.own_temporary else own

    def place(self, workspace: Path, session_id: str = "", call_id: str = "") -> Jail | None:
        """Give what a command of the shell runs in: a jail here, or where the settings say that they run. A
        person's yes to all rights is for this machine; on another one there are no others. Raises ToolError,
        and ToolDenied."""
        backend = self._settings.backend
        if backend.kind == "local":
            return self.jail(workspace, session_id, call_id)
        if backend.kind == "container" and any(
            one.kind == "run" for one in self._openings(session_id, call_id)
        ):
            return None
        with self._lock:
            key = (session_id, self._elsewhere.policy(workspace))
            if key not in self._jails:
                self._jails[key] = self._elsewhere.jail(workspace, self._scratch(session_id))
            return self._jails[key]

    def jail(self, workspace: Path, session_id: str = "", call_id: str = "") -> Jail | None:
        """Give the jail here that something runs in; None where it runs unconfined, because the settings or a
        person said so, or nothing holds here. Raises ToolDenied where the settings are strict then."""
        if self._settings.mode == "off":
            return None
        if any(one.kind == "run" for one in self._openings(session_id, call_id)):
            return None
        status = self.standing(workspace, session_id, call_id) if self.is_local else self.status()
        if not status.holds:
            if self._settings.mode == "strict":
                raise ToolDenied(
                    f"sandbox.mode is strict, and there is {status.line.partition(';')[0]}",
                    hint="whet sandbox status says why",
                )
            return None
        policy = self._local(workspace, session_id, call_id)
        with self._lock:
            key = (session_id, policy)
            if key not in self._jails:
                self._tidy()
                self._jails[key] = self._made(status.engine, policy, self._scratch(session_id))
            return self._jails[key]

    def _made(self, engine: Engine, policy: SandboxPolicy, scratch: Scratch) -> Jail:
        from whet.sandbox.jail import Jail  # noqa: PLC0415  as above
        from whet.sandbox.setup import JailPlan  # noqa: PLC0415  as above

        home = Path(self._environment.get("HOME") or os.path.expanduser("~")).resolve()
        return Jail(JailPlan(engine, policy, scratch, home, self._settings.home / "aside"))

    def look(
        self, argv: list[str], environment: Mapping[str, str], workspace: Path, limit_s: float
    ) -> str | None:
        """Run a command that may read what the workspace's commands may, write nothing but folders of its
        own, and reach nobody. Gives what it printed; None where nothing would hold it or it failed."""
        if not self.is_local or not (status := self.status()).holds:
            return None
        scratch = Scratch()
        everyday_policy = self._everyday(workspace)
        policy = msgspec.structs.replace(
            everyday_policy,
            workspace=scratch.tmp,
            read=(*everyday_policy.read, *everyday_policy.write, everyday_policy.workspace),
            write=(),
            hosts=(),
        )
        from whet.sandbox.jail import JailedCommand  # noqa: PLC0415  as above

        jail = self._made(status.engine, policy, scratch)
        try:
            wanted = JailedCommand(argv, jail.environment(environment), everyday_policy.workspace)
            code, printed = jail.run(wanted, limit_s)
        except (OSError, ToolError):
            return None
        finally:
            jail.close()
            scratch.close()
        return None if code else printed

    def explain(self, call_id: str, jail: Jail, said: tuple[str, str, Path]) -> Denial | None:
        """Say how the wall stopped a failed command, from (command, output, cwd), and keep it."""
        from whet.sandbox.denial import Denial, explain  # noqa: PLC0415  3 ms, and few commands meet the wall

        command, output, cwd = said
        found = explain(jail.policy, command, output, cwd, jail.take_refused())
        if found is not None:
            if not jail.plan.engine.own_temporary and any(in_temporary(one.target) for one in found.openings):
                found = Denial(f"{found.what}, but $TMPDIR is a folder of its own", found.openings)
            with self._lock:
                self._denials[call_id] = found
                for old in list(self._denials)[:-_MOST_DENIALS]:
                    del self._denials[old]
        return found

    def denied(self, call_id: str) -> Denial | None:
        """Give what the wall stopped a call at, with the openings that would let it through."""
        with self._lock:
            return self._denials.get(call_id)

    def close(self) -> None:
        """End every jail and remove the private folders, also those that killed programs left."""
        with self._lock:
            had_folders = bool(self._scratches)
            for jail in self._jails.values():
                jail.close()
            for scratch in self._scratches.values():
                scratch.close()
            self._jails.clear()
            self._scratches.clear()
        if had_folders:
            remove_abandoned()

    @cached_property
    def _elsewhere(self) -> Elsewhere:
        from whet.sandbox.elsewhere import Elsewhere  # noqa: PLC0415  5 ms, and most commands run here

        return Elsewhere(self._settings)

    def _everyday(self, workspace: Path) -> SandboxPolicy:
        """Give the workspace's policy; what is installed meanwhile is noticed within a minute."""
        git = workspace / ".git"
        key = (workspace, git.is_dir(), git.is_file())
        with self._lock:
            known = self._known.get(key)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        made = everyday(workspace, self._settings.home, self._environment, self._settings.wishes)
        with self._lock:
            self._known[key] = (time.monotonic() + _KNOWN_S, made)
        return made

    def _openings(self, session_id: str, call_id: str) -> tuple[Opening, ...]:
        with self._lock:
            found = (*self._opened.get(session_id, ()), *self._opened.get(_call_key(session_id, call_id), ()))
        return tuple(sorted(set(found)))

    def _tidy(self) -> None:
        idle = [key for key, jail in self._jails.items() if not jail.is_busy]
        for key in idle[: max(0, len(self._jails) - _MOST_IDLE_JAILS)]:
            self._jails.pop(key).close()


def _call_key(session_id: str, call_id: str) -> str:
    """Give what a call's openings are kept under: models use their call ids twice, in other sessions too."""
    return f"{session_id}\0{call_id}"
