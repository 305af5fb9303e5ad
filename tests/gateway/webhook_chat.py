"""The program at the other end of a signed webhook: it sends the gateway messages and stores the answers."""

from __future__ import annotations

import itertools
import time
from typing import Any

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.confirm.vendors.host import ChatHost
from tests.support import quiet_port
from whet.vendors.signing import sign_headers

_KEY = b"k" * 32


class WebhookChat(ChatHost):
    """One program, any number of conversations; `got` is what the gateway sent, once each."""

    def __init__(self) -> None:
        super().__init__()
        self.gateway_url = f"http://127.0.0.1:{quiet_port()}/"
        self.got: list[dict[str, Any]] = []
        self.bodies: list[str] = []
        self.wrong = 0
        self._numbers = itertools.count(1)

    @property
    def gateway_file(self) -> str:
        """The gateway.toml of a gateway that talks with this program; {url} stands for its address."""
        listen = self.gateway_url.removeprefix("http://").rstrip("/")
        return (
            f'[[channel]]\nkind = "webhook"\nlisten = "{listen}"\nurl = "{{url}}/in"\n\n'
            '[people.ann]\nwebhook = "ann"\nowner = true\n'
        )

    def wait_for_gateway(self) -> None:
        """Wait until the gateway listens."""
        self.wait(self._is_gateway_up, "the webhook listening")

    def post(
        self, data: dict[str, Any], *, kind: str = "", number: str = "", key: bytes = _KEY, at_s: float = 0.0
    ) -> tuple[int, str]:
        """Send an event of Ann's, signed. One without a kind is a message. Returns the status and the
        event's number."""
        number = number or f"n{next(self._numbers)}"
        event = {"data": {"conversation": "c", "user": "ann", **data}, **({"type": kind} if kind else {})}
        body = msgspec.json.encode(event)
        headers = sign_headers(key, number, int(at_s or time.time()), body)
        return httpx2.post(self.gateway_url, content=body, headers=headers).status_code, number

    def write(self, text: str, chat: str = "", **more: Any) -> str:
        """Have Ann write; gives the message's number."""
        status, number = self.post({"text": text, "conversation": chat or "c", **more})
        assert status == 202
        return number

    def said(self, chat: str = "") -> list[str]:
        """Return what was sent to any conversation."""
        return [message["text"] for message in self.got]

    def app(self) -> ASGIApp:
        return Starlette(routes=[Route("/in", self._in, methods=["POST"])])

    def _is_gateway_up(self) -> bool:
        try:
            return httpx2.get(self.gateway_url).status_code == 405
        except httpx2.HTTPError:
            return False

    async def _in(self, request: Request) -> Response:
        body = await request.body()
        number, stamp = request.headers["webhook-id"], int(request.headers["webhook-timestamp"])
        signature = sign_headers(_KEY, number, stamp, body)["webhook-signature"]
        if signature != request.headers["webhook-signature"]:
            self.wrong += 1
            return Response(status_code=401)
        fault = self.next_fault("in")
        if fault is not None:
            return Response(status_code=fault)
        data = msgspec.json.decode(body)["data"]
        if not any(message["id"] == data["id"] for message in self.got):
            self.note(lambda: (self.bodies.append(body.decode()), self.got.append(data)))
        return Response(status_code=204)
