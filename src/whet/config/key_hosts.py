"""Decide which server a key may be sent to.

A provider's key may be sent to that provider, any other key only to the server configured with it.

This is the only place that combines keys with addresses. A server's settings come from layers
(config.yaml, environment, flags), so an address from one layer could be combined with a key from another.
Three functions prevent this: `resolve_server` when settings are loaded, `derive_second_model` when a second
model inherits settings of the first, and `key_names` when a connection is made. Addresses are compared by
scheme, host and port, as the HTTP client reads them. This module sees only the names of variables, never the
keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from whet.config.model_servers import SERVERS
from whet.config.schema import (
    EmbeddingSettings,
    FallbackSettings,
    JudgeSettings,
    ModelSettings,
    ReviewSettings,
    SearchSettings,
    VoiceSettings,
)
from whet.contract.errors import ConfigError
from whet.contract.texts import PORTS, split_http_url

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CONFIG_FILE = 1  # the strength of config.yaml, see ServerBlock


class KeyServer(msgspec.Struct, frozen=True):
    """A provider's address and the variables that hold its keys. `keys` is empty if it needs none."""

    url: str
    keys: tuple[str, ...] = ()


KEY_SERVERS: dict[str, KeyServer] = {
    name: KeyServer(server.base_url, server.keys) for name, server in SERVERS.items()
}
SEARCH_SERVERS: dict[str, KeyServer] = {
    "brave": KeyServer("https://api.search.brave.com", ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY")),
    "tavily": KeyServer("https://api.tavily.com", ("TAVILY_API_KEY",)),
    "exa": KeyServer("https://api.exa.ai", ("EXA_API_KEY",)),
    "google": KeyServer("https://customsearch.googleapis.com", ("GOOGLE_SEARCH_API_KEY",)),
}
_ALL_SERVERS = {**KEY_SERVERS, **SEARCH_SERVERS}
_OWNERS = {key: server.url for server in _ALL_SERVERS.values() for key in server.keys}


def parse_origin(url: str) -> tuple[str, str, int] | None:
    """Return the scheme, host and port that the HTTP client connects to, or None for other URLs."""
    parts = split_http_url(url)
    if parts is None or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme]


def is_same_server(url: str, root: str) -> bool:
    """Return whether `url` has the host of `root` or a subdomain of it, and the same scheme and port.

    ws counts as http, wss as https. A platform's own files and sockets are on such hosts and need its token.
    """
    root_origin, url_origin = parse_origin(root), parse_origin(re.sub(r"^ws(s?)://", r"http\1://", url))
    if (
        root_origin is None
        or url_origin is None
        or (root_origin[0], root_origin[2]) != (url_origin[0], url_origin[2])
    ):
        return False
    return url_origin[1] == root_origin[1] or url_origin[1].endswith(f".{root_origin[1]}")


def is_loopback(url: str) -> bool:
    """Return whether a URL leads to this machine's loopback."""
    url_origin = parse_origin(url)
    if url_origin is None or url_origin[1] in _LOOPBACK:
        return url_origin is not None
    from whet.internet import canonical_host  # noqa: PLC0415 - most local servers are named as above

    host = canonical_host(url_origin[1].strip("[]"))
    return host in _LOOPBACK or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


def may_send(name: str, url: str) -> bool:
    """Return whether the key in the variable `name` may be sent to `url` although config.yaml does not pair
    them.

    A known provider's variables (NAME, NAME_2, NAME_3 ...) may be sent to that provider only. The result for
    any other variable is True: the caller ensures that it is configured for this server.
    """
    owner = _OWNERS.get(re.sub(r"_\d+$", "", name))
    return owner is None or parse_origin(owner) == parse_origin(url)


def split_names(text: str) -> tuple[str, ...]:
    """Return the variables in a comma-separated api_key_env."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def check_account(model: ModelSettings, name: str, origin: str = "") -> None:
    """Raise ConfigError if the model's provider has no account of this name. An empty name is valid."""
    names = model.accounts.get(model.provider, {})
    if name and name not in names:
        source = f" ({origin})" if origin else ""
        raise ConfigError(
            f"{model.provider or 'this server'} has no account {name!r}{source}",
            hint=f"one of {', '.join(names)}" if names else "model.accounts in config.yaml names accounts",
        )


def configured_names(model: ModelSettings) -> tuple[str, ...]:
    """Return the key variables in the settings: those of the selected account, else those of api_key_env."""
    account = model.accounts.get(model.provider, {}).get(model.account, "") if model.account else ""
    return split_names(account or model.api_key_env)


def key_names(model: ModelSettings) -> tuple[str, ...]:
    """Return the variables whose keys may be sent to the model's server.

    An address in the settings gets every variable in the settings: `resolve_server` and `derive_second_model`
    dropped those that must not be sent there.
    """
    server = KEY_SERVERS.get(model.provider, KeyServer(""))
    configured = configured_names(model)
    if configured and model.base_url:
        return configured
    address = model.base_url or server.url
    return tuple(name for name in configured or server.keys if may_send(name, address))


def find_search_server(search: SearchSettings) -> KeyServer:
    """Return a search engine's address, or "" if unknown, and the variables whose keys may be sent there."""
    server = SEARCH_SERVERS.get(search.provider, KeyServer(""))
    address = search.base_url or server.url
    configured = split_names(search.api_key_env)
    if configured and search.base_url:  # `resolve_server` dropped keys that must not be sent there
        return KeyServer(address, configured)
    return KeyServer(address, tuple(name for name in configured or server.keys if may_send(name, address)))


def server_key_names(server: VoiceSettings | EmbeddingSettings) -> tuple[str, ...]:
    """Return the variables whose keys may be sent to the server. Empty if the settings give no address."""
    return split_names(server.api_key_env) if server.base_url else ()


def list_withheld_names(model: ModelSettings) -> tuple[str, ...]:
    """Return the variables whose keys may not be sent to the server: of the settings, else the provider's."""
    sent = key_names(model)
    candidates = configured_names(model) or KEY_SERVERS.get(model.provider, KeyServer("")).keys
    return tuple(name for name in candidates if name not in sent)


def derive_second_model(
    model: ModelSettings, other: FallbackSettings | ReviewSettings | JudgeSettings
) -> ModelSettings:
    """Return the settings of a second model. Without a server of its own, it uses the first model's."""
    if other.provider or other.base_url:
        provider, base_url, wire_format = other.provider, other.base_url, other.format
        variables = other.api_key_env
    else:
        address = model.base_url or KEY_SERVERS.get(model.provider, KeyServer("")).url
        usable = ",".join(name for name in split_names(other.api_key_env) if may_send(name, address))
        provider, base_url = model.provider, model.base_url
        wire_format = other.format if other.format != "auto" else model.format
        variables = usable or model.api_key_env
    return msgspec.structs.replace(
        model,
        model=other.model,
        account=model.account if provider == model.provider and not other.api_key_env else "",
        provider=provider,
        base_url=base_url,
        format=wire_format,
        api_key_env=variables,
        window_tokens=0,
        max_output_tokens=0,
    )


class ServerBlock(msgspec.Struct, frozen=True):
    """The server settings of a section, each as a value and the strength of the layer that sets it.

    The strengths are 0 default, 1 config.yaml, 2 environment, 3 flag.
    """

    provider: tuple[str, int]
    base_url: tuple[str, int]
    format: tuple[str, int]
    api_key_env: tuple[str, int]

    @property
    def names_server(self) -> bool:
        """Whether the block names its server."""
        return bool(self.provider[0] or self.base_url[0])

    @property
    def address(self) -> str:
        """The server's address, or "" if unknown."""
        return self.base_url[0] or _ALL_SERVERS.get(self.provider[0], KeyServer("")).url

    @property
    def strength(self) -> int:
        """The strength of the setting that decides on the address."""
        return self.base_url[1] if self.base_url[0] else self.provider[1]


class ResolvedBlock(msgspec.Struct, frozen=True):
    """The result of `resolve_server`.

    `changed` has the new values of the fields that did not apply, by name. `note` is a notice for the person
    if a key is withheld, otherwise "".
    """

    block: ServerBlock
    changed: Mapping[str, str]
    note: str = ""


def resolve_server(section: str, raw_block: ServerBlock, first: ServerBlock | None = None) -> ResolvedBlock:
    """Use the server of the strongest layer that names one. Drop weaker settings and other servers' keys.

    `first` is the resolved block of the first model. Its server is used if `raw_block` names none.
    """
    block, dropped = _select_server(raw_block)
    server_block = block if block.names_server or first is None else first
    names = split_names(block.api_key_env[0])
    is_paired = block.base_url[0] and block.base_url[1] == block.api_key_env[1] == _CONFIG_FILE
    if block.api_key_env[1] < server_block.strength:
        usable: tuple[str, ...] = ()
    elif is_paired:
        usable = names
    else:
        usable = tuple(name for name in names if may_send(name, server_block.address))
    if usable != names:
        block = msgspec.structs.replace(block, api_key_env=(",".join(usable), server_block.strength))
        dropped["api_key_env"] = ",".join(usable)
    withheld = _find_withheld(raw_block, block, [name for name in names if name not in usable])
    note = _describe_withheld(section, server_block, withheld) if withheld and server_block.address else ""
    return ResolvedBlock(block, dropped, note)


def _select_server(raw_block: ServerBlock) -> tuple[ServerBlock, dict[str, str]]:
    """Drop the provider, address and format of layers weaker than the one that names the server.

    Returns the block and the new values of the dropped fields by name.
    """
    dropped: dict[str, str] = {}
    provider, base_url = raw_block.provider, raw_block.base_url
    if base_url[0] and provider[0] and base_url[1] > provider[1]:
        provider, dropped["provider"] = ("", base_url[1]), ""
    elif base_url[0] and provider[0] in _ALL_SERVERS and provider[1] > base_url[1]:
        base_url, dropped["base_url"] = ("", provider[1]), ""
    block = msgspec.structs.replace(raw_block, provider=provider, base_url=base_url)
    if raw_block.format[0] != "auto" and raw_block.format[1] < block.strength:
        block = msgspec.structs.replace(block, format=("auto", block.strength))
        dropped["format"] = "auto"
    return block, dropped


def _find_withheld(raw_block: ServerBlock, block: ServerBlock, names: Sequence[str]) -> tuple[str, ...]:
    """Return the withheld variables whose keys a person may expect to be sent."""
    if names:
        return tuple(names)
    if block.api_key_env[0]:
        return ()
    keys = _ALL_SERVERS.get(raw_block.provider[0], KeyServer("")).keys
    return tuple(key for key in keys if not may_send(key, block.address)) if block.base_url[0] else ()


def _describe_withheld(section: str, server_block: ServerBlock, withheld: Sequence[str]) -> str:
    origin = parse_origin(server_block.address)
    host = f"{origin[1]}:{origin[2]}" if origin else "this address"
    explanation = "belong to another server" if len(withheld) > 1 else "belongs to another server"
    return (
        f"no key is sent to {host}: {' and '.join(withheld)} {explanation}."
        f" To send a key there, set {section}.base_url and {section}.api_key_env, both in config.yaml"
        + ("; or for this run: --api-key-env NAME, a variable of its own" if section == "model" else "")
    )
