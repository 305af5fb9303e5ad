"""The system calls that a sandbox refuses, as a seccomp program for x86-64 and ARM64.

The program checks call numbers and plain arguments only. Memory behind a pointer can change after the
check, so calls that take their arguments there (clone3, io_uring) are refused entirely. File access is not
its concern.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from whet.sandbox.write_calls import CHANGES, OPENS

_ALLOW, _ERRNO, _ASK = 0x7FFF0000, 0x00050000, 0x7FC00000
_EPERM, _ENOSYS, _ENOTSUP, _EAFNOSUPPORT, _ENETUNREACH = 1, 38, 95, 97, 101
_LOAD, _AND, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_BITS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET and TIME
_TERMINAL_REQUESTS = (0x5412, 0x541C)  # TIOCSTI types into a terminal, TIOCLINUX pastes into a console
# Requests that change a file's attributes or version even through a read-only descriptor: FS_IOC_SETFLAGS,
# ...
_FILE_REQUESTS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602)
_LEASES = (1024, 1040)  # F_SETLEASE, F_SETDELEG: would make outside programs wait when they open the file
_FAST_OPEN = 0x20000000
_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def _read_calls(text: str) -> dict[str, tuple[int | None, int | None]]:
    """Read a table of calls: name, number on x86-64 and on ARM64, or - if the machine has no such call."""
    rows = (row.split() for row in text.split(","))
    return {name: (_number(x86), _number(arm)) for name, x86, arm in rows}


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


_REFUSED = _read_calls("""
ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272, pidfd_getfd 438 438,
add_key 248 217, request_key 249 218, keyctl 250 219, bpf 321 280, userfaultfd 323 282,
perf_event_open 298 241, mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, open_tree 428 428,
move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,
mount_setattr 442 442, open_tree_attr 467 467, setns 308 268, open_by_handle_at 304 265,
init_module 175 105, finit_module 313 273, delete_module 176 106, kexec_load 246 104,
kexec_file_load 320 294, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60,
quotactl_fd 443 443, syslog 103 116, iopl 172 -, ioperm 173 -, settimeofday 164 170, clock_settime 227 112,
sethostname 170 161, setdomainname 171 162, fanotify_init 300 262, vhangup 153 58, io_uring_setup 425 425,
io_uring_enter 426 426, io_uring_register 427 427, landlock_create_ruleset 444 444, file_setattr 469 469
""")
# Memory, semaphores and queues that have system-wide names or numbers.
_SHARED = _read_calls("""
shmget 29 194, shmat 30 196, shmctl 31 195, semget 64 190, semop 65 193, semctl 66 191, semtimedop 220 192,
msgget 68 186, msgsnd 69 189, msgrcv 70 188, msgctl 71 187, mq_open 240 180, mq_unlink 241 181
""")
_CLONE3 = (435, 435)
_CLONE = (56, 220)
_UNSHARE = (272, 97)
_IOCTL = (16, 29)
_FCNTL = (72, 25)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
_SENDTO = (44, 206)
_SENDMSG = (46, 211)
_SENDMMSG = (307, 269)
_ATTRIBUTES: tuple[tuple[int | None, int | None], ...] = (
    (188, 5),  # setxattr
    (189, 6),  # lsetxattr
    (190, 7),  # fsetxattr
    (197, 14),  # removexattr
    (198, 15),  # lremovexattr
    (199, 16),  # fremovexattr
    (463, 463),  # setxattrat
    (466, 466),  # removexattrat
)
SUPERVISED = _read_calls("""
chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, utime 132 -, utimes 235 -, futimesat 261 -,
utimensat 280 88, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54
""")
"""Changes of modes, times and owners, which Landlock does not check. The launcher's supervisor makes those
that the policy grants and refuses the rest."""
# A process id other than 0 (the caller) may belong to another program if ids are shared: argument, numbers.
_OTHER_PROCESS_CALLS: tuple[tuple[int, tuple[int, int]], ...] = (
    (0, (302, 261)),  # prlimit64
    (1, (141, 140)),  # setpriority
    (1, (251, 30)),  # ioprio_set
    (0, (203, 122)),  # sched_setaffinity
    (0, (144, 119)),  # sched_setscheduler
    (0, (142, 118)),  # sched_setparam
    (0, (314, 274)),  # sched_setattr
    (0, (256, 238)),  # migrate_pages
    (0, (279, 239)),  # move_pages
)
# A call must not address all processes of a user either, by whichever number: value of `which`, numbers.
_WHOLE_USER_CALLS: tuple[tuple[int, tuple[int, int]], ...] = (
    (2, (141, 140)),  # setpriority, PRIO_USER
    (3, (251, 30)),  # ioprio_set, IOPRIO_WHO_USER
)
# Set-id bits make a file run as its owner. Folders may have the set-group-id bit, so files are checked only
# when created: argument of the mode, bits, numbers; for `open`, arguments of flags and mode.
_SET_IDS, _SET_UID, _MAKES = 0o6000, 0o4000, 0o100 | 0o20000000
_MODES: tuple[tuple[int, int, tuple[int | None, int | None]], ...] = (
    (1, _SET_UID, (90, None)),  # chmod
    (1, _SET_UID, (91, 52)),  # fchmod
    (2, _SET_UID, (268, 53)),  # fchmodat
    (2, _SET_UID, (452, 452)),  # fchmodat2
    (1, _SET_IDS, (85, None)),  # creat
    (1, _SET_IDS, (133, None)),  # mknod
    (2, _SET_IDS, (259, 33)),  # mknodat
)
_OPEN_CALLS: tuple[tuple[int, int, tuple[int | None, int | None]], ...] = (
    (1, 2, (2, None)),  # open
    (2, 3, (257, 56)),  # openat
)
_OPENAT2 = (437, 437)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQUENCED, _KIND_BITS = 1, 5, 0xF


def has_filter(machine: str) -> bool:
    """Return whether the system call numbers of this machine type are known."""
    return machine in _ARCHES


def filter_program(machine: str, *, own_network: bool, unix: bool = True, asks: bool = False) -> bytes:
    """Build the seccomp filter. `asks`: calls that change a path wait until Whet has seen them.

    With its own network and mount namespaces, a sandbox may make internet sockets, which end inside it,
    and Unix sockets if no foreign socket is mounted (`unix`). Without, it may only make socket pairs, file
    attributes can't be changed, and the launcher's supervisor decides about modes, times and owners.
    """
    which = 0 if machine == "x86_64" else 1
    program = _Program()
    program.load(_ARCH_AT)
    program.unless_equal(_ARCHES[machine], _ENOSYS)
    program.load(_NUMBER_AT)
    if machine == "x86_64":
        program.refuse_above(0x40000000, _ENOSYS)  # the x32 calls, which have their own numbers
    for pair in _REFUSED.values():
        program.refuse_call(pair[which], _EPERM)
    if not own_network:
        _watch_files(program, which)
    _keep_ids(program, which)
    program.refuse_call(_CLONE3[which], _ENOSYS)
    program.refuse_call(_OPENAT2[which], _ENOSYS)  # its flags and mode are behind a pointer
    for pair in (_CLONE, _UNSHARE):
        program.refuse_bits(pair[which], 0, _NEW_NAMESPACES)
    program.refuse_values(_IOCTL[which], 1, (*_TERMINAL_REQUESTS, *_FILE_REQUESTS))
    program.refuse_values(_FCNTL[which], 1, _LEASES)
    if own_network:
        program.allow_families(_SOCKET[which], (_UNIX, _INET, _INET6) if unix else (_INET, _INET6))
    else:
        program.refuse_sockets(_SOCKET[which])
        for pair, argument in ((_SENDTO, 3), (_SENDMSG, 2), (_SENDMMSG, 3)):
            program.refuse_bits(pair[which], argument, _FAST_OPEN)
    if not (own_network and unix):
        program.allow_connected_pairs(_SOCKETPAIR[which])
    if asks:
        _ask_about_changes(program, which)
    program.add(_RETURN, _ALLOW)
    return program.data()


def _keep_ids(program: _Program, which: int) -> None:
    for argument, bits, pair in _MODES:
        if (number := pair[which]) is not None:
            program.refuse_bits(number, argument, bits)
    for flags, mode, pair in _OPEN_CALLS:
        if (number := pair[which]) is not None:
            program.refuse_both(number, (flags, _MAKES), (mode, _SET_IDS))


def _ask_about_changes(program: _Program, which: int) -> None:
    for pair, argument, flags in OPENS:
        program.ask_about_bits(pair[which], argument, flags)
    for pair in CHANGES:
        program.ask_about(pair[which])


def _watch_files(program: _Program, which: int) -> None:
    for pair in SUPERVISED.values():
        program.ask_about(pair[which])
    for pair in _ATTRIBUTES:
        program.refuse_call(pair[which], _ENOTSUP)
    for pair in _SHARED.values():
        program.refuse_call(pair[which], _EPERM)
    for argument, pair in _OTHER_PROCESS_CALLS:
        program.refuse_bits(pair[which], argument, 0xFFFFFFFF)
    for scope, pair in _WHOLE_USER_CALLS:
        program.refuse_values(pair[which], 0, (scope,))


class _Program:
    """A filter under construction. After each part, the call's number is loaded again."""

    def __init__(self) -> None:
        self._rows: list[bytes] = []

    def data(self) -> bytes:
        return b"".join(self._rows)

    def add(self, code: int, value: int, when_true: int = 0, when_false: int = 0) -> None:
        self._rows.append(struct.pack("HBBI", code, when_true, when_false, value))

    def load(self, offset: int) -> None:
        self.add(_LOAD, offset)

    def unless_equal(self, value: int, error: int) -> None:
        self.add(_JUMP_EQUAL, value, 1, 0)
        self.add(_RETURN, _ERRNO | error)

    def ask_about(self, number: int | None) -> None:
        if number is not None:
            self.add(_JUMP_EQUAL, number, 0, 1)
            self.add(_RETURN, _ASK)

    def ask_about_bits(self, number: int | None, argument: int, bits: int) -> None:
        if number is not None:
            self.add(_JUMP_EQUAL, number, 0, 4)
            self.load(_ARGUMENTS_AT + 8 * argument)
            self.add(_JUMP_BITS, bits, 0, 1)
            self.add(_RETURN, _ASK)
            self.load(_NUMBER_AT)

    def refuse_above(self, value: int, error: int) -> None:
        self.add(_JUMP_ABOVE, value, 0, 1)
        self.add(_RETURN, _ERRNO | error)

    def refuse_call(self, number: int | None, error: int) -> None:
        if number is not None:
            self.add(_JUMP_EQUAL, number, 0, 1)
            self.add(_RETURN, _ERRNO | error)

    def refuse_bits(self, number: int, argument: int, bits: int) -> None:
        self.add(_JUMP_EQUAL, number, 0, 4)
        self.load(_ARGUMENTS_AT + 8 * argument)
        self.add(_JUMP_BITS, bits, 0, 1)
        self.add(_RETURN, _ERRNO | _EPERM)
        self.load(_NUMBER_AT)

    def refuse_both(self, number: int, first: tuple[int, int], second: tuple[int, int]) -> None:
        """Refuse a call if both arguments have some of their bits set: (argument, bits)."""
        self.add(_JUMP_EQUAL, number, 0, 6)
        self.load(_ARGUMENTS_AT + 8 * first[0])
        self.add(_JUMP_BITS, first[1], 0, 3)
        self.load(_ARGUMENTS_AT + 8 * second[0])
        self.add(_JUMP_BITS, second[1], 0, 1)
        self.add(_RETURN, _ERRNO | _EPERM)
        self.load(_NUMBER_AT)

    def refuse_values(self, number: int, argument: int, values: Sequence[int]) -> None:
        self.add(_JUMP_EQUAL, number, 0, 2 + 2 * len(values))
        self.load(_ARGUMENTS_AT + 8 * argument)
        for value in values:
            self.add(_JUMP_EQUAL, value, 0, 1)
            self.add(_RETURN, _ERRNO | _EPERM)
        self.load(_NUMBER_AT)

    def allow_families(self, number: int, families: Sequence[int]) -> None:
        """Let `socket` create these families, and NETLINK's routing protocol, which lists the sandbox's
        interfaces."""
        self.add(_JUMP_EQUAL, number, 0, 6 + len(families))
        self.load(_ARGUMENTS_AT)
        for position, family in enumerate(families):
            self.add(_JUMP_EQUAL, family, 4 + len(families) - 1 - position, 0)
        self.add(_JUMP_EQUAL, _NETLINK, 0, 2)
        self.load(_ARGUMENTS_AT + 16)
        self.add(_JUMP_EQUAL, 0, 1, 0)
        self.add(_RETURN, _ERRNO | _EAFNOSUPPORT)
        self.load(_NUMBER_AT)

    def refuse_sockets(self, number: int) -> None:
        self.add(_JUMP_EQUAL, number, 0, 5)
        self.load(_ARGUMENTS_AT)
        self.add(_JUMP_EQUAL, _INET, 1, 0)
        self.add(_JUMP_EQUAL, _INET6, 0, 1)
        self.add(_RETURN, _ERRNO | _ENETUNREACH)
        self.add(_RETURN, _ERRNO | _EPERM)

    def allow_connected_pairs(self, number: int) -> None:
        """Allow connected pairs only. A datagram pair could be reconnected to any socket whose path is
        known."""
        self.add(_JUMP_EQUAL, number, 0, 8)
        self.load(_ARGUMENTS_AT)
        self.add(_JUMP_EQUAL, _UNIX, 0, 4)
        self.load(_ARGUMENTS_AT + 8)
        self.add(_AND, _KIND_BITS)
        self.add(_JUMP_EQUAL, _STREAM, 2, 0)
        self.add(_JUMP_EQUAL, _SEQUENCED, 1, 0)
        self.add(_RETURN, _ERRNO | _EAFNOSUPPORT)
        self.load(_NUMBER_AT)
