"""Witnesses behind certificates of a company's own."""

from __future__ import annotations

import asyncio
import ssl

from tests.listening import listening, self_signed
from whet_confirm.witnesses import RemoteWitnesses


async def test_a_witness_is_trusted_by_the_environments_certificate_and_by_no_other(
    tmp_path, monkeypatch, caplog
):
    certificate = self_signed(tmp_path, "localhost")
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(certificate)
    told: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        told.append(await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0])))
        writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        writer.close()

    async with listening(take, trust=trust) as port:
        witness = RemoteWitnesses([f"https://localhost:{port}/"])
        await witness.send({"size": 1})
        assert not told and "can't be reached" in caplog.text
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
        await witness.send({"size": 1})
        assert not told and "the certificates can't be read" in caplog.text
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        await witness.send({"size": 1})
        assert len(told) == 1
