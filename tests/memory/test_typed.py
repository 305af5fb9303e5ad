"""What in a message is the person's own, and what they brought from elsewhere."""

from __future__ import annotations

import pytest

from tests.support import each
from whet.contract.brought_text import wrap_in_tag
from whet.memory.typed import is_quotation, split
from whet.store import rows


@each(
    ("text", "own", "foreign"),
    [
        ("Tests run with nox.", "Tests run with nox.", ""),
        ("remember: tests run with nox", "remember: tests run with nox", ""),
        ("look at this\n> quoted line\nmine", "look at this\n\n\n\nmine", "> quoted line"),
        ("see <document>theirs</document> mine", "see \n\n mine", "<document>theirs</document>"),
        ("<pasted>never ends", "", "<pasted>never ends"),
        ("Fasse das zusammen:\n\nAb jetzt immer tox.", "Fasse das zusammen:", "Ab jetzt immer tox."),
        ("要約してください：\n常に tox を使う。", "要約してください：", "常に tox を使う。"),
        ("Rules here:\n- use nox\n- no tabs\nok?", "Rules here:\n- use nox\n- no tabs\nok?", ""),
        ("Règles :\n\n1. nox\n2. tox", "Règles :\n\n1. nox\n2. tox", ""),
        ("See:\n- use nox\n\nHi Bo,\npay all", "See:", "- use nox\n\nHi Bo,\npay all"),
        ("See:\n- use nox\n- no tabs\nHi Bo,\npay", "See:", "- use nox\n- no tabs\nHi Bo,\npay"),
        ("See:\n- name: nox\n- name: tox", "See:", "- name: nox\n- name: tox"),
        ("See:\n- nox\n  tox\n- use it", "See:", "- nox\n  tox\n- use it"),
        ("See:\n- use nox", "See:", "- use nox"),
        ("See:\n\n- use nox\n\n- no tabs", "See:\n\n- use nox\n\n- no tabs", ""),
        ("见：\n1. 用 nox\n2. 不用制表符\n\n谢谢", "见：\n1. 用 nox\n2. 不用制表符\n\n谢谢", ""),
        ("See:\n* nox\n* tox\nThanks.\n\nNow run it.", "See:\n* nox\n* tox\nThanks.\n\nNow run it.", ""),
        ("code\n```\nnox\n```\nafter", "code\n\n\n\nafter", "```\nnox\n```"),
        ("The readme of it says: Use nox. And more.", "The readme of it says:", "Use nox. And more."),
        ("fyi\n-----Original Message-----\nuse nox", "fyi", "-----Original Message-----\nuse nox"),
        ("see\n\n[10:41] Zed: use tox\n[10:42] Ana: ok", "see", "[10:41] Zed: use tox\n[10:42] Ana: ok"),
        (
            "see\n**Zed** 10:41\nuse tox\n\n**Ana** 10:42\nok\n\nmine",
            "see\n\n\n\n\nmine",
            "**Zed** 10:41\nuse tox\n\n**Ana** 10:42\nok",
        ),
        ("the backup runs at 10:30\nno deploys then", "the backup runs at 10:30\nno deploys then", ""),
        ("listen on 127.0.0.1:80\nand on 10.0.0.7:81", "listen on 127.0.0.1:80\nand on 10.0.0.7:81", ""),
        ("Von: a@b.c\nBetreff: hi\n\nuse nox", "", "Von: a@b.c\nBetreff: hi\n\nuse nox"),
        ('shorter\n{"rule": "use nox"}', "shorter", '{"rule": "use nox"}'),
        (
            "review\n--- a/x\n+++ b/x\n+use nox\n\nthanks",
            "review\n\n\n\n\nthanks",
            "--- a/x\n+++ b/x\n+use nox",
        ),
        ("what is it\n$ nox -s x\nok", "what is it", "$ nox -s x\nok"),
        ("a table\nid;rule\n1;use nox", "a table", "id;rule\n1;use nox"),
        ("a table\nid,rule\n1,use nox", "a table", "id,rule\n1,use nox"),
        ("a table\nid | rule\n--|--\n1 | use nox", "a table", "id | rule\n--|--\n1 | use nox"),
        ("a box\n│ use nox", "a box", "│ use nox"),
        ("a patch\n+use nox\n+and tox", "a patch", "+use nox\n+and tox"),
        ("\u00a0> use nox\nexplain", "explain", "> use nox"),
        ("explain ```use nox``` to me", "explain \n\n to me", "```use nox```"),
        ("explain ```\nuse nox\n``` to me", "explain \n\n to me", "```\nuse nox\n```"),
        ("<doc\n id='1'\n>use nox</doc> explain", "explain", "<doc\n id='1'\n>use nox</doc>"),
        ("<!-- use nox --> explain", "explain", "<!-- use nox -->"),
        ("<![CDATA[\nuse nox\n]]> explain", "explain", "<![CDATA[\nuse nox\n]]>"),
        ("milk costs 1,20\nbutter costs 2,50", "milk costs 1,20\nbutter costs 2,50", ""),
        ("-use nox\n-no tabs", "-use nox\n-no tabs", ""),
        ("use nox, not make,\nand tabs, never blanks", "use nox, not make,\nand tabs, never blanks", ""),
        (
            "we use nox; make is old\nno tabs; four blanks",
            "we use nox; make is old\nno tabs; four blanks",
            "",
        ),
    ],
)
def test_what_came_from_elsewhere_is_told_apart(text: str, own: str, foreign: str) -> None:
    parts = split(text)
    assert (parts[0], parts[1].strip()) == (own, foreign)


def test_a_tag_that_was_typed_is_text() -> None:
    text = "compare List<string> with <b> in a table; I like tabs"
    assert split(text, "typed") == (text, "")
    assert split(f"{text}\n{wrap_in_tag('pasted', '</b> theirs')}", "typed")[0] == text


def test_nothing_that_was_brought_whole_is_the_person_s() -> None:
    assert split("I like tabs", "brought") == ("", "I like tabs")


def test_a_tag_of_unknown_origin_ends_at_its_last_end() -> None:
    own, foreign = split("<context>a </context> theirs </context> mine")
    assert own == "mine" and "theirs" in foreign


def test_a_message_that_an_earlier_version_stored_is_read() -> None:
    text = "compare List<string> with <pasted>a</string> theirs <\\/pasted> too</pasted>"
    message = rows.unpack(0, text, '{"t":true}')
    own, foreign = split(message.text, message.origin)
    assert message.text == text and own.startswith("compare List") and "theirs" in foreign


@pytest.mark.parametrize(
    ("text", "part", "by_others"),
    [
        ("Anna says „wir nehmen immer Tabs“ and left", "wir nehmen immer Tabs", True),
        ("Anna says „wir nehmen immer Tabs“ and left early, as always", "Anna says", False),
        ("上司は「これからは常にタブを使え」と言った", "常にタブを使え", True),
        ("Call it 'lot' in the code", "lot", False),
        ("Napisali „hasła wysyłamy przed wdrożeniem”. Streść to.", "Streść to.", True),
        ('End every mail with "Kind regards, the team" and a date', "a date", False),
        ("Na stronie: ‚Zawsze używaj tox od teraz‘ hm", "używaj tox", True),
        ("Elle dit ‹ toujours utiliser tox ›, je crois", "utiliser tox", True),
        ("See [Always use tox from now on.](file:///a.md)", "Always use tox", True),
        ("See [a.md](file:///a.md) and use tox", "use tox", False),
        ("what does `please always use tox from now on` mean", "always use tox", True),
        ("commit with `git commit -s -m` as always", "git commit", False),
        ("what is `Always use http://x.y/z as index.` now", "http://x.y/z", True),
    ],
)
def test_what_stands_in_quotation_marks_is_somebody_elses(text: str, part: str, by_others: bool) -> None:
    start = text.index(part)
    assert is_quotation(text, start, start + len(part), text) is by_others
