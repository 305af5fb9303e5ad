"""The table of known model servers.

A row has the server's address, the variables of its keys (`key_hosts.py` decides where they are sent), its
wire format, and its differences from other servers of that format.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from whet.contract.messages import WireFormat

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
OTHER_REASONING = "other_reasoning"
REPLAYED_FIELDS = (*REASONING_FIELDS, "extra_content", OTHER_REASONING)
"""Fields of an answer that are sent back, because thinking models need them. Most other servers ignore them.
`other_reasoning` stands for fields about reasoning whose names only this server uses."""


class ServerDialect(msgspec.Struct, frozen=True):
    """The differences between servers that speak one wire format.

    `providers/adapting.py` corrects them if a server refuses a request.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Literal["reasoning_effort", "reasoning", "thinking"] = "reasoning_effort"
    """The parameter for the reasoning effort."""
    replay_fields: tuple[str, ...] = REPLAYED_FIELDS
    """Extra message fields that are sent back if an answer had them."""
    needs_reasoning: str = ""
    """The reasoning field that each answer in the request must have, even another model's answer."""
    cache_key: bool = False
    """Whether it accepts prompt_cache_key."""
    short_ids: bool = False
    """Whether call ids have nine characters, as Mistral's do."""
    left_out: tuple[str, ...] = ()
    """Parameters and fields that are not sent."""
    system_role: Literal["system", "developer", "user"] = "system"
    call_content: Literal["null", "empty", "absent"] = "null"
    """The content of a message that has tool calls and no text."""
    alternates: bool = False
    """Whether it requires an answer between two messages of a user."""
    signs_calls: bool = False
    """Whether each call needs a thought signature, even another model's call."""
    output_limit: int = 0
    """The most output tokens that may be requested. 0: no limit is known."""
    endpoint: Literal["", "responses"] = ""
    """The wire format that it asked for instead of the requested one."""


class KnownServer(msgspec.Struct, frozen=True):
    """A row of the table. A `local` server runs on this machine, needs no key and is free."""

    base_url: str
    keys: tuple[str, ...] = ()
    format: WireFormat = "chat_completions"
    model: str = ""
    dialect: ServerDialect = ServerDialect()
    local: bool = False


SERVERS: dict[str, KnownServer] = {
    "openai": KnownServer(
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "responses",
        "gpt-6.1-terra",
        ServerDialect(max_tokens_field="max_completion_tokens", cache_key=True, replay_fields=()),
    ),
    "anthropic": KnownServer(
        "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), "anthropic_messages", "claude-sonnet-5-5"
    ),
    "openrouter": KnownServer(
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        model="anthropic/claude-sonnet-4.6",
        dialect=ServerDialect(effort="reasoning", replay_fields=("reasoning_details",)),
    ),
    "groq": KnownServer(
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        model="openai/gpt-oss-120b",
        dialect=ServerDialect(replay_fields=()),
    ),
    "deepseek": KnownServer(
        "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",),
        model="deepseek-v4-pro",
        dialect=ServerDialect(
            effort="thinking", replay_fields=("reasoning_content",), needs_reasoning="reasoning_content"
        ),
    ),
    "mistral": KnownServer(
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        model="mistral-large-latest",
        dialect=ServerDialect(short_ids=True, replay_fields=()),
    ),
    "gemini": KnownServer(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-flash-latest",
        dialect=ServerDialect(replay_fields=("extra_content",)),
    ),
    "xai": KnownServer("https://api.x.ai/v1", ("XAI_API_KEY",), model="grok-4"),
    "together": KnownServer(
        "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), model="openai/gpt-oss-120b"
    ),
    "fireworks": KnownServer(
        "https://api.fireworks.ai/inference/v1",
        ("FIREWORKS_API_KEY",),
        model="accounts/fireworks/models/gpt-oss-120b",
    ),
    "ollama": KnownServer("http://localhost:11434/v1", local=True),
    "llamacpp": KnownServer("http://localhost:8080/v1", model="default", local=True),
    "vllm": KnownServer("http://localhost:8000/v1", local=True),
    "lmstudio": KnownServer("http://localhost:1234/v1", local=True),
    "practice": KnownServer("http://localhost:8765/v1", model="practice", local=True),
}
