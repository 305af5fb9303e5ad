"""Functions for a team's database that work without its driver, which is an extra."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator
from contextlib import contextmanager

from whet.contract.errors import ConfigError
from whet.late import late_pattern

_PASSWORD = late_pattern(r"(://[^:]*):(.*)@", re.DOTALL)
_UNESCAPED = late_pattern(r"[@/?#\s]")


def hide_password(url: str) -> str:
    """Return the address without its password, which may contain any characters, and without its query."""
    return _PASSWORD.sub(r"\1@", url).partition("?")[0]


def has_password(url: str) -> bool:
    """Return whether the address contains a password."""
    return "password=" in url or _PASSWORD.search(url) is not None


def is_ambiguous(url: str) -> bool:
    """Return whether the password has unescaped characters: the driver would take a part of it for another
    part of the address and show it in errors."""
    match = _PASSWORD.search(url)
    return match is not None and _UNESCAPED.search(match[2]) is not None


def lock_number(scope: str) -> int:
    """Return the number of the advisory lock for a scope (see `ScopedWrite`)."""
    return int.from_bytes(hashlib.blake2b(scope.encode(), digest_size=8).digest(), signed=True)


@contextmanager
def needs_driver() -> Generator[None]:
    """Turn a missing driver into a ConfigError that says how to install it."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "psycopg").startswith("psycopg"):
            raise
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ConfigError(
            "the driver for a team's database is not installed", hint=install_command("team")
        ) from error
