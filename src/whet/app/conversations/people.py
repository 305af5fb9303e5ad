"""Route the questions of a process with several people: each goes to the person of the session that asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.app.conversations.session_builder import zone_of
from whet.contract.protocols import Answer, ApprovalRequest, Person, Reply


class PersonRouter:
    """A Person that passes each question to the person connected to its session.

    A child session's questions go to the person of its root session, which `root_of` returns. Between a
    session's turns `find_idle` returns its person, for helpers that continue to work. If there is no person,
    the question is not answered, which is a denial.
    """

    def __init__(self) -> None:
        self.root_of: Callable[[str], str] = str
        self.find_idle: Callable[[str], Person | None] = lambda session_id: None
        self._connected: dict[str, Person] = {}

    def connect(self, session_id: str, person: Person | None) -> None:
        """Send a session's questions to `person`; None disconnects the session."""
        if person is None:
            self._connected.pop(session_id, None)
        else:
            self._connected[session_id] = person

    def person_at(self, session_id: str) -> Person:
        """Return a Person for a session; each question goes to the person who is connected at that time."""
        return _SessionPerson(self._connected, session_id)

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask the person of the request's session."""
        root = self.root_of(request.session_id)
        person = self._connected.get(root) or self.find_idle(root)
        return None if person is None else await person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Return None, because the question does not name its session; sessions ask through `person_at`."""
        return None


class _SessionPerson:
    """The person who is connected to one session."""

    def __init__(self, connected: dict[str, Person], session_id: str) -> None:
        self._connected = connected
        self._session_id = session_id

    @property
    def time_zone(self) -> str:
        """The time zone of the connected person."""
        person = self._connected.get(self._session_id)
        return "" if person is None else zone_of(person)

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask the connected person."""
        person = self._connected.get(self._session_id)
        return None if person is None else await person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the connected person."""
        person = self._connected.get(self._session_id)
        return None if person is None else await person.clarify(question, choices)
