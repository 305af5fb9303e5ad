"""Keys at foreign hosts: generated settings are loaded, and what each connection would send is read.

A case names providers, addresses (ports, case, dots, names before an @, look-alikes), keys and second models
in config.yaml, in the environment and on the command line at once. What may be sent is worked out here again,
from nothing but where each word stood: a known provider's key at its own address, or paired with the address
in one block of config.yaml; any other key where its own layer, or a weaker one, named the server.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from benchmarks.table import Row
from whet.config.key_hosts import derive_second_model
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import ModelSettings, Settings
from whet.contract.errors import ConfigError
from whet.providers.catalog import SERVERS
from whet.providers.connect import ServerProvider, connect_one

CONFIGURATIONS = 10_000
SECTIONS = ("model", "fallback", "review", "judge")
OWN = ("MY_KEY", "BOX_KEY")
SECRETS: dict[str, str] = {
    name: f"value-of-{name}"
    for server in SERVERS.values()
    for key in server.keys
    for name in (key, f"{key}_2")
} | {name: f"value-of-{name}" for name in OWN}
_OWNERS = {
    name: server.base_url for server in SERVERS.values() for key in server.keys for name in (key, f"{key}_2")
}
_STRANGE = (
    "http://127.0.0.1:9/v1",
    "https://host.example/v1",
    "https://{host}@evil.example/v1",
    "https://{host}:443@evil.example/v1",
    "https://user:{host}@evil.example:8443/v1",
    "https://{host}.evil.example/v1",
    "https://evil-{host}/v1",
    "https://x.{host}/v1",
    "https://{host}:8443/v1",
    "http://{host}/v1",
    "http://{host}:443/v1",
    "https://{host}./v1",
    "https://{host}\\@evil.example/v1",
    "https://evil.example/{host}/v1",
    "https://evil.example?{host}",
    "https://evil.example#{host}",
    "https://{host}%2eevil.example/v1",
    "https://\uff41{tail}/v1",
    "https://\u0430{tail}/v1",
)
_RIGHT = ("https://{host}/v1", "HTTPS://{upper}/v1", "https://{host}:443/v1", "https://{host}/other")


class Case(msgspec.Struct, frozen=True):
    """One configuration: the settings of each layer by key, weakest layer first."""

    file: dict[str, str]
    environment: dict[str, str]
    flags: dict[str, str]

    @property
    def layers(self) -> tuple[Mapping[str, str], ...]:
        """The three layers."""
        return self.file, self.environment, self.flags


class Sent(msgspec.Struct, frozen=True):
    """A key that a connection would send: the block it is for, the variable, and the address."""

    section: str
    name: str
    url: str


def generate(seed: int, count: int) -> Iterator[Case]:
    """Give `count` configurations, the same ones for a seed."""
    dice = random.Random(seed)
    for _ in range(count):
        yield Case(_layer(dice, SECTIONS, 0.55), _layer(dice, SECTIONS, 0.2), _layer(dice, ("model",), 0.3))


def _layer(dice: random.Random, sections: tuple[str, ...], share: float) -> dict[str, str]:
    found: dict[str, str] = {}
    for section in sections:
        choices = {
            "provider": lambda: dice.choice((*SERVERS, "anthropic", "openai", "mine")),
            "base_url": lambda: _address(dice),
            "api_key_env": lambda: dice.choice(
                (*OWN, *_OWNERS, "MY_KEY,OPENAI_API_KEY", "ANTHROPIC_API_KEY")
            ),
            "format": lambda: dice.choice(("auto", "anthropic_messages", "responses")),
            "model": lambda: "m",
        }
        found |= {f"{section}.{name}": make() for name, make in choices.items() if dice.random() < share}
    return found


def _address(dice: random.Random) -> str:
    host = dice.choice([url.split("/")[2] for url in _OWNERS.values()])
    form = dice.choice(_RIGHT) if dice.random() < 0.3 else dice.choice(_STRANGE)
    return form.format(host=host, upper=host.upper(), tail=host[1:])


def settings_of(case: Case, folder: Path) -> Settings:
    """Load a configuration as the program does. Raises ConfigError for one that it refuses."""
    home = Home(folder)
    lines: list[str] = []
    for section in SECTIONS:
        block = {k.partition(".")[2]: v for k, v in case.file.items() if k.startswith(section)}
        if block:
            lines += [f"{section}:", *(f'  {name}: "{_quoted(value)}"' for name, value in block.items())]
    home.config.write_text("\n".join(lines) + "\n", "utf-8")
    environ = {"WHET_" + key.replace(".", "_").upper(): value for key, value in case.environment.items()}
    return load(home, case.flags, environ=environ).settings


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def models_of(settings: Settings) -> Iterator[tuple[str, ModelSettings]]:
    """Give what each block connects to."""
    yield "model", settings.model
    if settings.fallback.model:
        yield "fallback", derive_second_model(settings.model, settings.fallback)
    if settings.review.model:
        yield "review", derive_second_model(settings.model, settings.review)
    if settings.judge.model:
        yield "judge", derive_second_model(settings.model, settings.judge)


def sent(settings: Settings) -> Iterator[Sent]:
    """Give every key that would go out, and where to, as the connections hold them."""
    for section, model in models_of(settings):
        try:
            provider = connect_one(model, SECRETS)
        except ConfigError:
            continue
        yield from _held(section, provider)


def _held(section: str, provider: ServerProvider) -> Iterator[Sent]:
    for key in provider.wiring.keys.keys:
        if key.value:
            yield Sent(section, key.name, provider.wiring.http.base_url)


def is_foreign(case: Case, one: Sent) -> bool:
    """Whether a key is where nobody sent it, worked out from the configuration alone."""
    named_at = max((at for at in _named(case, one)), default=None)
    place = _place(case, one.section)
    if one.name in _OWNERS:
        if _same(one.url, _OWNERS[one.name]):
            return False
        block, at = place
        paired = at == 0 and case.file.get(f"{block}.base_url") and _says(case, 0, block, one.name)
        return not paired
    return named_at is None or named_at < place[1]


def _named(case: Case, one: Sent) -> Iterator[int]:
    """Give the layers that name a variable for a block, or for the first model's, which it then shares."""
    blocks = {one.section, _place(case, one.section)[0]}
    for at in range(3):
        if any(_says(case, at, block, one.name) for block in blocks):
            yield at


def _says(case: Case, at: int, block: str, name: str) -> bool:
    said = case.layers[at].get(f"{block}.api_key_env", "").split(",")
    return name in said or re.sub(r"_\d+$", "", name) in said


def _place(case: Case, section: str) -> tuple[str, int]:
    """Give the block and the layer that say where a section's server is."""
    for block in (section, "model"):
        is_named = False
        for at in (2, 1, 0):
            said = case.layers[at]
            provider = "" if is_named else said.get(f"{block}.provider", "")
            is_named = is_named or bool(provider)
            # A name that nobody knows is no place, only what a server is called.
            if said.get(f"{block}.base_url") or provider in SERVERS:
                return block, at
    return "model", 0


def _same(url: str, other: str) -> bool:
    found = re.fullmatch(r"(?i)https://([a-z0-9.-]+)(?::443)?(/.*)?", url)
    return found is not None and found[1].lower() == other.split("/")[2]


def count_foreign(seed: int, count: int, folder: Path) -> tuple[int, int, list[tuple[Case, Sent]]]:
    """Give how many configurations loaded, how many keys went out, and those at a foreign host."""
    loaded, keys, foreign = 0, 0, list[tuple[Case, Sent]]()
    for case in generate(seed, count):
        try:
            settings = settings_of(case, folder)
        except ConfigError:
            continue
        loaded += 1
        for one in sent(settings):
            keys += 1
            if is_foreign(case, one):
                foreign.append((case, one))
    return loaded, keys, foreign


def run(_runs: int, _full: bool) -> list[Row]:
    """Count keys at foreign hosts in 10,000 generated configurations."""
    with tempfile.TemporaryDirectory() as folder:
        loaded, keys, foreign = count_foreign(1, CONFIGURATIONS, Path(folder))
    return [
        Row(
            "keys",
            f"keys at a foreign host in {CONFIGURATIONS:,} generated configurations",
            "0",
            f"{len(foreign)} ({loaded:,} load, {keys:,} keys at their own servers)",
            "-",
            not foreign and keys > 1_000,
            "python -m benchmarks keys",
        )
    ]
