"""The parts that all pages of the dashboard share: services, turns, templates, and the counts in the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import HTMLResponse

from whet.app.conversations.slash import SlashCommand
from whet.app.services import Services
from whet.contract.texts import parse_typed_number
from whet.serve.board.page_commands import PageCommands
from whet.serve.questions import PendingQuestion
from whet.serve.turns import Turns
from whet.store import ledger, lesson_counts
from whet.web.pages import SiteTemplates
from whet.web.sessions import Visit


class Head(msgspec.Struct, frozen=True):
    """The numbers in the head: waiting questions, waiting learned changes, running turns."""

    questions: int
    inbox: int
    running: int


class Frame:
    """Renders pages, with the values that all pages need."""

    def __init__(
        self,
        services: Services,
        turns: Turns,
        pages: SiteTemplates,
        commands: Sequence[SlashCommand[Any]] = (),
    ) -> None:
        self.services = services
        self.turns = turns
        self.commands: PageCommands = PageCommands(turns.hosted, commands)
        self._pages = pages

    def head(self) -> Head:
        """Return the counts for the head."""
        counts = self.services.database.read_now(lambda db: ledger.count_by_state(db, ""))
        inbox = sum(counts.get(state, 0) for state in lesson_counts.WAITING)
        return Head(len(self.turns.questions.pending()), inbox, len(self.turns.running))

    def questions(self, session_id: str) -> list[PendingQuestion]:
        """Return the waiting questions of a session and its helpers."""
        root_of = self.services.gate.get().root_of
        return [
            question
            for question in self.turns.questions.pending()
            if session_id in (question.session_id, root_of(question.session_id))
        ]

    def page(self, template: str, visit: Visit, /, status: int = 200, **values: object) -> HTMLResponse:
        """Render a page for the person who is logged in."""
        now = self.services.clock.now()
        shown_values = {"side": None, "row": None, **values}
        return self._pages.answer(template, status, visit=visit, head=self.head(), now=now, **shown_values)


def number_or_zero(text: str) -> int:
    """Return a number from a request, or 0 if the text is not a number."""
    return parse_typed_number(text) or 0
