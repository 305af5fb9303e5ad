"""The colours of the terminal: one theme for the input line, diffs, source code and messages.

A theme consists of SGR parameters for the colours that the terminal supports. With NO_COLOR, only bold and
underlined text remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from whet.question import RowKind

THEMES = {
    "auto": "dark or light, as detected from the terminal",
    "dark": "for a dark background",
    "light": "for a light background",
    "high-contrast": "strong colours, changed words underlined",
    "16-colours": "the terminal's own colours",
    "plain": "bold and underlined only",
}
"""The names of the themes and what each is for."""
_MANY_COLOURS = ("256color", "direct", "kitty", "alacritty", "ghostty", "foot", "wezterm")
_LIGHT_BACKGROUNDS = ("7", "15")
_DIM = "2"


class Theme(msgspec.Struct, frozen=True):
    """SGR parameters (colours and attributes) by purpose, empty if the theme has none.

    `rows` are for a whole row of a diff, `words` for its changed words, `syntax` for source code by kind of
    token, and `message` for the person's messages. `prompt` holds the styles of the input line by class, and
    `colour_bits` the colour depth that the theme needs.
    """

    prompt: Mapping[str, str]
    rows: Mapping[RowKind, str]
    words: Mapping[RowKind, str]
    syntax: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    message: str = "1"
    colour_bits: int = 1


_OTHER_ROWS: dict[RowKind, str] = {"hunk": "36", "file": "1", "fold": _DIM}
_PROMPTS = {
    "dark": {"dim": "ansibrightblack", "ask": "ansiyellow bold", "sign": "ansicyan bold"},
    "light": {"dim": "ansibrightblack", "ask": "ansimagenta bold", "sign": "ansiblue bold"},
    "high-contrast": {"dim": "", "ask": "bold reverse", "sign": "bold"},
}
# Backgrounds per theme: an added row, its changed words, a removed row, its changed words, the person's
# messages. Each has SGR parameters for 24-bit colour and for 256 colours.
_BACKGROUNDS = {
    "dark": (
        ("2;17;50;30", "5;22"),
        ("2;29;99;56", "5;28"),
        ("2;63;20;26", "5;52"),
        ("2;133;38;46", "5;88"),
        ("2;48;50;58", "5;236"),
    ),
    "light": (
        ("2;218;251;225", "5;194"),
        ("2;154;230;172", "5;157"),
        ("2;255;235;233", "5;224"),
        ("2;255;190;186", "5;217"),
        ("2;234;238;242", "5;254"),
    ),
    "high-contrast": (
        ("2;0;60;0", "5;22"),
        ("2;0;95;0", "5;22"),
        ("2;95;0;0", "5;52"),
        ("2;135;0;0", "5;88"),
        ("2;0;0;120", "5;18"),
    ),
}
_SYNTAX: dict[str, dict[str, int]] = {
    "dark": {"keyword": 210, "string": 153, "comment": 247, "number": 117, "function": 183, "class": 216},
    "light": {"keyword": 124, "string": 18, "comment": 59, "number": 19, "function": 54, "class": 88},
    "high-contrast": {"keyword": 229, "string": 159, "comment": 255, "number": 159, "function": 225},
}
_SIXTEEN = Theme(
    _PROMPTS["dark"],
    {"added": "32", "removed": "31", **_OTHER_ROWS},
    {"added": "7", "removed": "7"},
    colour_bits=4,
)
_PLAIN = Theme(
    {"dim": "", "ask": "bold", "sign": "bold"},
    {"file": "1"},
    {"added": "1;4", "removed": "1;4"},
)
_DUMB = Theme({"dim": "", "ask": "", "sign": ""}, {}, {}, message="")


def find_theme(name: str, environ: Mapping[str, str]) -> Theme:
    """Return the theme for a setting and a terminal.

    Whatever the setting, a terminal without colours gets a plain theme. One with at most 16 colours gets the
    16-colour theme, unless the setting is "plain".
    """
    if name == "plain" or not has_colour(environ):
        return _DUMB if environ.get("TERM", "") in ("", "dumb", "unknown") else _PLAIN
    if name == "auto":
        background = environ.get("COLORFGBG", "").rpartition(";")[2]
        name = "light" if background in _LIGHT_BACKGROUNDS else "dark"
    is_exact = environ.get("COLORTERM", "") in ("truecolor", "24bit")
    if name == "16-colours" or not (is_exact or any(term in environ["TERM"] for term in _MANY_COLOURS)):
        return _SIXTEEN
    return _make_theme(name, is_exact=is_exact)


def has_colour(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal shows colours."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("", "dumb", "unknown")


def _make_theme(name: str, *, is_exact: bool) -> Theme:
    added, added_word, removed, removed_word, message = _BACKGROUNDS[name]
    depth = 0 if is_exact else 1
    rows: dict[RowKind, str] = {
        "added": f"48;{added[depth]}",
        "removed": f"48;{removed[depth]}",
        **_OTHER_ROWS,
    }
    words: dict[RowKind, str] = {"added": f"48;{added_word[depth]}", "removed": f"48;{removed_word[depth]}"}
    if name == "high-contrast":
        words = {kind: f"1;4;{code}" for kind, code in words.items()}
    syntax = {kind: f"38;5;{colour}" for kind, colour in _SYNTAX[name].items()}
    return Theme(_PROMPTS[name], rows, words, syntax, f"1;48;{message[depth]}", 24 if is_exact else 8)
