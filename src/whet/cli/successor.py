"""Run the reviews of a question in a fork of the process that answered it.

The fork has imported most of what a worker needs: it takes a third of the CPU time that a new interpreter
does. Forking is unsafe while other threads run or files are open that both processes would use; such a
process starts `whet worker` instead.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from whet.app.learning.reviews import WORKER_ARGUMENTS, open_worker_log, start_detached_worker
from whet.cli.main import flush_output, main, report_bug
from whet.config.paths import Home

_THREADS, _DESCRIPTORS = "/proc/self/task", "/proc/self/fd"


def continue_as_worker(home: Home) -> None:
    """Leave a worker for the due reviews of a home behind: it outlives this process and its terminal and
    logs to a file. Nothing else of this process may be in use. Never raises."""
    try:
        if _may_fork():
            _fork_worker(home)
        else:
            start_detached_worker(home)
    except OSError:
        return  # the next worker runs what waits


def _may_fork() -> bool:
    """Return whether this process runs one thread only, has no open file and has written its output."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        return len(os.listdir(_THREADS)) == 1 and not _list_descriptors(is_inherited=False)
    except OSError:
        return False


def _list_descriptors(*, is_inherited: bool) -> list[int]:
    """Return the descriptors above the standard ones that this process opened, or that it inherited."""
    numbers: list[int] = []
    for number in map(int, os.listdir(_DESCRIPTORS)):
        with suppress(OSError):  # the one that listed them
            if number > 2 and os.get_inheritable(number) == is_inherited:
                numbers.append(number)
    return numbers


def _fork_worker(home: Home) -> None:
    """Fork, and return once the fork has left the terminal. Raises OSError."""
    reader, writer = os.pipe()
    try:
        if not os.fork():
            _work(home, reader, writer)
    finally:
        os.close(writer)
    os.read(reader, 1)  # the worker has closed its end
    os.close(reader)


def _work(home: Home, *pipe: int) -> NoReturn:
    """Be the worker in a new fork. What this process has registered for its exit does not run here."""
    code = 1
    try:
        os.setsid()
        with open_worker_log(home) as output, open(os.devnull, "rb") as nothing:
            for number, file in enumerate((nothing, output, output)):
                os.dup2(file.fileno(), number)
        for number in (*_list_descriptors(is_inherited=True), *pipe):
            os.close(number)
        os.environ["WHET_HOME"] = str(home.root)
        os.environ.pop("WHET_PROFILE", None)
        os.chdir(home.root)
        sys.argv = ["whet", *WORKER_ARGUMENTS]
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - it must not go on as the process that was forked
        report_bug(type(error), error, error.__traceback__)
    finally:
        with suppress(OSError):
            flush_output()
        os._exit(code)
