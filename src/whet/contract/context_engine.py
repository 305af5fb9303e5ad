"""The contract of a context engine, which decides which part of a long conversation the model sees.

`ContextEngine` is the contract that engines for Hermes Agent are written against, so that those run here
unmodified: synchronous methods, OpenAI chat dicts without a system prompt (index 0 is the first user
message), and a list that is append-only relative to the list the engine last saw or returned. The host
(`context/host.py`) calls it on one thread at a time, with a deadline, and validates every result. This
module does not know the host. docs/context-engines.md explains the contract.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

ChatRow = dict[str, Any]
ChatRows = list[ChatRow]


class ContextEngine(ABC):
    """Decides which messages the model sees. An engine need not call `super().__init__`.

    The host reads the attributes below. After a compaction, `EngineOffer.recorded` sets them for an engine
    of a plugin. An engine may also have the methods `carry_over_new_session_context(old_id, new_id)`,
    `clone_for_agent()` and `shutdown()`.
    """

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0
    threshold_percent: float = 0.75
    protect_first_n: int = 3
    protect_last_n: int = 6
    awaiting_real_usage_after_compression: bool = False
    last_compression_rough_tokens: int = 0

    @property
    @abstractmethod
    def name(self) -> str:
        """The short name that selects it in `context.engine`."""

    @abstractmethod
    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Read the usage of one answered request: every canonical bucket, or an empty dict."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Return whether to compact before the next request, which has about `prompt_tokens` tokens."""

    @abstractmethod
    def compress(
        self, messages: ChatRows, current_tokens: int | None = None, focus_topic: str | None = None
    ) -> ChatRows:
        """Return the list that replaces `messages`. The same object or an equal list means that there is
        nothing to do.

        Rows that stay should be the same dict objects. Never called while another method runs.
        """

    def should_compress_preflight(self, messages: ChatRows) -> bool:
        """Return whether to compact now. Called once a turn, before its first request."""
        del messages
        return False

    def has_content_to_compress(self, messages: ChatRows) -> bool:
        """Return, without a model call, whether a compaction by hand could do anything."""
        del messages
        return True

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Prepare for a session that begins or is opened. `kwargs` are `hermes_home`, `platform`, `model`,
        `context_length`, `conversation_id` (stable over /new and resume), and `old_session_id` if another
        session was left."""
        del session_id, kwargs

    def on_session_end(self, session_id: str, messages: ChatRows) -> None:
        """Finish a session that is left. Called once; another `on_session_start` may follow."""
        del session_id, messages

    def on_session_reset(self) -> None:
        """Reset the counters of the session that was left."""
        self.last_prompt_tokens = 0
        self.last_completion_tokens = 0
        self.last_total_tokens = 0
        self.compression_count = 0

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the function schemas of the engine's own tools. They are read when a session begins."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the engine's tools with JSON text. `messages` is the live list."""
        del args, kwargs
        return json.dumps({"error": f"Unknown context engine tool: {name}"})

    def get_status(self) -> dict[str, Any]:
        """Return the numbers that status displays show."""
        used = max(self.last_prompt_tokens, 0)
        length = self.context_length
        return {
            "last_prompt_tokens": used,
            "threshold_tokens": self.threshold_tokens,
            "context_length": length,
            "usage_percent": min(100.0, used / length * 100) if length else 0.0,
            "compression_count": self.compression_count,
        }

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Adopt another model: store its window and recompute the threshold."""
        del model, base_url, api_key, provider, api_mode
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)


class EngineOffer(msgspec.Struct, frozen=True):
    """An engine that `context.engine` can name. `source` is "built-in" or the plugin's name.

    Each agent gets an instance of its own: `prototype.clone_for_agent()`, else a deep copy of the
    prototype, else the result of `fresh`. Only a foreground agent may share the prototype itself. A
    built-in engine has no prototype. `fresh` may raise; it is called off the event loop.

    `is_quick`: only a compaction takes time, so the other methods are called without a thread; only our own
    engines set it. `recorded(engine, tokens)` is called after a compaction of the engine was stored, with
    the size of the next request.
    """

    name: str
    description: str
    source: str = "built-in"
    prototype: ContextEngine | None = None
    fresh: Callable[[], ContextEngine] | None = None
    is_quick: bool = False
    recorded: Callable[[Any, int], object] | None = None


class SessionChange(msgspec.Struct, frozen=True):
    """A move to the session `new_id`. `facts` are the keywords of `on_session_start`.

    `old_id` is the session that is left, empty if there is none. `messages` is its list, or None if another
    instance was already notified of its end. `carry_over` asks the engine to keep its knowledge of it.
    """

    new_id: str
    old_id: str = ""
    messages: ChatRows | None = None
    carry_over: bool = False
    facts: Mapping[str, Any] = {}


def transition_calls(engine: object, change: SessionChange) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name and call of each hook for a move between sessions, in order, skipping hooks that
    `engine` lacks.

    The caller runs them one by one and decides how to handle an exception; later hooks still follow.
    """
    facts = dict(change.facts)
    steps: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    if change.old_id:
        facts |= {"old_session_id": change.old_id, "carry_over_context": change.carry_over}
        if change.messages is not None:
            steps.append(("on_session_end", (change.old_id, change.messages), {}))
            steps.append(("on_session_reset", (), {}))
    steps.append(("on_session_start", (change.new_id,), facts))
    if change.old_id and change.carry_over:
        steps.append(("carry_over_new_session_context", (change.old_id, change.new_id), {}))
    for name, arguments, keywords in steps:
        hook = getattr(engine, name, None)
        if callable(hook):
            yield name, _bind_arguments(hook, arguments, keywords)


def _bind_arguments(
    hook: Callable[..., object], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Callable[[], object]:
    return lambda: hook(*arguments, **keywords)
