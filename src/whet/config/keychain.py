"""Read and store keys in the system's keyring. .env contains only a marker for such a key.

The package `keyring` is an extra. It is imported only when a keyring is used.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol, cast

from whet.config.paths import Home
from whet.contract.errors import ConfigError


class _Ring(Protocol):
    """The functions of the package that are used."""

    def get_password(self, service_name: str, username: str) -> str | None: ...

    def set_password(self, service_name: str, username: str, password: str) -> None: ...

    def delete_password(self, service_name: str, username: str) -> None: ...


def is_available() -> bool:
    """Return whether the extra is installed and this system has a usable keyring."""
    if find_spec("keyring") is None:
        return False
    import keyring  # noqa: PLC0415 - 100 ms, which only a login needs

    return float(getattr(keyring.get_keyring(), "priority", 0)) > 0


def store_key(home: Home, name: str, value: str) -> None:
    """Store a key of this home in the keyring. Raises ConfigError."""
    ring, exceptions = _open_ring()
    try:
        ring.set_password(_service_name(home), name, value)
    except exceptions as error:
        raise ConfigError(f"the keyring did not take {name}: {error}", hint="unlock it") from error


def delete_key(home: Home, name: str) -> None:
    """Delete a key of this home from the keyring, if it is there. Raises ConfigError."""
    ring, exceptions = _open_ring()
    try:
        if ring.get_password(_service_name(home), name) is not None:
            ring.delete_password(_service_name(home), name)
    except exceptions as error:
        problem = f"the keyring did not delete {name}: {error}"
        raise ConfigError(problem, hint="unlock it") from error


def read_key(home: Home, name: str) -> str:
    """Return a key of this home from the keyring. Raises ConfigError if it can't be read."""
    ring, exceptions = _open_ring()
    try:
        key_text = ring.get_password(_service_name(home), name)
    except exceptions as error:
        problem = f"{name} is in the keyring, which can't be read: {error}"
        raise ConfigError(problem, hint="unlock it") from error
    if not key_text:
        raise ConfigError(f"{name} is not in the keyring any more", hint=f"set it in {home.env}")
    return key_text


def _open_ring() -> tuple[_Ring, tuple[type[Exception], ...]]:
    """Return the keyring, and the exceptions that its failures raise. Raises ConfigError without the
    extra."""
    if find_spec("keyring") is None:
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ConfigError(
            "a key is in the system's keyring, and the extra for that is not installed",
            hint=install_command("keyring"),
        )
    import keyring  # noqa: PLC0415 - as above
    from keyring.errors import KeyringError  # noqa: PLC0415 - as above

    return cast("_Ring", keyring), (KeyringError, OSError, RuntimeError)


def _service_name(home: Home) -> str:
    return f"whet {home.root}"
