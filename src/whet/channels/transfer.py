"""Files for platforms: read from disk, and encoded as a form with one file."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from whet.beneath import open_beneath
from whet.contract.channels import Outgoing, SendFailed


def form(fields: Mapping[str, str], name: str, file_name: str, data: bytes) -> tuple[bytes, str]:
    """Encode fields and one file as multipart/form-data. Returns the body and its content type."""
    mark = secrets.token_hex(16)
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode()
        for field, value in fields.items()
    ]
    safe_name = "".join(c if c.isprintable() and c not in '"\\' else "_" for c in file_name)
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"; filename="{safe_name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = b"".join([*parts, head.encode(), data, f"\r\n--{mark}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={mark}"


async def read_file(message: Outgoing) -> bytes:
    """Read the file that goes along with a message. Raises SendFailed, also if a command has put something
    else in its place."""
    try:
        return await asyncio.to_thread(_read, message)
    except OSError as error:
        raise SendFailed(f"{Path(message.file).name}: {error.strerror}", is_final=True) from None


def _read(message: Outgoing) -> bytes:
    bounds = message.bounds
    if bounds is None:
        return Path(message.file).read_bytes()
    with open_beneath(bounds.folder, os.path.relpath(message.file, bounds.folder)) as file:
        data = file.read(bounds.most_bytes + 1)
    if len(data) > bounds.most_bytes:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), message.file)
    return data
