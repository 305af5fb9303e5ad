"""The part of Discord's REST API and gateway that a confirmation bot uses, as strict as Discord."""

from __future__ import annotations

import asyncio
import contextlib
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
_KEPT_SESSIONS = 3


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
        self._sessions: dict[str, _Session] = {}
        self._number = 0

    def app(self) -> ASGIApp:
        return Starlette(routes=self.routes())

    def routes(self) -> list[Any]:
        """What is served."""
        return [
            Route("/gateway/bot", self._gateway_url),
            Route("/channels/{chat}/messages", self._post, methods=["POST"]),
            Route("/channels/{chat}/messages/{number}", self._patch, methods=["PATCH"]),
            Route("/interactions/{id}/{token}/callback", self._callback, methods=["POST"]),
            WebSocketRoute("/ws/", self._gateway),
        ]

    @property
    def connected(self) -> list[WebSocket]:
        """The connections whose session has begun."""
        return [value.socket for value in list(self._sessions.values()) if value.socket is not None]

    def press(self, number: str, label: str, user_id: str = "80351110224678912") -> str:
        """Press the button with this label; gives the interaction's id."""
        rows = self.messages[number]["components"]
        data = next(b["custom_id"] for row in rows for b in row["components"] if label in b["label"])
        return self.press_data(number, data, user_id)

    def press_data(self, number: str, data: str, user_id: str = "80351110224678912") -> str:
        """Send an interaction with this custom_id."""
        who = {"member": {"user": {"id": user_id, "username": "ann"}}}
        return self.interact(number, data, CHAT, who)

    def interact(self, number: str, data: str, chat: str, who: dict[str, Any]) -> str:
        """Have somebody press a button; gives the interaction's id."""
        self.wait(lambda: self.connected, "a bot on the gateway")
        self._number += 1
        interaction = f"9{self._number:017d}"
        event = {
            "id": interaction,
            "application_id": "1",
            "type": 3,
            "token": f"token-{interaction}",
            "channel_id": chat,
            "data": {"custom_id": data, "component_type": 2},
            "message": {"id": number},
            **who,
        }
        self.call(self.dispatch("INTERACTION_CREATE", event))
        return interaction

    def answer(self, interaction: str) -> str:
        """Wait for what only the presser sees."""
        return self.wait(lambda: self.answers.get(interaction), "answer")["data"]["content"]

    def message(self, index: int = 0) -> dict[str, Any]:
        self.wait(lambda: len(self.messages) > index, f"message {index}")
        return list(self.messages.values())[index]

    def cut(self, code: int = 1012) -> None:
        """Close every gateway connection; the sessions can be resumed."""
        for session in list(self._sessions.values()):
            socket, session.socket = session.socket, None
            if socket is not None:
                self.call(_close(socket, code))

    def forget_sessions(self) -> None:
        """Answer the next resume with "invalid session", as after some minutes."""
        self.note(self._sessions.clear)

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
        if not self.knows(request.path_params["chat"]):
            return JSONResponse({"message": "Unknown Channel", "code": 10003}, 404)
        body, upload = await self._body(request)
        if body.get("enforce_nonce") and body.get("nonce") in self._nonces:
            return JSONResponse(self.messages[self._nonces[body["nonce"]]])
        number = self.next_number()
        wrong = self._put(number, body, request.path_params["chat"], has_file=upload)
        if wrong is None:
            self._nonces[body.get("nonce", number)] = number
        return wrong or JSONResponse(self.messages[number])

    def knows(self, chat: str) -> bool:
        """Whether there is such a channel."""
        return chat == CHAT

    def next_number(self) -> str:
        self._number += 1
        return f"1{self._number:017d}"

    async def _body(self, request: Request) -> tuple[dict[str, Any], bool]:
        """Read a message; and whether a file came with it."""
        return json.loads(await request.body()), False

    async def _patch(self, request: Request) -> Response:
        if (refusal := await self._check(request, "patch")) is not None:
            return refusal
        number, chat = request.path_params["number"], request.path_params["chat"]
        if number not in self.messages:
            return JSONResponse({"message": "Unknown Message", "code": 10008}, 404)
        body = {**self.messages[number], **json.loads(await request.body())}
        return self._put(number, body, chat) or JSONResponse(self.messages[number])

    def _put(
        self, number: str, body: dict[str, Any], chat: str, *, has_file: bool = False
    ) -> Response | None:
        wrong = "nonce" if len(body.get("nonce", "")) > 25 else _first_mistake(body, has_file=has_file)
        if wrong:
            return JSONResponse({"message": "Invalid Form Body", "code": 50035, "errors": {"x": wrong}}, 400)
        self.note(lambda: self.messages.__setitem__(number, {**body, "id": number, "channel_id": chat}))
        return None

    async def _callback(self, request: Request) -> Response:
        if request.path_params["token"] != f"token-{request.path_params['id']}":
            return JSONResponse({"message": "Unknown interaction", "code": 10062}, 404)
        body = json.loads(await request.body())
        self.note(lambda: self.answers.__setitem__(request.path_params["id"], body))
        return Response(status_code=204)

    async def dispatch(self, kind: str, event: dict[str, Any]) -> None:
        """Tell every session, now or when it is resumed."""
        for session in list(self._sessions.values())[-_KEPT_SESSIONS:]:
            session.add(kind, event)
            await session.pump()

    def ready(self) -> dict[str, Any]:
        """What a new session is told about itself."""
        return {"v": 10, "resume_gateway_url": f"ws://127.0.0.1:{self.port}/ws"}

    async def _gateway(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": self._heartbeat_ms}})
        session: _Session | None = None
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
                    session = _Session(f"s-{len(self.identified) + 1}")
                    session.add("READY", {**self.ready(), "session_id": session.id})
                    await self._join(session, self.identified, event["d"], socket)
                elif event["op"] == 6:
                    session = self._sessions.get(event["d"]["session_id"])
                    if session is None:
                        await socket.send_json({"op": 9, "d": False})
                        continue
                    session.sent = event["d"]["seq"] or 0
                    session.add("RESUMED", {})
                    await self._join(session, self.resumed, event["d"], socket)
        except (WebSocketDisconnect, RuntimeError):
            if session is not None and session.socket is socket:
                session.socket = None

    async def _join(
        self, session: _Session, where: list[dict[str, Any]], event: dict[str, Any], socket: WebSocket
    ) -> None:
        session.socket = socket
        self._sessions[session.id] = session
        await session.pump()
        self.note(lambda: where.append(event))


class _Session:
    """A bot's session: its events in order, how many went out, its connection while it has one."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.sent = 0
        self.socket: WebSocket | None = None
        self._events: list[dict[str, Any]] = []
        self._pumping = asyncio.Lock()

    def add(self, kind: str, event: dict[str, Any]) -> None:
        self._events.append({"op": 0, "s": len(self._events) + 1, "t": kind, "d": event})

    async def pump(self) -> None:
        """Send what has not gone out; what can't be sent waits for the session to be resumed."""
        async with self._pumping:
            while self.socket is not None and self.sent < len(self._events):
                try:
                    await self.socket.send_json(self._events[self.sent])
                except (WebSocketDisconnect, RuntimeError):
                    self.socket = None
                    return
                self.sent += 1


async def _close(socket: WebSocket, code: int) -> None:
    with contextlib.suppress(RuntimeError):  # the other side was faster
        await socket.close(code)


def _first_mistake(body: dict[str, Any], *, has_file: bool = False) -> str:
    embeds = body.get("embeds", [])
    total = sum(len(e.get("title", "")) + len(e.get("description", "")) for e in embeds)
    if len(body.get("content", "")) > 2000 or total > 6000 or not (embeds or body.get("content") or has_file):
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
