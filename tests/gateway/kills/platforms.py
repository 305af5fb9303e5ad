"""The four platforms as a kill soak drives them: people who write, faults, redelivery, and what arrived.

Every platform keeps what its gateway has not acknowledged and brings it again, in the way it really does.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Protocol, Self

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Scope

from tests.confirm.vendors import discord as discord_vendor
from tests.confirm.vendors import slack as slack_vendor
from tests.confirm.vendors import telegram as telegram_vendor
from tests.confirm.vendors.discord_chat import DiscordChat
from tests.confirm.vendors.host import Host
from tests.confirm.vendors.slack_chat import SlackChat
from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.kills.troubles import Troubles
from tests.support import quiet_port
from whet.vendors.signing import sign_headers

_PER_CHAT_S = 0.02


class Platform(Protocol):
    """A platform. Users are numbers; each has one private conversation."""

    troubles: Troubles
    users: list[int]

    def file(self) -> str:
        """Give the gateway's file."""
        ...

    def write(self, user: int, text: str) -> None:
        """Have somebody write; it is brought until it is acknowledged."""
        ...

    def begin(self) -> None:
        """Get ready, after the gateway's first start."""
        ...

    def shake(self, chance: random.Random) -> None:
        """Hand out some faults, and bring again what was brought before."""
        ...

    def unacknowledged(self) -> int:
        """Give how much is still to be brought; where nothing is acknowledged, 0."""
        ...

    def said(self, user: int) -> list[str]:
        """Give what somebody was sent, in order, repetitions included."""
        ...

    def count(self) -> int:
        """Give how many messages were sent in all."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Telegram(TelegramChat):
    """Updates come again until an offset passes them."""

    def __init__(self, users: list[int]) -> None:
        super().__init__(per_chat_s=_PER_CHAT_S)
        self.troubles = Troubles()
        self.users = users
        self._written: list[int] = []

    def app(self) -> ASGIApp:
        return self.troubles.around(super().app(), lambda scope: scope["path"].endswith("/sendMessage"))

    def file(self) -> str:
        people = "".join(f"[people.p{user}]\ntelegram = {user}\n" for user in self.users)
        return f'[[channel]]\nkind = "telegram"\nbase_url = "{self.url}"\n\n{people}'

    def write(self, user: int, text: str) -> None:  # type: ignore[override]
        self._written.append(super().write(text, chat=user))

    def begin(self) -> None:
        """Nothing is needed."""

    def shake(self, chance: random.Random) -> None:
        for update in chance.sample(self._written[-10:], min(3, len(self._written))):
            self.again(update)
        down = {"ok": False, "error_code": 502, "description": "Bad Gateway"}
        if chance.random() < 0.3:
            self.fail_next("getUpdates", (502, down, {}))
        if chance.random() < 0.4:
            self.fail_next("sendMessage", telegram_vendor.too_many(0))
        if chance.random() < 0.3:
            body = {"ok": False, "error_code": 500, "description": "Internal Server Error"}
            self.fail_next("sendMessage", (500, body, {}))

    def unacknowledged(self) -> int:
        return len(self._updates)

    def said(self, user: int) -> list[str]:  # type: ignore[override]
        return super().said(user)

    def count(self) -> int:
        return len(self.sends)

    async def _getUpdates(self, body: dict[str, Any]) -> JSONResponse:
        passes = body.get("offset", 0) > self.acknowledged
        if passes and self.troubles.strikes("before an acknowledgement"):
            return JSONResponse({"ok": False}, 500)
        return await super()._getUpdates(body)


class Discord(DiscordChat):
    """Nothing is acknowledged: sessions are resumed and replayed, else the history is fetched."""

    def __init__(self, users: list[int]) -> None:
        super().__init__()
        self.troubles = Troubles()
        self.users = users
        self._last: dict[str, float] = {}

    def app(self) -> ASGIApp:
        def is_send(scope: Scope) -> bool:
            return scope["method"] == "POST" and scope["path"].endswith("/messages")

        return self.troubles.around(super().app(), is_send)

    def file(self) -> str:
        people = "".join(f'[people.p{user}]\ndiscord = "{user}"\n' for user in self.users)
        return f'[[channel]]\nkind = "discord"\nbase_url = "{self.url}"\n\n{people}'

    def write(self, user: int, text: str) -> None:  # type: ignore[override]
        super().write(text, chat=f"5{user}", user=str(user))

    def begin(self) -> None:
        self.wait_connected()

    def shake(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            self.cut(4000)
        if chance.random() < 0.2:
            self.forget_sessions()
        if chance.random() < 0.4:
            self.fail_next("post", discord_vendor.too_many(0.05), (503, {"message": "unavailable"}, {}))
        if chance.random() < 0.4:
            self.fail_next("history", discord_vendor.too_many(0.05), (500, {"message": "trouble"}, {}))
        if self.said_by_people and self.connected:  # an event twice
            again = chance.choice(self.said_by_people[-10:])
            self.call(self.dispatch("MESSAGE_CREATE", again))

    def unacknowledged(self) -> int:
        return 0

    def said(self, user: int) -> list[str]:  # type: ignore[override]
        return super().said(f"5{user}")

    def count(self) -> int:
        return len(self.messages)

    async def _check(self, request: Request, method: str) -> Response | None:
        if method == "history" and self.troubles.strikes("before an acknowledgement"):
            return JSONResponse({}, 500)
        if method == "post":
            chat, now = request.path_params["chat"], time.monotonic()
            wait_s = self._last.get(chat, 0.0) + _PER_CHAT_S - now
            if wait_s > 0:
                status, body, headers = discord_vendor.too_many(round(wait_s, 3))
                return JSONResponse(body, status, headers=headers)
            self._last[chat] = now
        return await super()._check(request, method)


class Slack(SlackChat):
    """Envelopes come again, on every new connection, until they are acknowledged."""

    def __init__(self, users: list[int]) -> None:
        super().__init__()
        self.troubles = Troubles()
        self.users = users
        self._written: list[tuple[int, str, str]] = []
        self._last: dict[str, float] = {}
        self._half_done = 0

    def app(self) -> ASGIApp:
        return self.troubles.around(super().app(), lambda scope: scope["path"] == "/chat.postMessage")

    def file(self) -> str:
        people = "".join(f'[people.p{user}]\nslack = "U{user}"\n' for user in self.users)
        return f'[[channel]]\nkind = "slack"\nbase_url = "{self.url}"\n\n{people}'

    def write(self, user: int, text: str) -> None:  # type: ignore[override]
        self._written.append((user, text, super().write(text, chat=f"D{user}", user=f"U{user}")))

    def begin(self) -> None:
        """Nothing is needed."""

    def shake(self, chance: random.Random) -> None:
        for user, text, stamp in chance.sample(self._written[-10:], min(2, len(self._written))):
            super().write(text, chat=f"D{user}", user=f"U{user}", ts=stamp)  # in another envelope
        if chance.random() < 0.3 and self._sockets:
            self.ask_to_reconnect()
        if chance.random() < 0.4:
            self.fail_next("chat.postMessage", slack_vendor.too_many(0))
        if chance.random() < 0.3:
            self.fail_next("chat.postMessage", (503, {"ok": False, "error": "service_unavailable"}, {}))
            self._half_done += 1
        if chance.random() < 0.2:
            limited = {"ok": False, "error": "ratelimited"}
            self.fail_next("apps.connections.open", (200, limited, {"retry-after": "0"}))

    def unacknowledged(self) -> int:
        return len(self.pending)

    def said(self, user: int) -> list[str]:  # type: ignore[override]
        return super().said(f"D{user}")

    def count(self) -> int:
        return len(self.messages)

    def acknowledge(self, envelope: str) -> None:
        if not self.troubles.strikes("before an acknowledgement"):
            super().acknowledge(envelope)

    def do(self, method: str, body: dict[str, Any]) -> Response:
        if method == "chat.postMessage":
            now = time.monotonic()
            wait_s = self._last.get(body["channel"], 0.0) + _PER_CHAT_S - now
            if wait_s > 0:
                limited = {"ok": False, "error": "ratelimited"}
                return JSONResponse(limited, 429, headers={"retry-after": f"{wait_s:.3f}"})
            self._last[body["channel"]] = now
            if self._half_done:  # "some aspect of the operation" may have "succeeded before the error"
                self._half_done -= 1
                super().do(method, body)
                return JSONResponse({"ok": False, "error": "fatal_error"})
        return super().do(method, body)


class Webhook(Host):
    """A program that posts each person's messages one after the other, and each until it hears 202; it drops
    what comes a second time under the same id."""

    def __init__(self, users: list[int]) -> None:
        super().__init__()
        self.troubles = Troubles()
        self.users = users
        self.got: dict[str, dict[str, Any]] = {}
        self.repeated = 0
        self._in_port = quiet_port()
        self._waiting: dict[int, queue.Queue[tuple[str, str]]] = defaultdict(queue.Queue)
        self._left = 0
        self._senders: list[threading.Thread] = []
        self._over = threading.Event()

    def app(self) -> ASGIApp:
        site = Starlette(routes=[Route("/in", self._in, methods=["POST"])])
        return self.troubles.around(site, lambda scope: True)

    def file(self) -> str:
        people = "".join(f'[people.p{user}]\nwebhook = "u{user}"\n' for user in self.users)
        listen = f'listen = "127.0.0.1:{self._in_port}"\nurl = "{self.url}/in"'
        return f'[[channel]]\nkind = "webhook"\n{listen}\n\n{people}'

    def write(self, user: int, text: str) -> None:
        self.note(lambda: self._count_left(1))
        self._waiting[user].put((f"in-{text}", text))

    def begin(self) -> None:
        """Start one sender for each person."""
        for user in self.users:
            self._senders.append(threading.Thread(target=self._send_all, args=(user,), daemon=True))
            self._senders[-1].start()

    def shake(self, chance: random.Random) -> None:
        if chance.random() < 0.6:
            self.fail_next("in", *chance.sample([429, 500, 503, 502, 504], 2))

    def unacknowledged(self) -> int:
        return self._left

    def _count_left(self, change: int) -> None:
        self._left += change

    def said(self, user: int) -> list[str]:
        with self.changed:
            return [one["text"] for one in self.got.values() if one["user"] == f"u{user}"]

    def count(self) -> int:
        return len(self.got)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for sender in self._senders:
            sender.join(30)
        super().__exit__()

    def _send_all(self, user: int) -> None:
        while not self._over.is_set():
            try:
                id_, text = self._waiting[user].get(timeout=0.1)
            except queue.Empty:
                continue
            while not self._over.is_set() and not self._ask_to_accept(user, id_, text):
                self._over.wait(0.05)
            self.note(lambda: self._count_left(-1))

    def _ask_to_accept(self, user: int, id_: str, text: str) -> bool:
        data = {"conversation": f"c{user}", "user": f"u{user}", "text": text}
        body = msgspec.json.encode({"type": "message", "data": data})
        headers = sign_headers(b"k" * 32, id_, int(time.time()), body)
        try:
            url = f"http://127.0.0.1:{self._in_port}/"
            with httpx2.stream("POST", url, content=body, headers=headers, timeout=5.0) as answer:
                if self.troubles.strikes("before an acknowledgement"):
                    return False  # the answer was on its way and never seen
                return answer.status_code == 202
        except httpx2.HTTPError:
            return False

    async def _in(self, request: Request) -> Response:
        body = await request.body()
        id_, stamp = request.headers["webhook-id"], int(request.headers["webhook-timestamp"])
        if (
            sign_headers(b"k" * 32, id_, stamp, body)["webhook-signature"]
            != request.headers["webhook-signature"]
        ):
            return Response(status_code=401)
        fault = self.next_fault("in")
        if fault is not None:
            return Response(status_code=fault, headers={"retry-after": "0.05"} if fault == 429 else {})
        data = msgspec.json.decode(body)["data"]
        if data["id"] in self.got:
            self.repeated += 1
        else:
            self.note(lambda: self.got.__setitem__(data["id"], data))
        return Response(status_code=204)


PLATFORMS: dict[str, Callable[[list[int]], Platform]] = {
    "telegram": Telegram,
    "discord": Discord,
    "slack": Slack,
    "webhook": Webhook,
}
