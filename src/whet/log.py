"""Write log records to `logs/whet.log`, one JSON object a line, and mask secrets in every text.

Logs, exports, notifications and error texts pass through `mask`. It replaces the values that were loaded as
secrets (`protect`), and text that has the form of a common key. Text that a person decides on passes through
`mask_values`, which hides nothing that could run.
"""

from __future__ import annotations

import json
import logging
import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging.handlers import RotatingFileHandler

MASK = "[REDACTED]"
PACKAGES = ("whet", "whet_confirm", "whet_lab")
"""The packages whose loggers share the log file."""
_KEY_SHAPES = (
    r"sk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|A(?:KIA|SIA)[0-9A-Z]{16}"
    r"|AIza[0-9A-Za-z_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|gsk_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}"
    r"|[srp]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{16,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|wct_[A-Za-z0-9_-]{40,}|whet-ed25519-[A-Za-z0-9_-]{40,}"
    r"|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|do[opr]_v1_[a-f0-9]{32,}|shp(?:at|ca|ss)_[a-fA-F0-9]{20,}"
    r"|(?<!\d)\d{8,10}:[A-Za-z0-9_-]{35}(?![\w-])|AGE-SECRET-KEY-1[A-Z0-9]{20,}"
    r"|hv[sbr]\.[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"
)
SHAPES = (
    _KEY_SHAPES + r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}|(?<=/api/webhooks/)\d{10,}/[\w-]{20,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=://)[^/\s:@]+:[^/\s:@]+(?=@)"
    r"|(?<=[Bb]earer )[A-Za-z0-9._~+/-]{16,}=*"
)
WAITS = "whet.waits"
"""The logger of messages that a person at a terminal sees while they wait."""
_QUIET_S = 30.0
MIN_KEY_CHARS = 15
_HAS_LETTER_AND_DIGIT = re.compile(r"(?=[^a-zA-Z]*[a-zA-Z])(?=\D*\d)", re.ASCII)
_URL_SAFE = str.maketrans("+/", "-_")
_protected: set[str] = set()
_keys: set[str] = set()
_sources: list[Callable[[], Iterable[str]]] = []


def protect(values: Iterable[str]) -> None:
    """Mask these values from now on, also in JSON, in JSON within JSON (a call's arguments in an export) and
    in base64. Values shorter than 8 characters are not masked."""
    for value in values:
        if len(value) >= 8:
            escaped = json.dumps(value, ensure_ascii=False)[1:-1]
            _protected.update((value, escaped, json.dumps(escaped, ensure_ascii=False)[1:-1]))
            _protected.update(_base64_forms(value))


def protect_keys(values: Iterable[str]) -> None:
    """Mask these keys of the person, in the model's answers, too. In answers, text that only has the form of
    a key is not masked: a program may have asked for it."""
    keys = [value for value in values if len(value) >= MIN_KEY_CHARS]
    protect(values)
    _keys.update(keys)


def mask_keys(text: str) -> str:
    """Return `text`, part of an answer, with the person's keys replaced."""
    for key in _keys:
        if key in text:
            text = text.replace(key, MASK)
    return text


class AnswerMask:
    """Masks the person's keys in a text that arrives in pieces. The beginning of a key is held back until the
    next piece."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Add a piece, and return the masked text that can't belong to a key any more."""
        text = mask_keys(self._held + piece)
        count = max((_count_key_start(text, key) for key in _keys), default=0)
        self._held = text[len(text) - count :]
        return text[: len(text) - count]

    def finish(self) -> str:
        """Return the text that was held back."""
        text, self._held = self._held, ""
        return text


def _count_key_start(text: str, key: str) -> int:
    """Return how many characters at the end of a text are the beginning of `key`."""
    at = text.find(key[0], max(0, len(text) - len(key) + 1))
    while at >= 0:
        if key.startswith(text[at:]):
            return len(text) - at
        at = text.find(key[0], at + 1)
    return 0


def protect_later(source: Callable[[], Iterable[str]]) -> None:
    """Ask `source` for values to mask when the first text is masked."""
    _sources[:] = [source]


def forget_secrets() -> None:
    """Stop masking the protected values, for a process that changes to another home."""
    _protected.clear()
    _keys.clear()
    _sources.clear()


def _base64_forms(value: str) -> set[str]:
    """Return the texts that occur in base64 of any data that contains `value`.

    There is one for each offset of the value in a group of three bytes, without the characters at its ends
    that depend on the data around it. Texts that are too short to distinguish them from words are left out.
    """
    data = value.encode("utf-8", "surrogateescape")
    forms: set[str] = set()
    for skipped in range(3):
        text = b64encode(bytes(skipped) + data).decode("ascii")
        end = (skipped + len(data)) * 4 // 3  # the character before it encodes bits of the value alone
        core = text[-(-skipped * 4 // 3) : end]
        forms.update((core, core.translate(_URL_SAFE)) if len(core) >= MIN_KEY_CHARS else ())
    return forms


def mask(text: str) -> str:
    """Return `text` with every protected value, and all text that has the form of a key, replaced."""
    text = mask_known(text)
    return _shapes().sub(MASK, text) if _may_hold_key(text) else text


def mask_values(text: str) -> str:
    """Return `text`, on which a person decides, with the protected values that mix letters and digits
    replaced. Everything else is kept.

    What only resembles a key, or stands where keys do, may be a program, a file or code that runs. A
    protected value without digits may be an ordinary word. What is hidden from the person must not be able
    to run.
    """
    return _mask(text, _HAS_LETTER_AND_DIGIT)


def mask_known(text: str) -> str:
    """Return `text` with every protected value replaced. JSON stays valid."""
    return _mask(text)


def _mask(text: str, kind: re.Pattern[str] | None = None) -> str:
    """Return `text` with the protected values replaced, if `kind` is given only those that it matches."""
    while _sources:
        protect(_sources.pop()())
    for value in sorted(_protected, key=len, reverse=True):
        if value in text and (kind is None or kind.match(value)):
            text = text.replace(value, MASK)
    return text


def _may_hold_key(text: str) -> bool:
    """Return whether a search for shapes may succeed: except for URLs and PEM blocks, a key is longer than
    most words. This test is faster than matching."""
    return "://" in text or "-----BEGIN" in text or max(map(len, text.split()), default=0) >= MIN_KEY_CHARS


@cache  # compiled at first use: it takes a hundredth of the start-up time
def _shapes() -> re.Pattern[str]:
    return re.compile(SHAPES)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        row: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            row["stack"] = self.formatException(record.exc_info)
        return mask(json.dumps(row, ensure_ascii=False))


class _LogFile(logging.Handler):
    """A file that is opened at its first record. Most runs write none, and importing the rotating handler
    takes a hundredth of the start-up time."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: RotatingFileHandler | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None:
            from logging.handlers import RotatingFileHandler  # noqa: PLC0415 - see above

            self._file = RotatingFileHandler(
                self._path, maxBytes=5_000_000, backupCount=2, encoding="utf-8", delay=True
            )
            self._file.setFormatter(_JsonLines())
            self._file.handleError = self.handleError
        self._file.emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a record that can't be written, e.g. on a full disk: a log must not fill the terminal."""

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError:
            self._file = None  # the disk is full: the last records are lost
        super().close()


class _Lines(logging.Handler):
    """Shows messages about waits, at most one in half a minute: several threads may wait for the same."""

    def __init__(self, write: Callable[[str], object]) -> None:
        super().__init__()
        self._write = write
        self._quiet_until_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if record.created >= self._quiet_until_s:
            self._quiet_until_s = record.created + _QUIET_S
            self._write(f"{mask(record.getMessage())}\n")


def show_waits(write: Callable[[str], object]) -> None:
    """Pass this process's messages about waits to `write`, besides the log. It is called on the threads that
    wait."""
    logging.getLogger(WAITS).handlers[:] = [_Lines(write)]


def start_logging(folder: Path) -> None:
    """Write records of our packages' loggers to `folder`/whet.log, at most 3 files of 5 MB.

    Does nothing if the folder can't be made, or if logging was started before.
    """
    loggers = [logging.getLogger(name) for name in PACKAGES]
    if loggers[0].handlers:
        return
    handler: logging.Handler = _LogFile(folder / "whet.log")
    try:
        for directory in (folder.parent, folder):  # `parents` alone would make the home readable by all
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        handler = logging.NullHandler()
    for logger in loggers:
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
