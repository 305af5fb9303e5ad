"""Run the due reviews in a fork of the process that answered a question.

The fork has already imported most of a worker's modules, so it takes a third of the CPU time of a new
interpreter. Forking is unsafe while other threads run, or while files are open that both processes would use.
In that case `whet worker` is started instead.
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
    """Start a worker for the due reviews of a home. It outlives this process and its terminal, and logs to a
    file. Nothing else in this process may be in use. If no worker can be started, the next one runs them."""
    try:
        if _may_fork():
            _fork_worker(home)
        else:
            start_detached_worker(home)
    except OSError:
        return


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
        with suppress(OSError):  # the descriptor of the listing itself is closed by now
            if number > 2 and os.get_inheritable(number) == is_inherited:
                numbers.append(number)
    return numbers


def _fork_worker(home: Home) -> None:
    """Fork, and return once the fork has left the terminal. Raises OSError."""
    reader, writer = os.pipe()
    try:
        if not os.fork():
            _run_worker(home, reader, writer)
    finally:
        os.close(writer)
    os.read(reader, 1)  # the worker has closed its end
    os.close(reader)


def _run_worker(home: Home, *pipe: int) -> NoReturn:
    """Run the worker in a new fork, and exit without running the exit handlers of the original process."""
    code = 1
    try:
        os.setsid()
        with open_worker_log(home) as output, open(os.devnull, "rb") as empty_input:
            for number, file in enumerate((empty_input, output, output)):
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
    except BaseException as error:  # noqa: BLE001 - the fork must not continue as the original process
        report_bug(type(error), error, error.__traceback__)
    finally:
        with suppress(OSError):
            flush_output()
        os._exit(code)
