"""What a person could misread or not see is marked, and ordinary text of any script is left as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growing import grows_in_proportion
from tests.support import each
from whet.lookalike import mark_lookalikes, to_latin
from whet.visible import describe_character, escape_characters, find_odd_characters, visible

MARKED = [
    ("аpple.com", "а<U+0430>pple.com"),  # one Cyrillic letter in a Latin word
    ("rm /srv/gοοd", "rm /srv/gο<U+03BF>ο<U+03BF>d"),  # Greek
    ("/bin/сор", "/bin/с<U+0441>о<U+043E>р<U+0440>"),  # a whole word of look-alikes in a path
    ("сору this file", "с<U+0441>о<U+043E>р<U+0440>у<U+0443> this file"),  # or among Latin words
    ("run на с", "run на с"),  # and between Russian ones it is Russian
    ("ᏢᎪᎽ now", "Ꮲ<U+13E2>Ꭺ<U+13AA>Ꮍ<U+13BD> now"),  # Cherokee
    ("ｒm -rf /", "ｒ<U+FF52>m -rf /"),  # wide letters
    ("𝐫𝐦 x", "𝐫<U+1D42B>𝐦<U+1D426> x"),  # mathematical ones
    ("ɡit push", "ɡ<U+0261>it push"),  # phonetic ones
    ("‥/etc", "‥<U+2025>/etc"),  # one character that is read as two dots
    ("evil.com∕pay", "evil.com∕<U+2215>pay"),  # a slash that is none
    ("docs.python.org⁄.evil.example", "docs.python.org⁄<U+2044>.evil.example"),  # at the end of a host's name
    ("a\u0336b", "a\u0336<U+0336>b"),  # struck through
    ("cafe\u0301", "cafe\u0301<U+0301>"),  # not the same bytes as café
    ("1٢3", "1٢<U+0662>3"),  # a digit of another script in a number
    ("a\u3164b\u2800c\ufe0f", "a<U+3164>b<U+2800>c<U+FE0F>"),  # seen as nothing
    ("a\u202eb\u200bc\x1b[2J", "a<U+202E>b<U+200B>c\\e[2J"),
    ("ls" + " " * 400 + "; rm x", "ls<400 blanks>; rm x"),  # pushed out of sight
    ("ls\n\n\n\n\n\n\n\n\nrm x", "ls\n<9 blanks, 9 line ends>\nrm x"),
]
PLAIN = [
    "Запусти deploy.sh на сервере с флагом -x",
    "это API v2, а не v1",
    "naïve Łódź Straße crème brûlée, don’t – ok…",
    "日本語のAPIを使う",
    "iPhoneของฉัน",
    "안녕 world 한국어로",
    "السلام WiFi ١٢٣",
    "x² + 5 µm ≈ 12 €, №5 ™ → ok ❤",
    "Ελληνικά και English",
    "    indented\n\n\n\tand apart",
]


@each(("text", "shown"), MARKED)
def test_what_could_be_misread_is_marked(text, shown):
    assert escape_characters(text) == shown


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_text_of_any_script_stays_as_it_is(text):
    assert escape_characters(text).replace("\\t", "\t") == text and not find_odd_characters(text)


@pytest.mark.slow
@given(st.text(st.characters() | st.sampled_from("aаοｒ \n٢1́‥<U+>")))
def test_marking_twice_is_marking_once_and_takes_nothing_away(text):
    shown = mark_lookalikes(text)
    assert mark_lookalikes(shown) == shown
    assert visible(visible(text, 10**6), 10**6) == visible(text, 10**6)
    if "\n" * 8 not in text and " " * 100 not in text:
        rest = iter(shown)
        assert all(character in rest for character in text)  # in their order


@pytest.mark.slow
def test_a_long_hostile_text_is_read_in_one_pass():
    for hostile in (
        "с " * 50_000 + "a",
        "с привет аb " * 10_000,
        "a\u0301" * 50_000,
        (" " * 99 + "\n") * 1_000,
    ):
        assert escape_characters(hostile) != hostile


def test_each_odd_character_is_named_once():
    odd = sorted(find_odd_characters("ааpple\u202e"))
    assert list(map(describe_character, odd)) == [
        "U+0430 CYRILLIC SMALL LETTER A",
        "U+202E RIGHT-TO-LEFT OVERRIDE",
    ]
    assert to_latin("іgnоrе") == "ignore"


HOSTILE = [
    "яб1а1", "pа", "ас ", "яб ас ", "a" + "\u0301" * 9, "а\n", "\u200b", "x.а/", "1٣",
    " " * 99 + "а", "\n" * 7 + "x",
]  # fmt: skip


@pytest.mark.fast_rows("\\u200b", "x.\\u0430/")
@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_grows_in_proportion_to_the_text(piece: str) -> None:
    def read(size: int) -> None:
        text = "x " + piece * (size // len(piece))
        escape_characters(text)
        find_odd_characters(text)

    assert grows_in_proportion(read, 1_250)
