"""Change one setting in config.yaml and leave every other line, including comments, unchanged.

The parsed file gives the value's position. The changed text is parsed again, and is written only if exactly
that setting changed. Faults of other settings are left alone, so that each can be repaired. Processes that
edit at the same time wait for each other, so that no change is lost.
(ruamel.yaml's round trip changed other lines in 9 of 10 typical files: indentation, the columns of comments,
line ends, `---`, `~`.) This module does not know the environment and the flags.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from whet.config import paths
from whet.config.fields import Field, Value, format_value, read_text
from whet.config.load import find_field, parse_file, read_entry
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.contract.texts import strip_credentials

if TYPE_CHECKING:
    from whet.config.yaml_file import SectionNode, Span, YamlEntry

_PLAIN = re.compile(r"[A-Za-z/~][A-Za-z0-9_./~+@-]*(?::[A-Za-z0-9_./~+@-]+)*")
_NOT_TEXT = {"~", "true", "false", "yes", "no", "on", "off", "null", "y", "n"}
# The line ends of YAML 1.1, so that line numbers agree with the parser's.
_LINES = re.compile(r"[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])|[^\r\n\x85\u2028\u2029]+")
_MODE = 0o600


class SettingChange(msgspec.Struct, frozen=True):
    """A setting's value before and after an edit, None if it is not in the file."""

    key: str
    before: Value | None
    after: Value | None


def set_value(home: Home, key: str, text: str) -> SettingChange:
    """Write a setting to config.yaml, creating the file if needed. Lists are comma-separated. It may replace
    a value that is not allowed.

    On return the change is on disk. Raises ConfigError if the key is unknown, the value is not allowed, or
    the file is broken or can't be edited by line.
    """
    field = find_field(key)
    try:
        value = read_text(field, text)
    except ValueError as error:
        raise ConfigError(
            f"{key} can't be {strip_credentials(text)!r}; {error}", hint=f"whet config why {key}"
        ) from error
    with paths.lock_folder(home.root):
        return _apply(home, key, value)


def unset_value(home: Home, key: str) -> SettingChange:
    """Remove a setting from config.yaml, so that its default applies. A key in the file that is no setting
    is removed too. Raises as set_value does."""
    with paths.lock_folder(home.root):
        if key not in _read_entries(home, paths.read_small(home.config) or ""):
            find_field(key)
        return _apply(home, key, None)


def change_list(home: Home, key: str, add: Sequence[str] = (), remove: Sequence[str] = ()) -> SettingChange:
    """Add items to a list in the file and remove others. Raises as set_value does."""
    with paths.lock_folder(home.root):
        entry = _read_entries(home, paths.read_small(home.config) or "").get(key)
        before = read_entry(home, key, entry) if entry else ()
        remaining = [item for item in before if item not in remove] if isinstance(before, tuple) else []
        return _apply(home, key, tuple(dict.fromkeys([*remaining, *add])))


def set_table_entry(home: Home, key: str, name: str, entry: Mapping[str, object]) -> bool:
    """Write one named entry of a table, one field a line. Returns True if it replaced an entry.

    Raises as set_value does.
    """
    with paths.lock_folder(home.root):
        was_removed = _remove_table_entry(home, key, name)
        table = {**_read_table(home, key), name: _to_text_scalars(entry)}
        fields = [f"  {field}: {_format_entry(value)}" for field, value in entry.items()]
        _write_table(home, key, table, [f"{_quote(name)}:", *fields], "")
    return was_removed


def remove_table_entry(home: Home, key: str, name: str) -> bool:
    """Remove one named entry from a table. Returns False if it does not exist. Raises as set_value does."""
    with paths.lock_folder(home.root):
        return _remove_table_entry(home, key, name)


def _remove_table_entry(home: Home, key: str, name: str) -> bool:
    table = _read_table(home, key)
    if name not in table:
        return False
    del table[name]
    if table:
        _write_table(home, key, table, (), name)
    else:
        _apply(home, key, None)
    return True


def _read_table(home: Home, key: str) -> dict[str, object]:
    entry = _read_entries(home, paths.read_small(home.config) or "").get(key)
    return json.loads(str(read_entry(home, key, entry))) if entry else {}


def _write_table(
    home: Home, key: str, table: Mapping[str, object], added: Sequence[str], removed: str
) -> None:
    """Write a table. `added` are the lines of its new entry, or `removed` is the name of a removed one."""
    old = paths.read_small(home.config) or ""
    before = _read_entries(home, old)
    text = msgspec.json.encode(table).decode()
    section_name, _, field_name = key.partition(".")
    page = _Page(old)
    section, entry = _find_entry(home, old, key)
    if entry is not None and entry.parts and not entry.is_flow:
        new = page.add_table_entry(entry, added) if added else page.remove_table_entry(entry, removed)
    elif added and entry is None and (section is None or not section.is_flow):
        block = "\n".join([f"{field_name}:", *(f"    {line}" for line in added)])
        new = page.insert(section, block) if section else page.append_section(section_name, block)
    else:
        new = _edit_text(home, old, key, text)
    _require_only_change(home, new, key, before, text)
    _write_file(home, new)


def _write_file(home: Home, text: str) -> None:
    """Replace config.yaml. Raises ConfigError if the person has made it read-only."""
    mode = paths.read_mode(home.config)
    if mode is not None and not mode & stat.S_IWUSR:
        raise ConfigError(
            f"{home.config} is read-only (mode {mode:04o})", hint=f"chmod u+w {home.config} allows the change"
        )
    home.ensure()
    paths.replace_file(home.config, text, mode=mode or _MODE)


def _find_entry(home: Home, text: str, key: str) -> tuple[SectionNode | None, YamlEntry | None]:
    """Return the section of a key and its entry there, each None if the file does not have it."""
    section_name, _, field_name = key.partition(".")
    for section in parse_file(home, text):
        if section.name == section_name:
            entries = {entry.name: entry for entry in section.entries}
            return section, entries.get(field_name)
    return None, None


def _to_text_scalars(value: object) -> object:
    """Return a value with every scalar as text, as the file's reader returns it."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {key: _to_text_scalars(inner) for key, inner in fields.items()}
    if isinstance(value, list | tuple):
        return [_to_text_scalars(item) for item in cast("Sequence[object]", value)]
    return format_value(value) if isinstance(value, str | int | float | bool) else str(value)


def _format_entry(value: object) -> str:
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        entries = [f"{_quote(key)}: {_format_entry(inner)}" for key, inner in fields.items()]
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_format_entry(item) for item in cast("Sequence[object]", value)) + "]"
    return _quote(value) if isinstance(value, str) else str(_to_text_scalars(value))


def _read_entries(home: Home, text: str) -> dict[str, YamlEntry]:
    """Return the entries of a config.yaml that have a value, by key. Their values are not checked, and the
    keys may be no settings. Raises ConfigError if the sections can't be read."""
    return {
        f"{section.name}.{entry.name}": entry
        for section in parse_file(home, text)
        for entry in section.entries
        if entry.value is not None
    }


def _read_before(home: Home, key: str, entry: YamlEntry | None) -> Value | None:
    """Return the value that an edit replaces. One that is not allowed is returned as it is written."""
    if entry is None:
        return None
    try:
        return read_entry(home, key, entry)
    except ConfigError:
        return entry.value


def _apply(home: Home, key: str, value: Value | None) -> SettingChange:
    old = paths.read_small(home.config) or ""
    before = _read_entries(home, old)
    new = _edit_text(home, old, key, value)
    change = SettingChange(key, _read_before(home, key, before.get(key)), value)
    if change.before == value and (value is not None or new == old):
        return change
    _require_only_change(home, new, key, before, value)
    _write_file(home, new)
    return change


def _require_only_change(
    home: Home, new: str, key: str, before: Mapping[str, YamlEntry], value: Value | None
) -> None:
    """Raise ConfigError unless the text `new` has the entries of `before` with this one change."""
    expected = {name: entry.value for name, entry in before.items() if name != key}
    try:
        entries = _read_entries(home, new)
        changed = entries.pop(key, None)
        parsed = {name: entry.value for name, entry in entries.items()}
        after = read_entry(home, key, changed) if changed and value is not None else None
    except ConfigError:
        raise _manual_edit_error(home, key) from None
    if value is None or after is None:
        is_done = value is None and changed is None
    else:
        is_done = _normalize(find_field(key), after) == _normalize(find_field(key), value)
    if parsed != expected or not is_done:
        raise _manual_edit_error(home, key)


def _manual_edit_error(home: Home, key: str) -> ConfigError:
    return ConfigError(
        f"{home.config} is written in a way that can't be edited by line",
        hint=f"set {key} by hand: whet config edit",
    )


def _normalize(field: Field, value: Value) -> Value:
    """Return a value for comparison, a table with the same spelling whether it came from JSON or YAML."""
    if field.kind != "table":
        return value
    return json.dumps(_to_text_scalars(json.loads(str(value))), sort_keys=True)


def _edit_text(home: Home, old: str, key: str, value: Value | None) -> str:
    """Return the text `old` with the setting set to `value`, or without it if `value` is None."""
    section_name, _, name = key.partition(".")
    page = _Page(old)
    section, entry = _find_entry(home, old, key)
    if section and entry:
        if isinstance(value, tuple) and value and (new := page.replace_items(entry, value)):
            return new
        try:
            if value is None:
                return page.remove(section, entry)
            return page.replace_value(entry, _format_setting(find_field(key), value))
        except _NoColon:
            raise _manual_edit_error(home, key) from None
    if value is None:
        return old
    line = f"{name}: {_format_setting(find_field(key), value)}"
    return page.insert(section, line) if section else page.append_section(section_name, line)


def _format_setting(field: Field, value: Value) -> str:
    if field.kind == "table":
        return str(value)  # JSON is YAML
    if isinstance(value, tuple):
        return "[" + ", ".join(_quote(item) for item in value) + "]"
    return _quote(value) if isinstance(value, str) else format_value(value)


def _quote(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    # JSON's escapes are valid in YAML's double quotes. Characters that YAML treats as line ends must be
    # escaped too.
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(r"[\x7f-\x9f\u2028\u2029\ufeff]", lambda match: f"\\u{ord(match[0]):04x}", quoted)


def _remove_null(lines: list[str], span: Span) -> None:
    """Remove the `~` or `null` of an empty section, if it has one."""
    if span.line == span.end_line and span.line < len(lines):
        line = lines[span.line]
        lines[span.line] = line[: span.column] + line[span.end_column :]


class _NoColon(Exception):
    """A key's colon is not on its line, as in `? key` with `: value` below."""


class _Page:
    """The file as lines with their own line ends."""

    def __init__(self, text: str) -> None:
        self.lines = _LINES.findall(text)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        if self.lines and not self.lines[-1].endswith("\n"):
            self.lines[-1] += self.newline

    def replace_value(self, entry: YamlEntry, value: str) -> str:
        """Replace an entry's value. A comment after it stays."""
        span = entry.span
        end_line, end_column = self._end(span)
        if entry.value is None and (end_line, end_column) == (span.line, span.column):
            end_line, end_column = entry.key.end_line, self._after_colon(entry)
            return self._splice((end_line, end_column), (end_line, end_column), f" {value}")
        start = (span.line, span.column)
        if span.line > entry.key.line:
            # The value of a list below its key moves up to the key's line.
            start = (entry.key.line, self._after_colon(entry))
            value = f" {value}"
        return self._splice(start, (end_line, end_column), value)

    def replace_items(self, entry: YamlEntry, items: tuple[str, ...]) -> str:
        """Replace the items of a list that holds comments, which stay: before and behind the items that stay,
        and those on lines of their own. Returns "" for any other list, or one not written an item a line."""
        start, end = entry.key.end_line + 1, self._end(entry.span)[0] + 1
        old, lines = entry.value, self.lines[start:end]
        item_lines = [line for line in lines if line.lstrip().startswith("- ")]
        comments = [line for line in lines if line.lstrip().startswith("#")]
        is_plain = len(lines) == len(item_lines) + len(comments) and entry.span.line >= start
        if (
            not is_plain
            or not isinstance(old, tuple)
            or len(item_lines) != len(set(old))
            or "#" not in "".join(lines)
        ):
            return ""
        indent = item_lines[0][: len(item_lines[0]) - len(item_lines[0].lstrip())]
        written: dict[str, list[str]] = {}
        pending: list[str] = []
        names = iter(old)
        for line in lines:
            pending.append(line)
            if line in item_lines:
                name = next(names)
                written[name] = pending if name in items else []
                pending = [] if name in items else pending[:-1]
        new = [
            line for item in items for line in written.get(item, [f"{indent}- {_quote(item)}{self.newline}"])
        ]
        self.lines[start:end] = [*new, *pending]
        return "".join(self.lines)

    def remove(self, section: SectionNode, entry: YamlEntry) -> str:
        """Remove an entry, with its whole lines unless the section is written as {a: b}. A section without
        another entry or comment is removed with it."""
        end_line, end_column = self._end(entry.span)
        if not section.is_flow:
            del self.lines[entry.key.line : max(end_line, entry.key.line) + 1]
            if len(section.entries) == 1:
                self._remove_empty_section(section)
            return "".join(self.lines)
        start = (entry.key.line, entry.key.column)
        text = self._splice(start, (end_line, end_column), "\0")
        new = re.sub(r"\0\s*,\s*|,?\s*\0", "", text, count=1)
        if len(section.entries) > 1:
            return new
        self.lines[:] = new.splitlines(keepends=True)
        self._remove_empty_section(section)
        return "".join(self.lines)

    def _remove_empty_section(self, section: SectionNode) -> None:
        """Remove the key of a section whose entries were removed, and the empty line that `append_section`
        has put before it. If there is a comment at its key or below it, it stays."""
        start = section.key.line
        rest = [line for line in self.lines[start + 1 :] if line.strip()]
        has_comment = bool(rest) and rest[0].startswith((" ", "\t"))
        if has_comment or self.lines[start].split() not in ([f"{section.name}:"], [f"{section.name}:", "{}"]):
            return
        is_last = not rest
        del self.lines[start]
        if is_last and start and not self.lines[start - 1].strip():
            del self.lines[start - 1]

    def insert(self, section: SectionNode, line: str) -> str:
        """Add an entry at a section's end."""
        if section.is_flow and section.entries:
            end = self._end(section.entries[-1].span)
            return self._splice(end, end, f", {line}")
        if section.is_flow:
            start = (section.span.line, section.span.column + 1)
            return self._splice(start, start, line)
        if not section.entries:
            _remove_null(self.lines, section.span)
            self.lines.insert(section.key.line + 1, f"  {line}{self.newline}")
            return "".join(self.lines)
        last = section.entries[-1]
        at = max(self._end(last.span)[0], last.key.line)
        self.lines.insert(at + 1, " " * last.key.column + line + self.newline)
        return "".join(self.lines)

    def add_table_entry(self, entry: YamlEntry, lines: Sequence[str]) -> str:
        """Add lines after a table's last entry, with its indentation."""
        last = entry.parts[-1]
        at = max(self._end(last.span)[0], last.key.line)
        self.lines[at + 1 : at + 1] = [" " * last.key.column + line + self.newline for line in lines]
        return "".join(self.lines)

    def remove_table_entry(self, entry: YamlEntry, name: str) -> str:
        """Remove a table's entry with its whole lines."""
        part = next(candidate for candidate in entry.parts if candidate.name == name)
        del self.lines[part.key.line : max(self._end(part.span)[0], part.key.line) + 1]
        return "".join(self.lines)

    def append_section(self, name: str, line: str) -> str:
        """Add a section at the file's end."""
        gap = [self.newline] if self.lines and self.lines[-1].strip() else []
        return "".join([*self.lines, *gap, f"{name}:{self.newline}", f"  {line}{self.newline}"])

    def _after_colon(self, entry: YamlEntry) -> int:
        colon = self.lines[entry.key.end_line].find(":", entry.key.end_column)
        if colon < 0:
            raise _NoColon
        return colon + 1

    def _end(self, span: Span) -> tuple[int, int]:
        """Return the line and column after a value, from 0.

        The parser's end of a block is after the comments that follow, at the next key.
        """
        line, column = span.end_line, span.end_column
        while line > span.line and (line >= len(self.lines) or self._has_no_value(line, column)):
            line -= 1
            column = len(self.lines[line].rstrip())
        return line, column

    def _has_no_value(self, line: int, column: int) -> bool:
        """Return whether a line has nothing, or only a comment, before the column."""
        head = self.lines[line][:column].strip()
        return not head or head.startswith("#")

    def _splice(self, start: tuple[int, int], end: tuple[int, int], text: str) -> str:
        """Return the file with `text` instead of the range from `start` to `end`."""
        head = "".join(self.lines[: start[0]]) + self.lines[start[0]][: start[1]]
        return head + text + self.lines[end[0]][end[1] :] + "".join(self.lines[end[0] + 1 :])
