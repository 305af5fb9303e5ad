"""Which server a key may go to: a provider's key to that provider, any other to the server it was named for.

The one place where a key meets an address. A server's settings stand in layers (config.yaml, environment,
flags), so an address from one layer could meet a key of another: `settle` keeps them apart when settings are
made, `beside` when a second model leaves out what the first one says, `key_names` when a connection is made.
Addresses are compared whole, as the HTTP client reads them: scheme, host and port. Knows no values of keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from whet.config.model_servers import SERVERS
from whet.config.schema import FallbackSettings, JudgeSettings, ModelSettings, ReviewSettings, SearchSettings
from whet.contract.texts import PORTS, parts_of

_LOOPBACK = ("localhost", "::1")


class KeyHome(msgspec.Struct, frozen=True):
    """Where a provider is, and the variables that hold its keys; none are needed where there are none."""

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


def origin(url: str) -> tuple[str, str, int] | None:
    """Give a URL's scheme, host and port as the HTTP client connects; None where it is no http(s) URL."""
    parts = parts_of(url)
    if parts is None or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, parts.port or PORTS[parts.scheme]


def is_theirs(url: str, root: str) -> bool:
    """Whether `url` leads to the server at `root` or to a subdomain of it, by the same scheme and port.

    A platform's own files and sockets are on such hosts, and want its token.
    """
    here, there = origin(root), origin(re.sub(r"^ws(s?)://", r"http\1://", url))
    if here is None or there is None or (here[0], here[2]) != (there[0], there[2]):
        return False
    return there[1] == here[1] or there[1].endswith(f".{here[1]}")


def is_this_machine(url: str) -> bool:
    """Whether a URL leads to this machine's loopback."""
    found = origin(url)
    return found is not None and (found[1] in _LOOPBACK or bool(re.fullmatch(r"127(\.\d{1,3}){3}", found[1])))


def goes_home(name: str, url: str) -> bool:
    """Whether the key in the variable `name` may go to `url` without being paired with it in config.yaml.

    NAME_2, NAME_3 ... are the provider's, too; a variable of nobody we know may go where it was named for.
    """
    owner = _OWNERS.get(re.sub(r"_\d+$", "", name))
    return owner is None or origin(owner) == origin(url)


def split_names(text: str) -> tuple[str, ...]:
    """Give the variables that a comma-separated api_key_env names."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def key_names(model: ModelSettings) -> tuple[str, ...]:
    """Give the variables whose keys may go to the model's server; empty where none may or none is needed.

    Where one block names both an address and keys, they are paired: `settle` and `beside` saw to that.
    """
    home = HOMES.get(model.provider, KeyHome(""))
    named = split_names(model.api_key_env)
    if named and model.base_url:
        return named
    address = model.base_url or home.url
    return tuple(name for name in named or home.keys if goes_home(name, address))


def search_server(search: SearchSettings) -> KeyHome:
    """Give where an engine is and the variables whose keys may go there; no address where none is known."""
    home = SEARCH_HOMES.get(search.provider, KeyHome(""))
    address = search.base_url or home.url
    named = split_names(search.api_key_env)
    if named and search.base_url:  # settings pair them only where one layer says both
        return KeyHome(address, named)
    return KeyHome(address, tuple(name for name in named or home.keys if goes_home(name, address)))


def withheld(model: ModelSettings) -> tuple[str, ...]:
    """Give the variables that would hold the provider's keys but must not go to this address."""
    sent = key_names(model)
    wanted = split_names(model.api_key_env) or HOMES.get(model.provider, KeyHome("")).keys
    return tuple(name for name in wanted if name not in sent)


def beside(model: ModelSettings, other: FallbackSettings | ReviewSettings | JudgeSettings) -> ModelSettings:
    """Give the settings of a second model: the first one's, where it has the same server."""
    if other.provider or other.base_url:
        server = (other.provider, other.base_url, other.format, other.api_key_env)
    else:
        address = model.base_url or HOMES.get(model.provider, KeyHome("")).url
        own = ",".join(name for name in split_names(other.api_key_env) if goes_home(name, address))
        wire = other.format if other.format != "auto" else model.format
        server = (model.provider, model.base_url, wire, own or model.api_key_env)
    return msgspec.structs.replace(
        model,
        model=other.model,
        provider=server[0],
        base_url=server[1],
        format=server[2],
        api_key_env=server[3],
        window_tokens=0,
        max_output_tokens=0,
    )


class Named(msgspec.Struct, frozen=True):
    """What one block says of its server, each with the strength of the layer that says it: 0 nobody, 1
    config.yaml, 2 the environment, 3 a flag."""

    provider: tuple[str, int]
    base_url: tuple[str, int]
    format: tuple[str, int]
    api_key_env: tuple[str, int]

    @property
    def names_server(self) -> bool:
        """Whether the block says where its server is."""
        return bool(self.provider[0] or self.base_url[0])

    @property
    def address(self) -> str:
        """The server's address; empty where it is not known."""
        return self.base_url[0] or _ALL_HOMES.get(self.provider[0], KeyHome("")).url

    @property
    def strength(self) -> int:
        """The strength of what decides on the address."""
        return self.base_url[1] if self.base_url[0] else self.provider[1]


class Settled(msgspec.Struct, frozen=True):
    """What becomes of a block: the fields that no longer count, by name, with their new values; and a line
    for the person where a key stays here."""

    block: Named
    changed: Mapping[str, str]
    note: str = ""


def settle(section: str, named: Named, first: Named | None = None) -> Settled:
    """Let the strongest layer that names a server decide on it alone, and drop the keys named for another.

    `first` is the settled block of the first model, whose server this one has where it names none.
    """
    block, dropped = _one_server(named)
    place = block if block.names_server or first is None else first
    names = split_names(block.api_key_env[0])
    is_paired = block.base_url[0] and block.base_url[1] == block.api_key_env[1] == 1
    if block.api_key_env[1] < place.strength:
        kept: tuple[str, ...] = ()
    elif is_paired:
        kept = names
    else:
        kept = tuple(name for name in names if goes_home(name, place.address))
    if kept != names:
        block = msgspec.structs.replace(block, api_key_env=(",".join(kept), place.strength))
        dropped["api_key_env"] = ",".join(kept)
    lost = _lost(named, block, [name for name in names if name not in kept])
    return Settled(block, dropped, _note(section, place, lost) if lost and place.address else "")


def _one_server(named: Named) -> tuple[Named, dict[str, str]]:
    """Drop the provider, address and format of weaker layers than the one that names the server."""
    dropped: dict[str, str] = {}
    provider, base_url = named.provider, named.base_url
    if base_url[0] and provider[0] and base_url[1] > provider[1]:
        provider, dropped["provider"] = ("", base_url[1]), ""
    elif base_url[0] and provider[0] in _ALL_HOMES and provider[1] > base_url[1]:
        base_url, dropped["base_url"] = ("", provider[1]), ""
    block = msgspec.structs.replace(named, provider=provider, base_url=base_url)
    if named.format[0] != "auto" and named.format[1] < block.strength:
        block = msgspec.structs.replace(block, format=("auto", block.strength))
        dropped["format"] = "auto"
    return block, dropped


def _lost(named: Named, block: Named, names: Sequence[str]) -> tuple[str, ...]:
    """Give the variables that somebody might think would be sent, and are not."""
    if names:
        return tuple(names)
    if block.api_key_env[0]:
        return ()
    keys = _ALL_HOMES.get(named.provider[0], KeyHome("")).keys
    return tuple(key for key in keys if not goes_home(key, block.address)) if block.base_url[0] else ()


def _note(section: str, place: Named, lost: Sequence[str]) -> str:
    where = origin(place.address)
    host = f"{where[1]}:{where[2]}" if where else "this address"
    whose = "belong to another server" if len(lost) > 1 else "belongs to another server"
    return (
        f"no key is sent to {host}: {' and '.join(lost)} {whose}."
        f" To send a key there, set {section}.base_url and {section}.api_key_env, both in config.yaml"
        + ("; or for this run: --api-key-env NAME, a variable of its own" if section == "model" else "")
    )
