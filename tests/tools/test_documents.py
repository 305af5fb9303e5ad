"""PDF and office files are read as text with the number of each page; broken and hostile ones are refused."""

from __future__ import annotations

import contextlib
import io
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pypdf import PdfWriter

from tests.tools.calls import Desk
from whet.contract.errors import ToolError
from whet.tools import documents
from whet.tools.document_process import ReadLimits, read_document

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def pdf(*pages: str) -> bytes:
    """Write a PDF with these pages."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    parts = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        parts.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>"
        )
        parts.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    out, places = b"%PDF-1.4\n", []
    for number, part in enumerate(parts, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{part}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(parts) + 1
    tail = f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + f"xref\n0 {size}\n0000000000 65535 f \n{table}{tail}".encode()


def packed(**parts: str | bytes) -> bytes:
    """Put XML parts into an archive; __ stands for / and _dot_ for a dot."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name.replace("__", "/") + ".xml", text)
    return held.getvalue()


def docx(body: str) -> bytes:
    return packed(word__document=f"<w:document {_W}><w:body>{body}</w:body></w:document>")


_DOCX = docx(
    '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Title</w:t></w:r></w:p>'
    "<w:p><w:r><w:t>first </w:t></w:r><w:r><w:t>words</w:t></w:r>"
    "<w:del><w:delText>gone</w:delText></w:del></w:p>"
    "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc>"
    '</w:tr></w:tbl><w:p><w:r><w:br w:type="page"/></w:r><w:r><w:t>größer</w:t></w:r></w:p>'
)
_PPTX = packed(
    ppt__presentation="<p/>",
    ppt__slides__slide1=f"<s {_A}><a:p><a:r><a:t>one</a:t></a:r></a:p></s>",
    ppt__slides__slide10=f"<s {_A}><a:p><a:r><a:t>ten</a:t></a:r></a:p></s>",
    ppt__slides__slide2=f"<s {_A}><a:p><a:r><a:t>two</a:t></a:r></a:p></s>",
)
_XLSX = packed(
    xl__workbook=f'<w {_S}><sheets><sheet name="Sums"/></sheets></w>',
    xl__sharedStrings=f"<s {_S}><si><t>apples</t></si></s>",
    xl__worksheets__sheet1=f'<s {_S}><sheetData><row><c t="s"><v>0</v></c><c><v>3.5</v></c></row>'
    "</sheetData></s>",
)


def text(data: bytes) -> str:
    stream = io.BytesIO(data)
    return documents.text_of(documents.kind_of(data[:1024], stream), stream, 10_000)[0]


def test_a_pdf_is_read_page_by_page() -> None:
    assert text(pdf("Hello there", "And more")) == (
        "--- page 1 of 2 ---\nHello there\n\n--- page 2 of 2 ---\nAnd more\n"
    )


def test_office_files_are_read_as_text() -> None:
    assert text(_DOCX) == (
        "--- page 1 of 2 ---\n# Title\nfirst words\na | b\n\n--- page 2 of 2 ---\ngrößer\n"
    )
    slides = text(_PPTX)
    assert slides.index("one") < slides.index("two") < slides.index("ten") and "slide 3 of 3" in slides
    assert text(_XLSX) == "--- sheet 1 of 1: Sums ---\napples\t3.5\n"


def test_sheets_come_in_their_order_with_their_names_and_cells() -> None:
    rows = (
        '<row><c t="s"><v>1</v></c><c t="s"><v>7</v></c><c t="s"><v>x</v></c><c/>'
        '<c t="inlineStr"><is><t>in</t><t>line</t></is></c></row><row/>'
    )
    data = packed(
        xl__workbook=f'<w {_S}><sheets><sheet name="One"/><sheet name="Two"/></sheets></w>',
        xl__sharedStrings=f"<s {_S}><si><t>a</t></si><si><r><t>b</t></r><r><t>c</t></r></si></s>",
        xl__worksheets__sheet10=f"<s {_S}><sheetData><row><c><v>10</v></c></row></sheetData></s>",
        xl__worksheets__sheet2=f"<s {_S}><cols><col/></cols><sheetData>{rows}</sheetData></s>",
        xl__worksheets__sheet1=f"<s {_S}/>",
        xl__worksheets___rels__sheet3=f"<s {_S}><sheetData><row><c><v>3</v></c></row></sheetData></s>",
    )
    assert text(data) == (
        "--- sheet 1 of 3: One ---\n\n\n--- sheet 2 of 3: Two ---\nbc\t7\tx\t\tinline\n\n"
        "--- sheet 3 of 3 ---\n10\n"
    )


def test_headings_breaks_and_tabs_of_a_word_file_are_kept() -> None:
    def styled(name: str, words: str) -> str:
        return f'<w:p><w:pPr><w:pStyle w:val="{name}"/></w:pPr><w:r><w:t>{words}</w:t></w:r></w:p>'

    body = styled("heading 2", "two") + styled("Heading7", "no") + styled("Quote", "said") + "<w:other/>"
    body += "<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t></w:r></w:p>"
    body += (
        "<w:p><w:r><w:lastRenderedPageBreak/><w:t> </w:t><w:br w:type='page'/><w:t>d</w:t><w:t/></w:r></w:p>"
    )
    body += "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>e</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    assert text(docx(body)) == "--- page 1 of 2 ---\n## two\nno\nsaid\na\tb\nc\n\n--- page 2 of 2 ---\nd\ne\n"


def test_a_document_is_known_by_its_bytes() -> None:
    for data, kind in ((pdf("x"), "pdf"), (_DOCX, "docx"), (_PPTX, "pptx"), (_XLSX, "xlsx")):
        assert documents.kind_of(data, io.BytesIO(data)) == kind
    assert documents.kind_of(b"\n" * 1_019 + b"%PDF-1.4", io.BytesIO()) == "pdf"
    assert documents.kind_of(b"\n" * 1_020 + b"%PDF-1.4", io.BytesIO()) == ""
    assert documents.kind_of(b"PK\x03\x04broken", io.BytesIO(b"PK\x03\x04broken")) == ""


@pytest.mark.parametrize(
    ("password", "expected"), [("secret", "locked with a password"), ("", "Hello there")]
)
def test_a_pdf_with_a_password_is_locked(password: str, expected: str) -> None:
    writer = PdfWriter(clone_from=io.BytesIO(pdf("Hello there")))
    writer.encrypt(password, "owner", algorithm="RC4-128")
    held = io.BytesIO()
    writer.write(held)
    try:
        said = text(held.getvalue())
    except ToolError as error:
        said = error.message
    assert expected in said


@pytest.mark.slow
def test_read_file_gives_a_documents_lines_and_a_zip_stays_one(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf("Hello there", "And more"))
    (tmp_path / "b.docx").write_bytes(_DOCX)
    (tmp_path / "c.zip").write_bytes(packed(x="<a/>"))
    (tmp_path / "d.pdf").write_bytes(b"%PDF-1.4\nbroken")
    desk = Desk(tmp_path)
    assert "2|Hello there" in desk.text("read_file", path="a.pdf")
    assert "4|--- page 2 of 2 ---" in desk.text("read_file", path="a.pdf", offset=4)
    assert "2|# Title" in desk.text("read_file", path="b.docx")
    assert "not text, so not shown" in desk.text("read_file", path="c.zip")
    with pytest.raises(ToolError, match="can't be read"):
        desk.text("read_file", path="d.pdf")


def test_a_long_document_is_cut() -> None:
    stream = io.BytesIO(pdf(*["word " * 50] * 30))
    found, is_cut = documents.text_of("pdf", stream, 1_000)
    assert is_cut and len(found) == 1_000
    one = text(pdf("short"))
    assert documents.text_of("pdf", io.BytesIO(pdf("short")), len(one)) == (one, False)
    assert documents.text_of("pdf", io.BytesIO(pdf("short")), len(one) - 1) == (one[:-1], True)


def _lying() -> bytes:
    """Return a document whose part is larger than the archive says."""
    honest = docx("<w:p/>" * 50)
    with zipfile.ZipFile(io.BytesIO(honest)) as archive:
        size = archive.getinfo("word/document.xml").file_size
    return honest.replace(size.to_bytes(4, "little"), (size - 9).to_bytes(4, "little"))


def _three_large_sheets() -> bytes:
    sheets = {f"xl__worksheets__sheet{n}": f"<s><!--{' ' * 25_000_000}--></s>" for n in (1, 2, 3)}
    return packed(xl__workbook="<w/>", **sheets)


def _xml(source: str, encoding: str = "utf-8") -> bytes:
    return packed(word__document=source.encode(encoding))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_lying, "broken or locked"),
        (lambda: _xml("<x"), "broken or locked"),
        (lambda: _xml('<?xml version="1.0" encoding="cp037"?><x/>', "cp037"), "broken or locked"),
        (lambda: _xml('<!DOCTYPE x SYSTEM "http://x/more.dtd"><x>&a;</x>'), "entities"),
        (
            lambda: _xml(
                '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>', "utf-16"
            ),
            "entities",
        ),
        (lambda: docx("<w:p>" * 300_000 + "</w:p>" * 300_000), "more than 200,000 elements in one"),
        (lambda: docx("<w:p/>" * 6_000_000), r"larger than 30,000,000 bytes$"),
        (_three_large_sheets, r"sheet3\.xml in it is larger than .*, or all of it than 60,000,000$"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_broken_or_a_bomb_is_refused_with_a_line(make: Callable[[], bytes], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        text(make())


@pytest.mark.slow
def test_a_damaged_document_is_read_or_refused() -> None:
    whole = docx("<w:p/>" * 200)
    for at in range(30, len(whole), 3):
        broken = bytearray(whole)
        broken[at] ^= 0xFF
        if kind := documents.kind_of(bytes(broken[:1024]), io.BytesIO(broken)):
            with contextlib.suppress(ToolError):
                documents.text_of(kind, io.BytesIO(broken), 10_000)


def test_a_document_without_text_says_so() -> None:
    assert "no text in it" in text(docx("<w:p/>")) and "no text in it" in text(pdf("", ""))
    assert "no text in it" not in text(pdf("", "two"))


@pytest.mark.slow
def test_many_sheets_are_cut_as_one_large_one_is() -> None:
    sheet = f"<worksheet {_S}><sheetData>{'<row/>' * 150_000}</sheetData></worksheet>"
    parts = {f"xl__worksheets__sheet{number}": sheet for number in range(1, 5)}
    said = text(packed(xl__workbook=f"<workbook {_S}/>", **parts))
    assert said.count("--- sheet") == 2 and "[cut: more than 200,000 cells]" in said


def _workbook_bomb() -> bytes:
    """Return a workbook of 2 kB whose cells hold 3 GB of text: each is the same long shared string."""
    return packed(
        xl__workbook=f'<w {_S}><sheets><sheet name="One"/></sheets></w>',
        xl__sharedStrings=f"<s {_S}><si><t>{'a' * 300_000}</t></si></s>",
        xl__worksheets__sheet1=f"<s {_S}><sheetData>"
        + "<row>"
        + '<c t="s"><v>0</v></c>' * 10_000
        + "</row></sheetData></s>",
    )


@pytest.mark.slow
def test_a_document_that_fills_the_memory_is_refused_and_whet_keeps_its_own(tmp_path: Path) -> None:
    (tmp_path / "bomb.xlsx").write_bytes(_workbook_bomb())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = Desk(tmp_path).error("read_file", path="bomb.xlsx")
    assert "can't be read in 30 s of CPU and 1,024 MB" in error.message and "shell command" in error.hint
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


@pytest.mark.slow
def test_a_document_is_read_up_to_its_limits() -> None:
    with pytest.raises(ToolError, match="in 30 s of CPU and 100 MB"):
        read_document(io.BytesIO(_workbook_bomb()), 1_000, limits=ReadLimits(memory_mb=100))
    with pytest.raises(ToolError, match="stopped"):
        read_document(io.BytesIO(_workbook_bomb()), 1_000, lambda: True)
    assert read_document(io.BytesIO(_XLSX), 1_000) == ("--- sheet 1 of 1: Sums ---\napples\t3.5\n", False)
    assert read_document(io.BytesIO(_DOCX), 20) == ("--- page 1 of 2 ---\n", True)
    assert read_document(io.BytesIO(packed(x="<a/>")), 1_000) is None


@pytest.mark.slow
def test_text_that_json_writes_long_is_read_whole() -> None:
    words = "\U0001f600" * 5_000
    document = read_document(io.BytesIO(docx(f"<w:p><w:r><w:t>{words}</w:t></w:r></w:p>")), 5_050)
    assert document is not None and words in document.text and not document.is_cut
