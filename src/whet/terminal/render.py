"""Renders finished Markdown blocks and styled lines as terminal text of a given width.

Only the interactive chat imports this module, because importing rich takes too long for a one-shot. Output
has no trailing spaces, so that a narrower window does not break it, and honours NO_COLOR and dumb
terminals. The caller decides when and where text is printed.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping

from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from whet.terminal.blocks import MarkdownBlock
from whet.terminal.wording import printable

_TRAILING = re.compile(r"[ ]+((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
_EDGES = re.compile(r"\A(?:(?:\x1b\[[0-9;]*m)*\n)+|(?:\n(?:\x1b\[[0-9;]*m)*)+\Z")
_THEME = Theme(
    {
        "markdown.code": Style(color="cyan"),
        "markdown.item.bullet": Style(color="cyan"),
        "markdown.item.number": Style(color="cyan"),
        "markdown.block_quote": Style(dim=True),
        "markdown.link_url": Style(dim=True, underline=True),
    }
)


class Painter:
    """Renders for one terminal. `environ` decides on colours (NO_COLOR, TERM, COLORTERM)."""

    def __init__(self, environ: Mapping[str, str] | None = None, *, markdown: bool = True) -> None:
        environ = os.environ if environ is None else environ
        self._markdown = markdown
        self._plain = environ.get("TERM", "") in ("", "dumb", "unknown")
        self.has_colour: bool = not self._plain and not environ.get("NO_COLOR")
        self._console = Console(
            file=io.StringIO(),
            force_terminal=not self._plain,
            theme=_THEME,
            highlight=False,
            _environ=environ,
            legacy_windows=False,
        )

    def block(self, block: MarkdownBlock, width: int) -> str:
        """Render a block of an answer, with an empty line before it and a newline at the end."""
        text = printable(block.text)
        if self._markdown:
            from whet.terminal.answer_markdown import AnswerMarkdown  # noqa: PLC0415 - a sixth of a chat's start, and none is there yet

            text = self._render(AnswerMarkdown(text, hyperlinks=False), width)
        body = _EDGES.sub("", text).rstrip("\n")
        return f"{body}\n" if block.tight else f"\n{body}\n"

    def line(self, text: str, style: str = "") -> str:
        """Style one or more lines, unwrapped, without a newline at the end. `style` is a rich style."""
        if self._plain or not style:
            return text
        with self._console.capture() as capture:
            self._console.print(Text(text, style=style), end="", soft_wrap=True)
        return capture.get()

    def _render(self, markdown: RenderableType, width: int) -> str:
        with self._console.capture() as capture:
            self._console.print(markdown, width=max(width, 20))
        return _TRAILING.sub(r"\1", capture.get())
