"""Questions in a chat: who may answer which, what a button or a command comes to, and how one looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from whet.contract.channels import Outgoing, PlatformLimits
from whet.contract.protocols import ApprovalRequest, GrantScope, Reply
from whet.gateway.asking import ChatPerson, ChatQuestions, QuestionRoute, _whole
from whet.question import worded
from whet.visible import visible

ROOM, OTHER_ROOM = ("board", "1"), ("board", "2")
OVER = "This question is over."


class Chat:
    """A conversation that keeps what is posted in it."""

    def __init__(self, chat_id: int = 5, room: tuple[str, str] = ROOM, limits: PlatformLimits | None = None):
        self.said: list[Outgoing] = []
        self.route = QuestionRoute(chat_id, room, self._post, limits or PlatformLimits(4_000, 1.0, 1.0))

    async def _post(self, messages: Sequence[Outgoing]) -> None:
        self.said.extend(messages)

    @property
    def data(self) -> dict[str, str]:
        """What each button of the last message brings back, by its label."""
        return {button.label: button.data for button in self.said[-1].buttons}

    async def asked(self, count: int = 1) -> None:
        while len(self.said) < count:
            await asyncio.sleep(0)


def run(main: Callable[[], Any]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await main()

    asyncio.run(limited())


def request(**more: Any) -> ApprovalRequest:
    return ApprovalRequest("s", "c", "terminal", "rm x", ("it deletes",), **more)


def test_a_button_belongs_to_its_question_and_conversation_until_that_is_decided() -> None:
    async def main() -> None:
        asking, chat = ChatQuestions(), Chat()
        assert (asking.chat_of("x:1"), asking.shown("x:1"), asking.is_decided("x:1")) == (0, "", False)
        asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(request()))
        await chat.asked()
        data = chat.data["Allow once"]
        assert asking.chat_of(data) == 5 and asking.shown(data) == chat.said[0].text
        assert not asking.is_decided(data)
        assert asking.pressed(6, data, may=True) == OVER == asking.pressed(5, "x:1", may=True)
        assert asking.pressed(5, data.partition(":")[0] + ":q", may=True) == OVER
        assert asking.pressed(5, data, may=False) == "You may not decide this."
        assert not asking.replied(5, "yes") and not asked.done(), "a message is no decision"
        assert asking.pressed(5, data, may=True) == "Allowed once."
        assert asking.is_decided(data) and asking.shown(data) == "" and asking.chat_of(data) == 5
        assert asking.pressed(5, data, may=True) == OVER
        assert await asked == "once"
        assert (asking.chat_of(data), asking.is_decided(data)) == (0, False)

    run(main)


@pytest.mark.parametrize(
    ("mark", "words", "said", "answer"),
    [
        ("1", "", "Allowed once.", "once"),
        ("s", "", "Allowed in this conversation.", "session"),
        ("a", "", "Always allowed.", "always"),
        ("n", "", "Denied.", "no"),
        ("n", "it is Friday", "Denied.", Reply("no", words="it is Friday")),
    ],
)
def test_a_command_answers_the_latest_decision_of_its_room(
    mark: str, words: str, said: str, answer: object
) -> None:
    async def main() -> None:
        asking, chats = ChatQuestions(), [Chat(), Chat(6), Chat(7, OTHER_ROOM)]
        people = [ChatPerson(asking, chat.route, "ann", None) for chat in chats]
        asked = [asyncio.create_task(person.approve(request(grant="rm"))) for person in people]
        words_asked = asyncio.create_task(people[1].clarify("Which?", []))
        await chats[1].asked(2)
        assert asking.decide(("board", "3"), mark, may=True) == "Nothing waits for a decision here."
        assert asking.decide(ROOM, mark, may=False, words=words) == "You may not decide this."
        assert asking.decide(ROOM, mark, may=True, words=words) == said
        assert await asked[1] == answer
        assert not asked[0].done() and not asked[2].done() and not words_asked.done()
        assert asking.decide(ROOM, mark, may=True) == said, "then the one before it"
        await asked[0]
        assert asking.decide(ROOM, mark, may=True) == "Nothing waits for a decision here."
        for task in (asked[2], words_asked):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(main)


def test_the_models_question_takes_a_button_or_the_next_message_of_its_conversation() -> None:
    async def main() -> None:
        asking, chat = ChatQuestions(), Chat()
        person = ChatPerson(asking, chat.route, "ann", None)
        asked = asyncio.create_task(person.clarify("Which\u202e?", [f"n{n}" + "x" * 70 for n in range(9)]))
        await chat.asked()
        (message,) = chat.said
        assert message.text == "Which<U+202E>?"
        assert [button.label[:2] for button in message.buttons] == [f"n{n}" for n in range(8)]
        assert {button.label[2:] for button in message.buttons} == {visible("x" * 70, 58)}
        pressed = message.buttons[7].data
        assert asking.pressed(5, pressed, may=False) == f"Noted: n7{'x' * 70}."
        assert not asking.replied(5, "late") and await asked == "n7" + "x" * 70
        asked = asyncio.create_task(person.clarify("And?", []))
        await chat.asked(2)
        assert not asking.replied(6, "no") and asking.replied(5, "so") and await asked == "so"
        assert not asking.replied(5, "again")

    run(main)


def shown(chat: Chat) -> list[str]:
    return [button.label for button in chat.said[-1].buttons]


def test_a_decision_offers_what_may_be_decided() -> None:
    async def main() -> None:
        scope = GrantScope("terminal", ("rm *",))
        for given, labels, lines in (
            (request(), ["Allow once", "This conversation", "Deny"], []),
            (
                request(grant="rm", scopes=(scope,)),
                ["Allow once", "This conversation", "Always", "Deny"],
                ["This conversation and always: `terminal(rm *)`"],
            ),
            (
                request(scopes=(scope,)),
                ["Allow once", "This conversation", "Deny"],
                ["This conversation: `terminal(rm *)`"],
            ),
        ):
            asking, chat = ChatQuestions(), Chat()
            asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(given))
            await chat.asked()
            text = chat.said[0].text
            assert shown(chat) == labels and text.startswith("**May I run this?**")
            assert "```\nrm x\n```" in text or "rm x" in text
            assert text.splitlines()[-1 - len(lines) :] == ["• it deletes", *lines]
            assert [button.style for button in chat.said[0].buttons][:1] == ["good"]
            asking.pressed(5, chat.data["Deny"], may=True)
            assert await asked == "no"

    run(main)


def test_all_of_a_long_decision_is_shown_on_demand_and_asked_again() -> None:
    async def main() -> None:
        asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(100_000, 1.0, 1.0))
        long = ApprovalRequest("s", "c", "terminal", "\n".join(f"echo {n}" for n in range(130)), ())
        asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(long))
        await chat.asked()
        assert shown(chat) == ["Allow once", "This conversation", "Deny", "Show all"]
        assert "echo 129" not in chat.said[0].text and "more lines" in chat.said[0].text
        assert asking.decide(ROOM, "v", may=True) == "Shown."
        await chat.asked(2)
        assert shown(chat) == ["Allow once", "This conversation", "Deny"]
        assert "echo 129" in chat.said[1].text and "/approve" not in chat.said[1].text
        asking.decide(ROOM, "s", may=True)
        assert await asked == "session"

    run(main)


@pytest.mark.parametrize(
    ("rows", "chars", "shown_rows", "last"),
    [
        (300, 500, 300, "0299"),
        (400, 900, 200, "… 201 more lines"),
        (130, 2_000, 120, "… 11 more lines"),
    ],
)
def test_of_more_than_anybody_reads_the_rest_is_counted(
    rows: int, chars: int, shown_rows: int, last: str
) -> None:
    command = "\n".join(f"{n:0{chars}}" for n in range(rows))
    whole = _whole(worded(ApprovalRequest("s", "c", "terminal", command, ())))
    assert len(whole) == shown_rows and whole[-1].text.endswith(last)


def test_a_question_in_several_messages_has_its_buttons_under_the_last() -> None:
    async def main() -> None:
        asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(400, 1.0, 1.0))
        long = ApprovalRequest("s", "c", "terminal", "\n".join(f"echo {n:030}" for n in range(20)), ())
        asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(long))
        await chat.asked()
        assert len(chat.said) > 2 and all(len(one.text) <= 280 for one in chat.said)
        assert asking.shown(chat.data["Deny"]) == chat.said[-1].text
        assert [bool(one.buttons) for one in chat.said] == [False] * (len(chat.said) - 1) + [True]
        asking.decide(ROOM, "1", may=True)
        assert await asked == "once"
        chat.said.clear()
        asked = asyncio.create_task(
            ChatPerson(asking, chat.route, "ann", None).clarify("Why? " * 200, ["so"])
        )
        await chat.asked()
        assert len(chat.said) > 2 and max(len(one.text) for one in chat.said) <= 280
        assert asking.replied(5, "so") and await asked == "so"

    run(main)


def test_who_may_not_decide_has_somebody_else_asked_or_is_told_that_nobody_can_be() -> None:
    async def main() -> None:
        asking, here, there = ChatQuestions(), Chat(), Chat(6, OTHER_ROOM)

        async def found(route: QuestionRoute | None) -> QuestionRoute | None:
            return route

        alone = ChatPerson(asking, here.route, "ben", lambda: found(None))
        assert await alone.approve(request()) is None
        nobody = "needs somebody's permission, and nobody who may give it can be asked. Denied."
        assert [one.text for one in here.said] == [f"`terminal` {nobody}"]
        person = ChatPerson(asking, here.route, "be\u202en", lambda: found(there.route))
        asked = asyncio.create_task(person.approve(request()))
        await there.asked()
        assert there.said[0].text.startswith("**be<U+202E>n asks: may I run this?**")
        assert here.said[1].text == "`terminal` needs permission; whoever may give it was asked."
        assert asking.decide(OTHER_ROOM, "1", may=True) == "Allowed once." and await asked == "once"
        group = Chat(7)
        person = ChatPerson(asking, here.route, "ben", lambda: found(group.route))
        asked = asyncio.create_task(person.approve(request()))
        await group.asked()
        assert group.said[0].text.startswith("**May I run this?**") and len(here.said) == 2
        asking.decide(ROOM, "n", may=True)
        assert await asked == "no"

    run(main)


def test_where_there_are_no_buttons_all_ways_to_answer_are_written_out() -> None:
    async def main() -> None:
        limits = PlatformLimits(100_000, 1.0, 1.0, has_buttons=False)
        ways = "Answer `/approve`, `/approve session`, `/approve always` or `/deny`."
        for lines, more in ((1, ""), (130, " `/approve show` shows all first.")):
            asking, chat = ChatQuestions(), Chat(limits=limits)
            given = ApprovalRequest("s", "c", "terminal", "\n".join(["echo"] * lines), ())
            asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(given))
            await chat.asked()
            assert chat.said[0].text.endswith(f"\n{ways}{more}")
            asking.decide(ROOM, "n", may=True)
            await asked

    run(main)
