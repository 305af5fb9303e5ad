"""Keys at a permission question: a key alone with silence after it, or a line that Enter ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.support import each
from whet.terminal.keys import InputKeys
from whet.terminal.questions import TerminalQuestion
from whet.terminal.typed_keys import TypedKeys, TypingGuard
from whet.typed_answer import ALWAYS, NO, ONCE, SESSION, VIEW

OPTIONS = (ONCE, SESSION, ALWAYS, NO)


def answers(keys: Sequence[str], prepare: Callable[[TypedKeys], None] | None = None) -> list[str]:
    """Return the answers to keys that come at once, and to the silence after them."""

    async def main() -> list[str]:
        texts: list[str] = []
        typed = TypedKeys(OPTIONS, texts.append, silence_s=0.0)
        if prepare is not None:
            prepare(typed)
        for key in keys:
            typed.press(key)
        for _ in range(5):  # of the loop's rounds, in which a timer of no length is over
            await asyncio.sleep(0)
        return texts

    return asyncio.run(main())


@each(
    ("keys", "expected"),
    [
        ("o", ["o"]),
        ("n", ["n"]),
        ("s", []),
        ("s\r", ["s"]),
        ("a", []),
        ("always\r", ["always"]),
        ("stop", []),
        ("stop\r", ["stop"]),
        ("open it\r", ["open it"]),
        ("on", []),
        ("ok\x7f", ["o"]),
        ("wait and see\x17\x17\r", ["wait"]),
        ("wait\x15o", ["o"]),
        ("\r", [""]),
        ("x\x7f\r", [""]),
    ],
)
def test_keys_become_one_answer(keys: str, expected: list[str]) -> None:
    assert answers(keys) == expected


def test_keys_that_type_nothing_are_ignored() -> None:
    assert answers(["\x1b[A", "\x00", "o"]) == ["o"]


def test_a_paste_alone_answers_nothing_and_goes_on_with_a_line() -> None:
    assert answers([], lambda typed: typed.paste("once")) == []

    async def main() -> None:
        texts: list[str] = []
        typed = TypedKeys(OPTIONS, texts.append, silence_s=0.0)
        typed.press("o")
        typed.paste("nly\nthis one")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert texts == [] and typed.hint() == "Enter: no, because: only this one"
        typed.press("\r")
        assert texts == ["only this one"]

    asyncio.run(main())


def test_a_key_does_not_answer_while_a_further_one_waits_to_be_read() -> None:
    waiting = [True, True, False]
    asked: list[bool] = []

    def is_followed() -> bool:
        asked.append(waiting.pop(0))
        return asked[-1]

    def prepare(typed: TypedKeys) -> None:
        typed.is_followed = is_followed

    assert answers("o", prepare) == ["o"] and asked == [True, True, False]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("s", "Enter: session: s"),
        ("always", "Enter: always: always"),
        ("stop", "Enter: no, and stop the turn: stop"),
        ("wait", "Enter: no, because: wait"),
        ("", ""),
    ],
)
async def test_what_enter_does_is_said(text: str, hint: str) -> None:
    typed = TypedKeys(OPTIONS, lambda answer: None)
    for key in text:
        typed.press(key)
    typed.close()
    assert typed.hint() == hint


@pytest.mark.parametrize(
    ("key_s", "shown_s", "next_s", "is_early"),
    [
        ((0.0,), 0.7, 0.8, True),
        ((0.0,), 0.7, 1.6, True),
        ((0.0,), 0.7, 1.75, False),
        ((0.0, 1.5), 0.7, 2.4, True),
        ((0.0, 1.5), 0.7, 2.6, False),
        ((0.0,), 2.5, 2.6, False),
        ((), 0.7, 0.8, False),
    ],
)
def test_keys_answer_a_question_that_came_during_typing_only_after_a_pause(
    key_s: Sequence[float], shown_s: float, next_s: float, is_early: bool
) -> None:
    now = [0.0]
    guard = TypingGuard(lambda: now[0])
    for at_s in sorted((*key_s, shown_s)):
        now[0] = at_s
        guard.show() if at_s == shown_s else guard.note_key()
    now[0] = next_s
    assert guard.is_typing == is_early


def test_behind_a_sent_line_keys_wait_for_half_a_second_and_behind_another_program_not_at_all() -> None:
    now = [5.0]
    guard = TypingGuard(lambda: now[0])
    guard.note_key()
    guard.end_line()
    guard.show()
    assert guard.is_typing and not guard.is_in_word
    now[0] = 5.6
    assert not guard.is_typing
    guard.note_key()
    guard.forget_keys()
    guard.show()
    assert not guard.is_typing
    guard.show(has_input=True)
    assert guard.is_typing


def test_lines_that_are_typed_ahead_answer_no_question() -> None:
    now = [5.0]
    guard = TypingGuard(lambda: now[0])
    guard.note_key()
    guard.end_line()
    guard.show()
    for now[0] in (5.35, 5.4, 5.45, 5.8, 6.25, 6.7):
        assert guard.is_typing
        guard.note_key()
        guard.end_line()
    now[0] = 7.25
    assert not guard.is_typing


@pytest.mark.fast_rows("answers0", "answers4", "answers6")
@pytest.mark.parametrize(
    ("first", "pause_s", "is_repeated", "then", "answers"),
    [
        ("n", 0.8, False, "o", ["n", None]),
        ("n", 0.8, False, "n", ["n", None]),
        ("n", 1.9, False, "o", ["n", "o"]),
        ("o\r", 0.1, False, "o", ["o", None]),
        ("o\r", 1.9, False, "o", ["o", "o"]),
        ("v", 0.8, True, "o", ["v", None]),
        ("v", 0.8, True, "n", ["v", "n"]),
        ("v", 1.9, True, "o", ["v", "o"]),
    ],
)
async def test_a_key_of_a_slowly_typed_word_does_not_answer_the_next_question(
    first: str, pause_s: float, is_repeated: bool, then: str, answers: list[str | None]
) -> None:
    """The next question is shown 0.7 s after the first key, and `then` comes `pause_s` after that key."""

    now = [10.0]
    keys = InputKeys()
    keys.typing = TypingGuard(lambda: now[0])
    with create_pipe_input() as pipe:
        prompt: PromptSession[str] = PromptSession(
            input=pipe, output=DummyOutput(), key_bindings=keys.bindings(lambda: prompt.default_buffer)
        )
        task = asyncio.create_task(prompt.prompt_async())
        given: list[str | None] = []
        for text, at_s in ((first, 10.0), (then, 10.0 + pause_s)):
            question = TerminalQuestion([("", "?")], options=(*OPTIONS, VIEW))
            question.typed = TypedKeys((*OPTIONS, VIEW), question.give, silence_s=0.0)
            question.is_drawn, question.is_repeated = True, is_repeated and bool(given)
            keys.question = question
            keys.typing.show()
            now[0] = at_s
            pipe.send_text(text)
            while not question.answer.done() and not question.has_early_keys:
                await asyncio.sleep(0)
            given.append(question.answer.result() if question.answer.done() else None)
            now[0] = 10.7
        task.cancel()
        assert given == answers
