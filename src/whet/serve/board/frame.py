"""What every page of the dashboard has: the program behind it, the counts in its head, its templates."""

from __future__ import annotations

import msgspec
from starlette.responses import HTMLResponse

from whet.app.build import App
from whet.contract.texts import typed_number
from whet.serve.questions import PendingQuestion
from whet.serve.turns import Turns
from whet.store import ledger, news
from whet.web.pages import SiteTemplates
from whet.web.sessions import Visit


class Head(msgspec.Struct, frozen=True):
    """The numbers in the head: questions that wait, learned changes that wait, turns that run."""

    questions: int
    inbox: int
    running: int


class Frame:
    """Fills templates."""

    def __init__(self, app: App, turns: Turns, pages: SiteTemplates) -> None:
        self.app = app
        self.turns = turns
        self._pages = pages

    def head(self) -> Head:
        """Count what the head shows."""
        counts = self.app.database.read_now(lambda db: ledger.counts(db, ""))
        waiting = sum(counts.get(state, 0) for state in news.WAITING)
        return Head(len(self.turns.questions.pending()), waiting, len(self.turns.running))

    def questions(self, session_id: str) -> list[PendingQuestion]:
        """Give the questions that wait in a session, and in what it delegated."""
        pending, root_of = self.turns.questions.pending(), self.app.gate.root_of
        return [one for one in pending if session_id in (one.session_id, root_of(one.session_id))]

    def page(self, template: str, visit: Visit, /, status: int = 200, **values: object) -> HTMLResponse:
        """Fill a page for who is signed in."""
        now = self.app.clock.now()
        return self._pages.answer(template, status, visit=visit, head=self.head(), now=now, **values)


def asked_number(text: str) -> int:
    """Read a number of a request's query; 0 where it is none, or one that nothing here reaches."""
    return typed_number(text) or 0
