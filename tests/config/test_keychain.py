"""Keys in the system's keyring: .env names them, the keyring has them, and what can't be had is said."""

from __future__ import annotations

from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from whet.config import secrets
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.log import mask

KEY = "or-v1-0123456789abcdef"


class Ring(KeyringBackend):
    """A keyring in memory; it can be locked."""

    priority = 5  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.is_locked:
            raise KeyringLocked("it is locked")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.is_locked:
            raise KeyringLocked("it is locked")
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def ring() -> Ring:
    return Ring()


def test_a_key_is_kept_in_the_keyring_and_read_from_there(tmp_path: Path, ring: Ring) -> None:
    before = keyring.get_keyring()
    home, other = Home(tmp_path / "a"), Home(tmp_path / "b")
    keyring.set_keyring(ring)
    try:
        assert secrets.store_secret(home, "OPENROUTER_API_KEY", KEY) == "the system's keyring"
        assert home.env.read_text() == "OPENROUTER_API_KEY=keyring:\n"
        assert secrets.load_secrets(home, {}) == {"OPENROUTER_API_KEY": KEY}
        assert KEY not in mask(f"it is {KEY}")
        assert secrets.load_secrets(home, {"OPENROUTER_API_KEY": "mine"}) == {"OPENROUTER_API_KEY": "mine"}
        secrets.set_secret(other, "OPENROUTER_API_KEY", secrets.IN_KEYRING)  # each home has its own keys
        with pytest.raises(ConfigError, match="not in the keyring any more"):
            secrets.load_secrets(other, {})
        ring.is_locked = True
        with pytest.raises(ConfigError, match="can't be read: it is locked"):
            secrets.load_secrets(home, {})
        with pytest.raises(ConfigError, match="did not take"):
            secrets.store_secret(home, "OTHER_API_KEY", KEY)
        assert "OTHER" not in home.env.read_text()
        with pytest.raises(ConfigError, match="did not delete"):
            secrets.remove_secret(home, "OPENROUTER_API_KEY")
        ring.is_locked = False
        assert secrets.remove_secret(home, "OPENROUTER_API_KEY") and not ring.kept
        assert home.env.read_text() == "" and not secrets.remove_secret(home, "OPENROUTER_API_KEY")
    finally:
        keyring.set_keyring(before)


def test_without_a_keyring_a_key_is_kept_in_the_file(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert secrets.store_secret(home, "OPENROUTER_API_KEY", KEY) == str(home.env)
    assert secrets.load_secrets(home, {}) == {"OPENROUTER_API_KEY": KEY}
