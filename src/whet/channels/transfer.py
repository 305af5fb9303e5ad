"""Files for platforms: read from disk, and written as the form with one file that they take."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path

from whet.contract.channels import SendFailed


def form(fields: Mapping[str, str], name: str, file_name: str, data: bytes) -> tuple[bytes, str]:
    """Write fields and one file as multipart/form-data; gives the body and its content type."""
    mark = secrets.token_hex(16)
    parts = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode()
        for field, value in fields.items()
    ]
    shown = "".join(c if c.isprintable() and c not in '"\\' else "_" for c in file_name)
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="{name}"; filename="{shown}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = b"".join([*parts, head.encode(), data, f"\r\n--{mark}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={mark}"


async def read_file(path: str) -> bytes:
    """Read a file of ours that is to be sent. Raises SendFailed."""
    try:
        return await asyncio.to_thread(Path(path).read_bytes)
    except OSError as error:
        raise SendFailed(f"{Path(path).name}: {error.strerror}", is_final=True) from None
