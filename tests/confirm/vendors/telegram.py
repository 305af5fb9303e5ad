"""The part of Telegram's Bot API that a confirmation bot uses, as strict as Telegram is about it."""

from __future__ import annotations

import asyncio
import html.parser
import json
import re
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.confirm.vendors.host import Host

TOKEN = "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
_TAGS = {"b", "strong", "i", "em", "u", "s", "code", "pre", "a", "blockquote"}


class BadText(Exception):
    pass


class _Html(html.parser.HTMLParser):
    """Telegram's HTML: known tags only, all closed, entities decoded."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""
        self.pre: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in _TAGS:
            raise BadText(f'Unsupported start tag "{tag}"')
        self.open.append(tag)
        if tag == "pre":
            self.pre.append("")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise BadText(f'Unmatched end tag "{tag}"')

    def handle_data(self, data: str) -> None:
        self.text += data
        if "pre" in self.open:
            self.pre[-1] += data


def parse(text: str) -> _Html:
    """Read Telegram HTML. Raises BadText."""
    if re.search(r"&(?!(lt|gt|amp|quot|#\d+);)", text):
        raise BadText("bare &")
    parser = _Html()
    parser.feed(text)
    parser.close()
    if parser.open:
        raise BadText(f'Can\'t find end tag corresponding to start tag "{parser.open[-1]}"')
    return parser


class TelegramServer(Host):
    """One bot. `messages` are as a person sees them; `press` is a thumb on a button."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[int, dict[str, Any]] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self._updates: list[dict[str, Any]] = []
        self._number = 0
        self._update_id = 1000
        self._polls = 0
        self.conflicts = 0

    def app(self) -> ASGIApp:
        return Starlette(routes=[Route("/bot{token}/{method}", self._serve, methods=["GET", "POST"])])

    def press(self, number: int, label: str, user_id: int = 7, username: str = "ann") -> str:
        """Press the button with this label; gives the callback query's id."""
        rows = self.messages[number]["reply_markup"]["inline_keyboard"]
        data = next(b["callback_data"] for row in rows for b in row if label in b["text"])
        return self.press_data(number, data, user_id, username)

    def press_data(self, number: int, data: str, user_id: int = 7, username: str = "ann") -> str:
        """Send a callback with this data, whatever the message shows now (an old client, a forger)."""
        self._update_id += 1
        query_id = f"q{self._update_id}"
        query = {
            "id": query_id,
            "from": {"id": user_id, "is_bot": False, "first_name": username, "username": username},
            "message": self.messages.get(number, {"message_id": number}),
            "data": data,
        }
        update = {"update_id": self._update_id, "callback_query": query}
        self.note(lambda: self._updates.append(update))
        return query_id

    def answer(self, query_id: str) -> str:
        """Wait for the pop-up that the person sees."""
        return self.wait(lambda: self.answers.get(query_id), f"answer to {query_id}")["text"]

    def message(self, number: int = 1) -> dict[str, Any]:
        return self.wait(lambda: self.messages.get(number), f"message {number}")

    async def _serve(self, request: Request) -> JSONResponse:
        method = request.path_params["method"]
        if request.path_params["token"] != TOKEN:
            return error_response(401, "Unauthorized")
        body = json.loads(await request.body() or b"{}")
        self.note(lambda: self.calls.append((method, body)))
        fault = self.next_fault(method)
        if fault == "hang":
            await asyncio.sleep(60)
        if fault is not None and fault != "hang":
            return JSONResponse(fault[1], fault[0])
        handler = getattr(self, f"_{method}", None)
        if handler is None:
            return error_response(404, "Not Found")
        return await handler(body)

    async def _sendMessage(self, body: dict[str, Any]) -> JSONResponse:
        if str(body.get("chat_id")) != "-1001":
            return error_response(400, "Bad Request: chat not found")
        return self._put(body, 0)

    async def _editMessageText(self, body: dict[str, Any]) -> JSONResponse:
        number = body.get("message_id")
        old = self.messages.get(number) if isinstance(number, int) else None
        if old is None or str(body.get("chat_id")) != "-1001":
            return error_response(400, "Bad Request: message to edit not found")
        if old["raw"] == body["text"] and old["reply_markup"] == body.get("reply_markup"):
            why = "Bad Request: message is not modified: specified new message content is the same"
            return error_response(400, why)
        return self._put(body, old["message_id"])

    def _put(self, body: dict[str, Any], number: int) -> JSONResponse:
        try:
            parsed = parse(body["text"]) if body.get("parse_mode") == "HTML" else None
        except BadText as error:
            return error_response(400, f"Bad Request: can't parse entities: {error}")
        text = parsed.text if parsed else body["text"]
        if not text.strip():
            return error_response(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > 4096:
            return error_response(400, "Bad Request: message is too long")
        for row in body.get("reply_markup", {}).get("inline_keyboard", []):
            for button in row:
                if not 1 <= len(button.get("callback_data", "x").encode()) <= 64:
                    return error_response(400, "Bad Request: BUTTON_DATA_INVALID")
                if "localhost" in button.get("url", ""):
                    why = "Bad Request: inline keyboard button URL is invalid: Wrong HTTP URL"
                    return error_response(400, why)
        if not number:
            self._number += 1
            number = self._number
        message = {
            "message_id": number,
            "chat": {"id": -1001, "type": "supergroup"},
            "text": text,
            "pre": parsed.pre if parsed else [],
            "raw": body["text"],
            "reply_markup": body.get("reply_markup", {"inline_keyboard": []}),
        }
        self.note(lambda: self.messages.__setitem__(number, message))
        return JSONResponse({"ok": True, "result": message})

    async def _getUpdates(self, body: dict[str, Any]) -> JSONResponse:
        self._polls += 1
        mine, offset = self._polls, body.get("offset", 0)
        self._updates = [u for u in self._updates if u["update_id"] >= offset]
        for _ in range(int(min(body.get("timeout", 0), 5) * 100)):
            if self._polls != mine:  # Telegram ends the older one of two listeners
                self.conflicts += 1
                return error_response(409, "Conflict: terminated by other getUpdates request")
            if self._updates:
                break
            await asyncio.sleep(0.01)  # the long poll of a server, not of a test
        return JSONResponse({"ok": True, "result": list(self._updates)})

    async def _answerCallbackQuery(self, body: dict[str, Any]) -> JSONResponse:
        if len(body.get("text", "")) > 200:
            return error_response(400, "Bad Request: MESSAGE_TOO_LONG")
        self.note(lambda: self.answers.__setitem__(body["callback_query_id"], body))
        return JSONResponse({"ok": True, "result": True})


def error_response(code: int, description: str) -> JSONResponse:
    return JSONResponse({"ok": False, "error_code": code, "description": description}, code)


def too_many(retry_after: int) -> tuple[int, dict[str, Any], dict[str, str]]:
    """The fault "429"."""
    body = {
        "ok": False,
        "error_code": 429,
        "description": f"Too Many Requests: retry after {retry_after}",
        "parameters": {"retry_after": retry_after},
    }
    return 429, body, {}
