"""A gateway that is killed again and again under load loses, doubles and reorders nothing."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import apsw
import msgspec
import pytest

from tests.confirm.vendors.telegram_chat import TelegramChat
from tests.gateway.running import GatewayProcess, running
from whet.clock import SystemClock
from whet.practice.ask import Ask
from whet.practice.script import Reply
from whet.practice.server import PracticeServer
from whet.store import live
from whet.store.database import Database

FILE = """\
[[channel]]
kind = "telegram"
base_url = "{url}"

"""


def echo(ask: Ask) -> Reply:
    said = [heard.text for heard in ask.heard if heard.role == "user"]
    return Reply(text=f"echo {said[-1].split()[0]}")


def transcripts(home: Path) -> dict[str, list[str]]:
    """Give what each person's session says that they said."""
    database = Database.open(home / "state.db", SystemClock())
    try:

        def read(connection: apsw.Connection) -> dict[str, list[str]]:
            rows = connection.execute("SELECT user, session_id FROM gateway_chats").fetchall()
            return {
                user: [m.text for m in live.load(connection, id_).messages if m.role == "user"]
                for user, id_ in rows
            }

        return database.read_now(read)
    finally:
        database.close()


def survive(tmp_path: Path, kills: int, people: int, each: int, busy: str) -> None:
    chance = random.Random(7)
    users = list(range(101, 101 + people))
    file = FILE + "".join(f"[people.p{user}]\ntelegram = {user}\n" for user in users)
    with TelegramChat(per_chat_s=0.01) as telegram, PracticeServer(mind=echo) as model:
        one = GatewayProcess(
            tmp_path / "home",
            file.format(url=telegram.url),
            model,
            busy=busy,
            flood_per_minute=1_000_000,
        )
        sent: dict[str, list[str]] = {str(user): [] for user in users}
        updates: list[int] = []
        with running(one):
            for kill in range(kills):
                for _ in range(each):
                    user = chance.choice(users)
                    text = f"m{user}-{len(sent[str(user)])}"
                    sent[str(user)].append(text)
                    updates.append(telegram.write(text, chat=user))
                before = len(telegram.sends)
                enough = chance.randint(1, max(each - 2, 1))
                telegram.wait(lambda b=before, e=enough: len(telegram.sends) >= b + e, "answers under load")
                time.sleep(chance.random() * 0.05)  # the moment of the kill is what is random
                one.kill()
                for update in chance.sample(updates[-10:], 3):
                    telegram.again(update)
                telegram.fail_next("sendMessage", *[_flaky()] * (kill % 2))
                one.start()
            done = time.monotonic() + 60 + 3 * kills
            while (state := _left(one)) and time.monotonic() < done:
                time.sleep(0.1)
            assert not state, f"{state} still waits\n{one.output()[-2000:]}"
            assert one.stop() == 0
    found = transcripts(one.home)
    wrong = {
        user: [pair for pair in zip(found.get(user, []), said, strict=False) if pair[0] != pair[1]][:3]
        for user, said in sent.items()
    }
    assert not any(wrong.values()), wrong
    assert found == sent  # none lost, none doubled, none out of order
    unknown = _count(one.home, "SELECT count(*) FROM gateway_outbox WHERE state = 'unknown'")
    assert _count(one.home, "SELECT count(*) FROM gateway_outbox WHERE state = 'failed'") == 0
    missing = 0
    for user in users:
        said, asked = telegram.said(user), [f"echo {text}" for text in sent[str(user)]]
        assert [text for text, times in Counter(said).items() if times > 1] == []
        assert said == [text for text in asked if text in set(said)]  # in order
        if busy == "queue":
            missing += len(asked) - len(said)
    assert missing <= unknown, f"{missing} answers are missing, {unknown} unknown"


def _flaky() -> tuple[int, dict[str, object], dict[str, str]]:
    return 500, {"ok": False, "error_code": 500, "description": "Internal Server Error"}, {}


def _left(one: GatewayProcess) -> object:
    found = msgspec.json.decode(one.whet("gateway", "status", "--json").stdout)
    row = found["channels"][0]
    return {name: row[name] for name in ("waiting", "begun", "queued", "sending") if row[name]}


def _count(home: Path, sql: str) -> int:
    connection = apsw.Connection(str(home / "state.db"))
    try:
        row = connection.execute(sql).fetchone()
        assert row is not None
        return int(row[0])
    finally:
        connection.close()


def test_kills_under_load_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    survive(tmp_path, kills=3, people=8, each=16, busy="queue")


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("busy", ["queue", "steer"])
def test_a_hundred_kills_under_load(tmp_path: Path, busy: str) -> None:
    survive(tmp_path, kills=100, people=20, each=25, busy=busy)
