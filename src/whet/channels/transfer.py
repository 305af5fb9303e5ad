"""Files for platforms: read from disk, and encoded as a form."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from whet.beneath import open_beneath
from whet.contract.channels import FileBounds, Outgoing, SendFailed


def form(fields: Mapping[str, str], name: str, file_name: str, data: bytes) -> tuple[bytes, str]:
    """Encode fields and one file as multipart/form-data. Returns the body and its content type."""
    return encode_form(fields, {name: (file_name, data)})


def encode_form(fields: Mapping[str, str], files: Mapping[str, tuple[str, bytes]]) -> tuple[bytes, str]:
    """Encode fields and files, each with its name and contents, as multipart/form-data. Returns the body and
    its content type."""
    mark = secrets.token_hex(16)
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode()
        for field, value in fields.items()
    ]
    for field, (file_name, data) in files.items():
        safe_name = "".join(c if c.isprintable() and c not in '"\\' else "_" for c in file_name)
        head = (
            f'--{mark}\r\nContent-Disposition: form-data; name="{field}"; filename="{safe_name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        parts += [head.encode(), data, b"\r\n"]
    return b"".join([*parts, f"--{mark}--\r\n".encode()]), f"multipart/form-data; boundary={mark}"


async def read_files(message: Outgoing) -> list[tuple[str, bytes]]:
    """Read the files that go along with a message; return the name and contents of each. Raises SendFailed as
    `read_file` does."""
    files = [(message.file_name or Path(message.file).name, await read_file(message))]
    for path in message.more_files:
        files.append((Path(path).name, await read_file(message, path)))
    return files


async def read_file(message: Outgoing, path: str = "") -> bytes:
    """Read a file that goes along with a message, the first if `path` is empty. Raises SendFailed, also if a
    command has put something else in its place."""
    path = path or message.file
    try:
        return await asyncio.to_thread(_read, path, message.bounds)
    except OSError as error:
        raise SendFailed(f"{Path(path).name}: {error.strerror}", is_final=True) from None


def _read(path: str, bounds: FileBounds | None) -> bytes:
    if bounds is None:
        return Path(path).read_bytes()
    with open_beneath(bounds.folder, os.path.relpath(path, bounds.folder)) as file:
        data = file.read(bounds.max_bytes + 1)
    if len(data) > bounds.max_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data
