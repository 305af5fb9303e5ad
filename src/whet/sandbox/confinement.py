"""Choose the sandbox of each call: the default policy of its workspace, plus the openings that a person
approved.

There is one Confinement per program. Openings apply to one call or to one session; permanent ones come
from the settings or the gate. The sandboxes of a session share its private folders. If there are too many,
idle sandboxes are closed, and the folders of sessions that are no longer in memory are removed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.contract.errors import ToolDenied, ToolError
from whet.sandbox import engine_cache
from whet.sandbox.backend import ConfinementSettings, SandboxMode
from whet.sandbox.holds import JobHolds
from whet.sandbox.policy import TEMPORARY, Opening, SandboxPolicy, is_temporary
from whet.sandbox.scratch import Scratch, SessionFolders, remove_abandoned
from whet.sandbox.status import Engine, EngineStatus
from whet.sandbox.system_folders import default_policy

if TYPE_CHECKING:  # imports 15 ms of modules that unconfined commands don't need
    from whet.sandbox.denial import Denial
    from whet.sandbox.jail import Jail
    from whet.sandbox.remote_sandboxes import RemoteBackend

_MAX_IDLE_JAILS = 16
_MAX_DENIALS, _MAX_READING = 200, 200
_POLICY_TTL_S = 60.0  # finding the installed toolchains takes 12 ms


class Confinement:
    """Assigns each call its sandbox. Thread-safe. Starts nothing before the first command."""

    def __init__(self, settings: ConfinementSettings, environment: Mapping[str, str] | None = None) -> None:
        self._settings, self._has_probed, self._lock = settings, False, threading.Lock()
        self._environment = os.environ if environment is None else environment
        self._jails: dict[tuple[str, SandboxPolicy], Jail] = {}
        self.folders: SessionFolders = SessionFolders()
        """The private folders of the sessions; whoever drops a session from memory releases its folders."""
        self._calls = _CallRights()
        self.holds: JobHolds = JobHolds(self._jails)
        self.denials: dict[str, Denial] = {}
        self._known: dict[tuple[Path, bool, bool], tuple[float, SandboxPolicy]] = {}

    @property
    def mode(self) -> SandboxMode:
        """The sandbox mode of the settings."""
        return self._settings.mode

    @property
    def is_local(self) -> bool:
        """Whether shell commands run on this machine."""
        return self._settings.backend.kind == "local"

    def status(self) -> EngineStatus:
        """Return which engine works here. The first call tries it out."""
        if self._settings.mode == "off":
            return EngineStatus("none", engine_cache.OFF)
        return self._probe()

    def command_status(
        self, workspace: Path | None = None, session_id: str = "", call_id: str = ""
    ) -> EngineStatus:
        """Return what confines shell commands, wherever they run.

        If that is not known yet, try it out in the sandbox of this call's command. Its launcher is kept
        and runs the command.
        """
        if not self.is_local:
            return self._remote_backend.status()
        if workspace is None or self.known_status is not None:
            return self.status()
        policy = self._local_policy(workspace, session_id, call_id)
        tried: list[Jail] = []

        def make(engine: Engine) -> Jail:
            with self._lock:
                tried.append(self._make_jail(engine, policy, self._scratch(session_id)))
            return tried[-1]

        status = self._probe(make)
        with self._lock:
            started = tried[-1] if tried and tried[-1].launcher_pid else None
            if started and self._jails.setdefault((session_id, policy), started) is not started:
                started.close()
        return status

    def _probe(self, make_jail: Callable[[Engine], Jail] | None = None) -> EngineStatus:
        from whet.sandbox.engine import probe  # noqa: PLC0415  as above

        status = probe(make_jail=make_jail)
        if not self._has_probed:
            self._has_probed = True
            engine_cache.write_status(self._settings.home, "" if status.holds else status.line)
        return status

    def _scratch(self, session_id: str) -> Scratch:
        busy_ids = {owner_id for (owner_id, _), jail in self._jails.items() if jail.is_busy}
        for expired_id in self.folders.remove_expired(busy_ids | {session_id}):
            for key in [key for key in self._jails if key[0] == expired_id]:
                self._jails.pop(key).close()
        return self.folders.get(session_id)

    @property
    def known_status(self) -> EngineStatus | None:
        """The result of `command_status` if it is known without trying anything out, else None."""
        is_local = self._settings.backend.kind == "local"
        return self.status() if is_local and (self._has_probed or self._settings.mode == "off") else None

    def add_openings(self, owner_id: str, openings: Iterable[Opening]) -> None:
        """Add openings for the commands of `owner_id`, which is a session's id or a call's."""
        self._calls.add(owner_id, openings)

    def set_call_openings(
        self, session_id: str, call_id: str, openings: Iterable[Opening], *, only_reads: bool = False
    ) -> None:
        """Set the openings of one call, and whether its command only reads, in place of an earlier call's."""
        with self._lock:
            self.denials.pop(call_id, None)
        self._calls.set_call(_call_key(session_id, call_id), tuple(openings), only_reads=only_reads)

    def policy(self, workspace: Path, session_id: str = "", call_id: str = "") -> SandboxPolicy:
        """Return the policy for a command of this call."""
        if self._settings.backend.kind != "local":
            return self._remote_backend.policy(workspace)
        return self._local_policy(workspace, session_id, call_id)

    def _local_policy(self, workspace: Path, session_id: str, call_id: str) -> SandboxPolicy:
        openings = self._calls.openings(session_id, call_id)
        return self._default_policy(workspace, openings).with_openings(
            opening for opening in openings if opening.kind != "run"
        )

    def private_folders(self, session_id: str) -> tuple[Path, ...]:
        """Return the session's own temporary folders, by the paths that its commands use."""
        with self._lock:
            scratch = self.folders.find(session_id)
        folders = (scratch.root,) if scratch is not None else ()
        return (*TEMPORARY, *folders) if self.command_status().engine.own_temporary else folders

    def shell_jail(self, workspace: Path, session_id: str = "", call_id: str = "") -> Jail | None:
        """Return the sandbox for a shell command: on this machine, or on the configured backend. None if it
        runs unconfined.

        A person's permission to run unconfined applies to this machine only, so with an ssh backend it
        changes nothing. Raises ToolError and ToolDenied.
        """
        backend = self._settings.backend
        if backend.kind == "local":
            jail = self.jail(workspace, session_id, call_id)
            if jail is not None and self._calls.only_reads(session_id, call_id):
                return self._reading_jail(jail, session_id)
            return jail
        if backend.kind == "container" and any(
            opening.kind == "run" for opening in self._calls.openings(session_id, call_id)
        ):
            return None
        with self._lock:
            key = (session_id, self._remote_backend.policy(workspace))
            if key not in self._jails:
                self._jails[key] = self._remote_backend.jail(workspace, self._scratch(session_id))
            return self._jails[key]

    def jail(
        self, workspace: Path, session_id: str = "", call_id: str = "", *, read_only: bool = False
    ) -> Jail | None:
        """Return the sandbox on this machine, or None if the settings or a person allow running without one
        or if no engine works. `read_only`: no writing, no network.

        Raises ToolDenied if no engine works in strict mode.
        """
        openings = () if read_only else self._calls.openings(session_id, call_id)
        if self._settings.mode == "off" or any(opening.kind == "run" for opening in openings):
            return None
        status = self.command_status(workspace, session_id, call_id) if self.is_local else self.status()
        if not status.holds:
            if self._settings.mode == "strict":
                raise ToolDenied(
                    f"sandbox.mode is strict, and there is {status.line.partition(';')[0]}",
                    hint="whet sandbox status says why",
                )
            return None
        policy = self._local_policy(workspace, session_id, call_id)
        with self._lock:
            policy = _forbid_writing(policy, self._scratch(session_id).tmp) if read_only else policy
            return self._keep_jail(status.engine, policy, session_id)

    def _reading_jail(self, jail: Jail, session_id: str) -> Jail:
        """Return a sandbox that reads and reaches what `jail` does and writes only to the session's folders.

        So files with hard links elsewhere need not be copied, and nothing needs to be recorded.
        """
        with self._lock:
            policy = _forbid_writing(jail.policy, self._scratch(session_id).tmp)
            policy = msgspec.structs.replace(policy, hosts=jail.policy.hosts)
            return self._keep_jail(jail.plan.engine, policy, session_id)

    def _keep_jail(self, engine: Engine, policy: SandboxPolicy, session_id: str) -> Jail:
        if (key := (session_id, policy)) not in self._jails:
            self._tidy()
            self._jails[key] = self._make_jail(engine, policy, self._scratch(session_id))
            self.holds.note_new(session_id, policy)
        return self._jails[key]

    def _make_jail(self, engine: Engine, policy: SandboxPolicy, scratch: Scratch) -> Jail:
        from whet.sandbox.jail import Jail  # noqa: PLC0415  as above
        from whet.sandbox.setup import JailPlan  # noqa: PLC0415  as above

        home = Path(self._environment.get("HOME") or os.path.expanduser("~")).resolve()
        return Jail(JailPlan(engine, policy, scratch, home, self._settings.home / "aside"))

    def run_read_only(
        self, argv: list[str], environment: Mapping[str, str], workspace: Path, limit_s: float
    ) -> str | None:
        """Run a command that can read the workspace, but write only to a scratch folder and reach no network.

        Returns its output, or None if it can't be confined or failed.
        """
        if not self.is_local or not (status := self.status()).holds:
            return None
        scratch = Scratch()
        everyday_policy = self._default_policy(workspace)
        policy = _forbid_writing(everyday_policy, scratch.tmp)
        from whet.sandbox.jail import JailedCommand  # noqa: PLC0415  as above

        jail = self._make_jail(status.engine, policy, scratch)
        try:
            command = JailedCommand(argv, jail.environment(environment), everyday_policy.workspace)
            code, printed = jail.run(command, limit_s)
        except (OSError, ToolError):
            return None
        finally:
            jail.close()
            scratch.close()
        return None if code else printed

    def explain(self, call_id: str, jail: Jail, attempt: tuple[str, str, Path]) -> Denial | None:
        """Explain how the sandbox stopped a failed command, given (command, output, cwd), and remember the
        explanation."""
        from whet.sandbox.denial import Denial, explain  # noqa: PLC0415  3 ms, and few commands meet the wall

        command, output, cwd = attempt
        refused = jail.take_refused_hosts()
        denial = explain(jail.policy, command, output, cwd, refused, self._settings.rules)
        if denial is not None:
            if not jail.plan.engine.own_temporary and any(
                is_temporary(opening.target) for opening in denial.openings
            ):
                denial = Denial(f"{denial.what}, but $TMPDIR is a folder of its own", denial.openings)
            with self._lock:
                self.denials[call_id] = denial
                for old in list(self.denials)[:-_MAX_DENIALS]:
                    del self.denials[old]
        return denial

    def denial_of(self, call_id: str) -> Denial | None:
        """Return why the sandbox stopped a call and the openings that would allow it, or None."""
        with self._lock:
            return self.denials.get(call_id)

    def close(self) -> None:
        """Close every sandbox and remove the private folders, including those that killed programs left."""
        with self._lock:
            for jail in self._jails.values():
                jail.close()
            self._jails.clear()
            had_folders = self.folders.close()
        if had_folders:
            remove_abandoned()

    @cached_property
    def _remote_backend(self) -> RemoteBackend:
        from whet.sandbox.remote_sandboxes import RemoteBackend  # noqa: PLC0415  5 ms, and most commands run here

        return RemoteBackend(self._settings)

    def _default_policy(self, workspace: Path, openings: Iterable[Opening] = ()) -> SandboxPolicy:
        """Return the workspace's default policy. Newly installed toolchains are noticed within a minute."""
        git = workspace / ".git"
        key = (workspace, git.is_dir(), git.is_file())
        with self._lock:
            cached = self._known.get(key)
        if cached is not None and time.monotonic() < cached[0]:
            return _apply_rules(cached[1], self._settings, openings)
        policy = default_policy(workspace, self._settings.home, self._environment, self._settings.wishes)
        with self._lock:
            self._known[key] = (time.monotonic() + _POLICY_TTL_S, policy)
        return _apply_rules(policy, self._settings, openings)

    def _tidy(self) -> None:
        idle = [key for key, jail in self._jails.items() if not jail.is_busy]
        for key in idle[: max(0, len(self._jails) - _MAX_IDLE_JAILS)]:
            self._jails.pop(key).close()


class _CallRights:
    """The openings of sessions and calls, and which calls only read. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[Opening, ...]] = {}
        self._reading: dict[str, None] = {}

    def add(self, owner_id: str, openings: Iterable[Opening]) -> None:
        """Add openings of a session or a call."""
        with self._lock:
            existing = self._opened.get(owner_id, ())
            self._opened[owner_id] = tuple(dict.fromkeys((*existing, *openings)))

    def set_call(self, key: str, openings: tuple[Opening, ...], *, only_reads: bool) -> None:
        """Set what one call has."""
        with self._lock:
            self._opened.pop(key, None)
            self._reading.pop(key, None)
            if openings:
                self._opened[key] = openings
            if only_reads:
                self._reading[key] = None
                for old in list(self._reading)[:-_MAX_READING]:
                    del self._reading[old]

    def openings(self, session_id: str, call_id: str) -> tuple[Opening, ...]:
        """Return the openings of a session and one of its calls."""
        owners = (session_id, _call_key(session_id, call_id))
        with self._lock:
            return tuple(sorted({opening for owner in owners for opening in self._opened.get(owner, ())}))

    def only_reads(self, session_id: str, call_id: str) -> bool:
        """Return whether a call's command only reads."""
        with self._lock:
            return _call_key(session_id, call_id) in self._reading


def _call_key(session_id: str, call_id: str) -> str:
    """Return the key of a call's openings. The session is part of it because models reuse call ids."""
    return f"{session_id}\0{call_id}"


def _forbid_writing(policy: SandboxPolicy, folder: Path) -> SandboxPolicy:
    """Return a policy that reads what `policy` reads, writes only to `folder` and reaches no network."""
    readable = (*policy.read, *policy.write, policy.workspace)
    return msgspec.structs.replace(policy, workspace=folder, read=readable, write=(), hosts=())


def _apply_rules(
    policy: SandboxPolicy, settings: ConfinementSettings, openings: Iterable[Opening]
) -> SandboxPolicy:
    """Return the policy without what deny rules protect now: files may have been created since, or opened
    under other names."""
    if not settings.rules.rules:
        return policy
    paths = [opening.target for opening in openings if opening.kind in ("read", "write")]
    folders = (Path(os.path.expanduser(text)).resolve() for text in (*settings.wishes.read, *paths))
    closed, fixed = settings.rules.list_files(policy.workspace, (*policy.write, *folders))
    return msgspec.structs.replace(policy, closed=closed, fixed=fixed)
