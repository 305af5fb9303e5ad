"""The command `whet`: run a command, and handle exits and bugs.

`whet --version` imports only this module, and `--help` only click and no command. Exit codes: 0 ok, 1 failed
(with a line and a hint on stderr), 2 usage, 130 interrupted; 129, 131 and 143 ended by SIGHUP, SIGQUIT and
SIGTERM. A bug's traceback goes to the log file. A command is a click command with the `Home` as its context
object.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import time
from types import FrameType, TracebackType

from whet import __version__

TYPE_CHECKING = False  # type checkers take it as true; `--version` runs without importing `typing`
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine
    from typing import Any, NoReturn, TypeVar

    T = TypeVar("T")

_ECHO_S = 0.2  # `timeout` and others send one signal to the process, and again to its group
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals at which a program restores the terminal, ends what runs, and exits."""
_FILE_ADVICE = "check its owner, its rights and the free space"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    _fill_closed_streams()
    _replace_error_stream()
    _forbid_core_files()
    arguments = sys.argv[1:]
    # Imports create a hundred thousand lasting objects. Scanning them for garbage would take a tenth of the
    # start-up time.
    gc.set_threshold(200_000, 20, 50)
    # A file name or a page may have characters that the terminal's encoding lacks. That must not end a run.
    if callable(reconfigure := getattr(sys.stdout, "reconfigure", None)):
        reconfigure(errors="backslashreplace")
    for number in ENDING_SIGNALS:
        if number == signal.SIGTERM or signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(number, _stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    sys.excepthook = report_bug
    try:
        code = _run(arguments)
        code = flush_output() or code
    except KeyboardInterrupt:
        import warnings

        # Python would print warnings about pending awaits and half-built objects when it frees them
        warnings.simplefilter("ignore")
        sys.unraisablehook = lambda _: None
        code = 130
    except BrokenPipeError:
        discard_output()  # the reader (head, less) has closed the pipe
        code = 0
    except OSError as error:
        if error.errno not in _DISK_FULL or error.filename is not None:
            raise
        code = flush_output() or _say_unwritten(error)
    sys.exit(code)


def _forbid_core_files() -> None:
    """Keep this process and its children from writing core files when they crash. Their memory holds keys,
    and the file would be in the workspace, where commands and the model could read it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def flush_output() -> int:
    """Write the buffered output. Returns exit code 1 if that fails, else 0. Raises BrokenPipeError."""
    try:
        sys.stdout.flush()
        if isinstance(sys.stdout, _LostOutput) and sys.stdout.was_written:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        return _say_unwritten(error)
    return 0


def write_output(text: str, session_id: str = "") -> bool:
    """Write to standard output at once. Returns False if the reader has closed it. Raises WhetError if
    writing fails; its hint names `session_id`, the session that holds the answer."""
    try:
        if 1 in _closed_streams:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return False
    except OSError as error:
        discard_output()  # drops the buffered output, too
        if error.errno == errno.EIO:  # a terminal that was closed
            return True
        from whet.contract.errors import WhetError

        hint = f"the answer is stored: whet sessions show {session_id}" if session_id else ""
        raise WhetError(f"standard output can't be written: {error.strerror}", hint=hint) from error
    return True


def discard_output() -> None:
    """Drop the buffered and all later output. Otherwise Python would print an error when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_unwritten(error: OSError) -> int:
    hint = "hint: make room on that disk\n" if error.errno in _DISK_FULL else ""
    sys.stderr.write(f"error: the output can't be written: {error.strerror}\n{hint}")
    return 1


def run_on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, as asyncio.run does.

    The first Ctrl-C or SIGTERM cancels it from the loop, and the program exits once it has ended. The second
    one exits at once. asyncio.run cancels inside the signal handler, and so in the middle of any callback: a
    callback that has just seen an open future finds it cancelled and fails. C code may also drop an exception
    that a handler raises.
    """
    import asyncio

    stopping = _Stopping()

    async def under_signals() -> T:
        stopping.task = asyncio.current_task()
        if stopping.number:
            coroutine.close()
            raise asyncio.CancelledError
        return await coroutine

    previous = _replace_handlers(stopping)
    try:
        if _early_signals:
            coroutine.close()
            _end(_early_signals[0])
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            return runner.run(under_signals())
    except asyncio.CancelledError:
        if stopping.number:
            _end(stopping.number)
        raise
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is stopping:
                signal.signal(number, handler)


def _replace_handlers(stopping: _Stopping) -> dict[int, Any]:
    """Handle Ctrl-C and this module's signals by `stopping`, and return the previous handlers by signal.

    Only the main thread may change handlers. Signals that the caller ignores stay ignored.
    """
    import threading

    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, *ENDING_SIGNALS):
            handler = signal.getsignal(number)
            if handler is _stop or (number == signal.SIGINT and handler is not signal.SIG_IGN):
                previous[number] = signal.signal(number, stopping)
    return previous


async def run_until_signal(coroutine: Coroutine[Any, Any, None], on_signal: Callable[[int], object]) -> None:
    """Run a coroutine until it ends or a signal of `ENDING_SIGNALS` cancels it. `on_signal` gets the signal's
    number first."""
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(coroutine)

    def stop(number: int) -> None:
        on_signal(number)
        task.cancel()

    numbers = [number for number in ENDING_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
    finally:
        task.cancel()
        for number in numbers:
            loop.remove_signal_handler(number)


def _new_loop() -> asyncio.AbstractEventLoop:
    import asyncio
    from contextlib import suppress

    class Loop(asyncio.SelectorEventLoop):
        def close(self) -> None:
            # asyncio closes the pipe that a signal writes to before it removes the signal handlers, and
            # Python complains if a signal arrives in between.
            with suppress(ValueError):  # raised in another thread, which receives no signals
                signal.set_wakeup_fd(-1)
            super().close()

    return Loop()


class _Stopping:
    """The handler of Ctrl-C and SIGTERM while a loop runs `task`, or is about to."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.number = 0
        self._at_s = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        task, is_ending, now_s = self.task, number != signal.SIGINT, time.monotonic()
        if is_ending and number == self.number and now_s < self._at_s + _ECHO_S:
            return
        if self.number or (task is not None and task.done()):
            if is_ending and self.number:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            _end(number)
        self.number, self._at_s = number, now_s
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"], ["version"]):
        sys.stdout.write(f"whet {__version__}\n")
        return 0
    from whet.cli.group import run

    return run(arguments)


def _fill_closed_streams() -> None:
    """Open standard streams that the caller closed (`<&-`, some supervisors) on /dev/null.

    Python sets them to None, which no code expects, and the next opened file would get their number.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            _closed_streams.append(number)
            fd = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(fd, True)
            if number == 1:
                sys.stdout = _LostOutput(os.fdopen(fd, "wb"), encoding="utf-8")
            else:
                setattr(sys, name, os.fdopen(fd, mode, encoding="utf-8"))


def _replace_error_stream() -> None:
    """Let messages be dropped once the reader of standard error has closed it. Python would end with 120 in
    place of the command's exit code."""
    if sys.stderr is sys.__stderr__ and 2 not in _closed_streams:
        stream = io.FileIO(2, "wb", closefd=False)
        sys.stderr = _ErrorOutput(
            io.BufferedWriter(stream), sys.stderr.encoding, sys.stderr.errors, line_buffering=True
        )


class _ErrorOutput(io.TextIOWrapper):
    """Standard error. What its reader does not want is dropped."""

    def write(self, text: str, /) -> int:
        """Write a text."""
        try:
            return super().write(text)
        except BrokenPipeError:
            return self._drop(text)

    def flush(self) -> None:
        """Write the buffered text."""
        try:
            super().flush()
        except BrokenPipeError:
            self._drop("")

    def _drop(self, text: str) -> int:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        super().flush()
        return len(text)


class _LostOutput(io.TextIOWrapper):
    """A standard output that the caller closed. It notes whether something was written, so that the command
    ends with an error."""

    was_written = False

    def write(self, text: str, /) -> int:
        """Drop a text."""
        self.was_written = self.was_written or bool(text)
        return super().write(text)


_closed_streams: list[int] = []
"""The numbers of the standard streams that the caller closed."""
_early_signals: list[int] = []
"""The signals that asked this process to stop before there was a loop."""


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at Ctrl-C or a signal of `ENDING_SIGNALS` by an exception, so that every `finally` runs. The
    second signal ends the process at once.

    C code may drop the exception and continue (msgspec does while it reads a type). So the signal is
    recorded, and `run_on_loop` then starts nothing.
    """
    _early_signals.append(number)
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
    _end(number)


def _end(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def report_bug(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
    """Write an unexpected error's traceback to the log, and one line to stderr. Python then exits with 1.

    An OSError about a file is not a bug of the program, so the line names the file.
    """
    import logging

    from whet import log
    from whet.cli.group import active_home
    from whet.contract.errors import WhetError

    try:
        path = active_home().logs / "whet.log"
    except WhetError:  # there is no home folder
        path = None
    if path is not None:
        log.start_logging(path.parent)
        logging.getLogger("whet.cli").error("unexpected %s", kind.__name__, exc_info=(kind, error, stack))
    lines = str(error).splitlines() or [""]
    has_log = path is not None and path.exists()
    log_hint = f"; details in {path}" if has_log else ""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        refused = log.mask(f"{error.filename}: {error.strerror}")
        is_out_of_files = error.errno in (errno.EMFILE, errno.ENFILE)
        advice = "close some programs, or raise the limit: ulimit -n" if is_out_of_files else _FILE_ADVICE
        sys.stderr.write(f"error: {refused}\nhint: {advice}{log_hint}\n")
        return
    sys.stderr.write(f"error: unexpected {kind.__name__}: {log.mask(lines[0])[:200]}{log_hint}\n")
    if not has_log:
        sys.__excepthook__(kind, error, stack)
