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
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from whet.contract.errors import BadInput, ToolError
from whet.contract.texts import clean, plural
from whet.file_names import printable
from whet.searchpath import find_trusted_program
from whet.tools.globs import Glob, GlobError, parse_path_glob
from whet.tools.ignore_files import wait_for_pipe
from whet.tools.paths import ConfinedPath, kind, missing_error, system_error
from whet.tools.search_output import Rows, SearchResult, drop_binary, take_records, take_unread
from whet.tools.search_process import RipgrepProcess, WalkProcess
from whet.tools.search_rules import drop_closed
from whet.tools.walk import is_hidden_in

MAX_ROWS = 20_000
_PARTIAL_S = 45.0
_RIPGREP = (
    *("--no-config", "--no-mmap", "--null", "--color=never"),
    *("--no-require-git", "--no-ignore-global", "--no-ignore-dot", "--no-ignore-exclude"),
)
_LINES = (
    *("--line-number", "--no-heading", "--with-filename"),
    *("--max-columns=2000", "--max-columns-preview", "--binary"),
)
_OTHER_ENCODINGS = (
    "--files-with-matches",
    "--text",
    r"-e(?-u)\x00|[\xc0\xc1\xf5-\xff]|[\xc2-\xf4](?:[^\x80-\xbf]|$)|(?:^|[\x00-\x7f])[\x80-\xbf]",
)
"""Lists the files with bytes that are not UTF-8, or with NULs as in UTF-16."""
_MAX_DECODED = 400  # files in other encodings, whose names go on one command line
_SIMPLE_GLOB = re.compile(r"[\w.*?{},-]+")
_NOT_ONE_LINE = re.compile("[\n\0\ud800-\udfff]")
_WILD = re.compile(r"[*?\[{]")
_NAMES_AT_ONCE = 200
_LINK_FOLDERS = 200
_MAX_HIDDEN = 5
_NEVER_MEANT = (".git", ".hg", ".svn", ".DS_Store")
"""The beginnings of the names of hidden entries that are not reported: searches are rarely meant for them."""


class _Hangs(Exception):
    """Ripgrep waits for an ignore file that is not a regular file, or was ended because it read too much."""


class Query(msgspec.Struct, frozen=True):
    """A search: a regular expression for the lines of files, or a glob for file names if `names`; and which
    hits to show. Files for which `is_closed` is true are not shown."""

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
    look = _names if query.names else _content
    try:
        result = await look(target, query, program)
    except _Hangs:
        result = await look(target, query, None)
    if query.is_closed is not None:
        await asyncio.to_thread(drop_closed, result, target.root, _folder(target), query.is_closed)
    shown = await _filter_by_glob(result, query.glob)
    if not shown.count and kind(target) == "folder":
        shown.unread += await asyncio.to_thread(_find_left_out, target)
    return _report(shown, target, query.offset, query.limit)


async def _names(target: ConfinedPath, query: Query, program: str | None) -> SearchResult:
    pattern = query.pattern
    name_pattern = _glob(pattern if _WILD.search(pattern) else f"*{pattern}*")
    if program:
        arguments = (program, *_RIPGREP, "--files", "--", _target(target))
        result, errors = await _run(RipgrepProcess(), arguments, target, has_lines=False)
    else:
        result, errors = await _walk("files", target, "")
    if errors and not result.count:
        raise ToolError(f"the search failed: {errors}")
    rows = await _matching(result.rows, name_pattern)
    return msgspec.structs.replace(result, rows=rows, count=len(rows))


async def _content(target: ConfinedPath, query: Query, program: str | None) -> SearchResult:
    """Search with ripgrep, then with Python's expressions, then for the plain text, until one succeeds."""
    pattern = query.pattern
    if program:
        options = (*_RIPGREP, *_LINES, *_type_options(query.glob), "-e", pattern)
        arguments = (program, *options, "--", _target(target))
        result, errors = await _run(RipgrepProcess(), arguments, target, has_lines=True)
        if result.count or not errors:
            return await _add_decoded(result, target, pattern, program)
    mode = "regex" if _compiles(pattern) else "plain"
    result, errors = await _walk(mode, target, pattern)
    if errors and not result.count:
        raise ToolError(f"the search failed: {errors}")
    if mode == "plain":
        note = "not a valid regex, so searched as plain text"
        result.note = f"{note}; {result.note}" if result.note else note
    return result


async def _add_decoded(
    result: SearchResult, target: ConfinedPath, pattern: str, program: str
) -> SearchResult:
    """Search the files that are not UTF-8 again, as text, and put their rows in the place of ripgrep's.

    Ripgrep finds ASCII in most of them. It is asked for the others if they could hold all that is missing.
    """
    names = result.undecoded | result.binary
    if not result.count or not pattern.isascii() or kind(target) == "file":
        arguments = (program, *_RIPGREP, *_OTHER_ENCODINGS, "--", _target(target))
        listed, _ = await _run(RipgrepProcess(), arguments, target, has_lines=False)
        names |= listed.rows.keys()
    if not names or not _compiles(pattern):
        return result
    searched = sorted(names)[:_MAX_DECODED]
    if len(names) > len(searched):
        result.unread.append(f"{len(names) - len(searched):,} files that are not UTF-8")
    decoded, _ = await _walk("regex", target, pattern, [os.path.join(".", name) for name in searched])
    for name in searched:
        result.count -= len(result.rows.pop(name, ()))
    result.rows |= decoded.rows
    result.count += decoded.count
    result.binary = (result.binary - set(searched)) | decoded.binary
    result.note = result.note or decoded.note
    result.unread += decoded.unread
    return result


async def _walk(
    mode: str, target: ConfinedPath, pattern: str, paths: Sequence[str] = ()
) -> tuple[SearchResult, str]:
    """Search without ripgrep. Returns the result and the error text."""
    arguments = [mode, pattern, *(paths or (_target(target),))]
    return await _run(WalkProcess(), arguments, target, has_lines=mode != "files")


def _type_options(glob: str) -> tuple[str, ...]:
    """Let ripgrep skip other files early. Its --glob would also include ignored files; a type does not."""
    if _SIMPLE_GLOB.fullmatch(glob):
        return ("--type-add", f"wanted:{glob}", "--type", "wanted")
    return ()


def _glob(glob: str) -> Glob:
    try:
        return parse_path_glob(glob)
    except GlobError as error:
        raise BadInput(f"{glob!r} is not a glob: {error}", hint="for example *.py or src/**/*.ts") from error


async def _matching(rows: Rows, wanted: Glob) -> Rows:
    """Return the rows of the paths that match, and let other tasks run in between."""
    matching: Rows = {}
    for number, (name, lines) in enumerate(rows.items()):
        if wanted.matches(name):
            matching[name] = lines
        if number % _NAMES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return matching


def _find_left_out(target: ConfinedPath) -> list[str]:
    """Return the links out of the workspace and the hidden entries in the first folders, breadth first: they
    are not searched, and a reader would take "no matches" for "nowhere"."""
    links: list[str] = []
    hidden: list[str] = []
    folders, root = [Path()], os.path.realpath(target.root)
    for number, folder in enumerate(folders):
        if number == _LINK_FOLDERS:
            break
        is_hidden = is_hidden_in(str(target.path), folder.parts)
        with suppress(OSError), os.scandir(target.path / folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    if not entry.name.startswith(_NEVER_MEANT) and is_hidden(entry.name, entry.is_dir()):
                        hidden.append(str(folder / entry.name))
                    continue
                if entry.is_symlink():
                    end = os.path.realpath(entry.path)
                    if os.path.exists(end) and os.path.commonpath((root, end)) != root:
                        links.append(f"{folder / entry.name} (a link out of the workspace)")
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(folder / entry.name)
    names = [f"{name} (hidden)" for name in sorted(hidden)[:_MAX_HIDDEN]]
    if len(hidden) > _MAX_HIDDEN:
        names.append(f"{len(hidden) - _MAX_HIDDEN} other hidden files and folders")
    return sorted(links) + names


async def _filter_by_glob(result: SearchResult, glob: str) -> SearchResult:
    if not glob:
        return result
    wanted = _glob(glob)
    matching = await _matching(result.rows, wanted)
    rows = {name: lines for name, lines in matching.items() if not name.rsplit("/", 1)[-1].startswith(".")}
    count = sum(max(1, len(lines)) for lines in rows.values())
    binary = {name for name in result.binary if wanted.matches(name)}
    return msgspec.structs.replace(result, rows=rows, count=count, binary=binary)


async def _run(
    process: RipgrepProcess | WalkProcess, arguments: Sequence[str], target: ConfinedPath, *, has_lines: bool
) -> tuple[SearchResult, str]:
    """Search until the process ends, reaches its limit or is cancelled. Returns its output and error text.
    Raises _Hangs."""
    result, folder, buffer = SearchResult({}), _folder(target), b""

    def take(chunk: bytes) -> bool:
        nonlocal buffer
        buffer = take_records(buffer + chunk, result, has_lines)
        return result.count < MAX_ROWS or not has_lines

    waiting: set[asyncio.Future[Any]] = set()
    if isinstance(process, RipgrepProcess):
        waiting.add(asyncio.create_task(wait_for_pipe(folder)))
    with ThreadPoolExecutor(1, "search") as thread:  # long searches would fill the threads of others
        searching = asyncio.get_running_loop().run_in_executor(thread, process.run, arguments, folder, take)
        try:
            done, _ = await asyncio.wait(
                {searching, *waiting}, timeout=_PARTIAL_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waiting:
                task.cancel()
            process.kill()
            await asyncio.wait({searching})
    if done & waiting or process.was_aborted:
        raise _Hangs
    try:
        errors = searching.result()
    except OSError as error:
        raise system_error("search", target, error) from error
    if has_lines and buffer and result.count < MAX_ROWS:
        drop_binary(buffer + b"\n", result)
    if not done:
        result.note = f"stopped after {_PARTIAL_S:.0f} s, so there may be more"
    elif result.count >= MAX_ROWS and has_lines:
        result.note = f"stopped at {result.count:,} matches; narrow the search"
    return result, take_unread(clean(errors.decode("utf-8", "replace")), result)


def _report(result: SearchResult, target: ConfinedPath, offset: int, limit: int) -> str:
    shown = target.shown if kind(target) == "folder" else os.path.dirname(target.shown)
    prefix = "" if _folder(target) == target.root else f"{shown}/"
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
