"""Discord as a chatting bot uses it: people who write in channels, history that can be fetched, typing."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.confirm.vendors.discord import DiscordServer
from tests.confirm.vendors.host import ChatHost

BOT = "7001"


class DiscordChat(ChatHost, DiscordServer):
    """One bot, any number of channels."""

    own_chat = "500"

    def __init__(self) -> None:
        super().__init__()
        self.said_by_people: list[dict[str, Any]] = []
        self.typing: list[str] = []
        self.threads: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.uploads: list[tuple[str, bytes]] = []
        self.albums: list[list[str]] = []
        self._id = 1000

    def routes(self) -> list[Any]:
        return [
            Route("/channels/{chat}/messages", self._history, methods=["GET"]),
            Route("/channels/{chat}", self._channel),
            Route("/channels/{chat}/messages/{number}", self._one_message, methods=["GET"]),
            Route("/channels/{chat}/typing", self._types, methods=["POST"]),
            Route("/cdn/{name}", self._cdn),
            *super().routes(),
        ]

    def knows(self, chat: str) -> bool:
        return True

    def next_number(self) -> str:
        self._id += 1
        return str(self._id)

    def ready(self) -> dict[str, Any]:
        return {**super().ready(), "user": {"id": BOT, "username": "whet", "bot": True}}

    def write(
        self, text: str, chat: str = "500", user: str = "7", *, guild: str = "", **more: Any
    ) -> dict[str, Any]:
        """Somebody writes; it reaches whoever is connected."""
        message = {
            "id": self.next_number(),
            "channel_id": chat,
            "type": 0,
            "author": {"id": user, "username": f"user{user}"},
            "content": text,
            "mentions": [{"id": BOT}] if f"<@{BOT}>" in text else [],
            **more,
        }
        self.note(lambda: self.said_by_people.append(message))
        # Only the event says which server a channel is of; the history does not.
        self.call(self.dispatch("MESSAGE_CREATE", {**message, **({"guild_id": guild} if guild else {})}))
        return message

    def change(self, message: dict[str, Any], text: str) -> None:
        """Somebody edits a message, or deletes it where `text` is empty."""
        kind = "MESSAGE_UPDATE" if text else "MESSAGE_DELETE"
        edited = {"edited_timestamp": f"2026-03-01T10:00:{self.next_number()}", **message, "content": text}
        event = edited if text else {k: message[k] for k in ("id", "channel_id")}
        self.call(self.dispatch(kind, event))

    def react(self, number: str, emoji: dict[str, Any], *, removed: bool = False, **more: Any) -> None:
        """Add or remove a person's reaction to a message."""
        event = {"user_id": "7", "channel_id": "500", "message_id": number, "emoji": emoji, **more}
        self.call(self.dispatch(f"MESSAGE_REACTION_{'REMOVE' if removed else 'ADD'}", event))

    def wait_connected(self) -> None:
        """Wait until a bot is on the gateway."""
        self.wait(lambda: self.connected, "a bot on the gateway")

    def said(self, chat: str = "500") -> list[str]:
        """What stands in a channel from the bot."""
        with self.changed:
            return [m["content"] for m in self.messages.values() if m["channel_id"] == chat]

    def press_at(self, label: str, chat: str = "500", user: str = "7", name: str = "x") -> str:
        def find() -> tuple[str, str] | None:
            for number, message in reversed(self.messages.items()):
                for row in message.get("components", []):
                    for button in row["components"]:
                        if label in button["label"] and message["channel_id"] == chat:
                            return number, button["custom_id"]
            return None

        number, data = self.wait(find, f"button {label}")
        return self.interact(number, data, chat, {"user": {"id": user, "username": name}})

    def answer(self, interaction: str) -> str:
        """Wait for what only the presser sees, as Discord shows it: without the back-slashes."""
        return re.sub(r"\\([^\w\s])", r"\1", super().answer(interaction))

    async def _history(self, request: Request) -> Response:
        if (refusal := await self._check(request, "history")) is not None:
            return refusal
        after = int(request.query_params.get("after", "0"))
        chat = request.path_params["chat"]
        people = [m for m in self.said_by_people if m["channel_id"] == chat and int(m["id"]) > after]
        limit = int(request.query_params.get("limit", "50"))
        return JSONResponse(list(reversed(people[:limit])))

    async def _channel(self, request: Request) -> Response:
        return JSONResponse(self.threads.get(request.path_params["chat"], {"type": 0, "name": "general"}))

    async def _one_message(self, request: Request) -> Response:
        chat, number = request.path_params["chat"], request.path_params["number"]
        for message in self.said_by_people:
            if (message["channel_id"], message["id"]) == (chat, number):
                return JSONResponse(message)
        if (message := self.messages.get(number)) and message["channel_id"] == chat:
            return JSONResponse({"id": number, "author": {"id": BOT}, **message})
        return JSONResponse({"message": "Unknown Message", "code": 10008}, 404)

    async def _types(self, request: Request) -> Response:
        self.note(lambda: self.typing.append(request.path_params["chat"]))
        return Response(status_code=204)

    async def _cdn(self, request: Request) -> Response:
        return Response(self.files[request.path_params["name"]])

    async def _body(self, request: Request) -> tuple[dict[str, Any], bool]:
        if not request.headers["content-type"].startswith("multipart/"):
            return await super()._body(request)
        form = await request.form()
        body = json.loads(str(form["payload_json"]))
        uploads: list[Any] = [value for name, value in form.multi_items() if name.startswith("files[")]
        files = [(str(upload.filename), await upload.read()) for upload in uploads]
        await form.close()
        self.note(lambda: (self.uploads.extend(files), self.albums.append([name for name, _ in files])))
        return body, True
