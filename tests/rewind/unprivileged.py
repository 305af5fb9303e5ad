"""Run a test's work as a user without rights over others' files, which root has."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65_534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def run_as_nobody(
    work: Callable[[Path], None], prepare: Callable[[Path], None] = lambda folder: None
) -> None:
    """Run `work` in a fork as the user nobody, with a folder of its own that `prepare` gets first, as root.

    Fails if `work` raises.
    """
    folder = Path(tempfile.mkdtemp())
    prepare(folder)
    os.chown(folder, NOBODY, NOBODY)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work(folder)
            code = 0
        except BaseException:  # noqa: BLE001  a fork must not go on as a second test run
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    shutil.rmtree(folder)
