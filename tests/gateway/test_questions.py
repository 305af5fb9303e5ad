"""Questions in a chat: who may answer which, what a button or a command comes to, and how one looks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from whet.contract.channels import Outgoing, PlatformLimits
from whet.contract.protocols import ApprovalRequest, GrantScope, Reply
from whet.gateway.asking import ChatPerson, full_rows
from whet.gateway.open_questions import NOT_OFFERED, NOT_SHOWN, ChatQuestions, ChatReply, QuestionRoute
from whet.question import build_question
from whet.visible import visible

ROOM, OTHER_ROOM = ("board", "1"), ("board", "2")
OVER = "This question is over."


class Chat:
    """A conversation that keeps what is posted in it."""

    def __init__(self, chat_id: int = 5, room: tuple[str, str] = ROOM, limits: PlatformLimits | None = None):
        self.said: list[Outgoing] = []
        self.lost: set[int] = set()
        limits = limits or PlatformLimits(4_000, 1.0, 1.0)
        self.route = QuestionRoute(chat_id, room, self._post, self.lost.isdisjoint, limits)

    async def _post(self, messages: Sequence[Outgoing]) -> Sequence[int]:
        self.said.extend(messages)
        return range(len(self.said) - len(messages), len(self.said))

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


async def test_a_button_belongs_to_its_question_and_conversation_until_that_is_decided() -> None:
    asking, chat = ChatQuestions(), Chat()
    assert (asking.chat_of("x:1"), asking.question_text("x:1"), asking.is_decided("x:1")) == (0, "", False)
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(request()))
    await chat.asked()
    data = chat.data["Allow once"]
    assert asking.chat_of(data) == 5 and asking.question_text(data) == chat.said[0].text
    assert not asking.is_decided(data)
    assert (
        asking.handle_press(6, data, may_approve=True)
        == OVER
        == asking.handle_press(5, "x:1", may_approve=True)
    )
    assert asking.handle_press(5, data.partition(":")[0] + ":q", may_approve=True) == OVER
    assert asking.handle_press(5, data, may_approve=False) == "You may not decide this."
    assert asking.take_reply(5, ROOM, "yes", may_approve=False) is None and not asked.done(), (
        "not theirs to decide"
    )
    assert asking.take_reply(6, ROOM, "please go on", may_approve=True) is None, (
        "a message to another conversation"
    )
    assert asking.handle_press(5, data, may_approve=True) == "Allowed once."
    assert asking.is_decided(data) and asking.question_text(data) == "" and asking.chat_of(data) == 5
    assert asking.handle_press(5, data, may_approve=True) == OVER
    assert await asked == "once"
    assert (asking.chat_of(data), asking.is_decided(data)) == (0, False)


@pytest.mark.parametrize(
    ("mark", "words", "said", "answer"),
    [
        ("1", "", "Allowed once", "once"),
        ("s", "", "Allowed in this conversation", "session"),
        ("a", "", "Always allowed", "always"),
        ("n", "", "Denied", "no"),
        ("n", "it is Friday", "Denied", Reply("no", words="it is Friday")),
    ],
)
async def test_a_command_names_its_question_if_several_are_open_in_the_room(
    mark: str, words: str, said: str, answer: object
) -> None:
    asking, chats = ChatQuestions(), [Chat(), Chat(6), Chat(7, OTHER_ROOM)]
    people = [
        ChatPerson(asking, chat.route, name, None)
        for chat, name in zip(chats, ("ann", "ben", "cat"), strict=True)
    ]
    asked = [asyncio.create_task(person.approve(request(grant="rm"))) for person in people]
    words_asked = asyncio.create_task(people[1].clarify("Which?", []))
    await chats[1].asked(2)
    assert asking.decide(("board", "3"), mark, may_approve=True) == "Nothing waits for a decision here."
    assert asking.decide(ROOM, mark, may_approve=False, words=words) == "You may not decide this."
    which = asking.decide(ROOM, mark, may_approve=True, words=words)
    assert which.startswith("2 questions are open here. Say which one:") and not any(map(_done, asked))
    names = names_in(which)
    assert set(names) == {"ann", "ben"}
    assert asking.decide(ROOM, mark, may_approve=False, name=names["ben"]) == "You may not decide this."
    decided = asking.decide(ROOM, mark, may_approve=True, name=names["ben"], words=words)
    assert decided == f"{said}: `rm x` (asked by ben)" and await asked[1] == answer
    assert not asked[0].done() and not asked[2].done() and not words_asked.done()
    over = asking.decide(ROOM, mark, may_approve=True, name=names["ben"])
    assert over == "Nothing waits for a decision here." and not asked[0].done(), "a name is never another's"
    assert asking.decide(ROOM, mark, may_approve=True) == f"{said}: `rm x` (asked by ann)", "one is left"
    await asked[0]
    assert asking.decide(ROOM, mark, may_approve=True) == "Nothing waits for a decision here."
    for task in (asked[2], words_asked):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _done(task: asyncio.Task[Any]) -> bool:
    return task.done()


def names_in(which: str) -> dict[str, str]:
    """Return the name of each permission in a reply that asks which one, by who asked for it."""
    return {who: name for name, who in re.findall(r"`/approve (\w+)`.*asked by (\w+)\)", which)}


@pytest.mark.parametrize(
    ("text", "answer", "said", "stops"),
    [
        ("Yes", "once", "Allowed once: `rm x` (asked by ann)", False),
        ("session", "session", "Allowed in this conversation: `rm x` (asked by ann)", False),
        ("no", "no", "Denied: `rm x` (asked by ann)", False),
        (
            "no, because it is Friday",
            Reply("no", words="it is Friday"),
            "Denied: `rm x` (asked by ann)",
            False,
        ),
        ("stop", Reply("no", words="stop"), "Denied: `rm x` (asked by ann)", True),
        ("yes but not now", Reply("no", words="yes but not now"), "Denied: `rm x` (asked by ann)", False),
        ("o", Reply("no", words="o"), "Denied: `rm x` (asked by ann)", False),
    ],
)
async def test_words_of_the_conversation_decide_by_the_rule_for_typed_answers(
    text: str, answer: object, said: str, stops: bool
) -> None:
    asking, chat = ChatQuestions(), Chat()
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(request(grant="rm")))
    await chat.asked()
    assert asking.take_reply(5, ROOM, " ", may_approve=True) is None
    assert asking.take_reply(5, ROOM, text, may_approve=True) == ChatReply(said, stops)
    assert await asked == answer


async def test_an_answer_that_is_not_offered_leaves_the_question_open() -> None:
    asking, chat = ChatQuestions(), Chat()
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(request()))
    await chat.asked()
    assert asking.take_reply(5, ROOM, "always", may_approve=True) == ChatReply(NOT_OFFERED)
    assert asking.decide(ROOM, "a", may_approve=True) == NOT_OFFERED and not asked.done()
    assert asking.decide(ROOM, "n", may_approve=True).startswith("Denied") and await asked == "no"


async def test_words_ask_which_question_is_meant_and_a_name_answers_it() -> None:
    """Ann may approve and has a question of her own open; ben, who may not, waits for his `rm x`."""

    asking, anns, bens = ChatQuestions(), Chat(5), Chat(6)
    hers = asyncio.create_task(ChatPerson(asking, anns.route, "ann", None).approve(request()))
    his = asyncio.create_task(ChatPerson(asking, bens.route, "ben", None).approve(request()))
    await bens.asked()
    reply = asking.take_reply(5, ROOM, "yes", may_approve=True)
    assert reply is not None and "2 questions" in reply.text and not hers.done() and not his.done()
    names = names_in(reply.text)
    assert asking.take_reply(6, ROOM, f"{names['ben']} yes", may_approve=False) == ChatReply(
        "You may not decide this."
    )
    assert asking.split_name(ROOM, f"{names['ben']} once") == (names["ben"], "once")
    assert asking.split_name(OTHER_ROOM, f"{names['ben']} once") == ("", f"{names['ben']} once")
    only = asking.take_reply(5, ROOM, names["ben"], may_approve=True)
    assert only is not None and only.text.startswith("Answer with:") and not his.done()
    chat_reply = asking.take_reply(5, ROOM, f"{names['ann']} yes", may_approve=True)
    assert chat_reply == ChatReply("Allowed once: `rm x` (asked by ann)") and await hers == "once"
    assert not his.done()
    assert asking.take_reply(5, ROOM, "thanks, that is all", may_approve=True) is None and not his.done()
    assert asking.take_reply(5, ROOM, "no", may_approve=True) == ChatReply("Denied: `rm x` (asked by ben)")
    assert await his == "no"


async def test_the_models_question_is_answered_by_its_person_or_by_somebody_who_may_approve() -> None:
    asking, chat = ChatQuestions(), Chat()
    person = ChatPerson(asking, chat.route, "ann", None)
    asked = asyncio.create_task(person.clarify("Delete the production database?", ["Agree", "no"]))
    await chat.asked()
    agree = chat.data["Agree"]
    assert asking.handle_press(5, agree, may_approve=False, is_own=False) == "You may not decide this."
    assert asking.take_reply(6, ROOM, "Agree", may_approve=False) is None
    assert asking.take_reply(6, ROOM, "Agree", may_approve=True) is None and not asked.done()
    assert asking.handle_press(5, chat.data["no"], may_approve=False, is_own=True) == "Noted: no."
    assert await asked == "no"
    asked = asyncio.create_task(person.clarify("Really?", ["Agree", "no"]))
    await chat.asked(2)
    assert asking.handle_press(5, chat.data["no"], may_approve=True) == "Noted: no." and await asked == "no"


async def test_the_models_question_takes_a_button_or_the_next_message_of_its_conversation() -> None:
    asking, chat = ChatQuestions(), Chat()
    person = ChatPerson(asking, chat.route, "ann", None)
    asked = asyncio.create_task(person.clarify("Which\u202e?", [f"n{n}" + "x" * 70 for n in range(9)]))
    await chat.asked()
    (message,) = chat.said
    assert message.text.startswith("Which<U+202E>?\n• n0xxx") and message.text.count("x" * 70) == 8
    assert [button.label[:2] for button in message.buttons] == [f"n{n}" for n in range(8)]
    assert {button.label[2:] for button in message.buttons} == {visible("x" * 70, 58)}
    pressed = message.buttons[7].data
    assert asking.handle_press(5, pressed, may_approve=False, is_own=True) == f"Noted: n7{'x' * 70}."
    assert asking.take_reply(5, ROOM, "late", may_approve=False) is None and await asked == "n7" + "x" * 70
    asked = asyncio.create_task(person.clarify("And?", []))
    await chat.asked(2)
    assert asking.take_reply(6, ROOM, "no", may_approve=False) is None and not asked.done()
    assert asking.take_reply(5, ROOM, "so", may_approve=False) == ChatReply("") and await asked == "so"
    assert asking.take_reply(5, ROOM, "again", may_approve=False) is None


def shown(chat: Chat) -> list[str]:
    return [button.label for button in chat.said[-1].buttons]


async def test_a_decision_offers_what_may_be_decided() -> None:
    scope = GrantScope("terminal", ("rm *",))
    for given, labels, lines in (
        (request(), ["Allow once", "This conversation", "Deny"], []),
        (
            request(grant="rm", scopes=(scope,)),
            ["Allow once", "This conversation", "Always", "Deny"],
            [
                "This conversation (until Whet restarts) and always (in this folder; take back: whet"
                " approvals): not asked again to",
                "```",
                "run “rm” with any arguments in the workspace (covers nothing else that a command does)",
                "```",
            ],
        ),
        (
            request(scopes=(scope,)),
            ["Allow once", "This conversation", "Deny"],
            [
                "This conversation (until Whet restarts): not asked again to",
                "```",
                "run “rm” with any arguments in the workspace (covers nothing else that a command does)",
                "```",
            ],
        ),
    ):
        asking, chat = ChatQuestions(), Chat()
        asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(given))
        await chat.asked()
        text = chat.said[0].text
        assert shown(chat) == labels and text.startswith("**May I run this?**")
        assert "```\nrm x\n```" in text or "rm x" in text
        always = ", `always`" if given.grant else ""
        words = f"Or write `once` or `yes`, `session`{always}, `no`."
        assert text.splitlines()[-2 - len(lines) :] == ["• Why asked: it deletes", *lines, words]
        assert [button.style for button in chat.said[0].buttons][:1] == ["good"]
        asking.handle_press(5, chat.data["Deny"], may_approve=True)
        assert await asked == "no"


async def test_all_of_a_long_decision_is_shown_on_demand_and_asked_again() -> None:
    asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(100_000, 1.0, 1.0))
    long = ApprovalRequest("s", "c", "terminal", "\n".join(f"echo {n}" for n in range(130)), ())
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(long))
    await chat.asked()
    assert shown(chat) == ["Deny", "Show all"]
    assert "echo 95\n" not in chat.said[0].text and "11 more lines" in chat.said[0].text
    for word in ("once", "session", "yes", "allow once"):
        assert asking.take_reply(5, ROOM, word, may_approve=True) == ChatReply(NOT_SHOWN) and not asked.done()
    assert (
        asking.decide(ROOM, "1", may_approve=True) == asking.decide(ROOM, "s", may_approve=True) == NOT_SHOWN
    )
    word = chat.data["Deny"].partition(":")[0]
    assert asking.handle_press(5, f"{word}:1", may_approve=True) == OVER and not asked.done()
    assert asking.decide(ROOM, "v", may_approve=True) == "Shown: `echo 0` … (asked by ann)"
    await chat.asked(2)
    assert shown(chat) == ["Allow once", "This conversation", "Deny"]
    assert "echo 95\n" in chat.said[1].text and "`show`" not in chat.said[1].text
    asking.decide(ROOM, "s", may_approve=True)
    assert await asked == "session"


@pytest.mark.parametrize(
    ("rows", "chars", "shown_rows", "count"),
    [(300, 500, 300, []), (400, 900, 200, ["… 201 more lines"]), (130, 2_000, 120, ["… 11 more lines"])],
)
def test_of_too_much_to_read_the_rest_is_counted(
    rows: int, chars: int, shown_rows: int, count: list[str]
) -> None:
    command = "\n".join(f"{n:0{chars}}" for n in range(rows))
    whole = full_rows(build_question(ApprovalRequest("s", "c", "terminal", command, ())))
    assert len(whole) == shown_rows and whole[-1].text.endswith(f"0{rows - 1}")
    assert [row.text for row in whole if row.kind == "fold"] == count


async def test_a_question_in_several_messages_has_its_buttons_under_the_last() -> None:
    asking, chat = ChatQuestions(), Chat(limits=PlatformLimits(400, 1.0, 1.0))
    long = ApprovalRequest("s", "c", "terminal", "\n".join(f"echo {n:030}" for n in range(20)), ())
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(long))
    await chat.asked()
    assert len(chat.said) > 2 and all(len(outgoing.text) <= 280 for outgoing in chat.said)
    assert asking.question_text(chat.data["Deny"]) == chat.said[-1].text
    assert [bool(outgoing.buttons) for outgoing in chat.said] == [False] * (len(chat.said) - 1) + [True]
    asking.decide(ROOM, "1", may_approve=True)
    assert await asked == "once"
    chat.said.clear()
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).clarify("Why? " * 200, ["so"]))
    await chat.asked()
    assert len(chat.said) > 2 and max(len(outgoing.text) for outgoing in chat.said) <= 280
    assert asking.take_reply(5, ROOM, "so", may_approve=False) == ChatReply("") and await asked == "so"


async def test_who_may_not_decide_has_somebody_else_asked_or_is_told_that_nobody_can_be() -> None:
    asking, here, there = ChatQuestions(), Chat(), Chat(6, OTHER_ROOM)

    async def found(route: QuestionRoute | None) -> QuestionRoute | None:
        return route

    alone = ChatPerson(asking, here.route, "ben", lambda: found(None))
    assert await alone.approve(request()) is None
    nobody = "needs somebody's permission, and nobody who may give it can be asked. Denied."
    assert [outgoing.text for outgoing in here.said] == [f"`terminal` {nobody}"]
    person = ChatPerson(asking, here.route, "be\u202en", lambda: found(there.route))
    asked = asyncio.create_task(person.approve(request()))
    await there.asked()
    assert there.said[0].text.startswith(r"**be\<U+202E\>n asks: may I run this?**")
    assert here.said[1].text == "`terminal` needs permission; whoever may give it was asked."
    decided = r"Allowed once: `rm x` (asked by be\<U+202E\>n)"
    assert asking.decide(OTHER_ROOM, "1", may_approve=True) == decided and await asked == "once"
    assert here.said[2].text == decided, "who asked is told what was decided elsewhere"
    group = Chat(7)
    person = ChatPerson(asking, here.route, "ben", lambda: found(group.route))
    asked = asyncio.create_task(person.approve(request()))
    await group.asked()
    assert group.said[0].text.startswith("**May I run this?**") and len(here.said) == 3
    asking.decide(ROOM, "n", may_approve=True)
    assert await asked == "no"


@pytest.mark.parametrize("has_buttons", [True, False])
async def test_words_in_another_chat_answer_a_question_only_with_its_name(has_buttons: bool) -> None:
    """Ben's turn asks ann in her own chat, where her words are not about it."""
    limits = PlatformLimits(4_000, 1.0, 1.0, has_buttons=has_buttons)
    asking, here, hers = ChatQuestions(), Chat(5), Chat(6, OTHER_ROOM, limits)
    stopped: list[bool] = []

    def take(text: str) -> ChatReply | None:
        return asking.take_reply(6, OTHER_ROOM, text, may_approve=True, stop=lambda: stopped.append(True))

    async def find() -> QuestionRoute | None:
        return hers.route

    for answer, expected in (
        ("yes", "once"),
        ("always", "always"),
        ("no, it is Friday", Reply("no", words="it is Friday")),
        ("stop", Reply("no", words="stop")),
    ):
        count = len(hers.said)
        person = ChatPerson(asking, here.route, "ben", find)
        asked = asyncio.create_task(person.approve(request(grant="rm")))
        await hers.asked(count + 1)
        for text in (
            "what is the weather?",
            "yes",
            "once",
            "no",
            "no, not that one",
            "always",
            "stop",
            "show",
        ):
            assert take(text) is None and not asked.done(), text
        lead, name = re.findall(r"\n(Or write|Write) `(\w+) once` or `", hers.said[-1].text)[0]
        assert lead == ("Or write" if has_buttons else "Write")
        ways = f"`{name} once` or `{name} yes`, `{name} session`, `{name} always`, `{name} no`."
        assert hers.said[-1].text.endswith(ways)
        reply = take(f"{name} {answer}")
        assert reply is not None and not reply.stops and not stopped, "another conversation's turn"
        assert await asked == expected


async def test_a_yes_that_may_mean_a_question_of_another_chat_asks_which_one() -> None:
    asking, here, hers = ChatQuestions(), Chat(5), Chat(6, OTHER_ROOM)

    async def find() -> QuestionRoute | None:
        return hers.route

    bens = asyncio.create_task(ChatPerson(asking, here.route, "ben", find).approve(request()))
    await hers.asked()
    anns = asyncio.create_task(ChatPerson(asking, hers.route, "ann", None).approve(request()))
    await hers.asked(2)
    reply = asking.take_reply(6, OTHER_ROOM, "yes", may_approve=True)
    assert reply is not None and set(names_in(reply.text)) == {"ann", "ben"} and not anns.done()
    words = asking.take_reply(6, OTHER_ROOM, "not on a Friday", may_approve=True)
    assert words == ChatReply("Denied: `rm x` (asked by ann)")
    assert await anns == Reply("no", words="not on a Friday") and not bens.done()
    bens.cancel()


async def test_what_was_cut_in_another_chat_is_shown_by_its_name() -> None:
    asking, here, hers = ChatQuestions(), Chat(5), Chat(6, OTHER_ROOM)

    async def find() -> QuestionRoute | None:
        return hers.route

    given = ApprovalRequest("s", "c", "terminal", "\n".join(["echo"] * 130), ())
    asked = asyncio.create_task(ChatPerson(asking, here.route, "ben", find).approve(given))
    await hers.asked()
    name = re.findall(r"Or write `(\w+) show` \(all of it\), `\1 no`\.$", hers.said[-1].text)[0]
    refusal = ChatReply(NOT_SHOWN.replace("`show`", f"`{name} show`"))
    assert asking.take_reply(6, OTHER_ROOM, f"{name} yes", may_approve=True) == refusal
    assert asking.take_reply(6, OTHER_ROOM, f"{name} show", may_approve=True) is not None
    await hers.asked(2)
    assert (
        asking.take_reply(6, OTHER_ROOM, f"{name} yes", may_approve=True) is not None
        and await asked == "once"
    )


async def test_where_there_are_no_buttons_all_ways_to_answer_are_written_out() -> None:
    limits = PlatformLimits(100_000, 1.0, 1.0, has_buttons=False)
    for lines, ways in (
        (1, "Write `once` or `yes`, `session`, `no`."),
        (130, "Write `show` (all of it), `no`."),
    ):
        asking, chat = ChatQuestions(), Chat(limits=limits)
        given = ApprovalRequest("s", "c", "terminal", "\n".join(["echo"] * lines), ())
        asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(given))
        await chat.asked()
        assert chat.said[0].text.endswith(f"\n{ways}")
        asking.decide(ROOM, "n", may_approve=True)
        await asked


@pytest.mark.parametrize(
    ("text", "has_buttons", "is_yes"),
    [
        ("yes", True, True),
        ("Yes", False, True),
        ("once", False, True),
        ("allow once", True, True),
        ("allow once", False, False),
        ("y", True, False),
        ("Y", False, False),
        ("o", True, False),
    ],
)
async def test_only_words_the_question_shows_are_a_yes(text: str, has_buttons: bool, is_yes: bool) -> None:
    asking = ChatQuestions()
    chat = Chat(limits=PlatformLimits(4_000, 1.0, 1.0, has_buttons=has_buttons))
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(request()))
    await chat.asked()
    texts = [chat.said[0].text, *(shown(chat) if has_buttons else ())]
    asking.take_reply(5, ROOM, text, may_approve=True)
    assert (await asked == "once") == is_yes
    assert (
        any(
            text.lower() in line.lower().replace("`", " ").split() or text.lower() == line.lower()
            for line in texts
        )
        == is_yes
    )


async def test_stop_cancels_the_turn_before_the_question_is_answered() -> None:
    asking, chat = ChatQuestions(), Chat()
    asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(request()))
    await chat.asked()
    await asyncio.sleep(0)
    reply = asking.take_reply(5, ROOM, "stop", may_approve=True, stop=asked.cancel)
    assert reply == ChatReply("Denied: `rm x` (asked by ann)", stops=True)
    await asyncio.wait({asked})
    assert asked.cancelled() and not asking.is_waiting(ROOM)
