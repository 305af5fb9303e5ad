"""Who is asked, where several people talk to one process: the person at the session that a call is made in.

It does not know how a person is reached, nor what they are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.contract.protocols import Answer, ApprovalRequest, Person, Reply


class Switchboard:
    """A Person that stands for many: a question goes to whoever is connected to its session.

    What a child session asks goes to its parent's person. Nobody connected: nobody answers, and that is a
    denial. `root_of` gives the session that a person talks to for one that it started.
    """

    def __init__(self, root_of: Callable[[str], str] = str) -> None:
        self.root_of = root_of
        self._there: dict[str, Person] = {}

    def connect(self, session_id: str, person: Person | None) -> None:
        """Have a session's questions go to `person`, None for nobody."""
        if person is None:
            self._there.pop(session_id, None)
        else:
            self._there[session_id] = person

    def at(self, session_id: str) -> Person:
        """Give whoever is connected to a session at the time of each question."""
        return _At(self._there, session_id)

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask the person of the request's session."""
        person = self._there.get(self.root_of(request.session_id))
        return None if person is None else await person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Nobody: which session asks is not said. A session asks through `at`."""
        return None


class _At:
    """The person at one session."""

    def __init__(self, there: dict[str, Person], session_id: str) -> None:
        self._there = there
        self._session_id = session_id

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask them."""
        person = self._there.get(self._session_id)
        return None if person is None else await person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask them."""
        person = self._there.get(self._session_id)
        return None if person is None else await person.clarify(question, choices)
