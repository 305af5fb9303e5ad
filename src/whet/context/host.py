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

from whet.context import verbs
from whet.context.brake import CircuitBreaker
from whet.context.live_list import LiveList
from whet.context.repair import repair
from whet.context.rows import extends, read_back
from whet.context.seat import EngineRunner, HostFacts, accepted, changed_attributes
from whet.context.tokens import list_tokens
from whet.context.verbs import BY_HAND, CompactionAnswer, CompactionQuestion
from whet.contract.context_engine import ChatRow, SessionChange, transition_calls
from whet.contract.events import Compaction, Emit, Notice, TurnEnd
from whet.contract.messages import Message, Usage
from whet.contract.protocols import Compacted, ContextStatus, ModelInfo
from whet.store.transcript import Transcript

_USAGE_KEYS = tuple(field for field in Usage.__struct_fields__ if field != "cost_usd")
_GROWTH_TOKENS = 4096
_Read = tuple[list[ChatRow], list[Message]]


class _Order(msgspec.Struct, frozen=True):
    """A compaction to be made: at which size, why, about what. `anyone`: by the built-in engine too, where
    the chosen one changes nothing."""

    tokens: int
    phase: str = "threshold"
    focus: str = ""
    anyone: bool = False


class _Begun(msgspec.Struct):
    """A compaction that an engine was asked for, and what it gave back, also where nobody waited for it."""

    seat: EngineRunner
    sources: list[Message]
    done: bool = False
    read: _Read | None = None


class EngineHost:
    """One session's context. `spare` makes the built-in engine's seat when it is needed; `compacted`, where
    it is set, is told of each compaction after it is recorded."""

    def __init__(
        self,
        log: Transcript,
        seat: EngineRunner,
        facts: HostFacts,
        spare: Callable[[], Awaitable[EngineRunner | None]] | None = None,
    ) -> None:
        self.log = log
        self.seat = seat
        self._facts = facts
        self._make_spare = spare
        self._spare: EngineRunner | None = None
        self._live = LiveList(log, facts.fixed_tokens)
        self._brake = CircuitBreaker()
        self._last: Sequence[Message] = ()
        self._turn = 0
        self._model: ModelInfo | None = None
        self._limit = 0
        self._usage: dict[str, Any] = {}
        self._blocked = ""
        self._begun: _Begun | None = None
        self._astray: list[EngineRunner] = []  # their engines know another list than the live one
        self._closed = False
        self.compacted: Callable[[Compaction], Awaitable[None]] | None = None

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
        self._mark(self.seat)
        await self._follow_model()
        await self.seat.each(transition_calls(self.seat.engine, self._change(leaving)))
        if self._brake.recall(await self.log.counts_after_compactions(), self.seat.threshold):
            self._say_stopped()
        if leaving is not None:
            await leaving.hand_over()

    async def view(
        self, transcript: Sequence[Message], emit: Emit, *, overflow_limit_tokens: int | None = None
    ) -> Sequence[Message]:
        """Give the list for the next request, compacted first where the engine asks for it."""
        self._sync(transcript)
        await self._follow_model()
        await self._catch_up(emit)
        if overflow_limit_tokens is None:
            await self._before_request(emit)
        elif not await self._after_overflow(overflow_limit_tokens, emit):
            self._flush(emit)
            return self._last
        self._last = self._live.outgoing()
        if verbs.selects(self.seat.engine):
            self._last = await self._selected(self._last)
        self._flush(emit)
        return self._last

    def observe(self, usage: Usage) -> None:
        """Hand the usage to the engine and keep the server's count."""
        self._usage = {key: getattr(usage, key) for key in _USAGE_KEYS}
        for seat in self._active():
            counts = dict(self._usage)
            seat.tell(
                "update_from_response",
                lambda seat=seat, counts=counts: seat.engine.update_from_response(counts),
            )
        if self._brake.measured(self._live.answered(usage), self.seat.threshold):
            self._say_stopped()

    async def turn_ended(self, end: TurnEnd) -> None:
        """Tell the engine that a turn is over, where it wants to know."""
        facts = {
            "session_id": end.session_id,
            "conversation_id": self._conversation_id(),
            "turn_id": end.turn_id,
            "reason": end.reason,
        }
        work = verbs.turn_complete(self.seat.engine, self.live_rows(), dict(self._usage), facts)
        if work is not None:
            await self.seat.run("on_turn_complete", work)

    async def compact(self, focus: str, emit: Emit) -> Compacted:
        """Compact by hand; the engine is asked first whether there is anything to compact."""
        self._sync(None)
        await self._follow_model()
        await self._catch_up(emit)
        engine, rows = self.seat.engine, self._live.copy()
        has_content = getattr(engine, "has_content_to_compress", None)
        if not rows:
            return "nothing"
        if callable(has_content):
            hook_s = self.seat.deadlines.hook_s  # looks at the whole list
            outcome = await self.seat.run("has_content_to_compress", lambda: bool(has_content(rows)), hook_s)
            if outcome.error is None and not outcome.value:
                return "nothing"
        done = await self._compact(_Order(self._live.tokens(), phase=BY_HAND, focus=focus), emit)
        self._flush(emit)
        if done:
            self._brake.reset()
        return "compacted" if done else "unchanged"

    async def status(self) -> ContextStatus:
        """Say how full the window is; window and threshold are the engine's own."""
        self._sync(None)
        await self._follow_model()
        told = (await self.seat.status()).get("threshold_tokens")
        return ContextStatus(
            engine=self.seat.name,
            source=self.seat.offer.source,
            window_tokens=self._window(),
            threshold_tokens=told if isinstance(told, int) else self.seat.threshold,
            used_tokens=self._live.tokens(),
            counted=self._live.is_counted,
            messages=len(self._live.rows.rows),
            stopped=self._brake.stopped,
        )

    async def hand_over(self) -> None:
        """The engine belongs to another session now; only the spare is ended."""
        self._closed = True
        if self._spare is not None:
            await self._end(self._spare)
        self._unhook()

    async def aclose(self) -> None:
        """End the session with the engines, once, and let them close what they hold open."""
        if self._closed:
            return
        self._closed = True
        for seat in self._active():
            await self._end(seat)
            seat.leave()
        self._unhook()

    def _unhook(self) -> None:
        """Forget the ways back to the session and its parts: they would keep each other in memory."""
        info = self._facts.info()
        self._facts = msgspec.structs.replace(self._facts, info=lambda: info)
        self._make_spare = self.compacted = None

    def live_rows(self) -> list[ChatRow]:
        """Give the whole live list as an engine sees it."""
        self._sync(None)
        return self._live.copy()

    async def _end(self, seat: EngineRunner) -> None:
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
        tokens = self._live.tokens()
        wish = await self._wish(self.seat, tokens, first=first)
        if wish is None and (spare := await self._stand_in()) is not None:
            wish = await self._wish(spare, tokens, first=False)
        if wish is None:
            return
        if wish.wants and self._brake.allows(tokens):
            await self._announce(wish, tokens, emit)
            done = await self._compact(_Order(tokens, wish.phase), emit)
            if not done and self._brake.idle(tokens, self._window()):
                self._say_stopped()
        elif not first and verbs.prunes(self.seat.engine) and self._live.rows.rows[-1]["role"] == "tool":
            await self._prune(tokens, emit)
        if wish.blocked and wish.blocked != self._blocked:
            self.seat.note(f"{self.seat.name} should compact and can't now: {wish.blocked}")
        self._blocked = wish.blocked

    async def _wish(self, seat: EngineRunner, tokens: int, *, first: bool) -> CompactionAnswer | None:
        """Ask an engine whether to compact; None where it could not say."""
        rough = not self._live.is_counted
        question = CompactionQuestion(self._live.copy(), tokens, first, self._brake.allows(tokens), rough)
        return (await seat.run("should_compress", lambda: verbs.wish(seat.engine, question))).value

    async def _announce(self, wish: CompactionAnswer, tokens: int, emit: Emit) -> None:
        """Show that a compaction begins: it may take as long as a model's answer."""
        seat, window = self.seat, self._window()
        phase = verbs.BELOW if tokens < seat.threshold and wish.phase == "preflight" else wish.phase
        default = f"making the context smaller ({tokens:,} of {window:,} tokens)"
        facts = {"tokens": tokens, "threshold_tokens": seat.threshold, "context_length": window}
        outcome = await seat.run(
            "its status line", lambda: verbs.status_line(seat.engine, phase, default, facts)
        )
        self._flush(emit)
        if line := default if outcome.value is None else outcome.value:
            emit(Notice(line))

    async def _prune(self, tokens: int, emit: Emit) -> None:
        """Let the engine shorten tool results alone; what comes back is recorded like a compaction."""
        seat, known = self.seat, self._live.rows
        sources, rows, prints = list(known.sources), list(known.rows), known.prints()

        def work() -> _Read | None:
            returned = verbs.pruned(seat.engine, rows, tokens)
            return None if returned is None else read_back(rows, sources, prints, returned)

        outcome = await seat.run("prune_tool_results_only", work)
        if outcome.value is None:
            known.restore(prints)
        elif len(outcome.value[0]) == len(rows) and list_tokens(outcome.value[1]) < known.tokens:
            await self._record(seat, outcome.value, emit, counts=False)
        else:
            seat.note(f"{seat.name}: its pruned list is larger or has lost messages and is not used")
            known.restore(prints)

    async def _selected(self, view: Sequence[Message]) -> Sequence[Message]:
        """Let the engine choose what this one request shows; nothing of that is recorded."""
        seat, rows, sources = self.seat, self._live.copy(), list(self._live.rows.sources)
        budget = seat.threshold or self._window()

        def work() -> _Read | None:
            choice = verbs.selected(seat.engine, rows, budget)
            if choice is None:
                return None
            copies, returned = choice
            return read_back(copies, sources, self._live.rows.prints(), returned)

        outcome = await seat.run("select_context", work)
        return view if outcome.value is None else repair(outcome.value[1])

    async def _after_overflow(self, limit: int, emit: Emit) -> bool:
        if 0 < limit < self._window():
            self._limit = limit
            self.seat.note(f"{self.seat.name}: the server's window is {limit:,} tokens, less than was set")
            await self._follow_model()
        tokens = max(self._live.tokens(), (limit or self._window()) + 1)
        await self._announce(CompactionAnswer(wants=True, phase="overflow"), tokens, emit)
        return await self._compact(_Order(tokens, phase="overflow", anyone=True), emit)

    async def _compact(self, order: _Order, emit: Emit) -> bool:
        """Let the engine make the list smaller and record it; the built-in one where the first fails."""
        seat: EngineRunner | None = self.seat
        while seat is not None:
            answer = await self._compress(seat, order)
            if not isinstance(answer, str) and await self._record(seat, answer, emit):
                return True
            tried_both = seat is not self.seat
            goes_on = not tried_both and (answer == "failed" or order.anyone)
            seat = await self._stand_in() if goes_on else None
        return False

    async def _compress(self, seat: EngineRunner, order: _Order) -> _Read | str:
        """Call the engine once, never again; gives "failed" or "unchanged" where there is no new list."""
        engine, known = seat.engine, self._live.rows
        sources, rows, prints = list(known.sources), list(known.rows), known.prints()
        keywords: dict[str, Any] = {"current_tokens": order.tokens, "focus_topic": order.focus or None}
        if order.phase == BY_HAND:
            keywords["force"] = True
        begun = self._begun = _Begun(seat, sources)

        def work() -> tuple[_Read | None, str]:
            try:
                returned = engine.compress(list(rows), **accepted(engine.compress, keywords))
                begun.read = read_back(rows, sources, prints, returned)
            finally:
                begun.done = True
            return begun.read, verbs.summary_error(engine)

        outcome = await seat.run("compress", work, seat.deadlines.compress_s)
        if begun.done or not seat.lane.stuck:
            self._begun = None
        if outcome.value is not None:
            seat.tell_of_summary(outcome.value[1])
            if outcome.value[0] is not None:
                return outcome.value[0]
        known.restore(prints)
        return "failed" if outcome.error is not None else "unchanged"

    async def _catch_up(self, emit: Emit) -> None:
        """Make engine and list one again, after a compaction that nobody waited for and after a cut.

        An engine counts on from the list that it gave back last, so its work is used, however late.
        """
        begun = self._begun
        if begun is not None and not begun.seat.lane.stuck:
            if not begun.done:
                emit(Notice("a compaction that was stopped is still under way; waiting for it"))
                await begun.seat.run("compress", lambda: None, begun.seat.deadlines.compress_s)
            if begun.done:
                self._begun = None
                await self._use_late(begun, emit)
        for seat in [seat for seat in self._astray if not seat.lane.stuck]:
            self._astray.remove(seat)
            await seat.each(transition_calls(seat.engine, self._change(None)))

    async def _use_late(self, begun: _Begun, emit: Emit) -> None:
        if begun.read is None:
            return
        known, count = self._live.rows, len(begun.sources)
        if not extends(begun.sources, known.sources):
            self._stray(begun.seat)
            return
        rows = [*begun.read[0], *known.rows[count:]]
        await self._record(begun.seat, (rows, [*begun.read[1], *known.sources[count:]]), emit)

    def _with_request(self, read: _Read) -> _Read:
        """Put messages of the person that nobody has answered yet back where an engine left them out."""
        known, rows, messages = self._live.rows, list(read[0]), list(read[1])
        first = len(known.sources)
        while first and known.sources[first - 1].role == "user":
            first -= 1
        for row, source in zip(known.rows[first:], known.sources[first:], strict=True):
            if not any(source is kept or (source.text and source.text in kept.text) for kept in messages):
                messages.append(source)
                rows.append(row)
        return rows, messages

    async def _record(self, seat: EngineRunner, read: _Read, emit: Emit, *, counts: bool = True) -> bool:
        """Store a compaction and go on from it. A list that grew is refused, unless it has fewer messages and
        grew little or fits: its engine counts on from it. `counts` says whether the brake hears of it."""
        rows, messages = self._with_request(read)
        known = self._live.rows
        before, after, count = known.tokens, list_tokens(messages), len(known.rows)
        tokens_before, tokens_after = self._live.scaled(before), self._live.scaled(after)
        bearable = tokens_after < self._window() or after - before <= _GROWTH_TOKENS
        if after > before and not (len(rows) < count and bearable):
            seat.note(f"{seat.name}: its compaction was larger than what it replaced and is not used")
            if len(rows) != count:
                self._stray(seat)
            return False
        await self.log.record_compaction(None, messages, seat.name, tokens_before, tokens_after)
        self._live.adopt(rows)
        if counts and self._brake.compacted(grew=after > before):
            self._say_stopped()
        done = Compaction(seat.name, count, len(rows), tokens_before, tokens_after)
        emit(done)
        if self.compacted is not None:
            await self.compacted(done)
        for other in self._active():
            if other is not seat:
                self._stray(other)
        if counts:
            values = (
                ("last_prompt_tokens", -1),
                ("last_completion_tokens", 0),
                ("awaiting_real_usage_after_compression", True),
                ("last_compression_rough_tokens", tokens_after),
            )
            await seat.run("its attributes", lambda: changed_attributes(seat.engine, values))
        return True

    async def _stand_in(self) -> EngineRunner | None:
        """Give the built-in engine's seat, made at the first need."""
        if self._spare is None and self._make_spare is not None:
            self._spare = await self._make_spare()
            if self._spare is not None:
                self._mark(self._spare)
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
            "conversation_id": self._conversation_id(),
        }
        if leaving is None:
            return SessionChange(session.id, facts=facts)
        return SessionChange(session.id, leaving.log.session.id, leaving.live_rows(), facts=facts)

    def _conversation_id(self) -> str:
        """Give the conversation; a child has one of its own, or its engine would take the parent's over."""
        session = self.log.session
        return session.id if session.kind != "chat" else session.conversation_id

    def _mark(self, seat: EngineRunner) -> None:
        scope, session_id, conversation_id = self._facts.scope, self.log.session.id, self._conversation_id()
        seat.scope = lambda: scope(session_id, conversation_id)

    def _sync(self, transcript: Sequence[Message] | None) -> None:
        if self._live.follow(transcript):
            for seat in self._active():
                self._stray(seat)

    def _stray(self, seat: EngineRunner) -> None:
        """Note that an engine's list is not the live one: it is told of the session anew when it can be."""
        if seat not in self._astray:
            self._astray.append(seat)

    def _active(self) -> list[EngineRunner]:
        return [self.seat] if self._spare is None else [self.seat, self._spare]

    def _window(self) -> int:
        return self._limit or self._facts.info().window_tokens

    def _say_stopped(self) -> None:
        self.seat.note(
            f"{self.seat.name}: automatic compaction is off, two in a row did not help "
            f"({self._brake.stopped}); /compress [focus], /new or a larger model help"
        )

    def _flush(self, emit: Emit) -> None:
        for seat in self._active():
            seat.flush(emit)
