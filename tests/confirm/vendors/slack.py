"""The part of Slack's Web API and Socket Mode that a confirmation app uses, as strict as Slack."""

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

BOT_TOKEN = "xoxb-263594206564-2343594206574-FGqddMF8t08v8N7Oq4i57vs1"
APP_TOKEN = "xapp-1-A01-2343594206574-4f1c9a"
CHAT = "C0G9QF9GZ"
TEAM = "T0OURS"


class SlackServer(Host):
    """One app in one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, dict[str, Any]] = {}
        self.whispers: list[dict[str, Any]] = []
        self.acknowledged: list[str] = []
        self.calls: list[str] = []
        self.user_groups: dict[str, list[str]] = {}
        self.connections = 0
        self._sockets: list[WebSocket] = []
        self._number = 0
        self._stamp = 0

    def app(self) -> ASGIApp:
        return Starlette(routes=self.routes())

    def routes(self) -> list[Any]:
        """What is served."""
        return [
            Route("/usergroups.users.list", self._fetch_members, methods=["GET"]),
            Route("/{method}", self._serve, methods=["POST"]),
            WebSocketRoute("/link/", self._link),
        ]

    def press(self, stamp: str, label: str, user_id: str = "U0ANN", team: str = TEAM) -> str:
        """Press the button with this label; gives the envelope's id."""
        actions = next(b for b in self.messages[stamp]["blocks"] if b["type"] == "actions")["elements"]
        button = next(b for b in actions if label in b["text"]["text"])
        return self.press_data(stamp, button["value"], user_id, team)

    def press_data(self, stamp: str, data: str, user_id: str = "U0ANN", team: str = TEAM) -> str:
        """Send a block action with this value."""
        self.wait(lambda: self._sockets, "an app in Socket Mode")
        return self.interact(stamp, data, CHAT, {"id": user_id, "username": "ann", "team_id": team})

    def interact(self, stamp: str, data: str, chat: str, user: dict[str, str]) -> str:
        """Have somebody press a button; gives the envelope's id."""
        payload = {
            "type": "block_actions",
            "user": user,
            "channel": {"id": chat},
            "container": {"type": "message", "message_ts": stamp, "channel_id": chat},
            "message": {"ts": stamp},
            "actions": [{"type": "button", "action_id": "press-0", "value": data}],
        }
        return self.bring({"type": "interactive", "payload": payload, "accepts_response_payload": True})

    def bring(self, event: dict[str, Any]) -> str:
        """Send an envelope to the newest connection; gives its id."""
        self._number += 1
        envelope = f"envelope-{self._number}"
        self.call(self._sockets[-1].send_json({**event, "envelope_id": envelope}))
        return envelope

    def whisper(self, index: int = 0) -> str:
        """Wait for what only the presser sees."""
        self.wait(lambda: len(self.whispers) > index, f"whisper {index}")
        return self.whispers[index]["text"]

    def message(self, index: int = 0) -> dict[str, Any]:
        self.wait(lambda: len(self.messages) > index, f"message {index}")
        return list(self.messages.values())[index]

    def ask_to_reconnect(self) -> None:
        """Tell the app to connect again, as Slack does every few hours."""
        socket = self._sockets.pop()
        self.call(socket.send_json({"type": "disconnect", "reason": "refresh_requested"}))

    async def _fetch_members(self, request: Request) -> Response:
        """usergroups.users.list: arguments in the address, as Slack takes them from methods that read."""
        self.note(lambda: self.calls.append("usergroups.users.list"))
        if request.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            return _error("invalid_auth")
        group = request.query_params.get("usergroup", "")
        if group not in self.user_groups:
            return _error("no_such_subteam")
        return JSONResponse({"ok": True, "users": self.user_groups[group]})

    async def _serve(self, request: Request) -> Response:
        method = request.path_params["method"]
        self.note(lambda: self.calls.append(method))
        fault = self.next_fault(method)
        if fault == "hang":
            await asyncio.sleep(60)
        elif fault is not None:
            return JSONResponse(fault[1], fault[0], headers=fault[2])
        token = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if request.headers.get("authorization") != f"Bearer {token}":
            return _error("invalid_auth")
        body = json.loads(await request.body() or b"{}")
        if method == "apps.connections.open":
            return JSONResponse({"ok": True, "url": f"ws://127.0.0.1:{self.port}/link/?ticket=1"})
        return self.do(method, body)

    def knows(self, chat: str) -> bool:
        """Whether there is such a channel."""
        return chat == CHAT

    def do(self, method: str, body: dict[str, Any]) -> Response:
        if method == "auth.test":
            return JSONResponse({"ok": True, "user_id": "U0BOT", "team_id": TEAM})
        if not self.knows(body.get("channel", "")):
            return _error("channel_not_found")
        if method == "chat.postEphemeral":
            self.note(lambda: self.whispers.append(body))
            return JSONResponse({"ok": True, "message_ts": "1.0"})
        if method == "chat.update" and body["ts"] not in self.messages:
            return _error("message_not_found")
        if (mistake := _first_mistake(body)) is not None:
            return JSONResponse({"ok": False, "error": "invalid_blocks", "errors": [mistake]})
        stamp = body.get("ts") or self.next_stamp()
        self.note(lambda: self.messages.__setitem__(stamp, {**body, "ts": stamp}))
        return JSONResponse({"ok": True, "channel": body["channel"], "ts": stamp})

    def next_stamp(self) -> str:
        """Give a message its time stamp."""
        self._stamp += 1
        return f"1700000000.{self._stamp:06d}"

    async def _link(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_json({"type": "hello", "num_connections": 1})
        self.note(lambda: (self._sockets.append(socket), setattr(self, "connections", self.connections + 1)))
        try:
            while True:
                event = await socket.receive_json()
                self.note(lambda e=event: self.acknowledged.append(e["envelope_id"]))
        except WebSocketDisconnect:
            if socket in self._sockets:
                self._sockets.remove(socket)


def _error(name: str) -> JSONResponse:
    return JSONResponse({"ok": False, "error": name})


def _first_mistake(body: dict[str, Any]) -> str | None:
    blocks = body.get("blocks", [])
    if not 1 <= len(blocks) <= 50:
        return "blocks"
    limits = {"header": 150, "section": 3000}
    for block in blocks:
        kind = block["type"]
        if kind in limits and not 1 <= len(block["text"]["text"]) <= limits[kind]:
            return f"{kind} text"
        if kind == "context" and not all(e["text"] for e in block["elements"]):
            return "context"
        if kind == "rich_text" and not block["elements"]:
            return "rich_text"
        if kind == "actions":
            ids = [e["action_id"] for e in block["elements"]]
            if not 1 <= len(ids) <= 25 or len(set(ids)) != len(ids):
                return "actions"
            if any(len(e["text"]["text"]) > 75 or len(e.get("value", "")) > 2000 for e in block["elements"]):
                return "button"
    return None


def too_many(retry_after: int) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The fault "429"."""
    return 429, {"ok": False, "error": "ratelimited"}, {"retry-after": str(retry_after)}
