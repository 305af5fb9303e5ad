"""`whet gateway outbox`: what may not have arrived is listed, shown, sent again and dropped."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import msgspec
from click.testing import CliRunner

from tests.support import FixedClock
from whet.cli.gateway_outbox import outbox
from whet.config.paths import Home
from whet.contract.channels import ChatPlace, Outgoing
from whet.store import chats
from whet.store.database import StateDatabase


def test_messages_are_listed_shown_resent_and_dropped(tmp_path: Path) -> None:
    home = Home(tmp_path)
    database = StateDatabase.open(home.database, FixedClock())

    def work(connection: apsw.Connection) -> None:
        chat = chats.get_or_create_chat(connection, ChatPlace("tele", "1", "", "7"))
        bodies = [msgspec.json.encode(Outgoing(text)).decode() for text in ("first\nanswer", "second")]
        chats.queue_messages(connection, chat.id, bodies, 0)
        for row in chats.list_messages(connection, ("queued",)):
            chats.end_sending(connection, row.id, "unknown", error="cut")

    database.write_now(work)

    def run(*words: str) -> str:
        done = CliRunner().invoke(outbox, words, obj=home, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    listed = json.loads(run("--json"))["messages"]
    assert [(one["state"], one["channel"], one["error"]) for one in listed] == [
        ("unknown", "tele", "cut")
    ] * 2
    first, second = (str(one["id"]) for one in listed)
    assert "first\nanswer" in run("show", first) and "second" in run()
    assert "1" in run("resend", first) and "1" in run("drop", second)
    left = database.read_now(lambda db: chats.list_messages(db, ("unknown", "queued")))
    database.close()
    assert [(row.state, msgspec.json.decode(row.body)["text"]) for row in left] == [
        ("queued", "first\nanswer")
    ]
