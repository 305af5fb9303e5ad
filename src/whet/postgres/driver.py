"""What is said of a team's database without its driver, which is an extra."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from whet.contract.errors import ConfigError

PASSWORD = re.compile(r"(://[^:/@\s]*):[^@\s]*@")


def shown(url: str) -> str:
    """Give the address without its password."""
    return PASSWORD.sub(r"\1@", url.partition("?")[0])


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
