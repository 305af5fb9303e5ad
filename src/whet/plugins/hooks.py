"""Call the hooks of plugins, and interpret their answers.

Hooks run in the order of `plugins.enabled`, then of registration, each with a time limit. A hook that
fails is reported. After three failures in a row it is switched off for the rest of the process.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import msgspec

from whet.contract.errors import PluginError
from whet.contract.texts import as_object
from whet.plugins.calls import accepted_keywords, attribute_errors, call, within
from whet.plugins.parts import BoundParts, Hook, Problem, bound_parts

NAMES = (
    "pre_tool_call",
    "post_tool_call",
    "transform_tool_result",
    "pre_llm_call",
    "post_llm_call",
    "on_session_start",
    "on_session_end",
    "on_session_reset",
    "subagent_start",
    "subagent_stop",
    "on_compaction",
    "on_session_finalize",
    "on_skill_lifecycle",
    "agent_loop_stopped",
    "pre_approval_request",
    "post_approval_response",
    "pre_api_request",
    "post_api_request",
    "api_request_error",
    "transform_api_error_classification",
    "pre_auxiliary_call",
    "post_auxiliary_call",
    "on_stream_start",
    "on_stream_delta",
    "on_stream_end",
    "on_interim_message",
    "transform_llm_output",
    "transform_terminal_output",
    "pre_verify",
    "pre_command",
    "pre_gateway_dispatch",
    "gateway_platform_event",
)
MIDDLEWARE = ("tool_request", "tool_execution")
"""The kinds that `register_middleware` accepts. Internally they are hooks like the others."""
GUARDS = frozenset({"pre_tool_call", *MIDDLEWARE})
"""Hooks that are never switched off. If one fails, so does the tool call."""
LIMIT_S = 10.0
_STRIKES = 3


class ToolVerdict(msgspec.Struct, frozen=True):
    """The result of the pre_tool_call hooks: the call's arguments, the reason if it is `blocked`, and the
    reason if a person must be asked (`asks`)."""

    arguments: dict[str, Any]
    blocked: str = ""
    asks: str = ""


class Hooks:
    """The hooks of all loaded plugins. Failures are added to `problems`."""

    def __init__(
        self, hooks: Sequence[Hook] = (), problems: list[Problem] | None = None, *, limit_s: float = LIMIT_S
    ) -> None:
        self._hooks = {name: [hook for hook in hooks if hook.name == name] for name in (*NAMES, *MIDDLEWARE)}
        self._problems = problems if problems is not None else []
        self._sources: list[Callable[[str], Sequence[Hook]]] = []
        self._limit_s = limit_s
        self._strikes: dict[int, int] = {}
        self._scope: Callable[[], AbstractContextManager[object]] = nullcontext

    def add_source(self, source: Callable[[str], Sequence[Hook]]) -> None:
        """Also call hooks from `source`, which returns hooks that plugins added to a table of their own."""
        self._sources.append(source)

    def bound_to(self, engine: object) -> Hooks:
        """Return these hooks for a session with `engine`. If the engine has an instance per session, the
        hooks of its plugin are replaced by those of the instance, and failures are counted per session."""
        bound = bound_parts(engine)
        if bound is None:
            return self
        view = Hooks((), self._problems, limit_s=self._limit_s)
        view.add_source(lambda name: _replace_plugin_hooks(self.hooks_named(name), bound, name))
        return view

    def within(self, scope: Callable[[], AbstractContextManager[object]]) -> Hooks:
        """Return these hooks, each of which is then called inside `scope`. Failures are counted together."""
        view = Hooks((), self._problems, limit_s=self._limit_s)
        view.add_source(self.hooks_named)
        view._strikes = self._strikes
        view._scope = scope
        return view

    def hooks_named(self, name: str) -> list[Hook]:
        """Return the hooks of that name that are still on, in order."""
        hooks = [*self._hooks[name], *(hook for source in self._sources for hook in source(name))]
        if name in GUARDS:
            return hooks
        return [hook for hook in hooks if self._strikes.get(id(hook.function), 0) < _STRIKES]

    def has(self, *names: str) -> bool:
        """Return whether any hook of these names would be called."""
        return any(self.hooks_named(name) for name in names)

    async def call_all(self, name: str, **facts: Any) -> list[Any]:
        """Call every hook of that name and return their results, without those that failed."""
        answers: list[Any] = []
        for hook in self.hooks_named(name):
            try:
                answers.append(await self._run(hook, facts))
            except PluginError as error:
                self._strike(hook, error)
        return answers

    async def before_tool(self, tool: str, arguments: dict[str, Any], **facts: Any) -> ToolVerdict:
        """Call the tool_request functions, then the pre_tool_call hooks, each with the arguments that the one
        before has returned. The first that blocks the call ends this.

        A function returns {"args": {...}} to replace the arguments, or None. A hook returns None,
        {"action": "block", "message": ...}, {"action": "approve", "message": ...} or {"action": "modify",
        "args": {...}}, whose values override those of the arguments; it may also change `args` in place.
        If one fails, the call is blocked, because it may have been a guard.
        """
        asks = ""
        original = copy.deepcopy(arguments)
        for hook in self.hooks_named("tool_request"):
            payload = {
                "tool_name": tool,
                "args": copy.deepcopy(arguments),
                "original_args": original,
                **facts,
            }
            try:
                changed = as_object(await self._run(hook, payload)).get("args")
            except PluginError as error:
                self._strike(hook, error)
                return ToolVerdict(arguments, f"the plugin {hook.plugin} could not judge it: {error.message}")
            arguments = arguments if changed is None or changed == arguments else as_object(changed)
        for hook in self.hooks_named("pre_tool_call"):
            payload = copy.deepcopy(arguments)
            try:
                answer = _parse_answer(
                    hook, await self._run(hook, {"tool_name": tool, "args": payload, **facts})
                )
            except PluginError as error:
                self._strike(hook, error)
                return ToolVerdict(arguments, f"the plugin {hook.plugin} could not judge it: {error.message}")
            if answer.blocked:
                return ToolVerdict(arguments, f"blocked by the plugin {hook.plugin}: {answer.blocked}")
            if answer.asks and not asks:
                asks = f"the plugin {hook.plugin} wants a person's decision: {answer.asks}"
            changed = {**payload, **answer.arguments}
            arguments = arguments if changed == arguments else changed
        return ToolVerdict(arguments, asks=asks)

    async def transform(self, result: str, **facts: Any) -> str:
        """Return a result's text as changed by the transform_tool_result hooks."""
        return await self.replace("transform_tool_result", "result", result, **facts)

    async def replace(self, name: str, keyword: str, text: str, **facts: Any) -> str:
        """Return a text as changed by the hooks of that name, which get it as `keyword`. A hook that returns
        None keeps it."""
        for hook in self.hooks_named(name):
            try:
                answer = await self._run(hook, {**facts, keyword: text})
            except PluginError as error:
                self._strike(hook, error)
                continue
            text = answer if isinstance(answer, str) else text
        return text

    async def context(self, **facts: Any) -> str:
        """Return the text that the pre_llm_call hooks add to the person's message. They return a text or
        {"context": text}."""
        texts: list[str] = []
        for answer in await self.call_all("pre_llm_call", **facts):
            text = as_object(answer).get("context", answer)
            if isinstance(text, str) and text.strip():
                texts.append(text.strip())
        return "\n\n".join(texts)

    async def _run(self, hook: Hook, facts: Mapping[str, Any]) -> Any:
        with attribute_errors(hook.plugin, hook.name), self._scope():
            answer = await within(
                self._limit_s, call(hook.function, **accepted_keywords(hook.function, facts))
            )
        self._strikes.pop(id(hook.function), None)
        return answer

    def _strike(self, hook: Hook, error: PluginError) -> None:
        count = self._strikes.get(id(hook.function), 0) + 1
        self._strikes[id(hook.function)] = count
        is_off = count == _STRIKES and hook.name not in GUARDS
        note = f"; it is off now, after {count} failures in a row" if is_off else ""
        self._problems.append(Problem(hook.plugin, f"its hook {hook.name} failed: {error.message}{note}"))


def _replace_plugin_hooks(hooks: Sequence[Hook], bound: BoundParts, name: str) -> list[Hook]:
    """Replace the hooks of an instance's plugin by those of the instance."""
    at = next((at for at, hook in enumerate(hooks) if hook.plugin == bound.plugin), len(hooks))
    others = [hook for hook in hooks if hook.plugin != bound.plugin]
    return [*others[:at], *(hook for hook in bound.hooks if hook.name == name), *others[at:]]


def _parse_answer(hook: Hook, answer: Any) -> ToolVerdict:
    """Return the changed arguments, the reason of a block, or the reason to ask a person.

    Raises PluginError if an answer looks like a decision but is invalid.
    """
    fields = as_object(answer)
    action = fields.get("action") or fields.get("decision")
    reason = str(fields.get("message") or fields.get("reason") or "no reason was given")
    changed = fields.get("args") if "args" in fields else fields.get("tool_input")
    if action is None and not isinstance(answer, str):
        return ToolVerdict({})
    if action == "block":
        return ToolVerdict({}, blocked=reason)
    if action == "approve":
        return ToolVerdict({}, asks=reason)
    if action == "modify" and isinstance(changed, dict):
        return ToolVerdict(as_object(cast("object", changed)))
    if action == "allow":
        return ToolVerdict({})
    raise PluginError(
        'it must answer None, {"action": "block", "message": ...}, {"action": "approve", "message": ...} or '
        '{"action": "modify", "args": {...}}',
        plugin=hook.plugin,
        hook=hook.name,
    )
