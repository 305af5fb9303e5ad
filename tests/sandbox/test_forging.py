"""A command's exit code is what the kernel says, whatever the command does to pass for another one's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from whet.sandbox.jail import Jail, JailedCommand
from whet.sandbox.jailed_process import exit_code_of
from whet.tools.shell import command_environment

_LIST = """
import os
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
print([number for number in range(4096) if is_open(number)])
"""
_FORGE = r"""
import ctypes, os, signal
messages = (b"X0\n", b"P1\n", b"X0\nX0\n")
parent = os.getppid()
processes = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]

def write(number):
    for message in messages:
        try:
            os.write(number, message)
        except OSError:
            return

def open_each(process):
    folder = f"/proc/{process}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            number = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        write(number)
        os.close(number)

def take_each(process):
    try:
        handle = os.pidfd_open(process)
    except OSError:
        return
    for number in range(3, 64):
        taken = libc.syscall(438, handle, number, 0)  # pidfd_getfd
        if taken >= 0:
            write(taken)
            os.close(taken)
    os.close(handle)

libc = ctypes.CDLL(None, use_errno=True)
"""
_ATTEMPTS = {
    "write to every descriptor": "for number in range(3, 4096): write(number)",
    "open what the parent has open": "open_each(parent)",
    "open what any process has open": "for process in processes: open_each(process)",
    "take the parent's descriptors": "take_each(parent)",
    "take any process's descriptors": "for process in processes: take_each(process)",
    "trace the parent": "libc.ptrace(16, parent, 0, 0); os.waitpid(-1, os.WNOHANG)",
    "write into the parent's memory": "open(f'/proc/{parent}/mem', 'r+b', 0)",
    "print what a result ends with": "print('[exit 0]\\nX0\\n[exit 0]')",
    "kill the parent": "os.kill(parent, signal.SIGKILL)",
    "end the parent": "os.kill(parent, signal.SIGTERM)",
    "stop the parent": "os.kill(parent, signal.SIGSTOP)",
    "wake the parent": "os.kill(parent, signal.SIGCHLD)",
}


def test_a_command_gets_its_input_and_outputs_and_no_other_descriptor(jail: Jail) -> None:
    assert _run(jail, _LIST) == (0, "[0, 1, 2]\n")


def test_a_command_on_a_terminal_gets_no_other_descriptor(jail: Jail) -> None:
    ours, theirs = os.openpty()
    try:
        inside = jail.environment(command_environment(os.environ))
        wanted = JailedCommand([sys.executable, "-c", _LIST], inside, jail.policy.workspace, tty=True)
        assert jail.spawn(wanted, (theirs, theirs, theirs)).wait(60) == 0
        assert os.read(ours, 4096).split(b"\r\n")[0] == b"[0, 1, 2]"
    finally:
        os.close(ours)
        os.close(theirs)


def test_one_command_gets_no_descriptor_of_another(jail: Jail) -> None:
    """The folder that a shell ends in has a pipe of its own, which a command beside it does not get."""
    inside = jail.environment(command_environment(os.environ))
    read_fd, write_fd = os.pipe()
    held_read, held_write = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        waits = JailedCommand(["bash", "-c", "read line"], inside, jail.policy.workspace)
        first = jail.spawn(waits, (held_read, nothing, nothing), write_fd)
        assert _run(jail, _LIST) == (0, "[0, 1, 2]\n")
        os.write(held_write, b"end\n")
        assert first.wait(60) == 0
    finally:
        for number in (read_fd, write_fd, held_read, held_write, nothing):
            os.close(number)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", _ATTEMPTS)
def test_a_command_can_not_forge_its_exit_code(jail: Jail, attempt: str) -> None:
    text = f"{_FORGE}\ntry:\n    {_ATTEMPTS[attempt]}\nfinally:\n    os._exit(3)\n"
    code, printed = _run(jail, text)
    # A launcher that was killed or stopped takes the command with it: that is a failure, too.
    assert code == 3 or (code == 137 and "the parent" in attempt), (code, printed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [9, 15])
def test_a_command_can_not_forge_the_signal_that_ended_it(jail: Jail, number: int) -> None:
    code, _ = _run(
        jail, f"{_FORGE}\nfor number in range(3, 4096): write(number)\nos.kill(os.getpid(), {number})"
    )
    assert code == 128 + number


def test_the_kernel_says_how_a_process_ended() -> None:
    running = subprocess.Popen(["sleep", "60"])
    handle = os.pidfd_open(running.pid)
    try:
        assert exit_code_of(handle) is None
        running.kill()
        running.wait()
        assert exit_code_of(handle) in (-9, None)  # None: a kernel before 6.15, where the launcher reports it
    finally:
        os.close(handle)


def _run(jail: Jail, text: str) -> tuple[int, str]:
    """Run a Python program; returns its exit code and what it printed."""
    inside = jail.environment(command_environment(os.environ))
    return jail.run(JailedCommand([sys.executable, "-c", text], inside, jail.policy.workspace), 60)
