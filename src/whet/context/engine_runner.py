"""Run one context engine: its thread, its deadlines, its failures.

All calls to an engine go through this module. They run on the engine's own thread (its lane), except those of
a quick engine without a deadline. If an engine raises an exception, the person gets a notice and the host a
default value.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from types import FunctionType
from typing import Any, Literal, TypeVar, cast

import msgspec

from whet.contract.context_engine import ChatRows, ContextEngine, EngineOffer
from whet.contract.events import Emit, Notice
from whet.contract.protocols import ModelInfo
from whet.contract.tools import Tool
from whet.lanes import LaneOutcome, LaneTimeout, PluginLane, attempt
from whet.log import mask

T = TypeVar("T")
Scope = Callable[[str, str], AbstractContextManager[object]]
"""Returns a context manager that marks a session (id, conversation) as the one being served."""
log: logging.Logger = logging.getLogger("whet.context")
EngineOrigin = Literal["clone", "copy", "fresh", "shared"]
BY_HAND, BELOW = "by_hand", "engine_preflight_maintenance"
"""Phases of a compaction that no engine names."""
REASON_CHARS = 200


class Deadlines(msgspec.Struct, frozen=True):
    """How long an engine may take: `compress_s` for a compaction or a tool call, `hook_s` for other calls."""

    compress_s: float = 300.0
    hook_s: float = 10.0


def no_scope(session_id: str, conversation_id: str) -> AbstractContextManager[object]:
    """Return a context manager that does nothing."""
    return nullcontext()


class HostFacts(msgspec.Struct, frozen=True):
    """Facts about a session for its engines. `info` returns the model that answers now. `fixed_tokens` is the
    size of system prompt and tools. `scope` marks the session during a call."""

    info: Callable[[], ModelInfo]
    home: str = ""
    platform: str = "cli"
    base_url: str = ""
    api_mode: str = ""
    fixed_tokens: int = 0
    scope: Scope = no_scope


class CompactionQuestion(msgspec.Struct, frozen=True):
    """The facts for asking an engine before a request.

    `is_first`: this is the turn's first request. `may_compact`: a compaction would be allowed. `is_rough`: no
    server has counted these rows, so `tokens` is an estimate.
    """

    rows: ChatRows
    tokens: int
    is_first: bool
    may_compact: bool
    is_rough: bool


class CompactionAnswer(msgspec.Struct, frozen=True):
    """An engine's answer: whether it wants to compact now, in which phase, or why it should but can't."""

    wants: bool = False
    phase: str = "threshold"
    blocked: str = ""


class EngineRunner:
    """An engine instance that belongs to one session at a time.

    `live` returns its current list of rows. `scope` is entered around every call, for engines that look up
    elsewhere which session is being served.
    """

    def __init__(
        self, engine: ContextEngine, offer: EngineOffer, lane: PluginLane, deadlines: Deadlines
    ) -> None:
        self.engine = engine
        self.offer = offer
        self.lane = lane
        self.deadlines = deadlines
        self.origin: EngineOrigin = "fresh"
        self.threshold = 0
        self.live: Callable[[], ChatRows] = lambda: []
        self.scope: Callable[[], AbstractContextManager[object]] = nullcontext
        self.tools: list[Tool] | None = None
        self.is_behind = False
        """Whether the session was compacted before the engine knew it, so that the live list does not show
        which messages the engine has stored."""
        self.notices: list[str] = []
        self._noted: set[str] = set()
        self._must_show: set[str] = set()
        self._model: tuple[ModelInfo, int] | None = None
        self._was_stuck = False
        self._summary_error = ""

    @property
    def name(self) -> str:
        """The name by which the engine was chosen."""
        return self.offer.name

    @classmethod
    async def create(
        cls, offer: EngineOffer, deadlines: Deadlines, *, foreground: bool
    ) -> EngineRunner | str:
        """Create an instance for one agent. Returns the reason as text if that fails."""
        lane = PluginLane(f"engine-{offer.name}")

        def make() -> tuple[ContextEngine, EngineOrigin]:
            return make_engine(offer, foreground=foreground)

        try:
            outcome = attempt(make) if offer.is_quick else await lane.run(make, deadlines.hook_s)
        except LaneTimeout:
            return f"it did not start in {deadlines.hook_s:g} s"
        if outcome.value is None:
            lane.close()
            return _reason(outcome.error)
        runner = cls(outcome.value[0], offer, lane, deadlines)
        runner.origin = outcome.value[1]
        return runner

    @classmethod
    def wrap(
        cls, engine: ContextEngine, deadlines: Deadlines, recorded: Callable[[Any, int], object] | None = None
    ) -> EngineRunner:
        """Wrap an existing engine. `recorded` is as in `EngineOffer`."""
        offer = EngineOffer(engine.name, "", recorded=recorded)
        return cls(engine, offer, PluginLane(f"engine-{engine.name}"), deadlines)

    async def run(self, hook: str, work: Callable[[], T], deadline_s: float = 0.0) -> LaneOutcome[T]:
        """Run `work` on the lane, and read the engine's threshold afterwards. A failure becomes a notice,
        once.

        For a quick engine `work` runs directly, unless a deadline is set or the lane is busy. The outcome's
        error is None only if the work succeeded.
        """

        def run_and_measure() -> T:
            try:
                with self.scope():
                    return work()
            finally:
                self.threshold = _to_int(attempt(lambda: self.engine.threshold_tokens).value)

        limit_s = deadline_s or self.deadlines.hook_s
        was_stuck = self.lane.stuck
        try:
            if not deadline_s and self._needs_no_thread():
                outcome = attempt(run_and_measure)
            else:
                outcome = await self.lane.run(run_and_measure, limit_s)
        except LaneTimeout as error:
            if not was_stuck:
                self.note(f"{self.name} did not answer {hook} in {limit_s:g} s and is left out until it does")
            self._was_stuck = True
            return LaneOutcome(error=error)
        if self._was_stuck:
            self._was_stuck = False
            self._noted.clear()
            self.note(f"{self.name} answers again")
        if outcome.error is not None:
            self._note_failure(hook, outcome.error)
        return outcome

    def submit(self, hook: str, work: Callable[[], object]) -> None:
        """Run `work` on the lane without waiting; later calls run after it. Does nothing if the lane is
        stuck."""
        if self.lane.stuck:
            return

        def run_safely() -> None:
            with self.scope():
                outcome = attempt(work)
            self.threshold = _to_int(attempt(lambda: self.engine.threshold_tokens).value)
            if outcome.error is not None:
                self._note_failure(hook, outcome.error)

        if self._needs_no_thread():
            run_safely()
        else:
            self.lane.submit(run_safely)

    async def run_hooks(self, steps: Iterable[tuple[str, Callable[[], object]]]) -> bool:
        """Run hooks one after the other; if one fails, note that and run the next. Returns whether all
        succeeded."""

        def work() -> bool:
            is_success = True
            for hook, call in steps:
                outcome = attempt(call)
                if outcome.error is not None:
                    is_success = False
                    self._note_failure(hook, outcome.error)
            if not self.offer.is_quick:
                from whet.context.settling import commit_open_transactions  # noqa: PLC0415 - few have another engine

                commit_open_transactions(self.engine)
            return is_success

        return bool((await self.run("a change of session", work)).value)

    async def set_model(self, info: ModelInfo, window: int, facts: HostFacts) -> None:
        """Inform the engine about the model and its window, if either changed."""
        update = getattr(self.engine, "update_model", None)
        if self._model == (info, window) or not callable(update):
            return
        self._model = (info, window)
        keywords = {
            "model": info.model,
            "context_length": window,
            "base_url": facts.base_url,
            "api_key": "",  # an engine asks models through the host
            "provider": info.provider,
            "api_mode": facts.api_mode,
        }
        await self.run("update_model", lambda: update(**filter_keywords(update, keywords)))

    async def status(self) -> dict[str, Any]:
        """Return the engine's own status, or an empty dict if it fails."""
        outcome = await self.run("get_status", lambda: dict(self.engine.get_status()))
        return outcome.value or {}

    async def close(self, *, shutdown: bool = True) -> None:
        """End the engine's thread, after the engine has closed its resources if `shutdown` is set."""
        hook = getattr(self.engine, "shutdown", None)
        if shutdown and callable(hook):
            await self.run("shutdown", hook)
        self.lane.close()
        for text in self.notices:
            log.warning("%s", text)

    def detach(self) -> None:
        """Forget the session that the engine belonged to."""
        self.live, self.scope = list, nullcontext

    def note(self, text: str) -> None:
        """Add a notice about the engine for the person. The same one is shown only once."""
        self.add_notice(f"context engine {_line(text)}")

    def add_notice(self, text: str, *, must_show: bool = False) -> None:
        """Add a notice for the person from any source. The same text is shown only once. With `must_show` it
        is shown on every interface."""
        if text not in self._noted:
            self._noted.add(text)
            self.notices.append(text)
            if must_show:
                self._must_show.add(text)

    def take_notices(self, other: EngineRunner) -> None:
        """Take over the notices of a runner that this one replaces."""
        self.notices += other.notices
        self._must_show |= other._must_show

    def note_summary_error(self, error: str) -> None:
        """Add a notice about a failed summary, unless it is about the same error as the last one. An empty
        `error` is a success."""
        if error and error != self._summary_error:
            text = f"{self.name}: {error}"
            self._noted.discard(f"context engine {_line(text)}")
            self.note(text)
        self._summary_error = error

    def flush(self, emit: Emit) -> None:
        """Show the notices."""
        notices, self.notices = self.notices, []
        for text in notices:
            emit(Notice(text, must_show=text in self._must_show))

    def _needs_no_thread(self) -> bool:
        return self.offer.is_quick and self.lane.idle

    def _note_failure(self, hook: str, error: BaseException) -> None:
        log.warning("context engine %s failed in %s", self.name, hook, exc_info=error)
        self.note(f"{self.name} failed in {hook}: {_reason(error)}")


def make_engine(offer: EngineOffer, *, foreground: bool) -> tuple[ContextEngine, EngineOrigin]:
    """Create an engine instance: a fresh one, the engine's own clone, a copy, or the shared prototype.

    A prototype is shared only with a foreground agent. Raises the error of the last attempt.
    """
    prototype = offer.prototype
    makers: list[tuple[EngineOrigin, Callable[[], object]]] = []
    # The commands and hooks of a clone or a copy act on the prototype, so a fresh instance comes first.
    if offer.fresh is not None:
        makers.append(("fresh", offer.fresh))
    if prototype is not None:
        clone = getattr(prototype, "clone_for_agent", None)
        if callable(clone):
            makers.append(("clone", cast("Callable[[], object]", clone)))
        makers.append(("copy", lambda: copy.deepcopy(prototype)))
    failure: BaseException = TypeError(f"{offer.name} offers no way to make an engine")
    for origin, maker in makers:
        outcome = attempt(maker)
        if isinstance(outcome.value, ContextEngine):
            return outcome.value, origin
        failure = outcome.error or TypeError(f"{origin} gave {type(outcome.value).__name__}, no engine")
    if prototype is not None and foreground:
        return prototype, "shared"
    raise failure


def ask_engine(engine: ContextEngine, question: CompactionQuestion) -> CompactionAnswer:
    """Ask the engine whether to compact before the next request. Runs on the engine's lane and raises its
    exceptions.

    It may want to because of its preflight check at the start of a turn, a pending operation, or the size, in
    this order. A rough size is ignored if the engine prefers to wait for the server's count.
    """
    rows, tokens = question.rows, question.tokens
    preflight = optional_hook(engine, "should_compress_preflight") if question.is_first else None
    if preflight is not None and preflight(rows):
        return CompactionAnswer(wants=True, phase="preflight")
    if not question.may_compact:
        return CompactionAnswer()
    pending = optional_hook(engine, "pending_compression_operation")
    if pending is not None and (operation := pending(rows)):
        return CompactionAnswer(wants=True, phase=str(operation)[:40])
    defer = optional_hook(engine, "should_defer_preflight_to_real_usage") if question.is_rough else None
    if defer is not None and defer(tokens):
        return CompactionAnswer()
    if engine.should_compress(tokens):
        return CompactionAnswer(wants=True)
    inform = optional_hook(engine, "should_compress_info")
    return CompactionAnswer(blocked="" if inform is None else _blocked_reason(inform(tokens)))


def optional_hook(engine: object, name: str) -> Callable[..., Any] | None:
    """Return a hook of the engine, or None if it does not have this hook."""
    hook = getattr(engine, name, None)
    return cast("Callable[..., Any]", hook) if callable(hook) else None


def _blocked_reason(answer: object) -> str:
    """Return the reason of a pair (can_compact, reason), or "" if the engine can compact."""
    if not isinstance(answer, tuple) or len(cast("tuple[object, ...]", answer)) != 2:
        return ""
    flag, reason = cast("tuple[object, object]", answer)
    return " ".join(reason.split())[:REASON_CHARS] if not flag and isinstance(reason, str) else ""


def filter_keywords(hook: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return the `keywords` that a hook's signature accepts, or all if it can't be read."""
    names = _keyword_names(hook)
    return keywords if names is None else {name: keywords[name] for name in keywords if name in names}


def _keyword_names(hook: Callable[..., Any]) -> frozenset[str] | None:
    """Return the keywords that a hook accepts, or None if it accepts any."""
    function = getattr(hook, "__func__", None)
    return _names_of_method(function) if isinstance(function, FunctionType) else _read_names(hook)


def _read_names(hook: Callable[..., Any]) -> frozenset[str] | None:
    signature = attempt(lambda: inspect.signature(hook)).value
    if signature is None:
        return None
    parameters = signature.parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(
        parameter.name for parameter in parameters if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY
    )


# Each session asks for its engine's methods again, and reading a signature takes 0.1 ms.
_names_of_method = lru_cache(_read_names)


def _line(text: str) -> str:
    return mask(" ".join(text.split()))[:400]


def _to_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 53:
        return 0
    return int(value)


def _reason(error: BaseException | None) -> str:
    text = attempt(lambda: str(error)).value or ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
