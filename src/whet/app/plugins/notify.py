"""Notify a person who is not watching that a question is waiting or a long turn has ended.

The notifiers come from plugins; an interface may have its own. Notifications are sent in the background, and
failures are reported under the plugin's name.
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

_MAX_TEXT_CHARS = 500
_CLOSE_TIMEOUT_S = 5.0


class PersonNotifier(Protocol):
    """A way to reach a person."""

    async def send(self, title: str, text: str) -> None:
        """Send a notification. Raises PluginError."""
        ...


class QuestionNotifier(Protocol):
    """Notifies the person of an interface, without waiting."""

    def notify(self, title: str, text: str) -> None:
        """Notify the person."""
        ...


class NotifierGroup(TurnObserver):
    """Sends each notification with every notifier. `on_failure` receives the errors."""

    def __init__(
        self,
        notifiers: Sequence[PersonNotifier],
        settings: NotifySettings,
        on_failure: Callable[[PluginError], None],
    ) -> None:
        self._notifiers = notifiers
        self._settings = settings
        self._on_failure = on_failure
        self._sending: set[asyncio.Task[None]] = set()

    def notify(self, title: str, text: str) -> None:
        """Notify the person without waiting. Secrets are masked."""
        text = mask(text)[:_MAX_TEXT_CHARS]
        for notifier in self._notifiers:
            task = asyncio.create_task(self._send(notifier, title, text))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def after_turn(self, session: Session, end: TurnEnd) -> None:
        """Notify the person about the end of a long turn."""
        if end.duration_s >= self._settings.turns_over_s:
            self.notify(f"Whet: the turn ended ({end.reason})", end.text or end.error)

    async def aclose(self) -> None:
        """Wait up to five seconds for pending notifications."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=_CLOSE_TIMEOUT_S)

    async def _send(self, notifier: PersonNotifier, title: str, text: str) -> None:
        try:
            await notifier.send(title, text)
        except PluginError as error:
            self._on_failure(error)


class NotifiedPerson:
    """Passes questions to `person`, and notifies them that one is waiting."""

    def __init__(self, person: Person, notifier: QuestionNotifier, settings: NotifySettings) -> None:
        self.person = person
        self._notifier = notifier
        self._settings = settings

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask about one action."""
        self._notify("Whet asks for approval", f"{request.tool}: {request.subject}")
        return await self.person.approve(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the model's question."""
        self._notify("Whet asks", question)
        return await self.person.clarify(question, choices)

    def _notify(self, title: str, text: str) -> None:
        if self._settings.questions:
            self._notifier.notify(title, text)
