"""The stream that tells open pages of news."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookies import SimpleCookie
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.serve.conftest import Api
from whet.serve.board.app import Logins, OwnerAccounts
from whet.serve.board.live import DashboardStream
from whet.serve.site import Site, SiteTimings
from whet.web.connection import WebConnection
from whet.web.guard import make_site_address
from whet.web.sessions import Sessions
from whet_lab.practice.server import PracticeServer

_BEAT_S = 0.05


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with PracticeServer() as model:
        api = Api(tmp_path_factory.mktemp("live"), model)
        yield api
        api.close()


def test_news_that_comes_while_a_piece_is_on_its_way_is_told_next(board: Api) -> None:
    """A page that misses a change shows the old state until the next one: a question stays unseen."""
    sent: list[bytes] = []

    async def listen() -> None:
        site = Site(board.hosted, board.app.clock, SiteTimings(60, _BEAT_S, 30))
        sessions = Sessions(
            OwnerAccounts(site.auth),
            Logins(board.app.database),
            board.app.clock,
            make_site_address("127.0.0.1"),
            "live",
        )
        line = WebConnection()
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": "/live",
            "headers": [],
            "extensions": {"whet.line": line},
        }
        entered = Response()
        assert await sessions.sign_in(Request(scope), board.token, entered)
        cookie = SimpleCookie(entered.headers["set-cookie"])["live"].value
        scope["headers"] = [(b"cookie", f"live={cookie}".encode())]
        stream = DashboardStream(site.turns, sessions, _BEAT_S)

        async def send(message: Any) -> None:
            if piece := message.get("body"):
                sent.append(piece)
                if len(sent) in (1, 2):  # with the first bytes, and with a change, somebody asks something
                    for tell in site.turns.questions.listeners:
                        tell()
                elif len(sent) == 4:
                    line.cut()

        await (await stream.serve(Request(scope)))(scope, Request(scope).receive, send)

    board.call(listen())
    assert [piece.partition(b"\n")[0] for piece in sent] == [
        b"retry: 2000",
        b"event: change",
        b"event: change",
        b": still here",
    ]
