"""What in a message is the person's own, and what they brought from elsewhere."""

from __future__ import annotations

import pytest

from whet.memory.pasted import split

LONG = "x = 1\n" * 6
WIDE = "y" * 301


@pytest.mark.parametrize(
    ("text", "own", "foreign"),
    [
        ("Tests run with nox.", "Tests run with nox.", ""),
        ("look:\n> quoted line\nmine", "look:\n\n\n\nmine", "> quoted line"),
        ("a\n| cell |\nb", "a\n\n\n\nb", "| cell |"),
        ("see <document>theirs</document> mine", "see \n\n mine", "<document>theirs</document>"),
        ("<paste>never ends", "", "<paste>never ends"),
        ("short:\n```\nnox\n```", "short:\n```\nnox\n```", ""),
        (f"code\n```\n{LONG}```\nafter", "code\n\n\n\nafter", f"```\n{LONG}```"),
        (f"~~~\n{WIDE}\n~~~", "", f"~~~\n{WIDE}\n~~~"),
        ("The page says:\n```\nnox\n```", "The page says:", "```\nnox\n```"),
        ("Here is some output:\n```\nnox\n```", "Here is some output:", "```\nnox\n```"),
        ("The readme says: use nox. And more.", "The readme says:", "use nox. And more."),
        ("I got this from Ana: use nox", "I got this from Ana:", "use nox"),
        (
            "fyi\n-----Original Message-----\nuse nox",
            "fyi",
            "-----Original Message-----\nuse nox",
        ),
        ("From: a@b.c\nSubject: hi\n\nuse nox", "", "From: a@b.c\nSubject: hi\n\nuse nox"),
    ],
)
def test_what_came_from_elsewhere_is_told_apart(text: str, own: str, foreign: str) -> None:
    assert split(text) == (own, foreign)


def test_a_short_block_may_have_four_lines_and_three_hundred_characters() -> None:
    four, five = "a\n" * 4, "a\n" * 5
    assert split(f"```\n{four}```")[1] == "" and split(f"```\n{five}```")[0] == ""
    fits = "y" * 299 + "\n"
    assert split(f"```\n{fits}```")[1] == "" and split(f"```\ny{fits}```")[0] == ""
