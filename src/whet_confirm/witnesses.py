"""Stores the signed checkpoints elsewhere, at witnesses: files on another disk, webhooks of another machine.

A person who controls the database can't change a checkpoint at a witness. A start compares the files, an
auditor the others (`whet confirm audit verify --checkpoint`). If a witness is unavailable, the newest
checkpoint, which covers the earlier ones, is posted again as long as the service runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import httpx2
import msgspec

from whet.contract.errors import ConfigError
from whet.trust import context_for_url
from whet_confirm.watermark import last_mark

_TIMEOUT_S = 10.0
_logger = logging.getLogger("whet_confirm.witnesses")


class Witnesses(msgspec.Struct, frozen=True):
    """Files that checkpoints are appended to, and addresses that they are posted to."""

    files: tuple[Path, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> Witnesses:
        """Parse the command line's values. Raises ConfigError."""
        urls = tuple(argument for argument in arguments if argument.startswith(("http://", "https://")))
        others = [argument for argument in arguments if argument not in urls]
        if odd := [argument for argument in others if "://" in argument]:
            raise ConfigError(f"{odd[0]} is not a witness", hint="name a file, or an http or https address")
        return cls(tuple(Path(argument) for argument in others), urls)


def append(path: Path, lines: bytes) -> bool:
    """Append checkpoints to a file of mode 0600. Returns False, with a line in the log, if that fails."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(handle, "wb") as file:
            file.write(lines)
    except OSError as error:
        _logger.warning("can't write %s: %s", path, error.strerror)
        return False
    return True


class CheckpointFile:
    """One file of checkpoints. `size` is the log size of its last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        mark = last_mark(path)
        self.size: int = mark.size if mark else 0

    def add(self, rows: Sequence[dict[str, object]]) -> None:
        """Append the checkpoints that are not in the file."""
        new = [row for row in rows if int(str(row["size"])) > self.size]
        if new and append(self.path, b"".join(msgspec.json.encode(row) + b"\n" for row in new)):
            self.size = int(str(new[-1]["size"]))


class RemoteWitnesses:
    """Posts the newest checkpoint, and retries failed posts on the next call."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._sent_sizes = dict.fromkeys(urls, 0)

    async def send(self, row: dict[str, object]) -> None:
        """Post a checkpoint to every address that does not have it yet."""
        size = int(str(row["size"]))
        for url in [url for url, sent_size in self._sent_sizes.items() if sent_size < size]:
            try:
                async with httpx2.AsyncClient(
                    timeout=_TIMEOUT_S, verify=context_for_url(url), trust_env=False
                ) as client:
                    answer = await client.post(url, json={"type": "confirmation.checkpoint", "data": row})
            except (httpx2.HTTPError, ConfigError) as error:
                _logger.warning("witness %s can't be reached: %s", url, error)
                continue
            if answer.is_success:
                self._sent_sizes[url] = size
            else:
                _logger.warning("witness %s answered %d", url, answer.status_code)
