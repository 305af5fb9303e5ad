"""Decide which server a key may be sent to: a provider's key to that provider, any other key only to the
server configured with it.

This is the only place that combines keys with addresses. A server's settings come from layers
(config.yaml, environment, flags), so an address from one layer could be combined with a key from another.
`settle` prevents that when settings are loaded, `derive_second_model` when a second model inherits
settings of the first, `key_names` when a connection is made. Addresses are compared as the HTTP client
reads them: scheme, host and port. This module knows no values of keys.
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


class KeyHome(msgspec.Struct, frozen=True):
    """A provider's address, and the variables that hold its keys; empty if it needs no key."""

    url: str
    keys: tuple[str, ...] = ()


HOMES: dict[str, KeyHome] = {name: KeyHome(server.base_url, server.keys) for name, server in SERVERS.items()}
SEARCH_HOMES: dict[str, KeyHome] = {
    "brave": KeyHome("https://api.search.brave.com", ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY")),
    "tavily": KeyHome("https://api.tavily.com", ("TAVILY_API_KEY",)),
    "exa": KeyHome("https://api.exa.ai", ("EXA_API_KEY",)),
    "google": KeyHome("https://customsearch.googleapis.com", ("GOOGLE_SEARCH_API_KEY",)),
}
_ALL_HOMES = {**HOMES, **SEARCH_HOMES}
_OWNERS = {key: home.url for home in _ALL_HOMES.values() for key in home.keys}


def parse_origin(url: str) -> tuple[str, str, int] | None:
    """Return the scheme, host and port that the HTTP client connects to, or None for other URLs."""
    parts = split_http_url(url)
    if parts is None or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme]


def is_same_server(url: str, root: str) -> bool:
    """Return whether `url` leads to the server at `root` or to a subdomain of it, with the same scheme and
    port.

    A platform's own files and sockets are on such hosts and need its token.
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


def belongs_to_provider(name: str, url: str) -> bool:
    """Return whether the key in the variable `name` may be sent to `url` without being paired with it in
    config.yaml.

    NAME_2, NAME_3 ... belong to the provider too. A variable that belongs to no known provider may be sent
    to the server configured with it.
    """
    owner = _OWNERS.get(re.sub(r"_\d+$", "", name))
    return owner is None or parse_origin(owner) == parse_origin(url)


def split_names(text: str) -> tuple[str, ...]:
    """Return the variables in a comma-separated api_key_env."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def check_account(model: ModelSettings, name: str, origin: str = "") -> None:
    """Raise ConfigError if the model's provider has no account of this name; "" is the one without a name."""
    names = model.accounts.get(model.provider, {})
    if name and name not in names:
        source = f" ({origin})" if origin else ""
        raise ConfigError(
            f"{model.provider or 'this server'} has no account {name!r}{source}",
            hint=f"one of {', '.join(names)}" if names else "model.accounts in config.yaml names accounts",
        )


def configured_names(model: ModelSettings) -> tuple[str, ...]:
    """Return the variables that the settings name: those of the chosen account, else those of api_key_env."""
    account = model.accounts.get(model.provider, {}).get(model.account, "") if model.account else ""
    return split_names(account or model.api_key_env)


def key_names(model: ModelSettings) -> tuple[str, ...]:
    """Return the variables whose keys may be sent to the model's server, or an empty tuple if none may or
    none is needed.

    If one block names both an address and keys, they are paired: `settle` and `derive_second_model` ensure
    that.
    """
    home = HOMES.get(model.provider, KeyHome(""))
    configured = configured_names(model)
    if configured and model.base_url:
        return configured
    address = model.base_url or home.url
    return tuple(name for name in configured or home.keys if belongs_to_provider(name, address))


def find_search_server(search: SearchSettings) -> KeyHome:
    """Return a search engine's address, empty if unknown, and the variables whose keys may be sent there."""
    home = SEARCH_HOMES.get(search.provider, KeyHome(""))
    address = search.base_url or home.url
    configured = split_names(search.api_key_env)
    if configured and search.base_url:  # settings are paired only if one layer sets both
        return KeyHome(address, configured)
    return KeyHome(
        address, tuple(name for name in configured or home.keys if belongs_to_provider(name, address))
    )


def server_key_names(server: VoiceSettings | EmbeddingSettings) -> tuple[str, ...]:
    """Return the variables whose keys may be sent to a server that is set with its address only."""
    return split_names(server.api_key_env) if server.base_url else ()


def list_withheld_names(model: ModelSettings) -> tuple[str, ...]:
    """Return the variables that would hold the provider's keys but must not be sent to this address."""
    sent = key_names(model)
    candidates = configured_names(model) or HOMES.get(model.provider, KeyHome("")).keys
    return tuple(name for name in candidates if name not in sent)


def derive_second_model(
    model: ModelSettings, other: FallbackSettings | ReviewSettings | JudgeSettings
) -> ModelSettings:
    """Return the settings of a second model. It inherits the first one's server if it names none."""
    if other.provider or other.base_url:
        server = (other.provider, other.base_url, other.format, other.api_key_env)
    else:
        address = model.base_url or HOMES.get(model.provider, KeyHome("")).url
        usable = ",".join(
            name for name in split_names(other.api_key_env) if belongs_to_provider(name, address)
        )
        wire = other.format if other.format != "auto" else model.format
        server = (model.provider, model.base_url, wire, usable or model.api_key_env)
    return msgspec.structs.replace(
        model,
        model=other.model,
        account=model.account if server[0] == model.provider and not other.api_key_env else "",
        provider=server[0],
        base_url=server[1],
        format=server[2],
        api_key_env=server[3],
        window_tokens=0,
        max_output_tokens=0,
    )


class ServerBlock(msgspec.Struct, frozen=True):
    """A block's settings of its server, each with the strength of the layer that sets it: 0 default, 1
    config.yaml, 2 the environment, 3 a flag."""

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
        """The server's address, empty if unknown."""
        return self.base_url[0] or _ALL_HOMES.get(self.provider[0], KeyHome("")).url

    @property
    def strength(self) -> int:
        """The strength of the setting that decides on the address."""
        return self.base_url[1] if self.base_url[0] else self.provider[1]


class SettledBlock(msgspec.Struct, frozen=True):
    """The result of settling a block: the fields that no longer apply, by name, with their new values, and a
    notice for the person if a key is withheld."""

    block: ServerBlock
    changed: Mapping[str, str]
    note: str = ""


def settle(section: str, raw_block: ServerBlock, first: ServerBlock | None = None) -> SettledBlock:
    """Let the strongest layer that names a server decide on it alone, and drop keys that belong to another
    server.

    `first` is the settled block of the first model, whose server this one inherits if it names none.
    """
    block, dropped = _select_server(raw_block)
    server_block = block if block.names_server or first is None else first
    names = split_names(block.api_key_env[0])
    is_paired = block.base_url[0] and block.base_url[1] == block.api_key_env[1] == 1
    if block.api_key_env[1] < server_block.strength:
        usable: tuple[str, ...] = ()
    elif is_paired:
        usable = names
    else:
        usable = tuple(name for name in names if belongs_to_provider(name, server_block.address))
    if usable != names:
        block = msgspec.structs.replace(block, api_key_env=(",".join(usable), server_block.strength))
        dropped["api_key_env"] = ",".join(usable)
    lost = _find_unsent(raw_block, block, [name for name in names if name not in usable])
    return SettledBlock(
        block, dropped, _unsent_notice(section, server_block, lost) if lost and server_block.address else ""
    )


def _select_server(raw_block: ServerBlock) -> tuple[ServerBlock, dict[str, str]]:
    """Drop the provider, address and format of layers weaker than the one that names the server."""
    dropped: dict[str, str] = {}
    provider, base_url = raw_block.provider, raw_block.base_url
    if base_url[0] and provider[0] and base_url[1] > provider[1]:
        provider, dropped["provider"] = ("", base_url[1]), ""
    elif base_url[0] and provider[0] in _ALL_HOMES and provider[1] > base_url[1]:
        base_url, dropped["base_url"] = ("", provider[1]), ""
    block = msgspec.structs.replace(raw_block, provider=provider, base_url=base_url)
    if raw_block.format[0] != "auto" and raw_block.format[1] < block.strength:
        block = msgspec.structs.replace(block, format=("auto", block.strength))
        dropped["format"] = "auto"
    return block, dropped


def _find_unsent(raw_block: ServerBlock, block: ServerBlock, names: Sequence[str]) -> tuple[str, ...]:
    """Return the variables that a person might expect to be sent although they are not."""
    if names:
        return tuple(names)
    if block.api_key_env[0]:
        return ()
    keys = _ALL_HOMES.get(raw_block.provider[0], KeyHome("")).keys
    return (
        tuple(key for key in keys if not belongs_to_provider(key, block.address)) if block.base_url[0] else ()
    )


def _unsent_notice(section: str, server_block: ServerBlock, lost: Sequence[str]) -> str:
    where = parse_origin(server_block.address)
    host = f"{where[1]}:{where[2]}" if where else "this address"
    explanation = "belong to another server" if len(lost) > 1 else "belongs to another server"
    return (
        f"no key is sent to {host}: {' and '.join(lost)} {explanation}."
        f" To send a key there, set {section}.base_url and {section}.api_key_env, both in config.yaml"
        + ("; or for this run: --api-key-env NAME, a variable of its own" if section == "model" else "")
    )
