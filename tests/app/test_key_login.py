"""The login at OpenRouter against a server that speaks its protocol, and a browser."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec
import pytest

from tests.listening import listening
from tests.support import let_pass
from whet.app.model_links.key_login import log_in
from whet.config.paths import Home
from whet.config.secrets import read_env
from whet.mcp.callback import LoginFailed

WAIT_S = 20.0


class Site:
    """Gives a key for the code that it made, to whoever knows the verifier."""

    def __init__(self, answer: bytes = b"", status: int = 200) -> None:
        self.challenge = ""
        self.answer, self.status = answer, status
        self.tries: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(x.split(":")[1]) for x in head.split("\r\n") if x.lower().startswith("content-length")
        )
        given = msgspec.json.decode(await reader.readexactly(length), type=dict[str, str])
        digest = hashlib.sha256(given["code_verifier"].encode()).digest()
        fits = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == self.challenge
        self.tries.append(head.split(" ")[1])
        good = fits and given["code"] == "c-1" and given["code_challenge_method"] == "S256"
        body = self.answer or (b'{"key":"sk-or-v1-0123456789"}' if good else b'{"error":"no"}')
        status = self.status if good else 403
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
        await writer.drain()
        writer.close()


async def get(address: str, then_pass_s: float) -> str:
    parts = urlsplit(address)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    writer.write(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    let_pass(then_pass_s)
    return text


async def whole(site: Site, home: Home, *, forged: bool = False) -> str:
    browsers: list[asyncio.Task[str]] = []

    def show(address: str) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert urlsplit(address).path == "/auth" and asked["code_challenge_method"] == "S256"
        site.challenge = asked["code_challenge"]
        back = asked["callback_url"].split("?")[0] + "?state=other" if forged else asked["callback_url"]
        address = f"{back}&{urlencode({'code': 'c-1'})}"
        browsers.append(asyncio.create_task(get(address, WAIT_S if forged else 0.0)))

    async with listening(site.serve) as port:
        try:
            return await log_in(home, show, site=f"http://127.0.0.1:{port}", wait_s=WAIT_S)
        finally:
            await asyncio.gather(*browsers)


def test_a_login_ends_with_a_key_in_env(tmp_path: Path):
    home, site = Home(tmp_path / "home"), Site()
    assert asyncio.run(whole(site, home)) == "OPENROUTER_API_KEY"
    assert read_env(home).values == {"OPENROUTER_API_KEY": "sk-or-v1-0123456789"}
    assert home.env.stat().st_mode & 0o777 == 0o600 and site.tries == ["/api/v1/auth/keys"]


def test_an_answer_of_another_login_is_not_taken(tmp_path: Path):
    home, site = Home(tmp_path / "home"), Site()
    with pytest.raises(LoginFailed, match="nobody logged in"):
        asyncio.run(whole(site, home, forged=True))
    assert site.tries == [] and not home.env.exists()


@pytest.mark.parametrize(
    ("answer", "status"), [(b'{"no":1}', 200), (b"<html>", 200), (b"{}", 403), (b'{"key":""}', 200)]
)
def test_without_a_key_nothing_is_stored(tmp_path: Path, answer: bytes, status: int):
    home = Home(tmp_path / "home")
    with pytest.raises(LoginFailed):
        asyncio.run(whole(Site(answer, status), home))
    assert not home.env.exists()
