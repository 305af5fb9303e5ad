"""Hostile documents: bombs, outer references, macros and orders. They are read as text within limits, or
refused; nothing in them is run, fetched or unpacked beyond its limit."""

from __future__ import annotations

import asyncio
import io
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.tools.calls import Desk
from whet.contract.errors import ToolError

SECRET = "the secret beside the document"
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def _zip(parts: Mapping[str, str | bytes], *, pack: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", pack) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return stream.getvalue()


def _docx(body: str | bytes, **more: str | bytes) -> bytes:
    return _zip({"word/document.xml": body, **{name.replace("__", "/"): text for name, text in more.items()}})


def _word(text: str, head: str = "") -> str:
    return f"{head}<w:document {_W}><w:body><w:p><w:r>{text}</w:r></w:p></w:body></w:document>"


def _xlsx(sheet: str, **more: str) -> bytes:
    book = f'<workbook {_S}><sheets><sheet name="a"/></sheets></workbook>'
    return _zip(
        {"xl/workbook.xml": book, "xl/worksheets/sheet1.xml": f"<worksheet {_S}>{sheet}</worksheet>"} | more
    )


def _entities(folder: str) -> str:
    return f'<!DOCTYPE x [<!ENTITY a SYSTEM "file://{folder}/secret.txt">]>'


_LAUGHS = (
    "<!DOCTYPE x ["
    + "".join(f'<!ENTITY l{n} "{(f"&l{n - 1};" if n else "ha") * 20}">' for n in range(9))
    + "]>"
)


def _lying(data: bytes, size: int) -> bytes:
    """Change the size that an archive's directory states for its first file."""
    at = data.rindex(b"PK\x01\x02")
    return data[: at + 24] + struct.pack("<I", size) + data[at + 28 :]


def _pdf(*objects: str, page: str = "") -> bytes:
    out = b"%PDF-1.7\n"
    places: list[int] = []
    base = [
        "<< /Type /Catalog /Pages 2 0 R " + page + " >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        *objects,
    ]
    for number, text in enumerate(base, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode("latin-1")
    start = len(out)
    out += f"xref\n0 {len(base) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    return out + f"trailer << /Size {len(base) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF".encode()


_STREAM = "<< /Length 0 >>\nstream\n\nendstream"
ATTEMPTS: dict[str, tuple[str, Callable[[str, str], bytes]]] = {
    "an outer entity": ("a.docx", lambda d, _: _docx(_word("&a;", _entities(d)))),
    "an outer entity in UTF-16": ("a.docx", lambda d, _: _docx(_word("&a;", _entities(d)).encode("utf-16"))),
    "an outer entity in UTF-16 without a mark": (
        "a.docx",
        lambda d, _: _docx(
            _word("&a;", f'<?xml version="1.0" encoding="utf-16le"?>{_entities(d)}').encode("utf-16-le")
        ),
    ),
    "an outer entity in UTF-7": (
        "a.docx",
        lambda d, _: _docx('<?xml version="1.0" encoding="utf-7"?>+ADwAIQ-DOCTYPE x+AD4-<x/>'),
    ),
    "an outer entity in another alphabet": (
        "a.docx",
        lambda d, _: _docx(
            _word("&a;", f'<?xml version="1.0" encoding="cp037"?>{_entities(d)}').encode("cp037")
        ),
    ),
    "a billion laughs": ("a.docx", lambda _, __: _docx(_word("&l8;", _LAUGHS))),
    "laughs in shared strings": (
        "a.xlsx",
        lambda _, __: _xlsx("", **{"xl/sharedStrings.xml": f"{_LAUGHS}<sst {_S}><si><t>&l8;</t></si></sst>"}),
    ),
    "an outer template": (
        "a.docx",
        lambda _, url: _docx(
            _word("<w:t>x</w:t>"),
            word___rels__settings_xml_rels=f'<R><Relationship Target="{url}" TargetMode="External"/></R>',
        ),
    ),
    "an outer picture": ("a.docx", lambda _, url: _docx(_word(f'<w:pict r:link="{url}" xmlns:r="urn:r"/>'))),
    "an outer include": (
        "a.docx",
        lambda d, _: _docx(
            _word(f'<x:include xmlns:x="http://www.w3.org/2001/XInclude" href="file://{d}/secret.txt"/>')
        ),
    ),
    "a stylesheet": (
        "a.docx",
        lambda _, url: _docx(_word("<w:t>x</w:t>", f'<?xml-stylesheet href="{url}"?>')),
    ),
    "a macro": ("a.docx", lambda _, __: _docx(_word("<w:t>x</w:t>"), word__vbaProject_bin=b"Shell curl")),
    "a field that runs": (
        "a.docx",
        lambda _, url: _docx(_word(f'<w:instrText>DDEAUTO c:\\\\cmd "curl {url}"</w:instrText>')),
    ),
    "a formula that fetches": (
        "a.xlsx",
        lambda _, url: _xlsx(f'<sheetData><row><c><f>WEBSERVICE("{url}")</f><v>1</v></c></row></sheetData>'),
    ),
    "a part of 2 GB": ("a.docx", lambda _, __: _lying(_docx(_word("<w:t>x</w:t>")), 1 << 31)),
    "a packed part of 60 MB": ("a.docx", lambda _, __: _docx(bytes(60_000_000))),
    "many large sheets": (
        "a.xlsx",
        lambda _, __: _xlsx(
            "",
            **{
                f"xl/worksheets/sheet{n}.xml": f"<worksheet>{' ' * 16_000_000}</worksheet>"
                for n in range(2, 6)
            },
        ),
    ),
    "a million elements in one": ("a.docx", lambda _, __: _docx(_word("<w:t/>" * 1_000_000))),
    "a hundred thousand levels": ("a.docx", lambda _, __: _docx(_word("<w:r>" * 100_000))),
    "a path that leads out": (
        "a.docx",
        lambda _, __: _zip({"../../../evil.txt": "x", "word/document.xml": _word("<w:t>x</w:t>")}),
    ),
    "a sheet number of a hundred digits": (
        "a.xlsx",
        lambda _, __: _xlsx("", **{f"xl/worksheets/sheet{'9' * 100}.xml": "<worksheet/>"}),
    ),
    "a cell that points at a huge string": (
        "a.xlsx",
        lambda _, __: _xlsx(f'<sheetData><row><c t="s"><v>{"9" * 5_000}</v></c></row></sheetData>'),
    ),
    "a text document": (
        "a.odt",
        lambda d, _: _zip(
            {
                "mimetype": "application/vnd.oasis.opendocument.text",
                "content.xml": _entities(d) + "<x>&a;</x>",
            }
        ),
    ),
    "a PDF with a script": (
        "a.pdf",
        lambda _, url: _pdf(
            _STREAM, page=f"/OpenAction << /S /JavaScript /JS (app.launchURL\\('{url}'\\)) >>"
        ),
    ),
    "a PDF that launches": (
        "a.pdf",
        lambda _, __: _pdf(_STREAM, page="/OpenAction << /S /Launch /F (/bin/sh) >>"),
    ),
    "a PDF that fetches": (
        "a.pdf",
        lambda _, url: _pdf(_STREAM, page=f"/AA << /O << /S /URI /URI ({url}) >> >>"),
    ),
    "a PDF with an outer stream": (
        "a.pdf",
        lambda d, _: _pdf(f"<< /Length 0 /F ({d}/secret.txt) >>\nstream\n\nendstream"),
    ),
    "a PDF whose pages are a ring": (
        "a.pdf",
        lambda _, __: _pdf(_STREAM).replace(b"/Kids [3 0 R]", b"/Kids [2 0 R]"),
    ),
    "a PDF of a billion pages": (
        "a.pdf",
        lambda _, __: _pdf(_STREAM).replace(b"/Count 1 ", b"/Count 999999999 "),
    ),
    "a PDF whose length lies": ("a.pdf", lambda _, __: _pdf("<< /Length 999999999 >>\nstream\nx\nendstream")),
    "a PDF of nested lists": ("a.pdf", lambda _, __: _pdf("[" * 100_000)),
    "a PDF that holds a file": (
        "a.pdf",
        lambda _, __: _pdf(_STREAM, page="/Names << /EmbeddedFiles << /Names [(x.sh) 4 0 R] >> >>"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTEMPTS)
async def test_a_hostile_document_reads_fetches_and_writes_nothing(tmp_path: Path, name: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "secret.txt").write_text(SECRET)
    file_name, make = ATTEMPTS[name]
    fetched: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fetched.append(await reader.read(100))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    (work / file_name).write_bytes(make(str(tmp_path), url))
    before = sorted(tmp_path.rglob("*"))
    async with server:
        try:
            text = (await Desk(work).acall("read_file", path=file_name)).text
        except ToolError as error:
            text = error.message
    assert sorted(tmp_path.rglob("*")) == before
    assert SECRET not in text and fetched == [] and len(text) < 200_000
