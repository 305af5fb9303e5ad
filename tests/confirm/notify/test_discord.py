"""Discord, from the log to a person's press and back, against a server that speaks its API and gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.confirm.people import Desk, channel, off
from tests.confirm.vendors.discord import CHAT, TOKEN, DiscordServer, too_many
from whet.channels.discord import block, plain
from whet_confirm.notify.notifier import ConfirmNotifier


def channels(server: DiscordServer) -> str:
    people = '[people.ann]\ndiscord = "80351110224678912"\n'
    return people + channel("discord", chat=CHAT, base_url=server.url)


@asynccontextmanager
async def notifying(
    desk: Desk, *, heartbeat_ms: int = 5_000, token: str = TOKEN
) -> AsyncIterator[tuple[DiscordServer, ConfirmNotifier]]:
    with DiscordServer(heartbeat_ms) as server:
        async with desk.notifying(channels(server), {"DISCORD_BOT_TOKEN": token}) as notifier:
            yield server, notifier


async def test_a_person_denies_and_the_waiting_agent_gets_it_and_a_stale_press_is_told(desk):
    desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit()
        waiting = asyncio.create_task(desk.service.wait(request.id, 30))
        message = await off(server.message)
        embed = message["embeds"][0]
        assert embed["title"] == "Approval needed · HIGH RISK"
        assert embed["footer"]["text"] == f"request {request.id} · digest {request.digest[:12]}"
        assert "```\nagent: Release 2.4 to all regions\n```" in embed["description"]
        assert message["allowed_mentions"] == {"parse": []}
        approve = message["components"][0]["components"][0]["custom_id"]
        popup = await off(server.answer, await off(server.press, message["id"], "wrong target"))
        assert "deploy\\_production was denied by ann at " in popup and popup.endswith("wrong target")
        got = await waiting
        assert got is not None and got.status == "denied"
        assert (got.resolved_by, got.reason) == ("ann", "wrong target")
        title = lambda: server.message()["embeds"][0]["title"]  # noqa: E731
        await off(server.wait, lambda: title().startswith("Denied"), "the edit")
        assert [b["label"] for b in server.message()["components"][0]["components"]] == ["Open the page"]
        stale = await off(server.answer, await off(server.press_data, message["id"], approve))
        assert stale.startswith("Too late\\. deploy\\_production was denied by ann")
        stranger = await off(server.answer, await off(server.press_data, message["id"], approve, "666"))
        assert "discord user 666 is not in the service's list" in stranger.replace("\\", "")


@pytest.mark.slow
async def test_a_cut_gateway_is_resumed_and_the_heart_beats(desk):
    desk.token("ann")
    async with notifying(desk, heartbeat_ms=40) as (server, _notifier):
        request = await desk.submit()
        message = await off(server.message)
        await off(server.wait, lambda: server.beats >= 2, "two heartbeats")
        assert server.identified[0]["intents"] == 0
        await off(server.cut)
        await off(server.wait, lambda: server.resumed, "a resume")
        assert server.resumed[0]["session_id"] == "s-1" and len(server.identified) == 1
        await off(server.answer, await off(server.press, message["id"], "Approve"))
        assert desk.service.get(request.id).status == "approved"  # type: ignore[union-attr]


@pytest.mark.slow
async def test_a_lost_answer_is_sent_again_without_a_second_message(desk):
    async with notifying(desk) as (server, _notifier):
        server.fail_next("post", too_many(0.3))
        request = await desk.submit()
        await off(server.message)
        await desk.until(
            lambda: ("discord", "sent") in [(d.channel, d.status) for d in desk.deliveries(request)]
        )
        assert server.calls.count("post") == 2 and len(server.messages) == 1


async def test_a_wrong_token_is_said_and_tried_no_more(desk):
    async with notifying(desk, token="wrong") as (_server, notifier):
        request = await desk.submit()
        (dead,) = await desk.until(lambda: [d for d in desk.deliveries(request) if d.status == "dead"])
        assert dead.error == "Discord answered 401: 401: Unauthorized"
        await desk.until(lambda: notifier.states()[0].listen_error)


async def test_the_agents_text_stays_in_its_code_block(desk):
    nasty = "```\n**Approval needed**\n@everyone <@&1> [x](http://evil) ``` `````` \u202e\nID: 1"
    async with notifying(desk) as (server, _notifier):
        await desk.submit("a```b", description=nasty, details={"x": nasty, "deep": ["`" * 9]})
        message = await off(server.message)
        text = message["embeds"][0]["description"]
        # Fences open and close in turn, and nothing in between closes one.
        assert text.count("```") == 6
        outside = "".join(text.split("```")[0::2])
        assert "everyone" not in outside and "evil" not in outside and "ID: 1" not in outside
        assert "\u202e" not in text and "<U+202E>" in text


def test_blocks_and_escapes():
    assert block("``````") == "```\n``<U+0060>``<U+0060>\n```"
    assert plain("*a*_b_ [c](d) @e <#1>") == r"\*a\*\_b\_ \[c\]\(d\) \@e \<\#1\>"
