"""Known model servers: where each is, which keys are its own, and how it speaks.

One row makes a server known. It says where its keys may go (`key_hosts.py`), which wire format it has, and
what differs from others of that format.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from whet.contract.messages import WireFormat

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_details")
OTHER_REASONING = "other_reasoning"
REPLAYED_FIELDS = (*REASONING_FIELDS, "extra_content", OTHER_REASONING)
"""Fields of an answer that most servers ignore in a request and thinking models need back. `other_reasoning`
stands for all fields that speak of reasoning or thinking and have a name of the server's own."""


class ServerDialect(msgspec.Struct, frozen=True):
    """What differs between servers that speak one wire format.

    The table is a first guess, which a server's refusals correct (`providers/adapting.py`).

    `effort`: how reasoning effort is asked for. `replay_fields`: extra message fields that go back to the
    server if an answer had them. `needs_reasoning`: the reasoning field that each answer must have, also one
    of another model. `cache_key`: whether it takes prompt_cache_key. `short_ids`:
    Mistral's nine characters. `left_out`: parameters and fields that are not sent. `call_content`: the
    content of a message that has tool calls and no text. `alternates`: it requires an answer between two
    messages of a user. `signs_calls`: it requires a thought signature in each call, also of another model.
    `output_limit`: the most tokens of an answer that may be asked for (0: it refused none). `endpoint`: the
    wire format to which it pointed instead of the one that was asked.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    effort: Literal["reasoning_effort", "reasoning", "thinking"] = "reasoning_effort"
    replay_fields: tuple[str, ...] = REPLAYED_FIELDS
    needs_reasoning: str = ""
    cache_key: bool = False
    short_ids: bool = False
    left_out: tuple[str, ...] = ()
    system_role: Literal["system", "developer", "user"] = "system"
    call_content: Literal["null", "empty", "absent"] = "null"
    alternates: bool = False
    signs_calls: bool = False
    output_limit: int = 0
    endpoint: Literal["", "responses"] = ""


class KnownServer(msgspec.Struct, frozen=True):
    """A row of the table. `local`: the server runs on this machine, needs no key and is free."""

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
