"""What every page of the dashboard has: the program behind it, the counts in its head, its templates."""

from __future__ import annotations

import msgspec
from starlette.responses import HTMLResponse

from whet.app.build import App
from whet.serve.turns import Turns
from whet.store import ledger
from whet.store.ledger import State
from whet.web.pages import SiteTemplates
from whet.web.sessions import Visit

WAITING: tuple[State, ...] = ("inbox", "quarantined")


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
        waiting = sum(counts.get(state, 0) for state in WAITING)
        return Head(len(self.turns.questions.pending()), waiting, len(self.turns.hosted.running))

    def page(self, template: str, visit: Visit, /, status: int = 200, **values: object) -> HTMLResponse:
        """Fill a page for who is signed in."""
        now = self.app.clock.now()
        return self._pages.answer(template, status, visit=visit, head=self.head(), now=now, **values)
