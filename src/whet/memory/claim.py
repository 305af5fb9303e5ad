"""What a write claims, as the gate judges it: the text, the quotes given for it, what it edits."""

from __future__ import annotations

import msgspec

from whet.store.ledger import Kind, Quote, Trust

LOCAL = frozenset({"terminal", "process", "read_file", "search_files", "write_file", "patch"})
"""Tools whose results are observed on this machine."""


class Claim(msgspec.Struct, frozen=True):
    """A learned text before the gate. `known` is the text of the item that is edited: what stands there
    already needs no evidence again. `existing` are the texts that it must not repeat."""

    kind: Kind
    text: str
    quotes: tuple[str, ...]
    known: str = ""
    existing: tuple[str, ...] = ()
    is_pitfall: bool = False


class GateVerdict(msgspec.Struct, frozen=True):
    """The gate's word: the claim's trust and the quotes with their places. `quarantined`: it rests on
    untrusted text alone; `why` says so."""

    trust: Trust
    evidence: tuple[Quote, ...] = ()
    quarantined: bool = False
    why: str = ""
