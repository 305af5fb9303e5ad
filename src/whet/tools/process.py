"""Run shell commands as process groups on the event loop and keep their output in constant memory.

Output is read by `add_reader`, and exits are seen through a pidfd (or a waiting thread if the system has
none), so this works in a loop on any thread and needs no child watcher. Tools, approval and the meaning of
commands are handled elsewhere. `Processes.close` kills everything that it started; if this process dies
first, the guardian does. A child with its own session (setsid) has left the group and can't be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from whet.contract.errors import BadInput, ToolError
from whet.lanes import call_in_loop
from whet.searchpath import find_shell
from whet.tools.end_folder import EndFolder, report_end_folder
from whet.tools.guardian import Guardian
from whet.tools.guardian import is_group_alive as is_group_alive  # re-exported
from whet.tools.kept_output import KeptOutput
from whet.tools.own_memory import hide_own_memory
from whet.tools.spawn import ProcessSpec, start_jailed, start_unconfined

if TYPE_CHECKING:
    from whet.sandbox.jail import Started

_CHUNK_BYTES = 65_536
_STDIN_CAP_BYTES = 1_000_000
_TOO_LONG = "the command is too long; write it to a file and run that"
_PTY_ROWS, _PTY_COLUMNS = 40, 120
OpenPidfd = Callable[[int], int]
SYSTEM_PIDFD: OpenPidfd | None = getattr(os, "pidfd_open", None)


class Process:
    """One running or finished command with its group. Created by `Processes.start`, used on its loop only."""

    def __init__(
        self, command: ProcessSpec, popen: Started, out_fd: int, in_fd: int, end_folder: EndFolder | None
    ) -> None:
        """Take ownership of both descriptors. `in_fd` is -1 if there is no input."""
        self.id = ""
        self.command = command
        self.pid: int = popen.pid
        self.output: KeptOutput = KeptOutput(command.output_cap_bytes)
        self.read_offset = 0
        self.started_s: float = time.monotonic()
        self.ended_s: float | None = None
        self.exited: asyncio.Event = asyncio.Event()
        self._exited_or_released = asyncio.Event()
        self.output_ended: asyncio.Event = asyncio.Event()
        self.on_output: Callable[[bytes], None] | None = None
        self.end_folder: EndFolder | None = end_folder
        self.cpu_s: float | None = None
        self._popen = popen
        self._out_fd = out_fd
        self._in_fd = in_fd
        self._pid_fd = -1
        self._unsent = bytearray()
        self._stdin_ends = False
        self._loop = asyncio.get_running_loop()

    @property
    def exit_code(self) -> int | None:
        """The exit code, 128 + n after signal n, None while it runs."""
        code = self._popen.returncode
        return 128 - code if code is not None and code < 0 else code

    @property
    def restored_paths(self) -> tuple[list[Path], Path | None]:
        """The protected paths that Whet restored after a command in a jail, and the folder with the replaced
        versions."""
        if isinstance(self._popen, subprocess.Popen):
            return [], None
        return self._popen.restored_paths, self._popen.aside

    @property
    def is_stdin_open(self) -> bool:
        """Whether `write` can still reach the process."""
        return self._in_fd >= 0 and not self._stdin_ends

    def attach(self, open_pidfd: OpenPidfd | None) -> None:
        """Start to read the output and to watch for the exit."""
        os.set_blocking(self._out_fd, False)
        self._loop.add_reader(self._out_fd, self._on_readable)
        if self._in_fd >= 0:
            os.set_blocking(self._in_fd, False)
        popen = self._popen
        with contextlib.suppress(OSError):
            if open_pidfd is not None:
                # The launcher may have reaped a jailed child, whose pid another process may have by now.
                is_own = isinstance(popen, subprocess.Popen)
                self._pid_fd = open_pidfd(self.pid) if is_own else popen.end_handle()
        if self._pid_fd >= 0:
            self._loop.add_reader(self._pid_fd, self._on_exit)
        else:
            threading.Thread(target=self._wait_on_thread, name=f"wait-{self.pid}", daemon=True).start()

    async def wait(self, timeout_s: float | None) -> bool:
        """Wait for the exit. Returns False if `timeout_s` passed first."""
        return await _wait_for_event(self.exited, timeout_s)

    async def wait_until_released(self, timeout_s: float | None) -> bool:
        """Wait for the exit or for `release_waiter`. Return False if `timeout_s` passed first."""
        return await _wait_for_event(self._exited_or_released, timeout_s)

    def release_waiter(self) -> None:
        """Release the waiter of the command, which keeps running."""
        self._exited_or_released.set()

    async def wait_output_end(self, timeout_s: float) -> bool:
        """Wait until no process holds the output open. Returns False if `timeout_s` passed first."""
        return await _wait_for_event(self.output_ended, timeout_s)

    def write(self, data: bytes, *, ends: bool = False) -> None:
        """Queue bytes for the input; `ends` closes it after them. Raises ToolError if closed or full."""
        if not self.is_stdin_open:
            raise ToolError("the process's input is closed")
        if len(self._unsent) + len(data) > _STDIN_CAP_BYTES:
            raise ToolError("the process does not read its input; 1 MB is waiting already")
        if self.command.pty and ends:
            # In the middle of a line, the first one only submits the line.
            data += b"\x04" if data.endswith((b"\n", b"\r")) or not data else b"\x04\x04"
        self._unsent += data
        self._stdin_ends = ends
        self._send()

    def signal_group(self, number: int) -> None:
        """Send a signal to every member of the group. An empty group is not an error."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def has_children(self) -> bool:
        """Return whether the command has ended but members of its group still run."""
        return self.exited.is_set() and is_group_alive(self.pid)

    def is_alive(self) -> bool:
        """Return whether the command or a member of its group still runs."""
        return not self.exited.is_set() or is_group_alive(self.pid)

    async def stop(self, grace_s: float = 2.0) -> None:
        """Terminate the group, kill it after `grace_s` (at once if cancelled), and wait for the exit."""
        try:
            self.signal_group(signal.SIGTERM)
            await self._wait_group(grace_s)
        finally:
            if self.is_alive():
                self.signal_group(signal.SIGKILL)
        await self._wait_group(2.0)

    def release(self) -> None:
        """Stop reading and writing; reap a finished child and stop watching it. Can be called twice."""
        self._close_output()
        self._close_input()
        if self.end_folder is not None:
            self.end_folder.close()
        if self._popen.poll() is not None:
            self._unwatch()
            self._mark_exited()

    def reap(self, timeout_s: float) -> None:
        """Block until a killed child has ended, at most `timeout_s`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout_s)

    async def _wait_group(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        await self.wait(timeout_s)
        while is_group_alive(self.pid) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.02)

    def _on_readable(self) -> None:
        try:
            data = os.read(self._out_fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # EIO: the last user of the terminal closed it
        if not data:
            self._close_output()
            return
        self.output.append(data)
        if self.on_output is not None:
            self.on_output(data)

    def _on_exit(self) -> None:
        self._unwatch()
        self._reap()
        self._mark_exited()

    def _mark_exited(self) -> None:
        if not self.exited.is_set():
            self.ended_s = time.monotonic()
            self.exited.set()
            self._exited_or_released.set()

    def _reap(self) -> None:
        """Reap the child and read its CPU time, which its end adds to that of all children. The time of
        another machine's command is unknown."""
        jail, before = self.command.jail, resource.getrusage(resource.RUSAGE_CHILDREN)
        is_reaped = self._popen.returncode is not None
        self._popen.wait()
        if not isinstance(self._popen, subprocess.Popen):
            self.cpu_s = self._popen.cpu_s
        elif not is_reaped and (jail is None or jail.is_here):
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def _wait_on_thread(self) -> None:
        self._popen.wait()
        call_in_loop(self._loop, self._mark_exited)

    def _send(self) -> None:
        while self._unsent:
            try:
                sent = os.write(self._in_fd, self._unsent[:_CHUNK_BYTES])
            except BlockingIOError:
                self._loop.add_writer(self._in_fd, self._send)
                return
            except OSError:  # the reader has closed its end
                self._close_input()
                return
            del self._unsent[:sent]
        self._loop.remove_writer(self._in_fd)
        if self._stdin_ends and not self.command.pty:
            self._close_input()

    def _close_output(self) -> None:
        if self._out_fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._out_fd)
            os.close(self._out_fd)
            self._out_fd = -1
            self.output_ended.set()

    def _close_input(self) -> None:
        if self._in_fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_writer(self._in_fd)
            os.close(self._in_fd)
            self._in_fd = -1
            self._unsent.clear()

    def _unwatch(self) -> None:
        if self._pid_fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = -1


class Processes:
    """Every command started for one session or app. Background ones have an id. `close` leaves none alive."""

    def __init__(
        self,
        *,
        keep_finished: int = 20,
        max_background: int = 50,
        open_pidfd: OpenPidfd | None = SYSTEM_PIDFD,
    ) -> None:
        self._keep_finished = keep_finished
        self._max_background = max_background
        self._open_pidfd = open_pidfd
        self._count = 0
        self._held: dict[int, Process] = {}
        self._background: dict[str, Process] = {}
        self._guardian = Guardian()

    def start(self, command: ProcessSpec) -> Process:
        """Start a command in its own group. Raises BadInput if the system can't accept it, and ToolError."""
        hide_own_memory()
        stdin = command.stdin
        if stdin and len(stdin) > _STDIN_CAP_BYTES:
            raise BadInput("the input is over 1 MB; write it to a file and redirect that")
        try:
            process = self._spawn(command)
        except ValueError as error:
            raise BadInput(f"the command can't be run: {error}") from error
        except OSError as error:
            raise ToolError(
                f"the command could not be started: {error.strerror}",
                hint=_TOO_LONG if error.errno == errno.E2BIG else "",
            ) from error
        self._held[process.pid] = process
        self._guardian.add(process.pid)
        process.attach(self._open_pidfd)
        if stdin is not None:
            process.write(stdin, ends=not command.keep_stdin)
        return process

    def publish(self, process: Process, sessions: Collection[str] | None = None) -> str:
        """Assign a process an id for the model, and drop the oldest finished ones of these sessions, or of
        all."""
        self._count += 1
        process.id = f"p{self._count}"
        self._background[process.id] = process
        finished = [p for p in self.list_background(sessions) if not p.is_alive()]
        for old in finished[: max(0, len(finished) - self._keep_finished)]:
            del self._background[old.id]
            self.forget(old)
        return process.id

    def check_room(self, sessions: Collection[str] | None = None) -> None:
        """Raise ToolError if too many background processes of these sessions, or of all, are running."""
        running = sum(p.is_alive() for p in self.list_background(sessions))
        if running >= self._max_background:
            raise ToolError(f"{running} background processes run already; kill some with the process tool")

    def get(self, process_id: str) -> Process | None:
        """Return a background process, or None."""
        return self._background.get(process_id)

    def list_background(self, sessions: Collection[str] | None = None) -> list[Process]:
        """Return the background processes of these sessions, or of all, oldest first."""
        return [p for p in self._background.values() if sessions is None or p.command.session_id in sessions]

    def move_to_background(self) -> int:
        """Move the commands that are waited for to the background. Returns their number."""
        waited = [p for p in self._held.values() if not p.id and not p.exited.is_set()]
        for process in waited:
            process.release_waiter()
        return len(waited)

    def forget(self, process: Process) -> None:
        """Forget a process. One that has not exited yet is held until `close`, so that it is reaped."""
        process.release()
        if process.exited.is_set():
            self._held.pop(process.pid, None)
            self._guardian.drop(process.pid)

    def close(self) -> None:
        """End all remaining processes: SIGTERM, and SIGKILL after 0.3 seconds.

        Blocks for up to half a second more for each process that SIGKILL does not end at once.
        """
        living = [p for p in self._held.values() if p.is_alive()]
        for process in living:
            process.signal_group(signal.SIGTERM)
        deadline_s = time.monotonic() + 0.3
        while any(is_group_alive(p.pid) for p in living) and time.monotonic() < deadline_s:
            for process in living:
                process.reap(0.01)
            time.sleep(0.01)
        for process in living:
            if is_group_alive(process.pid):
                process.signal_group(signal.SIGKILL)
            process.reap(0.5)
        for process in list(self._held.values()):
            self.forget(process)
        self._guardian.close()
        self._background.clear()

    def _spawn(self, command: ProcessSpec) -> Process:
        shell = command.shell or find_shell(command.workdir)
        arguments, end_folder = [shell, "-c", command.text], None
        is_here = command.jail is None or command.jail.is_here
        if command.workspace is not None and is_here and shell.endswith("bash"):
            end_folder = EndFolder()
            arguments = [shell, "-c", report_end_folder(command.text), shell]
        extra_fd = -1 if end_folder is None else end_folder.write_fd
        if command.pty:
            out_fd, child_fd = os.openpty()
            fcntl.ioctl(child_fd, termios.TIOCSWINSZ, struct.pack("HHHH", _PTY_ROWS, _PTY_COLUMNS, 0, 0))
        else:
            out_fd, child_fd = os.pipe()
        try:
            if command.jail is not None:
                started, in_fd = start_jailed(command, command.jail, arguments, child_fd, extra_fd)
            else:
                started, in_fd = start_unconfined(command, arguments, child_fd, extra_fd)
        except BaseException:
            os.close(out_fd)
            if end_folder is not None:
                end_folder.close()
            raise
        finally:
            os.close(child_fd)
            if end_folder is not None:
                end_folder.close_write_end()
        return Process(command, started, out_fd, os.dup(out_fd) if command.pty else in_fd, end_folder)


async def _wait_for_event(event: asyncio.Event, timeout_s: float | None) -> bool:
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
