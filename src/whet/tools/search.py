"""The `search_files` tool: find matching lines, or files by name, below a folder of the workspace.

Ripgrep is used if it is installed. `walk.py` is used otherwise, or if the pattern needs a feature that
only Python's expressions have; `walk.py` also searches the files that are not UTF-8, since it knows their
character sets. Both run as processes with the same output format and are killed when the call is
cancelled. A result names the files that match but can't be shown, and those that could not be read.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import warnings
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from whet.contract.errors import BadInput, ToolError
from whet.contract.texts import plural
from whet.searchpath import find_trusted_program
from whet.tools import walk
from whet.tools.globs import Glob, GlobError, path_glob
from whet.tools.output import clean
from whet.tools.paths import ConfinedPath, kind, missing_error, printable, system_error

MAX_ROWS = 20_000
LINE_CHARS = 240
_PARTIAL_S = 45.0
_CHUNK_BYTES = 1 << 16
_RIPGREP = (
    "--no-config",
    "--no-mmap",
    "--null",
    "--color=never",
    "--no-require-git",
    "--no-ignore-global",
    "--no-ignore-dot",
    "--no-ignore-exclude",
)
_LINES = (
    "--line-number",
    "--no-heading",
    "--with-filename",
    "--max-columns=2000",
    "--max-columns-preview",
    "--binary",
)
_OTHER_ENCODINGS = (
    "--files-with-matches",
    "--text",
    r"-e(?-u)\x00|[\xc0\xc1\xf5-\xff]|[\xc2-\xf4](?:[^\x80-\xbf]|$)|(?:^|[\x00-\x7f])[\x80-\xbf]",
)
"""Lists the files with bytes that are not UTF-8, or with NULs as in UTF-16."""
_MAX_DECODED = 400  # files in other encodings, whose names go on one command line
_UNREAD = re.compile(r"(?:rg|walk): (?:\./)?(.+): ([^:]+) \(os error \d+\)")
_SHOWN_NAMES = 5
_SIMPLE_GLOB = re.compile(r"[\w.*?{},-]+")
_NOT_ONE_LINE = re.compile("[\n\0\ud800-\udfff]")
_WILD = re.compile(r"[*?\[{]")
_BINARY = re.compile(rb"([^\n]*): (?:WARNING: stopped searching binary file|binary file matches)[^\n]*\n")
_PREVIEW = re.compile(r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]$")


_WALK = "import sys; sys.path.append(sys.argv[1]); from whet.tools.walk import main; main(sys.argv[2:])"
_PACKAGES = str(Path(walk.__file__).parents[2])
_NAMES_AT_ONCE = 200
_Rows = dict[str, list[tuple[int, str]]]


class _SearchResult(msgspec.Struct):
    """The result of a search: rows (line number, text) by path. Names have no rows.

    `undecoded` have rows that are not UTF-8. `binary` files match but have no rows. `unread` could not be
    read or are too large: the names with their reasons.
    """

    rows: _Rows
    count: int = 0
    note: str = ""
    undecoded: set[str] = msgspec.field(default_factory=set[str])
    binary: set[str] = msgspec.field(default_factory=set[str])
    unread: list[str] = []

    def notes(self) -> str:
        """Return what a reader must know besides the rows."""
        notes = [self.note] if self.note else []
        if self.binary:
            notes.append(f"binary files match too: {_join_names(sorted(self.binary))}")
        if self.unread:
            notes.append(f"not searched: {_join_names(self.unread)}")
        return "".join(f"; {note}" for note in notes)


class _Command(msgspec.Struct, frozen=True):
    arguments: tuple[str, ...]
    has_lines: bool
    cwd: Path


class Query(msgspec.Struct, frozen=True):
    """A search: a regular expression for the lines of files, or a glob for file names if `names`; and which
    hits to show. Lines of files for which `is_closed` is true are not shown."""

    pattern: str
    names: bool
    glob: str
    limit: int
    offset: int
    is_closed: Callable[[str], bool] | None = None


async def search(target: ConfinedPath, query: Query, ripgrep: str | None) -> str:
    """Return the hits below a folder, or in a file. Raises ToolError."""
    if not query.pattern or _NOT_ONE_LINE.search(query.pattern):
        raise BadInput("pattern must be one line of text", hint="search for one line of it")
    if kind(target) == "":
        raise missing_error(target)
    program = find_trusted_program(ripgrep, target.root) if ripgrep else None
    if query.names:
        result = await _names(target, query.pattern, program)
    else:
        result = await _content(target, query.pattern, query.glob, program)
        _drop_closed(result, target, query.is_closed)
    return _report(await _filter_by_glob(result, query.glob), target, query.offset, query.limit)


async def _names(target: ConfinedPath, pattern: str, program: str | None) -> _SearchResult:
    with_ripgrep = (program or "", *_RIPGREP, "--files", "--", _target(target))
    arguments = with_ripgrep if program else _walk_command("files", target, "")
    name_pattern = _glob(pattern if _WILD.search(pattern) else f"*{pattern}*")
    result, errors = await _run(_Command(arguments, False, _folder(target)), target)
    if errors and not result.count:
        raise ToolError(f"the search failed: {errors}")
    rows = await _matching(result.rows, name_pattern)
    return msgspec.structs.replace(result, rows=rows, count=len(rows))


async def _content(target: ConfinedPath, pattern: str, glob: str, program: str | None) -> _SearchResult:
    """Search with ripgrep, then with Python's expressions, then for the plain text, until one succeeds."""
    if program:
        arguments = (program, *_RIPGREP, *_LINES, *_type_options(glob), "-e", pattern, "--", _target(target))
        result, errors = await _run(_Command(arguments, True, _folder(target)), target)
        if result.count or not errors:
            return await _add_decoded(result, target, pattern, program)
    mode = "regex" if _compiles(pattern) else "plain"
    result, errors = await _run(_Command(_walk_command(mode, target, pattern), True, _folder(target)), target)
    if errors and not result.count:
        raise ToolError(f"the search failed: {errors}")
    if mode == "plain":
        note = "not a valid regex, so searched as plain text"
        result.note = f"{note}; {result.note}" if result.note else note
    return result


async def _add_decoded(
    result: _SearchResult, target: ConfinedPath, pattern: str, program: str
) -> _SearchResult:
    """Search the files that are not UTF-8 again, as text, and put their rows in the place of ripgrep's.

    Ripgrep finds ASCII in most of them. It is asked for the others if they could hold all that is missing.
    """
    names = result.undecoded | result.binary
    if not result.count or not pattern.isascii() or kind(target) == "file":
        arguments = (program, *_RIPGREP, *_OTHER_ENCODINGS, "--", _target(target))
        listed, _ = await _run(_Command(arguments, False, _folder(target)), target)
        names |= listed.rows.keys()
    if not names or not _compiles(pattern):
        return result
    searched = sorted(names)[:_MAX_DECODED]
    if len(names) > len(searched):
        result.unread.append(f"{len(names) - len(searched):,} files that are not UTF-8")
    arguments = _walk_command("regex", target, pattern, [os.path.join(".", name) for name in searched])
    decoded, _ = await _run(_Command(arguments, True, _folder(target)), target)
    for name in searched:
        result.count -= len(result.rows.pop(name, ()))
    result.rows |= decoded.rows
    result.count += decoded.count
    result.binary = (result.binary - set(searched)) | decoded.binary
    result.note = result.note or decoded.note
    result.unread += decoded.unread
    return result


def _walk_command(
    mode: str, target: ConfinedPath, pattern: str, paths: Sequence[str] = ()
) -> tuple[str, ...]:
    python = (sys.executable or "python3", "-I", "-S", "-W", "ignore", "-c", _WALK, _PACKAGES)
    return (*python, mode, pattern, *(paths or (_target(target),)))


def _type_options(glob: str) -> tuple[str, ...]:
    """Let ripgrep skip other files early. Its --glob would also include ignored files; a type does not."""
    if _SIMPLE_GLOB.fullmatch(glob):
        return ("--type-add", f"wanted:{glob}", "--type", "wanted")
    return ()


def _glob(glob: str) -> Glob:
    try:
        return path_glob(glob)
    except GlobError as error:
        raise BadInput(f"{glob!r} is not a glob: {error}", hint="for example *.py or src/**/*.ts") from error


async def _matching(rows: _Rows, wanted: Glob) -> _Rows:
    """Return the rows of the paths that match, and let other tasks run in between."""
    matching: _Rows = {}
    for number, (name, lines) in enumerate(rows.items()):
        if wanted.matches(name):
            matching[name] = lines
        if number % _NAMES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return matching


def _drop_closed(
    result: _SearchResult, target: ConfinedPath, is_closed: Callable[[str], bool] | None
) -> None:
    """Drop the files that a deny rule closes to readers, and say so whether they match or not."""
    if is_closed is None:
        return
    folder = _folder(target)
    for name in [name for name in result.rows if is_closed(os.path.join(folder, name))]:
        result.count -= len(result.rows.pop(name))
    result.binary = {name for name in result.binary if not is_closed(os.path.join(folder, name))}
    result.unread.append("files that a deny rule closes")


async def _filter_by_glob(result: _SearchResult, glob: str) -> _SearchResult:
    if not glob:
        return result
    matching = await _matching(result.rows, _glob(glob))
    rows = {name: rows for name, rows in matching.items() if not name.rsplit("/", 1)[-1].startswith(".")}
    count, wanted = sum(max(1, len(lines)) for lines in rows.values()), _glob(glob)
    binary = {name for name in result.binary if wanted.matches(name)}
    return msgspec.structs.replace(result, rows=rows, count=count, binary=binary)


async def _run(command: _Command, target: ConfinedPath) -> tuple[_SearchResult, str]:
    """Run a search program until it ends, reaches its limit or is cancelled. Returns its output and error
    text."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command.arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=command.cwd
        )
    except OSError as error:
        raise system_error("search", target, error) from error
    result = _SearchResult({})
    errors = b""
    try:
        async with asyncio.timeout(_PARTIAL_S), asyncio.TaskGroup() as group:
            complaint = group.create_task(_read_errors(process))
            await _collect(process, result, command.has_lines)
            _end(process)
        errors = complaint.result()
    except TimeoutError:
        result.note = f"stopped after {_PARTIAL_S:.0f} s, so there may be more"
    finally:
        _end(process)
        await process.communicate()  # not `wait`, which never ends if asyncio had stopped reading a full pipe
    return result, _take_unread(clean(errors.decode("utf-8", "replace")), result)


def _take_unread(errors: str, result: _SearchResult) -> str:
    """Record the files that a search could not read, and return the other errors."""
    others: list[str] = []
    for line in errors.splitlines():
        match = _UNREAD.fullmatch(line)
        if match is None:
            others.append(line)
        else:
            result.unread.append(f"{match[1]} ({match[2].lower()})")
    return "\n".join(others).strip()[:500]


def _end(process: Process) -> None:
    """Kill the process if it still runs, by its id: Process.kill could reap it before asyncio does."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def _read_errors(process: Process) -> bytes:
    assert process.stderr is not None
    error_bytes = b""
    while chunk := await process.stderr.read(_CHUNK_BYTES):
        error_bytes = (error_bytes + chunk)[:4_000]
    return error_bytes


async def _collect(process: Process, result: _SearchResult, has_lines: bool) -> None:
    assert process.stdout is not None
    buffer = b""
    while chunk := await process.stdout.read(_CHUNK_BYTES):
        buffer = _take_records(buffer + chunk, result, has_lines)
        if result.count >= MAX_ROWS and has_lines:
            result.note = f"stopped at {result.count:,} matches; narrow the search"
            return
    if has_lines and buffer:
        _drop_binary(buffer + b"\n", result)


def _take_records(buffer: bytes, result: _SearchResult, has_lines: bool) -> bytes:
    """Parse complete records (path NUL, or path NUL number:line NEWLINE) and return the remaining bytes."""
    start = 0
    while (middle := buffer.find(b"\0", start)) >= 0:
        if not has_lines:
            result.rows[_name(buffer[start:middle])] = []
            result.count += 1
            start = middle + 1
            continue
        end = buffer.find(b"\n", middle)
        if end < 0:
            break
        name = _name(_drop_binary(buffer[start:middle], result))
        number, _, line = buffer[middle + 1 : end].partition(b":")
        if not _is_utf8(line):
            result.undecoded.add(name)
        result.rows.setdefault(name, []).append((int(number), _shorten_line(line)))
        result.count += 1
        start = end + 1
    return buffer[start:]


def _drop_binary(path: bytes, result: _SearchResult) -> bytes:
    """Drop files that ripgrep found to be binary after printing lines of them. Returns the path after such
    notices."""
    while notice := _BINARY.match(path):
        dropped = result.rows.pop(_name(notice[1]), [])
        result.count -= len(dropped)
        result.binary.add(_name(notice[1]))
        path = path[notice.end() :]
    return path


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES:,} more"


def _name(path: bytes) -> str:
    return os.fsdecode(path).removeprefix("./")


def _shorten_line(line: bytes) -> str:
    text = clean(line[:4_000].decode("utf-8", "replace").removesuffix("\r"))
    if len(text) <= LINE_CHARS:
        return text
    return _PREVIEW.sub("", text)[:LINE_CHARS] + "..."


def _report(result: _SearchResult, target: ConfinedPath, offset: int, limit: int) -> str:
    prefix = "" if _folder(target) == target.root else f"{_display_folder(target)}/"
    if not result.count:
        return f"[no matches{result.notes()}]"
    names = sorted(result.rows)
    rows: list[str] = []
    position = 0
    for name in names:
        lines = result.rows[name]
        page = lines[max(0, offset - position) : max(0, offset + limit - position)]
        is_listed = not lines and offset <= position < offset + limit
        if page or is_listed:
            rows.append(prefix + printable(name))
            rows += [f"{number}|{line}" for number, line in page]
        position += len(lines) or 1
    has_lines = any(result.rows.values())
    match_count = f"{plural(result.count, 'match', 'matches')} in " if has_lines else ""
    note = match_count + plural(len(names), "file")
    last = min(offset + limit, result.count)
    if offset >= result.count:
        note += f"; offset {offset} is past the last"
    elif offset or last < result.count:
        note = f"{offset + 1}-{last} of {note}"
    if last < result.count:
        note += f"; go on with offset={last}"
    return "\n".join([*rows, f"[{note}{result.notes()}]"])


def _display_folder(target: ConfinedPath) -> str:
    if kind(target) == "folder":
        return target.shown
    return os.path.dirname(target.shown)


def _folder(target: ConfinedPath) -> Path:
    return target.path if kind(target) == "folder" else target.path.parent


def _target(target: ConfinedPath) -> str:
    return "." if kind(target) == "folder" else f"./{target.name}"


def _compiles(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
