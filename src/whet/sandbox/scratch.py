"""The private folders of one session's commands: /tmp, the home and shared memory as they see them.

They outlive a jail, so that what a command left in /tmp is there for the next one although an opening gave it
another jail in between. Removed by `close`.
"""

from __future__ import annotations

from pathlib import Path


class Scratch:
    """A folder of its own on disk, for its owner only."""

    def __init__(self) -> None:
        from tempfile import mkdtemp  # noqa: PLC0415  4 ms, and for nothing where commands run unconfined

        self.root: Path = Path(mkdtemp(prefix="whet-jail-")).resolve()
        for folder in (self.tmp, self.home, self.memory, self.nothing):
            folder.mkdir(mode=0o700)
        self.tmp.chmod(0o1777)

    @property
    def tmp(self) -> Path:
        """What is /tmp and /var/tmp inside."""
        return self.root / "tmp"

    @property
    def home(self) -> Path:
        """What is the home inside."""
        return self.root / "home"

    @property
    def memory(self) -> Path:
        """What is /dev/shm inside."""
        return self.root / "shm"

    @property
    def nothing(self) -> Path:
        """What stands in place of folders that are not there inside; it holds mount points at most."""
        return self.root / "none"

    def close(self) -> None:
        """Remove everything."""
        from shutil import rmtree  # noqa: PLC0415  as above

        rmtree(self.root, ignore_errors=True)
