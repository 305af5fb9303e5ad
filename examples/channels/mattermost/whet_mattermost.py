"""Mattermost as a channel: a bot that hears over the websocket and answers over REST.

Mattermost does not bring again what was said while nobody was connected, so how far each channel was read is
kept, and what came after it is fetched on every connection. Buttons of Mattermost's own call an address that
its server must reach; reactions need none, so a button is an emoji here, and what it stands for is kept in
the post's props. A press therefore counts after a restart too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from whet.channels.transfer import form, read_file
from whet.contract.channels import (
    ChatPlace,
    FileRef,
    Incoming,
    Memo,
    MessageButton,
    Outgoing,
    Platform,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)
from whet.contract.errors import ConfigError
from whet.vendors.http import VendorAnswer, VendorHttp, read, refused
from whet.vendors.sockets import Socket, SocketClosed, converse

T = TypeVar("T")
_RETRY_S = 3.0
_EMOJIS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "keycap_ten")
_LOG = logging.getLogger(__name__)


class MattermostSettings(msgspec.Struct, frozen=True):
    """What stands in [[channel]] besides what every channel takes."""

    url: str = ""
    token_env: str = "MATTERMOST_TOKEN"


class _User(msgspec.Struct):
    id: str = ""
    username: str = ""


class _File(msgspec.Struct):
    id: str
    name: str = ""
    mime_type: str = ""
    size: int = 0


class _Files(msgspec.Struct):
    files: list[_File] = msgspec.field(default_factory=list[_File])


class _Props(msgspec.Struct):
    whet: dict[str, str] = {}
    from_bot: str = ""


class _Post(msgspec.Struct):
    id: str
    channel_id: str
    user_id: str = ""
    root_id: str = ""
    type: str = ""
    message: str = ""
    create_at: int = 0
    update_at: int = 0
    delete_at: int = 0
    props: _Props = msgspec.field(default_factory=_Props)
    metadata: _Files = msgspec.field(default_factory=_Files)


class _Posts(msgspec.Struct):
    posts: dict[str, _Post] = {}


class _Channel(msgspec.Struct):
    id: str
    type: str = ""
    last_post_at: int = 0


class _Reaction(msgspec.Struct):
    user_id: str
    post_id: str
    emoji_name: str
    create_at: int = 0


class _Data(msgspec.Struct):
    post: str = ""
    reaction: str = ""
    channel_type: str = ""
    sender_name: str = ""


class _Broadcast(msgspec.Struct):
    channel_id: str = ""


class _Event(msgspec.Struct):
    event: str = ""
    data: _Data = msgspec.field(default_factory=_Data)
    broadcast: _Broadcast = msgspec.field(default_factory=_Broadcast)


class _Problem(msgspec.Struct):
    message: str = ""


class _Uploaded(msgspec.Struct):
    file_infos: list[_File] = msgspec.field(default_factory=list[_File])


class Mattermost:
    """One bot."""

    limits = PlatformLimits(15_000, edit_every_s=1.0, group_edit_every_s=1.0)

    def __init__(self, name: str, url: str, token: str) -> None:
        self.name = name
        self._url = url.rstrip("/")
        self._token = token
        self._auth = {"authorization": f"Bearer {token}"}
        self._http = VendorHttp("Mattermost", f"{self._url}/api/v4", self._auth)
        self._me = _User()
        self._types: dict[str, str] = {}

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Hear until cancelled. Raises SendFailed where Mattermost refuses the bot for good."""

        async def talk(socket: Socket) -> None:
            challenge = {"token": self._token}
            await socket.send({"seq": 1, "action": "authentication_challenge", "data": challenge})
            while True:
                event = read(await socket.receive(), _Event) or _Event()
                if event.event == "hello" and "message" in wants:
                    # From here on events wait in the socket, so nothing falls between history and them.
                    await self._catch_up(take, memo)
                elif (update := await self._incoming(event, wants)) is not None:
                    await take([update])
                    if update.verb == "message":
                        await memo.set(str(int(update.at_s * 1000)), update.place.chat)

        while True:
            wait_s = _RETRY_S
            try:
                self._me = await self._get("/users/me", _User)
                await take([])  # the token is valid
                await converse(self._http.client, f"ws{self._url[4:]}/api/v4/websocket", talk)
            except SocketClosed as error:
                _LOG.warning("channel %s hears nothing: %s", self.name, error)
            except SendFailed as error:
                if error.is_final:
                    raise
                _LOG.warning("channel %s hears nothing: %s", self.name, error.reason)
                wait_s = error.retry_after_s or wait_s
            await asyncio.sleep(wait_s)

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Post a message, with its file and its buttons' emojis."""
        body = {**_body(message), "channel_id": place.chat, "root_id": place.thread}
        if message.file:
            body["file_ids"] = [await self._upload(place.chat, message)]
        sent = self._checked(await self._http.call("POST", "/posts", body)).read(_Post)
        if sent is None:
            raise SendFailed("Mattermost did not say which post it is", maybe_sent=True)
        me = self._me.id or (await self._get("/users/me", _User)).id
        for emoji in _emojis(message):  # so that there is something to press
            with contextlib.suppress(SendFailed):
                reaction = {"user_id": me, "post_id": sent.id, "emoji_name": emoji}
                self._checked(await self._http.call("POST", "/reactions", reaction))
        return sent.id

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Change a message; emojis of buttons that are gone do nothing any more."""
        self._checked(await self._http.call("PUT", f"/posts/{ref}/patch", _body(message)))

    async def typing(self, place: ChatPlace) -> None:
        """Show that somebody writes, for some seconds."""
        body = {"channel_id": place.chat, "parent_id": place.thread}
        self._checked(await self._http.call("POST", "/users/me/typing", body))

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Get a file with the bot's token."""
        url = f"{self._url}/api/v4/files/{file.where}"
        return await self._http.download(url, max_bytes, self._auth)

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Say it under the message: only administrators' bots may whisper."""
        body = {"channel_id": press.place.chat, "root_id": press.token, "message": _quiet(text)}
        self._checked(await self._http.call("POST", "/posts", body))

    async def aclose(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def _get(self, path: str, shape: type[T]) -> T:
        found = self._checked(await self._http.call("GET", path)).read(shape)
        if found is None:
            raise SendFailed(f"Mattermost's answer to {path.partition('?')[0]} is not its protocol")
        return found

    def _checked(self, answer: VendorAnswer) -> VendorAnswer:
        if 200 <= answer.status < 300:
            return answer
        raise refused("Mattermost", answer, (answer.read(_Problem) or _Problem()).message)

    async def _upload(self, chat: str, message: Outgoing) -> str:
        name, data = message.file_name or Path(message.file).name, await read_file(message)
        content, kind = form({"channel_id": chat}, "files", name, data)
        try:
            answer = await self._http.raw("POST", "/files", content, {"content-type": kind}, 120.0)
            return (self._checked(answer).read(_Uploaded) or _Uploaded()).file_infos[0].id
        except SendFailed as error:
            error.maybe_sent = False  # nobody sees a file before its post
            raise

    async def _catch_up(self, take: Take, memo: Memo) -> None:
        """Take in what was said since each channel was read; at the very first start, nothing."""
        known = await memo.all()
        if not known:
            await memo.set(str(int(time.time() * 1000)))
            return
        for channel in await self._get("/users/me/channels", list[_Channel]):
            since_ms = int(known.get(channel.id) or known[""])
            self._types[channel.id] = channel.type
            if channel.last_post_at < since_ms:
                continue
            found = await self._get(f"/channels/{channel.id}/posts?since={since_ms}", _Posts)
            posts = sorted(found.posts.values(), key=lambda post: post.create_at)
            missed = [post for post in posts if post.create_at >= since_ms and not post.delete_at]
            updates = [await self._said(post, "", "message") for post in missed]
            await take([update for update in updates if update is not None])
            if missed:
                await memo.set(str(missed[-1].create_at), channel.id)

    async def _incoming(self, event: _Event, wants: frozenset[Verb]) -> Incoming | None:
        if event.event == "reaction_added":
            reaction = read(event.data.reaction, _Reaction)
            return None if reaction is None else await self._pressed(reaction, event.broadcast.channel_id)
        verbs: dict[str, Verb] = {"posted": "message", "post_edited": "edit", "post_deleted": "edit"}
        verb, post = verbs.get(event.event), read(event.data.post, _Post)
        if verb is None or post is None or verb not in wants:
            return None
        if event.data.channel_type:  # only new posts' events say it
            self._types[post.channel_id] = event.data.channel_type
        if event.event == "post_deleted":
            post = msgspec.structs.replace(post, message="", update_at=post.delete_at)
        return await self._said(post, event.data.sender_name, verb)

    async def _said(self, post: _Post, name: str, verb: Verb) -> Incoming | None:
        if post.user_id == self._me.id or post.type or post.props.from_bot:
            return None
        if post.channel_id not in self._types:
            self._types[post.channel_id] = (await self._get(f"/channels/{post.channel_id}", _Channel)).type
        group = self._types[post.channel_id] != "D"
        named = re.search(rf"(?<!\w)@{re.escape(self._me.username)}(?![\w-])", post.message)
        text = post.message.replace(named[0], "", 1).strip() if named else post.message
        files = [FileRef(file.id, file.name, file.mime_type, file.size) for file in post.metadata.files]
        thread = post.root_id or (post.id if group else "")
        return Incoming(
            ChatPlace(self.name, post.channel_id, thread, post.user_id, group),
            post.id if verb == "message" else f"{post.id}-{post.update_at}",
            verb,
            name.lstrip("@"),
            text,
            tuple(files),
            mentions_us=named is not None or verb == "edit",
            ref=post.id,
            at_s=post.create_at / 1000,
        )

    async def _pressed(self, reaction: _Reaction, chat: str) -> Incoming | None:
        if reaction.user_id == self._me.id:
            return None
        try:
            post = await self._get(f"/posts/{reaction.post_id}", _Post)
        except SendFailed as error:
            if error.status != 404:
                raise
            return None  # it was deleted meanwhile
        data = post.props.whet.get(reaction.emoji_name, "")
        if post.user_id != self._me.id or not data:  # what stands in others' posts is theirs
            return None
        return Incoming(
            ChatPlace(self.name, chat, post.root_id, reaction.user_id),
            f"{post.id}-{reaction.user_id}-{reaction.emoji_name}-{reaction.create_at}",
            "press",
            reaction.user_id,
            data,
            ref=post.id,
            token=post.root_id or post.id,
        )


def _body(message: Outgoing) -> dict[str, Any]:
    """Write text, links, and what each emoji stands for."""
    emojis = _emojis(message)
    links = [f"[{button.label}]({button.url})" for button in message.buttons if button.url]
    legend = " · ".join([*(f":{emoji}: {button.label}" for emoji, button in emojis.items()), *links])
    text = "\n\n".join(filter(None, [_quiet(message.text), legend]))
    props = {"whet": {emoji: button.data for emoji, button in emojis.items()}}
    return {"message": text or ("" if message.file else "…"), "props": props}


def _emojis(message: Outgoing) -> dict[str, MessageButton]:
    """Give each button its emoji: a tick for the first yes, a cross for the first no, numbers for others."""
    found: dict[str, MessageButton] = {}
    numbers = iter(_EMOJIS)
    for button in [button for button in message.buttons if not button.url][:10]:
        usual = {"good": "white_check_mark", "bad": "x", "plain": ""}[button.style]
        found[usual if usual and usual not in found else next(numbers)] = button
    return found


def _quiet(text: str) -> str:
    """Keep a text from calling anybody: an unseen character stands behind each @."""
    return text.replace("@", "@\u200b")


def _open(name: str, settings: MattermostSettings, tokens: tuple[str, ...]) -> Mattermost:
    if not settings.url.startswith(("http://", "https://")):
        raise ConfigError(f"channel {name} has no url", hint='url = "https://mattermost.example.org"')
    return Mattermost(name, settings.url, tokens[0])


PLATFORM = Platform(MattermostSettings, _open)
