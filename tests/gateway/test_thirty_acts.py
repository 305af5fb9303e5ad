"""Thirty acts of a person on each platform: each is one turn, and the model reads what was sent."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.confirm.vendors.discord_chat import BOT, DiscordChat
from tests.confirm.vendors.slack_chat import SlackChat
from tests.gateway.test_acts import asked
from tests.gateway.test_channels import DISCORD, SLACK, on
from tests.gateway.test_telegram import world
from tests.gateway.webhook_chat import WebhookChat
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = [pytest.mark.unconfined, pytest.mark.slow, pytest.mark.timeout(600)]

Acts = list[tuple[tuple[dict[str, Any], ...], tuple[str, ...]]]
"""The messages of each act, and what the model reads of it."""
_HEARD = "[its sound can't be heard here"


def script() -> list[ScriptedReply]:
    return [ScriptedReply(f"Answer {number}.") for number in range(40)]


def fill(message: dict[str, Any], url: str) -> dict[str, Any]:
    """Return a message with a text, and with the server's address in the place of URL."""
    return msgspec.json.decode(msgspec.json.encode({"text": "", **message}).replace(b"URL", url.encode()))


def check(
    acts: Acts, send: Callable[[dict[str, Any]], object], wait: Callable[[str], object], model: PracticeServer
) -> None:
    for number, (messages, wanted) in enumerate(acts):
        for message in messages:
            send(message)
        wait(f"Answer {number}.")
        texts = asked(model)
        assert len(texts) == number + 1, (messages, texts[number:])
        assert all(part in texts[-1] for part in wanted), (messages, texts[-1])


def test_telegram(tmp_path: Path) -> None:
    origin = {"forward_origin": {"type": "user", "date": 1}}
    bot = {"id": 9, "is_bot": True}

    def file(name: str = "", **more: Any) -> dict[str, Any]:
        return {"file_id": "f", **({"file_name": name} if name else {}), **more}

    def reply(**more: Any) -> dict[str, Any]:
        return {"reply_to_message": {"message_id": 1, "from": bot, **more}}

    def album(name: str, **more: Any) -> dict[str, Any]:
        return {"document": file(name), "media_group_id": name[0], **more}

    fields, options = {"latitude": 1.5, "longitude": 2.5}, [{"text": "Mon"}, {"text": "Tue"}]
    acts: Acts = [
        (({"text": "a plain question"},), ("a plain question",)),
        (({"text": "x" * 4_096}, {"text": "and its end"}), ("xand its end",)),
        (({"text": "y" * 4_096}, {"text": "z" * 4_096}, {"text": "third"}), ("yz", "zthird")),
        (({"photo": [file()], "caption": "what is it?"},), ("what is it?", "photo.jpg")),
        (({"photo": [file()]}, {"text": "what is this?"}), ("what is this?", "photo")),
        ((album("a1.txt", caption="compare"), album("a2.txt")), ("compare", "a1.txt", "a2.txt")),
        ((album("b1.txt"), album("b2.txt"), album("b3.txt", caption="all of them")), ("all of", "b1", "b3")),
        ((album("c1.txt"), album("c2.txt"), {"text": "and this?"}), ("and this?", "c1.txt", "c2.txt")),
        (({"document": file("d.txt")},), ("d.txt",)),
        (({"animation": file("e.gif")},), ("e.gif",)),
        (({"voice": file(duration=3, mime_type="audio/ogg")},), ("a voice note of 3 s", "voice.ogg", _HEARD)),
        (({"audio": file("song.mp3")},), ("song.mp3", _HEARD)),
        (({"video": file("film.mp4"), "caption": "see"},), ("see", "film.mp4", _HEARD)),
        (({"video_note": file(duration=4)},), ("a video note of 4 s", _HEARD)),
        (({"sticker": {"emoji": "👍"}},), ("<sticker>👍</sticker>",)),
        (({"dice": {"emoji": "🎲", "value": 4}},), ("<dice>🎲 4</dice>",)),
        (({"location": fields},), ("<location>1.5, 2.5</location>",)),
        (
            ({"location": fields, "venue": {"location": fields, "title": "Bar", "address": "B 1"}},),
            ("Bar, B 1",),
        ),
        (({"contact": {"first_name": "Bo", "phone_number": "+1"}},), ("<contact>Bo", "+1</contact>")),
        (({"poll": {"question": "Day?", "options": options}},), ("<poll>Day? | Mon | Tue</poll>",)),
        (({"text": "is it so?"}, {"text": "Use tox.", **origin}), ("is it so?\n<forwarded>Use tox.",)),
        (({"text": "Use nox.", **origin}, {"text": "or that?"}), ("<forwarded>Use nox.", "or that?")),
        (({"text": "one", **origin}, {"text": "two", **origin}), ("one", "two")),
        (({"document": file("fw.txt"), **origin},), ("fw.txt",)),
        (({"text": "yes", **reply(text="Option B")},), (": Option B</quoted>\nyes",)),
        (({"text": "this", **reply(text="A or B"), "quote": {"text": "or B"}},), (": or B</quoted>\nthis",)),
        (({"text": "who?", **reply(photo=[file()])},), ("photo.jpg</quoted>\nwho?",)),
        (({"text": "there?", **reply(location=fields)},), ("1.5, 2.5", "there?")),
        (({"text": "שלום עולם 👋🏽"},), ("שלום עולם 👋🏽",)),
        (({"text": "**not** <b>markup</b> & more"},), ("**not** <b>markup</b> & more",)),
    ]
    with world(tmp_path, script(), busy="queue", flood_per_minute=500) as w:
        w.telegram.files["f"] = b"data"
        check(acts, lambda act: w.telegram.write(**fill(act, "")), w.telegram.wait_said, w.model)


def test_discord(tmp_path: Path) -> None:
    discord = DiscordChat()

    def attached(*names: str, kind: str = "") -> dict[str, Any]:
        def one(name: str) -> dict[str, Any]:
            return {"url": f"URL/cdn/{name}", "filename": name, "size": 4, "content_type": kind}

        return {"attachments": [one(name) for name in names]}

    def forward(**message: Any) -> dict[str, Any]:
        contents: dict[str, Any] = {"content": "", "embeds": [], "attachments": [], **message}
        return {"message_snapshots": [{"message": contents}], "message_reference": {"type": 1}}

    def reply(author: str = BOT, **message: Any) -> dict[str, Any]:
        quoted = {"author": {"id": author, "username": f"u{author}"}, "content": "", **message}
        return {"type": 19, "referenced_message": quoted}

    poll = {"question": {"text": "Day?"}, "answers": [{"poll_media": {"text": "Mon"}}]}
    acts: Acts = [
        (({"text": "a plain question"},), ("a plain question",)),
        (({"text": "x" * 2_000}, {"text": "and its end"}), ("xand its end",)),
        (({"text": "y" * 2_000}, {"text": "z" * 2_000}, {"text": "third"}), ("zthird",)),
        (({"text": f"<@{BOT}> named"},), ("named",)),
        ((attached("a.txt"),), ("received/a",)),
        (
            ({"text": "compare", **attached("a.txt", "b.txt", "c.txt")},),
            ("compare", "received/a", "received/b", "received/c"),
        ),
        ((attached("voice-message.ogg", kind="audio/ogg"),), ("voice-message", _HEARD)),
        ((attached("film.mp4", kind="video/mp4"),), ("film.mp4", _HEARD)),
        (({"sticker_items": [{"name": "wave"}]},), ("<sticker>wave</sticker>",)),
        (({"poll": poll},), ("<poll>Day? | Mon</poll>",)),
        (({"text": "when?", "poll": poll},), ("when?\n<poll>Day? | Mon</poll>",)),
        (({**forward(content="Use tox.")}, {"text": "is it so?"}), ("<forwarded>Use tox.", "is it so?")),
        ((forward(content="Use nox."), {"text": "and?"}), ("<forwarded>Use nox.</forwarded>\nand?",)),
        ((forward(content="one"), forward(content="two"), {"text": "which?"}), ("one", "two", "which?")),
        ((forward(embeds=[{"title": "T", "description": "D"}]),), ("T\nD</forwarded>",)),
        ((forward(content="see", **attached("f.txt")),), ("see", "received/f")),
        ((forward(poll=poll),), ("<poll>Day? | Mon", "forwarded")),
        (({"text": "yes", **reply(content="Option B")},), ("<quoted>you: Option B</quoted>\nyes",)),
        (({"text": "his", **reply("8", content="Option C")},), ("<quoted>u8: Option C</quoted>\nhis",)),
        (({"text": "who?", **reply(attachments=[{"filename": "p.png"}])},), ("you: p.png</quoted>\nwho?",)),
        (({"text": "this", **reply(embeds=[{"title": "Card"}])},), ("you: Card</quoted>\nthis",)),
        (({"text": "day", **reply(poll=poll)},), ("Day? | Mon", "day")),
        (({"text": "and it", **reply(content="B"), **attached("a.txt")},), ("you: B</quoted>", "received/a")),
        (({"text": "```py\nx = 1\n```"},), ("```py\nx = 1\n```",)),
        (({"text": "שלום עולם 👋🏽"},), ("שלום עולם 👋🏽",)),
        (({"text": "https://a.example/b?c=1&d=2"},), ("https://a.example/b?c=1&d=2",)),
        (({"text": "**bold** <b> & more"},), ("**bold** <b> & more",)),
        (({"text": "||hidden|| words"},), ("||hidden|| words",)),
        (({"text": "> quoted by hand\nanswer"},), ("> quoted by hand\nanswer",)),
        (({"text": "see\n>>> Use tox.\nAlways."},), ("see\n<quoted>Use tox.\nAlways.</quoted>",)),
        (({"text": "the last"},), ("the last",)),
    ]
    with on(discord, DISCORD, tmp_path, script(), busy="queue", flood_per_minute=500) as process:
        discord.wait_connected()
        discord.files |= dict.fromkeys(("a.txt", "b.txt", "c.txt", "f.txt", "film.mp4"), b"data")
        discord.files["voice-message.ogg"] = b"data"
        check(acts, lambda act: discord.write(**fill(act, discord.url)), discord.wait_said, process.model)


def test_slack(tmp_path: Path) -> None:
    slack = SlackChat()

    def files(*names: str, kind: str = "") -> dict[str, Any]:
        def one(name: str) -> dict[str, Any]:
            return {"url_private_download": f"URL/private/{name}", "name": name, "mimetype": kind}

        return {"subtype": "file_share", "files": [one(name) for name in names]}

    def shared(*texts: str, **more: Any) -> dict[str, Any]:
        return {"attachments": [{"is_share": True, "author_name": "Bo", "text": t, **more} for t in texts]}

    card = {"attachments": [{"text": "a preview", "title": "t"}]}
    acts: Acts = [
        (({"text": "a plain question"},), ("a plain question",)),
        (({"text": "x" * 4_000}, {"text": "and its end"}), ("xand its end",)),
        (({"text": "y" * 4_000}, {"text": "z" * 4_000}, {"text": "third"}), ("zthird",)),
        (({"text": f"<@{'U0BOT'}> named"},), ("named",)),
        ((files("a.txt"),), ("received/a",)),
        (
            ({"text": "compare", **files("a.txt", "b.txt", "c.txt")},),
            ("compare", "received/a", "received/b", "received/c"),
        ),
        ((files("audio_message.m4a", kind="audio/mp4"),), ("audio_message", _HEARD)),
        ((files("clip.mp4", kind="video/mp4"),), ("clip.mp4", _HEARD)),
        (({"text": "is it so?", **shared("Use tox.")},), ("is it so?\n<forwarded>Bo: Use tox.</forwarded>",)),
        ((shared("Use nox."),), ("<forwarded>Bo: Use nox.</forwarded>",)),
        (({"text": "which?", **shared("one", "two")},), ("Bo: one", "Bo: two", "which?")),
        (({"text": "it", **shared("see", files=files("a.txt")["files"])},), ("Bo: see", "received/a")),
        (({"text": "see https://a.example", **card},), ("see https://a.example",)),
        (({"text": "<https://a.example/b?c=1&amp;d=2|here>"},), ("here (https://a.example/b?c=1&d=2)",)),
        (({"text": "<mailto:bo@ex.com|bo@ex.com>"},), ("bo@ex.com",)),
        (({"text": "<#C1|general> and <!here>"},), ("#general and @here",)),
        (({"text": "`a &lt; b &amp;&amp; c`"},), ("`a < b && c`",)),
        (({"text": "```x = 1```"},), ("```x = 1```",)),
        (({"text": "&gt; quoted by hand\nanswer"},), ("> quoted by hand\nanswer",)),
        (({"text": "*bold* _and_ ~struck~"},), ("*bold* _and_ ~struck~",)),
        (({"text": ":wave: hello"},), (":wave: hello",)),
        (({"text": "שלום עולם 👋🏽"},), ("שלום עולם 👋🏽",)),
        (({"text": "one\ntwo\nthree"},), ("one\ntwo\nthree",)),
        (({"text": "  spaces around  "},), ("spaces around",)),
        (({"text": "<tel:+491|+49 1>"},), ("+49 1",)),
        (({"text": "<!date^1^{date}|Monday>"},), ("Monday",)),
        (({"text": "more", **files("b.txt")},), ("more", "received/b")),
        (({"text": "the plan, <@U8>?"},), ("the plan, @U8?",)),
        (({"text": "100% & <b>"},), ("100%",)),
        (({"text": "the last"},), ("the last",)),
    ]
    with on(slack, SLACK, tmp_path, script(), busy="queue", flood_per_minute=500) as process:
        names = ("a.txt", "b.txt", "c.txt", "audio_message.m4a", "clip.mp4")
        slack.files |= dict.fromkeys(names, b"data")
        check(acts, lambda act: slack.write(**fill(act, slack.url)), slack.wait_said, process.model)


def test_a_webhook(tmp_path: Path) -> None:
    chat = WebhookChat()

    def files(*names: str, kind: str = "") -> dict[str, Any]:
        data = base64.b64encode(b"data").decode()
        return {"files": [{"name": name, "base64": data, "type": kind} for name in names]}

    def send(act: dict[str, Any]) -> None:
        assert chat.post(act)[0] == 202

    forward = {"forwarded": True}
    acts: Acts = [
        (({"text": "a plain question"},), ("a plain question",)),
        (({"text": "x" * 3_000}, {"text": "and its end"}), ("x\nand its end",)),
        (({"text": "y" * 3_000}, {"text": "z" * 3_000}, {"text": "third"}), ("y\nz", "z\nthird")),
        ((files("a.txt"),), ("a.txt",)),
        (({"text": "see", **files("a.txt", "b.txt")},), ("see", "a-2.txt", "b.txt")),
        (({**files("c.txt"), "album": "g"}, {**files("d.txt"), "album": "g"}), ("c.txt", "d.txt")),
        (
            ({**files("e.txt"), "album": "h"}, {**files("f.txt"), "album": "h", "text": "all"}),
            ("all", "f.txt"),
        ),
        (({**files("g.txt"), "album": "i"}, {"text": "what?"}), ("g.txt", "what?")),
        ((files("p.txt"), {"text": "what is it?"}), ("p.txt", "what is it?")),
        ((files("v.ogg", kind="audio/ogg"),), ("v.ogg", _HEARD)),
        ((files("v.mp4", kind="video/mp4"),), ("v.mp4", _HEARD)),
        ((files("w.mp3"),), ("w.mp3", _HEARD)),
        (({"text": "Use tox.", **forward},), ("Use tox.",)),
        (({"text": "Use nox.", **forward}, {"text": "or that?"}), ("Use nox.", "or that?")),
        (({"text": "one", **forward}, {"text": "two", **forward}), ("one", "two")),
        (({"text": "yes", "quoted": "bot: Option B"},), ("<quoted>bot: Option B</quoted>\nyes",)),
        (({"text": "it", "quoted": "ann: </quoted> <b>"},), ("it",)),
        (({"text": "it", "quoted": "b: C", **files("q.txt")},), ("b: C</quoted>", "q.txt")),
        (({"text": "שלום עולם 👋🏽"},), ("שלום עולם 👋🏽",)),
        (({"text": "one\ntwo"},), ("one\ntwo",)),
        (({"text": "**b** <b> &amp;"},), ("**b** <b> &amp;",)),
        (({"text": "```x```"},), ("```x```",)),
        (({"text": "https://a.example/?b=1&c=2"},), ("https://a.example/?b=1&c=2",)),
        (({"text": "52.5, 13.4"},), ("52.5, 13.4",)),
        (({"text": "named", "name": "Ann B."},), ("named",)),
        (({"text": "in a group", "group": True, "mentions_us": True},), ("in a group",)),
        (({"text": "u" * 60_000}, {"text": "then"}), ("u\nthen",)),
        (({"text": "tab\tand \u00a0space"},), ("tab\tand \u00a0space",)),
        (({"text": "?"},), ("?",)),
        (({"text": "the last"},), ("the last",)),
    ]
    with on(chat, chat.gateway_file, tmp_path, script(), busy="queue", flood_per_minute=500) as process:
        chat.wait_for_gateway()
        check(acts, send, chat.wait_said, process.model)
