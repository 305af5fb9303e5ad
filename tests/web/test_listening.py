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


async def serve_until_told() -> list[str]:
    """Serve nothing, stop once it listens, and give what was called in which order."""
    said: list[str] = []

    async def site(scope: object, receive: object, send: object) -> None:
        raise AssertionError("nobody calls")

    def ready() -> None:
        said.append("ready")
        asyncio.get_running_loop().call_soon(server.stop)

    server = SiteServer(make_config(site, 1.0), ready, lambda: said.append("stop"), takes_signals=False)
    await server.serve(sockets=[listen("127.0.0.1", 0)])
    assert server.should_exit and not server.force_exit
    server.stop()
    assert server.force_exit
    return said


def test_a_server_says_when_it_listens_and_wakes_who_waits_when_it_stops() -> None:
    assert asyncio.run(serve_until_told()) == ["ready", "stop", "stop"]


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


def test_a_connection_that_is_accepted_as_the_server_ends_is_closed() -> None:
    async def main() -> socket.socket:
        async def site(scope: object, receive: object, send: object) -> None:
            raise AssertionError("nobody calls")

        def ready() -> None:
            asyncio.get_running_loop().call_soon(server.stop)

        server = TakesOneMore(make_config(site, 1.0), ready, lambda: None, takes_signals=False)
        await server.serve(sockets=[listen("127.0.0.1", 0)])
        return server.client

    with contextlib.closing(asyncio.run(main())) as client:
        client.settimeout(10)
        assert client.recv(1) == b""
