"""Lock a channel's tokens, so that only one gateway on this machine uses them.

The lock is a file in the home, which the system releases when the process ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from whet.contract.errors import WhetError


class TokenLock:
    """A lock that lasts until `release`, or until the object is garbage collected."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @classmethod
    def take(cls, folder: Path, channel: str, secrets: Sequence[str]) -> TokenLock:
        """Lock a channel's tokens. Raises WhetError if another process on this machine holds them."""
        path = folder / f"{_name(secrets)}.lock"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise WhetError(
                f"channel {channel}: another gateway (process {holder}) uses this token",
                hint="one gateway for a token; stop the other one, or make another bot",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        return cls(file)

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def holder(folder: Path, secrets: Sequence[str]) -> int | None:
    """Return the process id of the holder of a channel's tokens (0 if unknown), or None if they are not
    locked."""
    path = folder / f"{_name(secrets)}.lock"
    try:
        with path.open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                text = file.read().strip()
                return int(text) if text.isdecimal() else 0
    except OSError:
        return None
    return None


def _name(secrets: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(secrets).encode()).hexdigest()[:32]
