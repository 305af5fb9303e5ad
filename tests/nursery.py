"""Runs `whet` as a process of its own in 50 ms instead of 400: forked from one that has imported it.

Run as `python -m tests.nursery`: it reads orders as JSON lines on standard input, forks a process for
each, and writes {"id", "pid"} when that has started and {"id", "code"} when it has ended. The child runs
`whet.cli.main.main` as `python -m whet` does; only the interpreter's start and the imports are saved.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.templates import copy_new_databases
from whet.rewind.database import RecordFile
from whet.store.database import StateDatabase

# What the commands import late, and what the HTTP client imports at its first request.
MODULES = (
    "whet.cli.main",
    "whet.cli.group",
    "whet.cli.chat",
    "whet.cli.oneshot",
    "whet.cli.sessions",
    "whet.app.model_links.discover",
    "asyncio",
    "httptools",
    "whet.http1.client",
    "whet.trust",
    "httpcore2",
    "httpx2",
    "anyio._backends._asyncio",
    "whet_confirm.commands.confirm",
)


def be_whet(order: dict[str, Any], control: list[int]) -> None:
    """Become the process of one order; does not return."""
    gc.enable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, name, flags in (
        (0, order["stdin"], os.O_RDONLY),
        (1, order["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        (2, order["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    ):
        fd = os.open(name, flags, 0o600)
        os.dup2(fd, number)
        os.close(fd)
    for fd in control:
        os.close(fd)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["folder"])
    if order.get("largest_file"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)
    if order.get("user"):
        os.setgid(order["user"])
        os.setuid(order["user"])
    sys.argv = ["whet", *order["arguments"]]
    codes: list[object] = []
    # After success nothing is taken apart: that would copy most of what is shared with the nursery.
    atexit.register(lambda: os._exit(0) if codes == [0] else None)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        importlib.import_module("whet.cli.main").main()
    except SystemExit as end:
        codes.append(end.code)
        raise
    except KeyboardInterrupt:  # before the program was there, or after it had ended
        os._exit(130)


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    os.fsync = os.fstat  # type: ignore[assignment]  # as in conftest.py
    folder, own = tempfile.mkdtemp(), os.getpid()
    try:
        copy_new_databases(Path(folder), StateDatabase, RecordFile)
        serve()
    finally:
        if os.getpid() == own:
            shutil.rmtree(folder)


def serve() -> None:
    """Fork until nobody gives orders any more."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    orders_fd, answers_fd = os.dup(0), os.dup(1)
    numbers: dict[int, int] = {}
    buffer = b""
    # Without this, each child's collector would copy every page of what all of them share.
    gc.disable()
    gc.freeze()
    while True:
        ready, _, _ = select.select([orders_fd, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            while numbers and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                code = os.waitstatus_to_exitcode(ended[1])
                answer(answers_fd, {"id": numbers.pop(ended[0]), "code": code})
        if orders_fd not in ready:
            continue
        data = os.read(orders_fd, 65_536)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            # A Ctrl-C in the middle of a fork would be lost: it waits until the program is there.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            pid = os.fork()
            if pid == 0:
                be_whet(order, [orders_fd, answers_fd, wake_read, wake_write])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            numbers[pid] = order["id"]
            answer(answers_fd, {"id": order["id"], "pid": pid})


def answer(fd: int, row: dict[str, int]) -> None:
    os.write(fd, json.dumps(row).encode() + b"\n")


if __name__ == "__main__":
    main()
