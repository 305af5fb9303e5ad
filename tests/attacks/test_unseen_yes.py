"""A yes, in every form that a chat takes, to a question of which a part was folded, is missing or was refused
by the platform. None of them lets the call run; `tests/cli/test_asking.py` has the same for the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.gateway.test_questions import ROOM, Chat, run, shown
from whet.contract.channels import PlatformLimits
from whet.contract.protocols import ApprovalRequest, GrantScope
from whet.gateway.asking import ChatPerson
from whet.gateway.open_questions import ChatQuestions

_SCOPE = GrantScope("terminal", ("rm *",))
QUESTIONS: dict[str, str] = {
    "folded": "\n".join(f"echo {n}" for n in range(130)),
    "a long row": "echo " + "x" * 3_000 + "; rm -rf /srv/data",
    "longer than a chat takes": "\n".join("x" * 900 for _ in range(400)),
}
ANSWERS: dict[str, Callable[[ChatQuestions, Chat], object]] = {
    "the word once": lambda asking, _: asking.take_reply(5, ROOM, "once", may_approve=True),
    "the word yes": lambda asking, _: asking.take_reply(5, ROOM, "Yes", may_approve=True),
    "the word session": lambda asking, _: asking.take_reply(5, ROOM, "session", may_approve=True),
    "the word always": lambda asking, _: asking.take_reply(5, ROOM, "always", may_approve=True),
    "a button's label": lambda asking, _: asking.take_reply(5, ROOM, "allow once", may_approve=True),
    "the command": lambda asking, _: asking.decide(ROOM, "1", may_approve=True),
    "the command for the session": lambda asking, _: asking.decide(ROOM, "s", may_approve=True),
    "the command for always": lambda asking, _: asking.decide(ROOM, "a", may_approve=True),
    "a press": lambda asking, chat: asking.handle_press(5, _word(chat) + ":1", may_approve=True),
    "a press for always": lambda asking, chat: asking.handle_press(5, _word(chat) + ":a", may_approve=True),
}
ATTEMPTS = [(question, answer) for question in (*QUESTIONS, "a part did not arrive") for answer in ANSWERS]


def _word(chat: Chat) -> str:
    """Return the word of the question, which every button has."""
    return chat.said[-1].buttons[0].data.partition(":")[0]


@pytest.mark.parametrize("question", [*QUESTIONS, "a part did not arrive"])
def test_no_yes_counts_for_what_was_not_shown(question: str) -> None:
    effects: list[str] = []

    async def main() -> None:
        is_lost = question not in QUESTIONS
        asking = ChatQuestions()
        chat = Chat(limits=PlatformLimits(400 if is_lost else 1_000_000, 1.0, 1.0))
        subject = QUESTIONS.get(question, "\n".join(f"echo {n:030}" for n in range(20)))
        request = ApprovalRequest("s", "c", "terminal", subject, (), "rm", scopes=(_SCOPE,))
        asked = asyncio.create_task(ChatPerson(asking, chat.route, "ann", None).approve(request))
        await chat.asked()
        chat.lost.add(0 if is_lost else -1)
        for name, answer in ANSWERS.items():
            answer(asking, chat)
            await asyncio.sleep(0)
            if asked.done():
                effects.append(name)
                return
        assert is_lost or not {"Allow once", "Always", "This conversation"} & set(shown(chat))
        asking.decide(ROOM, "n", may_approve=True)
        assert await asked == "no"

    run(main)
    assert effects == []
