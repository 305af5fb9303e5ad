"""Slack, from the audit log to a person's press and back, against a server that speaks its API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.confirm.people import Desk, channel, off
from tests.confirm.vendors.slack import APP_TOKEN, BOT_TOKEN, CHAT, SlackServer, too_many
from whet.channels.slack import escape
from whet_confirm import stand_ins
from whet_confirm.notify.notifier import ConfirmNotifier

SECRETS = {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}


def channels(server: SlackServer) -> str:
    return '[people.ann]\nslack = "U0ANN"\n' + channel("slack", chat=CHAT, base_url=server.url)


@asynccontextmanager
async def notifying(
    desk: Desk, secrets: dict[str, str] = SECRETS
) -> AsyncIterator[tuple[SlackServer, ConfirmNotifier]]:
    with SlackServer() as server:
        async with desk.notifying(channels(server), secrets) as notifier:
            yield server, notifier


async def test_a_press_from_another_workspace_with_the_same_id_decides_nothing(desk):
    desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit()
        message = await off(server.message)
        await off(server.press, message["ts"], "Approve", "U0ANN", "T0OTHER")
        assert "slack user T0OTHER:U0ANN is not in the service's list" in await off(server.whisper)
        assert server.whispers[0]["user"] == "U0ANN"
        row = desk.service.get(request.id)
        assert row is not None and row.is_pending
        await off(server.press, message["ts"], "Approve")
        assert "was approved by ann" in await off(server.whisper, 1)


async def test_a_person_denies_and_the_waiting_agent_gets_it_and_a_stale_press_is_told(desk):
    desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit()
        waiting = asyncio.create_task(desk.service.wait(request.id, 30))
        message = await off(server.message)
        assert message["blocks"][0]["text"]["text"].startswith("Approval needed")
        actions = next(b for b in message["blocks"] if b["type"] == "actions")["elements"]
        assert [a["text"]["text"] for a in actions][:2] == ["✓ Approve", "✗ Deny"]
        envelope = await off(server.press, message["ts"], "not now")
        popup = await off(server.whisper)
        assert "was denied by ann at " in popup and popup.endswith(": not now")
        assert envelope in server.acknowledged
        got = await waiting
        assert got is not None and (got.status, got.resolved_by, got.reason) == ("denied", "ann", "not now")
        head = lambda: server.message()["blocks"][0]["text"]["text"]  # noqa: E731
        await off(server.wait, lambda: head().startswith("Denied"), "the edit")
        await off(server.press_data, message["ts"], actions[0]["value"])
        assert (await off(server.whisper, 1)).startswith("Too late.")
        await off(server.press_data, message["ts"], actions[0]["value"], "U0EVIL")
        assert "slack user U0EVIL is not in the service's list" in await off(server.whisper, 2)


async def test_slack_asks_for_a_new_connection_now_and_then(desk):
    desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit()
        message = await off(server.message)
        await off(server.wait, lambda: server.connections == 1, "a connection")
        await off(server.ask_to_reconnect)
        await off(server.wait, lambda: server.connections == 2, "another one")
        await off(server.press, message["ts"], "Approve")
        await off(server.whisper)
        assert desk.service.get(request.id).status == "approved"  # type: ignore[union-attr]


@pytest.mark.slow
async def test_rate_limits_and_wrong_tokens(desk):
    async with notifying(desk) as (server, _notifier):
        server.fail_next("chat.postMessage", too_many(1))
        request = await desk.submit()
        await off(server.message)
        assert server.calls.count("chat.postMessage") == 2
        await desk.until(lambda: [d for d in desk.deliveries(request) if d.status == "sent"])
    wrong = {"SLACK_BOT_TOKEN": "xoxb-wrong", "SLACK_APP_TOKEN": "xapp-wrong"}
    async with notifying(desk, wrong) as (_server, notifier):
        refused = await desk.submit("delete_data")
        dead = await desk.until(lambda: [d for d in desk.deliveries(refused) if d.status == "dead"])
        assert dead[0].error == "Slack answered: invalid_auth"
        await desk.until(lambda: notifier.states()[0].listen_error)


async def test_the_agents_text_is_never_parsed(desk):
    nasty = "<!channel> <@U1> <http://evil|click> *Approved* `x` & \u202e\nID: 1"
    async with notifying(desk) as (server, _notifier):
        await desk.submit(nasty, description=nasty, requester=nasty, details={"x": nasty * 9})
        message = await off(server.message)
        for part in message["blocks"]:
            if part["type"] in ("section", "context"):
                assert "evil" not in json.dumps(part) and "ID: 1" not in json.dumps(part)
        assert "<!channel>" not in message["text"] and "<http" not in message["text"]
        assert "\u202e" not in json.dumps(message, ensure_ascii=False)
    assert escape("<!here> a_b & *c*") == "&lt;!here&gt; a_\u200bb &amp; *\u200bc*\u200b"


GROUPS = """
groups = {release = ["slack:S0RELEASE"]}
rules = [{action = "*", effect = "ask", quorum = "2 of release"}]
"""


async def test_members_of_a_user_group_are_a_quorum_as_slack_says_who_they_are(tmp_path):
    desk = Desk(tmp_path, GROUPS)
    ann, ben = desk.who(desk.token("ann")), desk.who(desk.token("ben"))

    def members() -> list[str]:
        now_s = desk.service.timeline.now_s()
        return desk.service.database.read_now(lambda db: stand_ins.list_members(db, "slack:S0RELEASE", now_s))

    with SlackServer() as server:
        server.user_groups = {"S0RELEASE": ["U0ANN", "U0BEN", "U0STRANGER"]}
        text = channels(server) + '[people.ben]\nslack = "U0BEN"\n'
        async with desk.notifying(text, SECRETS):
            await desk.until(members)
            assert members() == ["ann", "ben"]
            request = await desk.submit()
            assert (await desk.decide(request, ann, "approve")).kind == "voted"
            assert (await desk.decide(request, ben, "approve")).kind == "decided"
        server.user_groups = {"S0RELEASE": ["U0ANN"]}
        async with desk.notifying(text, SECRETS):
            await desk.until(lambda: members() == ["ann"])
            request = await desk.submit()
            assert (await desk.decide(request, ben, "approve")).kind == "not_allowed"
    changes = [e.data for e in desk.service.log.history() if e.kind == "members_changed"]
    assert [json.loads(data)["members"] for data in changes] == [["ann", "ben"], ["ann"]]
    desk.close()


async def test_a_user_group_that_slack_does_not_know_has_no_members(tmp_path):
    desk = Desk(tmp_path, GROUPS)
    ann = desk.who(desk.token("ann"))
    with SlackServer() as server:
        async with desk.notifying(channels(server), SECRETS):
            await off(server.wait, lambda: "usergroups.users.list" in server.calls, "the question")
            request = await desk.submit()
            assert (await desk.decide(request, ann, "approve")).kind == "not_allowed"
    desk.close()
