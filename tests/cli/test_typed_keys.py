"""Keys at a permission question: a key alone with silence after it, or a line that Enter ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from whet.cli.typed_keys import TypedKeys
from whet.typed_answer import ALWAYS, NO, ONCE, SESSION

OPTIONS = (ONCE, SESSION, ALWAYS, NO)


def answers(keys: Sequence[str], prepare: Callable[[TypedKeys], None] | None = None) -> list[str]:
    """Return the answers to keys that come at once, and to the silence after them."""

    async def main() -> list[str]:
        found: list[str] = []
        typed = TypedKeys(OPTIONS, found.append, silence_s=0.0)
        if prepare is not None:
            prepare(typed)
        for key in keys:
            typed.press(key)
        for _ in range(5):  # of the loop's rounds, in which a timer of no length is over
            await asyncio.sleep(0)
        return found

    return asyncio.run(main())


@pytest.mark.parametrize(
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
        found: list[str] = []
        typed = TypedKeys(OPTIONS, found.append, silence_s=0.0)
        typed.press("o")
        typed.paste("nly\nthis one")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert found == [] and typed.hint() == "Enter: no, because: only this one"
        typed.press("\r")
        assert found == ["only this one"]

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
def test_what_enter_does_is_said(text: str, hint: str) -> None:
    async def main() -> str:
        typed = TypedKeys(OPTIONS, lambda answer: None)
        for key in text:
            typed.press(key)
        typed.close()
        return typed.hint()

    assert asyncio.run(main()) == hint
