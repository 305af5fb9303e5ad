"""The calls one by one: what each lists, how far, and what it refuses by which status, code and field."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.serve.conftest import Api
from tests.serve.test_native import begin
from whet.serve.goals import GoalInput
from whet.serve.native import NewTurn, QuestionAnswer, SessionInput
from whet.serve.plans import PlanInput
from whet.serve.rewinds import RewindInput
from whet.serve.wire import decode
from whet.store import sessions
from whet_lab.practice.script import ScriptedReply

ASK = {"model": "whet", "messages": [{"role": "user", "content": "hi"}]}


def error(answer: httpx2.Response) -> tuple[int, Any, Any, str]:
    found = answer.json()["error"]
    return answer.status_code, found["code"], found["param"], found["message"]


def test_every_call_says_how_it_answers_and_who_may_make_it(api: Api, http: httpx2.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    answers = {
        f"{method.upper()} {path}": [status for status in call["responses"] if status.startswith("2")]
        for path, calls in paths.items()
        for method, call in calls.items()
    }
    assert {call: said for call, said in answers.items() if said != ["200"]} == {
        "POST /api/sessions": ["201"],
        "POST /api/sessions/{id}/turns": ["202", "200"],
        "POST /api/sessions/{id}/steer": ["202"],
        "POST /api/goals": ["202"],
    }
    with api.http(api.new_token("caller")) as guest, httpx2.Client(base_url=api.url) as nobody:
        closed = [answer for answer in answers if answer.startswith("GET") and "{" not in answer]
        codes = {path: nobody.get(path[4:]).status_code for path in closed}
        free = ("GET /health", "GET /ready", "GET /metrics", "GET /openapi.json")
        assert {text for text, code in codes.items() if code != 401} == {*free} & {*closed}
        owners = {path for path in closed if guest.get(path[4:]).status_code == 403}
        assert owners == {"GET /api/approvals", "GET /api/learned"} | {
            owner for owner in owners if "goals" in owner
        }


def test_sessions_are_listed_as_far_as_one_asks(api: Api, http: httpx2.Client) -> None:
    for number in range(51):
        at = f"2020-01-01T00:{number:02d}:00.000Z"
        new = sessions.NewSession(f"listed{number:010d}", title=f"quokka {number}", source="api")
        api.app.database.write_now(lambda db, new=new, at=at: sessions.create(db, new, at))

    def listed(**more: Any) -> list[str]:
        return [session["title"] for session in http.get("/api/sessions", params=more).json()["sessions"]]

    assert len(listed(q="quokka")) == 50 and listed(q="quokka", limit=2) == ["quokka 50", "quokka 49"]
    assert listed(q="quokka", before="2020-01-01T00:01:00.000Z") == ["quokka 0"]
    assert len(listed(q="quokka", limit=9_999)) == 51
    assert error(http.get("/api/sessions?limit=x")) == (400, None, "limit", "limit must be a whole number")


def test_titles_are_cut_at_200_characters(http: httpx2.Client) -> None:
    body = http.post("/api/sessions", json={"title": "t" * 201}).json()
    assert body["title"] == "t" * 200
    path = f"/api/sessions/{body['id']}"
    assert http.request("PATCH", path, json={"title": "u" * 201}).json()["title"] == "u" * 200
    assert http.get(path).json()["title"] == "u" * 200


def test_messages_are_given_from_a_number_on(api: Api, http: httpx2.Client) -> None:
    api.say(ScriptedReply("One."), ScriptedReply("Two."))
    first = http.post("/v1/chat/completions", json=ASK)
    session_id = first.headers["x-whet-session"]
    http.post("/v1/chat/completions", json=ASK, headers={"x-whet-session": session_id})

    def seqs(**more: int) -> list[int]:
        body = http.get(f"/api/sessions/{session_id}/messages", params=more).json()
        assert body["session_id"] == session_id
        return [message["seq"] for message in body["messages"]]

    assert seqs() == [1, 2, 3, 4] and seqs(after=1) == [2, 3, 4] and seqs(after=1, limit=2) == [2, 3]
    assert seqs(after=4) == [] and seqs(after=0, limit=1) == [1]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("turns", {"text": " "}, (400, None, "text", "there is no text")),
        ("steer", {"text": " "}, (400, None, "text", "there is no text")),
        ("steer", {"text": "x"}, (409, "session_idle", None, "no turn is running in this session")),
        ("turns", {"text": "x", "busy": "odd"}, (400, "invalid_type", "busy", "")),
        ("turns", {"text": "x", "images": ["http://10.0.0.1/x.png"]}, (400, "unsupported_image", "", "")),
        ("rewind", {"to": "soon"}, (400, "invalid_value", "to", "to must be TURN, TURN.STEP or undo")),
    ],
)
def test_what_a_session_does_not_take(
    http: httpx2.Client, path: str, body: dict[str, Any], told: tuple[int, str | None, str | None, str]
) -> None:
    status, code, param, message = error(http.post(f"/api/sessions/{begin(http)}/{path}", json=body))
    assert (status, code) == told[:2] and message.startswith(told[3])
    assert param == told[2] or (told[2] == "" and param == "images[0].content[0].image_url")


def test_a_session_that_is_no_chat_takes_no_messages(api: Api, http: httpx2.Client) -> None:
    parent = begin(http)
    review = sessions.NewSession("reviewofit000000", parent_session_id=parent, kind="review", source="api")
    api.app.database.write_now(lambda db: sessions.create(db, review, "2026-11-21T09:00:00.000Z"))
    refused = (400, "invalid_session", None, "a session of kind review takes no messages")
    assert error(http.post("/api/sessions/reviewofit000000/turns", json={"text": "x"})) == refused
    headers = {"x-whet-session": "reviewofit000000"}
    assert error(http.post("/v1/chat/completions", json=ASK, headers=headers)) == refused


def test_responses_continue_their_session_or_a_copy_of_it(api: Api, http: httpx2.Client) -> None:
    api.say(*(ScriptedReply(text) for text in ("One.", "Two.", "Other.", "Three.", "Four.")))
    body: dict[str, Any] = {"model": "whet", "input": "hi"}
    first = http.post("/v1/responses", json=body)
    name, session_id = first.json()["id"], first.headers["x-whet-session"]
    second = http.post("/v1/responses", json={**body, "previous_response_id": name})
    assert second.headers["x-whet-session"] == session_id
    field = "previous_response_id"
    older = http.post("/v1/responses", json={**body, field: name})
    assert older.status_code == 200 and older.headers["x-whet-session"] != session_id
    newest = {**body, field: second.json()["id"]}
    headers = {"x-whet-session": begin(http)}
    assert error(http.post("/v1/responses", json=newest, headers=headers)) == (
        400,
        None,
        field,
        "x-whet-session names another session",
    )
    assert http.post("/v1/responses", json=newest).headers["x-whet-session"] == session_id
    with api.http(api.new_token("another")) as stranger:
        assert stranger.post("/v1/responses", json=newest).status_code == 404
    assert error(http.post("/v1/responses", json={**body, field: "r" * 90})) == (
        400,
        "previous_response_not_found",
        field,
        f"there is no response {'r' * 80}",
    )
    unkept = http.post("/v1/responses", json={**body, "store": False})
    assert error(http.post("/v1/responses", json={**body, field: unkept.json()["id"]}))[0] == 400
    shown = http.get(f"/api/sessions/{unkept.headers['x-whet-session']}").json()
    assert shown["private"] is True and http.get(f"/api/sessions/{session_id}").json()["private"] is False


def test_models_are_shown_by_three_names_and_asked_by_any(http: httpx2.Client) -> None:
    model = {
        "id": "whet",
        "object": "model",
        "created": 0,
        "owned_by": "whet",
        "type": "model",
        "display_name": "whet",
        "created_at": "1970-01-01T00:00:00Z",
    }
    ends = {"first_id": "whet", "last_id": "whet", "has_more": False}
    assert http.get("/v1/models").json() == {"object": "list", "data": [model], **ends}
    assert http.get("/v1/models/practice").json() == {**model, "id": "practice", "display_name": "practice"}
    told = (404, "model_not_found", "model", f"there is no model {'m' * 80!r}; use 'whet'")
    assert error(http.get(f"/v1/models/{'m' * 90}")) == told
    assert http.post("/v1/chat/completions", json={**ASK, "model": "other"}).json()["model"] == "other"


def test_a_conversation_is_known_by_its_name(api: Api, http: httpx2.Client) -> None:
    api.say(*(ScriptedReply(f"{number}.") for number in range(4)))

    def session(**headers: str) -> str:
        return http.post("/v1/chat/completions", json=ASK, headers=headers).headers["x-whet-session"]

    first = session(**{"x-openwebui-chat-id": "c" * 507})
    assert session(**{"x-openwebui-chat-id": "c" * 507}) == first
    assert session(**{"x-openwebui-chat-id": "d" * 507}) != first
    too_long = http.post("/v1/chat/completions", json=ASK, headers={"x-openwebui-chat-id": "c" * 508})
    assert error(too_long) == (400, None, "user", "the conversation's name is too long")


def test_a_path_that_is_not_there_and_a_call_that_is_not_answered(http: httpx2.Client) -> None:
    assert error(http.request("PUT", "/api/sessions"))[:2] == (405, "method_not_allowed")
    missing = error(http.get("/api/" + "x" * 200))
    assert missing[0] == 404 and "x" * 90 in missing[3] and "x" * 120 not in missing[3]
    health = http.get("/health").json()  # turns of other tests may still wait for their answer
    assert health.keys() == {"status", "running"} and health["status"] == "ok"
    assert http.get("/ready").json() == {"status": "ok"}
    counted = http.post("/v1/messages/count_tokens", json={"model": "whet", "messages": ASK["messages"]})
    assert counted.json()["input_tokens"] > 1


def test_wrong_tokens_are_counted_and_refused_by_their_code(api: Api) -> None:
    with httpx2.Client(base_url=api.url) as nobody:
        assert error(nobody.get("/api/sessions"))[:2] == (401, "missing_api_key")
        wrong = {"authorization": "Bearer sk-whet-wrong"}
        assert error(nobody.get("/api/sessions", headers=wrong))[:2] == (401, "invalid_api_key")
    with api.http(api.new_token("low")) as guest:
        assert error(guest.get("/api/approvals"))[:2] == (403, "wrong_role")
        body = {"to": "1", "own_edits": "replace"}
        assert error(guest.post(f"/api/sessions/{begin(guest)}/rewind", json=body))[:2] == (403, "wrong_role")


def test_what_is_left_out_of_a_body_is_no_wish() -> None:
    assert decode(b"{}", PlanInput) == PlanInput(None, None, approve=False)
    assert decode(b"{}", SessionInput) == SessionInput("", private=False, warm="")
    assert decode(b"{}", NewTurn) == NewTurn("", (), "refuse")
    assert decode(b'{"answer":"no"}', QuestionAnswer) == QuestionAnswer("no", "", 0, None)
    assert decode(b'{"text":"x"}', GoalInput) == GoalInput("x", "", 0.0, 0, (), ())
    assert decode(b'{"to":"1"}', RewindInput) == RewindInput("1", "both", "ask", dry_run=False)


def test_a_message_says_which_text_ended_it(api: Api, http: httpx2.Client) -> None:
    api.say(ScriptedReply("one END two", pieces=3))
    body = {**ASK, "max_tokens": 100, "stop_sequences": ["STOP", "END"]}
    found = http.post("/v1/messages", json=body).json()
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", "END")
    assert found["content"] == [{"type": "text", "text": "one "}]
