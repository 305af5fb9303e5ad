"""What is typed, as what is looked for, and what is said, as it is indexed: term by term."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.store import query
from whet.store.query import JOIN, Term


def word(text: str, **more) -> Term:
    return Term(f'"{text}"', text, **more)


def pairs(text: str, end: str = "") -> Term:
    """What is written without spaces is looked for as a phrase."""
    return Term(f'"{text}"{end}', f'"{text}"{end}')


@each(
    ("typed", "terms"),
    [
        ("one two one", [word("one"), word("two")]),
        ("bar!configurat*", [word("bar"), word("configurat", prefix="configurat")]),
        ("Foo*", [word("Foo", prefix="foo")]),
        ("ab*", [word("ab")]),
        ("Caroline's house", [word("Caroline"), word("house")]),
        ("the Of x", [word("the", is_stop=True), word("Of", is_stop=True), word("x")]),
        ("x!a_b.c", [word("x"), Term(f'("a{JOIN}b" AND "b{JOIN}c")', f'"a{JOIN}b" "b{JOIN}c"', '"a_b.c"')]),
        ("a/b*", [Term(f'("a{JOIN}b")', f'"a{JOIN}b"', '"a/b"')]),
        ("a/b!c", [Term(f'("a{JOIN}b")', f'"a{JOIN}b"', '"a/b"'), word("c")]),
        (
            '"go to foo.py',
            [Term(f'("go to foo.py" AND "foo{JOIN}py")', f"go to foo.py\nfoo{JOIN}py", is_phrase=True)],
        ),
        ("caf\u00e9", [word("cafe")]),
        ("\u6570\u636e\u5e93", [pairs(" \u6570\u636e \u636e\u5e93")]),
        ("\u636e", [pairs(" \u636e", " *")]),
        ("\u7528gpt\u6a21\u578b", [pairs(" \u7528 gpt \u6a21\u578b")]),
        ("\u6570\u636e\u5e93x", [pairs(" \u6570\u636e \u636e\u5e93 \u5e93 x")]),
        ('"" ___ - "_"', []),
        ("\u037a*", []),
        ("k\uff02b c\uff02", [word("k"), Term('("b c")', "b c", is_phrase=True)]),
        ("x\x00y\ue003z", [word("x"), word("y"), word("z")]),
    ],
)
def test_what_is_typed_becomes_these_terms(typed: str, terms: list[Term]) -> None:
    assert query.parse_terms(typed) == terms


def test_of_many_words_sixteen_are_looked_for_and_of_a_long_text_the_beginning() -> None:
    assert query.split_pieces(" ".join(f"w{n}" for n in range(20))) == [f"w{n}" for n in range(16)]
    assert [term.text for term in query.parse_terms("!".join(f"w{n}" for n in range(20)))] == [
        f"w{n}" for n in range(16)
    ]
    assert query.split_pieces(f"{'x' * 1_998} yz") == ["x" * 1_998, "y"]


@pytest.mark.parametrize(
    ("said", "indexed"),
    [
        ("foo_bar.baz and a/b", f"foo_bar.baz and a/b\nfoo{JOIN}bar\nbar{JOIN}baz\na{JOIN}b"),
        ("a.b a.b", f"a.b a.b\na{JOIN}b"),
        ("plain words", "plain words"),
        ("\u6570\u636e\u5e93x", " \u6570\u636e \u636e\u5e93 \u5e93 x"),
        ("na\u00efve.fa\u00e7ade", f"naive.facade\nnaive{JOIN}facade"),
        ("\u00e9\ue001x", "e x"),
        (
            "\u0434\u0430.\u043d\u0435\u0442",
            f"\u0434\u0430.\u043d\u0435\u0442\n\u0434\u0430{JOIN}\u043d\u0435\u0442",
        ),
        ("a....b", "a....b"),
    ],
)
def test_what_is_said_is_indexed_with_the_pairs_of_its_identifiers(said: str, indexed: str) -> None:
    assert query.to_index_text(said) == indexed


@each(
    ("text", "wanted", "shown"),
    [
        ("the cat and the dog", ["the", "dog"], "dog"),
        ("the cat", ["the"], "the"),
        ("concat a cat", ["cat"], "cat"),
        ("a fork", ["ork"], "ork"),
        ("a fork", ["cow"], None),
        ("I read it", ["read_me"], "read"),
        ("the bar", ["foo_bar"], None),
        ("the configs", ["configured"], None),
        ("he was configuring it", ["configured"], "configuring"),
        ("a tests", ["testing"], "tests"),
        ("an oxe", ["oxes"], None),
        ("so caf\u00e9 so", ["CAFE"], "caf\u00e9"),
        ("cafe so", ["caf\u00e9"], "cafe"),
        ("see foo_bar.py", ["foo bar py"], "foo_bar.py"),
        ("nothing", ["else"], None),
        ("nothing", [], None),
        ("no letters", ["---"], None),
        ("a cat", ["dog", "cat"], "cat"),
    ],
)
def test_the_match_is_found_as_a_person_would_see_it(text: str, wanted: list[str], shown: str | None) -> None:
    match = query.find_match(text, wanted)
    assert (None if match is None else text[slice(*match)]) == shown


def test_a_word_is_found_at_its_beginning_before_the_inside_of_another() -> None:
    assert query.find_match("concat a cat", ["cat"]) == (9, 12)
    assert query.find_match("\ufb03x cat", ["cat"]) == (3, 6), "its folded form is longer"
    assert query.find_match("\ufb03x caf\u00e9", ["cafe"]) is None, (
        "where it stands there is not where it stands"
    )
