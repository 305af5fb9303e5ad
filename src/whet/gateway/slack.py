"""Slack: an app that hears in Socket Mode and answers over the Web API.

Slack brings an envelope again until it was acknowledged, and that is done after its event was stored. What
begins with ! counts as a command, for Slack keeps / for itself; so does the text of a slash command of the
app.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import msgspec

from whet.confirm.notify.vendor_http import VendorHttp, read, refused
from whet.confirm.notify.vendor_socket import Socket, SocketClosed, converse
from whet.gateway.channel import FileRef, Incoming, Limits, Memo, Outgoing, SendFailed, Take
from whet.gateway.markup import slack_mrkdwn
from whet.gateway.settings import ChannelText
from whet.gateway.transfer import download, form
from whet.store.chats import Place

BASE_URL = "https://slack.com/api"
_RETRY_S = 5.0
_TRANSIENT = frozenset(
    ("ratelimited", "internal_error", "fatal_error", "service_unavailable", "request_timeout")
)
_STYLES = {"good": {"style": "primary"}, "bad": {"style": "danger"}, "plain": {}}
_SECTION_CHARS = 2_900
_LOG = logging.getLogger("whet.gateway")


class _Answer(msgspec.Struct):
    ok: bool = False
    error: str = ""
    channel: str = ""
    ts: str = ""
    url: str = ""
    user_id: str = ""
    upload_url: str = ""
    file_id: str = ""


class _File(msgspec.Struct):
    url_private_download: str = ""
    name: str = ""
    mimetype: str = ""
    size: int = 0


class _Event(msgspec.Struct):
    type: str = ""
    subtype: str = ""
    channel: str = ""
    channel_type: str = ""
    user: str = ""
    bot_id: str = ""
    text: str = ""
    ts: str = ""
    thread_ts: str = ""
    files: list[_File] = msgspec.field(default_factory=list[_File])
    message: _Event | None = None
    previous_message: _Event | None = None


class _User(msgspec.Struct):
    id: str = ""
    username: str = ""


class _Action(msgspec.Struct):
    value: str = ""


class _Room(msgspec.Struct):
    id: str = ""


class _Stands(msgspec.Struct):
    ts: str = ""
    thread_ts: str = ""


class _Payload(msgspec.Struct):
    type: str = ""
    event: _Event = msgspec.field(default_factory=_Event)
    user: _User = msgspec.field(default_factory=_User)
    channel: _Room = msgspec.field(default_factory=_Room)
    actions: list[_Action] = msgspec.field(default_factory=list[_Action])
    message: _Stands = msgspec.field(default_factory=_Stands)
    text: str = ""
    user_id: str = ""
    user_name: str = ""
    channel_id: str = ""
    trigger_id: str = ""


class _Envelope(msgspec.Struct):
    type: str = ""
    envelope_id: str = ""
    payload: _Payload = msgspec.field(default_factory=_Payload)


class Slack:
    """One app: a bot token (xoxb-) to speak, an app token (xapp-) to hear."""

    limits = Limits(_SECTION_CHARS, edit_every_s=1.3, group_edit_every_s=1.5)

    def __init__(self, name: str, tokens: tuple[str, ...], base_url: str = "") -> None:
        self.name = name
        root = base_url or BASE_URL
        self._bearer = f"Bearer {tokens[0]}"
        self._bot = VendorHttp("Slack", root, {"authorization": self._bearer})
        self._app = VendorHttp("Slack", root, {"authorization": f"Bearer {tokens[1]}"})
        self._me = ""

    async def listen(self, take: Take, memo: Memo) -> None:
        """Hear until cancelled. Raises SendFailed when Slack refuses the app for good."""

        async def talk(socket: Socket) -> None:
            while await self._hear(socket, read(await socket.receive(), _Envelope), take):
                pass

        while True:
            try:
                if not self._me:
                    self._me = (await _call(self._bot, "auth.test", {})).user_id
                opened = await _call(self._app, "apps.connections.open", {})
                await converse(self._app.client, opened.url, talk)
                continue  # Slack asked for a new connection, as it does every few hours
            except SocketClosed as error:
                _LOG.warning("channel %s hears nothing: %s", self.name, error)
                delay_s = _RETRY_S
            except SendFailed as error:
                if error.is_final:
                    raise
                _LOG.warning("channel %s hears nothing: %s", self.name, error.reason)
                delay_s = error.retry_after_s or _RETRY_S
            await asyncio.sleep(delay_s)

    async def send(self, place: Place, message: Outgoing, key: str) -> str:
        """Post a message, or share a file."""
        if message.file:
            return await self._share(place, message)
        where = {"thread_ts": place.thread} if place.thread else {}
        result = await _call(
            self._bot, "chat.postMessage", {"channel": place.chat, **where, **_body(message)}
        )
        return result.ts

    async def edit(self, place: Place, ref: str, message: Outgoing) -> None:
        """Change a message, buttons included."""
        await _call(self._bot, "chat.update", {"channel": place.chat, "ts": ref, **_body(message)})

    async def typing(self, place: Place) -> None:
        """Do nothing: apps can't show that they write."""

    async def fetch(self, file: FileRef, most_bytes: int) -> bytes:
        """Get a file with the bot's token."""
        return await download(self._bot.client, file.where, most_bytes, {"authorization": self._bearer})

    async def answer(self, press: Incoming, text: str) -> None:
        """Tell the presser alone."""
        body = {"channel": press.place.chat, "user": press.place.user, "text": slack_mrkdwn(text)}
        with contextlib.suppress(SendFailed):
            await _call(self._bot, "chat.postEphemeral", body)

    async def aclose(self) -> None:
        """Close connections."""
        await self._bot.aclose()
        await self._app.aclose()

    async def _hear(self, socket: Socket, envelope: _Envelope | None, take: Take) -> bool:
        if envelope is None:
            return True
        if envelope.type == "disconnect":
            return False
        update = self._update(envelope)
        if update is not None:
            await take([update])
        if envelope.envelope_id:
            await socket.send({"envelope_id": envelope.envelope_id})
        return True

    def _update(self, envelope: _Envelope) -> Incoming | None:
        payload = envelope.payload
        if envelope.type == "events_api":
            return self._event(payload.event)
        if envelope.type == "slash_commands":
            place = Place(self.name, payload.channel_id, "", payload.user_id, _is_group(payload.channel_id))
            text = f"/{payload.text.strip().lstrip('/!') or 'help'}"
            return Incoming(
                place, f"c{payload.trigger_id}", "message", payload.user_name, text, mentions_us=True
            )
        if envelope.type == "interactive" and payload.type == "block_actions" and payload.actions:
            chat, user = payload.channel.id, payload.user
            place = Place(self.name, chat, payload.message.thread_ts, user.id, _is_group(chat))
            data = payload.actions[0].value
            return Incoming(
                place, f"p{envelope.envelope_id}", "press", user.username, data, ref=payload.message.ts
            )
        return None

    def _event(self, event: _Event) -> Incoming | None:
        if event.subtype == "message_changed" and event.message is not None:
            return self._said(event.message, event, "edit")
        if event.subtype == "message_deleted" and event.previous_message is not None:
            gone = msgspec.structs.replace(event.previous_message, text="", files=[])
            return self._said(gone, event, "edit")
        if event.type in ("message", "app_mention") and event.subtype in ("", "file_share"):
            return self._said(event, event, "message")
        return None

    def _said(self, said: _Event, event: _Event, verb: Any) -> Incoming | None:
        if not said.user or said.bot_id or said.user == self._me:
            return None
        group = event.channel_type != "im" if event.channel_type else _is_group(event.channel)
        named = f"<@{self._me}>" in said.text or event.type == "app_mention" or verb == "edit"
        text = said.text.replace(f"<@{self._me}>", "").strip()
        text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        if text.startswith("!"):
            text = f"/{text[1:]}"
        thread = said.thread_ts or (said.ts if group else "")
        files = tuple(FileRef(f.url_private_download, f.name, f.mimetype, f.size) for f in said.files)
        return Incoming(
            Place(self.name, event.channel, thread, said.user, group),
            f"{event.channel}-{said.ts}" if verb == "message" else f"e{event.channel}-{event.ts}",
            verb,
            said.user,
            text,
            files,
            mentions_us=named,
            ref=said.ts,
        )

    async def _share(self, place: Place, message: Outgoing) -> str:
        file = Path(message.file)
        try:
            data = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            raise SendFailed(f"{file.name}: {error.strerror}", is_final=True) from None
        name = message.file_name or file.name
        slot = await _call(self._bot, "files.getUploadURLExternal", {"filename": name, "length": len(data)})
        content, kind = form({}, "file", name, data)
        upload = VendorHttp("Slack", slot.upload_url)
        try:
            answer = await upload.raw("POST", "", content, {"content-type": kind}, 120.0)
        finally:
            await upload.aclose()
        if answer.status != 200:
            raise refused("Slack", answer, "the upload was refused")
        body: dict[str, Any] = {"files": [{"id": slot.file_id, "title": name}], "channel_id": place.chat}
        if place.thread:
            body["thread_ts"] = place.thread
        if message.text:
            body["initial_comment"] = slack_mrkdwn(message.text)
        await _call(self._bot, "files.completeUploadExternal", body)
        return slot.file_id


def open_channel(name: str, tokens: tuple[str, ...], text: ChannelText) -> Slack:
    """Make the channel."""
    return Slack(name, tokens, text.base_url)


def _is_group(chat: str) -> bool:
    return not chat.startswith("D")


def _body(message: Outgoing) -> dict[str, Any]:
    text = slack_mrkdwn(message.text) or "…"
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": text[:3000], "verbatim": True}}
    ]
    if message.buttons:
        elements = [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": button.label[:75]},
                "action_id": f"press-{number}",
                "value": button.data,
                **_STYLES[button.style],
            }
            for number, button in enumerate(message.buttons)
        ]
        blocks.append({"type": "actions", "elements": elements})
    return {
        "text": text[:3000],
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
        "link_names": False,
    }


async def _call(http: VendorHttp, method: str, body: dict[str, Any]) -> _Answer:
    answer = await http.call("POST", f"/{method}", body)
    said = answer.read(_Answer) or _Answer()
    if answer.status == 200 and said.ok:
        return said
    if answer.status == 200:  # Slack says most errors with 200
        raise SendFailed(
            f"Slack answered: {said.error or 'something that is not its protocol'}",
            is_final=bool(said.error) and said.error not in _TRANSIENT,
            retry_after_s=answer.retry_after_s,
        )
    raise refused("Slack", answer, said.error)
