"""What must not work, and how it is answered: garbage, wrong types, too much, wrong tokens, other sites."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.serve.conftest import WAIT_S, Api
from whet_lab.practice.script import ScriptedReply

USER = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "whet", "messages": [USER], **fields}


RESULT = {"role": "tool", "tool_call_id": "x1", "content": "4"}


def tool(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "w", **fields}}


@pytest.mark.fast_rows("invalid_type-None", "body10", "body11", "body12", "body15", "body3", "body5")
@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"\xff\x00{", 400, "invalid_json", None),
        (b'{"model":"whet","messages":[{"role":"user","content":' + b"[" * 5000, 400, "invalid_json", None),
        (b"[]", 400, "invalid_type", None),
        (chat(messages="hi"), 400, "invalid_type", "messages"),
        (chat(messages=[{"role": 7}]), 400, "invalid_type", "messages[0].role"),
        (chat(messages=[USER, {"role": "assistant", "content": " "}]), 400, None, "messages"),
        (chat(messages=[{"role": "user", "content": " "}]), 400, None, "messages"),
        (
            chat(messages=[{"role": "user", "content": [{"type": ["text"], "text": "x"}]}]),
            400,
            None,
            "messages[0].content[0].type",
        ),
        (
            chat(
                messages=[
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x.png"}}],
                    }
                ]
            ),
            400,
            "invalid_attachment",
            "messages[0].content[0]",
        ),
        (chat(stop=[7]), 400, None, "stop"),
        (chat(top_logprobs=2), 400, "unsupported_parameter", "top_logprobs"),
        (chat(tools=[tool(parameters={"type": "string"})]), 400, None, "tools[0].parameters.type"),
        (chat(messages=[USER, RESULT]), 400, "no_such_call", "messages"),
        (chat(response_format={"type": "grammar"}), 400, "unsupported_value", "response_format"),
        (b'{"model":"whet","messages":"' + b"x" * 10_000_000, 400, "invalid_json", None),
        (b'"' + b"x" * (33 << 20) + b'"', 413, "body_too_large", None),
    ],
)
def test_a_wrong_chat_request_is_told_what_is_wrong(
    api: Api, body: Any, status: int, code: str | None, param: str | None
) -> None:
    with api.http() as http:
        given: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = http.post("/v1/chat/completions", headers={"content-type": "application/json"}, **given)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param), error
    assert error["message"] and error["type"] == "invalid_request_error"
    assert api.model.count == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model": "whet"}, 400),
        ({"model": "whet", "input": [{"type": {}, "role": "user", "content": "x"}]}, 400),
        ({"model": "whet", "input": "hi", "background": True}, 400),
        ({"model": "whet", "input": "hi", "previous_response_id": "resp_none"}, 400),
        ({"model": "whet", "input": [{"type": "function_call_output", "call_id": "a", "output": "4"}]}, 400),
        ({"model": "whet", "input": "hi", "text": {"format": {"type": "json_schema"}}}, 400),
    ],
)
def test_a_wrong_response_request_is_refused(api: Api, body: Any, status: int) -> None:
    with api.http() as http:
        assert http.post("/v1/responses", json=body).status_code == status
    assert api.model.count == 0


_RESULTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [RESULT]},
    "/v1/responses": {"input": [{"type": "function_call_output", "call_id": "x1", "output": "4"}]},
    "/v1/messages": {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x1"}]}],
    },
}


@pytest.mark.parametrize("path", _RESULTS)
def test_a_result_without_its_call_is_refused_in_a_begun_session_too(api: Api, path: str) -> None:
    api.say(ScriptedReply("Hello."))
    with api.http() as http:
        begun = http.post("/v1/chat/completions", json=chat())
        header = {"X-Whet-Session": begun.headers["x-whet-session"]}
        answer = http.post(path, headers=header, json={"model": "whet", **_RESULTS[path]})
    assert answer.status_code == 400, answer.text
    assert "belongs to no call" in answer.text and (path[4] == "m" or "no_such_call" in answer.text)
    assert api.model.count == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/sessions", {"titel": "x"}, 400),
        ("POST", "/api/sessions/none/turns", {"text": "x"}, 404),
        ("GET", "/api/sessions?limit=x", None, 400),
        ("GET", "/api/sessions/..%2f..%2fetc", None, 404),
        ("POST", "/api/approvals/none", {"answer": "once"}, 404),
        ("GET", "/v1/chat/completions", None, 405),
        ("GET", "/nothing", None, 404),
        ("GET", "/v1/models/gpt-x", None, 404),
        ("POST", "/api/sessions", "not an object", 400),
    ],
)
def test_a_wrong_call_is_refused(api: Api, method: str, path: str, body: Any, status: int) -> None:
    with api.http() as http:
        answer = http.request(method, path, json=body) if body is not None else http.request(method, path)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/approvals/none", '{"answer": "no", "answer": "once"}'),
        ("/api/approvals/none", '{"answer": "once", "arguments": {"command": "ls", "command": "rm -r x"}}'),
        ("/api/sessions", '{"title": "a", "t\\u0069tle": "b"}'),
    ],
)
def test_a_body_in_which_a_key_comes_twice_decides_nothing(api: Api, path: str, body: str) -> None:
    with api.http() as http:
        answer = http.post(path, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json"), answer.text
    assert "a key stands twice" in answer.text


def test_nobody_gets_in_without_a_token_or_from_another_site(api: Api) -> None:
    # From an address of its own: wrong tokens are counted by address, and the other tests have some too.
    elsewhere = httpx2.HTTPTransport(local_address="127.0.0.9")
    with httpx2.Client(base_url=api.url, transport=elsewhere, timeout=WAIT_S) as http:
        health = http.get("/health").json()  # what another test left may run on for a moment
        assert health["status"] == "ok" and health.keys() == {"status", "running"}
        for path in ("/v1/models", "/api/sessions", "/api/approvals"):
            assert http.get(path).status_code == 401
        bare = http.post("/v1/chat/completions", json=chat())
        assert bare.status_code == 401 and bare.json()["error"]["type"] == "authentication_error"
        right = {"authorization": f"Bearer {api.token}"}
        rebound = http.get("/v1/models", headers={**right, "host": "evil.example"})
        assert rebound.status_code == 421 and rebound.json()["error"]["message"]
        foreign = http.get("/v1/models", headers={**right, "origin": "http://evil.example"})
        assert foreign.status_code == 403
        wrong = {"authorization": "Bearer sk-whet-" + "x" * 43}
        seen = {http.get("/v1/models", headers=wrong).status_code for _ in range(25)}
        assert seen == {401, 429}
        assert http.get("/v1/models", headers=right).status_code == 200  # a right one is never throttled


def test_a_question_for_a_streams_head_is_answered_and_the_connection_goes_on(api: Api) -> None:
    with api.http() as http:
        session_id = http.post("/api/sessions", json={}).json()["id"]
        head = http.head(f"/api/sessions/{session_id}/events")
        assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream")
        assert http.get("/health").status_code == 200  # on the same connection
