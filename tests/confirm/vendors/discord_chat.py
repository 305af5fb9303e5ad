"""Discord as a chatting bot uses it: people who write in channels, history that can be fetched, typing."""

from __future__ import annotations

import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocketDisconnect

from tests.confirm.vendors.discord import DiscordServer, _first_mistake

BOT = "7001"


class DiscordChat(DiscordServer):
    """One bot, any number of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.said_by_people: list[dict[str, Any]] = []
        self.typing: list[str] = []
        self.files: dict[str, bytes] = {}
        self.uploads: list[tuple[str, bytes]] = []
        self._id = 1000

    def app(self) -> ASGIApp:
        return Starlette(
            routes=[
                Route("/gateway/bot", self._gateway_url),
                Route("/channels/{chat}/messages", self._history, methods=["GET"]),
                Route("/channels/{chat}/messages", self._post, methods=["POST"]),
                Route("/channels/{chat}/messages/{number}", self._patch, methods=["PATCH"]),
                Route("/channels/{chat}/typing", self._types, methods=["POST"]),
                Route("/interactions/{id}/{token}/callback", self._callback, methods=["POST"]),
                Route("/cdn/{name}", self._cdn),
                WebSocketRoute("/ws/", self._gateway),
            ]
        )

    def write(
        self, text: str, chat: str = "500", user: str = "7", *, guild: str = "", **more: Any
    ) -> dict[str, Any]:
        """Somebody writes; it reaches whoever is connected."""
        self._id += 1
        message = {
            "id": str(self._id),
            "channel_id": chat,
            "type": 0,
            "author": {"id": user, "username": f"user{user}"},
            "content": text,
            "mentions": [{"id": BOT}] if f"<@{BOT}>" in text else [],
            **({"guild_id": guild} if guild else {}),
            **more,
        }
        self.note(lambda: self.said_by_people.append(message))
        if self._sockets:
            self.call(self._dispatch("MESSAGE_CREATE", message))
        return message

    def change(self, message: dict[str, Any], text: str) -> None:
        """Somebody edits a message, or deletes it where `text` is empty."""
        kind = "MESSAGE_UPDATE" if text else "MESSAGE_DELETE"
        event = {**message, "content": text} if text else {k: message[k] for k in ("id", "channel_id")}
        self.call(self._dispatch(kind, event))

    def connected(self) -> None:
        """Wait until a bot is on the gateway."""
        self.wait(lambda: self._sockets, "a bot on the gateway")

    def said(self, chat: str = "500") -> list[str]:
        """What stands in a channel from the bot."""
        with self.changed:
            return [m["content"] for m in self.messages.values() if m["channel_id"] == chat]

    def wait_said(self, text: str, chat: str = "500", timeout_s: float = 20.0) -> list[str]:
        """Wait until some message in a channel holds this text."""

        def there() -> list[str] | None:
            said = self.said(chat)
            return said if any(text in one for one in said) else None

        return self.wait(there, f"{text!r} in {chat}", timeout_s)

    def press_at(self, label: str, chat: str = "500", user: str = "7") -> str:
        """Press the latest button with this label."""

        def find() -> tuple[str, str] | None:
            for number, message in reversed(self.messages.items()):
                for row in message.get("components", []):
                    for button in row["components"]:
                        if label in button["label"] and message["channel_id"] == chat:
                            return number, button["custom_id"]
            return None

        number, data = self.wait(find, f"button {label}")
        self._number += 1
        interaction = f"9{self._number:017d}"
        event = {
            "id": interaction,
            "type": 3,
            "token": f"token-{interaction}",
            "channel_id": chat,
            "data": {"custom_id": data, "component_type": 2},
            "user": {"id": user, "username": "x"},
            "message": {"id": number},
        }
        self.call(self._dispatch("INTERACTION_CREATE", event))
        return interaction

    async def _dispatch(self, kind: str, event: dict[str, Any]) -> None:
        self._sequence += 1
        if self._sockets:
            await self._sockets[-1].send_json({"op": 0, "s": self._sequence, "t": kind, "d": event})

    async def _history(self, request: Request) -> Response:
        if (refusal := await self._check(request, "history")) is not None:
            return refusal
        after = int(request.query_params.get("after", "0"))
        chat = request.path_params["chat"]
        found = [m for m in self.said_by_people if m["channel_id"] == chat and int(m["id"]) > after]
        limit = int(request.query_params.get("limit", "50"))
        return JSONResponse(list(reversed(found[:limit])))

    async def _types(self, request: Request) -> Response:
        self.note(lambda: self.typing.append(request.path_params["chat"]))
        return Response(status_code=204)

    async def _cdn(self, request: Request) -> Response:
        return Response(self.files[request.path_params["name"]])

    async def _post(self, request: Request) -> Response:
        if (refusal := await self._check(request, "post")) is not None:
            return refusal
        if request.headers["content-type"].startswith("multipart/"):
            form = await request.form()
            body, upload = json.loads(str(form["payload_json"])), form["files[0]"]
            name, data = upload.filename, await upload.read()  # type: ignore[union-attr]
            await form.close()
            self.note(lambda: self.uploads.append((str(name), data)))
        else:
            body = json.loads(await request.body())
            name = ""
        if body.get("enforce_nonce") and body.get("nonce") in self._nonces:
            return JSONResponse(self.messages[self._nonces[body["nonce"]]])
        if len(body.get("nonce", "")) > 25:
            return JSONResponse({"message": "Invalid Form Body", "code": 50035}, 400)
        self._id += 1
        number = str(self._id)
        if not name and (wrong := _first_mistake(body)):
            return JSONResponse({"message": f"Invalid Form Body: {wrong}", "code": 50035}, 400)
        message = {**body, "id": number, "channel_id": request.path_params["chat"]}
        self.note(lambda: self.messages.__setitem__(number, message))
        self._nonces[body.get("nonce", number)] = number
        return JSONResponse(message)

    async def _patch(self, request: Request) -> Response:
        if (refusal := await self._check(request, "patch")) is not None:
            return refusal
        number, body = request.path_params["number"], json.loads(await request.body())
        if number not in self.messages:
            return JSONResponse({"message": "Unknown Message", "code": 10008}, 404)
        if wrong := _first_mistake(body):
            return JSONResponse({"message": f"Invalid Form Body: {wrong}", "code": 50035}, 400)
        self.note(lambda: self.messages[number].update(body))
        return JSONResponse(self.messages[number])

    async def _gateway(self, socket: Any) -> None:
        await socket.accept()
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": self._heartbeat_ms}})
        try:
            while True:
                event = await socket.receive_json()
                if event["op"] == 1:
                    await socket.send_json({"op": 11})
                elif event["op"] == 2:
                    url = f"ws://127.0.0.1:{self.port}/ws"
                    user = {"id": BOT, "username": "whet", "bot": True}
                    ready = {"v": 10, "session_id": "s-1", "resume_gateway_url": url, "user": user}
                    self._sequence += 1
                    await socket.send_json({"op": 0, "s": self._sequence, "t": "READY", "d": ready})
                    self._joined(self.identified, event["d"], socket)
                elif event["op"] == 6:
                    self._joined(self.resumed, event["d"], socket)
        except WebSocketDisconnect:
            if socket in self._sockets:
                self._sockets.remove(socket)
