"""Read transcripts with one JSON object per line.

Unreadable lines are counted and skipped: a killed program leaves a torn line, a newer version writes unknown
types, and a line may be too long.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Generic, TypeVar

import msgspec

from whet.contract.texts import NOT_JSON, replace_escaped_surrogates
from whet.moving.zstd import unpack_file

T = TypeVar("T")
MAX_BYTES = 64_000_000
PACKED_SUFFIX = ".zst"


class JsonLines(Generic[T]):
    """The readable lines of a file as values, unpacked if its name ends with `PACKED_SUFFIX`. `bad` counts
    the others."""

    def __init__(self, path: Path, decoder: msgspec.json.Decoder[T], max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._decoder = decoder
        self._max_bytes = max_bytes
        self.bad: int = 0

    def __iter__(self) -> Iterator[T]:
        with _open(self._path) as file:
            while raw := file.readline(self._max_bytes):
                if len(raw) == self._max_bytes and not raw.endswith(b"\n"):
                    self.bad += 1
                    while (chunk := file.readline(self._max_bytes)) and not chunk.endswith(b"\n"):
                        pass
                    continue
                try:
                    value = _decode(raw, self._decoder)
                except NOT_JSON:
                    self.bad += bool(raw.strip())
                    yield from self._decode_around_nuls(raw)
                else:
                    yield value

    def _decode_around_nuls(self, raw: bytes) -> Iterator[T]:
        """Yield the whole objects beside the NULs that a power cut leaves in place of the last writes."""
        for part in re.split(rb"\0+", raw) if b"\0" in raw else ():
            with suppress(*NOT_JSON):
                yield _decode(part, self._decoder)


def _decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return decoder.decode(replace_escaped_surrogates(raw))


def read_json_file(path: Path, decoder: msgspec.json.Decoder[T], max_bytes: int = MAX_BYTES) -> T | None:
    """Return the value of a file that is one JSON text, or None if it is not, or too long."""
    with _open(path) as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        return None
    try:
        return _decode(raw, decoder)
    except NOT_JSON:
        return None


@contextmanager
def _open(path: Path) -> Generator[IO[bytes]]:
    with open(path, "rb", opener=_open_regular) as file:
        if path.suffix != PACKED_SUFFIX:
            yield file
            return
        with unpack_file(file) as unpacked:
            yield unpacked


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file. Raises OSError for others, because a pipe would block the import forever."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a plain file")
