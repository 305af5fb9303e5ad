"""Texts made comparable: what counts as the same words, and what stays different."""

from __future__ import annotations

import pytest

from whet.memory.folding import content_words, decode_values, find_span, fold, join_words


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("  Run\n\tMAKE   check ", "run make check"),
        ("“don’t”—now", '"don\'t"-now'),
        ("zero\u200bwidth\u00adhere", "zerowidthhere"),
        ("\x1b[31mred\x1b[0m and \x1b]0;title\x07plain", "red and plain"),
        ("ﬁle Ⅷ", "file viii"),
        ("STRASSE, Straße", "strasse, strasse"),
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


@pytest.mark.parametrize(
    ("text", "wanted", "there"),
    [
        ("We  run\tnox", "run nox", "run\tnox"),
        ("We  run\tnox", "we run", "We  run"),
        ("  nox  ", "nox", "nox"),
        ("a \x1b[31mRED\x1b[0m b", "red b", "RED\x1b[0m b"),
        ("a z\u200bero b", "zero", "z\u200bero"),
        ("the ﬁle is", "file", "ﬁle"),
        ("nox and nox", "nox", "nox"),
        ("\n x", "x", "x"),
    ],
)
def test_folded_words_are_found_where_they_stand(text: str, wanted: str, there: str) -> None:
    assert find_span(text, wanted) == (at := text.index(there), at + len(there))


def test_what_stands_nowhere_is_not_found() -> None:
    assert find_span("We run nox", "tox") is None


@pytest.mark.parametrize(
    "encoded",
    ["c2VjcmV0IHdvcmQ", "c2VjcmV0IHdvcmQ=", "73656372657420776f7264", "drow terces", "frperg jbeq",
     "\\x73ecret word", "%73ecret word", "\\u0073ecret word", "\\163ecret word", "\\0163ecret word"],
)  # fmt: skip
def test_what_a_program_would_decode_is_read(encoded: str) -> None:
    assert "secret word" in decode_values(encoded)


def test_the_two_alphabets_of_base_64_are_one_and_short_words_are_no_code() -> None:
    assert "??>>~~" in decode_values("Pz8-Pn5-") and "??>>~~" in decode_values("Pz8+Pn5+")
    assert "abcde" not in decode_values("YWJjZGU")


def test_words_are_put_together_without_their_signs() -> None:
    assert join_words("'evil.example' ':8443'") == " evil example 8443 "


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("glazes glazing glazed", ["glaz"]),
        ("deploying deployments deploy", ["deploy", "depl"]),
        ("kilns kiln kil ki k", ["kiln", "kil", "ki"]),
        ("7 x1 mp3s", ["7", "x1", "mp3s"]),
        ("don't", ["don't"]),
        ("résumé", ["résu"]),
        ("部 部署了", ["部署", "署了"]),
        ("हिन्दी", ["हनद"]),
        ("ราคา๕", ["รา", "าค", "คา", "า๕"]),
        ("nox在部署", ["nox在", "在部", "部署"]),
    ],
)
def test_words_are_compared_by_how_they_begin(text: str, begin: list[str]) -> None:
    assert content_words(text) == begin
