"""The scopes of a lasting permission: this file or folder, this program and subcommand, or exactly this text
again.

No single key grants every file or every command, unless the tool handles neither. A yes to an edit covers the
file with every edit tool of Whet: which of them the model picks is nothing that a person decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whet.approval.risk import Piece
from whet.contract.protocols import GrantScope
from whet.contract.tags import BUILT_IN


def escape_pattern(text: str) -> str:
    """Escape text to a pattern that matches only this text."""
    return "".join("\\" + c if c in "*?\\" else c for c in text)


def scopes_of(
    tool: str, pieces: Sequence[Piece], *, lasting: bool, same_call: GrantScope | None = None
) -> tuple[GrantScope, ...]:
    """Return the scopes that a permission for the call may have, the usual one first.

    Without `lasting`, only `same_call`, or without that exactly the same texts, may be allowed again in this
    session.
    """
    also = _other_editors(tool)
    risky = [piece for piece in pieces if piece.level != "safe"] or pieces
    same = _once_each(escape_pattern(piece.exact or piece.text) for piece in risky)
    if not lasting or not all(piece.grant for piece in risky):
        return (same_call or GrantScope(tool, same, always=False, also=also),)
    usual = _once_each(piece.grant for piece in risky)
    wider = _once_each(piece.wider or piece.grant for piece in risky)
    return tuple(
        GrantScope(tool, patterns, also=also) for patterns in dict.fromkeys((usual, wider, same)) if patterns
    )


def _other_editors(tool: str) -> tuple[str, ...]:
    """Return Whet's other tools that edit files if the tool is one of Whet's that does."""
    editors = [name for name, tags in BUILT_IN.items() if {"path", "edits"} <= tags]
    return tuple(name for name in editors if name != tool) if tool in editors else ()


def _once_each(patterns: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(patterns))
