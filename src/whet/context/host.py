"""The host of a context engine: when it is asked, and what of its answer is believed.

Implements `contract.protocols.Context`. The engine sees rows (`rows.py`) on its own thread (`seat.py`); a
compaction is recorded in the transcript, in place, before the next request shows it; the list that goes
out is repaired (`repair.py`). Where the engine fails, the built-in one stands in, visibly. It does not
know any engine by name, nor any wire format.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from whet.context.brake import Brake
from whet.context.repair import Growing
from whet.context.rows import EngineRows, read_back
from whet.context.seat import HostFacts, Seat, accepted, changed_attributes
from whet.context.tokens import list_tokens
from whet.contract.context_engine import ChatRow, SessionChange, transition_calls
from whet.contract.events import Compaction, Emit
from whet.contract.messages import Message, Usage
from whet.contract.protocols import Compacted, ContextStatus, ModelInfo
from whet.store.transcript import SessionLog

_USAGE_KEYS = tuple(field for field in Usage.__struct_fields__ if field != "cost_usd")


class _Smaller(msgspec.Struct):
    """What an engine made of the list."""

    rows: list[ChatRow]
    messages: list[Message]


class EngineHost:
    """One session's context. `spare` makes the built-in engine's seat when it is needed."""

    def __init__(
        self,
        log: SessionLog,
        seat: Seat,
        facts: HostFacts,
        spare: Callable[[], Awaitable[Seat | None]] | None = None,
    ) -> None:
        self.log = log
        self.seat = seat
        self._facts = facts
        self._make_spare = spare
        self._spare: Seat | None = None
        self._rows = EngineRows()
        self._wire = Growing()
        self._brake = Brake()
        self._last: Sequence[Message] = ()
        self._turn = 0
        self._model: ModelInfo | None = None
        self._limit = 0
        self._counted = 0  # the server's count of the request that had `_counted_rows` rows
        self._counted_rows = 0
        self._scale = 1.0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the session was left."""
        return self._closed

    def lengthen(self, tokens: int) -> None:
        """Count this much more before the first message, in every request."""
        self._facts = msgspec.structs.replace(self._facts, fixed_tokens=self._facts.fixed_tokens + tokens)

    async def begin(self, leaving: EngineHost | None = None) -> None:
        """Tell the engine of the session. `leaving`: the session whose engine this one takes over."""
        self.seat.live = self.live_rows
        await self._follow_model()
        await self.seat.each(transition_calls(self.seat.engine, self._change(leaving)))
        if leaving is not None:
            await leaving.hand_over()

    async def view(
        self, transcript: Sequence[Message], emit: Emit, *, overflow_limit_tokens: int | None = None
    ) -> Sequence[Message]:
        """Give the list for the next request, compacted first where the engine asks for it."""
        self._rows.sync(transcript, self.log.seqs)
        await self._follow_model()
        if overflow_limit_tokens is None:
            await self._before_request(emit)
        elif not await self._after_overflow(overflow_limit_tokens, emit):
            self._flush(emit)
            return self._last
        self._flush(emit)
        self._last = self._wire.of(self._rows.sources)
        self._counted_rows = len(self._rows.rows)
        return self._last

    def observe(self, usage: Usage) -> None:
        """Hand the usage to the engine and keep the server's count."""
        counts = {key: getattr(usage, key) for key in _USAGE_KEYS}
        for seat in self._active():
            seat.tell(
                "update_from_response", lambda seat=seat: seat.engine.update_from_response(dict(counts))
            )
        rough = self._facts.fixed_tokens + sum(self._rows.sizes[: self._counted_rows])
        self._counted = usage.prompt_tokens
        if usage.prompt_tokens and rough:
            self._scale = min(max(usage.prompt_tokens / rough, 0.25), 4.0)
        if self._brake.measured(usage.prompt_tokens or rough, self.seat.threshold):
            self._say_stopped()

    async def compact(self, focus: str, emit: Emit) -> Compacted:
        """Compact by hand; the engine is asked first whether there is anything to compact."""
        self._rows.sync(self.log.messages, self.log.seqs)
        await self._follow_model()
        engine = self.seat.engine
        has_content = getattr(engine, "has_content_to_compress", None)
        if not self._rows.rows:
            return "nothing"
        if callable(has_content):
            rows = list(self._rows.rows)
            outcome = await self.seat.run("has_content_to_compress", lambda: bool(has_content(rows)))
            if outcome.error is None and not outcome.value:
                return "nothing"
        done = await self._compact(self._tokens(), emit, focus=focus, force=True)
        self._flush(emit)
        if done:
            self._brake.reset()
        return "compacted" if done else "unchanged"

    async def status(self) -> ContextStatus:
        """Say how full the window is; window and threshold are the engine's own."""
        self._rows.sync(self.log.messages, self.log.seqs)
        await self._follow_model()
        told = (await self.seat.status()).get("threshold_tokens")
        return ContextStatus(
            engine=self.seat.name,
            source=self.seat.offer.source,
            window_tokens=self._window(),
            threshold_tokens=told if isinstance(told, int) else self.seat.threshold,
            used_tokens=self._tokens(),
            counted=bool(self._counted),
            messages=len(self._rows.rows),
            stopped=self._brake.stopped,
        )

    async def hand_over(self) -> None:
        """The engine belongs to another session now; only the spare is ended."""
        self._closed = True
        if self._spare is not None:
            await self._end(self._spare)

    async def aclose(self) -> None:
        """End the session with the engines, once, and let them close what they hold open."""
        if self._closed:
            return
        self._closed = True
        for seat in self._active():
            await self._end(seat)

    async def _end(self, seat: Seat) -> None:
        end, rows, session = getattr(seat.engine, "on_session_end", None), self.live_rows(), self.log.session
        if callable(end):
            await seat.run("on_session_end", lambda: end(session.id, rows))
        # A clone may share what it holds open with the engine that it was cloned from.
        await seat.close(shutdown=session.kind == "chat" or seat.origin == "fresh")

    async def _before_request(self, emit: Emit) -> None:
        first = self.log.turn_number != self._turn
        if first:
            self._turn = self.log.turn_number
            self._brake.new_turn()
        tokens = self._tokens()
        wants = await self._wants(self.seat, tokens, first=first)
        if wants is None and (spare := await self._stand_in()) is not None:
            wants = await self._wants(spare, tokens, first=False)
        if wants and self._brake.allows(tokens) and not await self._compact(tokens, emit):
            window = self._window()
            if self._brake.idle(tokens, window):
                self._say_stopped()

    async def _wants(self, seat: Seat, tokens: int, *, first: bool) -> bool | None:
        """Ask an engine whether to compact; None where it could not say."""
        engine, rows = seat.engine, list(self._rows.rows)
        preflight = getattr(engine, "should_compress_preflight", None) if first else None
        ask = self._brake.allows(tokens)

        def work() -> bool:
            if callable(preflight) and preflight(rows):
                return True
            return ask and bool(engine.should_compress(tokens))

        outcome = await seat.run("should_compress", work)
        return outcome.value if outcome.error is None else None

    async def _after_overflow(self, limit: int, emit: Emit) -> bool:
        if 0 < limit < self._window():
            self._limit = limit
            self.seat.note(f"{self.seat.name}: the server's window is {limit:,} tokens, less than was set")
            await self._follow_model()
        tokens = max(self._tokens(), (limit or self._window()) + 1)
        return await self._compact(tokens, emit, anyone=True)

    async def _compact(
        self, tokens: int, emit: Emit, *, focus: str = "", force: bool = False, anyone: bool = False
    ) -> bool:
        """Let the engine make the list smaller and record it; the built-in one where the first fails.

        `anyone`: the built-in one also where the first changes nothing.
        """
        seat: Seat | None = self.seat
        while seat is not None:
            outcome = await self._compress(seat, tokens, focus, force=force)
            if isinstance(outcome, _Smaller) and await self._record(seat, outcome, emit):
                return True
            tried_both = seat is not self.seat
            seat = None if tried_both or not (outcome == "failed" or anyone) else await self._stand_in()
        return False

    async def _compress(self, seat: Seat, tokens: int, focus: str, *, force: bool) -> _Smaller | str:
        """Call the engine once, never again; gives "failed" or "unchanged" where there is no new list."""
        engine, known = seat.engine, self._rows
        sources, rows, prints = list(known.sources), list(known.rows), known.prints()
        keywords: dict[str, Any] = {"current_tokens": tokens, "focus_topic": focus or None}
        if force:
            keywords["force"] = True

        def work() -> tuple[list[ChatRow], list[Message]] | None:
            returned = engine.compress(list(rows), **accepted(engine.compress, keywords))
            return read_back(rows, sources, prints, returned)

        outcome = await seat.run("compress", work, seat.deadlines.compress_s)
        if outcome.value is not None:
            return _Smaller(self._with_request(outcome.value[0], outcome.value[1]), outcome.value[1])
        known.restore(prints)
        return "failed" if outcome.error is not None else "unchanged"

    def _with_request(self, rows: list[ChatRow], messages: list[Message]) -> list[ChatRow]:
        """Put messages of the person that nobody has answered yet back where an engine left them out."""
        known, rows = self._rows, list(rows)
        first = len(known.sources)
        while first and known.sources[first - 1].role == "user":
            first -= 1
        for row, source in zip(known.rows[first:], known.sources[first:], strict=True):
            if not any(source is kept or (source.text and source.text in kept.text) for kept in messages):
                messages.append(source)
                rows.append(row)
        return rows

    async def _record(self, seat: Seat, smaller: _Smaller, emit: Emit) -> bool:
        """Store a compaction and go on from it; a list that grew is refused."""
        known = self._rows
        before, after = known.tokens, list_tokens(smaller.messages)
        count, fixed = len(known.rows), self._facts.fixed_tokens
        if after > before:
            seat.note(f"{seat.name}: its compaction was larger than what it replaced and is not used")
            return False
        tokens_before, tokens_after = (int((fixed + size) * self._scale) for size in (before, after))
        await self.log.record_compaction(None, smaller.messages, seat.name, tokens_before, tokens_after)
        known.adopt(smaller.rows, self.log.messages)
        self._counted = self._counted_rows = 0
        self._brake.compacted()
        emit(Compaction(seat.name, count, len(known.rows), tokens_before, tokens_after))
        values = (
            ("last_prompt_tokens", -1),
            ("last_completion_tokens", 0),
            ("awaiting_real_usage_after_compression", True),
            ("last_compression_rough_tokens", tokens_after),
        )
        await seat.run("its attributes", lambda: changed_attributes(seat.engine, values))
        return True

    async def _stand_in(self) -> Seat | None:
        """Give the built-in engine's seat, made at the first need."""
        if self._spare is None and self._make_spare is not None:
            self._spare = await self._make_spare()
            if self._spare is not None:
                await self._spare.follow(self._facts.info(), self._window(), self._facts)
                await self._spare.each(transition_calls(self._spare.engine, self._change(None)))
        if self._spare is not None:
            self.seat.note(f"{self.seat.name} failed; {self._spare.name} stands in")
        return self._spare

    async def _follow_model(self) -> None:
        """Tell the engines where another model answers than last time."""
        info = self._facts.info()
        if info != self._model:
            if self._model is not None:
                self._brake.reset()
            self._model, self._limit = info, 0
        for seat in self._active():
            await seat.follow(info, self._window(), self._facts)

    def _change(self, leaving: EngineHost | None) -> SessionChange:
        session, info = self.log.session, self._facts.info()
        facts = {
            "hermes_home": self._facts.home,
            "platform": self._facts.platform,
            "model": info.model,
            "context_length": self._window(),
            # A child has a conversation of its own, or its engine would take the parent's over.
            "conversation_id": session.id if session.kind != "chat" else session.conversation_id,
        }
        if leaving is None:
            return SessionChange(session.id, facts=facts)
        return SessionChange(session.id, leaving.log.session.id, leaving.live_rows(), facts=facts)

    def live_rows(self) -> list[ChatRow]:
        """Give the whole live list as an engine sees it."""
        self._rows.sync(self.log.messages, self.log.seqs)
        return list(self._rows.rows)

    def _active(self) -> list[Seat]:
        return [self.seat] if self._spare is None else [self.seat, self._spare]

    def _window(self) -> int:
        return self._limit or self._facts.info().window_tokens

    def _tokens(self) -> int:
        """Give the next request's size: the server's last count and an estimate of what came since."""
        sizes = self._rows.sizes
        if self._counted and self._counted_rows <= len(sizes):
            return self._counted + int(sum(sizes[self._counted_rows :]) * self._scale)
        return int((self._facts.fixed_tokens + self._rows.tokens) * self._scale)

    def _say_stopped(self) -> None:
        self.seat.note(
            f"{self.seat.name}: automatic compaction is off, two in a row did not help "
            f"({self._brake.stopped}); /compress [focus], /new or a larger model help"
        )

    def _flush(self, emit: Emit) -> None:
        for seat in self._active():
            seat.flush(emit)
