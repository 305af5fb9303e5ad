"""The part of Mattermost's REST API (v4) and websocket that a bot uses, as strict as Mattermost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.confirm.vendors.host import ChatHost

TOKEN = "9xuqwrwgstrb3mzrxb83nb357a"
BOT = "botbotbotbotbotbotbotbotbo"
_MAX_CHARS = 16_383


class MattermostChat(ChatHost):
    """One bot, people, channels of type D and O."""

    own_chat = "dm-ann"

    def __init__(self) -> None:
        super().__init__()
        self.posts: dict[str, dict[str, Any]] = {}
        self.reactions: list[dict[str, Any]] = []
        self.channels: dict[str, str] = {}
        self.edits: dict[str, list[str]] = {}
        self.typing: list[str] = []
        self.files: dict[str, tuple[str, bytes]] = {}
        self.connections = 0
        self._sockets: list[WebSocket] = []
        self._number = 0
        self._now_ms = 0
        self._later: list[asyncio.Task[None]] = []

    def app(self) -> ASGIApp:
        routes = [
            Route("/users/me", self._user),
            Route("/users/me/channels", self._channels),
            Route("/users/me/typing", self._types, methods=["POST"]),
            Route("/channels/{channel}", self._channel),
            Route("/channels/{channel}/posts", self._history),
            Route("/posts", self._create, methods=["POST"]),
            Route("/posts/{post}", self._get),
            Route("/posts/{post}/patch", self._patch, methods=["PUT"]),
            Route("/reactions", self._react, methods=["POST"]),
            Route("/files", self._upload, methods=["POST"]),
            Route("/files/{file}", self._file),
            WebSocketRoute("/websocket", self._link),
        ]
        return Starlette(routes=[Mount("/api/v4", routes=routes)])

    # --- what people do

    def write(
        self, text: str, channel: str = "dm-ann", user: str = "ann", *, root: str = "", **more: Any
    ) -> str:
        """Somebody writes; it reaches whoever is connected."""
        self.channels.setdefault(channel, "D" if channel.startswith("dm-") else "O")
        return self._add({"channel_id": channel, "message": text, "root_id": root, **more}, user)["id"]

    def change(self, post: str, text: str) -> None:
        """Somebody edits a post of theirs, or deletes it where `text` is empty."""
        one = self.posts[post]
        one["update_at"] = self._tick()
        one |= {"message": text, "edit_at": one["update_at"]} if text else {"delete_at": one["update_at"]}
        self._tell("post_edited" if text else "post_deleted", one["channel_id"], post=json.dumps(one))

    def react(self, post: str, emoji: str, user: str = "ann") -> None:
        fields = {"user_id": user, "post_id": post, "emoji_name": emoji, "create_at": self._tick()}
        self.note(lambda: self.reactions.append(fields))
        channel = self.posts[post]["channel_id"]
        self._tell("reaction_added", channel, reaction=json.dumps(fields))

    def press_at(self, label: str, user: str = "ann", channel: str = "dm-ann") -> str:
        """Press the emoji that the bot put under its newest post with this label; gives the post."""

        def find() -> tuple[str, str] | None:
            for post in reversed(self.posts.values()):
                if post["user_id"] != BOT or post["channel_id"] != channel:
                    continue
                for part in post["message"].rpartition("\n\n")[2].split(" · "):
                    _, emoji, text = part.split(":", 2) if part.count(":") >= 2 else ("", "", "")
                    mine = [r["emoji_name"] for r in self.reactions if r["post_id"] == post["id"]]
                    if text.strip() == label and emoji in mine:
                        return post["id"], emoji
            return None

        post, emoji = self.wait(find, f"button {label}")
        self.react(post, emoji, user)
        return post

    def said(self, channel: str = "dm-ann") -> list[str]:
        """What stands in a channel from the bot."""
        with self.changed:
            return [
                post["message"].replace("\u200b", "")
                for post in self.posts.values()
                if post["user_id"] == BOT and post["channel_id"] == channel
            ]

    def wait_connected(self, times: int = 1) -> None:
        """Wait until a bot has passed the challenge for so many times."""
        self.wait(lambda: self._sockets and self.connections >= times, "a bot on the websocket")

    def cut(self) -> None:
        """Close every websocket."""
        while self._sockets:
            with contextlib.suppress(RuntimeError):
                self.call(self._sockets.pop().close(1012))

    # --- what the server does

    def _tick(self) -> int:
        self._now_ms = max(self._now_ms + 1, int(time.time() * 1000))
        return self._now_ms

    def _add(self, body: dict[str, Any], user: str) -> dict[str, Any]:
        self._number += 1
        now = self._tick()
        post = {
            "id": f"post{self._number:022d}",
            "user_id": user,
            "type": "",
            "props": {},
            "create_at": now,
            "update_at": now,
            "delete_at": 0,
            **body,
        }
        self.note(lambda: self.posts.__setitem__(post["id"], post))
        kind = self.channels[post["channel_id"]]
        sent = {"post": json.dumps(post), "channel_type": kind, "sender_name": f"@{user}"}
        self._tell("posted", post["channel_id"], **sent)
        return post

    def _tell(self, event: str, channel: str, **data: str) -> None:
        async def tell() -> None:
            for socket in [*self._sockets]:
                with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                    await socket.send_json(
                        {"event": event, "data": data, "broadcast": {"channel_id": channel}, "seq": 1}
                    )

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.call(tell())
        else:  # from a handler, on the server's own loop
            self._later.append(loop.create_task(tell()))

    async def _link(self, socket: WebSocket) -> None:
        await socket.accept()
        try:
            challenge = await socket.receive_json()
            if challenge["action"] != "authentication_challenge" or challenge["data"].get("token") != TOKEN:
                await socket.close(4001)
                return
            await socket.send_json({"status": "OK", "seq_reply": challenge["seq"]})
            await socket.send_json({"event": "hello", "data": {}, "broadcast": {}, "seq": 0})
            self._sockets.append(socket)
            self.note(lambda: setattr(self, "connections", self.connections + 1))
            while True:
                await socket.receive_json()
        except WebSocketDisconnect:
            if socket in self._sockets:
                self._sockets.remove(socket)

    def _refusal(self, request: Request, method: str) -> Response | None:
        fault = self.next_fault(method)
        if fault is not None:
            return JSONResponse(fault[1], fault[0], headers=fault[2])
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _no(401, "Invalid or expired session, please login again.")
        return None

    async def _user(self, request: Request) -> Response:
        return self._refusal(request, "me") or JSONResponse({"id": BOT, "username": "whet", "is_bot": True})

    async def _channels(self, request: Request) -> Response:
        if (refusal := self._refusal(request, "channels")) is not None:
            return refusal
        last = {post["channel_id"]: post["create_at"] for post in self.posts.values()}
        return JSONResponse(
            [
                {"id": id_, "type": kind, "last_post_at": last.get(id_, 0)}
                for id_, kind in self.channels.items()
            ]
        )

    async def _channel(self, request: Request) -> Response:
        channel = request.path_params["channel"]
        found = channel in self.channels
        response = JSONResponse({"id": channel, "type": self.channels.get(channel)})
        return self._refusal(request, "channel") or (response if found else _no(404, "Unable to find it."))

    async def _history(self, request: Request) -> Response:
        if (refusal := self._refusal(request, "history")) is not None:
            return refusal
        since, channel = int(request.query_params["since"]), request.path_params["channel"]
        posts = [p for p in self.posts.values() if p["channel_id"] == channel and p["update_at"] > since]
        order = [post["id"] for post in reversed(posts)]
        return JSONResponse({"order": order, "posts": {post["id"]: post for post in reversed(posts)}})

    async def _create(self, request: Request) -> Response:
        if (refusal := self._refusal(request, "post")) is not None:
            return refusal
        body = await request.json()
        if body["channel_id"] not in self.channels:
            return _no(403, "You do not have the appropriate permissions.")
        if len(body["message"]) > _MAX_CHARS or not (body["message"] or body.get("file_ids")):
            return _no(400, "Post Message property is longer than the maximum permitted length.")
        root = self.posts.get(body.get("root_id", ""))
        if body.get("root_id") and (root is None or root.get("root_id")):
            return _no(400, "Invalid RootId parameter.")
        return JSONResponse(self._add(body, BOT), 201)

    async def _get(self, request: Request) -> Response:
        fields = self.posts.get(request.path_params["post"])
        return self._refusal(request, "get") or (
            _no(404, "Unable to get the post.") if fields is None else JSONResponse(fields)
        )

    async def _patch(self, request: Request) -> Response:
        if (refusal := self._refusal(request, "patch")) is not None:
            return refusal
        post = self.posts.get(request.path_params["post"])
        if post is None or post["user_id"] != BOT:
            return _no(403, "You do not have the appropriate permissions.")
        body = await request.json()
        if len(body["message"]) > _MAX_CHARS:
            return _no(400, "too long")

        def change() -> None:
            self.edits.setdefault(post["id"], []).append(post["message"])
            post.update(body, update_at=self._tick())

        self.note(change)
        self._tell("post_edited", post["channel_id"], post=json.dumps(post))
        return JSONResponse(post)

    async def _react(self, request: Request) -> Response:
        if (refusal := self._refusal(request, "react")) is not None:
            return refusal
        body = await request.json()
        if body["user_id"] != BOT or body["post_id"] not in self.posts:
            return _no(403, "You do not have the appropriate permissions.")
        self.note(lambda: self.reactions.append(body))
        text = json.dumps({**body, "create_at": self._tick()})
        self._tell("reaction_added", self.posts[body["post_id"]]["channel_id"], reaction=text)
        return JSONResponse(body, 201)

    async def _types(self, request: Request) -> Response:
        body = await request.json()
        self.note(lambda: self.typing.append(body["channel_id"]))
        return self._refusal(request, "typing") or JSONResponse({"status": "OK"})

    async def _upload(self, request: Request) -> Response:
        if (refusal := self._refusal(request, "upload")) is not None:
            return refusal
        form = await request.form()
        upload = form["files"]
        name, data = str(upload.filename), await upload.read()  # type: ignore[union-attr]
        await form.close()
        file = f"file{len(self.files)}"
        self.note(lambda: self.files.__setitem__(file, (name, data)))
        return JSONResponse({"file_infos": [{"id": file, "name": name, "size": len(data)}]}, 201)

    async def _file(self, request: Request) -> Response:
        name = request.path_params["file"]
        return self._refusal(request, "file") or Response(self.files[name][1])


def _no(status: int, message: str) -> JSONResponse:
    return JSONResponse({"id": "api.error", "message": message, "status_code": status}, status)
