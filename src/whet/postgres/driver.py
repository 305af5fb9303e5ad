"""What is said of a team's database without its driver, which is an extra."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from whet.contract.errors import ConfigError

_PASSWORD = re.compile(r"(://[^:]*):(.*)@", re.DOTALL)
_UNWRITTEN = re.compile(r"[@/?#\s]")


def shown(url: str) -> str:
    """Give the address without its password, whatever characters that has."""
    return _PASSWORD.sub(r"\1@", url).partition("?")[0]


def has_password(url: str) -> bool:
    """Whether a password stands in the address."""
    return "password=" in url or _PASSWORD.search(url) is not None


def is_ambiguous(url: str) -> bool:
    """Whether the driver takes a part of the password for something else, and would show it."""
    found = _PASSWORD.search(url)
    return found is not None and _UNWRITTEN.search(found[2]) is not None


@contextmanager
def needs_driver() -> Generator[None]:
    """Say what to install where the driver is missing. Raises ConfigError."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "psycopg").startswith("psycopg"):
            raise
        raise ConfigError(
            "the driver for a team's database is not installed", hint="pip install 'whet-agent[team]'"
        ) from error
