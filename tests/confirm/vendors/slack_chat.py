"""Slack as a chatting app uses it: events that come again until they are acknowledged, files, threads."""

from __future__ import annotations

import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.confirm.vendors.slack import APP_TOKEN, BOT_TOKEN, SlackServer, _error, _first_mistake

BOT = "U0BOT"


class SlackChat(SlackServer):
    """One app, any number of channels; those that begin with D are private."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.shared: list[dict[str, Any]] = []
        self._stamp = 0

    def app(self) -> ASGIApp:
        return Starlette(
            routes=[
                Route("/upload/{id}", self._upload, methods=["POST"]),
                Route("/private/{name}", self._private),
                Route("/{method}", self._serve, methods=["POST"]),
                WebSocketRoute("/link/", self._link),
            ]
        )

    def write(self, text: str, chat: str = "D1", user: str = "U7", **more: Any) -> str:
        """Somebody writes; gives the message's time stamp."""
        self._stamp += 1
        stamp = f"1700000000.{self._stamp:06d}"
        kind = "im" if chat.startswith("D") else "channel"
        event = {"type": "message", "channel": chat, "channel_type": kind, "user": user, "text": text}
        self.bring({"type": "events_api", "payload": {"event": {**event, "ts": stamp, **more}}})
        return stamp

    def bring(self, event: dict[str, Any]) -> str:
        """Send an envelope, now and on every new connection until it is acknowledged."""
        self._number += 1
        envelope = f"envelope-{self._number}"
        self.note(lambda: self.pending.__setitem__(envelope, {**event, "envelope_id": envelope}))
        if self._sockets:
            self.call(self._sockets[-1].send_json(self.pending[envelope]))
        return envelope

    def said(self, chat: str = "D1") -> list[str]:
        """What stands in a channel from the app."""
        with self.changed:
            return [m["text"] for m in self.messages.values() if m["channel"] == chat]

    def wait_said(self, text: str, chat: str = "D1", timeout_s: float = 20.0) -> list[str]:
        """Wait until some message in a channel holds this text."""

        def there() -> list[str] | None:
            said = self.said(chat)
            return said if any(text in one for one in said) else None

        return self.wait(there, f"{text!r} in {chat}", timeout_s)

    def press_at(self, label: str, chat: str = "D1", user: str = "U7") -> str:
        """Press the latest button with this label."""

        def find() -> tuple[str, str] | None:
            for stamp, message in reversed(self.messages.items()):
                for block in message["blocks"]:
                    for button in block.get("elements", []):
                        if label in button["text"]["text"] and message["channel"] == chat:
                            return stamp, button["value"]
            return None

        stamp, data = self.wait(find, f"button {label}")
        payload = {
            "type": "block_actions",
            "user": {"id": user, "username": "x"},
            "channel": {"id": chat},
            "message": {"ts": stamp},
            "actions": [{"type": "button", "value": data}],
        }
        return self.bring({"type": "interactive", "payload": payload})

    async def _private(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            return Response(status_code=403)
        return Response(self.files[request.path_params["name"]])

    async def _upload(self, request: Request) -> Response:
        form = await request.form()
        upload: Any = form["file"]
        data = await upload.read()
        await form.close()
        self.uploads[request.path_params["id"]] = data
        return Response("OK")

    async def _serve(self, request: Request) -> Response:
        method = request.path_params["method"]
        self.note(lambda: self.calls.append(method))
        fault = self.next_fault(method)
        if fault is not None:
            return JSONResponse(fault[1], fault[0], headers=fault[2])
        token = APP_TOKEN if method == "apps.connections.open" else BOT_TOKEN
        if request.headers.get("authorization") != f"Bearer {token}":
            return _error("invalid_auth")
        body = json.loads(await request.body() or b"{}")
        if method == "auth.test":
            return JSONResponse({"ok": True, "user_id": BOT})
        if method == "apps.connections.open":
            return JSONResponse({"ok": True, "url": f"ws://127.0.0.1:{self.port}/link/?ticket=1"})
        if method == "chat.postEphemeral":
            self.note(lambda: self.whispers.append(body))
            return JSONResponse({"ok": True})
        if method == "files.getUploadURLExternal":
            file_id = f"F{len(self.uploads)}"
            return JSONResponse(
                {"ok": True, "upload_url": f"{self.url}/upload/{file_id}", "file_id": file_id}
            )
        if method == "files.completeUploadExternal":
            self.note(lambda: self.shared.append(body))
            return JSONResponse({"ok": True})
        return self._message(method, body)

    def _message(self, method: str, body: dict[str, Any]) -> Response:
        if (mistake := _first_mistake(body)) is not None:
            return JSONResponse({"ok": False, "error": "invalid_blocks", "errors": [mistake]})
        if method == "chat.update" and body["ts"] not in self.messages:
            return _error("message_not_found")
        self._stamp += 1
        stamp = body.get("ts") or f"1700000000.{self._stamp:06d}"
        self.note(lambda: self.messages.__setitem__(stamp, {**body, "ts": stamp}))
        return JSONResponse({"ok": True, "channel": body["channel"], "ts": stamp})

    async def _link(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_json({"type": "hello", "num_connections": 1})
        for event in list(self.pending.values()):
            await socket.send_json(event)
        self.note(lambda: (self._sockets.append(socket), setattr(self, "connections", self.connections + 1)))
        try:
            while True:
                event = await socket.receive_json()
                self.note(lambda e=event: self.pending.pop(e["envelope_id"], None))
        except WebSocketDisconnect:
            if socket in self._sockets:
                self._sockets.remove(socket)
