"""Run the compactions of one session: an engine shortens the list, and its result is recorded.

A compaction is stored in the transcript before the next request shows it. For each compaction an engine is
called once; if it fails, the built-in engine takes over. If an engine answers after its deadline, its result
is used then, because the engine continues from the list that it returned. This module is loaded at the first
compaction, pruning or selection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from whet.context.compaction_policy import CircuitBreaker
from whet.context.engine_runner import (
    BELOW,
    BY_HAND,
    REASON_CHARS,
    EngineRunner,
    filter_keywords,
    optional_hook,
)
from whet.context.live_list import LiveList, repair
from whet.context.rows import engine_row, extends, list_tokens, read_back
from whet.contract.context_engine import ChatRow, ChatRows, ContextEngine
from whet.contract.events import Compaction, Emit, Notice
from whet.contract.messages import Message
from whet.store import compactions
from whet.store.transcript import Transcript

if TYPE_CHECKING:
    from whet.context.engines import SessionEngines

_GROWTH_TOKENS = 4096
_EngineList = tuple[list[ChatRow], list[Message]]


class CompressResult(msgspec.Struct, frozen=True):
    """The result of calling an engine. `returned` is its list, or None if it changed nothing or failed."""

    returned: _EngineList | None = None
    has_failed: bool = False


class _PendingCompaction(msgspec.Struct):
    """A compaction that an engine is working on, and its result, which may arrive after the deadline."""

    runner: EngineRunner
    sources: list[Message]
    is_done: bool = False
    returned: _EngineList | None = None


class CompactionRunner:
    """Runs compactions and stores them. `on_recorded` is called after each one."""

    def __init__(
        self,
        log: Transcript,
        engines: SessionEngines,
        live: LiveList,
        breaker: CircuitBreaker,
        on_recorded: Callable[[Compaction], Awaitable[None]],
    ) -> None:
        self._log = log
        self._engines = engines
        self._live = live
        self._breaker = breaker
        self._on_recorded = on_recorded
        self._pending: _PendingCompaction | None = None
        self.memory_context: Callable[[], Awaitable[str]] | None = None

    async def announce(self, phase: str, tokens: int, emit: Emit) -> None:
        """Show the person that a compaction begins, because it may take as long as a model's answer."""
        runner, window = self._engines.chosen, self._engines.window
        if phase == "preflight" and tokens < runner.threshold:
            phase = BELOW
        default = f"making the context smaller ({tokens:,} of {window:,} tokens)"
        facts = {"tokens": tokens, "threshold_tokens": runner.threshold, "context_length": window}
        outcome = await runner.run(
            "its status line", lambda: _status_line(runner.engine, phase, default, facts)
        )
        self._engines.flush(emit)
        if line := default if outcome.value is None else outcome.value:
            emit(Notice(line))

    async def compact(
        self, emit: Emit, tokens: int, phase: str, *, focus: str = "", any_engine: bool = False
    ) -> bool:
        """Let the chosen engine shorten the list, or the built-in one if that fails, and record the result.

        `tokens` is the next request's size, `phase` the reason, `focus` the subject to keep. With
        `any_engine`, the built-in engine also tries if the chosen one changes nothing. Returns whether a
        compaction was recorded.
        """
        keywords: dict[str, Any] = {"current_tokens": tokens, "focus_topic": focus or None}
        if phase == BY_HAND:
            keywords["force"] = True
        if self.memory_context is not None and (memory_text := await self.memory_context()):
            keywords["memory_context"] = memory_text
        chosen = self._engines.chosen
        runner: EngineRunner | None = chosen
        while runner is not None:
            was_behind, runner.is_behind = runner.is_behind, False
            result = await self._compress(runner, keywords)
            drops_request = result.returned is not None and self._drops_request(result.returned[1])
            if drops_request:
                runner.note(f"{runner.name}: its compaction left out what is being asked and is not used")
                self._engines.mark_astray(runner)
            elif result.returned is not None and await self._record(runner, result.returned, emit):
                return True
            if was_behind:  # it is unknown which rows it has now
                self._engines.mark_astray(runner)
            try_spare = runner is chosen and (drops_request or result.has_failed or any_engine)
            runner = await self._engines.use_spare() if try_spare else None
        return False

    async def prune(self, tokens: int, emit: Emit) -> None:
        """Let the engine shorten only tool results, and record the result like a compaction."""
        runner, live = self._engines.chosen, self._live.rows
        sources, rows, prints = list(live.sources), list(live.rows), live.prints()

        def work() -> _EngineList | None:
            returned = _prune(runner.engine, rows, tokens)
            return None if returned is None else read_back(rows, sources, prints, returned)

        outcome = await runner.run("prune_tool_results_only", work)
        if outcome.value is None:
            live.restore(prints)
        elif len(outcome.value[0]) == len(rows) and list_tokens(outcome.value[1]) < live.tokens:
            await self._record(runner, outcome.value, emit, counts=False)
        else:
            runner.note(f"{runner.name}: its pruned list is larger or has lost messages and is not used")
            live.restore(prints)

    async def select(self, view: Sequence[Message]) -> Sequence[Message]:
        """Let the engine choose the rows that this one request shows. The choice is not recorded."""
        runner, rows, sources = self._engines.chosen, self._live.copy(), list(self._live.rows.sources)
        budget = runner.threshold or self._engines.window

        def work() -> _EngineList | None:
            choice = _select_rows(runner.engine, rows, budget)
            if choice is None:
                return None
            copies, returned = choice
            return read_back(copies, sources, self._live.rows.prints(), returned)

        outcome = await runner.run("select_context", work)
        return view if outcome.value is None else repair(outcome.value[1])

    async def record_repair(self, summary: str, emit: Emit) -> None:
        """Store the list without the items that the server refused, and continue from it. Engines are
        informed about the session again, and the person reads `summary`."""
        live, replaced = self._live.rows, self._live.replaced
        messages = [replaced.get(id(message), message) for message in live.sources]
        rows = [
            row if message is source else {**engine_row(message), "_seq": row.get("_seq", 0)}
            for row, source, message in zip(live.rows, live.sources, messages, strict=True)
        ]
        before, after = self._live.scale_tokens(live.tokens), self._live.scale_tokens(list_tokens(messages))
        await compactions.record(self._log, None, messages, compactions.REPAIR, before, after)
        self._live.adopt(rows)
        self._live.forget_repair()
        self._live.outgoing()  # marks these rows as sent: the model has answered them
        for runner in self._engines.active:
            self._engines.mark_astray(runner)
        emit(Notice(summary, must_show=True))

    async def catch_up(self, emit: Emit) -> None:
        """Use the result of a compaction that has passed its deadline, if it is ready now."""
        pending = self._pending
        if pending is None or pending.runner.lane.stuck:
            return
        if not pending.is_done:
            emit(Notice("a compaction that was stopped is still under way; waiting for it"))
            await pending.runner.run("compress", lambda: None, pending.runner.deadlines.compress_s)
        if not pending.is_done:
            return
        self._pending = None
        if pending.returned is None:
            return
        live, count = self._live.rows, len(pending.sources)
        if extends(pending.sources, live.sources):
            rows, messages = pending.returned
            extended = ([*rows, *live.rows[count:]], [*messages, *live.sources[count:]])
            await self._record(pending.runner, extended, emit)
        else:
            self._engines.mark_astray(pending.runner)

    async def _compress(self, runner: EngineRunner, keywords: dict[str, Any]) -> CompressResult:
        """Call the engine's `compress` and read its result."""
        engine, live = runner.engine, self._live.rows
        sources, rows, prints = list(live.sources), list(live.rows), live.prints()
        pending = self._pending = _PendingCompaction(runner, sources)

        def work() -> tuple[_EngineList | None, str]:
            try:
                answer = engine.compress(list(rows), **filter_keywords(engine.compress, keywords))
                pending.returned = read_back(rows, sources, prints, answer)
            finally:
                pending.is_done = True
            return pending.returned, _summary_error(engine)

        outcome = await runner.run("compress", work, runner.deadlines.compress_s)
        if pending.is_done or not runner.lane.stuck:
            self._pending = None
        if outcome.value is not None:
            runner.note_summary_error(outcome.value[1])
            if outcome.value[0] is not None:
                return CompressResult(outcome.value[0])
        live.restore(prints)
        return CompressResult(has_failed=outcome.error is not None)

    def _drops_request(self, messages: Sequence[Message]) -> bool:
        """Return whether a list lost the request that a turn is working on. A lost request at the end of the
        list does not count, because `_restore_request` puts it back."""
        sources, rows = self._live.rows.sources, self._live.rows.rows
        # A row without a number was added by an engine, for example a summary, and is not a request.
        requests = [
            index for index, row in enumerate(rows) if sources[index].role == "user" and "_seq" in row
        ]
        if not requests or requests[-1] == len(sources) - 1 or self._log.live.open_turn is None:
            return False
        return not _contains(messages, sources[requests[-1]])

    def _restore_request(self, returned: _EngineList) -> _EngineList:
        """Return an engine's list with the person's unanswered messages put back if it left them out."""
        live, rows, messages = self._live.rows, list(returned[0]), list(returned[1])
        first = len(live.sources)
        while first and live.sources[first - 1].role == "user":
            first -= 1
        for row, source in zip(live.rows[first:], live.sources[first:], strict=True):
            if not _contains(messages, source):
                messages.append(source)
                rows.append(row)
        return rows, messages

    async def _record(
        self, runner: EngineRunner, returned: _EngineList, emit: Emit, *, counts: bool = True
    ) -> bool:
        """Store a compaction and continue from it. Returns False if the list is refused.

        A list that grew is refused, unless it has fewer messages and either fits the window or grew only a
        little, because its engine continues from it. With `counts` the circuit breaker counts the compaction.
        """
        rows, messages = self._restore_request(returned)
        live = self._live.rows
        before, after, count = live.tokens, list_tokens(messages), len(live.rows)
        tokens_before, tokens_after = self._live.scale_tokens(before), self._live.scale_tokens(after)
        is_tolerable = tokens_after < self._engines.window or after - before <= _GROWTH_TOKENS
        if after > before and not (len(rows) < count and is_tolerable):
            runner.note(f"{runner.name}: its compaction was larger than what it replaced and is not used")
            if len(rows) != count:
                self._engines.mark_astray(runner)
            return False
        await compactions.record(self._log, None, messages, runner.name, tokens_before, tokens_after)
        self._live.adopt(rows)
        if counts and self._breaker.note_compaction(grew=after > before):
            self._engines.report_stop(self._breaker.stopped)
        compaction = Compaction(runner.name, count, len(rows), tokens_before, tokens_after)
        emit(compaction)
        await self._on_recorded(compaction)
        for other in self._engines.active:
            if other is not runner:
                self._engines.mark_astray(other)
        recorded = runner.offer.recorded
        if counts and recorded is not None:
            await runner.run("its attributes", lambda: recorded(runner.engine, tokens_after))
        return True


def _contains(messages: Sequence[Message], request: Message) -> bool:
    """Return whether a list has a message, or its text inside another one."""
    return any(request is message or (request.text and request.text in message.text) for message in messages)


def _status_line(engine: ContextEngine, phase: str, default: str, facts: dict[str, Any]) -> str:
    """Return the line shown before an automatic compaction, or an empty string if the engine wants none.

    A compaction that an engine starts below its threshold is always announced.
    """
    if not getattr(engine, "emit_automatic_compaction_status", True) and phase != BELOW:
        return ""
    formatter = optional_hook(engine, "get_automatic_compaction_status_message")
    if formatter is None:
        return default
    keywords = {"phase": phase, "default_message": default, **facts}
    text = formatter(**filter_keywords(formatter, keywords))
    return text if isinstance(text, str) else ("" if text is None else default)


def _prune(engine: ContextEngine, rows: ChatRows, tokens: int) -> object | None:
    """Let the engine shorten old tool results without a model. Returns None if it does not."""
    prune = optional_hook(engine, "prune_tool_results_only")
    if prune is None:
        return None
    answer = prune(list(rows), **filter_keywords(prune, {"current_tokens": tokens}))
    if not isinstance(answer, tuple) or len(cast("tuple[object, ...]", answer)) != 2:
        raise TypeError("prune_tool_results_only must return (messages, count)")
    returned, count = cast("tuple[object, object]", answer)
    return returned if isinstance(count, int) and count > 0 else None


def _select_rows(engine: ContextEngine, rows: ChatRows, budget_tokens: int) -> tuple[ChatRows, object] | None:
    """Let the engine choose the rows of this request, among copies, so that its changes do not affect the
    live rows. Returns the copies and its choice, or None if it does not choose."""
    select = optional_hook(engine, "select_context")
    if select is None:
        return None
    copies: ChatRows = [dict(row) for row in rows]
    keywords: dict[str, Any] = {
        "conversation_messages": [dict(row) for row in rows],
        "incoming_message": _last_user_row(rows),
        "budget_tokens": budget_tokens,
    }
    choice = select(list(copies), **filter_keywords(select, keywords))
    return None if choice is None else (copies, choice)


def _summary_error(engine: object) -> str:
    """Return the engine's error about its last summary, or an empty string."""
    error = getattr(engine, "_last_summary_error", None)
    return " ".join(error.split())[:REASON_CHARS] if isinstance(error, str) else ""


def _last_user_row(rows: ChatRows) -> ChatRow | None:
    return next((dict(row) for row in reversed(rows) if row.get("role") == "user"), None)
