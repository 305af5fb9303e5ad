"""Tries many mutants in one pytest process that has collected an area's tests: each in a fork of it.

A plugin of such a process. It runs the unchanged tests once, in a fork, and learns which functions each one
calls. A mutant's fork gives the changed code to the functions that are loaded; programs that it starts find
the changed file. It runs only the tests that call the function: a second where a new process takes ten. What
can't be tried so (a module's own code, which ran already) or survives is for a process of its own.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

from tests.mutations import SOURCE, Mutant

PLAN = "MUTANTS_PLAN"  # names the file with the mutants to try
RECORD = "MUTANTS_RECORD"  # names the file for what each test calls, and its seconds
NOTICED = "MUTANTS_NOTICED"  # names the file to which a line with the id of each noticed mutant is added


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Learn what the unchanged tests call, then try each mutant of the plan."""
    if session.testsfailed:
        raise session.Failed("the tests can't be collected")
    record = Path(os.environ[RECORD])
    if _in_fork(lambda: _learn(session, record), 1800):
        raise session.Failed("the unchanged source fails")
    learned = json.loads(record.read_text("utf-8"))
    calling: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in sorted(session.items, key=lambda item: learned["seconds"][item.nodeid]):
        for path, line in learned["ran"][item.nodeid]:
            calling[path, line].append(item)
    gc.freeze()  # a fork that collects would copy all of it
    functions = _functions()
    for row in json.loads(Path(os.environ[PLAN]).read_text("utf-8")):
        mutant = Mutant(**row)
        stem = Path(mutant.path).stem
        near = sorted(calling[mutant.path, mutant.first_line], key=lambda item: stem not in item.path.name)
        if near and _is_noticed(mutant, near, functions, learned["seconds"]):
            with Path(os.environ[NOTICED]).open("a", encoding="utf-8") as noticed:
                noticed.write(mutant.id + "\n")
    return True


def _is_noticed(
    mutant: Mutant,
    near: list[pytest.Item],
    functions: dict[CodeType, list[FunctionType]],
    seconds: dict[str, float],
) -> bool:
    """Run the tests that are near in a fork with the changed code; False, too, where it can't be given."""
    path = SOURCE / mutant.path
    before = path.read_bytes()
    try:
        changed = [
            (function, new)
            for old, new in _pairs(_code(path, before), _code(path, mutant.applied(before)))
            for function in functions.get(old, ())
            if function.__code__.co_filename == str(path)
        ]
    except ValueError:
        return False

    def run() -> bool:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        for function, code in changed:
            function.__code__ = code
        return any(failed for _, failed in _outcomes(near))

    write(path, mutant.applied(before))
    try:
        return _in_fork(run, 20 + 4 * sum(seconds[item.nodeid] for item in near)) != 0
    finally:
        write(path, before)


_moments = itertools.count(int(time.time()), 2)


def write(path: Path, text: bytes) -> None:
    """Write a source file whose old bytecode no program takes for its own: they are matched by size and whole
    seconds."""
    path.write_bytes(text)
    moment = next(_moments)
    os.utime(path, (moment, moment))


def _code(path: Path, text: bytes) -> CodeType:
    return compile(text, str(path), "exec", dont_inherit=True)


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Give each function's code before and after; ValueError where a change moved functions about."""
    befores = [each for each in old.co_consts if isinstance(each, CodeType)]
    afters = [each for each in new.co_consts if isinstance(each, CodeType)]
    for before, after in zip(befores, afters, strict=True):
        if before.co_qualname != after.co_qualname or before.co_freevars != after.co_freevars:
            raise ValueError("other functions than before")
        yield before, after
        yield from _pairs(before, after)


def _functions() -> dict[CodeType, list[FunctionType]]:
    function_types: dict[CodeType, list[FunctionType]] = defaultdict(list)
    gc.unfreeze()  # frozen objects are not in the list
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            function_types[each.__code__].append(each)
    gc.freeze()
    return function_types


def _outcomes(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, bool]]:
    """Run tests up to the first that fails; what their fixtures hold is given back."""
    for item, following in itertools.zip_longest(items, items[1:]):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        failed = item.session.testsfailed > 0
        if failed:
            item.config.hook.pytest_runtest_teardown(item=item, nextitem=None)
        yield item, failed
        if failed:
            return


def _in_fork(work: Callable[[], int], limit_s: float) -> int:
    """Give the exit status of work in a fork with a process group of its own; 1 where it hangs or raises."""
    pid = os.fork()
    if not pid:
        status = 1
        with contextlib.suppress(BaseException):
            os.setsid()
            status = int(work())
        os._exit(status)
    deadline = time.monotonic() + limit_s
    while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(ended[1] if ended[0] else os.waitpid(pid, 0)[1])


def _learn(session: pytest.Session, target: Path) -> int:
    """Run every test unchanged; write which functions of the source each calls, and its seconds."""
    seen: set[CodeType] = set()
    seconds: dict[str, float] = {}
    ran: dict[str, list[tuple[str, int]]] = {}
    top = str(SOURCE) + os.sep

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    start = time.monotonic()
    with _profiled(profile):
        for item, failed in _outcomes(session.items):
            if failed:
                print(f"the unchanged source fails in {item.nodeid}")
                return 1
            seconds[item.nodeid] = round(time.monotonic() - start, 3)
            ran[item.nodeid] = [
                (code.co_filename.removeprefix(top), code.co_firstlineno)
                for code in seen.copy()
                if code.co_filename.startswith(top)
            ]
            seen.clear()
            start = time.monotonic()
    target.write_text(json.dumps({"seconds": seconds, "ran": ran}), "utf-8")
    return 0


@contextlib.contextmanager
def _profiled(profile: object) -> Generator[None]:
    threading.setprofile(profile)  # type: ignore[arg-type]
    sys.setprofile(profile)  # type: ignore[arg-type]
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
