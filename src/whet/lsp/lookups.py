"""Ask a language server about symbols: definitions, references, the outline of a file, the diff of a
rename."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from whet.contract.errors import BadInput, ToolError
from whet.contract.texts import clean, plural
from whet.file_names import printable
from whet.lsp.checks import EditChecks
from whet.lsp.errors import one_line
from whet.lsp.loading import ask_until_loaded
from whet.lsp.positions import replace_ranges, split_lines, to_path, to_units, to_uri

SymbolAction = Literal["definition", "references", "symbols", "rename"]
_ANSWER_S = 20.0
_MAX_TRIES = 5
_MAX_ROWS = 100
_LINE_CHARS = 200
_MAX_FILES = 200
_MAX_DIFF_CHARS = 2_000_000
_KINDS = {
    2: "module",
    5: "class",
    6: "method",
    7: "property",
    8: "field",
    9: "constructor",
    10: "enum",
    11: "interface",
    12: "function",
    13: "variable",
    14: "constant",
    22: "member",
    23: "struct",
}


class SymbolQuery(msgspec.Struct, frozen=True):
    """A question about a symbol: its file, its name as written there, and its line from 1 (0: any line)."""

    action: SymbolAction
    path: Path | None = None
    symbol: str = ""
    line: int = 0
    new_name: str = ""
    unsaved: str | None = None
    """The file's unsaved text in the person's editor, or None if there is none."""


async def find_locations(checks: EditChecks, query: SymbolQuery) -> str:
    """Return the locations where a symbol is defined or used, one a line. Raises ToolError."""
    more = {"context": {"includeDeclaration": True}} if query.action == "references" else {}
    answer = await _ask_at(checks, query, f"textDocument/{query.action}", more)
    notes = _loading_notes(checks) if query.action == "references" else []
    locations = dict.fromkeys(_read_locations(answer))
    if not locations:
        nothing = f"[{checks.server.program.name} knows no {query.action} of {printable(query.symbol)} there]"
        return "\n".join([nothing, *notes])
    rows = await asyncio.to_thread(_describe_locations, checks, list(locations)[:_MAX_ROWS])
    return "\n".join([_join(rows, len(locations)), *notes])


async def list_symbols(checks: EditChecks, query: SymbolQuery) -> list[str]:
    """Return the outline of a file or, without a file, the project's symbols that match. Raises ToolError."""
    server, root = checks.server, checks.server.root
    async with server.lock:
        await checks.refresh()
        if query.path is None:

            async def ask() -> Any:
                return await server.request("workspace/symbol", {"query": query.symbol}, _ANSWER_S)

            answer = await ask_until_loaded(server, ask)
            return _loading_notes(checks) + [
                f"{_relative_name(path, root)}:{line + 1}: {_KINDS.get(kind, 'symbol')} {name}"
                for name, kind, path, line, _ in _read_symbols(answer, None)
                if path is not None and path.is_relative_to(root)
            ]
        await _show(checks, query)
        document = {"textDocument": {"uri": to_uri(query.path)}}
        answer = await server.request("textDocument/documentSymbol", document, _ANSWER_S)
    return [
        f"{line + 1}: {'  ' * depth}{_KINDS.get(kind, 'symbol')} {name}"
        for name, kind, _, line, depth in _read_symbols(answer, query.path)
        if query.symbol in name
    ]


async def plan_rename(checks: EditChecks, query: SymbolQuery, read_text: Callable[[Path], str | None]) -> str:
    """Return the unified diff that renames a symbol everywhere. `read_text` returns a file's text with
    unsaved edits. Raises ToolError if the server has not loaded the whole project, or if the rename would
    change a file outside the workspace or a file's name."""
    answer = await _ask_at(checks, query, "textDocument/rename", {"newName": query.new_name})
    if not checks.server.has_loaded:
        name = checks.server.program.name
        raise ToolError(
            f"{name} is still loading the project, so nothing was renamed", hint="try again in a while"
        )
    try:
        edits = _read_edits(answer)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ToolError(f"{checks.server.program.name} sent a rename that can't be read") from None
    if not edits:
        raise ToolError(f"{checks.server.program.name} can't rename {printable(query.symbol)} there")
    return await asyncio.to_thread(_make_diff, checks.server.root, edits, read_text)


def _make_diff(
    root: Path,
    edits: Mapping[Path, list[tuple[dict[str, Any], str]]],
    read_text: Callable[[Path], str | None],
) -> str:
    rows: list[str] = []
    for path, changes in sorted(edits.items()):
        name = str(path.relative_to(root)) if path.is_relative_to(root) else ""
        if not name or not name.isprintable() or ".." in path.parts:
            raise ToolError(f"the rename would change {printable(str(path))}, which is outside the workspace")
        if (text := read_text(path)) is None:
            raise ToolError(f"the rename would change {printable(name)}, which can't be read")
        try:
            new = replace_ranges(text, changes)
        except (LookupError, TypeError, ValueError):
            raise ToolError("the server's rename overlaps itself, so nothing was changed") from None
        rows += _diff_rows(text, new, name)
    diff = "".join(rows)
    if len(edits) > _MAX_FILES or len(diff) > _MAX_DIFF_CHARS:
        raise ToolError(f"the rename would change {plural(len(edits), 'file')}, too many for one edit")
    return diff


def _diff_rows(old: str, new: str, name: str) -> Iterator[str]:
    before, after = (text.replace("\r\n", "\n").split("\n") for text in (old, new))
    ended = [[f"{line}\n" for line in rows[:-1]] + rows[-1:] * bool(rows[-1]) for rows in (before, after)]
    for row in difflib.unified_diff(ended[0], ended[1], f"a/{name}", f"b/{name}"):
        yield row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n"


async def _ask_at(checks: EditChecks, query: SymbolQuery, method: str, more: Mapping[str, Any]) -> Any:
    """Ask about a symbol in a file. If the file contains its name several times, returns the first answer
    that is not empty. Questions other than "definition" are repeated until the server has loaded the
    project."""
    assert query.path is not None
    uri = to_uri(query.path)
    async with checks.server.lock:
        await checks.refresh()
        positions = _find_positions(await _show(checks, query), query)

        async def ask() -> Any:
            answer: Any = None
            for line, units in positions:
                position = {"line": line, "character": units}
                params = {"textDocument": {"uri": uri}, "position": position, **more}
                answer = await checks.server.request(method, params, _ANSWER_S)
                if answer:
                    break
            return answer

        return await (ask() if query.action == "definition" else ask_until_loaded(checks.server, ask))


def _loading_notes(checks: EditChecks) -> list[str]:
    """Return the line about a possibly incomplete answer, or an empty list."""
    server = checks.server
    if server.has_loaded:
        return []
    return [
        f"[{server.program.name} is still loading the project, so places may be missing; ask again later]"
    ]


async def _show(checks: EditChecks, query: SymbolQuery) -> str:
    assert query.path is not None
    text = await checks.show(query.path, query.unsaved)
    if text is None:
        raise BadInput(f"{printable(query.path.name)} can't be read as source text")
    return text


def _find_positions(text: str, query: SymbolQuery) -> list[tuple[int, int]]:
    """Return the lines and columns where the text contains the symbol. Raises BadInput if there are none."""
    lines = split_lines(text)
    if query.line > len(lines):
        raise BadInput(f"the file has {plural(len(lines), 'line')}")
    word = re.compile(rf"(?<!\w){re.escape(query.symbol)}(?!\w)")
    numbers = range(query.line - 1, query.line) if query.line else range(len(lines))
    positions = [
        (number, to_units(lines[number], match.start()))
        for number in numbers
        for match in word.finditer(lines[number])
    ]
    if not positions:
        area = f"line {query.line}" if query.line else "the file"
        raise BadInput(f"{area} does not hold the name {printable(query.symbol)}", hint="read the file")
    return positions[:_MAX_TRIES]


def _read_locations(answer: Any) -> Iterator[tuple[Path | None, int]]:
    for item in cast("list[Any]", answer if isinstance(answer, list) else [answer])[:5_000]:
        try:
            uri = item.get("targetUri") or item["uri"]
            span = item.get("targetSelectionRange") or item["range"]
            yield to_path(str(uri)), int(span["start"]["line"])
        except (LookupError, TypeError, ValueError, AttributeError):
            continue


def _describe_locations(checks: EditChecks, locations: list[tuple[Path | None, int]]) -> list[str]:
    root = checks.server.root
    texts: dict[Path, list[str]] = {}
    rows: list[str] = []
    for path, line in locations:
        if path is None or not path.is_relative_to(root):
            name = "a file that has no path" if path is None else printable(str(path))
            rows.append(f"{name}:{line + 1} (outside the workspace)")
            continue
        if path not in texts:
            texts[path] = split_lines(checks.files.read(path) or "")
        lines = texts[path]
        shown = clean(lines[line]).strip()[:_LINE_CHARS] if line < len(lines) else ""
        rows.append(f"{_relative_name(path, root)}:{line + 1}: {shown}".rstrip(": "))
    return rows


def _read_symbols(
    answer: Any, path: Path | None, depth: int = 0
) -> Iterator[tuple[str, int, Path | None, int, int]]:
    for item in cast("list[Any]", answer)[:2_000] if isinstance(answer, list) else ():
        try:
            location: Any = item.get("location") or item
            span: Any = item.get("selectionRange") or location["range"]
            name = one_line(str(item["name"]), _LINE_CHARS)
            symbol_path = path or to_path(str(location["uri"]))
            yield name, int(item.get("kind", 0)), symbol_path, int(span["start"]["line"]), depth
        except (LookupError, TypeError, ValueError, AttributeError):
            continue
        if depth < 4:
            yield from _read_symbols(item.get("children"), path, depth + 1)


def _read_edits(answer: Any) -> dict[Path, list[tuple[dict[str, Any], str]]]:
    """Return the edits by file. Raises ToolError if the answer contains more than edits of text."""
    edits: dict[Path, list[tuple[dict[str, Any], str]]] = {}
    documents: list[tuple[str, list[Any]]] = [*(answer.get("changes") or {}).items()] if answer else []
    for change in (answer.get("documentChanges") or ()) if answer else ():
        if "kind" in change:
            raise ToolError("the rename would create, rename or delete a file, so nothing was changed")
        documents.append((change["textDocument"]["uri"], change["edits"]))
    for uri, items in documents:
        path = to_path(str(uri))
        if path is None:
            raise ToolError(f"the rename would change {printable(str(uri))[:100]}, which is not a file here")
        edits.setdefault(path, []).extend((item["range"], str(item["newText"])) for item in items)
    return edits


def _join(rows: list[str], count: int) -> str:
    more = [f"[and {count - len(rows)} more]"] if count > len(rows) else []
    return "\n".join([*rows, *more])


def _relative_name(path: Path, root: Path) -> str:
    return printable(str(path.relative_to(root)))
