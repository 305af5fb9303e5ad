"""Keys in the system's own keyring: .env says that they are there, and holds nothing of them.

The package `keyring` is an extra, and is imported only where a key is in a keyring or is put there. A key
that can't be had from it is an error that says so, never an empty one.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol, cast

from whet.config.paths import Home
from whet.contract.errors import ConfigError


class _Ring(Protocol):
    """What is used of the package."""

    def get_password(self, service_name: str, username: str) -> str | None: ...

    def set_password(self, service_name: str, username: str, password: str) -> None: ...


def is_there() -> bool:
    """Whether the extra is installed and this system has a keyring that can keep something."""
    if find_spec("keyring") is None:
        return False
    import keyring  # noqa: PLC0415 - 100 ms, only where somebody logs in

    return float(getattr(keyring.get_keyring(), "priority", 0)) > 0


def put(home: Home, name: str, value: str) -> None:
    """Keep a key of this home in the keyring. Raises ConfigError."""
    ring, fails = _ring()
    try:
        ring.set_password(_service(home), name, value)
    except fails as error:
        raise ConfigError(f"the keyring did not take {name}: {error}", hint="unlock it") from error


def fetch(home: Home, name: str) -> str:
    """Give a key of this home from the keyring. Raises ConfigError where it can't be had."""
    ring, fails = _ring()
    try:
        found = ring.get_password(_service(home), name)
    except fails as error:
        problem = f"{name} is in the keyring, which can't be read: {error}"
        raise ConfigError(problem, hint="unlock it") from error
    if not found:
        raise ConfigError(f"{name} is not in the keyring any more", hint=f"set it in {home.env}")
    return found


def _ring() -> tuple[_Ring, tuple[type[Exception], ...]]:
    """Give the keyring, and what it raises where it fails."""
    if find_spec("keyring") is None:
        raise ConfigError(
            "a key is in the system's keyring, and the extra for that is not installed",
            hint="pip install 'whet-agent[keyring]'",
        )
    import keyring  # noqa: PLC0415 - as above
    from keyring.errors import KeyringError  # noqa: PLC0415 - as above

    return cast("_Ring", keyring), (KeyringError, OSError, RuntimeError)


def _service(home: Home) -> str:
    return f"whet {home.root}"
