"""Keep commands from reading this process: its environment and memory hold keys."""

from __future__ import annotations

import logging
import sys
from functools import cache

log: logging.Logger = logging.getLogger("whet.tools")


@cache
def hide_own_memory() -> None:
    """Make `/proc/PID/environ`, `mem` and `fd` of this process unreadable for programs of the same user, on
    Linux. Debuggers of that user can't attach either; root still can. Programs that it starts are not
    affected."""
    if sys.platform != "linux":
        return
    from whet.sandbox.kernel import PR_SET_DUMPABLE, prctl  # noqa: PLC0415  6 ms, for processes with commands

    try:
        prctl(PR_SET_DUMPABLE, 0)
    except OSError as error:
        log.warning("commands outside of the sandbox can read Whet's environment: %s", error)
