"""Search files where ripgrep is not installed: the same rules, the same output, as a program of its own.

It runs in its own process so that a pattern that never ends can be killed; Python's matcher holds the
interpreter's lock. The process serves one search after the other. Hidden and ignored (.gitignore) files are
left out, symlinks are not followed. Binary files with matches are named, and so are files that can't be
searched. Standard library only, since it starts without the installed packages. Rules: gitignore(5).
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import IO, NamedTuple

from whet.tools import stray_bytes
from whet.tools.charsets import guess_charset, guess_utf16
from whet.tools.globs import Glob, GlobError

FILE_BYTES = 100_000_000
_MAX_RULES_CHARS = 1_000_000
SIZE_BYTES = 4
_PART_BYTES = 1 << 14
_ERROR_BYTES = 4_000
_TOKEN = (
    r"\(\?(?:<?[=!]|i?:)|\((?!\?)|[)|*+?^$.]|\{\d+(?:,\d*)?\}|\\(?:[wWdDsSbt]|[^\w\s])"
    r"|\[(?:\w-\w|\\[wdSt]|\\[^\w\s]|[^\\\[\]^-])+\]|\[\^(?:\w-\w|\\[wWdDsSt]|\\[^\w\s]|[^\\\[\]^-])+\]"
    r"|[^\\\[\](){}|*+?^$.]"
)
_TOKENS = rf"(?:\(\?i\))?(?:{_TOKEN})*+"
"""Expressions that match the same in a whole text as in a line, if `\\s` and the like match no line end."""
_CLASSES = {r"\s": r"[^\S\n]", r"\W": r"[^\w\n]", r"\D": r"[^\d\n]"}
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class IgnoreRule(NamedTuple):
    """One line of a .gitignore. Paths are relative to its folder."""

    glob: Glob
    is_kept: bool
    only_folders: bool


class Layer(NamedTuple):
    """The rules of one .gitignore, and the folder they apply to."""

    folder: str
    rules: list[IgnoreRule]


class LinePattern(NamedTuple):
    """An expression for one line, and its twin that finds the same lines in a whole text, if there is one."""

    line: re.Pattern[str]
    text: re.Pattern[str] | None


def files(target: str) -> Iterator[str]:
    """Yield the files below `target`, or `target` itself if it is a file. Ignored and hidden files are
    skipped."""
    if not os.path.isdir(target):
        yield target
        return
    yield from _walk_folder(target, _layers_above(os.path.abspath(target)))


def is_ignored_in(base: str, parts: Sequence[str]) -> Callable[[str, bool], bool]:
    """Return the test whether .gitignore leaves out an entry (name, whether it is a folder) of the folder
    that `parts` lead to from `base`."""
    folder = os.path.abspath(base)
    layers = _add_own_rules(_layers_above(folder), folder)
    for part in parts:
        folder = os.path.join(folder, part)
        if _verdict(layers, folder, True) is False:
            return lambda name, is_folder: True
        layers = _add_own_rules(layers, folder)
    return lambda name, is_folder: _verdict(layers, os.path.join(folder, name), is_folder) is False


def is_hidden_in(base: str, parts: Sequence[str]) -> Callable[[str, bool], bool]:
    """Return the test whether an entry (name, whether it is a folder) of the folder that `parts` lead to from
    `base` is left out because it is hidden: no .gitignore decides on it."""
    folder = os.path.abspath(base)
    layers = _add_own_rules(_layers_above(folder), folder)
    for part in parts:
        folder = os.path.join(folder, part)
        layers = _add_own_rules(layers, folder)

    def is_hidden(name: str, is_folder: bool) -> bool:
        return name.startswith(".") and _verdict(layers, os.path.join(folder, name), is_folder) is None

    return is_hidden


def _add_own_rules(layers: list[Layer], folder: str) -> list[Layer]:
    """Return the layers that hold inside a folder: those above it, unless it begins a repository, and its
    own."""
    above = [] if os.path.lexists(os.path.join(folder, ".git")) else layers
    return [*above, Layer(folder, _rules(os.path.join(folder, ".gitignore")))]


class BinaryMatch(Exception):
    """A file that is not text holds a match."""


def compile_for_lines(source: str) -> LinePattern:
    """Return the expression for lines, and the one for whole texts if no part of it sees more than a line."""
    pattern = re.compile(source)
    if not re.fullmatch(_TOKENS, source, re.ASCII):
        return LinePattern(pattern, None)
    in_line = re.sub(_TOKEN, _keep_in_line, source, flags=re.ASCII)
    return LinePattern(pattern, re.compile(in_line, re.MULTILINE))


def _keep_in_line(token: re.Match[str]) -> str:
    """Return a part of an expression that matches the same, but no line end."""
    if token[0].startswith("[^"):
        return "[^\\n" + token[0][2:]
    return _CLASSES.get(token[0], token[0])


def matches(path: str, pattern: LinePattern) -> list[tuple[int, bytes]]:
    """Return number and text, as UTF-8, of each matching line.

    Raises BinaryMatch for a match in a file that is not text, OSError for one that is huge or unreadable.
    """
    with open(path, "rb", buffering=0) as stream:
        if os.fstat(stream.fileno()).st_size > FILE_BYTES:
            raise OSError(errno.EFBIG, f"larger than {FILE_BYTES // 1_000_000} MB")
        data = stream.read()
    text = decode_text(data)
    if text is None:
        if pattern.line.search(data.decode("utf-8", "surrogateescape")):
            raise BinaryMatch
        return []
    if text and "\n" not in text:  # "\r" may end the lines
        text = text.replace("\r", "\n")
    lines = _matching_lines(text.removesuffix("\n"), pattern) if text else ()
    return [(number, line.encode("utf-8", "surrogateescape")) for number, line in lines]


def _matching_lines(text: str, pattern: LinePattern) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that match; only those are looked at if a whole text can be
    searched."""
    if pattern.text is None:
        for number, line in enumerate(text.split("\n"), 1):
            if pattern.line.search(line):
                yield number, line
        return
    number, start, end = 1, 0, -1
    while end < len(text) and (match := pattern.text.search(text, end + 1)):
        number += text.count("\n", start, match.start())
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        yield number, text[start:end]


def decode_text(data: bytes) -> str | None:
    """Return a file's text without its byte order mark, or None if it is binary."""
    if encoding := _UTF16.get(data[:2]):
        return data[2:].decode(encoding, "replace")
    if b"\0" in data:
        encoding = guess_utf16(data, is_whole=True)
        return data.decode(encoding) if encoding else None
    text = data.removeprefix(codecs.BOM_UTF8)
    try:
        return text.decode()
    except UnicodeDecodeError:
        if len(text) < len(data) or stray_bytes.is_mostly_utf8(text):
            return text.decode("utf-8", stray_bytes.ERRORS)
        return text.decode(guess_charset(text, is_whole=True))


def main() -> None:
    """Serve searches until standard input ends. A request is its size and then a folder, mode, pattern and
    paths, each with a NUL after it.

    The answer comes in parts, each after its size: `path NUL` for each file (mode files) or `path NUL
    number:line` for each match, then an empty part and one with the errors. Binary files with matches and,
    among the errors, unreadable ones are named as ripgrep does.
    """
    requests, out = sys.stdin.buffer, Parts(sys.stdout.buffer)
    while size := requests.read(SIZE_BYTES):
        folder, mode, source, *targets = (
            os.fsdecode(argument) for argument in requests.read(int.from_bytes(size)).split(b"\0")[:-1]
        )
        os.chdir(folder)
        errors = _search(mode, source, targets, out)
        os.chdir("/")  # or the folder could not be unmounted
        out.end(errors)


class Parts:
    """The answer to a search, which is written in parts."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._waiting = bytearray()

    def write(self, record: bytes) -> None:
        """Write a record, together with others."""
        self._waiting += record
        if len(self._waiting) >= _PART_BYTES:
            self._flush()

    def end(self, errors: bytes) -> None:
        """Write what waits, the end of the answer and the errors."""
        if self._waiting:
            self._flush()
        self._send(b"")
        self._send(errors)

    def _flush(self) -> None:
        self._send(self._waiting)
        self._waiting = bytearray()

    def _send(self, part: bytes | bytearray) -> None:
        self._stream.write(len(part).to_bytes(SIZE_BYTES) + part)
        self._stream.flush()


def _search(mode: str, source: str, targets: Sequence[str], out: Parts) -> bytes:
    """Write the hits, and return the errors."""
    if mode == "files":
        for path in files(targets[0]):
            out.write(os.fsencode(path) + b"\0")
        return b""
    errors = bytearray()
    pattern = compile_for_lines(re.escape(source) if mode == "plain" else source)
    for path in (path for target in targets for path in files(target)):
        try:
            for number, line in matches(path, pattern):
                out.write(b"%b\0%d:%b\n" % (os.fsencode(path), number, line))
        except BinaryMatch:
            out.write(b"%b: binary file matches\n" % os.fsencode(path))
        except FileNotFoundError:
            continue  # it was deleted since it was listed
        except OSError as error:
            if len(errors) < _ERROR_BYTES:
                errors += os.fsencode(f"walk: {path}: {error.strerror} (os error {error.errno})\n")
    return bytes(errors)


def _walk_folder(folder: str, layers: list[Layer]) -> Generator[str]:
    try:
        with os.scandir(folder) as entries:
            sorted_entries = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    names = {entry.name for entry in sorted_entries}
    if ".git" in names:
        layers = []
    if ".gitignore" in names:
        layers = [*layers, Layer(os.path.abspath(folder), _rules(os.path.join(folder, ".gitignore")))]
    base = os.path.abspath(folder)
    for entry in sorted_entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not (is_folder or entry.is_file(follow_symlinks=False)):
            continue
        verdict = _verdict(layers, os.path.join(base, entry.name), is_folder) if layers else None
        if verdict is False or (verdict is None and entry.name.startswith(".")):
            continue
        if is_folder:
            yield from _walk_folder(entry.path, layers)
        else:
            yield entry.path


def _layers_above(folder: str) -> list[Layer]:
    """Return the rules of the folders above, up to the repository's root."""
    layers: list[Layer] = []
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
        layers.insert(0, Layer(folder, _rules(os.path.join(folder, ".gitignore"))))
    return layers


def _rules(path: str) -> list[IgnoreRule]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, encoding="utf-8", errors="surrogateescape") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []  # a named pipe would never end
            lines = stream.read(_MAX_RULES_CHARS).split("\n")
    except OSError:
        return []
    return [rule for rule in map(_rule, lines) if rule is not None]


def _rule(line: str) -> IgnoreRule | None:
    line = line.removesuffix("\r")
    while line.endswith(" ") and not line.endswith("\\ "):
        line = line[:-1]
    if not line or line.startswith("#"):
        return None
    is_kept = line.startswith("!")
    line = line[1:] if is_kept else line
    only_folders = line.endswith("/")
    line = line.removesuffix("/")
    try:
        glob = Glob(line.removeprefix("/"), is_name="/" not in line)
    except GlobError:
        return None
    return IgnoreRule(glob, is_kept, only_folders)


def _verdict(layers: Sequence[Layer], path: str, is_folder: bool) -> bool | None:
    """Return whether the last matching rule keeps the path (True) or drops it (False), or None without a
    match. The path is absolute and below the folder of every layer."""
    for layer in reversed(layers):
        inside = path[len(layer.folder) :].lstrip("/")
        for rule in reversed(layer.rules):
            if (is_folder or not rule.only_folders) and rule.glob.matches(inside):
                return rule.is_kept
    return None
