"""The default context engine: keeps the beginning and the end, prunes old tool traffic, summarises the
middle.

This module decides when a compaction is due and how to react to failures; `default_compaction.py` carries it
out. A compaction needs no model: if none returns a usable summary, code writes it. After two ineffective ones
in a row no more are made until a person forces one. The engine's state may be lost with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from whet.clock import Clock
from whet.context.rows import estimate
from whet.contract.context_engine import ChatRows, ContextEngine

if TYPE_CHECKING:
    from whet.context.default_compaction import CompactionPlan, SummarisedRows
    from whet.context.summariser import Failure, FailureKind, Summarise

STRIKES_MAX = 2
_LARGE_WINDOW = 512_000


class CompressorSettings(msgspec.Struct, frozen=True):
    """Settings of the engine.

    `max_output_tokens` of the window are kept free for the answer. `can_recall` is whether sessions have the
    recall tool.
    """

    max_output_tokens: int = 0
    summary_window_tokens: int = 0
    summary_timeout_s: float = 90.0
    can_recall: bool = True


class Compressor(ContextEngine):
    """The engine named `compressor`.

    `summarise_again` is tried after `summarise` failed. If it is None, `summarise` is tried once more after a
    failure that may be temporary.
    """

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
        self._failures: dict[FailureKind, int] = {}  # failures in a row
        self._reset_strikes()
        self._last_rough = 0
        self._rough_at_real = 0
        self.saved_tokens: int = 0
        self._last_summary_error: str | None = None

    @property
    def name(self) -> str:
        """`compressor`."""
        return "compressor"

    @property
    def is_exhausted(self) -> bool:
        """Whether compacting was given up until a person forces it or the model changes."""
        return self._strikes >= STRIKES_MAX

    def clone_for_agent(self) -> Compressor:
        """Return a fresh engine with the same models and settings."""
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
        """Set the threshold to 75 % of the model's window (50 % from 512,000 tokens on), but leave space for
        an answer."""
        share = 0.5 if context_length >= _LARGE_WINDOW else 0.75
        threshold = int(context_length * share)
        output = self._settings.max_output_tokens
        if output < context_length // 2:
            threshold = min(threshold, context_length - output)
        if context_length != self.context_length:
            self._reset_strikes()
        self.threshold_percent: float = share
        self.context_length: int = context_length
        self.threshold_tokens: int = threshold

    def on_session_reset(self) -> None:
        """Reset counters, strikes and waits."""
        super().on_session_reset()
        self._reset_strikes()
        self._last_rough = self._rough_at_real = self.saved_tokens = 0

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Record the real size of the last request, and judge the last compaction by it."""
        prompt = int(usage.get("prompt_tokens") or 0)
        if prompt <= 0:
            return
        self.last_prompt_tokens = prompt
        self.last_completion_tokens = int(usage.get("completion_tokens") or 0)
        self.last_total_tokens: int = int(usage.get("total_tokens") or 0)
        self._rough_at_real = self._last_rough
        if prompt < self.threshold_tokens:
            self._strikes = 0
        elif self._awaits_verdict:
            self._strikes += 1
        self._awaits_verdict = False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return whether the next request would pass the threshold.

        The estimate may lack all tool definitions, so only its growth is added to the last real size.
        """
        if self.threshold_tokens <= 0 or self.is_exhausted:
            return False
        tokens = prompt_tokens or 0
        size = self._project_size(tokens)
        if tokens:
            self._last_rough = tokens
        if self._awaits_verdict or self.last_prompt_tokens < 0:
            slack = min(max(4096, self.threshold_tokens // 20), self.threshold_tokens // 4)
            return tokens > self.threshold_tokens and tokens > self.last_compression_rough_tokens + slack
        return size >= self.threshold_tokens

    def should_compress_preflight(self, messages: ChatRows) -> bool:
        """Return whether the messages alone are over the threshold, as long as the real size is unknown."""
        if self.last_prompt_tokens > 0 or self._awaits_verdict or self.is_exhausted:
            return False
        return 0 < self.threshold_tokens <= estimate(messages)

    def has_content_to_compress(self, messages: ChatRows) -> bool:
        """Return whether there is a middle between head and tail."""
        return self._make_plan(messages, None) is not None

    def compress(
        self,
        messages: ChatRows,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
    ) -> ChatRows:
        """Return a smaller list, or `messages` itself if it can't be made smaller.

        `force` (by hand) resets strikes and waits. A list larger than the window is compacted in spite of
        strikes.
        """
        self._last_summary_error = None
        if force:
            self._reset_strikes()
        elif self.is_exhausted and (current_tokens or 0) <= self.context_length:
            return messages
        plan = self._make_plan(messages, current_tokens)
        if plan is None:
            return self._note_no_gain(messages, force=force)
        # Few sessions are ever compacted, so the module is loaded only when needed.
        from whet.context.default_compaction import prune_only  # noqa: PLC0415

        compacted = None if focus_topic else prune_only(plan)
        if compacted is None:
            compacted = self._summarise_plan(plan, focus_topic or "").rows
        after = estimate(compacted)
        if after >= plan.before:
            return self._note_no_gain(messages, force=force)
        self.saved_tokens += plan.before - after
        self.compression_count: int = self.compression_count + 1
        self.last_compression_rough_tokens = (current_tokens or plan.before) - plan.before + after
        self._last_rough = self.last_compression_rough_tokens
        self._awaits_verdict = True
        return compacted

    def on_recorded(self, tokens: int) -> None:
        """Use the estimated size of the next request after a compaction, until the server counts it."""
        self.last_prompt_tokens: int = -1
        self.last_completion_tokens: int = 0
        self.last_compression_rough_tokens: int = tokens

    def get_status(self) -> dict[str, Any]:
        """Return the contract's numbers, the tokens saved, and the last error. `cool_down_s` is how long no
        model is asked for a summary."""
        wait_s = self._rests_until_s - self._clock.monotonic_s()
        return {
            **super().get_status(),
            "saved_tokens": self.saved_tokens,
            "exhausted": self.is_exhausted,
            "cool_down_s": max(0, round(wait_s)),
            "last_error": self._last_summary_error or "",
        }

    def _reset_strikes(self) -> None:
        self._strikes = 0
        self._awaits_verdict = False
        self._end_rest()

    def _project_size(self, tokens: int) -> int:
        real = self.last_prompt_tokens
        if not tokens:
            return real
        if real <= 0 or tokens < self._rough_at_real:
            return tokens
        # A host that extrapolates from the last real size passes less than the rough growth would add.
        return min(tokens, real + tokens - self._rough_at_real)

    def _note_no_gain(self, messages: ChatRows, *, force: bool) -> ChatRows:
        self._strikes += not force
        if self.is_exhausted:
            self._last_summary_error = (
                "compacting no longer makes the conversation smaller: what is left is the fixed part and"
                " the latest messages; start a new session or choose a larger model"
            )
        return messages

    def _end_rest(self) -> None:
        self._rests_until_s = 0.0
        self._resting: Failure | None = None
        self._failures.clear()

    def _make_plan(self, messages: ChatRows, current_tokens: int | None) -> CompactionPlan | None:
        from whet.context.default_compaction import plan_compaction  # noqa: PLC0415 as above

        size = current_tokens or self.last_prompt_tokens
        return plan_compaction(messages, size, self.threshold_tokens, self.protect_first_n)

    def _summarise_plan(self, plan: CompactionPlan, focus: str) -> SummarisedRows:
        from whet.context.default_compaction import SummaryOptions, summarise_plan  # noqa: PLC0415 as above

        settings = self._settings
        resting = self._resting if self._clock.monotonic_s() < self._rests_until_s else None
        options = SummaryOptions(
            summarise=self._summarise,
            again=self._again,
            timeout_s=settings.summary_timeout_s,
            today=self._clock.now().date(),
            context_length=self.context_length,
            window_tokens=settings.summary_window_tokens,
            focus=focus,
            can_recall=settings.can_recall,
            resting=resting,
        )
        result = summarise_plan(plan, options)
        self._note_author(result.failure, was_asked=resting is None)
        return result

    def _note_author(self, failure: Failure | None, *, was_asked: bool) -> None:
        """Record whether a model wrote the summary. After a failure no model is asked for a while."""
        if failure is None:
            self._end_rest()
            return
        self._last_summary_error = f"{failure.message}; no model could write the summary"
        if was_asked:
            from whet.context.summariser import rest_s  # noqa: PLC0415 as above

            before = self._failures.get(failure.kind, 0)
            self._failures[failure.kind] = before + 1
            self._resting = failure
            self._rests_until_s = self._clock.monotonic_s() + rest_s(failure.kind, before)
