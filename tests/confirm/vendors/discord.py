"""The part of Discord's REST API and gateway that a confirmation bot uses, as strict as Discord."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.confirm.vendors.host import Host

TOKEN = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"
CHAT = "41771983423143937"


class DiscordServer(Host):
    """One bot in one channel."""

    def __init__(self, heartbeat_ms: int = 5_000) -> None:
        super().__init__()
        self.messages: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.identified: list[dict[str, Any]] = []
        self.resumed: list[dict[str, Any]] = []
        self.beats = 0
        self._heartbeat_ms = heartbeat_ms
        self._nonces: dict[str, str] = {}
        self._sockets: list[WebSocket] = []
        self._number = 0
        self._sequence = 0

    def app(self) -> ASGIApp:
        return Starlette(
            routes=[
                Route("/gateway/bot", self._gateway_url),
                Route("/channels/{chat}/messages", self._post, methods=["POST"]),
                Route("/channels/{chat}/messages/{number}", self._patch, methods=["PATCH"]),
                Route("/interactions/{id}/{token}/callback", self._callback, methods=["POST"]),
                WebSocketRoute("/ws/", self._gateway),
            ]
        )

    def press(self, number: str, label: str, user_id: str = "80351110224678912") -> str:
        """Press the button with this label; gives the interaction's id."""
        rows = self.messages[number]["components"]
        data = next(b["custom_id"] for row in rows for b in row["components"] if label in b["label"])
        return self.press_data(number, data, user_id)

    def press_data(self, number: str, data: str, user_id: str = "80351110224678912") -> str:
        """Send an interaction with this custom_id."""
        self.wait(lambda: self._sockets, "a bot on the gateway")
        self._number += 1
        interaction = f"9{self._number:017d}"
        event = {
            "id": interaction,
            "application_id": "1",
            "type": 3,
            "token": f"token-{interaction}",
            "channel_id": CHAT,
            "data": {"custom_id": data, "component_type": 2},
            "member": {"user": {"id": user_id, "username": "ann"}},
            "message": {"id": number},
        }
        self.call(self._dispatch("INTERACTION_CREATE", event))
        return interaction

    def answer(self, interaction: str) -> str:
        """Wait for what only the presser sees."""
        return self.wait(lambda: self.answers.get(interaction), "answer")["data"]["content"]

    def message(self, index: int = 0) -> dict[str, Any]:
        """Wait for the message of this index."""
        self.wait(lambda: len(self.messages) > index, f"message {index}")
        return list(self.messages.values())[index]

    def cut(self, code: int = 1012) -> None:
        """Close every gateway connection."""
        sockets, self._sockets = self._sockets, []
        for socket in sockets:
            self.call(socket.close(code))

    async def _check(self, request: Request, method: str) -> Response | None:
        self.note(lambda: self.calls.append(method))
        if request.headers.get("authorization") != f"Bot {TOKEN}":
            return JSONResponse({"message": "401: Unauthorized", "code": 0}, 401)
        fault = self.next_fault(method)
        if fault == "hang":
            await asyncio.sleep(60)
        elif fault is not None:
            return JSONResponse(fault[1], fault[0], headers=fault[2])
        return None

    async def _gateway_url(self, request: Request) -> Response:
        return await self._check(request, "gateway") or JSONResponse(
            {"url": f"ws://127.0.0.1:{self.port}/ws", "shards": 1, "session_start_limit": {"remaining": 999}}
        )

    async def _post(self, request: Request) -> Response:
        if (refusal := await self._check(request, "post")) is not None:
            return refusal
        if request.path_params["chat"] != CHAT:
            return JSONResponse({"message": "Unknown Channel", "code": 10003}, 404)
        body = json.loads(await request.body())
        if body.get("enforce_nonce") and body.get("nonce") in self._nonces:
            return JSONResponse(self.messages[self._nonces[body["nonce"]]])
        self._number += 1
        number = f"1{self._number:017d}"
        if (wrong := self._put(number, body)) is not None:
            return wrong
        self._nonces[body.get("nonce", number)] = number
        return JSONResponse(self.messages[number])

    async def _patch(self, request: Request) -> Response:
        if (refusal := await self._check(request, "patch")) is not None:
            return refusal
        number = request.path_params["number"]
        if number not in self.messages:
            return JSONResponse({"message": "Unknown Message", "code": 10008}, 404)
        return self._put(number, json.loads(await request.body())) or JSONResponse(self.messages[number])

    def _put(self, number: str, body: dict[str, Any]) -> Response | None:
        wrong = _first_mistake(body)
        if wrong:
            return JSONResponse({"message": "Invalid Form Body", "code": 50035, "errors": {"x": wrong}}, 400)
        self.note(lambda: self.messages.__setitem__(number, {**body, "id": number, "channel_id": CHAT}))
        return None

    async def _callback(self, request: Request) -> Response:
        if request.path_params["token"] != f"token-{request.path_params['id']}":
            return JSONResponse({"message": "Unknown interaction", "code": 10062}, 404)
        body = json.loads(await request.body())
        self.note(lambda: self.answers.__setitem__(request.path_params["id"], body))
        return Response(status_code=204)

    async def _dispatch(self, kind: str, event: dict[str, Any]) -> None:
        self._sequence += 1
        await self._sockets[-1].send_json({"op": 0, "s": self._sequence, "t": kind, "d": event})

    def _joined(self, where: list[dict[str, Any]], event: dict[str, Any], socket: WebSocket) -> None:
        self.note(lambda: (where.append(event), self._sockets.append(socket)))

    async def _gateway(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": self._heartbeat_ms}})
        try:
            while True:
                event = await socket.receive_json()
                if event["op"] == 1:
                    self.note(lambda: setattr(self, "beats", self.beats + 1))
                    await socket.send_json({"op": 11})
                elif event["d"].get("token") != TOKEN:
                    await socket.close(4004)
                    return
                elif event["op"] == 2:
                    self._sequence += 1
                    ready = {
                        "v": 10,
                        "session_id": "s-1",
                        "resume_gateway_url": f"ws://127.0.0.1:{self.port}/ws",
                    }
                    await socket.send_json({"op": 0, "s": self._sequence, "t": "READY", "d": ready})
                    self._joined(self.identified, event["d"], socket)
                elif event["op"] == 6:
                    self._sequence += 1
                    await socket.send_json({"op": 0, "s": self._sequence, "t": "RESUMED", "d": {}})
                    self._joined(self.resumed, event["d"], socket)
        except WebSocketDisconnect:
            if socket in self._sockets:
                self._sockets.remove(socket)


def _first_mistake(body: dict[str, Any]) -> str:
    embeds = body.get("embeds", [])
    total = sum(len(e.get("title", "")) + len(e.get("description", "")) for e in embeds)
    if len(body.get("content", "")) > 2000 or total > 6000 or not (embeds or body.get("content")):
        return "content or embeds"
    if any(len(e.get("title", "")) > 256 or len(e.get("description", "")) > 4096 for e in embeds):
        return "embed"
    rows = body.get("components", [])
    if len(rows) > 5:
        return "rows"
    for row in rows:
        buttons = row["components"]
        if row["type"] != 1 or not 1 <= len(buttons) <= 5:
            return "action row"
        for button in buttons:
            if not 1 <= len(button["label"]) <= 80 or len(button.get("custom_id", "")) > 100:
                return "button"
            if ("url" in button) == ("custom_id" in button):
                return "button needs one of url, custom_id"
    return ""


def too_many(retry_after: float) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The fault "429"."""
    body = {"message": "You are being rate limited.", "retry_after": retry_after, "global": False}
    return 429, body, {"retry-after": str(int(retry_after) + 1)}
