"""Questions that wait: the first answer counts, and whoever comes second is told so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal

import msgspec
import pytest

from tests.support import FixedClock
from whet import log
from whet.contract.errors import NotFound
from whet.contract.protocols import ApprovalRequest, GrantScope, Reply
from whet.question import build_question
from whet.serve.questions import Asker, PendingQuestion, QuestionReply, Questions, check_reply
from whet.serve.wire import ApiError


async def test_an_answer_that_comes_second_is_not_taken_for_one_that_counts() -> None:
    questions = Questions(FixedClock(), 60.0)
    asked = questions.new_question("session", "approval", "rm -r build")
    waiting = asyncio.ensure_future(questions.ask(asked))
    await asyncio.sleep(0)
    await questions.answer(asked.id, "once")
    with pytest.raises(NotFound, match="was answered"):
        await questions.answer(asked.id, "no")  # before the one who asked has heard the first
    assert await waiting == "once"
    assert questions.pending() == []


def asked(kind: Literal["approval", "question"] = "approval", **more: Any) -> PendingQuestion:
    return msgspec.structs.replace(Questions(FixedClock(), 60.0).new_question("s", kind, "ls"), **more)


@pytest.mark.parametrize(
    ("question", "answer", "more", "given"),
    [
        (asked(), "once", None, QuestionReply("once")),
        (asked(), "no", QuestionReply(reason="so"), QuestionReply("no", "so")),
        (asked(grant="ls"), "session", None, QuestionReply("session")),
        (
            asked(grant="ls", scopes=("a", "b")),
            "always",
            QuestionReply(scope=1),
            QuestionReply("always", scope=1),
        ),
        (asked(digest="d"), "once", QuestionReply(digest="d"), QuestionReply("once", digest="d")),
        (
            asked("question"),
            "x" * 20_001,
            QuestionReply(reason="y" * 20_001),
            QuestionReply("x" * 20_000, "y" * 20_000),
        ),
        (asked("question"), "always", QuestionReply(scope=9), QuestionReply("always", scope=9)),
    ],
)
def test_an_answer_that_fits_counts(
    question: PendingQuestion, answer: str, more: QuestionReply | None, given: QuestionReply
) -> None:
    assert check_reply(question, answer, more) == given


@pytest.mark.parametrize(
    ("question", "answer", "more", "told"),
    [
        (asked(), "yes", None, (400, "answer must be one of once, session, always, no", "answer", "")),
        (asked(), "session", None, (400, "this can only be allowed once", "answer", "")),
        (asked(), "always", None, (400, "this can only be allowed once", "answer", "")),
        (asked(), "once", QuestionReply(scope=1), (400, "there is no such scope", "scope", "")),
        (asked(), "once", QuestionReply(scope=-1), (400, "there is no such scope", "scope", "")),
        (
            asked(scopes=("a", "b")),
            "once",
            QuestionReply(scope=2),
            (400, "there is no such scope", "scope", ""),
        ),
        (
            asked(digest="d"),
            "once",
            QuestionReply(digest="e"),
            (409, "this is not what was looked at; look again", "", "question_differs"),
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    question: PendingQuestion, answer: str, more: QuestionReply | None, told: tuple[int, str, str, str]
) -> None:
    with pytest.raises(ApiError) as caught:
        check_reply(question, answer, more)
    error = caught.value
    assert (error.status, error.message, error.param, error.code) == told


async def test_a_question_says_what_it_is_about_and_what_was_answered() -> None:
    request = ApprovalRequest(
        "s2",
        "c1",
        "terminal",
        "ls -l",
        ("it lists",),
        "ls",
        scopes=(GrantScope("terminal", ("ls *",)), GrantScope("terminal", ("ls -l",), always=False)),
        arguments={"command": "ls -l"},
        folder="/work",
        opening="the network",
        digest="d",
        undo="not possible",
    )
    questions, looks = Questions(FixedClock(), 60.0), list[int]()
    questions.listeners.append(lambda: looks.append(1))
    person = Asker(questions, "s1", may_clarify=True)

    async def answered(
        waits: Coroutine[Any, Any, Any], answer: str, more: QuestionReply | None = None
    ) -> tuple[PendingQuestion, Any]:
        task = asyncio.create_task(waits)
        while not questions.pending():
            await asyncio.sleep(0)
        (question,) = questions.pending()
        assert await questions.answer(question.id, answer, more) == question
        return question, await task

    question, reply = await answered(person.approve(request), "once")
    assert reply == "once" and looks == [1, 1]
    assert msgspec.structs.asdict(question) | {"id": "", "body": (), "title": ""} == {
        "id": "",
        "kind": "approval",
        "session_id": "s2",
        "call_id": "c1",
        "tool": "terminal",
        "subject": "ls -l",
        "reasons": ("it lists",),
        "choices": (),
        "grant": "ls",
        "asked": "2026-11-21T09:00:00.000Z",
        "expires": "2026-11-21T09:01:00.000Z",
        "title": "",
        "body": (),
        "scopes": ("terminal(ls *)", "terminal(ls -l)"),
        "folder": "/work",
        "opening": "the network",
        "digest": "d",
        "keeps": (True, False),
        "covers": (
            "run “ls” with any arguments in the workspace (covers nothing else that a command does)",
            "run exactly “ls -l” in the workspace",
        ),
        "undo": "not possible",
        "draft": "ls -l",
    }
    log.protect(["Zq9-custom-secret"])
    address = GrantScope("web_fetch", ("https://a.example/?k=Zq9-custom-secret",))
    held = msgspec.structs.replace(request, scopes=(address,), folder="/w/Zq9-custom-secret")
    masked, _ = await answered(person.approve(held), "no")
    assert "Zq9" not in str(masked) and masked.scopes == (f"web_fetch(https://a.example/?k={log.MASK})",)
    log.forget_secrets()
    assert (question.title, question.body) == (build_question(request).title, build_question(request).body)
    always = await answered(person.approve(request), "always", QuestionReply(scope=1, reason="so"))
    assert always[1] == Reply("always", 1, "so")
    edited = await answered(person.approve(request), "once", QuestionReply(draft="ls"))
    assert edited[1] == Reply("once", arguments={"command": "ls"})
    kept = await answered(person.approve(request), "no", QuestionReply(draft="ls"))
    assert kept[1] == "no", "what was edited and refused is no other call"
    question, said = await answered(person.clarify("Which?", ["a", "b"]), "b")
    assert said == "b" and (question.choices, question.session_id) == (("a", "b"), "s1")
    assert await Asker(questions, "s1", may_clarify=False).clarify("Which?", []) is None
    hidden = msgspec.structs.replace(request, arguments={"command": "ls \u202e\t"})
    question, _ = await answered(person.approve(hidden), "no")
    assert question.draft == "", "a page would not give it back as it is"
    tabbed = msgspec.structs.replace(request, arguments={"command": "x\t" * 10_000})
    question, _ = await answered(person.approve(tabbed), "no")
    assert question.draft == "x\t" * 10_000
    longer = msgspec.structs.replace(request, arguments={"command": "x\t" * 10_000 + "x"})
    question, _ = await answered(person.approve(longer), "no")
    assert question.draft == ""
    with pytest.raises(NotFound, match="no such question"):
        await questions.answer("none", "no")


async def test_a_question_that_nobody_answers_is_over() -> None:
    questions = Questions(FixedClock(), 0.01)
    assert await questions.ask(questions.new_question("s", "question", "Which?")) is None
    assert questions.pending() == []
