"""The `terminal` and `process` tools: run shell commands, and control those in the background.

Results are readable text, head and tail, with the exit code. A command gets the user's environment without
variables that look like secrets. Commands are not judged here: the gate has done that, including `stdin`
and the text that `process` writes.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from whet.config.secret_variables import is_secret
from whet.contract.errors import BadInput
from whet.contract.texts import replace_surrogates
from whet.contract.tools import ToolOutput, clip
from whet.file_names import printable
from whet.log import mask_keys
from whet.searchpath import find_shell
from whet.tools.end_folder import has_report, may_move
from whet.tools.output import is_binary, strip_terminal_control
from whet.tools.process import Process
from whet.tools.session_processes import SessionProcesses
from whet.tools.spawn import ProcessSpec

if TYPE_CHECKING:
    from whet.tools.toolsets.terminal import ShellLimits

MAX_TIMEOUT_S = 3600.0
_QUIET = {
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",  # otherwise reading writes the index, and a hook runs
    "PYTHONUNBUFFERED": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}
_STARTS_SHELLS = frozenset({"BASH_ENV", "ENV"})
# Drivers with custom names can't be set here; for those the gate reads a repository's settings.
_GIT_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("safe.bareRepository", "explicit"),
    ("diff.autoRefreshIndex", "false"),
    ("log.showSignature", "false"),
    ("core.alternateRefsCommand", "true"),
)
_DUMB = {"TERM": "dumb", "NO_COLOR": "1", "GIT_EDITOR": "true"}
_FEED_INTERVAL_S = 0.05
_FEED_CAP_BYTES = 4096
_PIPE_GRACE_S = 0.5
_STATUS_CHARS = 400
_VIM_WAITS = "Vim: Warning: Output is not to a terminal"
_CONTINUATION = bytes(range(0x80, 0xC0))


def command_environment(
    source: Mapping[str, str], pass_variables: Collection[str] = (), *, pty: bool = False
) -> dict[str, str]:
    """Return a command's environment: `source` without secrets, and set up so that no program waits for a
    person."""
    return dict(_environment(_items(source), frozenset(pass_variables), pty))


def _items(source: Mapping[str, str]) -> tuple[tuple[str, str], ...] | tuple[tuple[bytes, bytes], ...]:
    # This process's own environment as bytes: decoding all of it for every command takes a tenth of a spawn's
    # time.
    return tuple(os.environb.items()) if source is os.environ else tuple(source.items())


@lru_cache(maxsize=8)
def _environment(
    items: tuple[tuple[str | bytes, str | bytes], ...], pass_variables: frozenset[str], pty: bool
) -> Mapping[str, str]:
    """Return the environment for `items`; the same object while they are unchanged."""
    source = {os.fsdecode(name): os.fsdecode(value) for name, value in items}
    withheld = _withheld(items, pass_variables)
    allowed = {name: value for name, value in source.items() if name not in withheld}
    variables = {
        **allowed,
        **_QUIET,
        **_git_settings(allowed, withheld),
        **({"TERM": "xterm-256color"} if pty else _DUMB),
    }
    return MappingProxyType(variables)


@lru_cache(maxsize=8)
def _withheld(
    items: tuple[tuple[str | bytes, str | bytes], ...], pass_variables: frozenset[str]
) -> frozenset[str]:
    """Return the names of the variables that look like secrets, or that name a file which a shell runs first
    and which may set them again, and are not among those to pass."""
    source = {os.fsdecode(name): os.fsdecode(value) for name, value in items}
    return frozenset(
        name
        for name, value in source.items()
        if name not in pass_variables and (name in _STARTS_SHELLS or is_secret(name, value))
    )


def _git_settings(environment: Mapping[str, str], withheld: frozenset[str]) -> dict[str, str]:
    """Return variables that stop git from running programs that a repository names, added to the existing
    ones. Git ends if a setting's value is missing, so a withheld one becomes a setting of no meaning."""
    existing_count = environment.get("GIT_CONFIG_COUNT", "")
    first = int(existing_count) if existing_count.isascii() and existing_count.isdigit() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(_GIT_SETTINGS))}
    for at in (name.rpartition("_")[2] for name in withheld if name.startswith("GIT_CONFIG_VALUE_")):
        variables |= {f"GIT_CONFIG_KEY_{at}": "whet.withheld", f"GIT_CONFIG_VALUE_{at}": ""}
    for at, (key, value) in enumerate(_GIT_SETTINGS, first):
        variables |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return variables


def command_spec(
    workspace: Path,
    command: str,
    workdir: str,
    mode: tuple[str, bool, bool],
    settings: tuple[ShellLimits, Mapping[str, str]],
) -> ProcessSpec:
    """Return a command as it is to be run.

    `mode` is its input, whether it gets a terminal, and whether it runs in the background. `settings` are
    the limits and the environment that it gets without secrets. Raises BadInput.
    """
    (stdin, pty, background), (limits, source) = mode, settings
    waits_for_input = background or pty  # a terminal must be sent an end of file
    return ProcessSpec(
        text=command,
        workdir=_resolve_workdir(workspace, workdir),
        environment=_environment(_items(source), frozenset(limits.pass_variables), pty),
        withheld=_withheld(_items(source), frozenset(limits.pass_variables)),
        pty=pty,
        stdin=stdin.encode("utf-8", "replace") if stdin or waits_for_input else None,
        keep_stdin=background,
        output_cap_bytes=4 * limits.output_cap_chars,
        workspace=workspace.resolve() if not background and has_report(command) else None,
        shell=find_shell(workspace),
    )


class Shell:
    """Runs commands and manages those in the background."""

    def __init__(self, processes: SessionProcesses, limits: ShellLimits) -> None:
        self._processes = processes
        self._limits = limits

    async def run(self, job: ProcessSpec, timeout_s: float, show: Callable[[str], None]) -> ToolOutput:
        """Run a command until it ends or reaches its time limit and return its output, which `show` gets as
        it arrives.

        Processes that it leaves running are published as a background process. Cancelling stops the
        command.
        """
        process = self._processes.start(job)
        limit_s = _time_limit(timeout_s, self._limits.timeout_s)
        try:
            in_time = await _watch(process, limit_s, show)
            if in_time and not process.exited.is_set():
                return _background_result(self._processes, process, self._limits)
            if not in_time:
                await process.stop()
            await process.wait_output_end(_PIPE_GRACE_S)
        except asyncio.CancelledError:
            try:
                await process.stop(0.5)
            finally:
                self._processes.forget(process)
            raise
        return _result(self._processes, process, None if in_time else limit_s, self._limits)

    def start(self, job: ProcessSpec) -> ToolOutput:
        """Start a command in the background and return its name."""
        self._processes.check_room()
        process = self._processes.start(job)
        name = self._processes.publish(process)
        notice = f"[running in the background as {name}, pid {process.pid}; see it with process]"
        return ToolOutput(notice, received=job.may_receive, runs_on=name)

    def list_processes(self, more: Sequence[str] = ()) -> ToolOutput:
        """Return the background processes, one line each, and the lines of `more`."""
        lines = [*map(_line, self._processes.list_background()), *more]
        return ToolOutput("\n".join(lines) or "no background processes")

    async def read_new_output(
        self, name: str, wait_s: float | None, show: Callable[[str], None]
    ) -> ToolOutput:
        """Return a process's output since the last call, after its exit or after `wait_s` if given."""
        process = _find(self._processes, name)
        if wait_s is not None:
            await _watch(process, _time_limit(wait_s, 30.0), show)
            if process.exited.is_set():  # its last output may still be in the pipe
                await process.wait_output_end(_PIPE_GRACE_S)
        output = _report(process, self._limits, is_kill=False)
        return output if wait_s is None else msgspec.structs.replace(output, cpu_s=0.0)  # the call only waits

    async def kill(self, name: str) -> ToolOutput:
        """End a process and its children and return their remaining output."""
        process = _find(self._processes, name)
        await process.stop()
        await process.wait_output_end(_PIPE_GRACE_S)
        return _report(process, self._limits, is_kill=True)

    def send(self, name: str, text: str, *, newline: bool, eof: bool) -> ToolOutput:
        """Send text to a process's input."""
        process = _find(self._processes, name)
        if newline and not (eof and not text):
            # The Enter key sends a carriage return; programs in raw mode accept nothing else.
            text += "\r" if process.command.pty else "\n"
        data = text.encode("utf-8", "replace")
        process.write(data, ends=eof)
        return ToolOutput(f"[{len(data)} bytes sent to {process.id}{', input closed' if eof else ''}]")


def _result(
    processes: SessionProcesses, process: Process, passed_s: float | None, limits: ShellLimits
) -> ToolOutput:
    body = _read_text(process, limits.output_cap_chars - _STATUS_CHARS)
    notes: list[str] = []
    leftover_id = ""
    if passed_s is not None:
        advice = "raise timeout_s or use background=true"
        if _VIM_WAITS in body:
            advice = "vim waited for keys: give all of them in stdin, or use another tool"
        notes.append(f"[stopped after {passed_s:g} s, its time limit; {advice}]")
    elif process.exit_code:
        notes.append(_exit_note(process.exit_code))
    elif not body:
        notes.append("[no output, exit 0]")
    notes.append(_withheld_note(process, body))
    folder, where = (None, "") if passed_s is not None else _find_end_folder(process)
    notes.append(where)
    paths, aside = process.restored_paths
    if paths:
        names = ", ".join(map(str, paths))
        notes.append(
            f"[the sandbox took back what it made of {names}, which may start programs outside; if the person"
            f" changed that meanwhile, theirs is in {aside}]"
        )
    if passed_s is None and (process.has_children() or not process.output_ended.is_set()):
        leftover_id = processes.publish(process)
        notes.append(f"[it left children that still run in the background as {leftover_id}]")
    else:
        processes.forget(process)
    kind = "timeout" if passed_s is not None else "exit" if process.exit_code else ""
    ran = process.command
    received = ran.may_receive if leftover_id else ran.has_received
    return ToolOutput(
        _join_parts(body, notes),
        kind,
        process.exit_code,
        folder=folder,
        pipeline=process.end_folder.pipeline if process.end_folder is not None else (),
        received=received,
        runs_on=leftover_id,
        cpu_s=process.cpu_s if passed_s is None else None,  # a killed command's children are not counted
    )


def _withheld_note(process: Process, body: str) -> str:
    """Name the withheld variables that a command used, or that its error output names."""
    command = process.command
    failed_text = body if process.exit_code else ""
    names = [
        name
        for name in sorted(command.withheld)
        if f"${name}" in command.text or f"${{{name}" in command.text or name in failed_text
    ]
    if not names:
        return ""
    return (
        f"[commands don't get {', '.join(names)}, which looks like a secret; the person can allow it with:"
        f" whet config set sandbox.variables {','.join(names)}]"
    )


def _find_end_folder(process: Process) -> tuple[str | None, str]:
    """Return the folder below the workspace that a command moved to, or None, and a line that reports it."""
    root = process.command.workspace
    ended = process.end_folder.take() if process.end_folder is not None else None
    if root is None or ended in (None, process.command.workdir) or not may_move(process.command.text):
        return None, ""
    if not ended.is_relative_to(root):
        reason = "it is outside the workspace"
        return None, f"[cd to {printable(str(ended))} held for this command only: {reason}]"
    folder = "" if ended == root else str(ended.relative_to(root))
    if replace_surrogates(folder) != folder:  # it can't be stored with the call
        return None, f"[cd to {printable(folder)} held for this command only: its name is not UTF-8]"
    return folder, f"[the next command begins in {folder or 'the workspace'}]"


def _background_result(processes: SessionProcesses, process: Process, limits: ShellLimits) -> ToolOutput:
    """Return a command's output until the person moved it to the background, and its name there."""
    body = _read_text(process, limits.output_cap_chars - _STATUS_CHARS)
    name = processes.publish(process)
    note = f"[the person put it into the background, where it runs on as {name}; see it with process]"
    return ToolOutput(_join_parts(body, [note]), received=process.command.may_receive, runs_on=name)


def _report(process: Process, limits: ShellLimits, *, is_kill: bool) -> ToolOutput:
    body = _read_text(process, limits.output_cap_chars - _STATUS_CHARS)
    failed = bool(process.exit_code) and not is_kill
    status = f"[{_line(process)}]" if body else f"[{_line(process)}; no new output]"
    kind = "exit" if failed else ""
    over = "" if process.is_alive() else process.id
    return ToolOutput(
        _join_parts(body, [status]), kind, process.exit_code, received=process.command.has_received, over=over
    )


async def _watch(process: Process, timeout_s: float, show: Callable[[str], None]) -> bool:
    feed = LiveFeed(show)
    process.on_output = feed.take
    try:
        return await process.wait_until_released(timeout_s)
    finally:
        process.on_output = None
        feed.close()


class LiveFeed:
    """Passes output on as it arrives, at most 20 times a second and 4 KB at a time. A flood loses its
    middle."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._pending = b""
        self._timer: asyncio.TimerHandle | None = None
        self._shown_s = 0.0
        self._loop = asyncio.get_running_loop()

    def take(self, data: bytes) -> None:
        """Queue the next bytes."""
        self._pending = (self._pending + data)[-_FEED_CAP_BYTES:]
        if self._timer is None:
            wait_s = max(0.0, self._shown_s + _FEED_INTERVAL_S - self._loop.time())
            self._timer = self._loop.call_later(wait_s, self._flush)

    def close(self) -> None:
        """Show the remaining output and stop."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()

    def _flush(self) -> None:
        self._timer = None
        self._shown_s = self._loop.time()
        data, self._pending = self._split(self._pending)
        if data and not (b"\0" in data and is_binary(data)):
            self._show(strip_terminal_control(data.decode("utf-8", "surrogateescape")))

    def _split(self, data: bytes) -> tuple[bytes, bytes]:
        # A character that the pipe cut in two waits for its other half.
        for distance in range(1, min(4, len(data)) + 1):
            byte = data[-distance]
            if byte >= 0xC0:
                is_whole = distance >= (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
                return (data, b"") if is_whole else (data[:-distance], data[-distance:])
            if byte < 0x80:
                break
        return data, b""


def _read_text(process: Process, cap_chars: int) -> str:
    head, lost_bytes, tail = process.output.since(process.read_offset)
    process.read_offset = process.output.total_bytes
    if is_binary(head or tail):
        size = len(head) + lost_bytes + len(tail)
        start = (head or tail)[:16].hex(" ")
        return f"[binary output, {size:,} bytes, begins {start}; redirect it to a file]"
    if not lost_bytes:
        return clip(_clean((head + tail).decode("utf-8", "surrogateescape")).rstrip(), cap_chars)
    # Either side of the cut may be in the middle of a character.
    whole_head = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head)
    first = _clean(whole_head)[: cap_chars * 2 // 5]
    last = _clean(tail.lstrip(_CONTINUATION).decode("utf-8", "surrogateescape")).rstrip()[
        -(cap_chars * 3 // 5) :
    ]
    left_out = max(lost_bytes, len(head) + lost_bytes + len(tail) - len(first.encode()) - len(last.encode()))
    return f"{first}\n[... {left_out:,} bytes left out ...]\n{last}"


def _clean(text: str) -> str:
    """Return output for the model: without control sequences, and with the person's keys masked."""
    return mask_keys(strip_terminal_control(text))


def _resolve_workdir(workspace: Path, workdir: str) -> Path:
    root = workspace.resolve()
    try:
        folder = (root / workdir).resolve() if workdir else root
        is_folder = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"workdir {workdir!r} can't be used: {error}") from error
    if not folder.is_relative_to(root):
        raise BadInput(f"workdir {workdir!r} is outside the workspace {root}")
    if not is_folder:
        raise BadInput(f"workdir {workdir!r} is not a folder in the workspace {root}")
    return folder


def _find(processes: SessionProcesses, process_id: str) -> Process:
    process = processes.get(process_id)
    if process is None:
        known_ids = ", ".join(p.id for p in processes.list_background()) or "there are none"
        raise BadInput(f"no background process {process_id!r}; known: {known_ids}")
    return process


def _time_limit(wanted_s: float, default_s: float) -> float:
    return min(wanted_s, MAX_TIMEOUT_S) if wanted_s > 0 else default_s


def _line(process: Process) -> str:
    end_s = time.monotonic() if process.ended_s is None else process.ended_s
    state = "running" if process.exit_code is None else f"exit {process.exit_code}"
    if process.has_children():
        state += ", children still run"
    text = " ".join(process.command.text.split())
    return f"{process.id} {state}, {end_s - process.started_s:.0f} s: {text[:100]}"


def _exit_note(code: int) -> str:
    try:
        return f"[exit {code}: {signal.Signals(code - 128).name}]"
    except ValueError:
        return f"[exit {code}]"


def _join_parts(body: str, notes: list[str]) -> str:
    return "\n".join(part for part in (body, *notes) if part)
