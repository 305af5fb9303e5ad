"""Requests as nobody means them: schemas that are none or hold themselves, compressed bodies, clients that go
in the middle of a call, results for a part of the calls. Each is answered as it deserves, and stored once."""

from __future__ import annotations

import base64
import gzip
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.serve.conftest import WAIT_S, Api
from tests.serve.test_bad_input import USER, chat, tool
from tests.serve.test_client_tools import ASKED, SCHEMA, WEATHER, count
from tests.serve.test_openai import row_of, sent
from whet.contract.answers import find_mismatch, find_schema_fault
from whet.store import api as api_rows
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply

NODE: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
}
NO_SCHEMAS: list[dict[str, Any]] = [
    {"type": 5},
    {"type": ["object", 5]},
    {"type": "objekt"},
    {"enum": 5},
    {"type": "object", "required": 5},
    {"type": "object", "required": "a"},
    {"type": "object", "properties": [1]},
    {"type": "object", "properties": {"a": 1}},
    {"type": "string", "minLength": "x"},
    {"type": "integer", "minimum": True},
    {"allOf": 5},
    {"anyOf": {"a": 1}},
    {"anyOf": [5]},
    {"type": "array", "items": 5},
    {"$ref": 5},
    {"$ref": "#/$defs/none"},
    {"$ref": "http://elsewhere.example/x"},
]
DOT = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360f8cf50010004020180e2d4a83c0000000049454e44ae426082"
    )
).decode()


def wanting(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.fast_rows("schema1", "schema0", "schema5")
@pytest.mark.parametrize("schema", NO_SCHEMAS)
def test_a_schema_that_is_none_is_told_before_a_model_is_asked(api: Api, schema: dict[str, Any]) -> None:
    before = count(api)
    asked = {"model": "whet", "input": "x", "text": {"format": {"type": "json_schema", "schema": schema}}}
    inner = tool(parameters={"properties": {"a": schema}})
    wishes = [
        ("/v1/chat/completions", chat(response_format=wanting(schema)), "response_format"),
        ("/v1/responses", asked, "text.format"),
        ("/v1/chat/completions", chat(tools=[inner]), "tools[0].parameters"),
    ]
    with api.http() as http:
        for path, body, param in wishes:
            answer = http.post(path, json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["param"]) == (400, param), error
            assert "not a JSON Schema" in error["message"]
    assert (api.model.count, count(api)) == (0, before)


@pytest.mark.parametrize("word", ["anyOf", "allOf", "oneOf"])
def test_schemas_that_hold_themselves_end(word: str) -> None:
    for schema in ({"$ref": "#"}, {word: [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}):
        assert find_schema_fault(schema) == "" == find_mismatch({"a": [1, {"b": 2}]}, schema)
    chain: Any = None
    for _ in range(90):
        chain = {"next": chain}
    assert find_schema_fault(NODE) == "" == find_mismatch(chain, NODE)
    assert find_mismatch({"next": {"next": None, "more": 1}}, NODE).startswith("the answer.next fits none")


def test_a_response_in_json_that_is_asked_for_again_is_one_response(api: Api) -> None:
    api.say(ScriptedReply("{}"), ScriptedReply('{"city": "Rome"}'), ScriptedReply("Still Rome."))
    form = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA}}
    with api.http() as http:
        first = http.post("/v1/responses", json={"model": "whet", "input": "where?", "text": form})
        assert first.status_code == 200, first.text
        body = {"model": "whet", "input": "sure?", "previous_response_id": first.json()["id"]}
        second = http.post("/v1/responses", json=body)
    assert second.status_code == 200, second.text
    assert second.headers["x-whet-session"] == first.headers["x-whet-session"]
    assert row_of(api, first.headers["x-whet-session"]).turns == 3


@pytest.mark.parametrize(
    ("path", "more", "param"),
    [
        ("/v1/chat/completions", {"tools": [tool()], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ("/v1/messages", {"tool_choice": {"type": "any"}}, None),
    ],
)
def test_a_choice_of_no_tool_is_refused(api: Api, path: str, more: dict[str, Any], param: str | None) -> None:
    with api.http() as http:
        answer = http.post(path, json=chat(**more))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error.get("param") == param and "tool" in error["message"] and api.model.count == 0


def test_the_tools_that_a_client_allows_are_told_to_the_model(api: Api) -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    api.say(ScriptedReply("ok"))
    with api.http() as http:
        asked = chat(tools=[tool(name="look"), tool(name="write")], tool_choice=choice)
        assert http.post("/v1/chat/completions", json=asked).status_code == 200
    body = api.model.requests[-1].body.decode()
    assert "call no other than look. Call at least one" in body


def test_paths_of_both_protocols_refuse_in_their_clients_shape(api: Api) -> None:
    with api.http() as http:
        for path in ("/v1/models/claude-9", "/v1/files"):
            assert "type" not in http.get(path).json()
            body = http.get(path, headers={"anthropic-version": "2023-06-01"}).json()
            assert body["type"] == "error" and body["error"]["type"] == "not_found_error"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/batches"),
        ("POST", "/v1/messages/batches"),
        ("GET", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/conversations"),
        ("GET", "/v1/files"),
    ],
)
def test_what_is_not_offered_is_refused_by_its_name(api: Api, method: str, path: str) -> None:
    with api.http() as http:
        answer = http.request(method, path, json={} if method == "POST" else None)
        assert answer.status_code == 404
        assert f"{method} {path} is not offered here" in answer.json()["error"]["message"]


def test_a_compressed_body_is_told_as_that_and_a_body_in_chunks_is_read(api: Api) -> None:
    body = json.dumps(chat()).encode()
    kind = {"content-type": "application/json"}
    with api.http() as http:
        for path in ("/v1/chat/completions", "/v1/messages"):
            coded = {**kind, "content-encoding": "gzip"}
            refused = http.post(path, content=gzip.compress(body), headers=coded)
            assert refused.status_code == 415 and "compressed" in refused.json()["error"]["message"]
        whole = http.post(
            "/v1/chat/completions", content=(body[n : n + 1] for n in range(len(body))), headers=kind
        )
        assert whole.status_code == 200, whole.text
        assert http.options("/v1/chat/completions").status_code == 405
        assert http.head("/v1/chat/completions").status_code == 405
        wrong = http.post("/v1/responses", content=body, headers={"content-type": "text/plain"})
        assert wrong.status_code == 415


def test_documents_of_text_and_images_of_an_assistant_reach_no_model_as_what_it_refuses(api: Api) -> None:
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "It is 4711."},
    }
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DOT}"}}
    with api.http() as http:
        read = http.post("/v1/messages", json=chat(messages=[{"role": "user", "content": [document]}]))
        assert read.status_code == 200 and "4711" in str(sent(api)[-1]["content"])
        pdf = {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "AAEC"},
        }
        refused = http.post("/v1/messages", json=chat(messages=[{"role": "user", "content": [pdf]}]))
        assert refused.status_code == 400 and "is not a PDF" in refused.json()["error"]["message"]
        users = [USER, {"role": "assistant", "content": [picture]}, {"role": "user", "content": "and now?"}]
        assert http.post("/v1/chat/completions", json=chat(messages=users)).status_code == 200
        assert [fields["content"] for fields in sent(api) if fields["role"] == "assistant"] == ["[images]"]


def test_a_clients_tool_that_is_named_as_one_of_ours_is_its_own(api: Api) -> None:
    mine = tool(parameters={"type": "object", "properties": {"zone": {"type": "string"}}})
    mine["function"]["name"] = "read_file"
    api.say(
        ScriptedReply("", tool_calls=(PracticeCall("read_file", '{"zone":"a"}', "c1"),)),
        ScriptedReply("Done."),
    )
    with api.http() as http:
        answer = http.post("/v1/chat/completions", json=chat(tools=[mine])).json()
    offered = [one["function"] for one in json.loads(api.model.requests[0].body)["tools"]]
    assert [one["parameters"]["properties"] for one in offered if one["name"] == "read_file"] == [
        {"zone": {"type": "string"}}
    ]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_results_for_a_part_of_the_calls_go_on_and_say_which_got_none(api: Api) -> None:
    both = tuple(PracticeCall("get_weather", json.dumps({"city": c}), c) for c in ("Rome", "Oslo"))
    api.say(ScriptedReply("", tool_calls=both), ScriptedReply("Half."))
    before = count(api)
    with api.http() as http:
        first = http.post("/v1/chat/completions", json=chat(tools=[WEATHER]))
        message = first.json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "21 degrees"}
        users = [USER, message, result]
        second = http.post("/v1/chat/completions", json=chat(messages=users, tools=[WEATHER]))
    assert second.json()["choices"][0]["message"]["content"] == "Half."
    results = [fields["content"] for fields in sent(api) if fields["role"] == "tool"]
    assert "21 degrees" in results[0] and "no result" in results[1]
    assert count(api) == before + 1 and row_of(api, second.headers["x-whet-session"]).turns == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_client_that_leaves_before_its_call_leaves_a_session_that_goes_on(api: Api, path: str) -> None:
    """The stream is cut as soon as its head is there: what was said is there once, and it goes on."""
    api.say(ASKED, *[ScriptedReply("Sunny.")] * 3)
    body = {**chat(stream=True, tools=_tools(path)), "input": "hi"}
    data = json.dumps(body).encode()
    address = urlsplit(api.url)
    with socket.create_connection((address.hostname, address.port), timeout=WAIT_S) as line:
        head = f"POST {path} HTTP/1.1\r\nhost: {address.netloc}\r\nauthorization: Bearer {api.token}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        line.sendall(head.encode() + data)
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += line.recv(4096)
    session_id = seen.partition(b"x-whet-session: ")[2].partition(b"\r\n")[0].decode()
    with api.http() as http:
        named = {"x-whet-session": session_id}
        more = {**body, "stream": False, "messages": [{"role": "user", "content": "go on"}], "input": "go on"}
        answer = http.post(path, json=more, headers=named)
        assert answer.status_code == 200 and "Sunny." in answer.text, answer.text
    texts = api.app.database.read_now(lambda db: api_rows.list_user_texts(db, session_id))
    assert [text.rpartition("\n")[2] for text in texts] == ["hi", "go on"]


def test_a_request_that_names_the_session_waits_for_the_one_that_began_it(api: Api) -> None:
    """The first came without an id, so only the session itself can keep the two apart."""
    stalled = msgspec.structs.replace(ASKED, text="Let me look.", pieces=3, fault=Fault(stall_after=2))
    api.say(stalled, *[ScriptedReply("Sunny.")] * 2)
    first = chat(stream=True, tools=[WEATHER])
    with api.http() as http, ThreadPoolExecutor() as pool:
        with http.stream("POST", "/v1/chat/completions", json=first) as begun:
            named = {"x-whet-session": begun.headers["x-whet-session"]}
            more = chat(messages=[{"role": "user", "content": "go on"}], tools=[WEATHER])
            second = pool.submit(http.post, "/v1/chat/completions", json=more, headers=named)
            assert http.get("/health").status_code == 200  # asked after it
            api.model.wait_for_stall()
            api.model.release()
            assert "get_weather" in "".join(begun.iter_text())
        answer = second.result(WAIT_S)
    assert answer.status_code == 200 and "Sunny." in answer.text, answer.text


def _tools(path: str) -> list[dict[str, Any]]:
    if path.endswith("messages"):
        return [{"name": "get_weather", "input_schema": SCHEMA}]
    if path.endswith("responses"):
        return [{"type": "function", "name": "get_weather", "parameters": SCHEMA}]
    return [WEATHER]


def test_half_of_an_emoji_in_a_request_is_replaced(api: Api) -> None:
    api.say(ScriptedReply("Fine."))
    body = rb'{"model":"whet","messages":[{"role":"user","content":"cut \ud83d here"}]}'
    with api.http() as http:
        answer = http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200, answer.text
    assert "cut \ufffd here" in str(api.model.requests[-1].json_body["messages"])
