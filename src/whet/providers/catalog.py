"""Windows, output limits and prices of known model families. The servers are in config/model_servers.py.

`families.csv` holds windows, largest outputs and list prices, as read from the vendors' pages on 2026-11-21
(USD per million tokens, the base tier). An uncertain price is left out, and a model that is newer than the
table gets defaults. This module imports little, because every command that needs a model loads it.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path

import msgspec

from whet.config.model_servers import SERVERS as SERVERS
from whet.config.model_servers import KnownServer as KnownServer
from whet.config.paths import read_small
from whet.contract.errors import ConfigError
from whet.contract.protocols import ModelInfo

DEFAULT_WINDOW_TOKENS = 128_000
PRICES_AS_OF = "2026-11-21"


class Family(msgspec.Struct, frozen=True):
    """The limits and prices of models with the same prefix in their names.

    `prices` are in USD per million tokens, for input, output, cache read and cache write; None if unknown.
    """

    window_tokens: int
    max_output_tokens: int
    prices: tuple[float | None, ...]


_UNKNOWN = Family(DEFAULT_WINDOW_TOKENS, 8_192, (None,) * 4)
_FREE = (0.0,) * 4
# The families that a vendor itself serves, for which its list prices hold.
_VENDOR_FAMILIES = {"openai": ("gpt", "o3", "o4"), "anthropic": ("claude",), "deepseek": ("deepseek",)}


@cache
def families() -> dict[str, Family]:
    """Return the known families by the prefix of their models' names."""
    result: dict[str, Family] = {}
    for line in Path(__file__).with_name("families.csv").read_text("utf-8").splitlines()[1:]:
        name, window, output, *prices = line.split(",")
        price_values = tuple(float(price) if price else None for price in prices)
        result[name] = Family(int(window), int(output), price_values)
    return result


own_prices: dict[str, tuple[str, tuple[float | None, ...]]] = {}
_OWN_COLUMNS = "as_of,model,input_usd,output_usd,cache_read_usd,cache_write_usd"


def learn_prices(path: Path, today: str) -> None:
    """Load a home's own price table, rows of `as_of,model,input_usd,...` with the model as provider/prefix.

    For each model the newest row that is valid on `today` (ISO) is used. An empty price is unknown. Raises
    ConfigError if the table is invalid.
    """
    lines = (read_small(path) or "").splitlines()
    try:
        if lines[:1] != [_OWN_COLUMNS]:
            raise ValueError(f"its first line must be {_OWN_COLUMNS}")
        for line in filter(None, lines[1:]):
            day, name, *prices = (part.strip() for part in line.split(","))
            as_of = date.fromisoformat(day).isoformat()
            values = tuple(float(price) if price else None for price in prices)
            if len(values) != 4 or any(price is not None and price < 0 for price in values):
                raise ValueError(f"{line!r} does not have four prices")
            if own_prices.get(name, ("",))[0] <= as_of <= today:
                own_prices[name] = as_of, values
    except ValueError as error:
        raise ConfigError(
            f"{path} is not a price table: {error}", hint=f"first line: {_OWN_COLUMNS}"
        ) from error


def _find_own_prices(provider: str, model: str) -> tuple[float | None, ...] | None:
    full_name = f"{provider}/{model}"
    best = max((prefix for prefix in own_prices if full_name.startswith(prefix)), key=len, default="")
    return own_prices[best][1] if best else None


def describe_model(
    provider: str, model: str, *, window_tokens: int = 0, max_output_tokens: int = 0
) -> ModelInfo:
    """Return a model's limits and prices, from the family with the longest prefix of its name. Arguments that
    are not 0 take precedence.

    List prices apply only to the vendor's own server. A local server costs nothing.
    """
    server = SERVERS.get(provider)
    name = model.rpartition("/")[2].lower()
    name = name.replace(".", "-") if name.startswith("claude") else name
    family_name = max((prefix for prefix in families() if name.startswith(prefix)), key=len, default="")
    family = families().get(family_name, _UNKNOWN)
    prices = family.prices
    if server is not None and server.local:
        prices = _FREE
    elif not family_name.startswith(_VENDOR_FAMILIES.get(provider, ())):
        prices = _UNKNOWN.prices
    prices = _find_own_prices(provider, model) or prices
    return ModelInfo(
        provider=provider,
        model=model,
        window_tokens=window_tokens or family.window_tokens,
        max_output_tokens=max_output_tokens or family.max_output_tokens,
        input_usd_per_mtok=prices[0],
        output_usd_per_mtok=prices[1],
        cache_read_usd_per_mtok=prices[2],
        cache_write_usd_per_mtok=prices[3],
    )
