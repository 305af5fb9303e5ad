"""Files over HTTP: a form with one file, as platforms take uploads, and a download that stops in time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

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


async def download(
    client: httpx2.AsyncClient, url: str, most_bytes: int, headers: Mapping[str, str] | None = None
) -> bytes:
    """Get a file, stopping when it is larger than `most_bytes`. Raises SendFailed, without the address: it
    may hold a token."""
    host = urlsplit(url).hostname
    data = bytearray()
    try:
        async with client.stream("GET", url, headers=dict(headers or {}), timeout=60.0) as response:
            if response.status_code != 200:
                raise SendFailed(f"{host} answered {response.status_code}", is_final=True)
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > most_bytes:
                    raise SendFailed(f"it is larger than {most_bytes // 1_000_000} MB", is_final=True)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise SendFailed(f"{host} could not be reached ({type(error).__name__})") from None
    return bytes(data)
