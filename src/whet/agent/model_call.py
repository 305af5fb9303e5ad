"""Make one model call: send the view, stream the reply, and store it. If the stream is cut off, the text that
the person saw is stored.

This module does not know about tools or the end of a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

import msgspec

from whet.agent.interruption import finish_shielded, write_uncancelled
from whet.agent.rambling import AnswerGuard
from whet.agent.request_search import ProbeAccepted, RequestSearch
from whet.agent.session import Session
from whet.contract.errors import BudgetReached, ProviderError
from whet.contract.events import Emit, Notice, ReasoningDelta, Retry, StepFinished, StreamRestarted, TextDelta
from whet.contract.messages import Message, TextPart, Usage, VendorReplay
from whet.contract.protocols import AnswerGrew, AttemptLost, ModelReply, StreamItem
from whet.contract.texts import NOT_JSON, from_json, is_object
from whet.late import LatePart
from whet.log import AnswerMask, mask_keys
from whet.store.transcript import TurnRecord

_PLAIN_REASONING = ("reasoning_content", "reasoning")


async def ask_model(session: Session, turn: TurnRecord, emit: Emit) -> ModelReply:
    """Return the model's reply to the transcript. The caller stores it.

    If the server refuses the messages, the request is repeated without those that may be at fault. Raises
    ProviderError. Text that was shown before an error or a cancel is stored before it is raised.
    """
    steps = turn.steps
    view = await session.context.view(session.log.messages, emit)
    search = LatePart(lambda: RequestSearch(session, view, emit))
    while True:
        try:
            sent = view if search.created is None else search.created.view
            reply = await _ask_again_if_empty(session, turn, sent, search, emit)
            break
        except ProbeAccepted as probe:
            turn.usage += probe.usage or estimate_cut_usage(session, 0)
            await search.get().check_whole()
        except ProviderError as failure:
            has_stored_text = turn.steps != steps
            if has_stored_text or not await search.get().choose_next(failure):
                raise
    if search.created is not None:
        await search.created.finish()
    await session.context.answered(emit)
    return _correct_calls(session, reply)


async def _ask_again_if_empty(
    session: Session, turn: TurnRecord, view: Sequence[Message], search: LatePart[RequestSearch], emit: Emit
) -> ModelReply:
    """Return the reply to the request; if it is empty, ask once more."""
    reply = await _stream(session, turn, view, search, emit)
    if not _is_empty(reply) or reply.stop != "end":
        return reply
    turn.usage += reply.usage
    doing = "thought and said" if reply.message.reasoning.strip() else "said"
    emit(Notice(f"the model {doing} nothing; it is asked once more"))
    again = await _stream(session, turn, view, search, emit)
    notices, warnings = (*reply.notices, *again.notices), (*reply.warnings, *again.warnings)
    return msgspec.structs.replace(again, notices=notices, warnings=warnings)


def _is_empty(reply: ModelReply) -> bool:
    """Return whether a reply has neither text nor tool calls."""
    return not (reply.message.text.strip() or reply.message.tool_calls)


def _describe_incomplete(reply: ModelReply) -> str:
    """Return the line for the person if the answer is cut or empty, else an empty string."""
    if reply.stop == "length":
        cut = "the answer was cut at the model's output limit"
        hint = ", before its first word; say: go on, or raise model.max_output_tokens"
        return cut + hint if _is_empty(reply) else cut
    if not _is_empty(reply):
        return ""
    thought = "only thought" if reply.message.reasoning.strip() else "ended its turn"
    return f"the model {thought} and gave no answer; say: go on"


def _correct_calls(session: Session, reply: ModelReply) -> ModelReply:
    """Return the reply. Calls whose name or arguments the model wrote nearly right are corrected."""
    calls = reply.message.tool_calls
    tools = session.tools
    if all(
        call.name in tools and tools[call.name].check is not None and is_object(call.arguments or "{}")
        for call in calls
    ):
        return reply
    from whet.agent.loose_calls import mend_calls  # noqa: PLC0415 - most calls are right

    return msgspec.structs.replace(reply, message=mend_calls(reply.message, tools))


async def keep_reply(session: Session, turn: TurnRecord, reply: ModelReply, emit: Emit) -> None:
    """Store a reply, then emit its events. A cancel that arrives meanwhile is raised afterwards."""
    steps = turn.steps
    if reply.stop == "length":
        turn.cut_step = steps + 1

    def emit_events() -> None:
        session.context.observe(reply.usage)
        for notice in reply.notices:
            emit(Notice(notice))
        for warning in reply.warnings:
            emit(Notice(warning, must_show=True))
        if line := _describe_incomplete(reply):
            emit(Notice(line, must_show=True))
        emit(StepFinished(turn.steps, reply.usage))

    async def finish() -> None:
        await session.log.drain()
        if turn.steps > steps:
            emit_events()

    await write_uncancelled(session.log.append_reply(turn, reply.message, reply.usage, reply.model), finish)
    emit_events()


def estimate_cut_usage(session: Session, answer_chars: int) -> Usage:
    """Estimate the cost of a call that ended before the server counted it, after `answer_chars` characters of
    answer.

    All that was sent is charged at the price of an uncached prompt.
    """
    usage = session.link.info.usage(prompt=session.context.sent_tokens(), output=(answer_chars + 2) // 3)
    return msgspec.structs.replace(usage, estimated_tokens=usage.total_tokens)


class _IncomingReply:
    """The reply to one request as it arrives: the text shown so far, and the cost of lost attempts."""

    def __init__(self, session: Session, turn: TurnRecord, emit: Emit) -> None:
        self._session = session
        self._turn = turn
        self._emit = emit
        self._guards: dict[type, AnswerGuard] = {}
        self._masks: dict[type[TextDelta | ReasoningDelta], AnswerMask] = {}
        self._is_waiting = False
        self._lost: Usage | None = None

    def take(self, item: StreamItem) -> None:
        """Emit one item of the stream. Add the cost of a lost attempt to the turn when the next one begins.
        Raises Rambled."""
        if isinstance(item, AttemptLost):
            self._lost = item.usage
            return
        if self._lost is not None:
            self._turn.usage, self._lost = self._turn.usage + self._lost, None
        self._is_waiting = isinstance(item, Retry) and item.wait_s > 0
        if isinstance(item, AnswerGrew):
            return
        if isinstance(item, TextDelta | ReasoningDelta):
            mask = self._masks.setdefault(type(item), AnswerMask())
            self._show(type(item)(mask.feed(item.text)))
        elif isinstance(item, ModelReply):
            # Not earlier: reasoning or a notice may arrive between two halves of a key in the text.
            for kind, mask in self._masks.items():
                self._show(kind(mask.finish()))
        else:
            self._emit(item)
        if isinstance(item, StreamRestarted):
            self._guards.clear()
            self._masks.clear()

    def _show(self, piece: TextDelta | ReasoningDelta) -> None:
        """Emit a piece of the answer, if any of it is left. Raises Rambled."""
        if not piece.text:
            return
        self._emit(piece)
        guard = self._guards.get(type(piece))
        if guard is None:
            guard = self._guards[type(piece)] = AnswerGuard(self._session.limits.answer_chars)
        guard.feed(piece.text)

    async def keep(self, cut: BaseException) -> None:
        """Store the text that the person saw before `cut` ended the stream, and add its cost to the turn."""
        session, turn = self._session, self._turn
        texts = {kind: guard.all_text() for kind, guard in self._guards.items()}
        # A call that waits to be retried costs nothing when it is cancelled.
        is_cancelled = isinstance(cut, asyncio.CancelledError) and not self._is_waiting
        is_charged = self._lost is not None or bool(texts) or is_cancelled
        usage = self._lost or Usage()
        if self._lost is None and is_charged:
            usage = estimate_cut_usage(session, sum(map(len, texts.values())))
        if shown := texts.get(TextDelta, ""):
            partial = Message(role="assistant", content=shown)
            await finish_shielded(session.log.append_reply(turn, partial, usage, session.model.model))
        else:
            turn.usage += usage
        if is_charged:
            self._emit(StepFinished(turn.steps, usage))


def _mask_answer(message: Message) -> Message:
    """Return an answer with the person's keys masked in its text and reasoning, as they were when shown."""
    reasoning = mask_keys(message.reasoning)
    if message.text == mask_keys(message.text) and message.reasoning == reasoning:
        return message
    content = message.content
    masked = (
        mask_keys(content)
        if isinstance(content, str)
        else tuple(TextPart(mask_keys(part.text)) if isinstance(part, TextPart) else part for part in content)
    )
    replay = _mask_replay(message.replay)
    return msgspec.structs.replace(message, content=masked, reasoning=reasoning, replay=replay)


def _mask_replay(replay: VendorReplay | None) -> VendorReplay | None:
    """Return the replay data with the person's keys masked, if it is reasoning in plain text.

    Other data may be signed or encrypted, and the server compares it with what it sent."""
    if replay is None or replay.format != "chat_completions":
        return replay
    try:
        fields = from_json(replay.blocks_json, dict[str, Any])
    except NOT_JSON:
        return replay  # it is not sent back
    if any(name not in _PLAIN_REASONING or not isinstance(text, str) for name, text in fields.items()):
        return replay
    masked = msgspec.json.encode({name: mask_keys(text) for name, text in fields.items()}).decode()
    return msgspec.structs.replace(replay, blocks_json=masked)


async def _stream(
    session: Session, turn: TurnRecord, view: Sequence[Message], search: LatePart[RequestSearch], emit: Emit
) -> ModelReply:
    incoming = _IncomingReply(session, turn, emit)
    try:
        # Closed at once if the answer is cut: a local model would continue for minutes.
        async with aclosing(cast("AsyncGenerator[StreamItem, None]", session.link.stream(view))) as items:
            async for item in items:
                if search.created is not None or isinstance(item, Retry):
                    search.get().check_item(item)
                incoming.take(item)
                if isinstance(item, ModelReply):
                    return msgspec.structs.replace(item, message=_mask_answer(item.message))
        raise RuntimeError("a model link ended its stream without a reply")
    except (asyncio.CancelledError, BudgetReached, ProviderError) as cut:
        await incoming.keep(cut)
        raise
