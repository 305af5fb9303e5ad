"""How far each channel and device is with a request is known on every kind of channel: none is silent."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.confirm.notify.test_notifier import SECRET, Receiver
from tests.confirm.notify.test_push import ask, deliveries, shown, subscribe
from tests.confirm.people import channel
from tests.confirm.running import Running
from tests.confirm.vendors.discord import CHAT as DISCORD_CHAT
from tests.confirm.vendors.discord import TOKEN as DISCORD_TOKEN
from tests.confirm.vendors.discord import DiscordServer
from tests.confirm.vendors.host import Host
from tests.confirm.vendors.push import PushServer, acknowledge
from tests.confirm.vendors.slack import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.confirm.vendors.slack import CHAT as SLACK_CHAT
from tests.confirm.vendors.telegram import TOKEN, TelegramServer
from tests.support import quiet_port

CHANNELS = ("telegram", "discord", "slack", "webhook", "apprise", "phone")


def write_channels(path: Path, telegram: Host, discord: Host, slack: Host, hook: Host) -> None:
    chats = ("telegram", -1001, telegram), ("discord", DISCORD_CHAT, discord), ("slack", SLACK_CHAT, slack)
    tables = [channel(kind, chat=chat, base_url=host.url) for kind, chat, host in chats]
    path.write_text("".join([*tables, channel("webhook", url=f"{hook.url}/hook"), channel("apprise")]))


@pytest.mark.slow
def test_each_delivery_is_known_while_all_work_and_while_none_does(tmp_path):
    hosts = TelegramServer(), DiscordServer(), SlackServer(), Receiver(), PushServer()
    push = hosts[-1]
    with contextlib.ExitStack() as stack:
        for host in hosts:
            host.port = quiet_port()  # it starts again there
            stack.enter_context(host)
        write_channels(tmp_path / "channels.toml", *hosts[:4])
        apprise = hosts[3].url.replace("http://", "json://") + "/apprise"
        secrets = {"TELEGRAM_BOT_TOKEN": TOKEN, "SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}
        secrets |= {"CONFIRMATION_WEBHOOK_SECRET": SECRET, "APPRISE_URLS": apprise}
        secrets |= {"DISCORD_BOT_TOKEN": DISCORD_TOKEN}
        server = Running(
            tmp_path, channels=tmp_path / "channels.toml", secrets=secrets, private_callbacks=True, rate=100
        )
        stack.enter_context(server)
        server.agent = server.client("submit", "agent")
        ann = server.signed_in("ann")
        phone = subscribe(ann, push)

        def wait_for(request: str, state: str) -> None:
            expected = dict.fromkeys(CHANNELS, state)
            errors = "SELECT channel, status, error FROM deliveries WHERE request_id = ?"
            try:
                push.wait(lambda: deliveries(server, request).items() >= expected.items(), state)
            except TimeoutError as error:
                raise AssertionError(server.rows(errors, request)) from error

        first = ask(server)
        message = shown(push, phone, first)
        wait_for(first, "sent")
        assert acknowledge(ann, message) == 204 and deliveries(server, first)["phone"] == "delivered"
        assert acknowledge(ann, message, "seen") == 204 and deliveries(server, first)["phone"] == "seen"
        for host in hosts:  # every vendor is down
            host.__exit__()
        second = ask(server)
        wait_for(second, "failed")
        rows = server.client("audit", "checker").get(f"/confirm/{second}/deliveries").json()["deliveries"]
        assert [row for row in rows if row["channel"] != "log" and not row["error"]] == []
        assert server.agent.get("/health").json()["unreached_count"] == 1
        for host in hosts:  # and comes back
            host.__enter__()
        wait_for(second, "sent")
        assert server.agent.get("/health").json()["unreached_count"] == 0
