"""Writes the hook into an agent's own settings file, checks it, and removes it again.

A record in Whet's home holds the inserted text, so that removal restores every byte, whatever else the file's
owner has changed since. If the agent has reformatted the file, only the setting's values are removed.
"""

from __future__ import annotations

import codecs
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from whet.config.paths import MAX_SMALL_BYTES, decode_text, read_file_bytes, read_small, replace_file
from whet.contract.errors import ConfigError, NotFound
from whet_confirm.adopt.agents import HookCommand, HookedAgent
from whet_confirm.adopt.json_insert import blank_comments, cut_items, insert_item, remove_item

_MARK = "confirm hook"


class _Record(msgspec.Struct, frozen=True):
    """A written setting: the file, the inserted text (`piece`), and the command.

    `is_new` means that the file did not exist. `earlier_piece` is the text that `piece` replaces; the file
    still contains it if the update was interrupted.
    """

    path: str
    piece: str
    command: str
    is_new: bool
    earlier_piece: str = ""

    def find_piece(self, text: str) -> str:
        """Return the inserted text if the file's text contains it, or an empty string."""
        for piece in (self.piece, self.earlier_piece):
            if piece and piece in text:
                return piece
        return ""


class Adoption:
    """One agent's setting. `records` is the folder of Whet's records."""

    def __init__(self, agent: HookedAgent, path: Path, records: Path) -> None:
        self.agent = agent
        self.path = path
        self._record_path = records / f"{agent.name}.json"

    def write(self, command: HookCommand) -> None:
        """Insert the setting, or update the one that is there.

        Raises ConfigError if the setting that is there has no record, or if the file is not plain JSON.
        """
        mark, text = _read_exact(self.path)
        record = self._read_record()
        is_new = text is None
        text, earlier = text or "", ""
        if record is not None and record.path != str(self.path):
            self._refuse_second_file(record)
        elif record is not None and _MARK in text:
            is_new, earlier = record.is_new, record.find_piece(text)
            text = self._take_out(text, record)[0]
        if _MARK in text:
            hint = "remove it by hand, or with the whet that wrote it"
            raise ConfigError(f"{self.path} has a setting that this Whet did not write", hint=hint)
        new_text, piece = self._insert(text, self.agent.make_content(command))
        # The record comes first: a setting without one could not be taken back byte for byte.
        record = _Record(str(self.path), piece, command.line, is_new, earlier)
        replace_file(self._record_path, msgspec.json.encode(record).decode(), mode=0o600)
        replace_file(self.path, mark + new_text, mode=_mode_of(self.path))

    def _refuse_second_file(self, record: _Record) -> None:
        """Raise ConfigError if another file still has the setting: the record of it would be lost."""
        if _MARK in (read_small(Path(record.path)) or ""):
            hint = f"whet confirm adopt {self.agent.name} --remove"
            raise ConfigError(f"{record.path} has the setting of {self.agent.title}", hint=hint)

    def _insert(self, text: str, content: Any) -> tuple[str, str]:
        """Return the text with the setting, and the text that was inserted. Raises ConfigError."""
        if not self.agent.keys:
            if text:
                raise ConfigError(f"{self.path} exists already", hint="move it away")
            return content, content
        if not text.strip():
            settings: dict[str, Any] = {self.agent.keys[-1]: [content]}
            for key in reversed(self.agent.keys[:-1]):
                settings = {key: settings}
            piece = json.dumps(self.agent.skeleton | settings, indent=2, ensure_ascii=False) + "\n"
            return text + piece, piece  # blanks stay in front
        try:
            insertion = insert_item(text, self.agent.keys, content, has_comments=self.agent.has_comments)
        except ValueError as error:
            hint = f"add to {'.'.join(self.agent.keys)} by hand: {json.dumps(content)}"
            raise ConfigError(f"{self.path} can't be extended: {error}", hint=hint) from error
        return insertion.text, insertion.piece

    def remove(self) -> bool:
        """Remove the setting. Returns whether the owner's bytes are all unchanged.

        Raises NotFound if there is no setting.
        """
        record = self._read_record()
        mark, text = _read_exact(Path(record.path)) if record else ("", None)
        if record is None or text is None:
            raise NotFound(f"Whet has written no setting for {self.agent.title}")
        path = Path(record.path)
        before, is_exact = self._take_out(text, record)
        if record.is_new and not before:
            path.unlink()
        else:
            replace_file(path, mark + before, mode=_mode_of(path))
        self._record_path.unlink()
        return is_exact

    def _take_out(self, text: str, record: _Record) -> tuple[str, bool]:
        """Return the text without the setting, and whether the owner's bytes are all unchanged."""
        piece = record.find_piece(text)
        before = text.replace(piece, "", 1)
        if piece and self._is_sound(before):
            return before, True
        return self._remove_entries(text, record.command), False

    def find_problems(self, command: HookCommand) -> Iterator[str]:
        """Yield the problems in the agent's files because of which its calls would not wait."""
        yield from dict.fromkeys(self._list_problems(command))

    def _list_problems(self, command: HookCommand) -> Iterator[str]:
        try:
            yield from self._find_setting_problem(command)
        except ConfigError as error:
            yield error.message
        if not _can_run(command.program[0]):
            yield f"{command.program[0]} can't be run"
        for switch in self.agent.switches:
            path = self.path.parent / switch.file
            try:
                value = self._read_value(path, switch.keys)
            except ConfigError as error:
                yield error.message
            else:
                if value is switch.value:
                    yield f"{path} turns all hooks off ({'.'.join(switch.keys)})"

    def _find_setting_problem(self, command: HookCommand) -> Iterator[str]:
        """Yield the reason why the hook is not active. Raises ConfigError if a file can't be read."""
        record, keys = self._read_record(), self.agent.keys
        if not keys:
            if not record or record.piece not in (read_small(self.path) or ""):
                yield f"{self.path} does not have the setting"
            return
        line = record.command if record else command.line
        value = self._read_value(self.path, keys)
        items = cast("list[object]", value) if isinstance(value, list) else []
        index = next((number for number, item in enumerate(items) if _runs(item, line)), -1)
        if index < 0:
            yield f"{self.path} does not have the setting"
        elif self.agent.trust_file:
            path = self.path.with_name(self.agent.trust_file)
            name = f"{self.path}:pre_tool_use:{index}:0"
            if self._read_value(path, ("hooks", "state", name, "trusted_hash")) is None:
                yield f"{self.agent.title} does not trust the hook yet: {self.agent.hint}"

    def _read_value(self, path: Path, keys: tuple[str, ...]) -> object:
        """Return the value under `keys` in a file, or None if it has none. Raises ConfigError."""
        text = read_small(path) or ""
        try:
            return _find_value(tomllib.loads(text) if path.suffix == ".toml" else self._parse(text), keys)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} can't be read: {error}") from error

    def _parse(self, text: str) -> object:
        """Return the settings in a JSON text; an empty dict if it is blank.

        Raises ValueError, RecursionError.
        """
        plain = blank_comments(text) if self.agent.has_comments else text
        return json.loads(plain) if plain.strip() else {}

    def _is_sound(self, text: str) -> bool:
        if not self.agent.keys:
            return True
        try:
            return isinstance(self._parse(text), dict)
        except (ValueError, RecursionError):
            return False

    def _remove_entries(self, text: str, command: str) -> str:
        """Return the text without the hook. If it has no comments, it is written again as JSON."""
        try:
            settings = self._parse(text)
        except (ValueError, RecursionError):
            settings = None
        value = _find_value(settings, self.agent.keys)
        items = (
            [item for item in cast("list[object]", value) if _runs(item, command)]
            if isinstance(value, list)
            else []
        )
        if not items:
            hint = f"remove the setting with {_MARK!r} from {self.path} by hand"
            raise ConfigError(f"{self.path} was changed: the setting can't be found", hint=hint)
        if self.agent.has_comments and blank_comments(text) != text:
            return cut_items(text, self.agent.keys, lambda item: _runs(item, command))
        remove_item(cast("dict[str, Any]", settings), self.agent.keys, items)
        return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"

    def _read_record(self) -> _Record | None:
        text = read_small(self._record_path)
        try:
            return msgspec.json.decode(text, type=_Record) if text else None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self._record_path} can't be read: {error}") from error


def _read_exact(path: Path) -> tuple[str, str | None]:
    """Return a file's byte order mark and its text without it; None if there is no file."""
    raw = read_file_bytes(path, MAX_SMALL_BYTES)
    if raw is None:
        return "", None
    mark = "\ufeff" if raw.startswith(codecs.BOM_UTF8) else ""
    return mark, decode_text(raw.removeprefix(codecs.BOM_UTF8), path)


def _mode_of(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return 0o600


def _can_run(program: str) -> bool:
    return os.access(program, os.X_OK) and not os.path.isdir(program)


def _runs(item: object, command: str) -> bool:
    """Return whether a hook entry runs the command, itself or in its list of hooks."""
    if not isinstance(item, dict):
        return False
    fields = cast("dict[str, Any]", item)
    hooks = fields.get("hooks")
    return fields.get("command") == command or (
        isinstance(hooks, list) and any(_runs(hook, command) for hook in cast("list[object]", hooks))
    )


def _find_value(settings: object, keys: tuple[str, ...]) -> object:
    """Return the value under `keys`, or None if there is none."""
    value = settings if keys else None
    for key in keys:
        value = cast("Mapping[str, object]", value).get(key) if isinstance(value, Mapping) else None
    return value
