"""Deny every call that touches the confirmation service or another of Whet's servers, where people decide
about the agent. No mode, rule or person can allow such a call.

Paths are resolved first. A command's text and the script that it runs are searched for the service's
names. A command that builds the names at run time is stopped by the sandbox, or not at all without a
sandbox. The service's parts are defined elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from whet.approval.actions import ActionView
from whet.approval.risk import RiskScope
from whet.contract.protocols import GateCall
from whet.contract.texts import iterate_texts_and_keys
from whet.regular import read_regular_text
from whet.sandbox.shell_globs import GlobReader, GlobTooWide, is_glob, may_lead_below
from whet.shell.programs import program

if TYPE_CHECKING:
    from whet.approval.person_request import JailedCall

_WORDS = re.compile(r"[\s'\"`();|&<>=,]+")
_MAX_BYTES = 200_000
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")


class Sealed(Protocol):
    """A service's files, ports and secrets."""

    @property
    def paths(self) -> Sequence[Path]:
        """The paths below which everything belongs to the service, except the files that it opens."""
        ...

    def forbids(self, path: Path) -> bool:
        """Return whether a path, its links followed, belongs to the service."""
        ...

    def touched_by(self, text: str) -> str:
        """Return the part of the service that a text names, or an empty string."""
        ...


def refusal(
    call: GateCall, action: ActionView, scope: RiskScope, jailed: JailedCall | None, sealed: Sealed
) -> str:
    """Return the reason why a call may not run because of the service, or an empty string.

    A sandboxed command may name the service, since it can't reach it.
    """
    if jailed is not None and not any(opening.kind == "run" for opening in (*jailed.held, *jailed.wanted)):
        return ""
    touched_name = find_touched(call, action, scope, sealed)
    return (
        "no call may touch the confirmation service or another server of Whet's, where people decide on it:"
        f" {touched_name}"
        if touched_name
        else ""
    )


def find_touched(call: GateCall, action: ActionView, scope: RiskScope, sealed: Sealed) -> str:
    """Return the part of the service that a call would touch, or an empty string."""
    if "path" in call.tool.tags:
        paths = (Path(name) for piece in action.pieces for name in piece.also if os.path.isabs(name))
        return next((str(path) for path in paths if sealed.forbids(path)), "")
    folder = os.path.normpath(os.path.join(scope.workspace, str(call.arguments.get("workdir", ""))))
    for text in iterate_texts_and_keys(call.arguments):
        expanded = _expand(text[:_MAX_BYTES], scope)
        if touched_name := sealed.touched_by(expanded) or _find_sealed_word(expanded, folder, sealed):
            return touched_name
    if "command" not in call.tool.tags:
        return ""
    for path in _iter_scripts(action, folder):
        with contextlib.suppress(OSError):
            if touched_name := sealed.touched_by(_expand(read_regular_text(path, _MAX_BYTES), scope)):
                return f"{touched_name} (in {os.path.basename(path)})"
    return ""


def _expand(text: str, scope: RiskScope) -> str:
    """Replace the variables and `~` in a text with the folders that a shell would insert."""
    text = re.sub(r"\$\{?WHET_HOME\}?", lambda _: scope.whet_home, text)
    text = re.sub(r"\$\{?HOME\}?|(?<![\w/.])~(?=/)", lambda _: scope.home, text)
    return re.sub(r"/(?:\./|/)+", "/", re.sub(r"(?<=/)['\"\\]|['\"\\](?=/)", "", text))


def _find_sealed_word(text: str, folder: str, sealed: Sealed) -> str:
    """Return a word that leads to a sealed path, from the folder or from a folder that the text names."""
    words = [word for word in _WORDS.split(text) if word]
    folders = [
        folder,
        *(os.path.join(folder, word) for word in words if os.path.isdir(os.path.join(folder, word))),
    ]
    reader = GlobReader()
    for word in words:
        for base in folders[:8]:
            full = os.path.normpath(os.path.join(base, word))
            try:
                paths = reader.expand(full) if is_glob(word) else (full,)
                if any(sealed.forbids(Path(path)) for path in paths if "\0" not in path):
                    return word
            except GlobTooWide:  # most words of a text are no globs of a shell, so this is not refused
                if any(may_lead_below(full, str(path)) for path in sealed.paths):
                    return word
    return ""


def _iter_scripts(action: ActionView, folder: str) -> Iterator[str]:
    """Yield the files that a command runs."""
    for piece in action.pieces:
        words = piece.text.split()
        if not words:
            continue
        facts = program(os.path.basename(words[0]))
        runs_arguments = facts.kinds & {"shell"} or facts.code is not None or piece.program in (".", "source")
        candidates = words if runs_arguments else words[:1]
        if os.path.basename(words[0]) in ("make", "gmake"):
            candidates = [*words, *_MAKEFILES]
        for word in candidates:
            path = os.path.join(folder, word.strip("'\""))
            if ("/" in word or word != words[0]) and os.path.isfile(path):
                yield path
