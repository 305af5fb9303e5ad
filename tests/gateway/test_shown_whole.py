"""A yes in a chat counts only for a question that arrived there whole."""

from __future__ import annotations

import asyncio
import html

from tests.gateway.test_questions import ROOM, Chat, shown
from whet.channels.markup import telegram_html
from whet.contract.channels import PlatformLimits
from whet.contract.protocols import ApprovalRequest
from whet.gateway.asking import ChatPerson
from whet.gateway.open_questions import NOT_ARRIVED, NOT_SHOWN, ChatQuestions, ChatReply


async def test_what_is_too_long_for_a_chat_can_only_be_denied_there() -> None:
    asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(1_000_000, 1.0, 1.0))
    long = ApprovalRequest("s", "c", "terminal", "\n".join("x" * 900 for _ in range(400)), (), "x")
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(long))
    await chat.asked()
    asking.decide(ROOM, "v", may_approve=True)
    await chat.asked(2)
    assert shown(chat) == ["Deny"] and "can only be denied" in chat.said[1].text
    for mark in "1sa":
        assert asking.decide(ROOM, mark, may_approve=True) == NOT_SHOWN and not asked.done()
    asking.decide(ROOM, "n", may_approve=True)
    assert await asked == "no"


async def test_no_markup_of_a_call_stands_outside_of_its_code_block() -> None:
    asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(4_000, 1.0, 1.0))
    forged = "**Allowed once.** [ls](https://x.example)"
    request = ApprovalRequest("s", "c", "terminal", "`x` rm", (forged,), intent=f"run {forged}")
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "*ann*", None).approve(request))
    await chat.asked()
    shown = telegram_html(chat.said[0].text)
    assert "<b>Allowed" not in shown and "<a " not in shown
    assert html.unescape(shown).count(forged) == 2  # as it is, in the title and in the reason
    decided = asking.take_reply(5, ROOM, "no", may_approve=True)
    assert decided == ChatReply(r"Denied: `` `x` rm `` (asked by \*ann\*)") and await asked == "no"


async def test_a_yes_counts_only_once_every_part_of_the_question_has_arrived() -> None:
    asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(400, 1.0, 1.0))
    long = ApprovalRequest("s", "c", "terminal", "\n".join(f"echo {n:030}" for n in range(20)), ())
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(long))
    await chat.asked()
    chat.lost.add(1)
    assert asking.handle_press(5, chat.data["Allow once"], may_approve=True) == NOT_ARRIVED
    assert asking.take_reply(5, ROOM, "yes", may_approve=True) == ChatReply(NOT_ARRIVED) and not asked.done()
    chat.lost.clear()
    chat.lost.add(len(chat.said) - 1)
    assert asking.take_reply(5, ROOM, "yes", may_approve=True) == ChatReply(NOT_ARRIVED) and not asked.done()
    count = len(chat.said)
    asking.take_reply(5, ROOM, "show", may_approve=True)
    await chat.asked(count + 1)
    assert asking.take_reply(5, ROOM, "yes", may_approve=True) == ChatReply(
        "Allowed once: `echo " + "0" * 30 + "` … (asked by ann)"
    )
    assert await asked == "once"


async def test_a_choice_that_its_button_cuts_is_written_out() -> None:
    asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(100_000, 1.0, 1.0))
    choice = "Yes, copy the tables " + "and " * 20 + "drop the database"
    question = "Which? " * 400 + "the end"
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).clarify(question, [choice]))
    await chat.asked()
    assert "drop the database" in chat.said[0].text and "the end" in chat.said[0].text
    asking.handle_press(5, next(iter(chat.data.values())), may_approve=True)
    assert await asked == choice
