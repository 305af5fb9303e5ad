"""What a text runs: its commands in order, where each runs, what it reads, and what can't be told."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.support import each
from whet.shell.parse import parse
from whet.shell.state import Folders
from whet.shell.words import Word

# A text that runs in /p with the home /home/u, and what it becomes: commands, then redirections and doubts.
# `?` stands before a word, or in place of a folder, that is known only at run time.
READ = [
    ("a $(c) > b d", ["c", "a ?$(c) d with c", "> b"]),
    ("a > $(b)", ["b", "a", "> ?$(b)"]),
    ('a > "x$(b)"', ["b", "a", "> ?x$(b)"]),
    ("a | b && c > d", ["a", "b from a", "c", "> d"]),
    ("ls a", ["ls a"]),
    ("ls | wc", ["ls", "wc from ls"]),
    ("a | b | c", ["a", "b from a", "c from a,b"]),
    ("(a | b) | c", ["a", "b from a", "c from a,b"]),
    ("a $(b | c)", ["b", "c from b", "a ?$(b | c) with b,c"]),
    ("cd x && ls", ["cd x", "ls in /p/x"]),
    ("cd x; ls", ["cd x", "ls in /p/x:/p"]),
    ("cd x || ls", ["cd x", "ls in /p/x:/p"]),
    ("cd x && cd y && ls", ["cd x", "cd y in /p/x", "ls in /p/x/y:/p/x"]),
    ("cd /x && ls", ["cd /x", "ls in /x"]),
    ("cd /x/../y && ls", ["cd /x/../y", "ls in /y"]),
    ("cd; ls", ["cd", "ls in /home/u:/p"]),
    ("cd ~ && ls", ["cd /home/u", "ls in /home/u"]),
    ("cd - ; ls", ["cd -", "ls in ?"]),
    ("cd $X; ls", ["cd ?$X", "ls in ?"]),
    ("cd x* ; ls", ["cd x*", "ls in ?"]),
    ("cd -P x && ls", ["cd -P x", "ls in /p/x"]),
    ("cd -- x && ls", ["cd -- x", "ls in /p/x"]),
    ("CDPATH=/y; cd x && ls", ["cd x", "ls in ?", "set CDPATH=/y"]),
    ("HOME=/y; cd; ls", ["cd", "ls in ?", "set HOME=/y"]),
    ("pushd x && ls", ["pushd x", "ls in /p/x"]),
    ("popd; ls", ["popd", "ls in ?"]),
    ("eval x; ls", ["eval x", "ls in ?"]),
    ("source x; ls", ["source x", "ls in ?"]),
    ("builtin cd x && ls", ["builtin cd x", "ls in /p/x"]),
    ("command cd x && ls", ["command cd x", "ls in /p/x"]),
    ("(cd x); ls", ["cd x", "ls"]),
    ("cd x | a; ls", ["cd x", "a from cd", "ls"]),
    ("a | cd x; ls", ["a", "cd x from a", "ls"]),
    ("$(cd x); ls", ["cd x", "?$(cd x) with cd", "ls"]),
    ("if cd x; then a; fi; ls", ["cd x", "a in /p/x:/p", "ls in /p/x:/p"]),
    ("case x in a) cd x;; esac; ls", ["cd x", "ls in /p/x:/p"]),
    ("for i in a; do cd x; done; ls", ["cd x", "ls in ?"]),
    ("while cd x; do a; done; ls", ["cd x", "a in /p/x:/p", "ls in ?"]),
    ("f() { cd x; }; ls", ["cd x", "ls in ?", "rare"]),
    ("f() { a; }; ls", ["a", "ls", "rare"]),
    ("{ cd x; }; ls", ["cd x", "ls in /p/x:/p"]),
    ("{ cd x && a; }; ls", ["cd x", "a in /p/x", "ls in /p/x:/p"]),
    ("cd x && a > b; ls", ["cd x", "a in /p/x", "ls in /p/x:/p", "> b in /p/x"]),
    ("! cd x && ls", ["cd x", "ls in /p/x:/p"]),
    ("cd x & ls", ["cd x", "ls in /p/x:/p"]),
    (
        "cd a; cd b; cd c; cd d; ls",
        [
            "cd a",
            "cd b in /p/a:/p",
            "cd c in /p/a/b:/p/b:/p/a:/p",
            "cd d in /p/a/b/c:/p/b/c:/p/a/c:/p/c:/p/a/b:/p/b:/p/a:/p",
            "ls in ?",
        ],
    ),
    ("a <<< b", ["a given 'b'"]),
    ('a <<< "$X"', ["a given '?$X'"]),
    ("a <<< $(b)", ["b", "a given '?$(b)'"]),
    ("a <<E\nx\nE", ["a given 'x\\n'", "rare"]),
    ("a <<E\n$X\nE", ["a given '?$X\\n'", "rare"]),
    ("a <<'E'\n$X\nE", ["a given '$X\\n'", "rare"]),
    ("a <<E | b\nx\nE", ["a given 'x\\n'", "b from a", "rare"]),
    ("a <<E > o\nx\nE", ["a given 'x\\n'", "> o", "rare"]),
    ("a <<E\nx", ["a", "doubt the shell syntax can't be read", "rare"]),
    (
        "a <<E\nx\nE y\nE",
        [
            "a given 'x\\n'",
            "y",
            "E",
            "doubt the shell syntax can't be read",
            "doubt it can't be told where a here-document begins and ends",
            "rare",
        ],
    ),
    ("a <<\\E\n$X\nE", ["a given '$X\\n'", "rare"]),
    ("a > b c", ["a c", "> b"]),
    ("a >> b", ["a", ">> b"]),
    ("a < b", ["a", "< b"]),
    ("a 2> b", ["a", "> b"]),
    ("a 2>&1", ["a"]),
    ("a >&2", ["a"]),
    ("a >& b", ["a", ">& b"]),
    ("a <&-", ["a"]),
    ("a &> b", ["a", "&> b"]),
    ("a > $X", ["a", "> ?$X"]),
    ("a > {x,y}", ["a", "> ?{x,y}"]),
    ("> a", ["> a"]),
    ("> a b", ["b", "> a"]),
    ("cd x > y", ["cd x", "> y"]),
    ("cd x && a > y", ["cd x", "a in /p/x", "> y in /p/x"]),
    ("{ a; b; } > c", ["a", "b", "> c"]),
    ("(a) > c", ["a", "> c"]),
    ("a && b > c", ["a", "b", "> c"]),
    ("a > b && c", ["a", "c", "> b"]),
    ("x=1 a", ["x=1 a"]),
    ("x=1; a", ["a", "set x=1"]),
    ("x=~/y a", ["x=/home/u/y a"]),
    ("x=$(b) a", ["b", "x=?$(b) a with b"]),
    ("x[1]=2; a", ["a", "set x[1]=2", "rare"]),
    ("export x=1 y", ["export y x=1", "set x=1", "rare"]),
    ("declare -x y=$X", ["declare -x ?y=$X", "set y=?$X", "rare"]),
    ("unset x", ["unset x", "rare"]),
    ("local x=1", ["local x=1", "set x=1", "rare"]),
    ("a # b", ["a"]),
    ("a $((1+2))", ["a ?$((1+2))"]),
    ("a $((x+2))", ["a ?$((x+2))", "rare"]),
    ("a ${x[0]}", ["a ?${x[0]}", "rare"]),
    ("[[ a -eq b ]]", ["rare"]),
    ("[[ a == b ]]", []),
    ("[ a -eq b ]", []),
    ("[[ -v a ]]", ["rare"]),
    ("[[ -v 'a[$(b)]' ]]", ["doubt a subscript may hold a command", "rare"]),
    ("f() { f | f & }; f", ["f", "f from f", "f", "forks", "rare"]),
    ("f() { f && f; }; f", ["f", "f", "f", "rare"]),
    ("f() { a | b; }; f", ["a", "b from a", "f", "rare"]),
    ("a `b \\`c\\``", ["b `c`", "a ?`b \\`c\\`` with b", "doubt it nests backquotes"]),
    ("time a", ["time a"]),
    ("a; b & c", ["a", "b", "c"]),
    ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
    ("while a; do b; done < c", ["a", "b", "< c"]),
    ("for x in a $(b) c; do $x; done", ["b", "?$x"]),
    ("case $x in a) b;; *) c;; esac", ["b", "c"]),
    ("a | while read x; do b $x; done", ["a", "read x from a", "b ?$x from a"]),
    ("coproc a", ["coproc a"]),
    ("select x in a; do b; done", ["b"]),
    ('a "$(b "$(c)")"', ["c", "b ?$(c) with c", 'a ?$(b "$(c)") with c,b']),
    ("a <(b) >(c)", ["b", "c", "a ?<(b) ?>(c) with b,c"]),
    ("function f { a; }", ["a", "rare"]),
    ("a\\\n b", ["a b"]),
    ("a\\\nb", ["a b", "doubt a line break stands inside a word"]),
    ("\\\na", ["a", "doubt a line break stands inside a word", "doubt a line holds nothing but a backslash"]),
    ("'a\\\nb'", ["a\\\nb"]),
    ("a \\ # b; c", ["a", "doubt it can't be told which word an escaped blank belongs to"]),
    ("a '\\ b' c\\ d", ["a \\ b c d"]),
    ("x=(a)# b", ["set x=?(a)", "doubt a comment stands inside a word", "rare"]),
    ("[[\\\\\n -n a ]]", ["doubt a word begins with `[`", "rare"]),
    ("x=\\\n a b", ["x=a b", "doubt a line break stands inside a command"]),
    ("export x=\\\n a", ["export x=a", "set x=a", "doubt a line break stands inside a command", "rare"]),
    ("x=(\\\n a)", ["set x=?(\\\n a)", "rare"]),
]


def shown(word: Word) -> str:
    return ("?" if word.dynamic else "") + word.text


def place(folders: Folders) -> str:
    return "" if folders == ("/p",) else " in " + (":".join(folders) or "?")


@each(("text", "parts"), READ)
def test_a_text_is_read_as_the_shell_would_run_it(text: str, parts: list[str]) -> None:
    script = parse(text, ("/p",), "/home/u")
    texts: list[str] = []
    for invocation in script.invocations:
        words = [
            *(f"{name}={shown(word)}" for name, word in invocation.assignments),
            *map(shown, invocation.words),
        ]
        line = " ".join(words) + place(invocation.folders)
        for what, others in (("from", invocation.piped_from), ("with", invocation.inner)):
            line += f" {what} {','.join(other.words[0].text for other in others)}" if others else ""
        texts.append(line + (f" given {shown(invocation.stdin)!r}" if invocation.stdin is not None else ""))
    texts += [
        f"{redirect.operator} {shown(redirect.target)}{place(redirect.folders)}"
        for redirect in script.redirects
    ]
    texts += [f"set {name}={shown(word)}" for name, word in script.assignments]
    texts += [f"doubt {doubt}" for doubt in script.doubts]
    texts += ["forks"] * script.forks
    assert [*texts, *([] if script.is_plain else ["rare"])] == parts


def test_the_first_command_is_given_the_input() -> None:
    assert [
        invocation.stdin and invocation.stdin.text
        for invocation in parse("a; b", ("/p",), "/h", "x").invocations
    ] == [
        "x",
        "x",
    ]
    assert parse("a", ("/p",), "/h").invocations[0].stdin is None


def test_what_is_too_deep_or_too_much_is_doubted() -> None:
    assert parse("a && " * 1_500 + "a", (), "/h").doubts == ["it is nested too deeply"]
    for most, opens, closes in ((117, "a && ", ""), (58, "(a | ", ")"), (58, "a $(", ")")):
        assert parse(opens * most + "a" + closes * most, (), "/h").doubts == []
        more = opens * (most + 1) + "a" + closes * (most + 1)
        assert parse(more, (), "/h").doubts == ["it is nested too deeply"]
    assert parse("(" * 30 + "a" + ")" * 30, (), "/h").doubts == []
    assert "it is nested too deeply" in parse("(" * 150 + "a" + ")" * 150, (), "/h").doubts
    assert parse("a;" * 2_001, (), "/h").doubts == []
    assert parse("a;" * 2_002, (), "/h").doubts == ["it holds too many commands"]


def test_where_a_command_and_its_strings_stand_is_known() -> None:
    text = "a 'b c' > d && e <<E\nx\nE\n"
    script = parse(text, (), "/h")
    assert [text[invocation.start : invocation.end] for invocation in script.invocations] == [
        "a 'b c' > d",
        "e <<E\nx\nE",
    ]
    assert [(text[start:end], is_document) for start, end, is_document in script.strings] == [
        ("'b c'", False),
        ("x\nE", True),
    ]


def test_a_text_is_parsed_within_a_limit_of_cpu_time_however_long_others_have_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for clock, doubts in (("monotonic", []), ("thread_time", ["the shell syntax takes too long to read"])):
        seconds = itertools.count()
        with monkeypatch.context() as patch:
            patch.setattr(time, clock, lambda seconds=seconds: float(next(seconds)))
            assert parse("ls;" * 500, (), "/h").doubts == doubts
