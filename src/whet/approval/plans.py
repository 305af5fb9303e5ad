"""Sessions that plan: they only read until the person has seen their plan.

This check comes before rules, grants and the mode: none of them lets a planning session change anything.
"""

from __future__ import annotations

from collections.abc import Callable

from whet.approval.actions import ActionView
from whet.approval.policy import Ruling
from whet.contract.protocols import GateCall

_PLANNING = "the session plans and only reads now; say what you would do, and the person decides on that"


class Plans:
    """The planning sessions, stored by the session that a person talks to, which `root_of` returns."""

    def __init__(self, root_of: Callable[[str], str]) -> None:
        self._root_of = root_of
        self._planning: set[str] = set()

    def set(self, session_id: str, is_planning: bool) -> None:
        """Make a session and its children read-only from now on, or end that."""
        (self._planning.add if is_planning else self._planning.discard)(self._root_of(session_id))

    def has(self, session_id: str) -> bool:
        """Return whether a session is read-only now."""
        return self._root_of(session_id) in self._planning

    def denial(self, call: GateCall, action: ActionView) -> Ruling | None:
        """Return the denial of a call that changes something in a planning session, or None for any other
        call.

        Calls that only look at the network are left to the rules, as are notes, which are not part of the
        work. A skill is: later sessions follow it.
        """
        is_harmless = action.level == "safe" and "skills" not in call.tool.tags
        if is_harmless or call.tool.tags & {"looks", "notes"} or not self.has(call.session_id):
            return None
        return Ruling("deny", _PLANNING)
