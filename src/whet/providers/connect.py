"""From settings and secrets to a Provider: which server, which wire format, which keys, which fallback.

Makes no connection. The environment is handed in as `secrets` (variables and .env together); only the
proxies and certificates are read from the process's own environment, by the HTTP client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from whet import log
from whet.config.schema import FallbackSettings, ModelSettings
from whet.contract.errors import ConfigError
from whet.contract.messages import WireFormat
from whet.contract.protocols import ModelInfo, Provider
from whet.providers.anthropic_messages import DEFAULT_MAX_TOKENS, AnthropicMessages
from whet.providers.catalog import SERVERS, KnownServer, describe
from whet.providers.chat_completions import ChatCompletions
from whet.providers.credentials import Key, KeyPool, find_keys
from whet.providers.fallback import FallbackProvider
from whet.providers.http import Http, parts_of
from whet.providers.link import ServerProvider, Wiring
from whet.providers.responses import ResponsesEncoder
from whet.providers.retry import Backoff
from whet.providers.wire import RequestOptions, WireCodec


def connect(
    model: ModelSettings,
    fallback: FallbackSettings,
    secrets: Mapping[str, str],
    *,
    backoff: Backoff | None = None,
    others: Callable[[ModelSettings], Provider | None] = lambda _model: None,
) -> Provider:
    """Give the provider that the settings name, with its fallback where one is set. No I/O.

    `others` is asked first: it gives a provider that is not one of ours.

    Raises ConfigError, with a hint, for an unknown provider, a bad URL or a missing key.
    """
    first = others(model) or connect_one(model, secrets, backoff=backoff)
    if not fallback.model:
        return first
    second = stand_in(model, fallback)
    return FallbackProvider(first, others(second) or connect_one(second, secrets, backoff=backoff))


def stand_in(model: ModelSettings, fallback: FallbackSettings) -> ModelSettings:
    """Give the settings of the fallback model: what it leaves out is the first one's."""
    return msgspec.structs.replace(
        model,
        provider=fallback.provider or model.provider,
        model=fallback.model,
        base_url=fallback.base_url or ("" if fallback.provider else model.base_url),
        format=fallback.format,
        api_key_env=fallback.api_key_env or ("" if fallback.provider else model.api_key_env),
        window_tokens=0,
        max_output_tokens=0,
    )


def connect_one(
    model: ModelSettings, secrets: Mapping[str, str], *, backoff: Backoff | None = None
) -> ServerProvider:
    """Give the provider of one server."""
    name, server = _server(model)
    wire = _format(model, server)
    base_url = model.base_url or server.base_url
    if wire == "anthropic_messages" and not base_url.rstrip("/").endswith("/v1"):
        # Anthropic's own tools take the URL without /v1, so people write it that way.
        base_url = base_url.rstrip("/") + "/v1"
    http = Http(base_url, timeout_s=model.timeout_s)
    keys = KeyPool(_keys(name, server, model, secrets))
    info = describe(
        name,
        model.model or server.model,
        window_tokens=model.window_tokens,
        max_output_tokens=model.max_output_tokens,
    )
    options = RequestOptions(
        model=info.model,
        max_output_tokens=model.max_output_tokens,
        reasoning_effort=model.reasoning_effort,
    )
    wiring = Wiring(
        http=http,
        codec=_codec(wire, server, info),
        keys=keys,
        backoff=backoff or Backoff(model.max_retries),
        options=options,
        is_window_set=bool(model.window_tokens),
    )
    return ServerProvider(info, wiring)


async def learn_windows(provider: Provider) -> None:
    """Ask local servers how large their models' windows really are. Best effort."""
    if isinstance(provider, FallbackProvider):
        await learn_windows(provider.first)
        await learn_windows(provider.second)
    elif isinstance(provider, ServerProvider):
        await provider.probe_window()


def providers_with_keys(secrets: Mapping[str, str]) -> list[str]:
    """Give the known providers that `secrets` holds a key for, in the catalog's order."""
    return [name for name, server in SERVERS.items() if find_keys(server.keys, secrets)]


def _server(model: ModelSettings) -> tuple[str, KnownServer]:
    known = SERVERS.get(model.provider)
    if known is not None:
        return model.provider, known
    if model.base_url:
        parts = parts_of(model.base_url)
        return model.provider or (parts and parts.hostname) or "server", KnownServer(model.base_url)
    if not model.provider:
        raise ConfigError(
            "no model provider is set",
            hint="set model.provider and its key, such as ANTHROPIC_API_KEY; or model.base_url",
        )
    raise ConfigError(
        f"model.provider {model.provider!r} is not known",
        hint=f"one of {', '.join(SERVERS)}; or any name together with model.base_url",
    )


def _format(model: ModelSettings, server: KnownServer) -> WireFormat:
    if model.format != "auto":
        return model.format
    # Servers that stand in for OpenAI's at another address speak Chat Completions; few speak Responses.
    if server.format == "responses" and model.base_url:
        return "chat_completions"
    return server.format


def _codec(wire: WireFormat, server: KnownServer, info: ModelInfo) -> WireCodec:
    if wire == "anthropic_messages":
        return AnthropicMessages(min(info.max_output_tokens, DEFAULT_MAX_TOKENS))
    return ResponsesEncoder(server.dialect) if wire == "responses" else ChatCompletions(server.dialect)


def _keys(
    name: str, server: KnownServer, model: ModelSettings, secrets: Mapping[str, str]
) -> tuple[Key, ...]:
    wanted = tuple(part.strip() for part in model.api_key_env.split(",") if part.strip()) or server.keys
    keys = find_keys(wanted, secrets)
    log.protect(key.value for key in keys)
    if wanted and not keys:
        raise ConfigError(
            f"no key for {name}", hint=f"set {' or '.join(wanted)} in the environment or in .env"
        )
    return keys
