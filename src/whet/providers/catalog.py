"""Known servers and known model families: where they are, how they speak, how large, what they cost.

Windows and list prices were read from the vendors' pages on 2026-11-21 (USD per million tokens, the base
tier); a price that we are not sure of is None, and a newer model than the table is served with defaults.
Only data and look-ups, nothing is imported that is not needed to say it.
"""

from __future__ import annotations

import msgspec

from whet.contract.messages import WireFormat
from whet.contract.protocols import ModelInfo
from whet.providers.wire import ServerDialect

DEFAULT_WINDOW_TOKENS = 128_000


class KnownServer(msgspec.Struct, frozen=True):
    """A known model server. Without `keys` none is needed (`local`: it runs on this machine, for free)."""

    base_url: str
    format: WireFormat = "chat_completions"
    keys: tuple[str, ...] = ()
    model: str = ""
    dialect: ServerDialect = ServerDialect()
    local: bool = False


_REASONING_BACK = ServerDialect(replay_fields=("reasoning_content", "reasoning"))
SERVERS: dict[str, KnownServer] = {
    "openai": KnownServer(
        "https://api.openai.com/v1",
        "responses",
        ("OPENAI_API_KEY",),
        "gpt-6.1-terra",
        ServerDialect(max_tokens_field="max_completion_tokens", cache_key=True),
    ),
    "anthropic": KnownServer(
        "https://api.anthropic.com/v1", "anthropic_messages", ("ANTHROPIC_API_KEY",), "claude-sonnet-5-5"
    ),
    "openrouter": KnownServer(
        "https://openrouter.ai/api/v1",
        keys=("OPENROUTER_API_KEY",),
        model="anthropic/claude-sonnet-4.6",
        dialect=ServerDialect(effort="reasoning", replay_fields=("reasoning_details",)),
    ),
    "groq": KnownServer(
        "https://api.groq.com/openai/v1", keys=("GROQ_API_KEY",), model="openai/gpt-oss-120b"
    ),
    "deepseek": KnownServer(
        "https://api.deepseek.com/v1",
        keys=("DEEPSEEK_API_KEY",),
        model="deepseek-v4-pro",
        dialect=ServerDialect(effort="thinking", replay_fields=("reasoning_content",)),
    ),
    "mistral": KnownServer(
        "https://api.mistral.ai/v1",
        keys=("MISTRAL_API_KEY",),
        model="mistral-large-latest",
        dialect=ServerDialect(short_ids=True),
    ),
    "gemini": KnownServer(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-flash-latest",
        dialect=ServerDialect(replay_fields=("extra_content",)),
    ),
    "xai": KnownServer("https://api.x.ai/v1", keys=("XAI_API_KEY",), model="grok-4"),
    "together": KnownServer(
        "https://api.together.xyz/v1", keys=("TOGETHER_API_KEY",), model="openai/gpt-oss-120b"
    ),
    "fireworks": KnownServer(
        "https://api.fireworks.ai/inference/v1",
        keys=("FIREWORKS_API_KEY",),
        model="accounts/fireworks/models/gpt-oss-120b",
    ),
    "ollama": KnownServer("http://localhost:11434/v1", local=True),
    "llamacpp": KnownServer("http://localhost:8080/v1", model="default", dialect=_REASONING_BACK, local=True),
    "vllm": KnownServer("http://localhost:8000/v1", dialect=_REASONING_BACK, local=True),
    "lmstudio": KnownServer("http://localhost:1234/v1", local=True),
    "practice": KnownServer("http://localhost:8765/v1", model="practice", local=True),
}

# family prefix: window, most output, then USD per million tokens: input, output, cache read, cache write
_Row = tuple[int, int, float | None, float | None, float | None, float | None]
_FAMILIES: dict[str, _Row] = {
    "claude-fable-5-2": (1_000_000, 128_000, 8, 40, 0.8, 10),
    "claude-fable-5": (1_000_000, 128_000, 10, 50, 1, 12.5),
    "claude-opus-5-5": (1_000_000, 128_000, 4, 20, 0.4, 5),
    "claude-opus-5": (1_000_000, 128_000, 5, 25, 0.5, 6.25),
    "claude-sonnet-5": (1_000_000, 128_000, 2, 10, 0.2, 2.5),
    "claude-haiku-5": (1_000_000, 128_000, None, None, None, None),
    "claude-haiku-4-5": (200_000, 64_000, 1, 5, 0.1, 1.25),
    "claude-opus-4-8": (1_000_000, 128_000, 5, 25, 0.5, 6.25),
    "claude-opus-4-7": (1_000_000, 128_000, 5, 25, 0.5, 6.25),
    "claude-opus-4-6": (1_000_000, 128_000, 5, 25, 0.5, 6.25),
    "claude-sonnet-4-6": (1_000_000, 64_000, 3, 15, 0.3, 3.75),
    "claude-opus-4-5": (200_000, 64_000, 5, 25, 0.5, 6.25),
    "claude-sonnet-4-5": (200_000, 64_000, 3, 15, 0.3, 3.75),
    "claude": (200_000, 32_000, None, None, None, None),
    "gpt-6.1-sol": (1_050_000, 128_000, 2, 10, 0.1, 2.5),
    "gpt-6.1-terra": (1_050_000, 128_000, 1, 5, 0.05, 1.25),
    "gpt-6-sol": (1_050_000, 128_000, 2, 10, None, None),
    "gpt-6-luna": (1_050_000, 128_000, 0.1, 0.5, None, None),
    "gpt-6": (1_050_000, 128_000, None, None, None, None),
    "gpt-5.6": (1_050_000, 128_000, None, None, None, None),
    "gpt-5.5": (1_000_000, 128_000, 5, 30, 0.5, 5),
    "gpt-5.4-mini": (400_000, 128_000, 0.75, 4.5, 0.075, 0.75),
    "gpt-5.4-nano": (400_000, 128_000, 0.2, 1.25, 0.02, 0.2),
    "gpt-5.4-pro": (1_000_000, 128_000, None, None, None, None),
    "gpt-5.4": (1_000_000, 128_000, 2.5, 15, 0.25, 2.5),
    "gpt-5.2-pro": (400_000, 128_000, None, None, None, None),
    "gpt-5.2": (400_000, 128_000, 1.75, 14, 0.175, 1.75),
    "gpt-5.1": (400_000, 128_000, 1.25, 10, 0.125, 1.25),
    "gpt-5-mini": (400_000, 128_000, 0.25, 2, 0.025, 0.25),
    "gpt-5-nano": (400_000, 128_000, 0.05, 0.4, 0.005, 0.05),
    "gpt-5-pro": (400_000, 128_000, None, None, None, None),
    "gpt-5": (400_000, 128_000, 1.25, 10, 0.125, 1.25),
    "gpt-4.1-mini": (1_047_576, 32_768, 0.4, 1.6, 0.1, 0.4),
    "gpt-4.1-nano": (1_047_576, 32_768, 0.1, 0.4, 0.025, 0.1),
    "gpt-4.1": (1_047_576, 32_768, 2, 8, 0.5, 2),
    "gpt-4o-mini": (128_000, 16_384, 0.15, 0.6, 0.075, 0.15),
    "gpt-4o": (128_000, 16_384, 2.5, 10, 1.25, 2.5),
    "gpt-oss": (131_072, 32_768, None, None, None, None),
    "o4-mini": (200_000, 100_000, 1.1, 4.4, 0.275, 1.1),
    "o3-mini": (200_000, 100_000, 1.1, 4.4, 0.55, 1.1),
    "o3": (200_000, 100_000, 2, 8, 0.5, 2),
    "deepseek-v4-pro": (1_000_000, 384_000, 0.435, 0.87, 0.003625, 0.435),
    "deepseek-v4-flash": (1_000_000, 384_000, 0.14, 0.28, 0.0028, 0.14),
    "deepseek": (128_000, 8_192, None, None, None, None),
    "gemini-3": (1_048_576, 65_536, None, None, None, None),
    "gemini-2.5": (1_048_576, 65_536, None, None, None, None),
    "gemini": (1_048_576, 8_192, None, None, None, None),
    "grok-4": (256_000, 32_768, None, None, None, None),
    "mistral-large": (128_000, 32_768, None, None, None, None),
    "llama-3.3-70b": (131_072, 32_768, None, None, None, None),
}
_BY_LENGTH = sorted(_FAMILIES, key=len, reverse=True)
_LIST_PRICES = {"openai": ("gpt", "o3", "o4"), "anthropic": ("claude",), "deepseek": ("deepseek",)}


def describe(provider: str, model: str, *, window_tokens: int = 0, max_output_tokens: int = 0) -> ModelInfo:
    """Give what is known of a model, matched by its family's prefix; settings win where they are not 0.

    Prices hold only for the vendor's own server; a local one costs nothing.
    """
    server = SERVERS.get(provider)
    name = model.rpartition("/")[2].lower()
    name = name.replace(".", "-") if name.startswith("claude") else name
    family = next((prefix for prefix in _BY_LENGTH if name.startswith(prefix)), "")
    window, output, *prices = _FAMILIES.get(family, (DEFAULT_WINDOW_TOKENS, 8_192, None, None, None, None))
    if server is not None and server.local:
        prices = [0.0, 0.0, 0.0, 0.0]
    elif not family.startswith(_LIST_PRICES.get(provider, ("\0",))):
        prices = [None, None, None, None]
    return ModelInfo(
        provider=provider,
        model=model,
        window_tokens=window_tokens or window,
        max_output_tokens=max_output_tokens or output,
        input_usd_per_mtok=prices[0],
        output_usd_per_mtok=prices[1],
        cache_read_usd_per_mtok=prices[2],
        cache_write_usd_per_mtok=prices[3],
    )
