"""Deny every call that would read or change a file that a deny rule protects, whatever tool it is for.

Files that the arguments name are found here, also those that a command's text names. What a program opens
without naming it is kept from a sandboxed command by the sandbox, and from any other by nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from whet.approval.actions import ActionView
from whet.approval.risk import Piece, RiskScope
from whet.contract.protocols import GateCall
from whet.sandbox.path_rules import PathRules
from whet.sandbox.shell_globs import GlobReader, GlobTooWide, is_glob

_MAX_TEXT = 200_000
_MAX_PATH = 4_096


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
    names = (text.removeprefix("file://") for text in _texts(call.arguments) if len(text) < _MAX_PATH)
    return _find(rules, folder, (name for name in names if name and "\n" not in name), writes=writes)


def _find(rules: PathRules, folder: str, paths: Iterable[str], *, writes: bool, top: str = "") -> str:
    """Return the first rule that forbids one of the paths; relative ones are below `folder`."""
    for path in paths:
        full = os.path.join(folder, os.path.expanduser(path))
        if rule := rules.find(full, top or folder, writes=writes):
            return rule
    return ""


def _find_in_command(
    call: GateCall, action: ActionView, rules: PathRules, folder: str, scope: RiskScope, *, is_jailed: bool
) -> str:
    """Return the rule for a file that a command names.

    A command may name a file that it must not change if it runs in a sandbox, which holds that, or if it
    only reads. Outside of a sandbox, a glob that leads through too many folders to look at is refused by the
    first rule that closes files.
    """
    from whet.shell.reading import read  # noqa: PLC0415  50 ms of CPU: tree-sitter

    top = scope.workspace
    for name in ("command", "stdin", "text"):
        text = call.arguments.get(name)
        named = read(text[:_MAX_TEXT]).files if isinstance(text, str) and text else ()
        try:
            words = [*named, *_expand(named, folder)]
        except GlobTooWide:
            if not is_jailed and (rule := next((rule.source for rule in rules.rules if rule.closes), "")):
                return rule
            words = list(named)
        if rule := _find(rules, folder, words, writes=False, top=top):
            return rule
        for word in words:
            full = os.path.join(folder, os.path.expanduser(word))
            inside = full.startswith(f"{top}/") and os.path.normpath(full) != top
            if inside and os.path.isdir(full) and (rule := rules.find_folder(full, top)):
                return rule
    if is_jailed:
        return ""
    return _find(rules, folder, _changed_words((*action.pieces, *action.typed)), writes=True, top=top)


def list_file_rules(text: str, pieces: Iterable[Piece], workspace: str, rules: PathRules) -> dict[str, str]:
    """Return the files that a command's text names and a deny rule protects from it, each with its rule."""
    from whet.shell.reading import read  # noqa: PLC0415  as above

    named = list(read(text[:_MAX_TEXT]).files)
    with contextlib.suppress(GlobTooWide):
        named += _expand(named, workspace)
    words = [*((word, False) for word in named), *((word, True) for word in _changed_words(pieces))]
    rows = ((word, _find(rules, workspace, [word], writes=writes)) for word, writes in words)
    return {word: rule for word, rule in rows if rule and " " not in word}


def _changed_words(pieces: Iterable[Piece]) -> Iterator[str]:
    """Yield the words of a command that may be files which it changes."""
    from whet.shell.reading import read  # noqa: PLC0415  as above

    for piece in pieces:
        if piece.level != "safe":
            words = (*read(piece.text).files, piece.text.removeprefix(">").strip())
            yield from (word for word in words if len(word) < _MAX_PATH)


def _expand(words: Iterable[str], folder: str) -> Iterator[str]:
    """Yield the files that a shell would put in the place of globs. Raises GlobTooWide."""
    reader = GlobReader()
    for word in words:
        if is_glob(word):
            yield from reader.expand(os.path.join(folder, os.path.expanduser(word)))


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a call's arguments."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _texts(item)
