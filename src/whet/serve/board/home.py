"""The pages of the overview, the costs and the decisions, and the form that answers a question."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from urllib.parse import quote

import apsw
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from whet.app.modes import ABOUT
from whet.clock import iso
from whet.contract.errors import WhetError
from whet.serve.board import charts, shown
from whet.serve.board.box import read_new_box
from whet.serve.board.frame import Frame
from whet.serve.board.side import read_side
from whet.serve.questions import QuestionReply
from whet.serve.wire import ApiError, as_api_error
from whet.store import costs, forks, lesson_counts, reviews, session_states, sessions
from whet.store.costs import DecisionCount, Spending
from whet.web.login import Handler
from whet.web.sessions import Visit

_COST_DAYS = 30
_STATE_DAYS = 2
_NOTHING_TYPED: Mapping[str, str] = MappingProxyType({})


class HomePages:
    """The overview, costs and decisions, and the form that answers a question."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def home(self, request: Request, visit: Visit) -> Response:
        """Show the overview."""
        return await self._home(visit)

    def keep_typed(self, begin: Handler) -> Handler:
        """Return a handler of the form for a new session. If the form is refused, the overview shows it
        again, with the typed values and the reason."""

        async def handle(request: Request, visit: Visit) -> Response:
            try:
                return await begin(request, visit)
            except ApiError as error:
                return await self._home(visit, error.status, error.message, request.state.form)

        return handle

    async def answer(self, request: Request, visit: Visit) -> Response:
        """Answer a waiting question and return to the page of its session, or to the overview."""
        form = request.state.form
        session_id, draft = form.get("back", ""), form.get("draft")
        try:
            answer = form.get("answer", "").strip()
            name, _, scope = answer.partition(":")
            if scope.isdecimal():  # otherwise the answer is in words, which may contain a colon
                answer = name
            reply = QuestionReply(
                reason=form.get("reason", "").strip(),
                scope=int(scope[:3]) if scope.isdecimal() else 0,
                draft=None if draft is None else draft.replace("\r\n", "\n"),
                digest=form.get("digest", ""),
            )
            await self._frame.turns.questions.answer(request.path_params["id"], answer, reply)
        except WhetError as error:
            api_error = as_api_error(error)
            if session_id:
                raise ApiError(api_error.status, f"Nothing was decided: {api_error.message}.") from error
            return await self._home(visit, api_error.status, f"Nothing was decided: {error}.")
        return RedirectResponse(f"/sessions/{quote(session_id)}#end" if session_id else "/", 303)

    async def costs(self, request: Request, visit: Visit) -> Response:
        """Show a month of tokens, money and cache hits, by day, model, interface and kind."""
        since = self.first_day(_COST_DAYS)

        def read(db: apsw.Connection) -> dict[str, list[Spending]]:
            return {
                group: costs.sum_spending(db, group, since) for group in ("day", "model", "source", "kind")
            }

        spending = await self._frame.services.database.read(read)
        return self._frame.page(
            "costs.html",
            visit,
            here="costs",
            charts=self.make_charts(spending["day"], _COST_DAYS),
            groups=[(group, spending[group]) for group in ("model", "source", "kind")],
            total=sum_spending(spending["day"]),
            days=_COST_DAYS,
        )

    async def confirmations(self, request: Request, visit: Visit) -> Response:
        """Show who decided on calls, and the address of the confirmation service."""
        since = self.first_day(_COST_DAYS)
        decisions: list[DecisionCount] = await self._frame.services.database.read(
            lambda db: costs.count_decisions(db, since)
        )
        settings = self._frame.services.settings
        return self._frame.page(
            "confirmations.html",
            visit,
            here="confirmations",
            decided=decisions,
            service=settings.confirm.url,
            mode=settings.approval.mode,
            questions=self._frame.turns.questions.pending(),
            days=_COST_DAYS,
        )

    async def _home(
        self,
        visit: Visit,
        status: int = 200,
        problem: str = "",
        typed: Mapping[str, str] = _NOTHING_TYPED,
    ) -> Response:
        frame, now = self._frame, self._frame.services.clock.now()
        today, recent = iso(now)[:10], iso(now - timedelta(days=_STATE_DAYS))
        running_ids = frame.turns.running  # read here, because `read` runs in another thread

        def read(db: apsw.Connection) -> dict[str, object]:
            running = [sessions.get(db, session_id) for session_id in running_ids]
            latest = [row for row in sessions.list_sessions(db, 8) if row.id not in running_ids]
            days = costs.sum_spending(db, "day", today)
            return {
                "latest": forks.order_as_trees(db, [*running, *latest][:8]),
                "told": lesson_counts.count_unread(db).line_with("the inbox", "what was learned"),
                "today": next((day for day in days if day.label == today), None),
                "spent": reviews.spent_since(db, today),
                "side": read_side(db),
                "states": session_states.list_states(db, recent, now, 200),
            }

        values = await frame.services.database.read(read)
        states: list[session_states.AgentRow] = values.pop("states")  # pyright: ignore[reportAssignmentType]
        asked_ids = {question.session_id for question in frame.turns.questions.pending()}
        return frame.page(
            "home.html",
            visit,
            status,
            here="home",
            problem=problem,
            typed=typed,
            questions=frame.turns.questions.pending(),
            elsewhere=[row for row in states if row.state == "waiting" and row.id not in asked_ids],
            active=[row for row in states if row.state == "running" or row.id in running_ids],
            running=set(running_ids),
            box=await read_new_box(frame.services),
            modes=ABOUT,
            **values,
        )

    def make_charts(self, rows: list[Spending], days: int) -> list[charts.Chart]:
        """Draw the tokens, cache hits and, if there are any, costs of the last `days` days. `rows` has one
        row for each day with turns."""
        labels = charts.days_back(self._frame.services.clock.now().date(), days)
        by_day = {row.label: row for row in rows}

        def values(field: str) -> list[float]:
            return [float(getattr(by_day[day], field)) if day in by_day else 0.0 for day in labels]

        cached = values("cache_read_tokens")
        fresh = [prompt - read for prompt, read in zip(values("prompt_tokens"), cached, strict=True)]
        hit_ratios = [
            by_day[day].cache_hit_ratio if day in by_day and by_day[day].prompt_tokens else None
            for day in labels
        ]
        pictures = [
            charts.draw_bars(
                "Tokens",
                labels,
                [
                    ("cached", "cached", cached),
                    ("fresh", "new", fresh),
                    ("output", "written", values("output_tokens")),
                ],
                shown.count,
            ),
            charts.draw_line("Prompt cache", labels, hit_ratios, "of the prompts from the cache"),
        ]
        if any(row.cost_usd for row in rows):
            pictures.append(
                charts.draw_bars("Cost", labels, [("cost", "spent", values("cost_usd"))], shown.cost)
            )
        return pictures

    def first_day(self, days: int) -> str:
        """Return the first date of the last `days` days, which include today."""
        return iso(self._frame.services.clock.now() - timedelta(days=days - 1))[:10]


def sum_spending(days: list[Spending]) -> Spending:
    """Return the sum of the days."""
    return Spending(
        "all",
        sum(day.turns for day in days),
        sum(day.prompt_tokens for day in days),
        sum(day.cache_read_tokens for day in days),
        sum(day.output_tokens for day in days),
        sum(day.cost_usd for day in days),
        sum(day.unpriced for day in days),
    )
