"""Convert the bytes of a web page into readable text: headings, lists, links and tables in a Markdown-like
form.

Pages are treated as hostile, so the scan is one pass whose time grows linearly with size: an unclosed
construct swallows the rest, as in HTML's end-of-file rules (WHATWG HTML, 13.2.5). The standard library's
parser rescans such input in quadratic time. No I/O.
"""

from __future__ import annotations

import html
import re
from urllib.parse import urljoin

import msgspec

_TOKEN = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(?P<end>/?)(?P<tag>[a-zA-Z][^\s/>]*+)"
    r"(?P<attributes>(?:[^>=]++|=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|[^\s>\"'][^\s>]*+|))*+)(?:>|\Z)"
    r"|<[!?/][^>]*+(?:>|\Z)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"([^\s=/\"'>]++)(?:\s*+=\s*+(\"[^\"]*+\"?|'[^']*+'?|[^\s>]*+))?")
_SPACE = re.compile(r"[ \t\r\n\f]+")
# Bidi overrides, zero-width marks and tag characters: text that a person does not see. Joiners stay.
_INVISIBLE = re.compile("[\u200b\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")

# The ends of elements whose text is not part of the page.
_RAW_TEXT_ENDS = {
    "script": re.compile(r"</script[\s/>]", re.I),
    "style": re.compile(r"</style[\s/>]", re.I),
    "title": re.compile("<"),
}
_NAVIGATION = re.compile(r"<nav[\s/>]", re.I)
_SKIPPED = frozenset(
    {"template", "svg", "iframe", "object", "canvas", "video", "audio", "select", "button", "noscript"}
)
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog",
        "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup", "hr",
        "html", "main", "ol", "p", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
    }
)  # fmt: skip
_HEADINGS = {f"h{n}": "#" * n + " " for n in range(1, 7)}
_MIN_TEXT_CHARS = 200


class PageText(msgspec.Struct, frozen=True):
    """A page as text. `title` is one line and may be empty."""

    title: str
    text: str


def read_html(source: str, base_url: str) -> PageText:
    """Return the readable part of an HTML page, with links made absolute against `base_url`.

    Scripts, styles and navigation are left out. Navigation is kept if the page contains hardly anything
    else.
    """
    page = _Renderer(base_url, skip_navigation=True).render(source)
    if len(page.text) < _MIN_TEXT_CHARS and _NAVIGATION.search(source):
        return _Renderer(base_url, skip_navigation=False).render(source)
    return page


def strip_invisible(text: str) -> str:
    """Remove characters that are invisible to a person but not to a model."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


class _Renderer:
    """One pass over a page.

    `parts` is the text of the current block so far; `gap` and `prefix` are written before it. `lists`
    has the next number of each open list (0: bullets).
    """

    link_start: int  # index in `parts`; set with `link`
    skip_depth: int  # set with `skip_tag`

    def __init__(self, base_url: str, *, skip_navigation: bool) -> None:
        self.base_url = base_url
        self.skipped = _SKIPPED | {"nav"} if skip_navigation else _SKIPPED
        self.title = ""
        self.blocks: list[str] = []
        self.parts: list[str] = []
        self.prefix = ""
        self.gap = "\n\n"
        self.lists: list[int] = []
        self.pre_depth = 0
        self.link = ""
        self.skip_tag = ""

    def render(self, source: str) -> PageText:
        position = 0
        while match := _TOKEN.search(source, position):
            self.take_text(source[position : match.start()])
            position = match.end()
            tag = (match["tag"] or "").lower()  # comments have no tag and are ignored
            if match["end"]:
                self.take_end(tag)
                continue
            if tag in _RAW_TEXT_ENDS:
                closing = _RAW_TEXT_ENDS[tag].search(source, position)
                start, position = position, closing.start() if closing else len(source)
                if tag == "title" and not self.title:
                    self.title = _to_one_line(source[start:position])[:300]
            else:
                self.take_start(tag, match["attributes"])
        self.take_text(source[position:])
        self.flush()
        return PageText(self.title, strip_invisible("".join(self.blocks).strip()))

    def take_text(self, raw: str) -> None:
        if self.skip_tag or not raw:
            return
        text = _unescape(raw)
        if self.pre_depth:
            self.parts.append(text)
            return
        text = _SPACE.sub(" ", text)
        if text[0] == " " and (not self.parts or self.parts[-1][-1:] in (" ", "\n")):
            text = text[1:]
        if text:
            self.parts.append(text)

    def take_start(self, tag: str, attributes: str) -> None:
        if self.skip_tag:
            self.skip_depth += tag == self.skip_tag
        elif tag in self.skipped:
            if not attributes.endswith("/"):
                self.skip_tag, self.skip_depth = tag, 1
        elif tag in _BLOCKS:
            self.flush()
            if tag in ("ul", "ol"):
                self.lists.append(1 if tag == "ol" else 0)
            elif tag == "tr":
                self.gap = "\n"
        elif tag in _HEADINGS:
            self.flush()
            self.prefix = _HEADINGS[tag]
        elif tag == "li":
            self.start_item()
        else:
            self.take_inline_start(tag, attributes)

    def take_inline_start(self, tag: str, attributes: str) -> None:
        if tag == "br":
            self.parts.append("\n")
        elif tag in ("td", "th"):
            if self.parts:
                self.parts.append(" | ")
        elif tag == "pre":
            self.flush()
            self.pre_depth += 1
        elif tag == "code" and not self.pre_depth:
            self.parts.append("`")
        elif tag == "a":
            self.end_link()
            self.start_link(_attribute(attributes, "href"))
        elif tag == "img":
            alt = _to_one_line(_attribute(attributes, "alt"))
            if alt:
                self.parts.append(f"[image: {alt[:200]}]")
        elif tag == "base":
            self.base_url = self.make_absolute(_attribute(attributes, "href")) or self.base_url

    def take_end(self, tag: str) -> None:
        if self.skip_tag:
            self.skip_depth -= tag == self.skip_tag
            if not self.skip_depth:
                self.skip_tag = ""
        elif tag in _BLOCKS or tag in _HEADINGS or tag == "li":
            self.end_block(tag)
        elif tag == "pre" and self.pre_depth:
            self.flush()
            self.pre_depth -= 1
        elif tag == "code" and not self.pre_depth:
            self.parts.append("`")
        elif tag == "a":
            self.end_link()
            self.link = ""  # a link around a picture or within <pre> must not apply to the next text

    def end_block(self, tag: str) -> None:
        self.flush()
        if tag in ("ul", "ol") and self.lists:
            self.lists.pop()
        elif tag in ("li", "tr"):
            self.gap = "\n"
        if tag in _HEADINGS or tag == "li":
            self.prefix = ""

    def start_item(self) -> None:
        self.flush()
        depth = min(len(self.lists) - 1, 10)
        number = self.lists[-1] if self.lists else 0
        if number:
            self.lists[-1] += 1
        self.prefix = "  " * depth + (f"{number}. " if number else "- ")
        self.gap = "\n"

    def start_link(self, href: str) -> None:
        self.link = "" if href.startswith("#") else self.make_absolute(href)
        self.link_start = len(self.parts)

    def end_link(self) -> None:
        if not self.link or self.pre_depth:
            return
        text = _to_one_line("".join(self.parts[self.link_start :]))
        if text:
            self.parts[self.link_start :] = [f"[{text}]({self.link})"]
            self.link = ""

    def make_absolute(self, href: str) -> str:
        """Return the absolute URL of a link, or an empty string if it is not an http(s) or mailto link."""
        try:
            joined = urljoin(self.base_url, href.strip())
        except ValueError:
            return ""
        return joined.replace(" ", "%20") if joined.startswith(("http://", "https://", "mailto:")) else ""

    def flush(self) -> None:
        """End the block. A link around whole blocks is written at the first one."""
        self.end_link()
        text = "".join(self.parts)
        self.parts.clear()
        self.link_start = 0
        if self.pre_depth:
            text = "\n".join(line.rstrip() for line in text.strip("\r\n").splitlines())
            text = f"```\n{text}\n```" if text.strip() else ""
        else:
            text = "\n".join(line.strip() for line in text.strip().split("\n"))
        if text:
            self.blocks.append(self.gap + self.prefix + text)
            self.gap = "\n\n"
            self.prefix = ""


def _attribute(attributes: str, attribute_name: str) -> str:
    for match in _ATTRIBUTE.finditer(attributes):
        if match[1].lower() == attribute_name:
            return _unescape((match[2] or "").strip("\"'"))
    return ""


def _to_one_line(text: str) -> str:
    return " ".join(_unescape(text).split())


def _unescape(text: str) -> str:
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:  # a number with thousands of digits
        return text
