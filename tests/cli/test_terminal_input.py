"""A terminal's own sequences at the input line, and keys in the newer keyboard protocols."""

from __future__ import annotations

import pytest
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from tests.support import each
from whet.terminal.input_filter import NEW_LINE
from whet.terminal.prompt import PasteParser

REPLIES = {
    "OSC 11": "\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\",
    "OSC 10 with BEL": "\x1b]10;rgb:ffff/ffff/ffff\x07",
    "OSC 52": "\x1b]52;c;" + "QUJD" * 400 + "\x07",
    "DA1": "\x1b[?62;4;22c",
    "DA2": "\x1b[>0;276;0c",
    "DA3": "\x1bP!|7E565445\x1b\\",
    "focus": "\x1b[I\x1b[O",
    "XTVERSION": "\x1bP>|tmux 3.4\x1b\\",
    "kitty flags": "\x1b[?1u",
    "kitty graphics": "\x1b_Gi=31;OK\x1b\\",
    "DECRPM": "\x1b[?2026;2$y",
    "cursor": "\x1b[12;40R",
    "mouse": "\x1b[<0;10;4M\x1b[M !!",
    "size": "\x1b[8;24;80t",
    "colour scheme": "\x1b[?997;1n",
    "too long": "\x1b[" + "9" * 5_000 + "u",
}


def pressed(*pieces: str, pauses: bool = False) -> list[Keys | str]:
    keys: list[KeyPress] = []
    parser = PasteParser(keys.append)
    for piece in pieces:
        parser.feed(piece)
        if pauses:
            parser.flush()
    parser.flush()
    return [press.key for press in keys]


@each("reply", REPLIES.values())
def test_what_a_terminal_answers_is_no_key(reply: str) -> None:
    assert pressed(f"a{reply}b") == ["a", "b"]
    assert pressed("a", *reply, "b") == ["a", "b"]
    head, tail = reply[:3], reply[3:]
    assert pressed("a", head, tail, "b", pauses=True) == ["a", "b"]


def test_a_reply_that_was_cut_does_not_lock_the_input() -> None:
    assert pressed("\x1b]11;rgb:1e1e", "lost", "\r", "ok\r") == [Keys.ControlM, "o", "k", Keys.ControlM]
    assert pressed("\x1b]11;rgb:", "\x03") == [Keys.ControlC]
    assert pressed("\x1b]11;rgb:", "\x1b[A") == [Keys.Up]
    assert pressed("\x1b]11;rgb:", "\x1b[200~pasted\x1b[201~", "x") == [Keys.BracketedPaste, "x"]


def pressed_keys(*pieces: str) -> list[tuple[Keys | str, str]]:
    """Return the keys and texts of pieces of input with a pause after each."""
    keys: list[KeyPress] = []
    parser = PasteParser(keys.append)
    for piece in pieces:
        parser.feed(piece)
        parser.flush()
    return [(press.key, press.data) for press in keys]


PASTE, ENTER = Keys.BracketedPaste, (Keys.ControlM, "\r")


def test_a_paste_without_an_end_mark_ends_with_the_pause() -> None:
    assert pressed_keys("\x1b[200~one\rtwo", "\x03") == [(PASTE, "one\rtwo"), (Keys.ControlC, "\x03")]
    assert pressed_keys("\x1b[200~one", "x", "\r") == [(PASTE, "one"), ("x", "x"), ENTER]
    assert pressed_keys("\x1b[200~", "\x1b[A")[0][0] == Keys.Up


@each("end", [("\x1b[201~",), ("\x1b[20", "1~"), ("\x1b[201", "~")])
def test_a_late_end_mark_is_no_key_and_no_text(end: tuple[str, ...]) -> None:
    assert pressed_keys("\x1b[200~one\r", *end, "\r") == [(PASTE, "one\r"), ENTER]
    assert pressed_keys("\x1b[200~one\r" + end[0], *end[1:], "\r") == [(PASTE, "one\r"), ENTER]
    assert pressed_keys("\x1b[200~one\r\x1b", "[201~", "\r") == [(PASTE, "one\r"), ENTER]


@each("remainder", ["two\rthree\r\x1b[201~", "two\rthree\r", "\r\r"])
def test_the_late_remainder_of_a_paste_sends_nothing(remainder: str) -> None:
    text = remainder.removesuffix("\x1b[201~")
    assert pressed_keys("\x1b[200~one", remainder, "\r") == [(PASTE, "one"), (PASTE, text), ENTER]


def test_a_paste_waits_longer_for_its_end_than_a_key() -> None:
    parser = PasteParser([].append)
    key_pause_s = parser.pause_s
    parser.feed("\x1b[200~one")
    assert parser.pause_s >= 1 > key_pause_s
    parser.feed("\x1b[201~")
    assert parser.pause_s == key_pause_s


@pytest.mark.parametrize(
    "sequence", ["\x1b[13;2u", "\x1b[27;2;13~", "\x1b[13;2:1u", "\x1b[13;5u", "\x1b[13;3u", "\x1b\r"]
)
def test_shift_enter_starts_a_new_line(sequence: str) -> None:
    assert pressed(f"a{sequence}b") == ["a", NEW_LINE, "b"]


@each(
    ("sequence", "keys"),
    [
        ("\x1b[13u", [Keys.ControlM]),
        ("\x1b[13;1:3u", []),
        ("\x1b[99;5u", [Keys.ControlC]),
        ("\x1b[27;5;99~", [Keys.ControlC]),
        ("\x1b[97;2u", ["A"]),
        ("\x1b[49:33;2u", ["!"]),
        ("\x1b[228u", ["ä"]),
        ("\x1b[97;9u", []),
        ("\x1b[98;3u", [Keys.Escape, "b"]),
        ("\x1b[27u", [Keys.Escape]),
        ("\x1b[9;2u", [Keys.BackTab]),
        ("\x1b[127u", [Keys.ControlH]),
        ("\x1b[57414u", [Keys.ControlM]),
        ("\x1b[57400u", ["1"]),
        ("\x1b[57441;2u", []),
        ("\x1b[1;1:2A", [Keys.Up]),
        ("\x1b[1;129A", [Keys.Up]),
        ("\x1b[1;5:1D", [Keys.ControlLeft]),
        ("\x1b[3;1:3~", []),
        ("\x1b[20~", [Keys.F9]),
        ("\x1bOA", [Keys.Up]),
        ("\x1b[[A", [Keys.F1]),
    ],
)
def test_keys_of_newer_protocols_are_those_of_a_plain_terminal(sequence: str, keys: list[Keys | str]) -> None:
    assert pressed(sequence) == keys


def test_esc_and_then_enter_is_no_new_line() -> None:
    apart = [Keys.Escape, Keys.Ignore, Keys.ControlM]
    assert pressed("\x1b", "\r") == apart
    assert pressed("\x1b", "\r", pauses=True) == apart
    assert pressed("\x1b", "a", "\r", pauses=True) == [Keys.Escape, "a", Keys.ControlM]
    assert pressed("\x1b[27u\r") == pressed("\x1b[27u", "\r") == apart
    assert pressed("\x1b[27u\x1b[27u") == [Keys.Escape, Keys.Escape]
