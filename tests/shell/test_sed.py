"""What is read as a sed command that runs, reads or writes is one for sed itself, and the other way round."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess

import pytest

from tests.support import each
from whet.shell.sed import SedCommand, parse_sed, parse_sed_call
from whet.shell.words import literal, unknown

_ADDRESSES = [
    *("", "1", "$", "/x/", "/x/I", "1,3", "1~2", "1,+3", "1,~4", "0,/x/", "\\,x,", "/a\\/b/", "/[/]/"),
    *("1!", "2,4!", "/[]/]/", " 1 , 3 ", "\\%[%]%M", "/x/,/y/I"),
]
_PLAIN = [
    *("p", "D", "=", "q5", "l 5", "n", "F", ":a", ":a;ba", ":a;t a", "s/a/b/g", "s/a\\/b/c/gp", "y/ab/cd/"),
    *("s/a\\\nb/c\\\nd/", "s|a|b|2I", "a foo;e", "a\\\nfoo", "c\\", "{p}", "# e", "s/[[:alpha:]/]/e/"),
    "s/[]/]/e/",
]
_TOUCHING = [
    *("e", "e id", "r x", "Rx", "w x", "W x", "s,a,b,e", "s/a/b/w x", "s/[/]/x/e", "sxaxbxe", "{p;e}"),
    *("s/a/b/ e", "s a b e", "s/[^/]/x/e", "s/\\[/]/e", "s/a/b/3e"),
]
_BROKEN = ["k", "S", "s/a/b", "y/a/b/e", "!e", "s/a/[/;e", "pe"]


def sed_says(script: str) -> str:
    """Give what sed takes a script for: plain, touching (it runs, reads or writes) or broken."""
    done = subprocess.run(["sed", "--sandbox", "-n", script, "/dev/null"], capture_output=True, text=True)
    if "disabled in sandbox" in done.stderr:
        return "touching"
    return "broken" if done.returncode else "plain"


def whet_says(script: str) -> str:
    commands = parse_sed(script)
    if commands is None:
        return "broken"
    touches = any(command.name in "rRwW" or command.runs for command in commands)
    return "touching" if touches else "plain"


def needs_gnu_sed() -> None:
    if not shutil.which("sed") or sed_says("p") != "plain":
        pytest.skip("the sed here has no --sandbox")


@each("script", [*_PLAIN, *_TOUCHING, *_BROKEN])
def test_a_script_is_what_it_is_for_sed(script: str) -> None:
    needs_gnu_sed()
    assert whet_says(script) == sed_says(script)


@pytest.mark.parametrize("address", _ADDRESSES)
def test_a_command_after_an_address_is_what_it_is_for_sed(address: str) -> None:
    needs_gnu_sed()
    for command in ("e", "p", "s,a,b,e"):
        assert whet_says(address + command) == sed_says(address + command), command


@pytest.mark.slow
def test_no_made_up_script_touches_more_than_was_read() -> None:
    needs_gnu_sed()
    made = random.Random(7)
    commands = [*_PLAIN, *_TOUCHING, *_BROKEN, "{", "}", "v", "", "x"]
    between = [";", "\n", " ", " ; ", "", ";;"]
    for _, count in zip(range(1_000), itertools.cycle((1, 2, 3)), strict=False):
        parts = [made.choice(_ADDRESSES) + made.choice(commands) + made.choice(between) for _ in range(count)]
        script = "".join(parts)
        mine, theirs = whet_says(script), sed_says(script)
        assert mine == theirs or mine == "broken" or theirs == "broken", script
        assert theirs != "touching" or mine != "plain", script


def test_what_a_command_is_given_is_told() -> None:
    script = "1r .env\n$!{W /etc/x\n}\ns/a/b/gw out put\n2,3s|x|id|Ie;e  id -u\n"
    rows = [
        ("r", ".env"),
        ("{",),
        ("W", "/etc/x"),
        ("}",),
        ("s", "g"),
        ("w", "out put"),
        ("s", "Ie"),
        ("e", "id -u"),
    ]
    assert parse_sed(script) == [SedCommand(*row) for row in rows]
    assert parse_sed("p;" * 1_000) is not None and parse_sed("p;" * 1_000 + "p") is None


@each(
    ("words", "script"),
    [
        ("-n p f", "p"),
        ("-nep f", "p"),
        ("-ne p -e q f", "p\nq"),
        ("--expr=p --exp q f", "p\nq"),
        ("-i p f", "p"),
        ("-i.bak p f", "p"),
        ("-i .bak p f", "p"),
        (".bak p f", ".bak"),
        ("-El 5 p f", "p"),
        ("--line=5 --line 6 p f", "p"),
        ("-n -- -p f", "-p"),
        ("-f x e", ""),
        ("--file x -e p e", "p"),
        ("- f", "-"),
        ("-e", ""),
        ("", ""),
    ],
)
def test_the_script_is_told_from_options_and_files(words: str, script: str) -> None:
    assert parse_sed_call([literal(word) for word in words.split()]).text == script


def test_a_script_that_is_partly_unknown_is_read_by_its_parts() -> None:
    script = parse_sed_call([unknown("$X;e id")])
    assert script.dynamic and script.commands == (SedCommand("e", "id"),)
    assert parse_sed_call([literal("$X;e id")]).commands is None
    script = parse_sed_call([unknown("$OPTIONS"), literal("1e id"), literal("f")])
    assert script.text == "$OPTIONS\n1e id" and script.commands == (SedCommand("e", "id"),)
    assert parse_sed_call([literal("-i"), literal(""), literal("p"), literal("f")]).text == "p"
    assert parse_sed_call([literal(""), literal("f")]).commands == ()
