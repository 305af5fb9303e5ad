"""One compaction of the default engine: split the list, prune tool traffic, replace the middle by a summary.

Each cut names the messages that `recall` returns. An earlier summary is parsed from its message, so no state
is kept between compactions. This module is loaded at the first compaction, and does not decide when one is
due.
"""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

import msgspec

from whet.context import artifacts, summary
from whet.context import rows as chat
from whet.context.head_tail import KeepLimits, Split, pair_results, split
from whet.context.pruning import clip_text, describe, prune, shorten
from whet.context.rows import text_tokens
from whet.context.summariser import Failure, Summarise, SummaryRequest, ask_for_summary
from whet.context.summary import Summary
from whet.contract.context_engine import ChatRow, ChatRows
from whet.log import mask

_TARGET = 0.4
_TAIL_SHARE, _HEAD_SHARE, _TRAIL_SHARE, _KEPT_SHARE = 0.18, 0.05, 0.05, 0.15
_FRAME_TOKENS = 150
_BODY_MIN_TOKENS = 60
_FALLBACK_TOKENS, _HEADING_TOKENS = 2_000, 16
_PARTS_MAX, _PARTS_TOKENS = 12, 300


class CompactionPlan(NamedTuple):
    """A compaction before it is carried out. `room` is how many tokens the messages may have, `before` how
    many they have now."""

    parts: Split
    previous: Summary | None
    rows: ChatRows
    room: int
    before: int


class SummaryOptions(msgspec.Struct, frozen=True):
    """The options for writing a summary: the models, the window, and settings.

    `again` is asked after a failure of `summarise`. If `resting` is set, no model is asked, because of that
    failure.
    """

    summarise: Summarise
    again: Summarise | None
    timeout_s: float
    today: date
    context_length: int
    window_tokens: int
    focus: str
    can_recall: bool
    resting: Failure | None = None


class SummarisedRows(NamedTuple):
    """The smaller list. `failure` is why no model wrote the summary, or None if one did."""

    rows: ChatRows
    failure: Failure | None


def plan_compaction(
    messages: ChatRows, size: int, threshold_tokens: int, head_messages: int
) -> CompactionPlan | None:
    """Split the list, or return None if it has no middle.

    `size` is the tokens of the whole request. `head_messages` of the beginning stay word for word, unless the
    list already has a summary.
    """
    rows = pair_results([row for row in messages if not summary.is_synthetic(row)])
    if not rows:
        return None
    before = chat.estimate(messages)
    threshold = threshold_tokens or before
    room = max(threshold - max(size - before, 0), threshold // 4)
    summaries = [summary.parse(row) for row in messages if summary.is_summary(row)]
    previous = _join_summaries(summaries)
    tail = max(int(room * _TAIL_SHARE), 64)
    head = KeepLimits(0 if previous else head_messages, int(room * _HEAD_SHARE), tail)
    parts = split(rows, head)
    if not parts.middle:
        return None
    return CompactionPlan(_clip_to_fit(parts, room), previous, rows, room, before)


def prune_only(plan: CompactionPlan) -> ChatRows | None:
    """Return the list with its old tool traffic pruned, or None if that alone is not enough."""
    if plan.previous is not None or plan.rows[0].get("role") != "user":
        return None
    tail = plan.parts.tail
    compacted = [*prune(plan.rows[: len(plan.rows) - len(tail)], tail), *tail]
    return compacted if chat.estimate(compacted) <= min(plan.room, plan.before) * _TARGET else None


def summarise_plan(plan: CompactionPlan, options: SummaryOptions) -> SummarisedRows:
    """Return head, summary and tail. If no model returns a usable summary, code adds to the earlier one."""
    ask_chars = min(600, max(120, plan.room // 6))
    latest = summary.find_latest_request(plan.rows, plan.previous, ask_chars)
    todo = summary.find_open_list(plan.parts.middle, plan.parts.tail, plan.previous, plan.room // 4)
    trail_tokens = min(1500, max(60, int(plan.room * _TRAIL_SHARE)))
    fixed_tokens = trail_tokens + text_tokens(latest) + text_tokens(todo)
    budget = _body_tokens(plan, fixed_tokens, options.context_length)
    answer = options.resting or ask_for_summary(
        options.summarise, options.again, _build_request(plan, options, budget), options.timeout_s
    )
    previous_body = plan.previous.body if plan.previous else ""
    model_body = ""
    if not isinstance(answer, Failure):
        model_body = summary.restore_parts(summary.clean_body(answer), previous_body)
    allowed = budget + fixed_tokens + _FRAME_TOKENS
    row: ChatRow = {}
    for _ in range(3):  # token counts of the parts do not add up exactly to that of the whole
        body = summary.fit_body(model_body or _write_without_model(plan, previous_body, budget), budget)
        complete = _build_summary(plan, latest, todo, body, options.today)
        row = summary.write(complete, trail_tokens=trail_tokens, can_recall=options.can_recall)
        excess = chat.tokens_of(row) - allowed
        if excess <= 0 or budget <= _BODY_MIN_TOKENS:
            break
        budget = max(budget - excess, _BODY_MIN_TOKENS)
    return SummarisedRows(_assemble(plan.parts, row), answer if isinstance(answer, Failure) else None)


def _clip_to_fit(parts: Split, room: int) -> Split:
    """Clip the tail's tool results if the tail is too large, and answers that are kept from the middle."""
    budget = max(int(room * _TAIL_SHARE * 1.5), 96)
    tail = parts.tail if chat.estimate(parts.tail) <= budget else shorten(parts.tail, budget)
    cap = max(int(room * _KEPT_SHARE), 96)
    clipped = [clip_text(row, cap) if row.get("role") == "assistant" else row for row in parts.kept]
    return parts._replace(tail=tail, kept=clipped)


def _body_tokens(plan: CompactionPlan, fixed_tokens: int, context_length: int) -> int:
    """Return the token budget of sections 2 to 13: a fifth of the replaced text, within the remaining
    space."""
    parts = plan.parts
    content = chat.estimate(parts.middle)
    if plan.previous is not None:
        content += text_tokens(plan.previous.body)
    largest = min(10_000, max(context_length // 20, 2_000))
    target = min(max(content // 5, 2_000), largest)
    fixed = chat.estimate((*parts.head, *parts.kept, *parts.tail)) + _FRAME_TOKENS + fixed_tokens
    free = int(min(plan.room, plan.before) * _TARGET) - fixed
    return max(min(target, free, content // 2), _BODY_MIN_TOKENS)


def _build_request(plan: CompactionPlan, options: SummaryOptions, budget: int) -> SummaryRequest:
    asks = [text for row in plan.rows if row.get("role") == "user" and (text := chat.user_text(row))]
    return SummaryRequest(
        rows=plan.parts.middle,
        previous=plan.previous.body if plan.previous else "",
        focus=options.focus,
        recent=" / ".join(asks[-3:]),
        sample=asks[-1] if asks else "",
        today=options.today,
        budget_tokens=budget,
        window_tokens=options.window_tokens or options.context_length or 8_000,
    )


def _build_summary(plan: CompactionPlan, latest: str, todo: str, body: str, today: date) -> Summary:
    first, last = chat.span_of(plan.parts.middle)
    previous = plan.previous or Summary(0, 0)
    line = summary.write_part_line(plan.parts.middle, today.isoformat())
    trail = artifacts.merge(previous.trail, artifacts.collect(plan.parts.middle))
    return Summary(
        first=min(filter(None, (previous.first, first)), default=0),
        last=max(previous.last, last),
        ask=latest,
        body=body,
        todo=todo,
        trail=trail,
        parts=_newest([*previous.parts, line], min(_PARTS_TOKENS, plan.room // 40)),
    )


def _newest(lines: list[str], budget_tokens: int) -> list[str]:
    """Return the newest lines that fit, at least one."""
    newest = lines[-_PARTS_MAX:]
    while len(newest) > 1 and sum(map(text_tokens, newest)) > budget_tokens:
        newest = newest[1:]
    return newest


def _join_summaries(summaries: list[Summary]) -> Summary | None:
    """Merge the summaries of a list into one. Returns None if there is none. A list has more than one only
    after a change of engine."""
    if not summaries:
        return None
    *olders, newest = summaries
    for older in reversed(olders):
        newest.first = min(filter(None, (newest.first, older.first)), default=0)
        newest.trail = artifacts.merge(older.trail, newest.trail)
        newest.body = f"{older.body}\n{newest.body}".strip()
        newest.todo = newest.todo or older.todo
    return newest


def _write_without_model(plan: CompactionPlan, previous_body: str, budget: int) -> str:
    """Return the earlier summary's sections with a line for each message and call of the middle, the newest
    that fit."""
    calls = {call.id: call for row in plan.parts.middle for call in chat.calls_of(row)}
    lines: list[str] = []
    for row in plan.parts.middle:
        reference = f" [{chat.ref(chat.seq_of(row))}]" if chat.seq_of(row) else ""
        if row.get("role") == "tool":
            lines.append(f"- {describe(row, calls.get(str(row.get('tool_call_id'))))}{reference}")
        elif text := chat.user_text(row):
            speaker = "The person" if row.get("role") == "user" else "The assistant"
            lines.append(f'- {speaker}: "{chat.line(mask(text), 240)}"{reference}')
    room = min(max(budget - text_tokens(previous_body) - _HEADING_TOKENS, budget // 3), _FALLBACK_TOKENS)
    sizes = [text_tokens(line) + 1 for line in lines]
    first, size_left = 0, sum(sizes)
    while first < len(lines) - 1 and size_left > room:
        size_left -= sizes[first]
        first += 1
    lines = lines[first:]
    pieces = summary.split_sections(previous_body)
    for index, piece in enumerate(pieces):
        if piece.startswith("## 4."):
            pieces[index] = "\n".join((piece.rstrip(), *lines)) + "\n\n"
            return "".join(pieces)
    return "".join(pieces).rstrip() + "\n\n" + "\n".join(("## 4. Completed actions", *lines))


def _assemble(parts: Split, row: ChatRow) -> ChatRows:
    """Join the parts. A filler row separates two rows of the same role."""
    rows = [*parts.head, row]
    for next_row in (*parts.kept, *parts.tail[:1]):
        roles = (rows[-1].get("role"), next_row.get("role"))
        if roles == ("user", "user"):
            rows.append({"role": "assistant", "content": summary.ACK})
        elif roles == ("assistant", "assistant"):
            rows.append({"role": "user", "content": summary.BRIDGE})
        rows.append(next_row)
    return [*rows, *parts.tail[1:]]
