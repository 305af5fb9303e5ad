"""Create a Provider from settings and secrets: server, wire format, keys, fallback.

`connect` makes no connection. The environment is passed in as `secrets` (variables and .env together); only
the HTTP client reads the process's own environment, for proxies and certificates. Only the needed wire
format is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from whet import log
from whet.config.key_hosts import derive_second_model, key_names, list_withheld_names
from whet.config.schema import FallbackSettings, ModelSettings
from whet.contract.errors import AuthRejected, ConfigError
from whet.contract.messages import WireFormat
from whet.contract.protocols import FailureJudge, ModelInfo, Provider
from whet.contract.texts import split_http_url, strip_credentials
from whet.contract.tools import ToolSpec
from whet.providers.backoff import Backoff
from whet.providers.catalog import SERVERS, KnownServer, describe_model
from whet.providers.http import Http, Key, KeyPool, explain_rejected_key
from whet.providers.link import ServerLink, Wiring
from whet.providers.tool_schemas import ToolCuts
from whet.providers.wire import RequestOptions, ServerDialect, WireCodec


class ConnectOptions(msgspec.Struct, frozen=True):
    """Options of a connection. `patience_s`: how long to retry during an outage. `memory`: the file of
    learned dialects (`dialect_memory.py`)."""

    patience_s: float = 0.0
    memory: Path | None = None


NO_OPTIONS = ConnectOptions()
_OWN_FIELDS = frozenset(
    ("model", "messages", "input", "system", "instructions", "tools", "stream", "stream_options", "store")
)


class ServerProvider:
    """A model server with its keys and connection pool."""

    def __init__(self, info: ModelInfo, wiring: Wiring) -> None:
        self._info = info
        self.wiring = wiring
        self.judge: FailureJudge | None = None
        self._is_window_unknown = False

    @property
    def info(self) -> ModelInfo:
        """The configured model. Its window is the server's own after `probe_window`."""
        return self._info

    def open(self, system: str, tools: Sequence[ToolSpec], session_id: str) -> ServerLink:
        """Freeze a session's prefix and return its link. No I/O. Raises ConfigError if no model is set."""
        require_model(self._info)
        options = msgspec.structs.replace(self.wiring.options, session_id=session_id)

        def head(codec: WireCodec, cuts: ToolCuts) -> bytes:
            kept = cuts.keep(tools)
            kept_names = {tool.name for tool in kept}
            left_out = ", ".join(tool.name for tool in tools if tool.name not in kept_names)
            note = f"\n\nThe model's server refused these tools, so they can't be called: {left_out}"
            return codec.head(system + note if left_out else system, kept, options)

        return ServerLink(
            lambda: self._info,
            self.wiring,
            head,
            has_tools=bool(tools),
            on_recovery=self._probe_again,
            judge=self.judge,
        )

    async def list_models(self) -> list[str]:
        """Ask the server which models it serves, sorted. Raises ProviderError."""
        from whet.providers.server_facts import list_models  # noqa: PLC0415 no turn needs it

        try:
            return await list_models(
                self.wiring.http, self._info, self.wiring.codec.models_query, self._headers()
            )
        except AuthRejected as error:
            raise explain_rejected_key(
                error, self.wiring.keys.current, self.wiring.http.where, self.wiring.account
            ) from error

    async def probe_window(self) -> int | None:
        """Ask a local server for the model's window and use it. Returns None if the server does not report
        it."""
        server = SERVERS.get(self._info.provider)
        if self.wiring.is_window_set or not self._info.model or server is None or not server.local:
            return None
        from whet.providers.server_facts import ask_window  # noqa: PLC0415 only local servers say it

        tokens = await ask_window(self.wiring.http, self._info, self._headers())
        self._is_window_unknown = not tokens
        if tokens:
            self._info = msgspec.structs.replace(self._info, window_tokens=tokens)
        return tokens

    async def _probe_again(self) -> None:
        # A server that was loading its model could not report the window.
        if self._is_window_unknown:
            await self.probe_window()

    async def aclose(self) -> None:
        """Close the connection pool."""
        await self.wiring.http.aclose()

    def _headers(self) -> dict[str, str]:
        return self.wiring.codec.headers(self.wiring.keys.current.value)


def require_model(info: ModelInfo) -> None:
    """Raise ConfigError if no model is set."""
    if not info.model:
        raise ConfigError(
            f"no model is named for {info.provider}",
            hint="set model.model; whet model list shows what the server has",
        )


def connect(
    model: ModelSettings,
    fallback: FallbackSettings,
    secrets: Mapping[str, str],
    *,
    backoff: Backoff | None = None,
    options: ConnectOptions = NO_OPTIONS,
    others: Callable[[ModelSettings], Provider | None] = lambda _model: None,
) -> Provider:
    """Return the provider that the settings name, with its fallback if one is set. Asks no server.

    `others` is called first and may return a provider of another kind. With a fallback, only the fallback's
    own outages are waited for. Raises ConfigError for an unknown provider, a bad URL or a missing key.
    """
    if not fallback.model:
        return others(model) or connect_one(model, secrets, backoff=backoff, options=options)
    impatient = ConnectOptions(memory=options.memory)
    first = others(model) or connect_one(model, secrets, backoff=backoff, options=impatient)
    from whet.providers.fallback import FallbackProvider  # noqa: PLC0415 most settings name no fallback

    second = derive_second_model(model, fallback)
    backup = others(second) or connect_one(second, secrets, backoff=backoff, options=options)
    return FallbackProvider(first, backup)


def connect_one(
    model: ModelSettings,
    secrets: Mapping[str, str],
    *,
    backoff: Backoff | None = None,
    options: ConnectOptions = NO_OPTIONS,
) -> ServerProvider:
    """Return the provider of one server."""
    name, server = _server(model)
    wire = _format(model, server)
    base_url = model.base_url or server.base_url
    if wire == "anthropic_messages" and not base_url.rstrip("/").endswith("/v1"):
        # Anthropic's own tools take the URL without /v1, so people write it that way.
        base_url = base_url.rstrip("/") + "/v1"
    http = Http(base_url, timeout_s=model.timeout_s)
    keys = KeyPool(_keys(name, model, secrets))
    info = describe_model(
        name,
        model.model or server.model,
        window_tokens=model.window_tokens,
        max_output_tokens=model.max_output_tokens,
    )
    request_options = RequestOptions(
        model=info.model,
        max_output_tokens=model.max_output_tokens,
        reasoning_effort=model.reasoning_effort,
        extra=_extra_fields(model, info.model),
    )
    patience_s = options.patience_s if model.max_retries else 0.0
    backoff = backoff or Backoff(model.max_retries, patience_s=patience_s)
    backoff.is_local = server.local or http.is_loopback
    wiring = Wiring(
        http=http,
        codec=_codec(wire, server.dialect, info),
        keys=keys,
        backoff=backoff,
        options=request_options,
        is_window_set=bool(model.window_tokens),
        server=name if name in SERVERS else http.where,
        account=model.account if model.account in model.accounts.get(model.provider, {}) else "",
    )
    if options.memory is not None:
        _recall(options.memory, wire, wiring, info)
    return ServerProvider(info, wiring)


def _extra_fields(model: ModelSettings, name: str) -> dict[str, Any]:
    """Return the fields that the owner adds to requests to a model. Raises ConfigError for one that Whet
    sets itself."""
    fields: dict[str, Any] = {}
    for alias, extra in model.extra.items():
        if model.aliases.get(alias, alias) == name:
            fields |= extra
    if own := sorted(_OWN_FIELDS.intersection(fields)):
        raise ConfigError(
            f"model.extra can't set {', '.join(own)} for {name}: Whet fills these in itself",
            hint="whet config why model.extra",
        )
    return fields


def _recall(memory: Path, wire: WireFormat, wiring: Wiring, info: ModelInfo) -> None:
    """Use the dialect that was learned for a server, and store what is learned from now on."""
    key = wiring.memory_key = f"{wire} {strip_credentials(wiring.http.base_url)} {info.model}"

    def keep(dialect: ServerDialect, cuts: ToolCuts) -> None:
        from whet.providers.dialect_memory import note_dialect  # noqa: PLC0415 only after a refusal

        note_dialect(memory, key, dialect, cuts, datetime.now(UTC).date())

    wiring.keep = keep
    if not memory.exists():
        return
    from whet.providers.dialect_memory import read_dialect  # noqa: PLC0415 most homes have learned nothing

    learned = read_dialect(memory, key, datetime.now(UTC).date())
    if learned is not None:
        wiring.codec = _codec(wire, learned.dialect, info)
        wiring.cuts = learned.cuts


def set_judge(provider: Provider, judge: FailureJudge | None) -> Provider:
    """Set the judge that classifies failures of our own providers, for links opened from now on. Returns the
    provider."""
    if isinstance(provider, ServerProvider):
        provider.judge = judge
    elif judge is not None:
        from whet.providers.fallback import FallbackProvider  # noqa: PLC0415 as above

        if isinstance(provider, FallbackProvider):
            set_judge(provider.first, judge)
            set_judge(provider.second, judge)
    return provider


async def learn_windows(provider: Provider) -> None:
    """Ask local servers for the actual windows of their models. Best effort."""
    if isinstance(provider, ServerProvider):
        await provider.probe_window()
        return
    from whet.providers.fallback import FallbackProvider  # noqa: PLC0415 as above

    if isinstance(provider, FallbackProvider):
        await learn_windows(provider.first)
        await learn_windows(provider.second)


def _server(model: ModelSettings) -> tuple[str, KnownServer]:
    server = SERVERS.get(model.provider)
    if server is not None:
        return model.provider, server
    if model.base_url:
        parts = split_http_url(model.base_url)
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


def wire_format(model: ModelSettings) -> WireFormat:
    """Return the wire format of requests to the model. Raises ConfigError if its server is not known."""
    return _format(model, _server(model)[1])


def _format(model: ModelSettings, server: KnownServer) -> WireFormat:
    if model.format != "auto":
        return model.format
    # Few of the servers that imitate OpenAI's at another address offer Responses.
    if server.format == "responses" and model.base_url:
        return "chat_completions"
    return server.format


def _codec(wire: WireFormat, dialect: ServerDialect, info: ModelInfo) -> WireCodec:
    # A codec is the largest part of a provider, and a process rarely uses more than one format.
    if wire == "anthropic_messages":
        from whet.providers.anthropic_messages import DEFAULT_MAX_TOKENS, AnthropicMessages  # noqa: PLC0415

        return AnthropicMessages(min(info.max_output_tokens, DEFAULT_MAX_TOKENS), dialect)
    if wire == "responses" or dialect.endpoint == "responses":
        from whet.providers.responses import ResponsesEncoder  # noqa: PLC0415

        return ResponsesEncoder(dialect)
    from whet.providers.chat_completions import ChatCompletions  # noqa: PLC0415

    return ChatCompletions(dialect)


def _keys(name: str, model: ModelSettings, secrets: Mapping[str, str]) -> tuple[Key, ...]:
    names = key_names(model)
    keys = find_keys(names, secrets)
    log.protect_keys([key.value for key in keys])
    missing = names or (() if model.base_url else list_withheld_names(model))
    if missing and not keys:
        raise ConfigError(
            f"no key for {name}", hint=f"set {' or '.join(missing)} in the environment or in .env"
        )
    return keys


def find_keys(names: Sequence[str], secrets: Mapping[str, str]) -> tuple[Key, ...]:
    """Return the keys of `names` and of NAME_2, NAME_3, ... in order, without empty and repeated values."""
    keys: dict[str, Key] = {}
    for name in names:
        number = 1
        while (value := secrets.get(name if number == 1 else f"{name}_{number}", "").strip()) or number == 1:
            if value:
                key = Key(name if number == 1 else f"{name}_{number}", value)
                _check(key)
                keys.setdefault(value, key)
            number += 1
    return tuple(keys.values())


def _check(key: Key) -> None:
    # The HTTP layer would complain later and quote the whole header, including the key.
    if not (key.value.isascii() and key.value.isprintable()) or " " in key.value:
        raise ConfigError(
            f"{key.name} holds characters that no key has",
            hint="copy the key again, without spaces around it",
        )
