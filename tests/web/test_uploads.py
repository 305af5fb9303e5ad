"""Multipart forms: what browsers send is read, whatever else comes is refused."""

from __future__ import annotations

import pytest

from whet.web.bodies import BadForm
from whet.web.uploads import Upload, parse_parts


def _body(*parts: bytes, end: bytes = b"--b--\r\n") -> bytes:
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + end


def _field(name: str, value: bytes, more: str = "") -> bytes:
    return f'Content-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value


def test_fields_and_files_of_any_bytes_come_out_as_they_went_in() -> None:
    data = b"\r\n--c\r\n\x00\xff--b"
    head = b'content-disposition: form-data; name="files"; filename="a%22b\xc3\xa4.png"'
    file = head + b"\r\nContent-Type: x/y\r\n\r\n"
    nothing = _field("files", b"", '; filename=""')
    form = parse_parts(_body(_field("text", "ä\r\nb".encode()), file + data, nothing), b"b")
    assert form.fields == {"text": "ä\r\nb"}
    assert form.files == (Upload('a"bä.png', data),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        b"text",
        b"--b\r\nno head--b--",
        _body(b"Content-Type: text/plain\r\n\r\nx"),
        _body(b'Content-Disposition: form-data; name="a"x"\r\n\r\nx'),
        _body(_field("a", b"x"), end=b""),
        _body(_field("a", b"\xff")),
        _body(_field("a", b"1"), _field("a", b"2")),
        _body(*(_field(f"f{number}", b"") for number in range(80))),
        b"before" + _body(_field("a", b"1")),
    ],
)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(BadForm):
        parse_parts(body, b"b")
