"""Find exit codes that a command line hides: behind `|| true`, a pipe, a fallback that echoes, an `echo $?`.

The command shows which case it is; the output shows the result: the fallback's own words, a printed
number, an HTTP status line, a diagnostic with its location. Commands that hide nothing are not judged
here.
"""

from __future__ import annotations

import errno
import os
import re
from functools import cache

import msgspec

from whet.late import late_pattern

_FALLBACK = late_pattern(r"""\|\|\s*(?:echo|printf)\s+(?:'([^']+)'|"([^"]+)"|([^'";&|]+))\s*\}?\s*$""")
_PRINTED = late_pattern(r"(?:;|&&|\n)\s*(?:echo|printf)\b[^;|&]*\$(?:\?|\{?\w+\}?)[^;|&]*$")
_NUMBER = late_pattern(r"(\d{1,3})\W*$")
_ASKS = late_pattern(r"^\s*(?:command\s+-v|hash|ls|cat|find|stat|head|tail|id|getent)\b")
_MASKED = late_pattern(
    r"\|\|\s*(?:true|:|echo\b[^;&|]*)\s*$|;\s*[^\s;]"
    r"|(?<!\|)\|&?\s*(?:tail|head|tee|cat|grep|sed|awk|sort|uniq|less|more|cut|tr)\b[^|]*$"
)
_ANSWERS = frozenset(("curl", "http", "https", "wget", "xh", "xhs"))
_STATUS = late_pattern(r"(?m)^HTTP/\d(?:\.\d)? (\d{3})\b")
_TITLE = late_pattern(r"(?i)<title>\s*([45]\d\d)\b")
_EMPTY_FILE = late_pattern(r"(?m)^-[rwxst-]{9}.? .* 0 .*?(\S+)$")
_WRITES_CODE = late_pattern(r"-w\s|--write-out")
# A diagnostic with its location or its usual prefix, and counts of failures.
_DIAGNOSTIC = late_pattern(
    r"(?im)^\S+\.\w+:\d+:\d+: (?!warning|note|info).*"
    r"|^(?:\S+?[:(]\d+(?:[:,]\d+)?\)?:\s*)?(?:fatal )?\[?error\]?(?:\[\w+\]| \w+)?:?\s.*"
    r"|\b(?:failed|failures|errors|unreachable)=[1-9].*|^\w+ failed: .*|^[A-Z]{2,5}-\d{3,5}: .*"
)
# A line whose first word after the prefixes says that the work failed (`psql:a.sql:3: ERROR: ...`):
_BEGINS_FAILED = late_pattern(
    r"(?i)^[^\w(\"]*(?:[#(]?[\w./@~:-]+\)?:?\s+){0,2}?\(?"
    r"(?:fatal|error|fehler|erreur|errore|panic|failed|failures?|\w+ error|\w+error|cannot|can't|could not"
    r"|couldn't|unable to|access denied|permission denied|conflict)(?:\)|:|!|\[|\s+(?:to|in|near|at|\())"
    r"|^(?-i:[a-z]\w*\.[\w.]*(?:Error|Exception)): |^(?-i:FAIL)\b"
    r"|^SQLSTATE\[|^error \d+ \(\w+\)|^\s*! \[(?:remote )?rejected\]|: undefined: |^\S+:\s+cannot find"
)
# A line whose end, or whose count, says it (`ssh: connect to host a: Connection refused`):
_ENDS_FAILED = late_pattern(
    r"(?i)^.{0,200}\b(?:failed|failure|denied|refused|not found|no such file or directory|already in use"
    r"|already exists|cannot open)\b(?:[.!]\s+\w|[.:!*'\"\s]*(?:$| \([\w .:-]*\)| -- |: ))"
    r"|^[^\w]*(?:found )?[1-9]\d* (?:errors?|problems?)\b|\[[1-9]\d* errors?\]"
    r"|\w (?-i:FAIL(?:ED)?)\b|\bExited \([1-9]\d*\)|\bcan't [a-z]+\.$|\bcould not find\b"
)
_PLAIN_END = late_pattern(
    r"(?i)\b(?:0|no) (?:errors?|failures?|failed|problems?)\b|\bwarn(?:ing)?\b|retry|as expected"
)
_MAX_SHORT_LINES = 4


class HiddenExit(msgspec.Struct, frozen=True):
    """The exit code of a part of a command line although the whole ended with 0, and the evidence for it."""

    command: str
    code: int
    shown: str


def find_hidden_exit(command: str, text: str) -> HiddenExit | None:
    """Return the exit code that a fallback or an `echo $?` reveals; None if there is none or it is 0."""
    last = text.rstrip().rpartition("\n")[2].strip()
    if (match := _FALLBACK.search(command)) is not None:
        message = next(part for part in match.groups() if part).replace("\\n", "").strip()
        before = re.split(r"&&|;", command[: match.start()])[-1]
        if message and message == last and not _ASKS.match(before):
            return HiddenExit(command[: match.start()], 1, f"its fallback ran: {last[:80]}")
    if "$?" in command and (match := _PRINTED.search(command)) is not None:
        number = _NUMBER.search(last)
        if number is not None and int(number[1]):
            before = command[: match.start()].replace("=$?", "=0")
            before = re.sub(r";?\s*\w+=0\s*$", "", before)
            return HiddenExit(before, int(number[1]), f"it printed the exit code {number[1]}")
    return None


def is_masked(command: str) -> bool:
    """Return whether a command line ends with 0 even if its work failed."""
    return _MASKED.search(command) is not None


def find_masked_error(text: str) -> str:
    """Return the diagnostic at the end of a masked command's output, or an empty string."""
    lines = text.rstrip().splitlines()[-6:]
    return next((line.strip()[:120] for line in lines if _DIAGNOSTIC.search(line) or _says_failed(line)), "")


def find_reported_failure(text: str) -> str:
    """Return the line by which a short output reports that the work failed, or an empty string.

    The last line may say it anywhere, another line of a short output only at its beginning: the lines of a
    table are data.
    """
    lines = [line for line in text.rstrip().splitlines() if line.strip()]
    if not lines or _says_failed(lines[-1]):
        return lines[-1].strip()[:120] if lines else ""
    first = lines if len(lines) <= _MAX_SHORT_LINES else []
    return next((line.strip()[:120] for line in first if _says_failed(line, begins=True)), "")


def _says_failed(line: str, *, begins: bool = False) -> bool:
    line = line[:400]
    end = line.rstrip(" .").rpartition(": ")[2].lower()
    failed = _BEGINS_FAILED.search(line) is not None or end in _system_errors()
    failed = failed or (not begins and _ENDS_FAILED.search(line) is not None)
    return failed and _PLAIN_END.search(line) is None


@cache
def _system_errors() -> frozenset[str]:
    """Return the messages of the system's errors in lower case, such as "no space left on device"."""
    return frozenset(os.strerror(code).lower() for code in errno.errorcode)


def find_empty_file(command: str, text: str) -> str:
    """Return the file that a command line was to write, by its own listing of it with 0 bytes, or an empty
    string."""
    done, _, _ = command.rpartition("ls -l")
    files = _EMPTY_FILE.findall(text) if done else ()
    return next((path for path in files if re.search(rf"(?<!\S){re.escape(path)}(?!\w)", done)), "")


def find_http_error(program: str, command: str, text: str) -> str:
    """Return the last HTTP status in an answer if it is an error, else an empty string."""
    if program not in _ANSWERS:
        return ""
    codes = _STATUS.findall(text) or _TITLE.findall(text)
    if not codes and _WRITES_CODE.search(command):
        codes = re.findall(r"(?:^|\s)(\d{3})$", text.rstrip())
    return f"HTTP {codes[-1]}" if codes and int(codes[-1]) >= 400 else ""
