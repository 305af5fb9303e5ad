"""One thing of a source and what came of it, as the report lists it."""

from __future__ import annotations

import msgspec


class TakenOver(msgspec.Struct, frozen=True):
    """`how` is set, copied, saved, installed, let in, added, paused (runs once a person lets it), quarantined
    (kept, not in force until a person accepts it), kept (it was here already) or left; `why` says more."""

    what: str
    how: str
    why: str = ""
