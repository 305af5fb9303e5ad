"""Slack as a chatting app uses it: events that come again until they are acknowledged, files, threads."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.confirm.vendors.host import ChatHost
from tests.confirm.vendors.slack import BOT_TOKEN, TEAM, SlackServer

BOT = "U0BOT"


class SlackChat(ChatHost, SlackServer):
    """One app, any number of channels; those that begin with D are private."""

    own_chat = "D1"

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.uploads: dict[str, bytes] = {}
        self.shared: list[dict[str, Any]] = []
        self.written: dict[str, dict[str, Any]] = {}
        self.forgets = False
        """Whether what is written now is brought to nobody, as after Slack has given up."""
        self._sent: set[str] = set()
        self._sending = asyncio.Lock()

    def routes(self) -> list[Any]:
        return [
            Route("/upload/{id}", self._upload, methods=["POST"]),
            Route("/private/{name}", self._private),
            Route("/conversations.history", self._history),
            Route("/conversations.replies", self._history),
            *super().routes(),
        ]

    def knows(self, chat: str) -> bool:
        return True

    def write(self, text: str, chat: str = "D1", user: str = "U7", **more: Any) -> str:
        """Somebody writes; gives the message's time stamp."""
        stamp = self.next_stamp()
        kind = "im" if chat.startswith("D") else "channel"
        event = {"type": "message", "channel": chat, "channel_type": kind, "user": user, "text": text}
        event |= {"ts": stamp, **more}
        self.note(lambda: self.written.__setitem__(str(event["ts"]), event))
        if self.forgets:
            return stamp
        self.bring({"type": "events_api", "payload": {"event": event}})
        return stamp

    def bring(self, event: dict[str, Any]) -> str:
        """Send an envelope, now and on every new connection until it is acknowledged."""
        self._number += 1
        envelope = f"envelope-{self._number}"
        self.note(lambda: self.pending.__setitem__(envelope, {**event, "envelope_id": envelope}))
        self.call(self._pump())
        return envelope

    async def _pump(self) -> None:
        """Send the newest connection, in order, what it has not been sent yet."""
        async with self._sending:
            while self._sockets and (
                waits := [text for text in list(self.pending) if text not in self._sent]
            ):
                self._sent.add(waits[0])
                try:
                    await self._sockets[-1].send_json(self.pending[waits[0]])
                except (WebSocketDisconnect, RuntimeError, KeyError):
                    return  # it hung up, and the next connection is sent all of it

    def said(self, chat: str = "D1") -> list[str]:
        """What stands in a channel from the app."""
        with self.changed:
            return [m["text"] for m in self.messages.values() if m["channel"] == chat]

    def press_at(self, label: str, chat: str = "D1", user: str = "U7", name: str = "x") -> str:
        def find() -> tuple[str, str] | None:
            for stamp, message in reversed(self.messages.items()):
                for block in message["blocks"]:
                    for button in block.get("elements", []):
                        if label in button["text"]["text"] and message["channel"] == chat:
                            return stamp, button["value"]
            return None

        stamp, data = self.wait(find, f"button {label}")
        return self.interact(stamp, data, chat, {"id": user, "username": name})

    async def _history(self, request: Request) -> Response:
        """Give a channel's messages, the newest first, a few at a time; of a thread the oldest first."""
        query, method = request.query_params, request.url.path.strip("/")
        self.note(lambda: self.calls.append(method))
        if (fault := self.next_fault(method)) is not None:
            return JSONResponse(fault[1], fault[0], headers=fault[2])
        if request.headers.get("authorization") != f"Bearer {BOT_TOKEN}":
            return JSONResponse({"ok": False, "error": "invalid_auth"})
        thread = query.get("ts", "")
        rows = [
            {key: value for key, value in one.items() if key not in ("channel", "channel_type")}
            for one in self.written.values()
            if one["channel"] == query["channel"]
            and one["ts"] > query["oldest"]
            and (thread in (one.get("thread_ts"), one["ts"]) if thread else not one.get("thread_ts"))
        ]
        rows.sort(key=lambda fields: fields["ts"], reverse=not thread)
        at, size = int(query.get("cursor") or 0), 5
        more = {"next_cursor": str(at + size)} if at + size < len(rows) else {}
        return JSONResponse({"ok": True, "messages": rows[at : at + size], "response_metadata": more})

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

    def do(self, method: str, body: dict[str, Any]) -> Response:
        if method == "auth.test":
            return JSONResponse({"ok": True, "user_id": BOT, "team_id": TEAM})
        if method == "files.getUploadURLExternal":
            file_id = f"F{len(self.uploads)}"
            url = f"{self.url}/upload/{file_id}"
            return JSONResponse({"ok": True, "upload_url": url, "file_id": file_id})
        if method == "files.completeUploadExternal":
            self.note(lambda: self.shared.append(body))
            return JSONResponse({"ok": True})
        return super().do(method, body)

    def acknowledge(self, envelope: str) -> None:
        """Bring an envelope no more."""
        self.note(lambda: self.pending.pop(envelope, None))

    async def _link(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_json({"type": "hello", "num_connections": len(self._sockets) + 1})
        async with self._sending:
            self._sent.clear()
            self.note(
                lambda: (self._sockets.append(socket), setattr(self, "connections", self.connections + 1))
            )
        await self._pump()
        try:
            while True:
                self.acknowledge((await socket.receive_json())["envelope_id"])
        except (WebSocketDisconnect, RuntimeError):
            if socket in self._sockets:
                self._sockets.remove(socket)
