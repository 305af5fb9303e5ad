"""The verbs that only newer engines have, each called where an engine has it and left alone where not.

Everything here runs on the engine's lane and may raise whatever the engine raises. What an answer means is
decided here; what is done about it is the host's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from whet.context.seat import accepted
from whet.contract.context_engine import ChatRow, ChatRows, ContextEngine

BY_HAND, BELOW = "by_hand", "engine_preflight_maintenance"
_REASON_CHARS = 200


class CompactionQuestion(msgspec.Struct, frozen=True):
    """What an engine is asked before a request. `first`: of its turn. `may`: whether a compaction may be
    tried at all. `is_rough`: no server has counted any of these rows yet."""

    rows: ChatRows
    tokens: int
    first: bool
    may: bool
    is_rough: bool


class CompactionAnswer(msgspec.Struct, frozen=True):
    """An engine's answer: whether to compact now, in which phase, and why not although it should."""

    wants: bool = False
    phase: str = "threshold"
    blocked: str = ""


def wish(engine: ContextEngine, question: CompactionQuestion) -> CompactionAnswer:
    """Ask whether to compact before the next request.

    In this order: the look at the list that opens a turn, an operation that the engine has pending, the
    size. A rough size counts for nothing where the engine would rather wait for the server's count.
    """
    rows, tokens = question.rows, question.tokens
    preflight = _verb(engine, "should_compress_preflight") if question.first else None
    if preflight is not None and preflight(rows):
        return CompactionAnswer(wants=True, phase="preflight")
    if not question.may:
        return CompactionAnswer()
    pending = _verb(engine, "pending_compression_operation")
    if pending is not None and (operation := pending(rows)):
        return CompactionAnswer(wants=True, phase=str(operation)[:40])
    defer = _verb(engine, "should_defer_preflight_to_real_usage") if question.is_rough else None
    if defer is not None and defer(tokens):
        return CompactionAnswer()
    if engine.should_compress(tokens):
        return CompactionAnswer(wants=True)
    inform = _verb(engine, "should_compress_info")
    return CompactionAnswer(blocked=_reason(inform(tokens))) if inform is not None else CompactionAnswer()


def status_line(engine: ContextEngine, phase: str, default: str, facts: dict[str, Any]) -> str:
    """Give the line that is shown before an automatic compaction; "" where the engine wants none.

    A compaction that an engine starts below its threshold is always announced.
    """
    if not getattr(engine, "emit_automatic_compaction_status", True) and phase != BELOW:
        return ""
    formatter = _verb(engine, "get_automatic_compaction_status_message")
    if formatter is None:
        return default
    keywords = {"phase": phase, "default_message": default, **facts}
    said = formatter(**accepted(formatter, keywords))
    return said if isinstance(said, str) else ("" if said is None else default)


def pruned(engine: ContextEngine, rows: ChatRows, tokens: int) -> object | None:
    """Let the engine shorten old tool results without a model; None where it did not, or can't."""
    prune = _verb(engine, "prune_tool_results_only")
    if prune is None:
        return None
    answer = prune(list(rows), **accepted(prune, {"current_tokens": tokens}))
    if not isinstance(answer, tuple) or len(cast("tuple[object, ...]", answer)) != 2:
        raise TypeError("prune_tool_results_only must give (messages, count)")
    returned, count = cast("tuple[object, object]", answer)
    return returned if isinstance(count, int) and count > 0 else None


def selected(engine: ContextEngine, rows: ChatRows, budget_tokens: int) -> tuple[ChatRows, object] | None:
    """Let the engine choose what this one request shows; None where it leaves that alone.

    It gets copies, given back beside its choice, so that what it changes stays its own.
    """
    select = _verb(engine, "select_context")
    if select is None:
        return None
    copies: ChatRows = [dict(row) for row in rows]
    keywords: dict[str, Any] = {
        "conversation_messages": [dict(row) for row in rows],
        "incoming_message": _incoming(rows),
        "budget_tokens": budget_tokens,
    }
    choice = select(list(copies), **accepted(select, keywords))
    return None if choice is None else (copies, choice)


def selects(engine: object) -> bool:
    """Whether the engine chooses what each request shows."""
    return _verb(engine, "select_context") is not None


def prunes(engine: object) -> bool:
    """Whether the engine can shorten tool results on their own."""
    return _verb(engine, "prune_tool_results_only") is not None


def turn_complete(
    engine: object, rows: ChatRows, usage: dict[str, Any], facts: dict[str, Any]
) -> Callable[[], object] | None:
    """Give the call that tells the engine of a turn's end, with a copy of the list; None without the verb."""
    hook = _verb(engine, "on_turn_complete")
    if hook is None:
        return None
    copies = [dict(row) for row in rows]
    return lambda: hook(copies, **accepted(hook, {"usage": usage, **facts}))


def summary_error(engine: object) -> str:
    """Give what the engine says went wrong with its last summary, "" where nothing did."""
    said = getattr(engine, "_last_summary_error", None)
    return " ".join(said.split())[:_REASON_CHARS] if isinstance(said, str) else ""


def _verb(engine: object, name: str) -> Callable[..., Any] | None:
    hook = getattr(engine, name, None)
    return cast("Callable[..., Any]", hook) if callable(hook) else None


def _reason(answer: object) -> str:
    """Read (bool, reason): a reason beside a False means that something keeps it from compacting."""
    if not isinstance(answer, tuple) or len(cast("tuple[object, ...]", answer)) != 2:
        return ""
    wanted, reason = cast("tuple[object, object]", answer)
    return " ".join(reason.split())[:_REASON_CHARS] if not wanted and isinstance(reason, str) else ""


def _incoming(rows: ChatRows) -> ChatRow | None:
    last = next((row for row in reversed(rows) if row.get("role") == "user"), None)
    return None if last is None else dict(last)
