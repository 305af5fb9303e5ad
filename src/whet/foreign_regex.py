"""Match regular expressions that a model, a repository or a server wrote, within a limit of time.

Python's matcher may try exponentially many ways to match, and holds the interpreter's lock meanwhile:
`(a+)+$` on forty letters never ends, and nothing else in the process runs. An expression whose worst case is
small is matched in this process, any other one in a child process, which is killed at the limit.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from functools import lru_cache

_CPU_S = 1.0
_WAIT_S = 10.0
_MAX_STEPS = 1_000_000
_CHILD = """
import json, re, sys, warnings
warnings.simplefilter("ignore")
pattern, text, whole, cpu_s = json.load(sys.stdin)
try:
    from signal import ITIMER_PROF, setitimer
except ImportError:  # a system without signals: the wait alone limits it
    pass
else:
    setitimer(ITIMER_PROF, cpu_s)
sys.exit(0 if (re.fullmatch if whole else re.search)(pattern, text) else 3)
"""
_NO_MATCH = 3
_OUT_OF_TIME: int | None = -signal.SIGPROF if hasattr(signal, "SIGPROF") else None
_too_slow: set[str] = set()


class RegexTooSlow(Exception):
    """Matching an expression took longer than the limit of time."""


def regex_matches(pattern: str, text: str, *, whole: bool = False) -> bool:
    """Return whether an expression matches somewhere in a text, or with `whole` the whole text.

    Blocks for at most one second of CPU time, and for at most ten seconds on a busy machine. An expression
    that was too slow once is refused at once afterwards. Raises RegexTooSlow, and re.error if the expression
    is invalid.
    """
    if pattern in _too_slow:
        raise RegexTooSlow(pattern)
    return _matches(pattern, text, whole)


@lru_cache(1_024)
def _matches(pattern: str, text: str, whole: bool) -> bool:
    try:
        compiled = re.compile(pattern)
    except (RecursionError, OverflowError) as error:
        raise re.error(str(error)) from error
    if _worst_steps(pattern, len(text)) <= _MAX_STEPS:
        return (compiled.fullmatch if whole else compiled.search)(text) is not None
    return _ask_child(pattern, text, whole)


def _worst_steps(pattern: str, length: int) -> int:
    """Return an upper bound of the matcher's steps.

    The search may begin, and each repetition end, at every position of the text. Each alternative in a group
    doubles the number of ways. A group that is repeated, named or a lookaround has no bound here.
    """
    plain = re.sub(r"\\.", "x", pattern, flags=re.DOTALL).replace("(?:", "(")
    if re.search(r"\)[*+?{]|\(\?", plain):
        return sys.maxsize
    repeats = len(re.findall(r"[*+?{]", plain))
    choices = plain.count("|") if "(" in plain else 0
    return (length + 1) ** min(repeats + 1, 20) * 2 ** min(choices, 60)


def _ask_child(pattern: str, text: str, whole: bool) -> bool:
    command = (sys.executable or "python3", "-I", "-S", "-c", _CHILD)
    try:
        process = subprocess.run(
            command,
            input=json.dumps([pattern, text, whole, _CPU_S]).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_WAIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        _too_slow.add(pattern)
        raise RegexTooSlow(pattern) from error
    if process.returncode == _OUT_OF_TIME:
        _too_slow.add(pattern)
        raise RegexTooSlow(pattern)
    if process.returncode not in (0, _NO_MATCH):
        raise re.error(f"it could not be matched (exit {process.returncode})")
    return process.returncode == 0
