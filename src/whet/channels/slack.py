"""Connect a Slack app, which receives in Socket Mode and sends over the Web API.

Slack repeats an event until it is acknowledged, so an event is stored first. A message that begins with ! is
a command, because Slack reserves /. The text of the app's slash command is a command, too. A card has other
people's text in `rich_text_preformatted` elements, in which Slack parses no links, mentions or markup.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec

from whet.channels.markup import read_mrkdwn, slack_mrkdwn
from whet.channels.pieces import split_message
from whet.channels.slack_history import SlackHistory
from whet.channels.thread_starts import ThreadStarts, add_root
from whet.channels.transfer import form, read_files
from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import (
    ChatPlace,
    FileRef,
    Incoming,
    Memo,
    MessageButton,
    MessageCard,
    Outgoing,
    Platform,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)
from whet.vendors.http import VendorHttp, read, refused
from whet.vendors.slack import Acknowledge, SlackApi, SlackEnvelope, SlackPress, user_from

# The subtypes of messages that a person wrote. thread_broadcast is a reply that is also in the channel.
_MESSAGE_SUBTYPES = ("", "file_share", "thread_broadcast", "me_message")
_STYLES = {"good": {"style": "primary"}, "bad": {"style": "danger"}, "plain": {}}
# Slack's limit for a section, the first length at which a text is split, and the last one that is tried.
_MAX_SECTION_CHARS, _SPLIT_CHARS, _MIN_SPLIT_CHARS = 3_000, 2_900, 500


class SlackSettings(msgspec.Struct, frozen=True):
    """The settings of a Slack `[[channel]]` in gateway.toml."""

    token_env: str = "SLACK_BOT_TOKEN"
    app_token_env: str = "SLACK_APP_TOKEN"
    base_url: str = ""


class _File(msgspec.Struct):
    url_private_download: str = ""
    name: str = ""
    mimetype: str = ""
    size: int = 0


class _Attachment(msgspec.Struct):
    """A shared message, or a card that a program added."""

    text: str = ""
    author_name: str = ""
    is_share: bool = False
    files: list[_File] = msgspec.field(default_factory=list[_File])


class _ReactedItem(msgspec.Struct):
    type: str = ""
    channel: str = ""
    ts: str = ""


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
    attachments: list[_Attachment] = msgspec.field(default_factory=list[_Attachment])
    message: _Event | None = None
    previous_message: _Event | None = None
    reaction: str = ""
    item: _ReactedItem | None = None
    event_ts: str = ""
    team: str = ""
    user_team: str = ""


class _Events(msgspec.Struct):
    event: _Event = msgspec.field(default_factory=_Event)


class _Slash(msgspec.Struct):
    text: str = ""
    user_id: str = ""
    user_name: str = ""
    channel_id: str = ""
    trigger_id: str = ""
    team_id: str = ""


class Slack:
    """One app, with a bot token (xoxb-) for sending and an app token (xapp-) for receiving."""

    limits: PlatformLimits = PlatformLimits(
        _SPLIT_CHARS,
        edit_every_s=1.3,
        group_edit_every_s=1.5,
        shows_cards=True,
        pasted_chars=3_500,
        album_files=10,
    )

    def __init__(self, name: str, tokens: tuple[str, ...], base_url: str = "") -> None:
        self.name = name
        self._api = SlackApi(name, tokens, base_url)
        self._history = SlackHistory(name, self._api)
        self._bot_user_id = ""
        self._team = ""
        self._threads = ThreadStarts()

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Receive until cancelled. Raises SendFailed if Slack rejects the app permanently.

        `take` stores updates, `memo` the position up to which messages were read. If `wants` contains
        "message", missed messages are read before each connection.
        """

        async def ready() -> None:
            if not self._bot_user_id:
                own = await self._api.call("auth.test", {})
                self._bot_user_id, self._team = own.user_id, own.team_id
                await take([])
            if "message" in wants:
                await self._history.catch_up(take, memo, self._read_history_message)

        async def handle(envelope: SlackEnvelope, acknowledge: Acknowledge) -> None:
            if envelope.type == "interactive":
                await acknowledge()  # Slack waits only three seconds, and a repeated press has no effect
            update = self._parse_envelope(envelope)
            if update is not None and update.verb == "message":
                update = await self._add_quote(update)
            if update is not None:
                await take([update])
                if update.verb == "message" and envelope.type == "events_api" and "message" in wants:
                    await self._history.mark_read(update, memo)
            if envelope.type != "interactive":
                await acknowledge()

        await self._api.receive_envelopes(handle, ready)

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Post a message or share its files. If the thread was deleted, post it in the channel."""
        try:
            return await self._send(place, message)
        except SendFailed as error:
            if not place.thread or "thread_not_found" not in error.reason:
                raise
        return await self._send(msgspec.structs.replace(place, thread=""), message)

    async def _send(self, place: ChatPlace, message: Outgoing) -> str:
        if message.file:
            return await self._share(place, message)
        thread = {"thread_ts": place.thread} if place.thread else {}
        result = await self._api.call(
            "chat.postMessage", {"channel": place.chat, **thread, **_message_fields(message)}
        )
        # Slack accepts a channel's name for posting, but needs its id for editing.
        return result.ts if result.channel in ("", place.chat) else f"{result.channel}/{result.ts}"

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Edit a message, buttons included."""
        chat, _, stamp = ref.rpartition("/")
        await self._api.call(
            "chat.update", {"channel": chat or place.chat, "ts": stamp, **_message_fields(message)}
        )

    async def typing(self, place: ChatPlace) -> None:
        """Do nothing: apps can't show a typing indicator."""

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Download a file with the bot's token."""
        return await self._api.bot.download(file.where, max_bytes)

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Reply to a press with a message that only the person who pressed can see."""
        user = press.place.user.rpartition(":")[2]
        body = {"channel": press.place.chat, "user": user, "text": escape(text)[:_SPLIT_CHARS]}
        await self._api.call("chat.postEphemeral", body)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._api.aclose()

    async def _add_quote(self, update: Incoming) -> Incoming:
        """Add the first message of a thread to a person's first message in it."""
        place = update.place
        if not place.thread or not self._threads.is_first(update, place.thread) or update.ref == place.thread:
            return update
        try:
            root = read(await self._api.read_first_reply(place.chat, place.thread) or b"", _Event)
        except SendFailed:
            return update  # without the quote, so that the message is not lost
        if root is None or root.ts != place.thread:
            return update
        text = "\n".join(filter(None, (read_mrkdwn(root.text), *_list_shared_texts(root))))
        text = text or ", ".join(file.name for file in root.files)
        author = "you" if root.bot_id or root.user == self._bot_user_id else root.user
        return add_root(update, f"{author}: {text}" if text else "")

    def _parse_envelope(self, envelope: SlackEnvelope) -> Incoming | None:
        payload = bytes(envelope.payload)
        if envelope.type == "events_api":
            return self._parse_event((read(payload, _Events) or _Events()).event)
        if envelope.type == "slash_commands":
            return self._parse_slash(read(payload, _Slash) or _Slash())
        press = read(payload, SlackPress) if envelope.type == "interactive" else None
        if press is None or not press.data:
            return None
        chat, user, message = press.channel.id, press.user, press.message
        sender = user_from(user.id, user.team_id, self._team)
        chat_place = ChatPlace(self.name, chat, message.thread_ts, sender, _is_group(chat))
        return Incoming(
            chat_place, f"p{envelope.envelope_id}", "press", user.username, press.data, ref=message.ts
        )

    def _parse_slash(self, command: _Slash) -> Incoming:
        sender = user_from(command.user_id, command.team_id, self._team)
        chat_place = ChatPlace(self.name, command.channel_id, "", sender, _is_group(command.channel_id))
        text = f"/{command.text.strip().lstrip('/!') or 'help'}"
        return Incoming(
            chat_place, f"c{command.trigger_id}", "message", command.user_name, text, mentions_us=True
        )

    def _read_history_message(self, chat: str, body: bytes) -> Incoming | None:
        message = read(body, _Event)
        if message is None:
            return None
        return self._parse_event(msgspec.structs.replace(message, channel=chat))

    def _parse_event(self, event: _Event) -> Incoming | None:
        if event.type in ("reaction_added", "reaction_removed"):
            return self._parse_reaction(event)
        previous = event.previous_message
        if event.subtype == "message_changed" and event.message is not None:
            if previous is not None and previous.text == event.message.text:
                return None  # Slack has added a preview of a link
            return self._make_incoming(event.message, event, "edit")
        if event.subtype == "message_deleted" and previous is not None:
            deleted_message = msgspec.structs.replace(previous, text="", files=[], attachments=[])
            return self._make_incoming(deleted_message, event, "edit")
        if event.type in ("message", "app_mention") and event.subtype in _MESSAGE_SUBTYPES:
            return self._make_incoming(event, event, "message")
        return None

    def _parse_reaction(self, event: _Event) -> Incoming | None:
        item = event.item
        if item is None or item.type != "message" or not event.user or event.user == self._bot_user_id:
            return None
        return Incoming(
            ChatPlace(self.name, item.channel, "", event.user, _is_group(item.channel)),
            f"r{event.event_ts}-{event.user}-{event.reaction}",
            "reaction",
            event.user,
            f":{event.reaction}:",
            mentions_us=True,
            ref=item.ts,
            is_removed=event.type == "reaction_removed",
        )

    def _make_incoming(self, message: _Event, event: _Event, verb: Any) -> Incoming | None:
        if not message.user or message.bot_id or message.user == self._bot_user_id:
            return None
        group = event.channel_type != "im" if event.channel_type else _is_group(event.channel)
        is_named = f"<@{self._bot_user_id}>" in message.text or event.type == "app_mention" or verb == "edit"
        text = read_mrkdwn(message.text.replace(f"<@{self._bot_user_id}>", "").strip())
        shared = [part for part in message.attachments if part.is_share]
        if text.startswith("!"):
            text = f"/{text[1:]}"
        thread = message.thread_ts or (message.ts if group else "")
        slack_files = [*message.files, *(file for part in shared for file in part.files)]
        files = tuple(FileRef(f.url_private_download, f.name, f.mimetype, f.size) for f in slack_files)
        sender = user_from(message.user, message.user_team or message.team, self._team)
        forwarded = [wrap_in_tag("forwarded", text) for text in _list_shared_texts(message)]
        return Incoming(
            ChatPlace(self.name, event.channel, thread, sender, group),
            f"{event.channel}-{message.ts}" if verb == "message" else f"e{event.channel}-{event.ts}",
            verb,
            message.user,
            "\n".join(filter(None, (text, *forwarded))),
            files,
            mentions_us=is_named,
            ref=message.ts,
            at_s=_parse_time_s(message.ts) if verb == "message" else 0.0,
        )

    async def _share(self, place: ChatPlace, message: Outgoing) -> str:
        files: list[dict[str, str]] = []
        try:
            for name, data in await read_files(message):
                files.append({"id": await self._upload(name, data), "title": name})
        except SendFailed as error:
            if error.status:  # a refusal: no file is visible before the upload is completed
                error.maybe_sent = False
            raise
        body: dict[str, Any] = {"files": files, "channel_id": place.chat}
        if place.thread:
            body["thread_ts"] = place.thread
        if message.text:
            body["initial_comment"] = slack_mrkdwn(message.text)
        await self._api.call("files.completeUploadExternal", body)
        return files[0]["id"]

    async def _upload(self, name: str, data: bytes) -> str:
        slot = await self._api.call("files.getUploadURLExternal", {"filename": name, "length": len(data)})
        content, kind = form({}, "file", name, data)
        async with aclosing(VendorHttp("Slack", slot.upload_url)) as upload:
            answer = await upload.raw("POST", "", content, {"content-type": kind}, 120.0)
        if answer.status != 200:
            raise refused("Slack", answer, "the upload was refused")
        return slot.file_id


PLATFORM = Platform(SlackSettings, lambda name, settings, tokens: Slack(name, tokens, settings.base_url))


def _list_shared_texts(message: _Event) -> list[str]:
    """Return the text of each message that this one shares, preceded by its author."""
    return [
        f"{part.author_name or '?'}: {read_mrkdwn(part.text)}"
        for part in message.attachments
        if part.is_share and part.text
    ]


def _parse_time_s(stamp: str) -> float:
    try:
        return float(stamp)
    except ValueError:
        return 0.0


def _is_group(chat: str) -> bool:
    return not chat.startswith("D")


def _message_fields(message: Outgoing) -> dict[str, Any]:
    if message.card is not None:
        if len(_card_text(message.card)) > _MAX_SECTION_CHARS:
            message = message.without_approval()
        assert message.card is not None
        text = escape(f"{message.card.title}: {message.card.subject}")[:_SPLIT_CHARS]
        blocks = _card_blocks(message.card)
    else:
        sections = _split_sections(message.text)
        text, blocks = "\n".join(sections), list(map(_section_block, sections))
    if message.buttons:
        elements = [_button_element(button, number) for number, button in enumerate(message.buttons)]
        blocks.append({"type": "actions", "elements": elements})
    return {
        "text": text,
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
        "link_names": False,
        **({} if message.card is None else {"parse": "none"}),
    }


def _button_element(button: MessageButton, number: int) -> dict[str, Any]:
    fields = {"type": "button", "text": _plain_text(button.label[:75])}
    if button.url:
        return {**fields, "action_id": "page", "url": button.url}
    return {**fields, "action_id": f"press-{number}", "value": button.data, **_STYLES[button.style]}


def _card_text(card: MessageCard) -> str:
    lines: list[str] = []
    if card.deadline:
        # Slack shows this in the reader's own time.
        lines.append(card.deadline.format(f"*<!date^{int(card.at_s)}^{{time_secs}}|{escape(card.at)}>*"))
    lines += map(escape, card.lines)
    if card.warning:
        lines.append(f"*{card.warning}*")
    if card.address:
        lines.append(escape(card.address))
    return "\n".join(lines)


def _card_blocks(card: MessageCard) -> list[dict[str, Any]]:
    # Not escaped: ids consist of letters and digits, and escaping would add invisible characters to a copy.
    footer = " ".join(f"{name} `{value}`" for name, value in card.ids)
    alarm = f"  :warning: {card.alarm}" if card.alarm else ""
    return [
        {"type": "header", "text": _plain_text(f"{card.title}{alarm}"[:150])},
        {"type": "rich_text", "elements": [_preformatted_block(card.subject)]},
        _section_block(_card_text(card)[:_MAX_SECTION_CHARS]),
        {"type": "context", "elements": [_plain_text(card.mark)]},
        {"type": "rich_text", "elements": list(map(_preformatted_block, card.quoted))},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": footer, "verbatim": True}]},
    ]


def _section_block(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _plain_text(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


def _preformatted_block(text: str) -> dict[str, Any]:
    return {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}


def escape(text: str) -> str:
    """Escape text for mrkdwn so that none of it is a mention, a link or markup."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Slack has no escape for these characters. A zero-width space after each is invisible.
    return "".join(f"{c}\u200b" if c in "*_~`@" else c for c in text)


def _split_sections(text: str) -> list[str]:
    """Convert Markdown to sections that Slack accepts. Escaping can make a text five times as long."""
    limit_chars = _SPLIT_CHARS
    while True:
        sections = [slack_mrkdwn(piece) or "…" for piece in split_message(text, limit_chars)]
        if limit_chars < _MIN_SPLIT_CHARS or max(map(len, sections)) <= _MAX_SECTION_CHARS:
            return sections
        limit_chars //= 2
