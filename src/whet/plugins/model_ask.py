"""Let plugins ask the person's model, by `ctx.llm`. The person chooses the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from whet.contract.errors import PluginError
from whet.contract.texts import as_object


class LlmUsage(msgspec.Struct):
    """The usage and cost of a request, as far as known."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


class LlmAnswer(msgspec.Struct):
    """An answer of the model. `parsed` is the value if JSON was requested and received."""

    text: str
    parsed: Any = None
    content_type: str = "text"
    provider: str = ""
    model: str = ""
    agent_id: str = "default"
    usage: LlmUsage = msgspec.field(default_factory=LlmUsage)
    audit: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class PluginModel:
    """The object `ctx.llm`. `ask(messages, max_tokens, temperature, timeout)` returns an answer's text."""

    def __init__(self, plugin: str, ask: Callable[..., str]) -> None:
        self._plugin = plugin
        self._ask = ask

    def complete(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> LlmAnswer:
        """Ask and wait. Raises PermissionError if `options` choose a provider, model, agent or profile."""
        self._check(options)
        request_options = {name: options.get(name) for name in ("max_tokens", "temperature", "timeout")}
        return LlmAnswer(self._ask(messages=messages, **request_options))

    def complete_structured(
        self, *, instructions: str, input: Sequence[Any], json_schema: object = None, **options: Any
    ) -> LlmAnswer:
        """Ask for JSON and parse it. If the answer is not JSON, `parsed` is None."""
        texts = [str(as_object(part).get("text") or getattr(part, "text", "")) for part in input]
        is_json = json_schema is not None or bool(options.pop("json_mode", False))
        rule = "Answer with one JSON value and nothing else."
        if json_schema is not None:
            instructions += f"\n\nJSON schema:\n{json.dumps(json_schema)}"
        system = [str(options.pop("system_prompt", "") or ""), rule if is_json else ""]
        messages: list[dict[str, Any]] = [{"role": "user", "content": "\n\n".join([instructions, *texts])}]
        if any(system):
            messages.insert(0, {"role": "system", "content": "\n\n".join(filter(None, system))})
        answer = self.complete(messages, **options)
        if is_json:
            bare = answer.text.strip().removeprefix("```json").removeprefix("```").removesuffix("```")
            try:
                answer.parsed, answer.content_type = json.loads(bare), "json"
            except ValueError:
                return answer
        return answer

    async def acomplete(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> LlmAnswer:
        """Ask from an async function."""
        return await asyncio.to_thread(self.complete, messages, **options)

    async def acomplete_structured(self, **options: Any) -> LlmAnswer:
        """Ask for JSON from an async function."""
        return await asyncio.to_thread(self.complete_structured, **options)

    def _check(self, options: Mapping[str, Any]) -> None:
        chosen = [name for name in ("provider", "model", "agent_id", "profile") if options.get(name)]
        if chosen:
            raise PermissionError(f"the plugin {self._plugin} can't choose the {chosen[0]}")


def no_model(plugin: str) -> Callable[..., str]:
    """Return a function that raises PluginError, because no model is available."""

    def ask(**request: Any) -> str:
        del request
        raise PluginError("no model is available to plugins here", plugin=plugin, hook="llm")

    return ask
