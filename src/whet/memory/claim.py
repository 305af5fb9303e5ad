"""What a write points at, and what the program makes of it."""

from __future__ import annotations

import msgspec

from whet.store.ledger import Kind, Quote, Trust


class Claim(msgspec.Struct, frozen=True):
    """What is handed in to be learned: the model's words and its quotes, which point at what is kept. `known`
    is the text that is edited; `existing` are the entries that must not be repeated. `is_verbatim`: a file,
    kept as it is or not at all."""

    kind: Kind
    text: str
    quotes: tuple[str, ...]
    known: str = ""
    existing: tuple[str, ...] = ()
    is_verbatim: bool = False
    target: str = ""


class GateVerdict(msgspec.Struct, frozen=True):
    """What comes of it: the trust, the quotes with their places, and `text`, which the program wrote from the
    sources and which alone comes into force (empty: what was handed in, a person's own). `quarantined`: it
    rests on untrusted text, or on prose that nobody tried or said; `why` says so.
    `about`: the request in whose course a skill's steps were taken."""

    trust: Trust
    evidence: tuple[Quote, ...] = ()
    quarantined: bool = False
    why: str = ""
    text: str = ""
    about: str = ""
