"""What holds for all channels: fan-out, fall-back, breakers, crashes, and that nobody waits for a channel."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import apsw
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tests.confirm.people import AGENT, Desk, channel, off
from tests.confirm.vendors.host import Host
from tests.confirm.vendors.telegram import TOKEN, TelegramServer
from whet.contract.errors import ConfigError
from whet.vendors.signing import sign_headers, webhook_key
from whet_confirm.notify.settings import NotifyPersonText, People, read_channels

SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY="


class Receiver(Host):
    """Somebody's program that takes webhooks."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[tuple[dict[str, str], bytes]] = []

    def app(self) -> ASGIApp:
        async def take(request: Request) -> Response:
            body = await request.body()
            if self.next_fault("hook") is not None:
                return Response(status_code=500)
            self.note(lambda: self.got.append((dict(request.headers), body)))
            return Response(status_code=204)

        return Starlette(routes=[Route("/{path:path}", take, methods=["POST"])])


def both(telegram: TelegramServer, hook: Receiver) -> str:
    own = channel("telegram", chat=-1001, base_url=telegram.url)
    return f"[people.ann]\ntelegram = 7\n{channel('webhook', url=f'{hook.url}/hook')}{own}"


@pytest.mark.slow
async def test_every_channel_is_told_also_when_one_hangs_and_submitting_does_not_wait(desk):
    with TelegramServer() as telegram, Receiver() as hook:
        telegram.fail_next("sendMessage", "hang")
        secrets = {"TELEGRAM_BOT_TOKEN": TOKEN, "CONFIRMATION_WEBHOOK_SECRET": SECRET}
        async with desk.notifying(both(telegram, hook), secrets):
            first = await desk.submit()
            await off(telegram.wait, lambda: any(c[0] == "sendMessage" for c in telegram.calls), "the hang")
            others = [await desk.submit(f"action-{number}") for number in range(20)]
            await off(hook.wait, lambda: len(hook.got) == 21, "21 webhooks")
            assert [d.status for d in desk.deliveries(first) if d.channel == "telegram"] == ["queued"]
            assert all(desk.service.get(r.id) is not None for r in others)
            headers, body = hook.got[0]
            at_s, message_id = int(headers["webhook-timestamp"]), headers["webhook-id"]
            expected = sign_headers(webhook_key("x", SECRET), message_id, at_s, body)
            assert headers["webhook-signature"] == expected["webhook-signature"]


@pytest.mark.slow
async def test_webhooks_tell_of_the_outcome_and_are_tried_again(desk):
    secret = desk.token("ann")
    with Receiver() as hook:
        hook.fail_next("hook", "500")
        async with desk.notifying(channel("webhook", url=hook.url), {"CONFIRMATION_WEBHOOK_SECRET": SECRET}):
            request = await desk.submit()
            await off(hook.wait, lambda: hook.got, "the request")
            await desk.decide(request, desk.who(secret), "deny", "no")
            await off(hook.wait, lambda: len(hook.got) == 2, "the outcome")
            assert b'"type":"confirmation.denied"' in hook.got[1][1]


@pytest.mark.slow
async def test_without_channels_the_log_is_told_and_the_page_shows_it(desk, caplog):
    async with desk.notifying():
        request = await desk.submit(description="x\nRequest: forged\u202e")
        await desk.until(lambda: [d for d in desk.deliveries(request) if d.status == "sent"])
        await desk.until(lambda: caplog.records)
        assert "notified" not in desk.events(request)
    (record,) = [r for r in caplog.records if "no channel reached a person" in r.getMessage()]
    assert "|   x / |   Request: forged<U+202E>" in record.getMessage()


async def test_many_at_once_are_a_few_lines_in_the_log_and_a_row_each(desk, caplog):
    requests = [await desk.submit(f"action-{number}") for number in range(30)]
    late = await desk.submit("decided-before-anybody-was-told")
    await desk.service.cancel(late.id, AGENT)
    async with desk.notifying():
        await desk.until(lambda: len(caplog.records) > 1)
        assert all([d.status for d in desk.deliveries(request)] == ["sent"] for request in requests)
        assert not desk.deliveries(late)
        more = [await desk.submit(f"more-{number}") for number in range(30)]
        await desk.until(lambda: desk.deliveries(more[-1]))
    assert len(caplog.records) == 2 and "about 30 requests" in caplog.records[-1].getMessage()
    async with desk.notifying():  # told once, also after a restart
        another = await desk.submit("one more")
        await desk.until(lambda: desk.deliveries(another))
        await desk.until(lambda: len(caplog.records) == 3)


async def test_news_survive_a_crash_before_they_are_sent(tmp_path):
    desk = Desk(tmp_path)
    request = await desk.submit()
    desk.close()  # nobody was told yet
    again = Desk(tmp_path)
    with TelegramServer() as server:
        file = channel("telegram", chat=-1001, base_url=server.url)
        async with again.notifying(file, {"TELEGRAM_BOT_TOKEN": TOKEN}):
            await off(server.message)
            await again.until(lambda: [d for d in again.deliveries(request) if d.status == "sent"])
    again.close()


@pytest.mark.slow
async def test_apprise_sends_one_way(desk):
    with Receiver() as hook:
        url = hook.url.replace("http://", "json://") + "/apprise"
        async with desk.notifying(channel("apprise"), {"APPRISE_URLS": url}):
            request = await desk.submit(description="line\nRequest: forged")
            await off(hook.wait, lambda: hook.got, "the notification")
            text = hook.got[0][1].decode()
            assert f"https://confirm.example.org/r/{request.id}" in text
            assert "|   line" in text and "|   Request: forged" in text
            await desk.until(lambda: [d.status for d in desk.deliveries(request)] == ["sent"])


@pytest.mark.slow
@pytest.mark.logs_errors("is off")
async def test_a_channel_without_its_extra_is_shown_and_its_requests_count_as_undelivered(desk, monkeypatch):
    monkeypatch.setitem(sys.modules, "apprise", None)  # to import it fails
    with Receiver() as hook:
        file = channel("webhook", url=hook.url) + channel("apprise")
        secrets = {"CONFIRMATION_WEBHOOK_SECRET": SECRET, "APPRISE_URLS": "json://127.0.0.1:9"}
        async with desk.notifying(file, secrets) as notifier:
            request = await desk.submit()
            await off(hook.wait, lambda: hook.got, "the request")
            await desk.until(lambda: "notify_failed" in desk.events(request))
            ends = {delivery.channel: delivery.status for delivery in desk.deliveries(request)}
            assert ends["apprise"] == "dead"
            reasons = {state.name: state.listen_error for state in notifier.states()}
            assert reasons["webhook"] == "" and "pip install 'whet-agent[notify]'" in reasons["apprise"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[channel]]\nname = 'x'", "missing required field `kind`"),
        ("[people.ann]\ntelgram = 7", "people.ann: `telgram` is neither a platform nor a setting"),
        ("[people.ann]\ntelegram = true", "got `bool`"),
        ("[[channel", "channels.toml"),
    ],
)
def test_a_wrong_channels_file_names_the_place(tmp_path, text, says):
    path = tmp_path / "channels.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"channels\.toml") as error:
        read_channels(path)
    assert says in error.value.message


def test_settings_that_can_not_work_stop_the_start(desk):
    async def start(file: str, secrets: dict[str, str]) -> str:
        with pytest.raises(ConfigError) as error:
            async with desk.notifying(file, secrets):
                pass
        return error.value.message

    cases: list[tuple[str, dict[str, str], str]] = [
        ("[[channel]]\nkind='telegram'\nchat=1", {}, "TELEGRAM_BOT_TOKEN is not set"),
        ("[[channel]]\nkind='telegram'", {"TELEGRAM_BOT_TOKEN": "x"}, "has no chat"),
        ("[[channel]]\nkind = 'pager'", {}, "there is no platform 'pager'"),
        ("[[channel]]\nkind = 'telegram'\ntokn = 1", {}, "channel telegram: unknown field `tokn`"),
        ("[[channel]]\nkind = 'apprise'\nurl_env = 'X'", {}, "channel apprise: "),
        ("[[channel]]\nkind='webhook'\nurl='ftp://x'", {"CONFIRMATION_WEBHOOK_SECRET": SECRET}, "has no url"),
        (
            "[[channel]]\nkind='webhook'\nurl='http://x'",
            {"CONFIRMATION_WEBHOOK_SECRET": "x"},
            "secret is not usable",
        ),
        ("[[channel]]\nkind='apprise'", {"APPRISE_URLS": "nonsense://"}, "does not understand URL 1"),
        ("[[channel]]\nkind='apprise'\nname='log'", {"APPRISE_URLS": "x"}, "'log' can't be used"),
    ]
    for file, secrets, says in cases:
        assert says in asyncio.run(start(file, secrets))
    with pytest.raises(ConfigError, match="stands for both"):
        People({"ann": NotifyPersonText({"telegram": 7}), "bob": NotifyPersonText({"telegram": "7"})}, {})


def test_a_slack_id_counts_in_one_workspace():
    people = {"ann": NotifyPersonText({"slack": "work:U7"}), "bob": NotifyPersonText({"telegram": 7})}
    known = People(people, {"work": "slack", "club": "slack", "phone": "telegram"})
    assert known.name("work", "U7") == "ann" and known.name("phone", "7") == "bob"
    assert known.name("club", "U7") is None and known.name("work", "T0OTHER:U7") is None
    with pytest.raises(ConfigError, match="does not say in which workspace") as error:
        People({"ann": NotifyPersonText({"slack": "U7"})}, {"work": "slack", "club": "slack"})
    assert error.value.hint == 'write the channel\'s name in front: slack = "work:U7"'
    assert People({"ann": NotifyPersonText({"slack": "U7"})}, {"work": "slack"}).name("work", "U7") == "ann"


@pytest.mark.soak
def test_a_channel_that_hangs_moves_submit_by_little(tmp_path):
    def p99_ms(folder: Path, hang: bool) -> float:
        folder.mkdir()
        desk = Desk(folder)
        times: list[float] = []

        async def play() -> None:
            with TelegramServer() as server:
                if hang:
                    server.fail_next("sendMessage", *["hang"] * 50)
                file = channel("telegram", chat=-1001, base_url=server.url)
                async with desk.notifying(file if hang else "", {"TELEGRAM_BOT_TOKEN": TOKEN}):
                    for number in range(2_000):
                        began = time.perf_counter()
                        await desk.submit(f"action-{number}")
                        times.append(time.perf_counter() - began)

        asyncio.run(play())
        desk.close()
        return sorted(times)[int(len(times) * 0.99)] * 1000

    runs: list[Any] = [
        (p99_ms(tmp_path / f"a{n}", False), p99_ms(tmp_path / f"b{n}", True)) for n in range(3)
    ]
    free, hanging = min(run[0] for run in runs), min(run[1] for run in runs)
    print(f"submit p99: {free:.2f} ms alone, {hanging:.2f} ms beside a hanging channel")
    assert hanging < free * 3  # a figure of this machine's quiet hours stands in the benchmarks


def test_news_of_an_older_database_are_still_told_once(tmp_path):
    """Its outbox was a table; what lay there is told, what had been spread is not told again."""
    desk = Desk(tmp_path)
    first, second = (asyncio.run(desk.submit(f"action-{number}")) for number in range(2))
    desk.close()
    db = apsw.Connection(str(tmp_path / "c.db"))
    db.execute("DROP TABLE second_factors; DELETE FROM facts WHERE name = 'told_to'")
    db.execute("ALTER TABLE seal DROP COLUMN newer")
    db.execute("ALTER TABLE deliveries RENAME COLUMN event_id TO outbox_id")
    db.execute(
        "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL,"
        " request_id TEXT NOT NULL, at REAL NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,"
        " run_after REAL NOT NULL DEFAULT 0,"
        " leased_until REAL NOT NULL DEFAULT 0, leased_by TEXT NOT NULL DEFAULT '') STRICT"
    )
    db.execute("INSERT INTO outbox (kind, request_id, at) VALUES ('submitted', ?, 1.0)", (second.id,))
    db.execute(
        "INSERT INTO deliveries (outbox_id, kind, request_id, channel, status, updated_at)"
        " VALUES (3, 'submitted', ?, 'log', 'sent', 1.0)",
        (first.id,),
    )
    db.pragma("user_version", 2)
    db.close()
    again = Desk(tmp_path)

    async def play() -> None:
        async with again.notifying():
            await again.until(lambda: again.deliveries(second))
        assert [len(again.deliveries(request)) for request in (first, second)] == [1, 1]

    asyncio.run(play())
    again.close()
