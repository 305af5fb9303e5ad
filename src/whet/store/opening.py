"""Opens a home's store: its own file, or the team's database that `store.url` names."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from whet.clock import Clock
from whet.config.paths import Home, read_small
from whet.contract.errors import ConfigError
from whet.store.database import StateDatabase

_VARIABLE = "WHET_STORE_URL"
_SCHEMES = ("postgresql://", "postgres://")


def team_url(home: Home) -> tuple[str, float]:
    """Give the address of the team's database and how long its leases are; "" for the home's own file."""
    url = os.environ.get(_VARIABLE, "")
    # A file that does not name the scheme can't name a database: most homes need not be read twice.
    if not url and "postgres" not in (read_small(home.config) or ""):
        return "", 0.0
    from whet.config.load import load  # noqa: PLC0415 - brings YAML, 8 ms

    settings = load(home, environ=os.environ).settings.store
    if settings.url and not settings.url.startswith(_SCHEMES):
        raise ConfigError(
            "store.url is not the address of a PostgreSQL database",
            hint="write postgresql://user@host/database",
        )
    return settings.url, settings.lease_s


def open_store(home: Home, clock: Clock) -> StateDatabase:
    """Open the home's store. Raises StoreError, ConfigError."""
    url, lease_s = team_url(home)
    return open_team(url, lease_s) if url else StateDatabase.open(home.database, clock)


def open_team(url: str, lease_s: float) -> StateDatabase:
    """Open a team's database. Raises ConfigError where its driver is not installed, StoreError."""
    with needs_driver():
        from whet.store.team import TeamDatabase  # noqa: PLC0415 - brings psycopg, 60 ms, which is an extra

        return TeamDatabase.open_url(url, lease_s=lease_s)


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


def has_store(home: Home) -> bool:
    """Whether there may be anything stored: the home's file is there, or a team's database is named."""
    return home.database.exists() or bool(team_url(home)[0])
