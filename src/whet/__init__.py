"""Whet: an agent that gets better at its owner's work by doing it.

    with whet.Agent() as agent:
        print(agent.run("What is in this folder?").text)

Names are loaded at first use, so that `import whet` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.app.facade import Agent
    from whet.contract.errors import WhetError
    from whet.contract.events import Event, TurnEnd
    from whet.contract.messages import Message, Usage

__version__ = "0.1.0"
__all__ = ["Agent", "Event", "Message", "TurnEnd", "Usage", "WhetError", "__version__"]

_HOMES = {
    "Agent": "whet.app.facade",
    "Event": "whet.contract.events",
    "Message": "whet.contract.messages",
    "TurnEnd": "whet.contract.events",
    "Usage": "whet.contract.messages",
    "WhetError": "whet.contract.errors",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
