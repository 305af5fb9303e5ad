"""Read a form that a page of ours sent: small, urlencoded, each field once."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request

from whet.web.bodies import BodyTooLarge, CallerGone, read_bounded

MOST_BYTES = 64 * 1024
_MOST_FIELDS = 32


class BadForm(Exception):
    """Not a form of ours; `status` is the HTTP status to answer with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def read_form(request: Request) -> dict[str, str]:
    """Give the fields of an urlencoded body. Raises BadForm, with 413 as soon as it grows past 64 KiB."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise BadForm(415, "expected a form")
    try:
        body = await read_bounded(request.scope, request.receive, MOST_BYTES, MOST_BYTES)
    except BodyTooLarge as error:
        raise BadForm(413, "the form is too large") from error
    except CallerGone as error:
        raise BadForm(400, "the form can't be read") from error
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise BadForm(400, "the form can't be read") from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise BadForm(400, "a field stands twice")
    return fields
