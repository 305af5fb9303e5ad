"""Where everything of one home lives.

`WHET_HOME` (default ~/.whet); a profile is its own home below it. This module makes no folder except
through `ensure`.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from whet.contract.errors import ConfigError, StoreUnwritable


class Home(msgspec.Struct, frozen=True):
    """The folder of one profile and the files in it."""

    root: Path

    @property
    def config(self) -> Path:
        """Settings."""
        return self.root / "config.yaml"

    @property
    def env(self) -> Path:
        """Secrets, mode 0600."""
        return self.root / ".env"

    @property
    def database(self) -> Path:
        """Sessions, messages, jobs."""
        return self.root / "state.db"

    @property
    def memories(self) -> Path:
        """MEMORY.md and USER.md."""
        return self.root / "memories"

    @property
    def skills(self) -> Path:
        """Skills, a folder each."""
        return self.root / "skills"

    @property
    def people(self) -> Path:
        """Memory and skills of people other than the owner, a folder each."""
        return self.root / "people"

    @property
    def warm(self) -> Path:
        """Templates of warm sessions."""
        return self.root / "warm"

    @property
    def gateway(self) -> Path:
        """Chat platforms, and who is who on them."""
        return self.root / "gateway.toml"

    @property
    def logs(self) -> Path:
        """The log folder."""
        return self.root / "logs"

    @property
    def history(self) -> Path:
        """What was typed in the chat, for the arrow keys."""
        return self.root / "history"

    def ensure(self) -> None:
        """Make the home, readable by its owner only. Raises StoreUnwritable."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreUnwritable(
                f"can't make the home folder {self.root}: {error.strerror}",
                hint="set WHET_HOME to a folder that you can write",
            ) from error


def find_home(profile: str = "") -> Home:
    """Give the home from WHET_HOME and the profile's name; nothing is made."""
    root = Path(os.environ.get("WHET_HOME") or "~/.whet").expanduser().absolute()
    if not profile:
        return Home(root)
    if not profile.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"profile name {profile!r} is not usable", hint="letters, digits, - and _ only")
    return Home(root / "profiles" / profile)
