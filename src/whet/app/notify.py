"""Telling a person who looks elsewhere: a question that waits, a long turn that ended.

The notifiers come from plugins. Sending happens beside the work and holds nothing up; what fails is noted by
the plugin's name. It does not know what a notifier does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from whet.agent.session import Session, TurnObserver
from whet.config.schema import NotifySettings
from whet.contract.errors import PluginError
from whet.contract.events import TurnEnd
from whet.contract.protocols import Answer, ApprovalRequest, Person, Reply
from whet.log import mask

_TEXT_CHARS = 500
_CLOSE_S = 5.0


class PersonNotifier(Protocol):
    """A way to reach a person."""

    async def send(self, title: str, text: str) -> None:
        """Tell them. Raises PluginError."""
        ...


class NotifierGroup(TurnObserver):
    """Sends to every notifier, each on its own; `failed` gets a line where one could not."""

    def __init__(
        self,
        notifiers: Sequence[PersonNotifier],
        settings: NotifySettings,
        failed: Callable[[PluginError], None],
    ) -> None:
        self._notifiers = notifiers
        self._settings = settings
        self._failed = failed
        self._sending: set[asyncio.Task[None]] = set()

    def ring(self, title: str, text: str) -> None:
        """Tell the person, secrets masked, without waiting."""
        text = mask(text)[:_TEXT_CHARS]
        for notifier in self._notifiers:
            task = asyncio.create_task(self._send(notifier, title, text))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def ended(self, session: Session, end: TurnEnd) -> None:
        """Tell of a long turn's end."""
        if end.duration_s >= self._settings.turns_over_s:
            self.ring(f"Whet: the turn ended ({end.reason})", end.text or end.error)

    async def aclose(self) -> None:
        """Give what is being sent a few seconds to arrive."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=_CLOSE_S)

    async def _send(self, notifier: PersonNotifier, title: str, text: str) -> None:
        try:
            await notifier.send(title, text)
        except PluginError as error:
            self._failed(error)


class NotifiedPerson:
    """Asks `person`, and tells the notifiers that a question waits."""

    def __init__(self, person: Person, bell: NotifierGroup, settings: NotifySettings) -> None:
        self.person = person
        self._bell = bell
        self._settings = settings

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask about one action."""
        self._tell("Whet asks for approval", f"{request.tool}: {request.subject}")
        return await self.person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Put the model's question."""
        self._tell("Whet asks", question)
        return await self.person.clarify(question, choices)

    def _tell(self, title: str, text: str) -> None:
        if self._settings.questions:
            self._bell.ring(title, text)
