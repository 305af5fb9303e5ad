"""Words of a shell command with their quotes taken off, and what is known of each."""

from __future__ import annotations

import subprocess

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import each
from whet.shell.parse import parse
from whet.shell.words import Word, fill_variables, in_line, literal, name_of, unknown

COOKED = [
    ("a", [literal("a")]),
    ("a,b", [literal("a,b")]),
    ("'a b'", [literal("a b")]),
    ('"a b"', [literal("a b")]),
    ('"a\\"b\\$c\\d"', [literal('a"b$c\\d')]),
    ('"a`x`b"', [Word("a`x`b", "a`x`b", dynamic=True, prefix="a", runs=True)]),
    ('"$HOME"', [Word("/home/u", "$HOME", prefix="/home/u")]),
    ('"${HOME}/x"', [Word("/home/u/x", "${HOME}/x", prefix="/home/u/x")]),
    ("$HOME", [Word("/home/u", "$HOME", loose=True, prefix="/home/u")]),
    ("${HOME}", [Word("/home/u", "${HOME}", loose=True, prefix="/home/u")]),
    ("$PWD/x", [Word("/p/x", "$PWD/x", loose=True, prefix="/p/x")]),
    ("$X", [Word("$X", "$X", dynamic=True, loose=True)]),
    ('"$X"', [Word("$X", "$X", dynamic=True)]),
    ("a$X", [Word("a$X", "a$X", dynamic=True, loose=True, prefix="a")]),
    ('"a$X"b', [Word("a$Xb", "a$Xb", dynamic=True, prefix="a")]),
    ("${X:-y}", [Word("${X:-y}", "${X:-y}", dynamic=True, loose=True)]),
    ("$(x)", [Word("$(x)", "$(x)", dynamic=True, loose=True, runs=True)]),
    ('a"$(x)"', [Word("a$(x)", "a$(x)", dynamic=True, prefix="a", runs=True)]),
    ("`x`", [Word("`x`", "`x`", dynamic=True, loose=True, runs=True)]),
    ("<(x)", [Word("<(x)", "<(x)", dynamic=True, prefix="/dev/fd/", runs=True)]),
    ("a<(x)", [Word("a<(x)", "a<(x)", dynamic=True, prefix="a/dev/fd/", runs=True)]),
    ("$((1+2))", [Word("$((1+2))", "$((1+2))", dynamic=True)]),
    ('"$((1))"', [Word("$((1))", "$((1))", dynamic=True)]),
    ("~", [Word("/home/u", "~", prefix="/home/u")]),
    ("~/x", [Word("/home/u/x", "~/x", prefix="/home/u/x")]),
    ("~bob", [Word("~bob", "~bob", dynamic=True)]),
    ("a~", [literal("a~")]),
    ('"~"', [literal("~")]),
    ("a\\ b", [literal("a b")]),
    ("\\a", [literal("a")]),
    ("a\\*", [literal("a*")]),
    ("*", [Word("*", "*", glob=True, prefix="*")]),
    ("a?b", [Word("a?b", "a?b", glob=True, prefix="a?b")]),
    ("[ab]", [Word("[ab]", "[ab]", glob=True, prefix="[ab]")]),
    ('"*"', [literal("*")]),
    ("{a,b}", [literal("a"), literal("b")]),
    ("x{a,b}y", [literal("xay"), literal("xby")]),
    ("{a,{b,c}}", [literal("a"), literal("b"), literal("a"), literal("c")]),
    ("{a}", [literal("{a}")]),
    ("{}", [literal("{}")]),
    ("{1..3}", [Word("{1..3}", "{1..3}", dynamic=True, loose=True)]),
    ("x{1..3}", [Word("x{1..3}", "x{1..3}", dynamic=True, loose=True, prefix="x")]),
    ("{a,$X}", [Word("{a,$X}", "{a,$X}", dynamic=True, loose=True, prefix="{a,")]),
    ('"{a,b}"', [literal("{a,b}")]),
    ("\\{a,b}", [literal("{a,b}")]),
    ("{*,b}", [Word("*", "*", glob=True, prefix="*"), Word("b", "b", glob=True, prefix="b")]),
    ("$'a\\tb'", [literal("a\tb")]),
    ("$'\\x41\\u42\\103\\cA\\q\\'\\U110000'", [literal("ABC\x01q'�")]),
    ('$"a b"', [literal("a b")]),
    ('$"a$X"', [Word("a$X", "a$X", dynamic=True, prefix="a")]),
    ('"a"$"b"', [literal("ab")]),
    ("'it'\\''s'", [literal("it's")]),
    ("'a b'\\c\"d\"", [literal("a bcd")]),
    ("'a'\\$\"b\"", [literal("a$b")]),
    ('a$"b"c', [literal("abc")]),
    ('--a=$"b"', [literal("--a=b")]),
    ('$""', [Word("", "")]),
    ('$ "a"', [literal("$"), literal("a")]),
    ("'$'\"a\"", [literal("$a")]),
    ('\\$"a"', [literal("$a")]),
    ("1", [literal("1")]),
    ("a=b", [literal("a=b")]),
    ("--a=$X", [Word("--a=$X", "--a=$X", dynamic=True, loose=True, prefix="--a=")]),
    ("-$X", [Word("-$X", "-$X", dynamic=True, loose=True, prefix="-")]),
    ("a'b'\"c\"d", [literal("abcd")]),
    ("''", [Word("", "")]),
    ("~+/x", [Word("~+/x", "~+/x", dynamic=True)]),
]


def cooked(text: str) -> list[Word]:
    script = parse(f"p {text}", ("/p",), "/home/u")
    words = next(
        invocation.words[1:]
        for invocation in script.invocations
        if invocation.words and invocation.words[0].text == "p"
    )
    return [msgspec.structs.replace(word, marked="") for word in words]


@each(("text", "words"), COOKED)
def test_a_word_is_what_bash_makes_of_it(text: str, words: list[Word]) -> None:
    assert cooked(text) == words


_BITS = ["a", "'b c'", '"d e"', '$"f"', "$'g\\th'", "\\i", "\\$", "\\'", '\\"', '""', " ", "{j,k}", "\\\n"]
_BITS += ["$''", '"l\'m"', "'n\"o'", '"\\p"', '"\\""', "--q=", "/", ".", "%", "@", "^", ":", "}"]


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(_BITS), min_size=1, max_size=7).map("".join))
def test_bash_makes_the_same_words(text: str) -> None:
    command = ["/bin/bash", "--norc", "--noprofile", "-c", f"printf '%s\\0' p {text}"]
    ran = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, check=False)
    if ran.returncode or ran.stderr or parse(f"p {text}", ("/p",), "/home/u").doubts:
        return
    assert [word.text for word in cooked(text)] == ran.stdout.decode().split("\0")[1:-1]


def test_braces_give_all_their_words_up_to_a_limit() -> None:
    assert [word.text for word in cooked("{a,b}" * 8)][:3] == ["aaaaaaaa", "aaaaaaab", "aaaaaaba"]
    assert len(cooked("{a,b}" * 8)) == 256
    (many,) = cooked("x" + "{a,b}" * 9)
    assert many.dynamic and many.loose and many.prefix == "x"
    assert [word.text for word in cooked("{a}" * 32 + "{b,c}")] == ["{a}" * 32 + "{b,c}"], (
        "it is not expanded"
    )
    assert cooked("{a}" * 32 + "{b,c}")[0].dynamic and not cooked("{a}" * 31 + "{b,c}")[0].dynamic


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        *(("$X", True), ("a$X", True), ('"a$X"', False), ('"-$X"', True), ("-x", False), ("a", False)),
        *(("*", True), ("a*", False), ("-*", True), ("?x", True), ("+*", True)),
    ],
)
def test_a_word_that_is_made_at_run_time_may_be_an_option(text: str, may_be: bool) -> None:
    assert cooked(text)[0].may_be_flag is may_be


@pytest.mark.parametrize(
    ("plain", "shown"),
    [
        ("a", "a"),
        ("", "''"),
        ("a b", "'a b'"),
        ("it's", "'it'\\''s'"),
        ("a*b", "a*b"),
        ("$X", "$X"),
        ("a#b", "'a#b'"),
    ],
)
def test_a_word_is_shown_so_that_it_can_be_typed(plain: str, shown: str) -> None:
    assert literal(plain).normal_form == shown


def test_words_are_made_and_written() -> None:
    assert unknown("b", "a") == Word("ab", "ab", dynamic=True, prefix="a", marked="ab")
    assert unknown("b") == Word("b", "b", dynamic=True, loose=True, marked="b")
    assert Word("abc", "bcd", prefix="a", dynamic=True).after(2) == Word("c", "d", dynamic=True)
    assert name_of(literal("/usr/bin/a")) == name_of(literal("a")) == "a"
    assert fill_variables("$a-${b}$c", {"a": "1", "b": "2"}) == "1-2$c"
    assert in_line([literal("a b"), literal("c")]) == " a_b c"
