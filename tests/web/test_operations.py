"""The table of operations: what dispatch finds in it, and what the OpenAPI document says of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from whet.web.bodies import BodyTooLarge, CallerGone, read_with_limit
from whet.web.operations import EVENT_STREAM, Media, Operation, RequestParameter, Routes, build_document


class Taken(msgspec.Struct):
    name: str
    size: int = 3


class Given(msgspec.Struct):
    id: int


class Wrong(msgspec.Struct):
    error: str


async def nothing() -> None:
    """Do nothing."""


LIST = Operation("GET", "/things", nothing, parameters=(RequestParameter("limit", int),))
MAKE = Operation("POST", "/things", nothing, body=Taken, answers={201: Given}, failures=(409,))
SHOW = Operation("GET", "/things/{id}", nothing, answers={200: Given})
DO = Operation("POST", "/things/{id}/do", nothing, body=Taken, needs_body=False)
HEAR = Operation("GET", "/events", nothing, answers={200: EVENT_STREAM})
TEXT = Operation("GET", "/text", nothing, roles=None, answers={200: Media("text/plain")})
BOTH = Operation("POST", "/both", nothing, answers={200: (Given, EVENT_STREAM)})
TABLE = (LIST, MAKE, SHOW, DO, HEAR, TEXT, BOTH)
ROUTES = Routes(TABLE)


@pytest.mark.parametrize(
    ("path", "methods", "value"),
    [
        (b"/things", {"GET": LIST, "HEAD": LIST, "POST": MAKE}, b""),
        (b"/things/7", {"GET": SHOW, "HEAD": SHOW}, b"7"),
        (b"/things/", {"GET": SHOW, "HEAD": SHOW}, b""),
        (b"/things/a%2Fb/do", {"POST": DO}, b"a%2Fb"),
        (b"/events", {"GET": HEAR}, b""),
    ],
)
def test_a_path_has_its_operations_and_parameter(
    path: bytes, methods: dict[str, Operation], value: bytes
) -> None:
    assert ROUTES.find(path) == (methods, value)


@pytest.mark.parametrize(
    "path", [b"", b"*", b"/", b"/nothing", b"things/7", b"/things/7/x", b"/things/7/do/", b"x/things/7"]
)
def test_an_unknown_path_has_none(path: bytes) -> None:
    assert ROUTES.find(path) is None


@pytest.mark.parametrize(
    ("path", "is_covered"),
    [(b"/things/7/x/y", True), (b"/text", True), (b"*", True), (b"/page", False), (b"/", False)],
)
def test_a_table_answers_for_its_first_segments(path: bytes, is_covered: bool) -> None:
    assert ROUTES.covers(path) is is_covered


@pytest.mark.parametrize("path", ["/{id}", "/things/x/{id}", "/things/{id}/{other}"])
def test_a_parameter_stands_second_and_alone(path: str) -> None:
    with pytest.raises(ValueError, match="second segment"):
        Routes((Operation("GET", path, nothing),))


def described(*operations: Operation, **more: Any) -> dict[str, Any]:
    return build_document({"title": "T", "version": "1"}, operations, Wrong, **more)


def test_the_document_has_every_call_with_its_types() -> None:
    fields = described(*TABLE, failures=(400,), named={"Alias": Given})
    assert {path: set(calls) for path, calls in fields["paths"].items()} == {
        "/things": {"get", "post"},
        "/things/{id}": {"get"},
        "/things/{id}/do": {"post"},
        "/events": {"get"},
        "/text": {"get"},
        "/both": {"post"},
    }
    post = fields["paths"]["/things"]["post"]
    assert post["requestBody"] == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Taken"}}},
    }
    refused = {"application/json": {"schema": {"$ref": "#/components/schemas/Wrong"}}}
    assert set(post["responses"]) == {"201", "400", "409"}
    assert post["responses"]["409"]["content"] == post["responses"]["400"]["content"] == refused
    assert fields["components"]["schemas"]["Taken"]["required"] == ["name"]
    assert fields["components"]["schemas"]["Alias"] == {"$ref": "#/components/schemas/Given"}
    assert fields["openapi"].startswith("3.1") and fields["security"] == [{"token": []}]


def test_the_document_tells_what_differs_from_the_usual() -> None:
    paths = described(*TABLE)["paths"]
    assert paths["/things"]["get"]["parameters"] == [
        {"name": "limit", "in": "query", "required": False, "schema": {"type": "integer"}}
    ]
    assert paths["/things/{id}"]["get"]["parameters"] == [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    assert paths["/things/{id}/do"]["post"]["requestBody"]["required"] is False
    assert set(paths["/both"]["post"]["responses"]["200"]["content"]) == {
        "application/json",
        "text/event-stream",
    }
    assert paths["/text"]["get"]["security"] == [] and "security" not in paths["/events"]["get"]
    assert set(paths["/events"]["get"]["responses"]) == {"200", "default"}


def test_a_named_path_parameter_has_its_type_and_words() -> None:
    number = RequestParameter("n", int, "path", "a row")
    fields = described(Operation("GET", "/rows/{n:int}", nothing, parameters=(number,)))
    assert fields["paths"]["/rows/{n}"]["get"]["parameters"] == [
        {"name": "n", "in": "path", "required": True, "schema": {"type": "integer"}, "description": "a row"}
    ]


async def read(*chunks: bytes, declared: str = "", ends: bool = True) -> bytes:
    """Read a body that arrives in `chunks`, with limits of 4 and 8 bytes."""
    left: list[Message] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    left[-1]["more_body"] = not ends
    messages = iter([*left, {"type": "http.disconnect"}])

    async def receive() -> Message:
        return next(messages)

    headers = [(b"content-length", declared.encode())] if declared else []
    return await read_with_limit({"type": "http", "headers": headers}, receive, 4, 8)


@pytest.mark.parametrize("chunks", [(b"",), (b"1234",), (b"12", b"34"), (b"1", b"", b"234")])
def test_a_body_within_the_limit_is_read_whole(chunks: tuple[bytes, ...]) -> None:
    assert asyncio.run(read(*chunks)) == b"".join(chunks)


@pytest.mark.parametrize("chunks", [(b"12345",), (b"1234", b"5"), (b"1234", b"56789")])
def test_a_body_that_is_too_large_is_refused(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(BodyTooLarge):
        asyncio.run(read(*chunks))


def test_a_body_that_is_much_too_large_is_not_read_to_its_end() -> None:
    with pytest.raises(BodyTooLarge):
        asyncio.run(read(b"1234", b"56789", ends=False))
    with pytest.raises(BodyTooLarge):
        asyncio.run(read(b"", declared="9", ends=False))
    with pytest.raises(CallerGone):
        asyncio.run(read(b"1234", b"5678", declared="8", ends=False))
    with pytest.raises(CallerGone):
        asyncio.run(read(b"1", declared="x9", ends=False))
