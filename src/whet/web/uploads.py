"""Read forms with files (multipart/form-data as browsers send it) within limits.

The sender chooses a file's name and type, so they must not be trusted.
"""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request

from whet.web.bodies import BadForm, BodyTooLarge, CallerGone, read_form, read_with_limit

_BOUNDARY = re.compile(r'multipart/form-data\s*;\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))', re.I)
_DISPOSITION = re.compile(r'form-data; name="([^"\r\n]{0,100})"(?:; filename="([^"\r\n]*)")?', re.I)
_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}  # browsers' escapes in names
_MAX_PARTS = 64
_MAX_FIELD_BYTES = 2_000_000


class Upload(msgspec.Struct, frozen=True):
    """A file of a form: its name as the sender gave it, and its bytes."""

    name: str
    data: bytes


class UploadForm(msgspec.Struct, frozen=True):
    """A form: its fields and its files."""

    fields: dict[str, str]
    files: tuple[Upload, ...] = ()


async def read_upload(request: Request, max_bytes: int) -> UploadForm:
    """Read the fields and files of a form, urlencoded or multipart. Raises BadForm, with 413 as soon as it
    exceeds `max_bytes`."""
    match = _BOUNDARY.fullmatch(request.headers.get("content-type", ""))
    if match is None:
        return UploadForm(await read_form(request))
    try:
        body = await read_with_limit(request.scope, request.receive, max_bytes, 2 * max_bytes)
    except BodyTooLarge as error:
        raise BadForm(413, f"more than {max_bytes // 1_000_000} MB were sent") from error
    except CallerGone as error:
        raise BadForm(400, "the form can't be read") from error
    return parse_parts(body, (match[1] or match[2]).encode("latin-1", "replace"))


def parse_parts(body: bytes, boundary: bytes) -> UploadForm:
    """Parse a multipart body. Raises BadForm."""
    mark = b"--" + boundary
    first, *parts = (b"\r\n" + body).split(b"\r\n" + mark)
    if first.strip() or not parts or not parts[-1].startswith(b"--") or len(parts) > _MAX_PARTS:
        raise BadForm(400, "the form can't be read")
    fields: dict[str, str] = {}
    files: list[Upload] = []
    for part in parts[:-1]:
        head, gap, data = part.partition(b"\r\n\r\n")
        name, file_name = _parse_names(head)
        if not gap or name is None:
            raise BadForm(400, "the form can't be read")
        if file_name is not None:
            if file_name or data:  # an empty file field sends a part without either
                files.append(Upload(file_name, data))
            continue
        if name in fields:
            raise BadForm(400, "a field stands twice")
        fields[name] = _text(data)
    return UploadForm(fields, tuple(files))


def _parse_names(head: bytes) -> tuple[str | None, str | None]:
    """Return a part's name, and its file name or None if it is no file. Returns (None, None) for an invalid
    head."""
    try:
        lines = head.decode("utf-8").removeprefix("\r\n").split("\r\n")
    except UnicodeDecodeError:
        return None, None
    for line in lines:
        kind, _, value = line.partition(":")
        if kind.strip().lower() == "content-disposition" and (match := _DISPOSITION.fullmatch(value.strip())):
            return _unescape(match[1]), None if match[2] is None else _unescape(match[2])
    return None, None


def _unescape(name: str) -> str:
    for escape, character in _ESCAPES.items():
        name = name.replace(escape, character)
    return name


def _text(data: bytes) -> str:
    if len(data) > _MAX_FIELD_BYTES:
        raise BadForm(413, "a field is too large")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadForm(400, "the form can't be read") from error
