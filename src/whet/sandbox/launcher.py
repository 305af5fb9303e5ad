"""The launcher, which runs inside the sandbox: it starts commands on request and ends all of them when it
ends.

Whet sends this file's code to a bare interpreter (`setup.LAUNCH`), so it imports little, and only from the
standard library. Its argument is the descriptor of a socket to Whet. The first message says how to confine
the process (namespaces, Landlock, seccomp, limits). Each further message brings a command and four
descriptors: its input, its two outputs, and a socket for reporting its pid and its end. A fifth descriptor
is passed on to the command, and its number becomes the last argument. Messages are four bytes of length,
then a value packed by `marshal`. When the socket or this process ends, all commands are killed.

What `json`, `socket`, `signal`, `contextlib` and `typing` import would take two thirds of a start's CPU time.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingModuleSource]
import _socket
import errno
import fcntl
import marshal
import os
import resource
import select
import struct
import sys
import time

from whet.sandbox.descriptors import close_descriptors_on_exec, receive_descriptors, send_descriptors
from whet.sandbox.kernel import (
    LIBC,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    REFER,
    Ignored,
    check,
    drop_capabilities,
    filter_calls,
    mount,
    prctl,
    raise_loopback,
    restrict_files,
    set_read_only,
)
from whet.sandbox.watch import supervise

TYPE_CHECKING = False  # type checkers take it as true
if TYPE_CHECKING:
    from typing import Any, NoReturn

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
CONTROL = int(sys.argv[1])
TIOCSCTTY = 0x540E


def enter_namespaces(plan: dict[str, Any]) -> None:
    """Enter new namespaces: mounts (read-only except the plan's paths), a loopback-only network, and process
    ids.

    Returns in the first process of the new process id namespace.
    """
    uid, gid = os.getuid(), os.getgid()
    check(LIBC.unshare(NEWUSER | NEWNS | NEWIPC | NEWNET | NEWPID), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    raise_loopback()
    child = os.fork()
    if child:
        os.close(CONTROL)
        mirror(child)
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    for source, target in plan["binds"]:
        mount(source, target, None, MS_BIND | MS_REC)
    for path in plan["anchors"]:
        with Ignored(FileNotFoundError):
            mount(path, path, None, MS_BIND | MS_REC)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")
    mount("/dev/pts/ptmx", "/dev/ptmx", None, MS_BIND)
    set_read_only("/", recursive=True)
    for path in plan["writable"]:
        set_read_only(path, recursive=False, is_read_only=False)
    for path in plan["read_only"]:
        # removed meanwhile: guarded like a path that never existed
        with Ignored(FileNotFoundError):
            mount(path, path, None, MS_BIND | MS_REC)  # with the mounts that hide what is in it
            set_read_only(path, recursive=True)
    os.chdir("/")


def mirror(child: int) -> NoReturn:
    """Wait for the namespace's first process and exit with its code. Its end kills all processes of the
    namespace."""

    def end(_number: int, _frame: Any) -> None:
        os.kill(child, _signal.SIGKILL)

    _signal.signal(_signal.SIGTERM, end)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def confine(setup: dict[str, Any]) -> int:
    """Apply the confinement of the policy to this process. Returns the descriptor on which the kernel asks
    Whet about calls, -1 if it does not. Raises OSError if the kernel can't enforce it."""
    if setup.get("namespaces"):
        enter_namespaces(setup["namespaces"])
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number, most in setup["limits"]:
        _, hard = resource.getrlimit(number)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (value, value))
    drop_capabilities()
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if setup.get("handled"):
        restrict_files(setup["handled"], setup["rules"])
    prctl(PR_SET_DUMPABLE, 0)  # commands can't read the memory of either half
    supervised = setup.get("supervised")
    ours, theirs = _socket.socketpair()
    split_supervisor(ours if supervised else None, supervised or {})
    if setup.get("scoped"):
        # Rules that say nothing of REFER forbid it: a file could not be moved from one folder into another.
        restrict_files((REFER, 0, setup["scoped"]), (("/", REFER),))
    listener = filter_calls(setup["filter"], supervised["listen"] if supervised else setup.get("asks", 0))
    if supervised:
        send_descriptors(theirs, b"+", [listener])
        os.close(listener)
    ours.close()
    theirs.close()
    return listener if setup.get("asks") else -1


def split_supervisor(channel: _socket.socket | None, supervised: dict[str, Any]) -> None:
    """Split into two processes. The outer one decides supervised calls, waits for the inner one and then
    kills leftovers.

    Commands can't signal the outer process: the kernel scopes signals, or the process id namespace ends
    with them.
    """
    inner = os.fork()
    if not inner:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        return
    os.close(CONTROL)
    if channel is not None:
        _, handles = receive_descriptors(channel, 1, 1)
        if handles:
            supervise(handles[0], supervised, inner)
            os.close(handles[0])
    code = 0
    while True:
        try:
            gone, status = os.wait()
        except ChildProcessError:
            os._exit(code)
        if gone == inner:
            code = os.waitstatus_to_exitcode(status) & 0xFF
            inner = 0
        if not inner:
            kill_children()


def kill_children() -> None:
    """Kill every child. Their children become this process's, and the caller repeats the call."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            children = [int(pid) for pid in file.read().split()]
    except OSError:
        children = own_children()
    for child in children:
        with Ignored(OSError):
            os.kill(child, _signal.SIGKILL)


def own_children() -> list[int]:
    """Find the children by reading every process's state, if the kernel has no list of children."""
    pids: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                        pids.append(int(name))
            except (OSError, ValueError, IndexError):
                pass
    return pids


def receive(control: _socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None at the end."""
    data, handles = receive_descriptors(control, 4, 8)
    while data and len(data) < 4:
        data += control.recv(4 - len(data))
    if not data:
        return None, []
    (length,) = struct.unpack("!I", data)
    body = bytearray()
    while len(body) < length:
        part = control.recv(min(65536, length - len(body)))
        if not part:
            return None, handles
        body += part
    return marshal.loads(bytes(body)), handles


def start(command: dict[str, Any], handles: list[int]) -> int:
    """Run one command, which gets its three descriptors, a fifth if there is one, and no other. Returns its
    pid, or 0 after reporting why it can't be run."""
    close_descriptors_on_exec(LIBC)
    for more in handles[4:]:
        os.set_inheritable(more, True)
        command["argv"].append(str(more))
    # Passing family and type avoids asking the kernel.
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, os.dup(handles[3]))
    try:
        child = spawn_on_terminal(command, handles) if command["tty"] else spawn_plain(command, handles)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else errno.EINVAL
        with Ignored(OSError):
            channel.sendall(b"E%d" % (number or errno.EIO))
        return 0
    else:
        pidfd = os.pidfd_open(child)
        with Ignored(OSError):
            send_descriptors(channel, b"P%d\n" % child, [pidfd])
            channel.recv(1)  # wait until Whet has read the process id; a reaped process has none
        os.close(pidfd)
    finally:
        channel.close()
    return child


def spawn_plain(command: dict[str, Any], handles: list[int]) -> int:
    """Start a command with posix_spawn, without copying this process."""
    os.chdir(command["cwd"])
    return os.posix_spawn(
        find_program(command["argv"][0], command["env"]),
        command["argv"],
        command["env"],
        file_actions=[(os.POSIX_SPAWN_DUP2, handles[target], target) for target in range(3)],
        setsid=True,
        setsigdef=[_signal.SIGPIPE, _signal.SIGXFSZ],  # Python ignores these signals
    )


def find_program(name: str, environment: dict[str, str]) -> str:
    """Find a program on the search path as a shell does. Raises FileNotFoundError."""
    if "/" in name:
        return name
    for folder in os.get_exec_path(environment):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(errno.ENOENT, "no such program")


def spawn_on_terminal(command: dict[str, Any], handles: list[int]) -> int:
    """Start a command with its own terminal, which needs a step between fork and exec."""
    error_read, error_write = os.pipe()
    child = os.fork()
    if not child:
        exec_command(command, handles, error_write)
    os.close(error_write)
    error_text = os.read(error_read, 64)
    os.close(error_read)
    if error_text:
        os.waitpid(child, 0)
        raise OSError(int(error_text), "exec")
    return child


def exec_command(command: dict[str, Any], handles: list[int], error_write: int) -> NoReturn:
    """Turn this new process into the command. Never returns."""
    try:
        for number in (_signal.SIGPIPE, _signal.SIGCHLD):
            _signal.signal(number, _signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(handles[1], TIOCSCTTY, 0)
        for target in range(3):
            os.dup2(handles[target], target)
        os.chdir(command["cwd"])
        os.execvpe(command["argv"][0], command["argv"], command["env"])
    except OSError as error:
        os.write(error_write, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(127)


def reap(running: dict[int, int]) -> None:
    """Report the commands that have ended."""
    while True:
        try:
            child, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        report = running.pop(child, None)
        if report is not None:
            with Ignored(OSError):
                cpu_ms = round(1000 * (usage.ru_utime + usage.ru_stime))
                os.write(report, b"X%d %d\n" % (os.waitstatus_to_exitcode(status), cpu_ms))
            os.close(report)


def ignore_signal(_number: int, _frame: Any) -> None:
    """Do nothing: the signal wakes the loop through the wake-up descriptor."""


def serve(control: _socket.socket) -> None:
    """Run commands until the socket ends."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    os.set_blocking(wake_read, False)
    _signal.signal(_signal.SIGCHLD, ignore_signal)
    _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    running: dict[int, int] = {}
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        for handle, _ in poll.poll():
            if handle == wake_read:
                os.read(wake_read, 4096)
            else:
                command, handles = receive(control)
                if command is None:
                    return
                child = start(command, handles)
                for descriptor in (*handles[:3], *handles[4:]):
                    os.close(descriptor)
                if child:
                    running[child] = handles[3]
                else:
                    os.close(handles[3])
        reap(running)


def main() -> None:
    """Confine this process, report success, and serve."""
    os.close(0)
    os.open("/dev/null", os.O_RDWR)
    os.set_inheritable(CONTROL, False)
    control = _socket.socket(fileno=CONTROL)
    setup, _ = receive(control)
    if setup is None:
        return
    try:
        listener = confine(setup)
    except OSError as error:
        control.sendall(b"!" + str(error).encode())
        return
    # Through this handle, Whet can see from outside which mounts are still in place.
    handles = [os.pidfd_open(os.getpid())]
    if listener >= 0:
        handles += [os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC), listener]
    if setup.get("proxy"):
        # The socket belongs to this network namespace permanently. Whet accepts its connections from outside.
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        send_descriptors(control, b"+", [*handles, listener.fileno()])
        listener.close()
    else:
        send_descriptors(control, b"+", handles)
    for handle in handles:
        os.close(handle)
    try:
        serve(control)
    finally:
        deadline = time.monotonic() + 2
        kill_children()
        while time.monotonic() < deadline:
            try:
                if os.waitpid(-1, 0)[0]:
                    kill_children()
            except ChildProcessError:
                break


if __name__ == "__main__":
    main()
    sys.stdout.close()
    os._exit(0)
