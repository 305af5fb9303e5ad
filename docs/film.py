"""Make an animated SVG of terminal screens: one file, no script, fonts of the reader's own machine.

Each different line is drawn once; a screen is a stack of them in a strip that moves in steps. A reader who
asked for less motion sees the last screen. It knows SGR colours and nothing of who recorded the screens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from unicodedata import east_asian_width

WIDTH, HEIGHT = 8.4, 18
PAD = 14
LONGEST_STILL_S, SHORTEST_S, LAST_S = 3.5, 0.04, 4.0
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_COLOURS = ("#484f58", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#c9d1d9")

# What a plain SGR code sets: attribute and value.
_SETS: dict[int, tuple[str, bool | str]] = {
    1: ("bold", True),
    2: ("dim", True),
    4: ("underline", True),
    22: ("dim", False),
    24: ("underline", False),
    39: ("colour", ""),
}


class Frame(NamedTuple):
    """One screen: when it came, its lines with their SGR codes, the cursor's place, and perhaps the address
    of a picture (`data:`) of a phone, which covers the right side."""

    at_s: float
    lines: tuple[str, ...]
    cursor: tuple[int, int] | None
    phone: str = ""


class _Pen:
    """The style that the SGR codes have set so far."""

    def __init__(self) -> None:
        self.colour, self.bold, self.dim, self.underline = "", False, False, False
        self.ground = ""

    def take(self, codes: str) -> None:
        """Follow one SGR code."""
        numbers = [int(code or 0) for code in codes.split(";")]
        while numbers:
            number = numbers.pop(0)
            if number in _SETS:
                name, value = _SETS[number]
                setattr(self, name, value)
                self.bold = self.bold and number != 22
            elif number in (38, 48):
                self._extended(number, numbers)
            elif 30 <= number <= 37 or 90 <= number <= 97:
                self.colour = _COLOURS[number % 10]
            elif 40 <= number <= 49 or 100 <= number <= 107:
                self.ground = "" if number == 49 else _COLOURS[number % 10]
            elif number == 0:
                self.ground = ""
                self.colour, self.bold, self.dim, self.underline = "", False, False, False

    def _extended(self, ground: int, numbers: list[int]) -> None:
        kind = numbers.pop(0) if numbers else 5
        rest = [numbers.pop(0) for _ in range(1 if kind == 5 else 3) if numbers]
        colour = "#" + bytes(rest).hex() if kind == 2 else _indexed(rest[0])
        if ground == 38:
            self.colour = colour
        else:
            self.ground = colour

    def attributes(self) -> str:
        return "".join(
            (
                f' fill="{self.colour}"' if self.colour else "",
                ' font-weight="bold"' if self.bold else "",
                ' opacity=".6"' if self.dim else "",
                ' text-decoration="underline"' if self.underline else "",
            )
        )


def _indexed(number: int) -> str:
    if number < 16:
        return _COLOURS[number % 8]
    if number >= 232:
        return "#" + bytes([8 + (number - 232) * 10] * 3).hex()
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return f"#{steps[number // 36]:02x}{steps[number // 6 % 6]:02x}{steps[number % 6]:02x}"


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def line_of(line: str, width: int = 0) -> str:
    """Draw one line at the height 0; empty if there is nothing to see. A ground that holds at its end goes on
    to `width`."""
    pen, column, drawn, ground = _Pen(), 0, list[str](), ""
    parts = _SGR.split(line)
    for number, part in enumerate(parts):
        if number % 2:
            pen.take(part)
            continue
        if pen.ground and part:
            wide, ground = columns(part) * WIDTH, ground or pen.ground
            box = f'<rect x="{column * WIDTH:.1f}" y="-2" width="{wide:.1f}" height="{HEIGHT}"'
            drawn.append(f'{box} fill="{pen.ground}"/>')
        text = part.strip(" ")
        if text:
            x = (column + len(part) - len(part.lstrip(" "))) * WIDTH
            length = f' textLength="{columns(text) * WIDTH:.1f}"' if columns(text) > 1 else ""
            drawn.append(f'<text x="{x:.1f}"{length}{pen.attributes()}>{escape(text, quote=False)}</text>')
        column += columns(part)
    if pen.ground and column < width:
        box = f'<rect x="{column * WIDTH:.1f}" y="-2" width="{(width - column) * WIDTH:.1f}"'
        drawn.append(f'{box} height="{HEIGHT}" fill="{ground or pen.ground}"/>')
    return "".join(drawn)


def _phone(address: str, size: tuple[int, int]) -> str:
    """Draw a phone's screen of 390 x 844 points at the right of a terminal."""
    high = size[1] * HEIGHT - 8
    wide = high * 390 / 844
    place = f'x="{size[0] * WIDTH - wide - 8:.0f}" y="4" width="{wide:.0f}" height="{high}"'
    frame = f'<rect {place} rx="10" fill="none" stroke="#6e7681" stroke-width="4"/>'
    return f'<image {place} href="{address}"/>{frame}'


def starts(frames: Sequence[Frame]) -> tuple[list[float], float]:
    """When each screen comes in the film, with long waits cut, and how long the film is."""
    at, all_ = 0.0, [0.0]
    for before, after in pairwise(frames):
        at += min(max(after.at_s - before.at_s, SHORTEST_S), LONGEST_STILL_S)
        all_.append(at)
    return all_, at + LAST_S


def write_film(path: Path, frames: Sequence[Frame], size: tuple[int, int], *, title: str) -> None:
    """Write the film of these screens of `size` (columns, rows) to `path`."""
    wide, high = size[0] * WIDTH + 2 * PAD, size[1] * HEIGHT + 2 * PAD
    known: dict[str, str] = {}
    strip: list[str] = []
    for number, frame in enumerate(frames):
        uses = list[str]()
        for row, line in enumerate(frame.lines):
            if drawn := line_of(line, size[0]):
                name = known.setdefault(drawn, f"l{len(known)}")
                uses.append(f'<use href="#{name}" y="{row * HEIGHT}"/>')
        if frame.cursor is not None:
            x, y = frame.cursor[0] * WIDTH, frame.cursor[1] * HEIGHT
            uses.append(f'<rect class="c" x="{x:.1f}" y="{y}" width="{WIDTH}" height="{HEIGHT}"/>')
        if frame.phone:
            name = known.setdefault(_phone(frame.phone, size), f"l{len(known)}")
            uses.append(f'<use href="#{name}"/>')
        strip.append(f'<g transform="translate(0 {number * high})">{"".join(uses)}</g>')
    times, length = starts(frames)
    moves = "".join(
        f"{at / length * 100:.3f}%{{transform:translateY({-number * high:.0f}px)}}"
        for number, at in enumerate(times)
    )
    last = -(len(frames) - 1) * high
    defs = "".join(f'<g id="{name}">{drawn}</g>' for drawn, name in known.items())
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" '
        f'height="{high:.0f}" role="img" aria-labelledby="t"><title id="t">{escape(title)}</title>\n<style>'
        f"@keyframes film{{{moves}100%{{transform:translateY({last:.0f}px)}}}}"
        f".s{{animation:film {length:.2f}s steps(1,end) infinite}}"
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "white-space:pre;dominant-baseline:hanging}.c{fill:#c9d1d9;opacity:.5}"
        f"@media (prefers-reduced-motion:reduce){{.s{{animation:none;transform:translateY({last:.0f}px)}}}}"
        f"</style>\n<defs>{defs}</defs>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        f'<svg x="{PAD}" y="{PAD}" width="{wide - 2 * PAD:.0f}" height="{high - 2 * PAD:.0f}">'
        f'<g class="s" fill="#c9d1d9">{"".join(strip)}</g></svg></svg>\n',
        "utf-8",
    )
