"""Commands that show what /proc holds of a process ask, however they spell it."""

from __future__ import annotations

import pytest

from whet.approval.risk import RiskScope
from whet.approval.shell_risk import analyse

SCOPE = RiskScope("/code/proj", "/home/u", "/home/u/.whet", temp=())


@pytest.mark.parametrize(
    "line",
    [
        *("cat /proc/$PPID/./environ", "cat /proc//$PPID//environ", "cat //proc/$PPID/environ"),
        *("cat /proc/self/../$PPID/environ", "cat /proc/$PPID/en*", "cat /proc/$PPID/task/*/environ"),
        *("cd /proc/$PPID; cat environ", "pushd /proc/$PPID; cat e*", "cat /proc/$PPID/*"),
        *("cat /dev/fd/../../$PPID/environ", "strings /proc/$PPID/[a-e]*", "cat /pro?/$PPID/environ"),
        *("grep -rsa X /proc/$PPID/ --include=environ", "for f in /proc/$PPID/*; do cat $f; done"),
        *("cat /proc/net/../../$PPID/environ", "cat /proc/self/cwd/x", "ps -wwFp $PPID e", "ps $PPID e"),
        *("ps -o pid e", "ps axo pid e"),
    ],
)
def test_what_a_process_holds_is_not_shown_unasked(line: str) -> None:
    assert analyse(line, "/code/proj", SCOPE).level == "dangerous"


@pytest.mark.parametrize(
    "line",
    [
        *(
            "cat /proc/cpuinfo",
            "cat /proc/$$/status",
            "grep Mem /proc/meminfo",
            "cat /proc/net/tcp",
            "ls /proc",
        ),
        *("cat /proc/self/mountinfo", "cat /proc/1/cmdline", "ps aux", "ps -C node", "ps axo pid,time"),
        *("ps -o etime= -p 1",),
    ],
)
def test_figures_of_the_system_are_safe(line: str) -> None:
    assert analyse(line, "/code/proj", SCOPE).level == "safe"
