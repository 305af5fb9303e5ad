"""List the available context engines, keep those of a session, and make session tools from an engine's tools.

A tool schema may be bare or wrapped in a "function" object. A schema that no provider would accept is left
out with a notice, because it would make the server refuse every request.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, cast

import msgspec

from whet.context.engine_runner import EngineRunner, HostFacts, filter_keywords
from whet.contract.context_engine import (
    ChatRow,
    ChatRows,
    ContextEngine,
    EngineOffer,
    SessionChange,
    transition_calls,
)
from whet.contract.events import Emit
from whet.contract.protocols import ModelInfo
from whet.contract.tools import TOOL_NAME, Tool, ToolContext, ToolOutput, ToolSpec
from whet.store.transcript import Transcript

DEFAULT = "compressor"
NONE = "none"
TOOLSET = "context_engine"


class NoEngine(ContextEngine):
    """The engine named `none`: it never compacts."""

    threshold_percent: float = 0.0

    @property
    def name(self) -> str:
        """The name in the setting `context.engine`."""
        return NONE

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Store the counts for status displays."""
        self.last_prompt_tokens: int = int(usage.get("prompt_tokens") or 0)
        self.last_completion_tokens: int = int(usage.get("completion_tokens") or 0)
        self.last_total_tokens: int = int(usage.get("total_tokens") or 0)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return False."""
        return False

    def has_content_to_compress(self, messages: ChatRows) -> bool:
        """Return False."""
        return False

    def compress(
        self, messages: ChatRows, current_tokens: int | None = None, focus_topic: str | None = None
    ) -> ChatRows:
        """Return the list unchanged."""
        return messages


NO_ENGINE = EngineOffer(
    NONE, "Never compacts: the model sees the whole conversation.", fresh=NoEngine, is_quick=True
)


def merge_offers(*groups: Iterable[EngineOffer]) -> dict[str, EngineOffer]:
    """Return the offers by name, with `none`. Of equal names the first is used."""
    merged: dict[str, EngineOffer] = {NONE: NO_ENGINE}
    for group in groups:
        for offer in group:
            merged.setdefault(offer.name, offer)
    return merged


def find_default(available: Mapping[str, EngineOffer]) -> EngineOffer:
    """Return the built-in engine, which replaces an engine that fails."""
    return available.get(DEFAULT) or available[NONE]


def choose(available: Mapping[str, EngineOffer], name: str) -> tuple[EngineOffer, str]:
    """Return the offer of that name, or the built-in one and the reason for the person."""
    if name in available:
        return available[name], ""
    default = find_default(available)
    if name == DEFAULT:
        return default, ""
    import difflib  # noqa: PLC0415 - .5 ms that only a wrong name needs

    near = difflib.get_close_matches(name, list(available), 1)
    guess = f"; did you mean {near[0]}?" if near else "; `whet context engines` lists what there is"
    return default, f"{name!r} is not there, {default.name} is used instead{guess}"


async def list_engine_tools(runner: EngineRunner, used_names: Collection[str]) -> list[Tool]:
    """Return the engine's tools, without names that are in use. Asks the engine only once."""
    if runner.tools is not None:
        return runner.tools
    outcome = await runner.run("get_tool_schemas", lambda: list(runner.engine.get_tool_schemas()))
    tools: dict[str, Tool] = {}
    for schema in outcome.value or []:
        spec = _parse_schema(schema)
        if isinstance(spec, str):
            if spec:
                runner.note(f"{runner.name}: {spec}")
        elif spec.name in used_names:
            runner.note(f"{runner.name}: its tool {spec.name} is left out, there is one of that name")
        elif spec.name not in tools:
            tools[spec.name] = _make_engine_tool(runner, spec)
    runner.tools = list(tools.values())
    return runner.tools


def _parse_schema(schema: object) -> ToolSpec | str:
    """Return a schema as a spec, or the reason why it can't be one ("" if it has no name)."""
    bare = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    inner = bare.get("function")
    if isinstance(inner, dict):
        bare = cast("dict[str, Any]", inner)
    name = bare.get("name")
    if not isinstance(name, str) or not name:
        return ""
    if not TOOL_NAME.fullmatch(name):
        return f"its tool {name[:80]!r} is left out, no server would accept the name"
    empty: dict[str, Any] = {"type": "object", "properties": {}}
    parameters: object = bare.get("parameters") or empty
    if not isinstance(parameters, dict) or cast("dict[str, Any]", parameters).get("type") != "object":
        return f"its tool {name} is left out, its parameters are not a JSON schema object"
    try:
        plain = json.loads(json.dumps(parameters, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        return f"its tool {name} is left out, its schema is not JSON ({error})"
    return ToolSpec(name, str(bare.get("description") or name), plain)


def _make_engine_tool(runner: EngineRunner, spec: ToolSpec) -> Tool:
    async def run(context: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        rows = list(runner.live())
        hook = runner.engine.handle_tool_call
        keywords = filter_keywords(hook, {"messages": rows})
        outcome = await runner.run(
            f"the tool {spec.name}",
            lambda: hook(spec.name, arguments, **keywords),
            runner.deadlines.compress_s,
        )
        if outcome.error is not None:
            text = json.dumps({"error": f"{type(outcome.error).__name__}: {outcome.error}"})
            return ToolOutput(text, error_kind="failed")
        answer: object = outcome.value
        if not isinstance(answer, str):
            answer = msgspec.json.encode(answer, enc_hook=str).decode()
        return ToolOutput(answer)

    return Tool(spec, TOOLSET, frozenset({"read"}), run, repeatable=True, timeout_s=None)


async def rows_at_end(log: Transcript, runner: EngineRunner, rows: list[ChatRow]) -> list[ChatRow]:
    """Return the rows to end a session with: `rows`, or the whole conversation for an engine that is
    behind."""
    if not runner.is_behind:
        return rows
    from whet.context.whole import whole_rows  # noqa: PLC0415 - few sessions were ever compacted

    return await whole_rows(log, runner) or rows


async def show_if_behind(log: Transcript, runner: EngineRunner) -> None:
    """Show an engine that is behind the whole conversation, so that it can compare its stored messages."""
    if runner.is_behind:
        from whet.context.whole import show_whole  # noqa: PLC0415 - few sessions were ever compacted

        await show_whole(log, runner)


class SessionEngines:
    """The engines of one session: the chosen one and, after it has failed, also the built-in one (the spare).

    Informs them about the session and the model that answers. `make_spare` creates the spare.
    """

    def __init__(
        self,
        log: Transcript,
        chosen: EngineRunner,
        facts: HostFacts,
        make_spare: Callable[[], Awaitable[EngineRunner | None]] | None,
    ) -> None:
        self.chosen = chosen
        self.facts = facts
        self._log = log
        self._make_spare = make_spare
        self._spare: EngineRunner | None = None
        self._model: ModelInfo | None = None
        self._limit = 0
        self._astray: list[EngineRunner] = []  # those whose list differs from the live one

    @property
    def active(self) -> list[EngineRunner]:
        """The engines that receive all events."""
        return [self.chosen] if self._spare is None else [self.chosen, self._spare]

    @property
    def window(self) -> int:
        """The tokens that a request may have: the model's window, or less if the server named a smaller
        limit."""
        return self._limit or self.facts.info().window_tokens

    @property
    def conversation_id(self) -> str:
        """The conversation's id. A child session uses its own id, so that its engine does not take over the
        parent's conversation."""
        session = self._log.session
        return session.id if session.kind != "chat" else session.conversation_id

    async def begin(
        self,
        previous: Transcript | None,
        previous_rows: list[ChatRow] | None,
        *,
        carry_over: bool = False,
    ) -> bool:
        """Inform the chosen engine about this session and the `previous` one. Returns False if the engine
        failed. With `carry_over` the engine keeps its knowledge of the previous one."""
        self._set_scope(self.chosen)
        self.has_other_model()
        await self.follow_model()
        change = self._describe_change(previous, previous_rows)
        change = msgspec.structs.replace(change, carry_over=carry_over and previous is not None)
        self.chosen.is_behind = bool(self._log.live.epoch)
        return await self.chosen.run_hooks(transition_calls(self.chosen.engine, change))

    def has_other_model(self) -> bool:
        """Return whether the model has changed since the last call. A limit that a server named is then
        dropped."""
        info, last = self.facts.info(), self._model
        if info != last:
            self._model, self._limit = info, 0
        return last not in (None, info)

    async def follow_model(self) -> None:
        """Inform the engines about the model and its window."""
        for runner in self.active:
            await runner.set_model(self.facts.info(), self.window, self.facts)

    def limit_window(self, limit_tokens: int) -> None:
        """Use the server's limit as the window from now on, if it is smaller."""
        if 0 < limit_tokens < self.window:
            self._limit = limit_tokens
            name = self.chosen.name
            self.chosen.note(f"{name}: the server's window is {limit_tokens:,} tokens, less than was set")

    async def use_spare(self) -> EngineRunner | None:
        """Return the built-in engine, created on first use, or None if it is the chosen one."""
        if self._spare is None and self._make_spare is not None:
            self._spare = await self._make_spare()
            if self._spare is not None:
                self._set_scope(self._spare)
                await self._spare.set_model(self.facts.info(), self.window, self.facts)
                await self._spare.run_hooks(transition_calls(self._spare.engine, self._describe_change()))
        if self._spare is not None:
            self.chosen.note(f"{self.chosen.name} failed; {self._spare.name} stands in")
        return self._spare

    def mark_astray(self, runner: EngineRunner) -> None:
        """Mark an engine whose list differs from the live one; `resynchronise` informs it about the session
        again."""
        if runner not in self._astray:
            self._astray.append(runner)

    async def resynchronise(self) -> None:
        """Inform the marked engines about the session again, except those that are stuck."""
        for runner in [runner for runner in self._astray if not runner.lane.stuck]:
            self._astray.remove(runner)
            runner.is_behind = bool(self._log.live.epoch)
            await runner.run_hooks(transition_calls(runner.engine, self._describe_change()))

    def report_stop(self, why: str) -> None:
        """Notify the person that automatic compaction is off."""
        self.chosen.note(
            f"{self.chosen.name}: automatic compaction is off, two in a row did not help "
            f"({why}); /compress [focus], /new or a larger model help"
        )

    def flush(self, emit: Emit) -> None:
        """Show the engines' notices."""
        for runner in self.active:
            runner.flush(emit)

    async def hand_over(self, rows: Callable[[], list[ChatRow]]) -> None:
        """End only the spare engine: the chosen one now belongs to another session."""
        if self._spare is not None:
            await self._end(self._spare, rows())
        self._drop_references()

    async def aclose(self, rows: Callable[[], list[ChatRow]], *, is_reset: bool = False) -> None:
        """End the session for all engines and let them close their resources; with `is_reset`, reset them
        before."""
        for runner in self.active:
            await self._end(runner, rows(), is_reset=is_reset)
            runner.detach()
        self._drop_references()

    def _drop_references(self) -> None:
        """Drop references to the session and its parts, which would keep each other in memory."""
        info = self.facts.info()
        self.facts: HostFacts = msgspec.structs.replace(self.facts, info=lambda: info)
        self._make_spare = None

    async def _end(self, runner: EngineRunner, rows: list[ChatRow], *, is_reset: bool = False) -> None:
        end, session = getattr(runner.engine, "on_session_end", None), self._log.session
        if callable(end):
            last_rows = await rows_at_end(self._log, runner, rows)
            await runner.run("on_session_end", lambda: end(session.id, last_rows))
        if is_reset and (reset := getattr(runner.engine, "on_session_reset", None)) is not None:
            await runner.run("on_session_reset", reset)
        # A clone may share resources with the engine that it was cloned from.
        await runner.close(shutdown=session.kind == "chat" or runner.origin == "fresh")

    def _set_scope(self, runner: EngineRunner) -> None:
        scope, session_id, conversation_id = self.facts.scope, self._log.session.id, self.conversation_id
        runner.scope = lambda: scope(session_id, conversation_id)

    def _describe_change(
        self, previous: Transcript | None = None, previous_rows: list[ChatRow] | None = None
    ) -> SessionChange:
        facts = {
            "hermes_home": self.facts.home,
            "platform": self.facts.platform,
            "model": self.facts.info().model,
            "context_length": self.window,
            "conversation_id": self.conversation_id,
        }
        return SessionChange(
            self._log.session.id, previous.session.id if previous else "", previous_rows, facts=facts
        )
