"""Texts made comparable: what counts as the same words, and what stays different."""

from __future__ import annotations

import pytest

from whet.memory.folding import content_words, fold


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("  Run\n\tMAKE   check ", "run make check"),
        ("“don’t”—now", '"don\'t"-now'),
        ("zero\u200bwidth\u00adhere", "zerowidthhere"),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain", "red and plain"),
        ("ﬁle Ⅷ", "file viii"),
    ],
)
def test_typography_colours_and_space_make_no_difference(text: str, folded: str) -> None:
    assert fold(text) == folded


def test_words_that_carry_content_come_once_and_in_order() -> None:
    assert content_words("We always run the tests; testing uses nox, and nox 2 runs a x") == [
        "run",
        "test",
        "nox",
        "2",
        "runs",
    ]
    assert content_words("the and of") == []


def test_text_without_spaces_is_compared_by_pairs() -> None:
    assert content_words("部署在星期二") == ["部署", "署在", "在星", "星期", "期二"]
