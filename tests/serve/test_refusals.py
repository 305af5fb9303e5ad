"""Which answer each of our errors becomes, and what its headers tell a client to do."""

from __future__ import annotations

import json

import pytest

from whet.contract.errors import ConfigError, NotFound, StoreBusy, StoreCorrupt, ToolError, WhetError
from whet.serve.content import digest_of
from whet.serve.wire import ApiError, as_api_error, refusal


@pytest.mark.parametrize(
    ("error", "status", "code", "again"),
    [
        (NotFound("m"), 404, "not_found", False),
        (StoreBusy("m"), 409, "session_busy", True),
        (StoreCorrupt("m"), 503, "store_failed", True),
        (ConfigError("m"), 400, "invalid_value", False),
        (ToolError("m"), 409, "conflict", False),
    ],
)
def test_an_error_of_ours_becomes_an_answer(error: WhetError, status: int, code: str, again: bool) -> None:
    api_error = as_api_error(error)
    assert (api_error.status, api_error.message, api_error.code, api_error.again) == (
        status,
        "m",
        code,
        again,
    )
    assert as_api_error(api_error) is api_error
    assert as_api_error(ConfigError("m", hint="h")).message == "m (h)"


def test_a_client_is_told_whether_to_ask_again() -> None:
    again = refusal(ApiError(503, "m", again=True))
    assert again.status_code == 503
    assert (again.headers["x-should-retry"], again.headers["retry-after"]) == ("true", "1")
    never = refusal(ApiError(409, "m"))
    assert never.headers["x-should-retry"] == "false" and "retry-after" not in never.headers
    assert "www-authenticate" not in never.headers and "connection" not in never.headers
    assert refusal(ApiError(401, "m")).headers["www-authenticate"] == 'Bearer realm="whet"'
    assert refusal(ApiError(413, "m")).headers["connection"] == "close"


def test_a_refusal_has_the_shape_that_its_client_knows() -> None:
    error = ApiError(404, "m", code="not_found")
    assert json.loads(bytes(refusal(error, to_messages=True).body))["type"] == "error"
    assert json.loads(bytes(refusal(error).body))["error"]["code"] == "not_found"


def test_instructions_are_known_by_half_of_their_hash() -> None:
    assert digest_of("") == ""
    assert len(digest_of("Be kind.")) == 32 and digest_of("Be kind.") != digest_of("Be brief.")
