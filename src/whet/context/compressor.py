"""The default context engine: keep the beginning and the end, prune old tool traffic, summarise the middle.

What leaves the window stays in the store; every cut names the messages that `recall` gives back. A failed
summary changes nothing. Two compactions in a row that did not help stop it until a person forces one. The
engine keeps no state that a new process would need: summaries, trail and references are read back from the
messages themselves. It does not know the host, the store or any provider.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from whet.clock import Clock
from whet.context import artifacts, summary
from whet.context import chat_dicts as chat
from whet.context.head_tail import KeepLimits, Split, split
from whet.context.pruning import clip_text, describe, prune, shorten
from whet.context.summariser import CoolDown, Failure, Summarise, SummaryRequest, ask
from whet.context.summary import Summary
from whet.context.tokens import text_tokens
from whet.contract.context_engine import ChatRow, ChatRows, ContextEngine
from whet.log import mask

STRIKES_MAX = 2
_TARGET = 0.4
_TAIL_SHARE, _HEAD_SHARE, _TRAIL_SHARE, _KEPT_SHARE = 0.18, 0.05, 0.05, 0.15
_FRAME_TOKENS = 150
_BODY_MIN_TOKENS = 60
_FALLBACK_CHARS = 8_000
_PARTS_MAX, _PARTS_TOKENS = 12, 300
_LARGE_WINDOW = 512_000


class CompressorSettings(msgspec.Struct, frozen=True):
    """What can be set: `threshold_percent` 0 chooses by window; `max_output_tokens` is kept free of it;
    `fallback` lets code write the summary where the model refuses to; `can_recall` says whether the tool is
    there."""

    threshold_percent: float = 0.0
    max_output_tokens: int = 0
    summary_window_tokens: int = 0
    summary_timeout_s: float = 90.0
    fallback: bool = True
    can_recall: bool = True


class _Plan(NamedTuple):
    """A compaction before it is carried out. `room` is what the messages may have below the threshold."""

    parts: Split
    previous: Summary | None
    rows: ChatRows
    room: int
    before: int


class Compressor(ContextEngine):
    """The engine named `compressor`. `summarise_again` is tried after a failure of `summarise`, for one that
    is an auxiliary model; without it the same is tried once more where that may help."""

    protect_last_n = 3

    def __init__(
        self,
        summarise: Summarise,
        clock: Clock,
        settings: CompressorSettings | None = None,
        *,
        summarise_again: Summarise | None = None,
    ) -> None:
        self._summarise = summarise
        self._again = summarise_again
        self._clock = clock
        self._settings = settings or CompressorSettings()
        self._cool_down = CoolDown()
        self._strikes = 0
        self._fallbacks = 0
        self._awaits_verdict = False
        self._last_rough = 0
        self._rough_at_real = 0
        self.saved_tokens = 0
        self._last_summary_error: str | None = None
        self._last_compress_aborted = False
        self._last_compression_made_progress = False

    @property
    def name(self) -> str:
        """`compressor`."""
        return "compressor"

    @property
    def is_exhausted(self) -> bool:
        """Whether compacting has been given up until a person forces it or the model changes."""
        return self._strikes >= STRIKES_MAX or self._fallbacks >= STRIKES_MAX

    def clone_for_agent(self) -> Compressor:
        """Give a fresh engine with the same parts."""
        return Compressor(self._summarise, self._clock, self._settings, summarise_again=self._again)

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take the model's window: compact at 75 % of it (50 % from 512 K on), less what an answer needs."""
        del model, base_url, api_key, provider, api_mode
        share = self._settings.threshold_percent or (0.5 if context_length >= _LARGE_WINDOW else 0.75)
        threshold = int(context_length * share)
        output = self._settings.max_output_tokens
        if 0 < output < context_length // 2:
            threshold = min(threshold, context_length - output)
        if context_length != self.context_length:
            self._forgive()
        self.threshold_percent, self.context_length, self.threshold_tokens = share, context_length, threshold

    def on_session_reset(self) -> None:
        """Forget counters, strikes and waits."""
        super().on_session_reset()
        self._forgive()
        self._last_rough = self._rough_at_real = self.saved_tokens = 0
        self.awaiting_real_usage_after_compression = False

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the real size of the last request, and judge the last compaction by it."""
        prompt = int(usage.get("prompt_tokens") or 0)
        if prompt <= 0:
            return
        self.last_prompt_tokens = prompt
        self.last_completion_tokens = int(usage.get("completion_tokens") or 0)
        self.last_total_tokens = int(usage.get("total_tokens") or 0)
        self._rough_at_real = self._last_rough
        self.awaiting_real_usage_after_compression = False
        if prompt < self.threshold_tokens:
            self._strikes = 0
        elif self._awaits_verdict:
            self._strikes += 1
        self._awaits_verdict = False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Say whether the next request would pass the threshold. An estimate counts by its growth since the
        last real size, for it may be off by the whole tool array."""
        if self.threshold_tokens <= 0 or self._is_stopped():
            return False
        given = prompt_tokens or 0
        size = self._projected(given)
        if given:
            self._last_rough = given
        if self._awaits_verdict or self.last_prompt_tokens < 0:
            slack = min(max(4096, self.threshold_tokens // 20), self.threshold_tokens // 4)
            return given > self.threshold_tokens and given > self.last_compression_rough_tokens + slack
        return size >= self.threshold_tokens

    def should_compress_preflight(self, messages: ChatRows) -> bool:
        """Ask for a compaction where no request has told the size yet and the messages alone are too many."""
        if self.last_prompt_tokens > 0 or self._awaits_verdict or self._is_stopped():
            return False
        return 0 < self.threshold_tokens <= chat.estimate(messages)

    def has_content_to_compress(self, messages: ChatRows) -> bool:
        """Say whether there is a middle between head and end."""
        return self._plan(messages, None) is not None

    def compress(
        self,
        messages: ChatRows,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
    ) -> ChatRows:
        """Give a smaller list, or `messages` itself where there is nothing to gain or the summary failed.

        `force` (by hand) forgives strikes and waits; a list larger than the window is tried in spite of them.
        """
        self._last_summary_error, self._last_compress_aborted = None, False
        self._last_compression_made_progress = False
        if force:
            self._forgive()
        elif self._is_stopped() and (current_tokens or 0) <= self.context_length:
            return messages
        plan = self._plan(messages, current_tokens)
        if plan is None:
            return self._nothing_gained(messages, force=force)
        compacted = None if focus_topic else self._pruned_only(plan)
        if compacted is None:
            compacted = self._summarised(plan, focus_topic or "")
        if isinstance(compacted, Failure):
            return self._abort(messages, compacted)
        after = chat.estimate(compacted)
        if after >= plan.before:
            return self._nothing_gained(messages, force=force)
        self.saved_tokens += plan.before - after
        self.compression_count += 1
        self.last_compression_rough_tokens = max(current_tokens or plan.before, 0) - plan.before + after
        self._last_rough = self.last_compression_rough_tokens
        self._awaits_verdict = self._last_compression_made_progress = True
        return compacted

    def get_status(self) -> dict[str, Any]:
        """Give the contract's numbers, and why nothing is compacted where that is so."""
        wait_s = self._cool_down.until_s - self._clock.monotonic_s()
        return {
            **super().get_status(),
            "saved_tokens": self.saved_tokens,
            "exhausted": self.is_exhausted,
            "cool_down_s": max(0, round(wait_s)),
            "last_error": self._last_summary_error or "",
        }

    def _is_stopped(self) -> bool:
        return self.is_exhausted or self._clock.monotonic_s() < self._cool_down.until_s

    def _forgive(self) -> None:
        self._strikes = self._fallbacks = 0
        self._awaits_verdict = False
        self._cool_down.clear()

    def _projected(self, given: int) -> int:
        real = self.last_prompt_tokens
        if not given or real <= 0 or not self._rough_at_real or given == real:
            return given or real
        if given < self._rough_at_real:
            return given
        # A host that counts on from the last real size gives less than rough growth would come to.
        return max(min(given, real + given - self._rough_at_real), min(given, real))

    def _nothing_gained(self, messages: ChatRows, *, force: bool) -> ChatRows:
        self._strikes += not force
        if self.is_exhausted:
            self._last_summary_error = (
                "compacting no longer makes the conversation smaller: what is left is the fixed part and"
                " the latest messages; start a new session or choose a larger model"
            )
        return messages

    def _abort(self, messages: ChatRows, failure: Failure) -> ChatRows:
        self._cool_down.note(failure.kind, self._clock.monotonic_s())
        self._last_summary_error, self._last_compress_aborted = failure.message, True
        return messages

    def _plan(self, messages: ChatRows, current_tokens: int | None) -> _Plan | None:
        """Cut the list; None where it has no middle."""
        rows = chat.paired([row for row in messages if not summary.is_synthetic(row)])
        if not rows:
            return None
        before = chat.estimate(messages)
        size = current_tokens or self.last_prompt_tokens
        threshold = self.threshold_tokens or before
        room = max(threshold - max(size - before, 0), threshold // 4)
        found = [summary.parse(row) for row in messages if summary.is_summary(row)]
        previous = _joined(found)
        tail = max(int(room * _TAIL_SHARE), 64)
        head = KeepLimits(0 if previous else self.protect_first_n, int(room * _HEAD_SHARE), tail)
        parts = split(rows, head)
        if not parts.middle:
            return None
        return _Plan(self._fitted(parts, room), previous, rows, room, before)

    def _fitted(self, parts: Split, room: int) -> Split:
        """Clip what stays, where a single group or an old answer is larger than the end may be."""
        budget = max(int(room * _TAIL_SHARE * 1.5), 96)
        tail = parts.tail if chat.estimate(parts.tail) <= budget else shorten(parts.tail, budget)
        cap = max(int(room * _KEPT_SHARE), 96)
        kept = [clip_text(row, cap) if row.get("role") == "assistant" else row for row in parts.kept]
        return parts._replace(tail=tail, kept=kept)

    def _pruned_only(self, plan: _Plan) -> ChatRows | None:
        """Give the list with its old tool traffic pruned, where that alone is enough."""
        if plan.previous is not None or plan.rows[0].get("role") != "user":
            return None
        tail = plan.parts.tail
        compacted = [*prune(plan.rows[: len(plan.rows) - len(tail)], tail), *tail]
        return compacted if chat.estimate(compacted) <= min(plan.room, plan.before) * _TARGET else None

    def _summarised(self, plan: _Plan, focus: str) -> ChatRows | Failure:
        """Give head, summary and end, or why there is no summary."""
        ask_chars = min(600, max(120, plan.room // 6))
        latest = summary.latest_ask(plan.rows, plan.previous, ask_chars)
        todo = summary.open_list(plan.parts.middle, plan.parts.tail, plan.previous, plan.room // 4)
        trail_tokens = min(1500, max(60, int(plan.room * _TRAIL_SHARE)))
        taken = trail_tokens + text_tokens(latest) + text_tokens(todo)
        budget = self._body_tokens(plan, taken)
        answer = ask(self._summarise, self._again, self._request(plan, focus, budget), self._timeout_s())
        if isinstance(answer, Failure):
            if answer.kind != "other" or not self._settings.fallback:
                return answer
            self._fallbacks += 1
            self._last_summary_error = f"{answer.message}; the summary was written without a model"
            body = _listed(plan)
        else:
            self._fallbacks = 0
            self._cool_down.clear()
            body = summary.clean_body(answer)
        allowed = budget + taken + _FRAME_TOKENS
        row: ChatRow = {}
        for _ in range(3):  # tokens of the parts do not add up exactly to those of the whole
            written = self._summary_of(plan, latest, todo, summary.fit_body(body, budget))
            row = summary.write(written, trail_tokens=trail_tokens, can_recall=self._settings.can_recall)
            excess = chat.tokens_of(row) - allowed
            if excess <= 0 or budget <= _BODY_MIN_TOKENS:
                break
            budget = max(budget - excess, _BODY_MIN_TOKENS)
        return _assembled(plan.parts, row)

    def _timeout_s(self) -> float:
        return self._settings.summary_timeout_s

    def _body_tokens(self, plan: _Plan, taken: int) -> int:
        """Give what sections 2 to 13 may cost: a fifth of what they replace, within what is left."""
        parts = plan.parts
        content = chat.estimate(parts.middle)
        if plan.previous is not None:
            content += text_tokens(plan.previous.body)
        largest = min(10_000, max(self.context_length // 20, 2_000))
        wanted = min(max(content // 5, 2_000), largest)
        fixed = chat.estimate((*parts.head, *parts.kept, *parts.tail)) + _FRAME_TOKENS + taken
        free = int(min(plan.room, plan.before) * _TARGET) - fixed
        return max(min(wanted, free, content // 2), _BODY_MIN_TOKENS)

    def _request(self, plan: _Plan, focus: str, budget: int) -> SummaryRequest:
        asks = [said for row in plan.rows if row.get("role") == "user" and (said := chat.said(row))]
        return SummaryRequest(
            rows=plan.parts.middle,
            previous=plan.previous.body if plan.previous else "",
            focus=focus,
            recent=" / ".join(asks[-3:]),
            sample=asks[-1] if asks else "",
            today=self._clock.now().date(),
            budget_tokens=budget,
            window_tokens=self._settings.summary_window_tokens or self.context_length or 8_000,
        )

    def _summary_of(self, plan: _Plan, latest: str, todo: str, body: str) -> Summary:
        first, last = chat.span_of(plan.parts.middle)
        previous = plan.previous or Summary()
        line = summary.part_line(plan.parts.middle, self._clock.now().date().isoformat())
        trail = artifacts.merge(previous.trail, artifacts.collect(plan.parts.middle))
        return Summary(
            first=min(previous.first or first, first or previous.first),
            last=max(previous.last, last),
            ask=latest,
            body=body,
            todo=todo,
            trail=trail,
            parts=_newest([*previous.parts, line], min(_PARTS_TOKENS, plan.room // 40)),
        )


def _newest(lines: list[str], budget_tokens: int) -> list[str]:
    """Give the newest lines that fit, one at least."""
    kept = lines[-_PARTS_MAX:]
    while len(kept) > 1 and sum(map(text_tokens, kept)) > budget_tokens:
        kept = kept[1:]
    return kept


def _joined(found: list[Summary]) -> Summary | None:
    """Give one summary of those in a list; more than one stands there only after an engine's change."""
    if not found:
        return None
    newest = found[-1]
    for older in found[:-1]:
        newest.first = min(newest.first or older.first, older.first or newest.first)
        newest.trail = artifacts.merge(older.trail, newest.trail)
        newest.body = f"{older.body}\n{newest.body}".strip()
        newest.todo = newest.todo or older.todo
    return newest


def _listed(plan: _Plan) -> str:
    """Write sections without a model: what was said and run, one line each, after what was known."""
    calls = {call.id: call for row in plan.parts.middle for call in chat.calls_of(row)}
    lines: list[str] = []
    for row in plan.parts.middle:
        place = f" [{chat.ref(chat.seq_of(row))}]" if chat.seq_of(row) else ""
        if row.get("role") == "tool":
            lines.append(f"- {describe(row, calls.get(str(row.get('tool_call_id'))))}{place}")
        elif text := chat.said(row):
            who = "The person" if row.get("role") == "user" else "The assistant"
            lines.append(f'- {who}: "{chat.line(mask(text), 240)}"{place}')
    while sum(map(len, lines)) > _FALLBACK_CHARS:
        lines = lines[max(1, len(lines) // 8) :]
    pieces = summary.sections(plan.previous.body) if plan.previous else []
    for index, piece in enumerate(pieces):
        if piece.startswith("## 4."):
            pieces[index] = "\n".join((piece.rstrip(), *lines)) + "\n\n"
            return "".join(pieces)
    return "".join(pieces).rstrip() + "\n\n" + "\n".join(("## 4. Completed actions", *lines))


def _assembled(parts: Split, row: ChatRow) -> ChatRows:
    """Put the parts together; a line of ours stands where two roles would meet their like."""
    rows = [*parts.head, row]
    for following in (*parts.kept, *parts.tail[:1]):
        roles = (rows[-1].get("role"), following.get("role"))
        if roles == ("user", "user"):
            rows.append({"role": "assistant", "content": summary.ACK})
        elif roles == ("assistant", "assistant"):
            rows.append({"role": "user", "content": summary.BRIDGE})
        rows.append(following)
    return [*rows, *parts.tail[1:]]
