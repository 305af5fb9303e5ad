"""Read the files of outgoing messages, and encode them as multipart forms."""

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
    """Encode fields and files (name, contents) as multipart/form-data. Returns the body and its content
    type."""
    boundary = secrets.token_hex(16)
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode()
        for field, value in fields.items()
    ]
    for field, (file_name, data) in files.items():
        safe_name = "".join(c if c.isprintable() and c not in '"\\' else "_" for c in file_name)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{safe_name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        parts += [head.encode(), data, b"\r\n"]
    return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


async def read_files(message: Outgoing) -> list[tuple[str, bytes]]:
    """Return the name and the contents of each file of a message. Raises SendFailed as `read_file` does."""
    files = [(message.file_name or Path(message.file).name, await read_file(message))]
    for path in message.more_files:
        files.append((Path(path).name, await read_file(message, path)))
    return files


async def read_file(message: Outgoing, path: str = "") -> bytes:
    """Return the contents of a message's file, of the first one if `path` is "".

    Raises SendFailed, also if a command has since replaced the file by a link out of its folder.
    """
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
