"""For whom a session is begun: whose memory, on which interface, in which folder, with which tools more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from whet.contract.tools import Tool

OWNERS_TOOLS = ("warm_session",)
"""Tools that read the owner's sessions; another person's session has none of them."""


class Principal(msgspec.Struct, frozen=True):
    """For whom and where a session is begun; what is left out is the process's own. `profile`: whose memory,
    empty for the owner's; `source`: the interface; `tools`: what it has besides the process's own, of names
    that no other tool has."""

    profile: str = ""
    source: str = ""
    workspace: Path | None = None
    tools: Sequence[Tool] = ()


OWNERS = Principal()
