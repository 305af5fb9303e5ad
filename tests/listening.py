"""An asyncio server of a test's own, which leaves no connection behind; and a certificate for one."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from whet.web.listening import stop_accepting

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(
    handle: Handler, address: str = "127.0.0.1", *, trust: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Give the port; at the end every connection is broken off and its handler has ended.

    A transport that outlives its loop is reported by the collector in the middle of some later test.
    """
    open_now: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def watched(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now[writer] = asyncio.current_task()
        await handle(reader, writer)
        with suppress(OSError):
            await writer.wait_closed()
        del open_now[writer]  # ten thousand that are gone would take 150 MB

    server = await asyncio.start_server(watched, address, 0, ssl=trust)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_accepting(server)
        for _ in range(5):  # a connection that was taken just now gets its handler some rounds later
            await asyncio.sleep(0)
        for writer, task in open_now.items():
            writer.transport.abort()
            if task is not None:
                task.cancel()
        await asyncio.gather(*filter(None, open_now.values()), return_exceptions=True)
        async with asyncio.timeout(30):
            await _all_gone(server)


async def _all_gone(server: asyncio.Server) -> None:
    """Wait for connections that no handler knows: TLS was not agreed on, and the client hangs up."""
    if sys.version_info >= (3, 12):
        await server.wait_closed()
        return
    while vars(server)["_active_count"]:  # Python 3.11's wait_closed waits for nothing
        await asyncio.sleep(0.001)


def self_signed(folder: Path, name: str, *others: str) -> Path:
    """Write a certificate that nobody vouches for, its key first, and give the file."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in (name, *others)]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    return path
