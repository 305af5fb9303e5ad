"""Unpack what other programs compressed with zstd, by the installed program of that name."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from typing import IO

from whet.searchpath import find_trusted_program

_TIMEOUT_S = 60
_OPTIONS = ("-dc", "--memory=128MB")


def unpack_bytes(data: bytes) -> bytes | None:
    """Return the contents of zstd frames, or None if zstd is missing or can't read them."""
    command = _find_command()
    if command is None:
        return None
    try:
        process = subprocess.run(command, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if process.returncode else process.stdout


@contextmanager
def unpack_file(file: IO[bytes]) -> Generator[IO[bytes]]:
    """Open the unpacked contents of a file. Raises OSError if zstd is missing, or if the file is damaged
    and was read to its end."""
    command = _find_command()
    if command is None:
        raise OSError(errno.ENOENT, "it is compressed; install zstd, then import again")
    with subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
            is_at_end = not process.stdout.read(1)
        except BaseException:
            process.kill()
            raise
        if not is_at_end:
            process.kill()
    if is_at_end and process.returncode:
        raise OSError(errno.EIO, "its compressed contents are damaged")


def _find_command() -> list[str] | None:
    """Return the command that unpacks its input to its output, or None if zstd is not installed."""
    program = find_trusted_program("zstd", os.getcwd())
    return [program, *_OPTIONS] if program else None
