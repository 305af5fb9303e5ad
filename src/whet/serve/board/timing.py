"""The page of where a session's time went: a waterfall of each turn, and the use of the context window.

Bars are SVG in rows of a table, so that screen readers read all values.
"""

from __future__ import annotations

from typing import Any

import apsw
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from whet.serve.board import charts, shown
from whet.serve.board.frame import Frame, number_or_zero
from whet.store import sessions, spans
from whet.store.spans import TurnSpan, TurnSpans, WindowMark
from whet.web.sessions import Visit

WIDTH = 1_000
_MIN_BAR_WIDTH = 4  # the minimum width of a bar, so that short spans are visible
_TURNS, _MAX_TURNS, _MAX_ROWS = 10, 100, 120


class WaterfallRow(msgspec.Struct, frozen=True):
    """One span of a turn as it is drawn: `x` and `width` in units of `WIDTH`; `cached` is the cached share of
    its prompt."""

    span: TurnSpan
    name: str
    x: float
    width: float
    begins: str
    took: str
    cached: int = 0


class Waterfall(msgspec.Struct, frozen=True):
    """A turn as it is drawn. `sums` are pairs of a label and the time spent on it: the model, tools, waiting
    for a person. `left_out` is the number of spans that are not drawn."""

    turn: TurnSpans
    took: str
    rows: tuple[WaterfallRow, ...]
    left_out: int
    sums: tuple[tuple[str, str], ...]


class TimePages:
    """The page of a session's times."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    async def session(self, request: Request, visit: Visit) -> Response:
        """Show the newest turns of a session as waterfalls, and its context window over time."""
        session_id = request.path_params["id"]
        newest = min(number_or_zero(request.query_params.get("n", "")) or _TURNS, _MAX_TURNS)

        def read(db: apsw.Connection) -> dict[str, Any]:
            return {
                "row": sessions.get(db, session_id),
                "turns": spans.list_turn_spans(db, session_id, newest),
                "marks": spans.read_window(db, session_id, _MAX_ROWS),
            }

        values = await self._frame.services.database.read(read)
        info = self._frame.services.models.provider.info
        window_tokens = info.window_tokens if info.model == values["row"].model else 0
        return self._frame.page(
            "time.html",
            visit,
            here="sessions",
            row=values["row"],
            turns=[waterfall(turn) for turn in reversed(values["turns"])],
            more=min(newest * 3, _MAX_TURNS) if len(values["turns"]) == newest < values["row"].turns else 0,
            window=window_chart(values["marks"], window_tokens),
            held=window_tokens,
            width=WIDTH,
        )


def waterfall(turn: TurnSpans) -> Waterfall:
    """Lay out a turn. An unfinished turn ends with its last span."""
    whole_ms = max(1, turn.last_ms - turn.begun_ms)
    rows: list[WaterfallRow] = []
    for span in turn.spans[:_MAX_ROWS]:
        width = max(_MIN_BAR_WIDTH, (span.ended_ms - span.begun_ms) * WIDTH / whole_ms)
        x = min((span.begun_ms - turn.begun_ms) * WIDTH / whole_ms, WIDTH - width)
        share = span.usage.cache_hit_ratio if span.usage and span.usage.prompt_tokens else 0.0
        rows.append(
            WaterfallRow(
                span,
                shown.line(span.name, 40),
                round(max(0.0, x), 2),
                round(min(width, WIDTH), 2),
                shown.duration(max(0, span.begun_ms - turn.begun_ms) / 1000),
                shown.duration(span.duration_s),
                round(share * 100),
            )
        )
    spent = (
        ("model", turn.spent_s("model")),
        ("tools", turn.spent_s("tool")),
        ("waiting for you", turn.spent_s("wait")),
    )
    sums = tuple((label, shown.duration(seconds)) for label, seconds in spent if seconds)
    omitted = max(0, len(turn.spans) - _MAX_ROWS)
    return Waterfall(turn, shown.duration(whole_ms / 1000), tuple(rows), omitted, sums)


def window_chart(marks: list[WindowMark], window_tokens: int) -> charts.Chart | None:
    """Draw the tokens of each request, and the tokens after each compaction. Returns None without data."""
    if not marks:
        return None
    cached = [float(mark.cached) if mark.after is None else 0.0 for mark in marks]
    fresh = [float(mark.tokens - mark.cached) if mark.after is None else 0.0 for mark in marks]
    after = [float(mark.after or 0) for mark in marks]
    series = [("cached", "cached", cached), ("fresh", "new", fresh)]
    if any(mark.after is not None for mark in marks):
        series.append(("output", "left by a compaction", after))
    title = "Context window" + (f", of {shown.count(window_tokens)} tokens" if window_tokens else "")
    names = [f"{mark.seq}" for mark in marks]
    tooltips = [
        f"message {mark.seq}: compacted from {shown.count(mark.tokens)} to {shown.count(mark.after)} tokens"
        if mark.after is not None
        else f"message {mark.seq}: {shown.count(mark.tokens)} tokens, {shown.count(mark.cached)} cached"
        for mark in marks
    ]
    return charts.draw_bars(title, names, series, shown.count, tooltips=tooltips)
