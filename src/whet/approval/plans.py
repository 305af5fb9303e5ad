"""Which sessions plan: they only read, until the person has seen what they would do.

It stands before rules, grants and the mode: none of them lets a session that plans change anything.
"""

from __future__ import annotations

from collections.abc import Callable

from whet.approval.actions import ActionView
from whet.approval.policy import Ruling
from whet.contract.protocols import GateCall

_PLANNING = "the session plans and only reads now; say what you would do, and the person decides on that"


class Plans:
    """The sessions that plan, by the session that a person talks to, which `root_of` gives."""

    def __init__(self, root_of: Callable[[str], str]) -> None:
        self._root_of = root_of
        self._planning: set[str] = set()

    def set(self, session_id: str, on: bool) -> None:
        """Have a session and what it starts only read from now on; or end that."""
        (self._planning.add if on else self._planning.discard)(self._root_of(session_id))

    def has(self, session_id: str) -> bool:
        """Whether a session only reads now."""
        return self._root_of(session_id) in self._planning

    def denial(self, call: GateCall, action: ActionView) -> Ruling | None:
        """Give the denial of a call that changes something in a session that plans; None for any other.

        What only looks at the network is left to the rules, and so are notes: they are not the work.
        """
        if action.level == "safe" or call.tool.tags & {"looks", "notes"} or not self.has(call.session_id):
            return None
        return Ruling("deny", _PLANNING)
