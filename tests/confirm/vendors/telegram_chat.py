"""Telegram's Bot API as a chatting bot uses it: people who write, files, edits, typing, and its limits.

Polling with an offset forgets what lies before it, as Telegram does; until then an update comes again and
again. Where a second program polls, the poll that waits is told 409.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.confirm.vendors.host import ChatHost
from tests.confirm.vendors.telegram import TOKEN, BadText, TelegramServer, error_response, parse


class TelegramChat(ChatHost, TelegramServer):
    """One bot, any number of chats. `said(chat)` is what a person sees in a chat now, oldest first."""

    own_chat = 7
    bot_name = "whet_bot"

    def __init__(self, per_chat_s: float = 0.0) -> None:
        super().__init__()
        self.sends: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.documents: list[dict[str, Any]] = []
        self.albums: list[list[dict[str, Any]]] = []
        self.typing: list[int] = []
        self.edits = 0
        self.acknowledged = 0
        self._polling = 0
        self._kept: dict[int, dict[str, Any]] = {}
        self._sent_number = 0
        self._incoming_number = 100_000
        self._per_chat_s = per_chat_s
        self._last_send: dict[str, float] = {}
        self.refused = 0
        self.gone_topics: set[int] = set()
        self.moved: dict[str, int] = {}

    def app(self) -> ASGIApp:
        return Starlette(
            routes=[
                Route("/bot{token}/{method}", self._serve, methods=["GET", "POST"]),
                Route("/file/bot{token}/{path:path}", self._file),
            ]
        )

    def write(
        self, text: str, chat: int = 7, user: int = 0, *, name: str = "ann", group: bool = False, **more: Any
    ) -> int:
        """Somebody writes; gives the update's id."""
        return self._add("message", text, (chat, user or chat), name, group=group, **more)

    def rewrite(self, number: int, text: str, chat: int = 7, **more: Any) -> int:
        """Somebody edits a message of theirs."""
        return self._add("edited_message", text, (chat, chat), "ann", message_id=number, **more)

    def react(self, number: int, before: list[str], now: list[str], chat: int = 7, user: int = 7) -> int:
        """Change a person's reactions to a message; gives the update's id."""
        with self.changed:
            self._update_id += 1
            change = {
                "chat": {"id": chat, "type": "private" if chat == user else "supergroup"},
                "message_id": number,
                "user": {"id": user, "is_bot": False, "first_name": "ann"},
                "date": 1,
                "old_reaction": [{"type": "emoji", "emoji": emoji} for emoji in before],
                "new_reaction": [{"type": "emoji", "emoji": emoji} for emoji in now],
            }
            self._updates.append({"update_id": self._update_id, "message_reaction": change})
            self.changed.notify_all()
            return self._update_id

    @property
    def newest(self) -> int:
        """The number of the message that a person wrote last."""
        return self._incoming_number

    def _add(
        self, kind: str, text: str, who: tuple[int, int], name: str, *, group: bool = False, **more: Any
    ) -> int:
        chat, user = who
        with self.changed:
            self._update_id += 1
            self._incoming_number += 1
            message = {
                "message_id": self._incoming_number,
                "chat": {"id": chat, "type": "supergroup" if group else "private", "title": "g"},
                "from": {"id": user, "is_bot": False, "first_name": name, "username": name},
                "text": text,
                **more,
            }
            self._updates.append({"update_id": self._update_id, kind: message})
            self.changed.notify_all()
            return self._update_id

    def again(self, update_id: int) -> None:
        """Bring an update a second time, as if its acknowledgement had been lost."""
        with self.changed:
            kept = self._kept.get(update_id)
            if kept is None:
                return  # it waits for its first time
            if kept not in self._updates:
                self._updates = sorted([*self._updates, kept], key=lambda fields: fields["update_id"])
            self.changed.notify_all()

    def said(self, chat: int = 7) -> list[str]:
        """What stands in a chat from the bot."""
        with self.changed:
            return [send["text"] for send in self.sends if str(send["chat"]) == str(chat)]

    def buttons(self, chat: int = 7) -> dict[str, tuple[int, str]]:
        """Give the buttons that stand in a chat: label to (message, data)."""
        fields: dict[str, tuple[int, str]] = {}
        with self.changed:
            for send in self.sends:
                for row in send["buttons"]:
                    for button in row:
                        if str(send["chat"]) == str(chat):
                            fields[button["text"]] = (send["id"], button["callback_data"])
        return fields

    def press_at(self, label: str, chat: int = 7, user: int = 7, name: str = "x", shown_in: int = 0) -> str:
        """Press the latest button with this label in a chat; `shown_in`: as if it stood in another one."""
        number, data = self.wait(lambda: self.buttons(chat).get(label), f"button {label}")
        with self.changed:
            self._update_id += 1
            query = {
                "id": f"q{self._update_id}",
                "from": {"id": user, "is_bot": False, "first_name": name, "username": name},
                "message": {"message_id": number, "chat": {"id": shown_in or chat, "type": "private"}},
                "data": data,
            }
            self._updates.append({"update_id": self._update_id, "callback_query": query})
            self.changed.notify_all()
        return query["id"]

    async def _file(self, request: Request) -> Response:
        data = self.files.get(request.path_params["path"])
        if data is None or request.path_params["token"] != TOKEN:
            return Response(status_code=404)
        return Response(data)

    async def _serve(self, request: Request) -> JSONResponse:
        if request.path_params["method"] == "sendDocument":
            return await self._document(request)
        if request.path_params["method"] == "sendMediaGroup":
            return await self._album(request)
        return await super()._serve(request)

    async def _document(self, request: Request) -> JSONResponse:
        form = await request.form()
        upload: Any = form["document"]
        data = await upload.read()
        await form.close()
        fields = {"chat": form["chat_id"], "name": upload.filename, "data": data, "caption": form["caption"]}
        self._sent_number += 1
        self.note(lambda: self.documents.append(fields))
        return JSONResponse({"ok": True, "result": self._shown(self._sent_number, str(form["chat_id"]))})

    async def _album(self, request: Request) -> JSONResponse:
        form = await request.form()
        media: list[dict[str, str]] = json.loads(str(form["media"]))
        if not 2 <= len(media) <= 10:
            return error_response(400, "Bad Request: group send failed")
        parts: list[dict[str, Any]] = []
        for item in media:
            upload: Any = form[item["media"].removeprefix("attach://")]
            data = await upload.read()
            parts.append({"name": upload.filename, "data": data, "caption": item.get("caption")})
        chat = str(form["chat_id"])
        await form.close()
        first = self._sent_number + 1
        self._sent_number += len(parts)
        self.note(lambda: self.albums.append(parts))
        shown = [self._shown(number, chat) for number in range(first, first + len(parts))]
        return JSONResponse({"ok": True, "result": shown})

    async def _getMe(self, body: dict[str, Any]) -> JSONResponse:
        me = {"id": 42, "is_bot": True, "first_name": "w", "username": self.bot_name}
        return JSONResponse({"ok": True, "result": me})

    async def _getUpdates(self, body: dict[str, Any]) -> JSONResponse:
        with self.changed:
            self._polling += 1
            mine, offset = self._polling, body.get("offset", 0)
            self._kept.update({u["update_id"]: u for u in self._updates})
            self._updates = [u for u in self._updates if u["update_id"] >= offset]
            self.acknowledged = max(self.acknowledged, offset)
            self.changed.notify_all()
        for _ in range(int(min(body.get("timeout", 0), 3) * 100)):
            if self._updates or self._polling > mine:
                break
            await asyncio.sleep(0.01)  # the long poll of a server, not of a test
        if self._polling > mine:
            return error_response(409, "Conflict: terminated by other getUpdates request")
        with self.changed:
            updates = list(self._updates[: body.get("limit", 100)])
            self._kept.update({u["update_id"]: u for u in updates})
        return JSONResponse({"ok": True, "result": updates})

    async def _getFile(self, body: dict[str, Any]) -> JSONResponse:
        name = body["file_id"]
        if name not in self.files:
            return error_response(400, "Bad Request: invalid file_id")
        file = {"file_id": name, "file_path": name, "file_size": len(self.files[name])}
        return JSONResponse({"ok": True, "result": file})

    async def _sendChatAction(self, body: dict[str, Any]) -> JSONResponse:
        self.note(lambda: self.typing.append(int(body["chat_id"])))
        return JSONResponse({"ok": True, "result": True})

    async def _sendMessage(self, body: dict[str, Any]) -> JSONResponse:
        if body.get("message_thread_id") in self.gone_topics:
            return error_response(400, "Bad Request: message thread not found")
        chat = str(body["chat_id"])
        if chat in self.moved:
            answer = {"ok": False, "error_code": 400, "parameters": {"migrate_to_chat_id": self.moved[chat]}}
            text = "Bad Request: group chat was upgraded to a supergroup chat"
            return JSONResponse({**answer, "description": text}, 400)
        now = asyncio.get_running_loop().time()
        wait_s = self._last_send.get(chat, 0.0) + self._per_chat_s - now
        if wait_s > 0:
            self.refused += 1
            answer = {"ok": False, "error_code": 429, "description": "Too Many Requests: retry after 1"}
            answer |= {"parameters": {"retry_after": round(wait_s, 3)}}
            return JSONResponse(answer, 429)
        self._last_send[chat] = now
        text = self._checked(body)
        if isinstance(text, JSONResponse):
            return text
        self._sent_number += 1
        number = self._sent_number
        keyboard = body.get("reply_markup", {}).get("inline_keyboard", [])
        fields = {
            "chat": chat,
            "id": number,
            "text": text,
            "raw": body["text"],
            "buttons": keyboard,
            "edits": 0,
        }
        self.note(lambda: self.sends.append(fields))
        return JSONResponse({"ok": True, "result": self._shown(number, chat)})

    async def _editMessageText(self, body: dict[str, Any]) -> JSONResponse:
        text = self._checked(body)
        if isinstance(text, JSONResponse):
            return text
        sends = [o for o in self.sends if o["id"] == body["message_id"] and o["chat"] == str(body["chat_id"])]
        if not sends:
            return error_response(400, "Bad Request: message to edit not found")
        if sends[0]["raw"] == body["text"]:
            text = "Bad Request: message is not modified: specified new message content is the same"
            return error_response(400, text)
        self.edits += 1
        keyboard = body.get("reply_markup", {}).get("inline_keyboard", [])
        self.note(lambda: sends[0].update(text=text, raw=body["text"], buttons=keyboard))
        return JSONResponse({"ok": True, "result": self._shown(sends[0]["id"], str(body["chat_id"]))})

    def _checked(self, body: dict[str, Any]) -> str | JSONResponse:
        try:
            text = parse(body["text"]).text if body.get("parse_mode") == "HTML" else body["text"]
        except BadText as error:
            return error_response(400, f"Bad Request: can't parse entities: {error}")
        if not text.strip():
            return error_response(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > 4096:
            return error_response(400, "Bad Request: message is too long")
        json.dumps(text)
        return text

    def _shown(self, number: int, chat: str) -> dict[str, Any]:
        return {"message_id": number, "chat": {"id": int(chat), "type": "private"}}
