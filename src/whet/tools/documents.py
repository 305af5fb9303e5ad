"""Read PDF, Word, PowerPoint and Excel files as text, page by page. Text in pictures is not read.

PDF is read by pypdf, which is loaded on first use; the others are XML in ZIP archives. Documents are
untrusted data: their unpacked size is bounded, and nothing in them is run or fetched. What parsing costs is
bounded by the process that does it (`document_process.py`).
"""

from __future__ import annotations

import codecs
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast
from xml.etree import ElementTree

from whet.contract.errors import ToolError

_MAX_PART_BYTES = 30_000_000
_MAX_WHOLE_BYTES = 60_000_000
_MAX_BLOCK_SIZE = 200_000
_PIECE_CHARS = 1 << 16
_MAX_CELLS = 200_000
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_NUMBER = re.compile(r"(\d+)\.xml$")

# The exceptions that ZIP archives and their XML raise if they are broken, encrypted or unusually packed.
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError),
    *(ElementTree.ParseError, LookupError, ValueError),
)

Pages = Iterator[tuple[str, str]]
"""The name of each page, e.g. "page 3 of 9", and its text."""


def kind_of(head: bytes, stream: BinaryIO) -> str:
    """Return a document's kind from its bytes: pdf, docx, pptx, xlsx, or an empty string for anything
    else."""
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if not head.startswith(b"PK\x03\x04"):
        return ""
    try:
        with zipfile.ZipFile(stream) as archive:
            names = set(archive.namelist())
    except _BROKEN:
        return ""
    parts = {"docx": "word/document.xml", "pptx": "ppt/presentation.xml", "xlsx": "xl/workbook.xml"}
    return next((kind for kind, part in parts.items() if part in names), "")


def pages(kind: str, stream: BinaryIO) -> Pages:
    """Yield a document's pages as they are read. Raises ToolError if it can't be read."""
    stream.seek(0)
    try:
        if kind == "pdf":
            yield from _pdf(stream)
            return
        with zipfile.ZipFile(stream) as archive:
            yield from _OFFICE[kind](_Parts(archive))
    except _BROKEN as error:
        raise ToolError(f"the {kind} file is broken or locked: {error}") from error


def text_of(kind: str, stream: BinaryIO, max_chars: int) -> tuple[str, bool]:
    """Return a document as one text with a line before each page, and whether it was cut at `max_chars`."""
    parts: list[str] = []
    room, is_empty = max_chars, True
    for name, text in pages(kind, stream):
        parts.append(f"--- {name} ---\n{text.strip()}\n")
        is_empty = is_empty and not text.strip()
        room -= len(parts[-1])
        if room < 0:
            return "\n".join(parts)[:max_chars], True
    if is_empty:
        parts.append("[there is no text in it: pictures, and scanned pages, are not read]")
    return "\n".join(parts), False


def _pdf(stream: BinaryIO) -> Pages:
    try:
        from pypdf import PdfReader  # noqa: PLC0415 - 0.3 s of CPU; few sessions read a PDF
        from pypdf.errors import PyPdfError  # noqa: PLC0415 - the same
    except ImportError as error:
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ToolError("reading PDF needs pypdf", hint=install_command("documents")) from error
    try:
        reader = PdfReader(stream)
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError("the PDF is locked with a password")
        count = len(reader.pages)
        for number in range(count):
            yield f"page {number + 1} of {count}", reader.pages[number].extract_text()
    except ToolError:
        raise
    except (PyPdfError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ToolError(f"the PDF can't be read: {error or type(error).__name__}") from error


class _Parts:
    """The XML files in an archive. Their total size is bounded too."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.names = archive.namelist()
        self._archive = archive
        self._room = _MAX_WHOLE_BYTES

    def tree(self, name: str) -> ElementTree.Element:
        """Return a small XML file as a tree."""
        root = next(self.blocks(name, 1), None)
        return ElementTree.Element("none") if root is None else root

    def blocks(self, name: str, depth: int) -> Iterator[ElementTree.Element]:
        """Yield the elements at a depth (1: the root) one by one. Each is freed after it was yielded."""
        above: list[ElementTree.Element] = []
        count = 0
        parser: ElementTree.XMLPullParser[ElementTree.Element] = ElementTree.XMLPullParser(("start", "end"))
        text = self._text(name)
        for at in range(0, len(text), _PIECE_CHARS):
            parser.feed(text[at : at + _PIECE_CHARS])
            for event, element in cast("Iterator[tuple[str, ElementTree.Element]]", parser.read_events()):
                if event == "start":
                    above.append(element)
                    count += 1
                    if count > _MAX_BLOCK_SIZE:
                        raise ToolError(f"{name} in it holds more than {_MAX_BLOCK_SIZE:,} elements in one")
                    continue
                above.pop()
                if len(above) == depth - 1:
                    yield element
                    count = len(above)
                    if above:
                        above[-1].clear()
        parser.close()

    def _text(self, name: str) -> str:
        most = min(_MAX_PART_BYTES, self._room)
        size = self._archive.getinfo(name).file_size
        if size > most:
            limit_note = "" if most == _MAX_PART_BYTES else f", or all of it than {_MAX_WHOLE_BYTES:,}"
            raise ToolError(f"{name} in it is larger than {_MAX_PART_BYTES:,} bytes{limit_note}")
        with self._archive.open(name) as file:
            raw = file.read(size)  # never unpack more than the declared size
        self._room -= size
        # Other encodings are not allowed, and the search for DOCTYPE must work on the decoded text.
        is_wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = raw.decode("utf-16" if is_wide else "utf-8-sig")
        if "<!DOCTYPE" in text:  # the only construct that can define entities
            raise ToolError(f"{name} in it defines entities; such documents are not read")
        return text


def _docx(parts: _Parts) -> Pages:
    """Pages end where Word put breaks when it last saved the file, or at the author's breaks."""
    pages_of_lines: list[list[str]] = [[]]
    for block in parts.blocks("word/document.xml", 3):
        if block.tag == f"{_W}tbl":
            pages_of_lines[-1] += [
                " | ".join(" ".join(_block_text(cell).split()) for cell in row.iter(f"{_W}tc"))
                for row in block.iter(f"{_W}tr")
            ]
        elif block.tag == f"{_W}p":
            first, *others = _block_text(block).split("\f")
            pages_of_lines[-1].append(_heading(block) + first)
            pages_of_lines += [[text] for text in others]
    for number, lines in enumerate(pages_of_lines, 1):
        yield f"page {number} of {len(pages_of_lines)}", "\n".join(lines)


def _heading(block: ElementTree.Element) -> str:
    style = block.find(f"{_W}pPr/{_W}pStyle")
    match = re.fullmatch(r"[Hh]eading ?([1-6])", style.get(f"{_W}val", "")) if style is not None else None
    return "#" * int(match[1]) + " " if match else ""


def _block_text(block: ElementTree.Element) -> str:
    """Return a block's text, with a form feed at each page break. Deleted text is left out."""
    parts: list[str] = []
    for element in block.iter():
        if element.tag == f"{_W}t":
            parts.append(element.text or "")
        elif element.tag == f"{_W}tab":
            parts.append("\t")
        elif element.tag == f"{_W}lastRenderedPageBreak":
            parts.append("\f")
        elif element.tag == f"{_W}br":
            is_page = element.get(f"{_W}type") == "page"
            parts.append("\f" if is_page else "\n")
    return re.sub(r"\f\s*\f", "\f", "".join(parts))


def _pptx(parts: _Parts) -> Pages:
    slides = _sort_numbered(parts.names, "ppt/slides/slide")
    for number, name in enumerate(slides, 1):
        paragraphs = parts.tree(name).iter(f"{_A}p")
        lines = ["".join(run.text or "" for run in paragraph.iter(f"{_A}t")) for paragraph in paragraphs]
        yield f"slide {number} of {len(slides)}", "\n".join(line for line in lines if line.strip())


def _xlsx(parts: _Parts) -> Pages:
    shared: list[str] = []
    if "xl/sharedStrings.xml" in parts.names:
        items = parts.blocks("xl/sharedStrings.xml", 2)
        shared = ["".join(part.text or "" for part in element.iter(f"{_S}t")) for element in items]
    names = [element.get("name", "") for element in parts.tree("xl/workbook.xml").iter(f"{_S}sheet")]
    sheets = _sort_numbered(parts.names, "xl/worksheets/sheet")
    room = _MAX_CELLS
    for number, name in enumerate(sheets, 1):
        lines: list[str] = []
        for row in parts.blocks(name, 3):
            if row.tag != f"{_S}row":
                continue
            cells = [_cell(element, shared) for element in row.iter(f"{_S}c")]
            room -= max(1, len(cells))
            if room < 0:
                lines.append(f"[cut: more than {_MAX_CELLS:,} cells]")
                break
            lines.append("\t".join(cells))
        title = names[number - 1] if number <= len(names) else ""
        yield f"sheet {number} of {len(sheets)}" + (f": {title}" if title else ""), "\n".join(lines)
        if room < 0:
            return


def _cell(cell: ElementTree.Element, shared: list[str]) -> str:
    if cell.get("t") == "inlineStr":
        return "".join(part.text or "" for part in cell.iter(f"{_S}t"))
    value = cell.findtext(f"{_S}v") or ""
    if cell.get("t") == "s" and value.isdecimal() and int(value) < len(shared):
        return shared[int(value)]
    return value


def _sort_numbered(names: list[str], start: str) -> list[str]:
    """Return the files whose name is `start` and a number, in numeric order."""
    numbered_names = [(int(mark[1]), name) for name in names if name.startswith(start)
             and "/" not in name[len(start):] and (mark := _NUMBER.search(name))]  # fmt: skip
    return [name for _, name in sorted(numbered_names)]


_OFFICE: dict[str, Callable[[_Parts], Pages]] = {"docx": _docx, "pptx": _pptx, "xlsx": _xlsx}
