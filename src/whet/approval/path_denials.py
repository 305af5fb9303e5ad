"""Deny every call that would read or change a file that a deny rule protects, whatever tool it is for.

Files that the arguments name are found here, also those that a command's text names. What a program opens
without naming it is kept from a sandboxed command by the sandbox, and from any other by nothing. Arguments of
any length are read; past the limits on this work, a call is denied as if it named a protected file.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from whet.approval.actions import ActionView
from whet.approval.risk import Piece, RiskScope
from whet.contract.protocols import GateCall
from whet.contract.texts import iterate_texts_and_keys, paths_in_uri
from whet.sandbox.path_rules import PathRules
from whet.sandbox.shell_globs import GlobReader, GlobTooWide, is_glob

if TYPE_CHECKING:
    from whet.shell.reading import ReadPart

_MAX_TEXT = 200_000
_MAX_PATH = 4_096
"""The system opens no longer path."""
_MAX_NAMES = 5_000
_MAX_LOOKUPS = 5_000
"""How many words of a command are looked up in all folders that it may change into."""
_SAME_FOLDER = re.compile(r"/(?:\.?/)+")


def find_path_rule(
    call: GateCall, action: ActionView, scope: RiskScope, rules: PathRules, *, is_jailed: bool
) -> str:
    """Return the deny rule for files that forbids a call, or an empty string."""
    tags = call.tool.tags
    if "path" in tags:
        paths = (name for piece in action.pieces for name in (*piece.also, piece.text))
        return _find(rules, scope.workspace, paths, writes="edits" in tags)
    folder = scope.workspace
    if tags & {"command", "background"}:
        folder = os.path.join(folder, str(call.arguments.get("workdir", "")))
        return _find_in_command(call, action, rules, folder, scope, is_jailed=is_jailed)
    effects = call.tool.effects
    writes = not effects or not effects.isdisjoint(("write", "execute"))
    texts = dict.fromkeys(iterate_texts_and_keys(call.arguments))
    names = dict.fromkeys(name for text in texts for name in paths_in_uri(text))
    if len(names) > _MAX_NAMES:
        return _first_rule(rules, writes=writes)
    return _find(rules, folder, _list_paths(names, folder), writes=writes)


def _list_paths(names: Iterable[str], folder: str) -> Iterator[str]:
    """Yield the names that may be paths. Of texts with several lines, those whose file or folder exists."""
    for name in names:
        if "\n" not in name:
            yield name
            continue
        if "\n" not in (line := name.strip()):
            yield line
        full = os.path.join(folder, name)
        with contextlib.suppress(ValueError):  # a NUL
            if os.path.lexists(full) or ("/" in name and os.path.isdir(os.path.dirname(full))):
                yield name


def _find(rules: PathRules, folder: str, paths: Iterable[str], *, writes: bool, top: str = "") -> str:
    """Return the first rule that forbids one of the paths; relative ones are below `folder`."""
    for path in filter(None, paths):
        full = os.path.join(folder, os.path.expanduser(path))
        if len(full) > _MAX_PATH:  # a program may take out what changes nothing, and open the rest
            full = _SAME_FOLDER.sub("/", full)
        is_long = len(full) > _MAX_PATH
        if is_long and len(os.path.normpath(full)) <= _MAX_PATH:
            return _first_rule(rules, writes=writes)
        if not is_long and (rule := rules.find(full, top or folder, writes=writes)):
            return rule
    return ""


def _first_rule(rules: PathRules, *, writes: bool) -> str:
    """Return the rule that denies a call which is too large to judge, or an empty string if none does."""
    return next((rule.source for rule in rules.rules if writes or rule.closes), "")


def _find_in_command(
    call: GateCall, action: ActionView, rules: PathRules, folder: str, scope: RiskScope, *, is_jailed: bool
) -> str:
    """Return the rule for a file that a command names.

    A command may name a file that it must not change if it runs in a sandbox, which holds that, or if it
    only reads. Outside of a sandbox, a text that is too long to read, or a glob that leads through too many
    folders to look at, is refused by the first rule that closes files.
    """
    top, folders = scope.workspace, [folder]
    for name in ("command", "stdin", "text"):
        text = call.arguments.get(name)
        if not isinstance(text, str):
            continue
        words, command_words = _list_words(text[:_MAX_TEXT])
        is_whole = len(text) <= _MAX_TEXT
        try:
            expanded = list(_expand(words, folder))
            if command_words:
                folders, has_all = _list_folders([*command_words, *expanded], folders)
                is_whole = is_whole and has_all
            words += expanded
            command_words += [path for base in folders[1:] for path in _expand(command_words, base)]
        except GlobTooWide:
            is_whole = False
        if not is_whole and not is_jailed and (rule := _first_rule(rules, writes=False)):
            return rule
        for base in folders:
            base_words = words if base == folder else command_words
            if rule := _find(rules, base, base_words, writes=False, top=top):
                return rule
    if is_jailed:
        return ""
    changed = list(_changed_words((*action.pieces, *action.typed)))
    return next(filter(None, (_find(rules, base, changed, writes=True, top=top) for base in folders)), "")


def _list_words(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a command's text that may name files, also behind an option's letters or an `@`;
    and those among them that are words of its simple commands, none if it certainly stays in its folder."""
    from whet.shell.reading import file_names, read  # noqa: PLC0415  50 ms of CPU: tree-sitter

    reading = read(text)
    attached = [*reading.attached, *(name.lstrip("@") for name in reading.files if name.startswith("@"))]
    words = [*reading.files, *attached]
    if not reading.is_doubtful and all(map(_stays_in_folder, reading.parts)):
        return words, []
    command_words = file_names(word for part in reading.parts for word in part.words)
    return words, list(dict.fromkeys((*command_words, *attached)))


def _stays_in_folder(part: ReadPart) -> bool:
    """Return whether a simple command is of a program that only reads, and that names files relative to the
    folder in which it was started."""
    from whet.shell.programs import program  # noqa: PLC0415  as above

    name = part.words[0]
    return name not in ("cd", "pushd", "popd") and "reads" in program(name).kinds


def _list_folders(words: Sequence[str], folders: Sequence[str]) -> tuple[list[str], bool]:
    """Return the folders, and those that the words name relative to any before, because a command may change
    into them; and whether these are all. Stops if the words are too many to look up in each folder."""
    all_folders = dict.fromkeys(folders)
    for word in words:
        for base in list(all_folders):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(word)))
            if "\0" not in path and os.path.isdir(path):
                all_folders[path] = None
        if len(all_folders) * len(words) > _MAX_LOOKUPS:
            return list(folders), False
    return list(all_folders), True


def list_file_rules(text: str, pieces: Iterable[Piece], workspace: str, rules: PathRules) -> dict[str, str]:
    """Return the files and folders that a command names and a deny rule protects, with these rules."""
    words, _ = _list_words(text[:_MAX_TEXT])
    with contextlib.suppress(GlobTooWide):
        words += _expand(words, workspace)
    closed = ((word, _find(rules, workspace, [word], writes=False)) for word in words)
    fixed = ((word, _find(rules, workspace, [word], writes=True)) for word in _changed_words(pieces))
    return {word: rule for word, rule in (*fixed, *closed) if rule and " " not in word}


def _changed_words(pieces: Iterable[Piece]) -> Iterator[str]:
    """Yield the words of a command that may be files which it changes."""
    from whet.shell.reading import read  # noqa: PLC0415  as above

    for piece in pieces:
        if piece.level != "safe":
            yield from (*read(piece.text).files, piece.text.removeprefix(">").strip())


def _expand(words: Iterable[str], folder: str) -> Iterator[str]:
    """Yield the files that a shell would put in the place of globs. Raises GlobTooWide."""
    reader = GlobReader()
    for word in words:
        if is_glob(word):
            yield from reader.expand(os.path.join(folder, os.path.expanduser(word)))
