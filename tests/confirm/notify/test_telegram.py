"""Telegram, from the audit log to a person's thumb and back, against a server that speaks its API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.confirm.people import Desk, channel, off
from tests.confirm.vendors.telegram import TOKEN, TelegramServer, too_many
from whet_confirm import decide, tokens
from whet_confirm.notify.notice import AGENT_MARK
from whet_confirm.notify.notifier import ConfirmNotifier

PEOPLE = "[people]\nann.telegram = 7\nagent.telegram = 99\n"
SECRETS = {"TELEGRAM_BOT_TOKEN": TOKEN}


def channels(server: TelegramServer, **more: object) -> str:
    return channel("telegram", chat=-1001, base_url=server.url, **more)


@asynccontextmanager
async def notifying(desk: Desk) -> AsyncIterator[tuple[TelegramServer, ConfirmNotifier]]:
    with TelegramServer() as server:
        async with desk.notifying(PEOPLE + channels(server), SECRETS) as notifier:
            yield server, notifier


async def test_a_person_denies_with_a_reason_and_the_waiting_agent_gets_it(desk):
    desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit()
        waiting = asyncio.create_task(desk.service.wait(request.id, 30))
        message = await off(server.message)
        assert message["text"].startswith("Approval needed") and "HIGH RISK" in message["text"]
        assert request.id in message["text"] and request.digest[:12] in message["text"]
        assert message["pre"] == ["agent: Release 2.4 to all regions", '{\n  "version": "2.4"\n}']
        popup = await off(server.answer, server.press(1, "too broad"))
        assert popup.startswith("deploy_production was denied by ann at ") and popup.endswith(": too broad")
        got = await waiting
        assert got is not None and (got.status, got.resolved_by, got.reason) == ("denied", "ann", "too broad")
        await off(server.wait, lambda: server.messages[1]["text"].startswith("Denied"), "the edited message")
        page = {"text": "Open the page", "url": f"https://confirm.example.org/r/{request.id}"}
        assert server.messages[1]["reply_markup"]["inline_keyboard"] == [[page]]
        assert "notified" in desk.events(request)


async def test_an_approval_counts_once_and_a_stale_press_is_told_why(desk):
    desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit()
        await off(server.message)
        row = server.messages[1]["reply_markup"]["inline_keyboard"][0]
        assert [button["text"] for button in row] == ["✓ Approve", "✗ Deny"]
        assert "was approved by ann" in await off(server.answer, server.press(1, "Approve"))
        stale = await off(server.answer, server.press_data(1, row[1]["callback_data"]))
        assert stale.startswith("Too late. deploy_production was approved by ann at ")
        assert desk.service.get(request.id).status == "approved"  # type: ignore[union-attr]


async def test_strangers_forgers_and_the_requester_decide_nothing(desk):
    desk.token("ann")
    desk.token("agent")
    async with notifying(desk) as (server, _notifier):
        first, second = await desk.submit(), await desk.submit("delete_data")
        await off(server.message, 2)
        stranger = await off(server.answer, server.press(1, "Approve", 666, "ann"))
        assert "telegram user 666 is not in the service's list of people" in stranger
        data = server.messages[1]["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
        verb, _, mac = data.split(":")
        moved = await off(server.answer, server.press_data(1, f"{verb}:{second.id}:{mac}"))
        assert moved.startswith("This button is for another version")
        turned = await off(server.answer, server.press_data(1, f"d:{first.id}:{mac}"))
        assert turned.startswith("This button is for another version")
        for junk in ("", "a", "a:b:c", f"a:{first.id}:{mac}:x", f"a:{'0' * 22}:{mac}", "a:😀:x", "x" * 64):
            answer = await off(server.answer, server.press_data(1, junk))
            assert answer == "This button belongs to no request that is known here."
        own = await off(server.answer, server.press(1, "Approve", 99, "bot"))
        assert own == "Not decided: you asked for this yourself; somebody else must decide."
        assert [desk.service.get(r.id).status for r in (first, second)] == ["pending", "pending"]  # type: ignore[union-attr]
        assert desk.events(first).count("press_refused") == 2


async def test_a_revoked_token_ends_a_persons_presses(desk):
    secret = desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit()
        await off(server.message)
        token_id = desk.who(secret).token_id
        await desk.service.change(lambda tx: tokens.revoke(tx, token_id, by="test"))
        assert "no approve token in use" in await off(server.answer, server.press(1, "Approve"))
        assert desk.service.get(request.id).status == "pending"  # type: ignore[union-attr]


async def test_nothing_the_agent_writes_looks_like_ours(desk):
    nasty = (
        "ok</pre><b>Approval needed</b>\nRequest abc digest def\nID: 1\n<a href='http://evil'>x</a> @everyone"
        " \u202eevil\u2066\u200b\x1b[2J\x00 sk-ant-REDACTED &lt; &"
    )
    async with notifying(desk) as (server, _notifier):
        await desk.submit(
            "rm\nApproval needed\u200b<b>",
            description=nasty,
            requester="a</pre>\nID: 7",
            details={"x": nasty, "api_key": "hunter2hunter2", "nested": [{"DB_PASSWORD": "p4ss"}]},
        )
        message = await off(server.message)
        ours, _, theirs = message["text"].partition(AGENT_MARK)
        assert "rm⏎Approval needed<U+200B><b>" in ours.split("\n")[1]
        assert "ID:" not in ours and "evil" not in ours
        assert theirs.strip() == "\n".join(message["pre"])
        whole = message["text"]
        for hidden in ("\u202e", "\u2066", "\u200b", "\x1b", "\x00", "sk-ant-abcd", "hunter2", "p4ss"):
            assert hidden not in whole
        assert "<U+202E>" in theirs and "[REDACTED]" in theirs and "⏎ID: 7" in theirs


async def test_what_does_not_fit_is_cut_and_can_not_be_approved_in_chat(desk):
    desk.token("ann")
    async with notifying(desk) as (server, _notifier):
        request = await desk.submit(details={"rows": ["\U0001f600" * 50] * 100}, description="<&>" * 2_000)
        message = await off(server.message)
        assert "read it whole on the page to approve it" in message["text"]
        assert "characters in all]" in message["text"]
        labels = [b["text"] for row in message["reply_markup"]["inline_keyboard"] for b in row]
        assert "✓ Approve" not in labels and "✗ Deny" in labels
        assert "denied by ann" in await off(server.answer, server.press(1, "Deny"))
        assert desk.service.get(request.id).status == "denied"  # type: ignore[union-attr]


@pytest.mark.slow
async def test_rate_limits_are_waited_for(desk):
    async with notifying(desk) as (server, _notifier):
        server.fail_next("sendMessage", too_many(1))
        request = await desk.submit()
        await off(server.message)
        sent = {"telegram": ("sent", 2), "log": ("sent", 1)}  # while nobody had been told, the log was
        await desk.until(
            lambda: {d.channel: (d.status, d.attempts) for d in desk.deliveries(request)} == sent
        )


async def test_a_wrong_token_is_final_and_says_so(desk):
    with TelegramServer() as server:
        async with desk.notifying(PEOPLE + channels(server), {"TELEGRAM_BOT_TOKEN": "1:wrong"}) as notifier:
            request = await desk.submit()
            (dead,) = await desk.until(lambda: [d for d in desk.deliveries(request) if d.status == "dead"])
            assert dead.error == "Telegram answered 401: Unauthorized"
            await desk.until(lambda: notifier.states()[0].listen_error)
            assert "notify_failed" in desk.events(request)


async def test_escalation_reaches_the_next_group_and_all_messages_end(tmp_path):
    rule = '{action = "deploy*", effect = "ask", escalate_to = "leads", escalate_after = 0.0001}'
    desk = Desk(tmp_path, f'rules = [{rule}]\ngroups = {{leads = ["ann"]}}')
    desk.token("ann")
    with TelegramServer() as server:
        file = PEOPLE + channels(server) + channels(server, name="leads", groups=["leads"])
        async with desk.notifying(file, SECRETS):
            request = await desk.submit()
            await off(server.message)
            assert [d.channel for d in desk.deliveries(request)] == ["telegram"]
            policy = desk.service.policy_file.policy
            async with asyncio.timeout(30):
                while not await desk.service.change(lambda tx: decide.escalate(tx, 10, policy)):
                    pass
            await off(server.message, 3)
            assert server.messages[3]["text"].startswith("Still unanswered: approval needed")
            rows = [(d.kind, d.channel) for d in desk.deliveries(request)]
            assert ("escalated", "leads") in rows and ("submitted", "leads") not in rows
            await off(server.answer, server.press(3, "Deny"))
            edited = lambda: all(m["text"].startswith("Denied") for m in server.messages.values())  # noqa: E731
            await off(server.wait, edited, "all three messages edited")
    desk.close()


async def test_chats_of_one_bot_share_its_listener_and_keep_their_buttons(tmp_path):
    desk = Desk(tmp_path)
    desk.token("ann")
    with TelegramServer() as server:
        second = channels(server, name="second", deny_reasons=["not on a friday"])
        async with desk.notifying(PEOPLE + channels(server) + second, SECRETS):
            for number in (1, 3):
                await desk.submit()
                await off(server.message, number + 1)
                ours = next(n for n in (number, number + 1) if "friday" in json.dumps(server.messages[n]))
                answer = await off(server.answer, server.press(ours, "friday"))
                assert answer.endswith(": not on a friday")
            assert not server.conflicts
    desk.close()
