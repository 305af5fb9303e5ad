"""Render an answer's Markdown with rich: headings, code and tables. Imported with the first answer."""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table

from whet.terminal.table_rows import keep_cells


class _LeftHeading(Heading):
    """A heading at the left edge, bold, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        self.text.stylize("bold underline" if self.tag == "h1" else "bold")
        yield self.text


class _IndentedCode(CodeBlock):
    """A fenced code block, indented by two columns, on the terminal's own background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme="ansi_dark",
            word_wrap=True,
            background_color="default",
        )
        yield Padding(code, (0, 0, 0, 2))


class _WrappedTable(TableElement):
    """A table whose cells wrap, long words included; no text is cut off."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                for column in part.columns:
                    column.overflow = "fold"
            yield part


class AnswerMarkdown(Markdown):
    """An answer's Markdown, or a block of it. No text of a table is lost."""

    def __init__(self, markup: str) -> None:
        super().__init__(keep_cells(markup), hyperlinks=False)

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _IndentedCode,
        "code_block": _IndentedCode,
        "table_open": _WrappedTable,
    }
