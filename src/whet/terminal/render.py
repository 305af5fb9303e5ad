"""Render Markdown blocks and styled lines as terminal text of a given width.

The output has no trailing spaces, so that its rows still fit in a narrower window, and respects NO_COLOR and
dumb terminals. rich is imported after a chat's first prompt is drawn.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from whet.terminal.blocks import MarkdownBlock
from whet.terminal.themes import Theme, find_theme
from whet.terminal.wording import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_TRAILING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
_EDGES = re.compile(r"\A(?:(?:\x1b\[[0-9;]*m)*\n)+|(?:\n(?:\x1b\[[0-9;]*m)*)+\Z")
_ATTRIBUTES = {"bold": "1", "dim": "2", "italic": "3"}
_COLOURS = {"red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Painter:
    """Renders for one terminal. `environ` decides on colours (NO_COLOR, TERM, COLORTERM)."""

    def __init__(
        self, environ: Mapping[str, str] | None = None, *, markdown: bool = True, theme: str = "auto"
    ) -> None:
        environ = os.environ if environ is None else environ
        self._markdown = markdown
        self._plain = environ.get("TERM", "") in ("", "dumb", "unknown")
        self.has_colour: bool = not self._plain and not environ.get("NO_COLOR")
        self._environ = environ
        self.theme: Theme = find_theme(theme, environ)

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console  # noqa: PLC0415 - a tenth of a chat's start
        from rich.style import Style  # noqa: PLC0415 - as above
        from rich.theme import Theme as RichTheme  # noqa: PLC0415 - as above

        styles = {
            "markdown.code": Style(color="cyan"),
            "markdown.item.bullet": Style(color="cyan"),
            "markdown.item.number": Style(color="cyan"),
            "markdown.block_quote": Style(dim=True),
            "markdown.link_url": Style(dim=True, underline=True),
        }
        return Console(
            file=io.StringIO(),
            force_terminal=not self._plain,
            theme=RichTheme(styles),
            highlight=False,
            _environ=self._environ,
            legacy_windows=False,
        )

    def prepare(self) -> None:
        """Import the modules for the first block. Takes long, so call it on a thread."""
        from whet.terminal import answer_markdown  # noqa: PLC0415 - a sixth of a chat's start

        if self._markdown and answer_markdown:
            self._render("", 80)

    def block(self, block: MarkdownBlock, width: int) -> str:
        """Render a block of an answer, with an empty line before it and a newline at the end."""
        text = printable(block.text)
        if self._markdown:
            from whet.terminal.answer_markdown import AnswerMarkdown  # noqa: PLC0415 - as above

            text = self._render(AnswerMarkdown(text), width)
        body = _EDGES.sub("", text).rstrip("\n")
        return f"{body}\n" if block.tight else f"\n{body}\n"

    def line(self, text: str, style: str = "") -> str:
        """Return one or more lines in a style, without a newline at the end. `style` holds attributes (bold,
        dim, italic) and a colour, or is "said" for the person's message, which is shaded to the right
        edge."""
        if self._plain or not style:
            return text
        words = style.split()
        codes = [code for word, code in _ATTRIBUTES.items() if word in words]
        codes += [_COLOURS[word] for word in words if self.has_colour and word in _COLOURS]
        if "said" in words and self.theme.message:
            codes.append(self.theme.message)
        if not codes:
            return text
        start = f"\x1b[{';'.join(codes)}m"
        end = "\x1b[K\x1b[0m" if "48;" in start else "\x1b[0m"
        return "\n".join(f"{start}{row}{end}" if row else "" for row in text.split("\n"))

    def _render(self, markdown: RenderableType, width: int) -> str:
        with self._console.capture() as capture:
            self._console.print(markdown, width=max(width, 20))
        return _TRAILING.sub(r"\1", capture.get())
