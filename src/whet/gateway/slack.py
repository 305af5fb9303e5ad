"""Slack: an app that hears in Socket Mode and answers over the Web API.

Slack brings an envelope again until it was acknowledged, and that is done after its event was stored. What
begins with ! counts as a command, for Slack keeps / for itself; so does the text of a slash command of the
app.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgspec

from whet.gateway.channel import FileRef, Incoming, Memo, Outgoing, PlatformLimits, SendFailed, Take
from whet.gateway.markup import slack_mrkdwn
from whet.gateway.pieces import pieces
from whet.gateway.settings import GatewayChannelText
from whet.gateway.transfer import download, form
from whet.store.chats import ChatPlace
from whet.vendors.http import VendorHttp, read, refused
from whet.vendors.slack import Acknowledge, SlackApi, SlackEnvelope, SlackPress

_STYLES = {"good": {"style": "primary"}, "bad": {"style": "danger"}, "plain": {}}
_SECTION_CHARS = 2_900
_MOST_SECTION_CHARS = 3_000
_LEAST_CHARS = 500


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


class _Events(msgspec.Struct):
    event: _Event = msgspec.field(default_factory=_Event)


class _Slash(msgspec.Struct):
    text: str = ""
    user_id: str = ""
    user_name: str = ""
    channel_id: str = ""
    trigger_id: str = ""


class SlackChannel:
    """One app: a bot token (xoxb-) to speak, an app token (xapp-) to hear."""

    limits = PlatformLimits(_SECTION_CHARS, edit_every_s=1.3, group_edit_every_s=1.5)

    def __init__(self, name: str, tokens: tuple[str, ...], base_url: str = "") -> None:
        self.name = name
        self._api = SlackApi(name, tokens, base_url)
        self._me = ""

    async def listen(self, take: Take, memo: Memo) -> None:
        """Hear until cancelled. Raises SendFailed when Slack refuses the app for good."""

        async def ready() -> None:
            self._me = self._me or (await self._api.call("auth.test", {})).user_id

        async def heard(envelope: SlackEnvelope, acknowledge: Acknowledge) -> None:
            if envelope.type == "interactive":
                await acknowledge()  # Slack waits three seconds, and a press that comes again decides nothing
            update = self._update(envelope)
            if update is not None:
                await take([update])
            if envelope.type != "interactive":
                await acknowledge()

        await self._api.hear(heard, ready)

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Post a message, or share a file."""
        if message.file:
            return await self._share(place, message)
        where = {"thread_ts": place.thread} if place.thread else {}
        result = await self._api.call("chat.postMessage", {"channel": place.chat, **where, **_body(message)})
        return result.ts

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Change a message, buttons included."""
        await self._api.call("chat.update", {"channel": place.chat, "ts": ref, **_body(message)})

    async def typing(self, place: ChatPlace) -> None:
        """Do nothing: apps can't show that they write."""

    async def fetch(self, file: FileRef, most_bytes: int) -> bytes:
        """Get a file with the bot's token."""
        return await download(
            self._api.bot.client, file.where, most_bytes, {"authorization": self._api.bearer}
        )

    async def answer(self, press: Incoming, text: str) -> None:
        """Tell the presser alone."""
        body = {"channel": press.place.chat, "user": press.place.user, "text": slack_mrkdwn(text)}
        with contextlib.suppress(SendFailed):
            await self._api.call("chat.postEphemeral", body)

    async def aclose(self) -> None:
        """Close connections."""
        await self._api.aclose()

    def _update(self, envelope: SlackEnvelope) -> Incoming | None:
        payload = bytes(envelope.payload)
        if envelope.type == "events_api":
            return self._event((read(payload, _Events) or _Events()).event)
        if envelope.type == "slash_commands":
            return self._slash(read(payload, _Slash) or _Slash())
        press = read(payload, SlackPress) if envelope.type == "interactive" else None
        if press is None or not press.data:
            return None
        chat, user, message = press.channel.id, press.user, press.message
        place = ChatPlace(self.name, chat, message.thread_ts, user.id, _is_group(chat))
        return Incoming(place, f"p{envelope.envelope_id}", "press", user.username, press.data, ref=message.ts)

    def _slash(self, said: _Slash) -> Incoming:
        place = ChatPlace(self.name, said.channel_id, "", said.user_id, _is_group(said.channel_id))
        text = f"/{said.text.strip().lstrip('/!') or 'help'}"
        return Incoming(place, f"c{said.trigger_id}", "message", said.user_name, text, mentions_us=True)

    def _event(self, event: _Event) -> Incoming | None:
        before = event.previous_message
        if event.subtype == "message_changed" and event.message is not None:
            if before is not None and before.text == event.message.text:
                return None  # Slack has added a preview to it
            return self._said(event.message, event, "edit")
        if event.subtype == "message_deleted" and before is not None:
            gone = msgspec.structs.replace(before, text="", files=[])
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
            ChatPlace(self.name, event.channel, thread, said.user, group),
            f"{event.channel}-{said.ts}" if verb == "message" else f"e{event.channel}-{event.ts}",
            verb,
            said.user,
            text,
            files,
            mentions_us=named,
            ref=said.ts,
            at_s=_seconds(said.ts) if verb == "message" else 0.0,
        )

    async def _share(self, place: ChatPlace, message: Outgoing) -> str:
        file = Path(message.file)
        try:
            data = await asyncio.to_thread(file.read_bytes)
        except OSError as error:
            raise SendFailed(f"{file.name}: {error.strerror}", is_final=True) from None
        name = message.file_name or file.name
        try:
            file_id = await self._upload(name, data)
        except SendFailed as error:
            if error.status:  # a refusal: nobody sees a file before it is completed
                error.maybe_sent = False
            raise
        body: dict[str, Any] = {"files": [{"id": file_id, "title": name}], "channel_id": place.chat}
        if place.thread:
            body["thread_ts"] = place.thread
        if message.text:
            body["initial_comment"] = slack_mrkdwn(message.text)
        await self._api.call("files.completeUploadExternal", body)
        return file_id

    async def _upload(self, name: str, data: bytes) -> str:
        slot = await self._api.call("files.getUploadURLExternal", {"filename": name, "length": len(data)})
        content, kind = form({}, "file", name, data)
        upload = VendorHttp("Slack", slot.upload_url)
        try:
            answer = await upload.raw("POST", "", content, {"content-type": kind}, 120.0)
        finally:
            await upload.aclose()
        if answer.status != 200:
            raise refused("Slack", answer, "the upload was refused")
        return slot.file_id


def open_channel(name: str, tokens: tuple[str, ...], text: GatewayChannelText) -> SlackChannel:
    """Make the channel."""
    return SlackChannel(name, tokens, text.base_url)


def _seconds(stamp: str) -> float:
    try:
        return float(stamp)
    except ValueError:
        return 0.0


def _is_group(chat: str) -> bool:
    return not chat.startswith("D")


def _body(message: Outgoing) -> dict[str, Any]:
    sections = _sections(message.text)
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}} for text in sections
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
        "text": "\n".join(sections),
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
        "link_names": False,
    }


def _sections(text: str) -> list[str]:
    """Write Markdown as the sections that it takes; escaped, a text may be five times as long."""
    room = _SECTION_CHARS
    while True:
        found = [slack_mrkdwn(piece) or "…" for piece in pieces(text, room)]
        if room < _LEAST_CHARS or max(map(len, found)) <= _MOST_SECTION_CHARS:
            return found
        room //= 2
