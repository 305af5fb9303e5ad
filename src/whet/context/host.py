"""The host of a context engine: calls it at the right times and checks its answers.

Implements `contract.protocols.Context`. The engine sees rows (`rows.py`) on its own thread
(`engine_runner.py`). Before each request the host asks it whether to compact, runs the compaction
(`compaction.py`) unless further ones are pointless (`compaction_policy.py`), and returns the list to send
(`live_list.py`). If the engine fails, the built-in one takes over with a notice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from whet.context.engine_runner import (
    BY_HAND,
    CompactionAnswer,
    CompactionQuestion,
    EngineRunner,
    HostFacts,
    ask_engine,
    filter_keywords,
    optional_hook,
)
from whet.context.engines import SessionEngines, rows_at_end, show_if_behind
from whet.context.live_list import LiveList
from whet.contract.context_engine import ChatRow
from whet.contract.errors import ProviderError
from whet.contract.events import Compaction, Emit, TurnEnd
from whet.contract.messages import Message, Usage
from whet.contract.protocols import Compacted, ContextStatus
from whet.late import LatePart
from whet.store.transcript import Transcript

if TYPE_CHECKING:
    from whet.context.compaction import CompactionRunner
    from whet.context.compaction_policy import CircuitBreaker

_USAGE_KEYS = tuple(
    field for field in Usage.__struct_fields__ if field not in ("cost_usd", "estimated_tokens")
)


def _make_breaker() -> CircuitBreaker:
    from whet.context.compaction_policy import CircuitBreaker  # noqa: PLC0415 - most sessions compact nothing

    return CircuitBreaker()


class EngineHost:
    """One session's context. `spare` creates the runner of the built-in engine. If set, `on_compacted` is
    called after each recorded compaction, and `before_compaction` returns text for the engine to keep."""

    def __init__(
        self,
        log: Transcript,
        runner: EngineRunner,
        facts: HostFacts,
        spare: Callable[[], Awaitable[EngineRunner | None]] | None = None,
    ) -> None:
        self.log = log
        self._engines = SessionEngines(log, runner, facts, spare)
        self._live = LiveList(log, facts.fixed_tokens)
        self.breaker: LatePart[CircuitBreaker] = LatePart(_make_breaker)
        self._compaction_runner: CompactionRunner | None = None
        self._last_view: Sequence[Message] = ()
        self._turn = 0
        self._usage: dict[str, Any] = {}
        self._blocked_reason = ""
        self._is_closed = False
        self.on_compacted: Callable[[Compaction], Awaitable[None]] | None = None
        self.before_compaction: Callable[[list[ChatRow]], Awaitable[str]] | None = None

    @property
    def runner(self) -> EngineRunner:
        """The chosen engine."""
        return self._engines.chosen

    @property
    def is_closed(self) -> bool:
        """Whether the session was closed or its engine belongs to another session now."""
        return self._is_closed

    def add_fixed_tokens(self, tokens: int) -> None:
        """Add this many tokens to the fixed part of every request."""
        self._live.add_fixed_tokens(tokens)

    async def begin(self, leaving: EngineHost | None = None, *, carry_over: bool = False) -> bool:
        """Inform the engine about the session. Returns False if it failed.

        `leaving` is the session that this one follows; unless it is closed, this one takes over its engine.
        With `carry_over` the engine keeps its knowledge of that session.
        """
        self.runner.live = self.live_rows
        rows: list[ChatRow] | None = None
        if leaving is not None and not leaving.is_closed:
            rows = await rows_at_end(leaving.log, leaving.runner, leaving.live_rows())
        done = await self._engines.begin(leaving.log if leaving else None, rows, carry_over=carry_over)
        counts: list[int] = []
        if self.log.live.epoch:
            from whet.store import compactions  # noqa: PLC0415 - few sessions were ever compacted

            counts = await compactions.last_counts(self.log)
        if counts and self.breaker.get().restore(counts, self.runner.threshold):
            self._engines.report_stop(self.breaker.get().stopped)
        if leaving is not None and not leaving.is_closed:
            await leaving.hand_over()
        return done

    async def view(
        self, transcript: Sequence[Message], emit: Emit, *, overflow_limit_tokens: int | None = None
    ) -> Sequence[Message]:
        """Return the list for the next request, compacted first if the engine asks for it."""
        self._live.forget_repair()
        self._sync(transcript)
        await self._follow_model()
        await self._catch_up(emit)
        if overflow_limit_tokens is None:
            await self._before_request(emit)
        elif not await self._after_overflow(overflow_limit_tokens, emit):
            self._engines.flush(emit)
            return self._last_view
        self._last_view = await self._outgoing()
        self._engines.flush(emit)
        return self._last_view

    async def without_refused(
        self, refusal: ProviderError, emit: Emit, *, may_shorten: bool = False
    ) -> Sequence[Message] | None:
        """Return the list without an item that the server may have refused, or None if there is none."""
        return await self._outgoing() if self._live.leave_out(refusal, emit, shorten=may_shorten) else None

    async def answered(self, emit: Emit) -> None:
        """Record the list that was just answered, if items were left out of it."""
        if self._live.repair is not None:
            await self._compactions.record_repair(self._live.repair.summary(), emit)

    def observe(self, usage: Usage) -> None:
        """Pass the usage to the engine. A prompt size that Whet only estimated is passed as 0."""
        if usage.is_prompt_estimated:
            usage = msgspec.structs.replace(usage, prompt_tokens=0, input_tokens=0, total_tokens=0)
        self._usage = {key: getattr(usage, key) for key in _USAGE_KEYS}
        _report_usage(self._engines.active, self._usage)
        tokens, breaker = self._live.note_usage(usage), self.breaker.created
        if breaker is not None and breaker.note_count(tokens, self.runner.threshold):
            self._engines.report_stop(breaker.stopped)

    def sent_tokens(self) -> int:
        """Estimate the tokens of the last request."""
        return self._live.sent_tokens()

    async def turn_ended(self, end: TurnEnd) -> None:
        """Inform the engine that a turn is over, with a copy of the list, if it has the hook."""
        if (hook := optional_hook(self.runner.engine, "on_turn_complete")) is None:
            return
        copies = [dict(row) for row in self.live_rows()]
        facts = {
            "usage": dict(self._usage),
            "session_id": end.session_id,
            "conversation_id": self._engines.conversation_id,
            "turn_id": end.turn_id,
            "reason": end.reason,
        }
        await self.runner.run("on_turn_complete", lambda: hook(copies, **filter_keywords(hook, facts)))

    async def compact(self, focus: str, emit: Emit) -> Compacted:
        """Compact by hand, unless the engine reports that there is nothing to compact."""
        self._sync(None)
        await self._follow_model()
        await self._catch_up(emit)
        rows = self._live.copy()
        probe = getattr(self.runner.engine, "has_content_to_compress", None)
        if not rows:
            return "nothing"
        if callable(probe):
            hook_s = self.runner.deadlines.hook_s  # the engine looks at the whole list
            outcome = await self.runner.run("has_content_to_compress", lambda: bool(probe(rows)), hook_s)
            if outcome.error is None and not outcome.value:
                return "nothing"
        done = await self._compactions.compact(emit, self._live.tokens(), BY_HAND, focus=focus)
        self._engines.flush(emit)
        if done:
            self.breaker.get().reset()
        return "compacted" if done else "unchanged"

    async def status(self) -> ContextStatus:
        """Return how full the window is. Window and threshold are the engine's own."""
        self._sync(None)
        await self._follow_model()
        threshold = (await self.runner.status()).get("threshold_tokens")
        return ContextStatus(
            engine=self.runner.name,
            source=self.runner.offer.source,
            window_tokens=self._engines.window,
            threshold_tokens=threshold if isinstance(threshold, int) else self.runner.threshold,
            used_tokens=self._live.tokens(),
            counted=self._live.is_counted,
            messages=len(self._live.rows.rows),
            stopped="" if self.breaker.created is None else self.breaker.created.stopped,
        )

    async def hand_over(self) -> None:
        """Close the session without its chosen engine, which another session has taken over."""
        self._is_closed = True
        await self._engines.hand_over(self.live_rows)
        self._compaction_runner = self.on_compacted = None

    async def aclose(self, *, is_reset: bool = False) -> None:
        """End the session for the engines and let them close their resources; a second call does nothing.
        With `is_reset`, a new session follows, and the engines reset their state."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._engines.aclose(self.live_rows, is_reset=is_reset)
        self._compaction_runner = self.on_compacted = None

    def live_rows(self) -> list[ChatRow]:
        """Return the live list as an engine sees it."""
        self._sync(None)
        return self._live.copy()

    async def _outgoing(self) -> Sequence[Message]:
        view = self._live.outgoing()
        is_selected = optional_hook(self.runner.engine, "select_context") is not None
        return await self._compactions.select(view) if is_selected else view

    @property
    def _compactions(self) -> CompactionRunner:
        if self._compaction_runner is None:
            from whet.context.compaction import CompactionRunner  # noqa: PLC0415 - most sessions compact nothing

            self._compaction_runner = CompactionRunner(
                self.log, self._engines, self._live, self.breaker.get(), self._on_recorded
            )
            self._compaction_runner.memory_context = self._memory_context
        return self._compaction_runner

    async def _memory_context(self) -> str:
        return "" if self.before_compaction is None else await self.before_compaction(self._live.copy())

    async def _on_recorded(self, compaction: Compaction) -> None:
        if self.on_compacted is not None:
            await self.on_compacted(compaction)

    async def _before_request(self, emit: Emit) -> None:
        """Ask the engine whether to compact before the next request, and do so."""
        if is_first := self.log.live.turn_number != self._turn:
            self._turn = self.log.live.turn_number
            if self.breaker.created is not None:
                self.breaker.created.new_turn()
            await show_if_behind(self.log, self.runner)
        tokens = self._live.tokens()
        answer = await self._ask_engine(self.runner, tokens, is_first)
        if answer is None and (spare := await self._engines.use_spare()) is not None:
            answer = await self._ask_engine(spare, tokens, is_first=False)
        if answer is None:
            return
        if answer.wants and self.breaker.get().begin(answer.phase, tokens, self.runner.threshold):
            await self._compactions.announce(answer.phase, tokens, emit)
            is_recorded = await self._compactions.compact(emit, tokens, answer.phase)
            if not is_recorded and self.breaker.get().note_idle(tokens, self._engines.window):
                self._engines.report_stop(self.breaker.get().stopped)
        elif not is_first and _can_prune(self.runner, self._live):
            await self._compactions.prune(tokens, emit)
        if answer.blocked and answer.blocked != self._blocked_reason:
            self.runner.note(f"{self.runner.name} should compact and can't now: {answer.blocked}")
        self._blocked_reason = answer.blocked

    async def _ask_engine(self, runner: EngineRunner, tokens: int, is_first: bool) -> CompactionAnswer | None:
        """Ask an engine whether to compact. Returns None if it failed."""
        may_compact = self.breaker.created is None or self.breaker.created.allows(tokens)
        is_rough = not self._live.is_counted
        question = CompactionQuestion(self._live.copy(), tokens, is_first, may_compact, is_rough)
        return (await runner.run("should_compress", lambda: ask_engine(runner.engine, question))).value

    async def _after_overflow(self, limit: int, emit: Emit) -> bool:
        self._engines.limit_window(limit)
        await self._follow_model()
        tokens = max(self._live.tokens(), (limit or self._engines.window) + 1)
        await self._compactions.announce("overflow", tokens, emit)
        return await self._compactions.compact(emit, tokens, "overflow", any_engine=True)

    async def _catch_up(self, emit: Emit) -> None:
        """Use a late compaction, and inform engines whose list differs from the live one."""
        if self._compaction_runner is not None:
            await self._compaction_runner.catch_up(emit)
        await self._engines.resynchronise()

    async def _follow_model(self) -> None:
        if self._engines.has_other_model():
            if self.breaker.created is not None:
                self.breaker.created.reset()
            self._live.forget_answered()
        await self._engines.follow_model()

    def _sync(self, transcript: Sequence[Message] | None) -> None:
        if self._live.follow(transcript):
            for runner in self._engines.active:
                self._engines.mark_astray(runner)


def _can_prune(runner: EngineRunner, live: LiveList) -> bool:
    has_hook = optional_hook(runner.engine, "prune_tool_results_only") is not None
    return has_hook and live.rows.rows[-1]["role"] == "tool"


def _report_usage(runners: Sequence[EngineRunner], counts: dict[str, Any]) -> None:
    """Pass the usage of an answer to the engines, a copy to each."""
    for runner in runners:
        usage = dict(counts)
        runner.submit(
            "update_from_response",
            lambda runner=runner, usage=usage: runner.engine.update_from_response(usage),
        )
