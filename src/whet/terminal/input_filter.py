"""Separate the keys in a terminal's input from the terminal's own messages.

A terminal also sends replies to queries (colours, attributes, versions), often late over ssh or tmux, and
reports of focus and mouse. Those are dropped. Keys in kitty's keyboard protocol (CSI u) and in xterm's
modifyOtherKeys are translated into the keys of a plain terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.keys import Keys

NEW_LINE = Keys.ControlF24
"""The key press for Alt-Enter, Shift-Enter and Ctrl-Enter, which start a new line in the message."""
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"
NEW_LINE_MARK = "\x1b\r"
ESCAPE_MARK = "\x1b[27u"
"""Esc in kitty's protocol, which unlike a plain Esc can't be the beginning of another key."""

_CSI = re.compile(r"\x1b\[(?:\[[A-E]|M[\s\S]{3}|(?![\[M])([0-?]*)[ -/]*([@-~]))")
_CSI_BEGUN = re.compile(r"\x1b\[(?:\[|M[\s\S]{0,2}|[0-?]*[ -/]*)\Z")
_CSI_HEAD = re.compile(r"\x1b\[[0-?]*[ -/]*")
_STRING_BEGINS = re.compile(r"\x1b[\]PX^_]")
# Besides its own end, keys that no reply contains end a string, so that a cut reply does not lock the input.
_STRING_ENDS = re.compile(r"\x07|\x1b\\|\x9c|(?=[\x03\x04\r\n\x18\x1a]|\x1b[\s\S])")
_MAX_CSI_CHARS = 256
_MAX_REPLY_CHARS = 80
_NO_KEY_BEGUN = "\x1b[?"
_ESCAPE, _ENTER, _TAB, _DELETE = 27, 13, 9, 127
_SHIFT, _ALT, _CTRL, _SUPER_HYPER_META = 1, 2, 4, 8 | 16 | 32
_RELEASED = "3"
# kitty's code points of the keypad's keys: the characters and keys that they type
_KEYPAD = {57_399 + at: character for at, character in enumerate("0123456789./*-+\r=")} | {
    57_417 + at: f"\x1b[{end}"
    for at, end in enumerate(("D", "C", "A", "B", "5~", "6~", "H", "F", "2~", "3~"))
}


class SequenceFilter:
    """Reads input in pieces, which may be cut anywhere, and returns the keys in it.

    `note_reply` gets the terminal's replies: kitty's flags, and the beginnings of string sequences.
    """

    def __init__(self, note_reply: Callable[[str], object] = lambda reply: None) -> None:
        self.pending: str = ""
        self.in_string: bool = False
        self._note_reply = note_reply
        self._reply = ""

    def feed(self, data: str) -> str:
        """Return the keys in `data`. An incomplete sequence is kept in `pending`."""
        data, self.pending = self.pending + data, ""
        return "".join(self._keys(data))

    def flush(self) -> str:
        """Return a pending Esc, alone or with its letter: it was a key, because a pause follows. A longer
        incomplete sequence stays pending."""
        if self.in_string or self.pending.startswith("\x1b["):
            return ""
        keys, self.pending = self.pending, ""
        return keys

    def _keys(self, data: str) -> Iterator[str]:
        at = 0
        while at < len(data):
            if self.in_string:
                at = self._skip_string(data, at)
                continue
            begin = data.find("\x1b", at)
            yield data[at : begin if begin >= 0 else len(data)]
            if begin < 0:
                return
            at = begin
            if match := _CSI.match(data, at):
                if match[2] == "u" and match[0].startswith(_NO_KEY_BEGUN):
                    self._note_reply(match[0])
                yield _key_of(match)
                at = match.end()
            elif data.startswith("\x1b[", at):
                if _CSI_BEGUN.match(data, at):
                    self.pending = data[at:] if len(data) - at < _MAX_CSI_CHARS else _NO_KEY_BEGUN
                    return
                head = _CSI_HEAD.match(data, at)
                at = head.end() if head else at + 1
            elif len(data) - at <= 2 and (_STRING_BEGINS.match(data, at) or data[at:] == "\x1b"):
                self.pending = data[at:]
                return
            elif match := _STRING_BEGINS.match(data, at):
                self.in_string, self._reply, at = True, match[0], match.end()
            else:
                yield data[at]
                at += 1

    def _skip_string(self, data: str, at: int) -> int:
        match = _STRING_ENDS.search(data, at)
        room = _MAX_REPLY_CHARS - len(self._reply)
        self._reply += data[at : min(match.start() if match else len(data), at + room)]
        if match:
            self.in_string = False
            self._note_reply(self._reply)
            return match.end()
        if data.endswith("\x1b"):
            self.pending = "\x1b"
        return len(data)


def _key_of(match: re.Match[str]) -> str:
    """Return the key of a CSI sequence as a plain terminal sends it, or "" if it is not a key press."""
    sequence, parameters, final = match[0], match[1] or "", match[2] or ""
    if len(sequence) > _MAX_CSI_CHARS:
        return ""
    fields = [field.split(":") for field in parameters.split(";")]
    if final == "u" and fields[0][0].isdecimal():
        return _typed_key(int(fields[0][0]), fields)
    if final == "~" and fields[0] == ["27"] and len(fields) > 2 and fields[2][0].isdecimal():
        return _typed_key(int(fields[2][0]), fields)
    if len(fields) == 2 and fields[1][0].isdecimal():  # 1;MODIFIERS:EVENT A
        modifiers = (int(fields[1][0]) - 1) & (_SHIFT | _ALT | _CTRL)
        plain = "" if fields[0][0] == "1" else fields[0][0]
        sequence = f"\x1b[{fields[0][0]};{modifiers + 1}{final}" if modifiers else f"\x1b[{plain}{final}"
        if fields[1][1:] == [_RELEASED]:
            return ""
    return sequence if sequence in ANSI_SEQUENCES and sequence not in (PASTE_BEGINS, PASTE_ENDS) else ""


def _typed_key(code: int, fields: list[list[str]]) -> str:
    """Return the key of a code point, or "" if it is released or types nothing. `fields[1]` holds its
    modifiers, plus 1, and its event."""
    modifiers, *event = fields[1] if len(fields) > 1 else ["1"]
    bits = int(modifiers) - 1 if modifiers.isdecimal() else 0
    if event == [_RELEASED] or bits & _SUPER_HYPER_META:
        return ""
    key = _KEYPAD.get(code, chr(code) if _is_typed(code) else "")
    if code == _ESCAPE and not bits & (_ALT | _CTRL):
        return ESCAPE_MARK
    if key == "\r":
        return NEW_LINE_MARK if bits & (_SHIFT | _ALT | _CTRL) else key
    if code == _TAB and bits & _SHIFT:
        return "\x1b[Z"
    if not key or code in (_ESCAPE, _DELETE) or len(key) > 1:
        return f"\x1b{key}" if key and code == _DELETE and bits & _ALT else key
    if bits & _CTRL:
        key = _control_key(key)
    elif bits & _SHIFT:
        shifted = fields[0][1] if len(fields[0]) > 1 else ""
        key = chr(int(shifted)) if shifted.isdecimal() and 32 < int(shifted) < 0xD800 else key.upper()
    return f"\x1b{key}" if key and bits & _ALT else key


def _is_typed(code: int) -> bool:
    """Return whether a code point is a character, Tab, Enter, Esc or Backspace. Kitty's other keys have
    private code points."""
    return code in (_TAB, _ENTER, _ESCAPE) or 32 <= code < 0xD800 or 0xF8FF < code <= 0x10FFFF


def _control_key(key: str) -> str:
    """Return the control character of a letter, a space or one of @[\\]^_, or "" if it has none."""
    code = ord(key.upper())
    return "\0" if key == " " else chr(code & 0x1F) if 0x40 <= code <= 0x5F else ""
