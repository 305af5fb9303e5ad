"""Run one shell hook: JSON on its input, an exit code and optionally JSON on its output.

The format is that of Claude Code's hooks. The hook runs in the sandbox of the session's workspace, without
secrets in its environment and with a time limit. Exit code 2 blocks the action, with the error output as the
reason. So does a decision in the output that is not a yes, even an unknown one: a hook may answer in the
format of another agent or a later version. If a hook before an action can't be started, takes too long or
fails, the caller blocks the action as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from whet.config.permission_settings import HookSettings
from whet.contract.errors import ToolError
from whet.contract.texts import from_foreign_json
from whet.contract.tools import clip
from whet.tools.shell import command_environment

if TYPE_CHECKING:
    from whet.sandbox.jail import Jail

_OUTPUT_BYTES = 64_000
_REASON_CHARS = 2_000
BLOCKS = 2
_YES = frozenset({"", "allow", "approve"})
_DECIDING = frozenset({"decision", "permissionDecision", "continue", "hookSpecificOutput"})
_OBJECT = re.compile(r"^\{", re.MULTILINE)
_CHANGED = "it wants to change the call, and Whet runs a call as it is or not at all"
MakeJail = Callable[[], "Jail | None"]


class HookVerdict(msgspec.Struct, frozen=True):
    """The result of a hook: its reason to block the action, its output, and why it failed; each may be
    empty."""

    block_reason: str = ""
    output: str = ""
    failure: str = ""


class _Specific(msgspec.Struct, frozen=True):
    permission_decision: str = msgspec.field(default="", name="permissionDecision")
    permission_reason: str = msgspec.field(default="", name="permissionDecisionReason")
    context: str = msgspec.field(default="", name="additionalContext")
    updated_input: dict[str, Any] = msgspec.field(default={}, name="updatedInput")


class _Printed(msgspec.Struct, frozen=True):
    decision: str = ""
    permission_decision: str = msgspec.field(default="", name="permissionDecision")
    reason: str = ""
    goes_on: bool = msgspec.field(default=True, name="continue")
    stop_reason: str = msgspec.field(default="", name="stopReason")
    specific: _Specific = msgspec.field(default=_Specific(), name="hookSpecificOutput")


async def run_hook(
    name: str,
    hook: HookSettings,
    facts: Mapping[str, Any],
    workspace: Path,
    make_jail: MakeJail,
    pool: Executor | None = None,
) -> HookVerdict:
    """Run a hook with `facts` as JSON on its input, on a thread of `pool` (None: the loop's own).

    Raises only CancelledError, after the hook was killed; hooks that still wait for a thread are dropped.
    """
    running = _Running()
    try:
        stdin = msgspec.json.encode(facts)
    except UnicodeEncodeError:
        return HookVerdict(failure=f"the hook {name} can't be given half a character")
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(pool, _run, hook, stdin, workspace, make_jail, running)
    try:
        code, out, err = await asyncio.shield(future)
    except asyncio.CancelledError:
        if pool is not None:  # the thread that becomes free must not begin another hook
            pool.shutdown(wait=False, cancel_futures=True)
        running.cancel()
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # otherwise asyncio reports an exception that was never retrieved
        raise
    except (OSError, ToolError, ValueError) as error:
        return HookVerdict(failure=f"the hook {name} could not be run: {error}")
    return _read_verdict(name, hook, (code, out.strip(), err.strip()), facts.get("tool_input") or {})


class _Running:
    """The process of one hook, which can be cancelled from another thread, even before it has started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group = 0
        self.is_cancelled = False

    def set_group(self, group: int) -> None:
        """Record the process group, and kill it if the hook was cancelled meanwhile."""
        with self._lock:
            self._group = group
            if self.is_cancelled:
                self._kill()

    def cancel(self) -> None:
        """Kill the process, or keep it from starting."""
        with self._lock:
            self.is_cancelled = True
            self._kill()

    def _kill(self) -> None:
        if self._group:
            with contextlib.suppress(OSError):
                os.killpg(self._group, signal.SIGKILL)


def _read_verdict(
    name: str, hook: HookSettings, result: tuple[int | None, str, str], tool_input: Mapping[str, Any]
) -> HookVerdict:
    code, out, err = result
    if code is None:
        return HookVerdict(failure=f"the hook {name} passed its limit of {hook.timeout_s:g} s")
    if code == BLOCKS:
        return HookVerdict(block_reason=clip(err or out, _REASON_CHARS) or f"the hook {name} said no")
    if code:
        return HookVerdict(failure=f"the hook {name} failed with exit {code}: {clip(err or out, 300)}")
    try:
        answers = [from_foreign_json(text, _Printed) for text in _find_objects(out)]
    except (msgspec.ValidationError, RecursionError, UnicodeError):
        return HookVerdict(failure=f"the hook {name} printed JSON that can't be read: {clip(out, 300)}")
    for printed in answers:
        if reason := _find_objection(printed, tool_input):
            reason = clip(reason, _REASON_CHARS).replace("the hook", f"the hook {name}", 1)
            return HookVerdict(block_reason=reason)
    return HookVerdict(output="\n".join(printed.specific.context for printed in answers) if answers else out)


def _find_objects(out: str) -> list[str]:
    """Return the answers in a hook's output: the JSON object that it begins with, and later ones that contain
    a decision. Other objects may be the output of programs that the hook has started."""
    objects: list[str] = []
    decoder, end = json.JSONDecoder(), 0
    for match in _OBJECT.finditer(out):
        start = match.start()
        if start < end:
            continue
        with contextlib.suppress(ValueError):
            fields, end = decoder.raw_decode(out, start)
            if start == 0 or not _DECIDING.isdisjoint(fields):
                objects.append(out[start:end])
    return objects


def _find_objection(printed: _Printed, tool_input: Mapping[str, Any]) -> str:
    """Return why a hook's answer blocks the action, or an empty string."""
    specific = printed.specific
    decisions = (printed.decision, printed.permission_decision, specific.permission_decision)
    if not _YES.issuperset(decisions) or not printed.goes_on:
        return printed.reason or specific.permission_reason or printed.stop_reason or "the hook said no"
    changed = {key: value for key, value in specific.updated_input.items() if tool_input.get(key) != value}
    return f"the hook did not agree: {_CHANGED}" if changed else ""


def _run(
    hook: HookSettings, stdin: bytes, workspace: Path, make_jail: MakeJail, running: _Running
) -> tuple[int | None, str, str]:
    """Return the exit code (None after a timeout or a cancel) and the text of both outputs. Blocks."""
    if running.is_cancelled:
        return None, "", ""
    with _memory_file() as into, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        into.write(stdin)
        into.seek(0)
        process = _start(hook.command, workspace, make_jail(), (into, out, err))
        running.set_group(process.pid)
        code: int | None
        try:
            code = process.wait(hook.timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        if code is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
        return code, _read(out), _read(err)


def _memory_file() -> BinaryIO:
    """Return a temporary file, in memory if the system allows: one on a disk takes .4 ms of CPU."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("hook"), "w+b")
    return tempfile.TemporaryFile()


def _start(command: str, workspace: Path, jail: Jail | None, files: tuple[BinaryIO, BinaryIO, BinaryIO]):
    environment = {**command_environment(os.environ), "WHET_PROJECT_DIR": str(workspace)}
    argv = ["/bin/sh", "-c", command]
    into, out, err = files
    if jail is None:
        return subprocess.Popen(
            argv, cwd=workspace, env=environment, stdin=into, stdout=out, stderr=err, start_new_session=True
        )
    from whet.sandbox.jail import JailedCommand  # noqa: PLC0415 - only where commands are confined

    jailed = JailedCommand(argv, jail.environment(environment), workspace)
    return jail.spawn(jailed, (into.fileno(), out.fileno(), err.fileno()))


def _read(file: BinaryIO) -> str:
    file.seek(0)
    return file.read(_OUTPUT_BYTES).decode("utf-8", "replace")
