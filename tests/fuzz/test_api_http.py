"""Any JSON at all, sent to the API: an answer in OpenAI's shape, never a failure of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serve.conftest import Api, api, shared_api, shared_model

__all__ = ["api", "shared_api", "shared_model"]

_KEYS = (
    "role",
    "content",
    "type",
    "text",
    "image_url",
    "url",
    "model",
    "input",
    "messages",
    "stream",
    "user",
)
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
_ANY = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=12,
)
_ROLES = st.sampled_from(["user", "assistant", "system", "developer", "tool"])
_PARTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "image_url", "input_image"]) | _ANY},
        optional={
            "text": st.text(max_size=10) | _ANY,
            "image_url": st.just("data:image/png;base64,AAAA") | _ANY,
        },
    ),
    max_size=3,
)
_MESSAGE = st.fixed_dictionaries({"role": _ROLES | _ANY, "content": st.text(max_size=10) | _PARTS | _ANY})
_BODY = st.fixed_dictionaries(
    {"model": st.just("whet")},
    optional={
        "messages": st.lists(_MESSAGE, max_size=4) | _ANY,
        "input": st.lists(_MESSAGE, max_size=3) | st.text(max_size=10) | _ANY,
        "stream": st.booleans() | _ANY,
        "stream_options": _ANY,
        "user": st.text(max_size=5) | _ANY,
        "n": _ANY,
        "tools": _ANY,
        "instructions": st.text(max_size=5) | _ANY,
        "previous_response_id": _ANY,
        "text": _ANY,
        "store": st.booleans(),
    },
)
_PATHS = st.sampled_from(["/v1/chat/completions", "/v1/responses", "/api/sessions"])
_QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(verify=False, timeout=20) as made:
        yield made


def send(client: httpx2.Client, api: Api, path: str, body: Any) -> None:
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    headers = {"content-type": "application/json", "authorization": f"Bearer {api.token}"}
    answer = client.post(f"{api.url}{path}", content=data, headers=headers)
    assert answer.status_code < 500, (path, body, answer.text)
    if answer.status_code >= 400:
        assert answer.json()["error"]["message"]


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=_QUIET)
@given(path=_PATHS, body=_BODY)
def test_any_body_is_answered(client: httpx2.Client, api: Api, path: str, body: Any) -> None:
    send(client, api, path, body)


@pytest.mark.soak
@settings(max_examples=5_000, derandomize=False, suppress_health_check=_QUIET)
@given(path=_PATHS, body=_BODY)
def test_very_many_bodies_are_answered(client: httpx2.Client, api: Api, path: str, body: Any) -> None:
    send(client, api, path, body)
