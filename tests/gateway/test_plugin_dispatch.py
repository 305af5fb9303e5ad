"""Plugins that have a word on what comes in from a platform, and that are told of commands there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import TELEGRAM, GatewayProcess, served
from tests.plugins.rig import write
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

POLICY = """
    import json
    def register(ctx):
        file = ctx.home / "seen.jsonl"
        buffer = []
        def note(*what):
            with file.open("a") as out:
                out.write(json.dumps(what) + "\\n")
        async def judge(event, gateway, session_store, **facts):
            source = event.source
            note(source.platform.value, source.chat_id, source.chat_type, source.user_id, source.user_name,
                 event.text, event.internal, gateway._session_key_for_source(source), session_store)
            if event.text.startswith("hush"):
                return {"action": "skip", "reason": "listen-only"}
            if event.text.startswith("tell"):
                sent = await gateway.adapters[source.platform].send(source.chat_id, "The owner was told.")
                note("sent", sent.success, sent.error)
                return {"action": "skip", "reason": "handled"}
            if event.text.startswith("broken"):
                raise ValueError("no policy")
            if source.chat_type == "group" and "@whet_bot" not in event.text:
                buffer.append(event.text)
                return {"action": "skip"}
            if buffer:
                text = "\\n".join([*buffer, event.text])
                buffer.clear()
                return {"action": "rewrite", "text": text}
            return {"action": "allow"} if "fine" in event.text else None
        ctx.register_hook("pre_gateway_dispatch", judge)
        def typed(surface, command, alias_used, args_raw, session_key, platform, **facts):
            note("typed", surface, command, alias_used, args_raw, bool(session_key), platform)
        ctx.register_hook("pre_command", typed)
        def happened(platform, event_type, payload, **facts):
            note("happened", platform, event_type, payload)
        ctx.register_hook("gateway_platform_event", happened)
"""


class World:
    """A person's Telegram, the model's script, and what the plugin has seen."""

    def __init__(self, telegram: TelegramChat, model: PracticeServer, home: Path) -> None:
        self.telegram = telegram
        self.model = model
        self.home = home

    def seen(self) -> list[list[Any]]:
        return [json.loads(line) for line in (self.home / "seen.jsonl").read_text().splitlines()]


@contextmanager
def world(folder: Path, *answers: str) -> Iterator[World]:
    script = [ScriptedReply(answer) for answer in answers]
    with TelegramChat() as telegram, PracticeServer(script=script) as model:
        process = GatewayProcess(folder / "home", TELEGRAM.format(url=telegram.url), model)
        with (process.home / "config.yaml").open("a") as file:
            file.write("plugins:\n  enabled: [policy]\n")
        write(process.home, "policy", POLICY)
        with served(process):
            yield World(telegram, model, process.home)


def test_a_message_that_a_plugin_drops_is_neither_answered_nor_asked_about_again(tmp_path: Path) -> None:
    with world(tmp_path, "Hello.") as w:
        dropped = w.telegram.write("hush now")
        w.telegram.ask("hello, fine", "Hello.")
        w.telegram.again(dropped)
        w.telegram.ask("/help", "/compress")
        assert w.model.count == 1 and b"hush" not in w.model.requests[0].body
        rows = w.seen()
        assert [row[5] for row in rows if row[0] == "telegram"] == ["hush now", "hello, fine", "/help"]
        assert rows[0][:7] == ["telegram", "7", "dm", "7", "ann", "hush now", False]
        assert rows[0][7:] == ["agent:main:telegram:dm:7", None]
        assert not rows[1][7].startswith("agent:") or rows[1][7] == rows[0][7]


def test_a_strangers_message_that_is_dropped_gets_no_code(tmp_path: Path) -> None:
    with world(tmp_path, "Hello.") as w:
        w.telegram.write("hush, it is me", chat=99, name="eve")
        w.telegram.ask("hello", "Hello.")
        assert w.telegram.said(99) == []
        w.telegram.ask("let me in", "pairing code", 99, name="eve")


def test_what_was_said_in_a_group_is_handed_on_when_the_bot_is_named(tmp_path: Path) -> None:
    with world(tmp_path, "All read.") as w:
        for text in ("the build is red", "since noon"):
            w.telegram.write(text, chat=-50, user=7, group=True)
        w.telegram.ask("@whet_bot why?", "All read.", -50, user=7, group=True)
        asked = json.loads(w.model.requests[0].body)["messages"][-1]["content"]
        assert "the build is red\nsince noon\n" in asked and "why?" in asked


def test_a_plugin_sends_to_chats_that_are_known_and_a_broken_one_stops_nobody(tmp_path: Path) -> None:
    with world(tmp_path, "Hello.", "Still here.") as w:
        w.telegram.ask("hello", "Hello.")
        w.telegram.ask("tell the owner", "The owner was told.")
        w.telegram.write("tell the owner", chat=99, name="eve")
        w.telegram.ask("broken policy", "Still here.")
        sent = [row for row in w.seen() if row[0] == "sent"]
        assert sent[0] == ["sent", True, ""]
        assert sent[1][1] is False and "nobody has talked" in sent[1][2] and w.telegram.said(99) == []


@pytest.mark.parametrize(
    ("typed", "command", "rest"), [("/title my own", "title", "my own"), ("/clear", "new", "")]
)
def test_plugins_hear_a_command_before_it_runs(tmp_path: Path, typed: str, command: str, rest: str) -> None:
    with world(tmp_path, "Hello.") as w:
        w.telegram.ask("hello", "Hello.")
        w.telegram.ask("/stop", "Nothing was running")
        w.telegram.write(typed)
        w.telegram.wait(lambda: any(row[0] == "typed" for row in w.seen()), "the hook")
        rows = [row for row in w.seen() if row[0] == "typed"]
        assert rows == [["typed", "gateway", command, typed[1:].partition(" ")[0], rest, True, "gateway"]]


def test_plugins_are_told_of_an_edit_once(tmp_path: Path) -> None:
    with world(tmp_path, "Hello.", "Again.") as w:
        w.telegram.ask("hello", "Hello.", message_id=100_001)
        changed = w.telegram.rewrite(100_001, "hello, all")
        w.telegram.wait_said("An edited message")
        assert any(row[0] == "happened" for row in w.seen())
        w.telegram.again(changed)
        w.telegram.ask("more", "Again.")
        rows = [row[1:] for row in w.seen() if row[0] == "happened"]
        assert [row[:2] for row in rows] == [["telegram", "message_edited"]]
        assert rows[0][2].items() >= {"chat_id": "7", "user_id": "7", "text": "hello, all"}.items()
        assert rows[0][2]["message_id"]
