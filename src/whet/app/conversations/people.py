"""Route questions in a process with several people to the person of the session that makes the call.

This module does not know how a person is reached, nor the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.app.conversations.session_builder import zone_of
from whet.contract.protocols import Answer, ApprovalRequest, Person, Reply


class PersonRouter:
    """A Person that represents many: a question goes to the person connected to its session.

    A child session's questions go to its parent's person. If no one is connected, the question is not
    answered, which is a denial. `root_of` returns the session of the person for a session that was started
    by it. `find_idle` returns the person of a session between its turns, for helpers that work on.
    """

    def __init__(self) -> None:
        self.root_of: Callable[[str], str] = str
        self.find_idle: Callable[[str], Person | None] = lambda session_id: None
        self._there: dict[str, Person] = {}

    def connect(self, session_id: str, person: Person | None) -> None:
        """Send a session's questions to `person`; None disconnects the session."""
        if person is None:
            self._there.pop(session_id, None)
        else:
            self._there[session_id] = person

    def person_at(self, session_id: str) -> Person:
        """Return a Person for a session; each question goes to the person who is connected at that time."""
        return _SessionPerson(self._there, session_id)

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask the person of the request's session."""
        root = self.root_of(request.session_id)
        person = self._there.get(root) or self.find_idle(root)
        return None if person is None else await person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Return None, because the call does not name its session. A session asks through `person_at`."""
        return None


class _SessionPerson:
    """The person at one session."""

    def __init__(self, connected: dict[str, Person], session_id: str) -> None:
        self._there = connected
        self._session_id = session_id

    @property
    def time_zone(self) -> str:
        """The time zone of the connected person."""
        person = self._there.get(self._session_id)
        return "" if person is None else zone_of(person)

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask the connected person."""
        person = self._there.get(self._session_id)
        return None if person is None else await person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the connected person."""
        person = self._there.get(self._session_id)
        return None if person is None else await person.clarify(question, choices)
