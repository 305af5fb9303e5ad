"""Known model servers: where each is, which keys are its own, and how it speaks.

One row makes a server known. It says where its keys may go (`key_hosts.py`), which wire format it has, and
what differs from others of that format.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from whet.contract.messages import WireFormat


class ServerDialect(msgspec.Struct, frozen=True):
    """What differs between servers that speak one wire format.

    `effort`: how reasoning effort is asked for. `replay_fields`: extra message fields that the server
    wants back. `cache_key`: whether it takes prompt_cache_key. `short_ids`: Mistral's nine characters.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Literal["reasoning_effort", "reasoning", "thinking"] = "reasoning_effort"
    replay_fields: tuple[str, ...] = ()
    cache_key: bool = False
    short_ids: bool = False


class KnownServer(msgspec.Struct, frozen=True):
    """A known model server. Without `keys` none is needed (`local`: it runs on this machine, for free)."""

    base_url: str
    format: WireFormat = "chat_completions"
    keys: tuple[str, ...] = ()
    model: str = ""
    dialect: ServerDialect = ServerDialect()
    local: bool = False


_PLAIN = ServerDialect()
_REASONING_BACK = ServerDialect(replay_fields=("reasoning_content", "reasoning"))


def _server(
    url: str,
    keys: tuple[str, ...] = (),
    wire: WireFormat = "chat_completions",
    model: str = "",
    dialect: ServerDialect = _PLAIN,
) -> KnownServer:
    """Return a row of the table. A server without keys runs on this machine."""
    return KnownServer(url, wire, keys, model, dialect, local=not keys)


SERVERS: dict[str, KnownServer] = {
    "openai": _server(
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "responses",
        "gpt-6.1-terra",
        ServerDialect(max_tokens_field="max_completion_tokens", cache_key=True),
    ),
    "anthropic": _server(
        "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), "anthropic_messages", "claude-sonnet-5-5"
    ),
    "openrouter": _server(
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        model="anthropic/claude-sonnet-4.6",
        dialect=ServerDialect(effort="reasoning", replay_fields=("reasoning_details",)),
    ),
    "groq": _server("https://api.groq.com/openai/v1", ("GROQ_API_KEY",), model="openai/gpt-oss-120b"),
    "deepseek": _server(
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        model="deepseek-v4-pro",
        dialect=ServerDialect(effort="thinking", replay_fields=("reasoning_content",)),
    ),
    "mistral": _server(
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        model="mistral-large-latest",
        dialect=ServerDialect(short_ids=True),
    ),
    "gemini": _server(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-flash-latest",
        dialect=ServerDialect(replay_fields=("extra_content",)),
    ),
    "xai": _server("https://api.x.ai/v1", ("XAI_API_KEY",), model="grok-4"),
    "together": _server("https://api.together.xyz/v1", ("TOGETHER_API_KEY",), model="openai/gpt-oss-120b"),
    "fireworks": _server(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        model="accounts/fireworks/models/gpt-oss-120b",
    ),
    "ollama": _server("http://localhost:11434/v1"),
    "llamacpp": _server("http://localhost:8080/v1", model="default", dialect=_REASONING_BACK),
    "vllm": _server("http://localhost:8000/v1", dialect=_REASONING_BACK),
    "lmstudio": _server("http://localhost:1234/v1"),
    "practice": _server("http://localhost:8765/v1", model="practice"),
}
