"""Stop the remaining commands if Whet is killed, with a small shell that outlives Whet by a second.

The shell reads from a pipe which process groups are running. When the pipe ends, because Whet closed it or
died, the shell stops the groups still on its list. So no process id is stored that could later belong to
another process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess

log: logging.Logger = logging.getLogger("whet.guardian")

_SCRIPT = """
groups=
while read -r sign group; do
  case $sign in
    +) groups="$groups $group" ;;
    -) left=
       for member in $groups; do [ "$member" = "$group" ] || left="$left $member"; done
       groups=$left ;;
  esac
done
[ -n "$groups" ] || exit 0
for member in $groups; do kill -TERM "-$member" 2>/dev/null; done
sleep 1
for member in $groups; do kill -KILL "-$member" 2>/dev/null; done
"""


class Guardian:
    """Watches process groups from the first `add` to `close`. Without a shell it watches nothing."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        self._is_broken = False

    def add(self, group: int) -> None:
        """Stop this group if this process dies."""
        if self._shell is None and not self._is_broken:
            self._shell = self._start()
        self._send(b"+ %d\n" % group)

    def drop(self, group: int) -> None:
        """Remove a group from the list: it has ended, or may keep running."""
        self._send(b"- %d\n" % group)

    def close(self) -> None:
        """End the watch. Groups still on the list are stopped."""
        shell, self._shell = self._shell, None
        if shell is None:
            return
        with contextlib.suppress(OSError):
            assert shell.stdin
            shell.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            shell.wait(2)

    def _start(self) -> subprocess.Popen[bytes] | None:
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": "/usr/bin:/bin"},  # commands can read it, so it gets no keys
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            self._is_broken = True
            log.warning("commands would outlive a crash: %s", error)
            return None

    def _send(self, line: bytes) -> None:
        if self._shell is not None and self._shell.stdin is not None:
            with contextlib.suppress(OSError):
                self._shell.stdin.write(line)


def is_group_alive(group: int) -> bool:
    """Return whether a process group has a member that is not a zombie.

    If a container's first process doesn't reap, orphans stay zombies forever; therefore /proc is checked.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        names = os.listdir("/proc")
    except OSError:
        return True
    return any(_is_member(name, group) for name in names if name.isdigit())


def _is_member(pid: str, group: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may contain spaces and brackets; state and group follow its last bracket.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return len(fields) > 2 and int(fields[2]) == group and fields[0] not in (b"Z", b"X")
