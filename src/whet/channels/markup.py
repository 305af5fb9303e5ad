"""Convert Markdown to Telegram's HTML, Slack's mrkdwn and Discord's Markdown.

Telegram and Slack get headings, bold, italics, strike-through, code, links and lists. Everything else is
escaped, so that no text becomes markup, a mention or a command by accident. This module does no I/O.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator

import msgspec

from whet.markdown import escape_fences

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^\n]*$")
_LITERAL = re.compile(r"\\([!-/:-@\[-`{-~])|(`+)(?!`)(.+?)(?<!`)\2(?!`)", re.DOTALL)  # \* or `code`
_LINK = re.compile(r"\[([^\]\n]{1,300})\]\((https?://[^\s)]{1,1500})\)")
_STRONG = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_EM = re.compile(
    r"(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![\w*])|(?<!\w)_(?=[^\s_])([^_\n]+?)(?<=[^\s_])_(?!\w)"
)
_STRIKE = re.compile(r"~~(?=\S)(.+?)(?<=\S)~~")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.+?)\s*#*$")
_BULLET = re.compile(r"^(\s*)[-*+]\s+")
_PLACEHOLDER = re.compile("\x00(\\d+)\x00")
_SLACK_MARK = re.compile(r"<([^<>|\s][^<>|]*)(?:\|([^<>]*))?>")


def discord_markdown(text: str, limit: int) -> str:
    """Convert Markdown to Discord's, whose code blocks have fences of exactly three backticks.

    Backticks inside that would end a block are replaced by their code point, or by a similar character if
    the result would otherwise be longer than `limit`.
    """
    if not _shows_something(text):
        return "…" if text else ""
    for sign in ("<U+0060>", "\u02cb"):
        rows = [
            f"```{language}\n{escape_fences(row, sign)}\n```" if is_code else row
            for row, is_code, language in _split_blocks(text)
        ]
        if len(markdown := "\n".join(rows)) <= limit:
            break
    return markdown


def telegram_html(text: str) -> str:
    """Convert Markdown to the HTML that Telegram accepts."""
    return _convert_blocks(
        text,
        lambda code, language: f"<pre>{_escape_html(code)}</pre>",
        lambda line: _convert_line(line, _escape_html, _HTML_MARKS),
        lambda title: f"<b>{title}</b>",
    )


def slack_mrkdwn(text: str) -> str:
    """Convert Markdown to Slack's mrkdwn."""
    return _convert_blocks(
        text,
        lambda code, language: f"```\n{escape_fences(_escape_slack(code))}\n```",
        lambda line: _convert_line(line, _escape_slack, _SLACK_MARKS),
        lambda title: f"*{title}*",
    )


class _Marks(msgspec.Struct, frozen=True):
    """A platform's notation for marked text."""

    strong: tuple[str, str]
    em: tuple[str, str]
    strike: tuple[str, str]
    code: tuple[str, str]
    link: Callable[[str, str], str]


def _escape_html(text: str) -> str:
    return html.escape(text, quote=False)


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_HTML_MARKS = _Marks(
    ("<b>", "</b>"),
    ("<i>", "</i>"),
    ("<s>", "</s>"),
    ("<code>", "</code>"),
    lambda label, url: f'<a href="{html.escape(url)}">{label}</a>',
)
_SLACK_MARKS = _Marks(
    ("*", "*"), ("_", "_"), ("~", "~"), ("`", "`"), lambda label, url: f"<{url.replace('|', '%7C')}|{label}>"
)


_NO_MARKS = _Marks(("", ""), ("", ""), ("", ""), ("", ""), lambda label, url: label)


def _shows_something(text: str) -> bool:
    """Return whether a text has a visible character. Platforms refuse a message without one as empty."""
    rows = (
        row if is_code else _convert_line(_HEADING.sub(r"\1", row), str, _NO_MARKS)
        for row, is_code, _ in _split_blocks(text)
    )
    return any(character.isprintable() and not character.isspace() for row in rows for character in row)


def _convert_blocks(
    text: str, code: Callable[[str, str], str], line: Callable[[str], str], heading: Callable[[str], str]
) -> str:
    if not _shows_something(text):
        return "…" if text else ""
    rows: list[str] = []
    for row, is_code, language in _split_blocks(text):
        if is_code:
            rows.append(code(row, language))
        elif title := _HEADING.match(row):
            rows.append(heading(line(title[1].replace("**", ""))))
        else:
            rows.append(line(_BULLET.sub(r"\1• ", row)))
    return "\n".join(rows)


def _split_blocks(text: str) -> Iterator[tuple[str, bool, str]]:
    """Yield each line outside of code, and each code block as one text: (text, is code, language)."""
    code_lines: list[str] | None = None
    fence = language = ""
    for row in text.replace("\x00", "").split("\n"):
        match = _FENCE.match(row)
        if code_lines is None:
            if match is None:
                yield row, False, ""
            else:
                code_lines, fence, language = [], match[1], match[2]
        elif match is not None and match[1].startswith(fence) and not match[2]:
            yield "\n".join(code_lines) or " ", True, language
            code_lines = None
        else:
            code_lines.append(row)
    if code_lines is not None:
        yield "\n".join(code_lines) or " ", True, language


def _convert_line(row: str, escape: Callable[[str], str], marks: _Marks) -> str:
    """Convert one line. Numbered placeholders replace finished parts, which must not be converted again."""
    finished: list[str] = []

    def add_placeholder(text: str) -> str:
        finished.append(text)
        return f"\x00{len(finished) - 1}\x00"

    def add_literal(match: re.Match[str]) -> str:
        if match[1]:
            return add_placeholder(escape(match[1]))
        return add_placeholder(f"{marks.code[0]}{escape(match[3].strip())}{marks.code[1]}")

    row = _LITERAL.sub(add_literal, row)
    row = _LINK.sub(lambda m: add_placeholder(marks.link(escape(m[1]), m[2])), row)
    row = escape(row)
    row = _STRONG.sub(
        lambda m: add_placeholder(marks.strong[0]) + m[2] + add_placeholder(marks.strong[1]), row
    )
    row = _EM.sub(lambda m: add_placeholder(marks.em[0]) + (m[1] or m[2]) + add_placeholder(marks.em[1]), row)
    row = _STRIKE.sub(
        lambda m: add_placeholder(marks.strike[0]) + m[1] + add_placeholder(marks.strike[1]), row
    )
    return _PLACEHOLDER.sub(lambda m: _restore(finished, int(m[1])), row)


def _restore(finished: list[str], index: int) -> str:
    """Return a finished part with the finished parts inside it."""
    return _PLACEHOLDER.sub(lambda m: _restore(finished, int(m[1])), finished[index])


def read_mrkdwn(text: str) -> str:
    """Return a text from Slack as the person typed it, without Slack's marks for links and mentions."""
    plain = _SLACK_MARK.sub(lambda match: _read_mark(match[1], match[2] or ""), text)
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _read_mark(target: str, label: str) -> str:
    kind = target[0]
    if target.startswith("!date^"):
        link = target.split("^")[3:]
        return f"{label} ({link[0]})" if label and link else label or "a date"
    if kind in "#@!":
        name = label or target.lstrip("#@!").partition("^")[0]
        return name if name.startswith(("@", "#")) else f"{'#' if kind == '#' else '@'}{name}"
    address = target.removeprefix("mailto:").removeprefix("tel:")
    return address if label in ("", address) or address.endswith(f"://{label}") else f"{label} ({address})"
