"""Addresses of files that a message names: only the platform's own and public ones are read."""

from __future__ import annotations

import asyncio

import pytest

from whet.contract.channels import SendFailed
from whet.vendors.http import VendorHttp

ATTEMPTS = [
    "http://127.0.0.1:{port}/secret", "http://localhost:{port}/secret", "https://localhost:{port}/secret",
    "https://127.0.0.1:{port}/secret", "https://[::1]:{port}/secret",
    "https://[::ffff:127.0.0.1]:{port}/secret", "https://0.0.0.0:{port}/secret",
    "https://127.1:{port}/secret", "https://2130706433:{port}/secret",
    "https://169.254.169.254/latest/meta-data/", "https://100.100.100.200/", "https://10.0.0.1/x",
    "https://192.168.0.1/x", "https://[fe80::1]/x", "http://93.184.216.34/x",
    "https://discord.com@127.0.0.1:{port}/secret", "https://discord.com.localhost:{port}/secret",
    "https://me:secret@93.184.216.34/x", "file:///etc/passwd", "ftp://93.184.216.34/x",
    "//127.0.0.1:{port}/secret", "https://", "https://[bad/x", "",
]  # fmt: skip


async def test_a_named_file_reaches_nothing_inside() -> None:
    connections: list[bytes] = []
    effects: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(await reader.read(1_000))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    http = VendorHttp("Discord", "https://discord.com/api/v10", {"authorization": "Bot secret"})
    async with server:
        for address in ATTEMPTS:
            with pytest.raises(SendFailed):
                await http.download(address.format(port=port), 1_000)
            if connections:
                effects.append(address)
                connections.clear()
    await http.aclose()
    assert effects == []
