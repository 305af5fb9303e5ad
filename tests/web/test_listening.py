"""An address that can't be had is said in words."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from whet.contract.errors import ConfigError
from whet.web.listening import SiteServer, listen, make_config


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99_999), ("no..such", 0), ("999.1.1.1", 0)])
def test_an_address_that_is_none_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match="can't listen"):
        listen(host, port)


async def site(scope: object, receive: object, send: object) -> None:
    raise AssertionError("nobody calls")


async def serve_until_ready(server_type: type[SiteServer]) -> tuple[SiteServer, list[str]]:
    """Serve, stop once the server listens, and return what it called in which order."""
    calls: list[str] = []

    def ready() -> None:
        calls.append("ready")
        asyncio.get_running_loop().call_soon(server.stop)

    config = make_config(site, 1.0)
    server = server_type(config, ready, lambda: calls.append("stop"), takes_signals=False)
    await server.serve(sockets=[listen("127.0.0.1", 0)])
    return server, calls


async def test_a_server_says_when_it_listens_and_wakes_who_waits_when_it_stops() -> None:
    server, calls = await serve_until_ready(SiteServer)
    assert server.should_exit and not server.force_exit
    server.stop()
    assert server.force_exit and calls == ["ready", "stop", "stop"]


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is taken") as refused:
            listen("127.0.0.1", port, "--port and --web-port")
    assert f":{port}" in refused.value.hint and "--port and --web-port" in refused.value.hint


class TakesOneMore(SiteServer):
    """A client's connection is accepted in the same moment as the server is told to end."""

    client: socket.socket

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.client = socket.create_connection(sockets[0].getsockname()) if sockets else socket.socket()
        for _ in range(2):  # in the first pass the loop finds the client, in the second we are before it
            await asyncio.sleep(0)
        await super().shutdown(sockets)


async def test_a_connection_that_is_accepted_as_the_server_ends_is_closed() -> None:
    server, _ = await serve_until_ready(TakesOneMore)
    assert isinstance(server, TakesOneMore)
    with contextlib.closing(server.client) as client:
        client.settimeout(10)
        assert client.recv(1) == b""
