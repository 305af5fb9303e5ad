"""Keys in the system's keyring. .env contains a marker for such a key and no part of it.

The package `keyring` is an extra, imported only if a key is read from or stored in a keyring. If a key
can't be read, an error says so; an empty key is never returned.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol, cast

from whet.config.paths import Home
from whet.contract.errors import ConfigError


class _Ring(Protocol):
    """The part of the package that is used."""

    def get_password(self, service_name: str, username: str) -> str | None: ...

    def set_password(self, service_name: str, username: str, password: str) -> None: ...


def is_available() -> bool:
    """Return whether the extra is installed and this system has a usable keyring."""
    if find_spec("keyring") is None:
        return False
    import keyring  # noqa: PLC0415 - 100 ms, only where somebody logs in

    return float(getattr(keyring.get_keyring(), "priority", 0)) > 0


def store_key(home: Home, name: str, value: str) -> None:
    """Store a key of this home in the keyring. Raises ConfigError."""
    ring, fails = _open_ring()
    try:
        ring.set_password(_service(home), name, value)
    except fails as error:
        raise ConfigError(f"the keyring did not take {name}: {error}", hint="unlock it") from error


def read_key(home: Home, name: str) -> str:
    """Return a key of this home from the keyring. Raises ConfigError if it can't be read."""
    ring, fails = _open_ring()
    try:
        key_text = ring.get_password(_service(home), name)
    except fails as error:
        problem = f"{name} is in the keyring, which can't be read: {error}"
        raise ConfigError(problem, hint="unlock it") from error
    if not key_text:
        raise ConfigError(f"{name} is not in the keyring any more", hint=f"set it in {home.env}")
    return key_text


def _open_ring() -> tuple[_Ring, tuple[type[Exception], ...]]:
    """Return the keyring, and the exceptions that it raises when it fails."""
    if find_spec("keyring") is None:
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ConfigError(
            "a key is in the system's keyring, and the extra for that is not installed",
            hint=install_command("keyring"),
        )
    import keyring  # noqa: PLC0415 - as above
    from keyring.errors import KeyringError  # noqa: PLC0415 - as above

    return cast("_Ring", keyring), (KeyringError, OSError, RuntimeError)


def _service(home: Home) -> str:
    return f"whet {home.root}"
