"""The session API: turns and their events, steering, cancelling, questions, who may see what."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.late import Late
from tests.serve.conftest import WAIT_S, Api
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest
from whet.serve.auth import ApiAuth
from whet.serve.tokens import TokenRole
from whet.store import api as rows
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

if TYPE_CHECKING:
    import jsonschema
else:
    jsonschema = Late("jsonschema")


def begin(http: httpx2.Client, **fields: Any) -> str:
    answer = http.post("/api/sessions", json=fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Id and data of each event of a stream."""
    event_id = ""
    for line in lines:
        if line.startswith("id: "):
            event_id = line[4:]
        elif line.startswith("data: "):
            yield event_id, json.loads(line[6:])


def turn(http: httpx2.Client, session_id: str, text: str) -> list[tuple[str, dict[str, Any]]]:
    path, accept = f"/api/sessions/{session_id}/turns", {"accept": "text/event-stream"}
    with http.stream("POST", path, json={"text": text}, headers=accept) as answer:
        assert answer.status_code == 200
        return list(events_of(answer.iter_lines()))


def until(http: httpx2.Client, session_id: str, after: str, kind: str) -> list[dict[str, Any]]:
    """Listen until an event of a kind comes, and give all up to it."""
    seen: list[dict[str, Any]] = []
    headers = {"last-event-id": after}
    with http.stream("GET", f"/api/sessions/{session_id}/events", headers=headers) as answer:
        for _, event in events_of(answer.iter_lines()):
            seen.append(event)
            if event["type"] == kind:
                return seen
    raise AssertionError(f"no {kind}: {seen}")


def test_a_turns_events_come_with_ids_and_go_on_from_any_of_them(api: Api, http: httpx2.Client) -> None:
    api.say(
        ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command":"echo hi"}', "c1"),)),
        ScriptedReply("Said hi.", pieces=2),
    )
    session_id = begin(http, title="greeting")
    found = turn(http, session_id, "say hi")
    kinds = [event["type"] for _, event in found]
    assert kinds[0] == "step_finished" and "tool_started" in kinds and kinds[-1] == "turn_end"
    assert found[-1][1]["text"] == "Said hi."
    middle = len(found) // 2
    rest = until(http, session_id, found[middle][0], "turn_end")
    assert rest == [event for _, event in found[middle + 1 :]]
    # An id of an earlier process says that something may be missing, and gives what there is.
    assert until(http, session_id, "0abc-7", "turn_end")[0] == {"type": "gap"}
    messages = http.get(f"/api/sessions/{session_id}/messages").json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert [message["seq"] for message in messages] == [1, 2, 3, 4]


def test_a_turn_goes_on_with_no_listener_and_is_steered_and_cancelled(api: Api, http: httpx2.Client) -> None:
    call = ScriptedReply(
        tool_calls=(PracticeCall("terminal", '{"command":"true"}', "c1"),), fault=Fault(stall_after=-1)
    )
    api.say(call, ScriptedReply("Done."), ScriptedReply("Half", pieces=2, fault=Fault(stall_after=2)))
    session_id = begin(http)
    path = f"/api/sessions/{session_id}"
    started = http.post(f"{path}/turns", json={"text": "work"})
    assert started.status_code == 202
    api.model.wait_for_stall()
    assert http.get(path).json()["running"] is True
    assert http.post(f"{path}/turns", json={"text": "more"}).json()["error"]["code"] == "session_busy"
    assert http.delete(path).status_code == 409
    assert http.post(f"{path}/steer", json={"text": "and hurry"}).status_code == 202
    api.model.release()
    kinds = [event["type"] for event in until(http, session_id, started.json()["last_event_id"], "turn_end")]
    assert "steered" in kinds
    assert http.post(f"{path}/steer", json={"text": "late"}).status_code == 409
    assert http.post(f"{path}/cancel").json() == {"cancelled": False}
    second = http.post(f"{path}/turns", json={"text": "again"}).json()
    api.model.wait_for_stall(2)
    assert http.post(f"{path}/cancel").json() == {"cancelled": True}
    end = until(http, session_id, second["last_event_id"], "turn_end")[-1]
    assert end["reason"] == "cancelled"
    api.model.release()
    assert http.request("PATCH", path, json={"title": "named"}).json()["title"] == "named"
    deleted = http.delete(path)
    assert deleted.json().get("deleted") == session_id, deleted.text
    assert http.get(path).status_code == 404


def test_of_two_turns_at_once_one_is_refused(api: Api, http: httpx2.Client) -> None:
    api.say(ScriptedReply("One."))
    session_id = begin(http)
    held, free = threading.Event(), asyncio.Event()

    async def hold() -> None:
        async with api.hosted.using(session_id):
            held.set()
            await free.wait()

    holding = asyncio.run_coroutine_threadsafe(hold(), api.loop)
    assert held.wait(WAIT_S)
    path = f"/api/sessions/{session_id}/turns"
    first, second = (http.post(path, json={"text": text}) for text in ("one", "two"))
    api.loop.call_soon_threadsafe(free.set)
    holding.result(WAIT_S)
    assert (first.status_code, second.status_code) == (202, 409)
    assert second.json()["error"]["code"] == "session_busy"
    until(http, session_id, first.json()["last_event_id"], "turn_end")
    assert api.app.database.read_now(lambda db: rows.list_user_texts(db, session_id)) == ["one"]


def test_a_turns_stream_goes_to_its_own_end_behind_others_that_wait(api: Api, http: httpx2.Client) -> None:
    api.say(
        ScriptedReply("One.", fault=Fault(stall_after=-1)), ScriptedReply("Two."), ScriptedReply("Three.")
    )
    session_id = begin(http)
    path = f"/api/sessions/{session_id}/turns"
    http.post(path, json={"text": "one"})
    api.model.wait_for_stall()
    http.post(path, json={"text": "two", "busy": "queue"})
    third, accept = {"text": "three", "busy": "queue"}, {"accept": "text/event-stream"}
    with http.stream("POST", path, json=third, headers=accept) as answer:
        api.model.release()
        ends = [event["text"] for _, event in events_of(answer.iter_lines()) if event["type"] == "turn_end"]
    assert ends == ["One.", "Two.", "Three."]


WRITE = PracticeCall("terminal", '{"command":"echo x > made.txt"}', "c1")


def test_a_question_waits_for_the_owner(asking_api: Api) -> None:
    asking_api.say(ScriptedReply(tool_calls=(WRITE,)), ScriptedReply("Made."))
    chat_token = asking_api.new_token("program")
    with asking_api.http(chat_token) as program, asking_api.http() as owner:
        session_id = begin(program)
        started = program.post(f"/api/sessions/{session_id}/turns", json={"text": "make it"}).json()
        asked = until(program, session_id, started["last_event_id"], "approval_asked")[-1]
        assert program.get("/api/approvals").status_code == 403
        (waiting,) = owner.get("/api/approvals").json()["approvals"]
        assert (waiting["subject"], waiting["session_id"]) == (asked["subject"], session_id)
        path = f"/api/approvals/{waiting['id']}"
        assert program.post(path, json={"answer": "once"}).status_code == 403
        assert owner.post(path, json={"answer": "perhaps"}).status_code == 400
        assert owner.post(path, json={"answer": "once"}).status_code == 200
        until(program, session_id, started["last_event_id"], "turn_end")
        assert (asking_api.workspace / "made.txt").exists()
        assert owner.post(path, json={"answer": "once"}).status_code == 404


@pytest.mark.slow
def test_silence_is_a_denial(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply(tool_calls=(WRITE,)), ScriptedReply("Not made.")]) as model:
        quiet = Api(tmp_path, model, mode="ask", answer_wait_s=0.05)
        try:
            with quiet.http() as owner:
                found = turn(owner, begin(owner), "make it")
                assert owner.get("/api/approvals").json() == {"approvals": []}
        finally:
            quiet.close()
        decided = next(event for _, event in found if event["type"] == "approval_decided")
        assert (decided["verdict"], decided["decided_by"]) == ("deny", "nobody")
        assert not (quiet.workspace / "made.txt").exists()


def test_a_token_that_converses_sees_its_own_sessions_only(api: Api, http: httpx2.Client) -> None:
    mine = begin(http, title="the owner's")
    with api.http(api.new_token("phone")) as phone:
        own = begin(phone, title="the phone's")
        assert [row["id"] for row in phone.get("/api/sessions").json()["sessions"]] == [own]
        for method, path in (
            ("GET", ""),
            ("GET", "/messages"),
            ("GET", "/events"),
            ("DELETE", ""),
            ("POST", "/cancel"),
        ):
            assert phone.request(method, f"/api/sessions/{mine}{path}").status_code == 404
        body = {"model": "whet", "messages": [{"role": "user", "content": "hi"}]}
        header = {"x-whet-session": mine}
        assert phone.post("/v1/chat/completions", json=body, headers=header).status_code == 404
        listed = {row["id"] for row in http.get("/api/sessions").json()["sessions"]}
        assert {mine, own} <= listed
        api.revoke("phone")
        assert phone.get("/api/sessions").status_code == 401


@pytest.mark.parametrize("role", ["chat", "guest"])
def test_a_token_does_not_see_the_sessions_of_a_revoked_one_of_its_name(api: Api, role: TokenRole) -> None:
    name = f"reused-{role}"
    profiles: list[str] = []
    session_id = ""
    body = {"model": "whet", "user": "talk", "messages": [{"role": "user", "content": "hi"}]}
    for _ in range(3):
        api.say(ScriptedReply("Hello."))
        secret = api.new_token(name, role)
        caller = ApiAuth(api.app.database, api.app.clock).find_caller(secret)
        assert caller is not None
        profiles.append(caller.profile)
        with api.http(secret) as client:
            assert client.get("/api/sessions").json()["sessions"] == []
            if session_id:
                assert client.get(f"/api/sessions/{session_id}").status_code == 404
            answer = client.post("/v1/chat/completions", json=body)
            assert answer.headers["x-whet-session"] != session_id
            session_id = answer.headers["x-whet-session"]
            assert client.get(f"/api/sessions/{session_id}").status_code == 200
        api.revoke(name)
    assert len(set(profiles)) == (3 if role == "guest" else 1)


def test_a_guest_has_a_memory_of_its_own(api: Api) -> None:
    learning = api.app.learning.owner_service
    outcome = api.call(
        learning.submit(MemoryRequest("add", "user", "The owner is called Ottilie."), Origin("user"))
    )
    assert outcome.ok
    seen: dict[str, str] = {}
    for role in ("chat", "guest"):
        api.say(ScriptedReply("Hello."))
        body = {"model": "whet", "messages": [{"role": "user", "content": "hi"}]}
        with api.http(api.new_token(f"of-{role}", role)) as http:  # type: ignore[arg-type]
            assert http.post("/v1/chat/completions", json=body).status_code == 200
        seen[role] = api.model.requests[-1].json_body["messages"][0]["content"]
    assert "Ottilie" in seen["chat"] and "Ottilie" not in seen["guest"]


@pytest.mark.parametrize("warm", ["auto", "deploys"])
def test_a_guest_starts_with_nothing_of_the_owners_sessions(api: Api, warm: str) -> None:
    with api.http(api.new_token(f"cold-{warm}", "guest")) as guest:
        refused = guest.post("/api/sessions", json={"warm": warm})
        assert refused.status_code == 400 and "owner's" in refused.json()["error"]["message"]
        assert guest.post("/api/sessions", json={"warm": "off"}).status_code == 201


@pytest.mark.slow
def test_a_stream_ends_when_its_token_is_revoked(api: Api) -> None:
    api.say(ScriptedReply("A slow answer", pieces=5, fault=Fault(stall_after=3)))
    with api.http(api.new_token("lost")) as lost:
        session_id = begin(lost)
        with lost.stream("GET", f"/api/sessions/{session_id}/events") as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("retry")
            body = {"model": "whet", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
            header = {"x-whet-session": session_id}
            with lost.stream("POST", "/v1/chat/completions", json=body, headers=header) as turn_answer:
                api.model.wait_for_stall()
                api.revoke("lost")
                text = turn_answer.read().decode()
            assert '"code":"invalid_api_key"' in text
            list(lines)  # it ends
    assert api.app.database.read_now(lambda db: rows.list_user_texts(db, session_id)) == ["hi"]
    assert not api.hosted.is_running(session_id)
    api.model.release()


def test_a_client_that_goes_away_in_mid_stream_stops_the_turn(api: Api, http: httpx2.Client) -> None:
    api.say(ScriptedReply("A long answer", pieces=5, fault=Fault(stall_after=3)))
    body = {"model": "whet", "stream": True, "messages": [{"role": "user", "content": "tell me"}]}
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        session_id = answer.headers["x-whet-session"]
        api.model.wait_for_stall()
        with http.stream("GET", f"/api/sessions/{session_id}/events") as listening:
            events = events_of(listening.iter_lines())
            answer.close()
            ends = (
                event for _, event in events if event["type"] == "turn_end"
            )  # a late piece may come first
            assert next(ends)["reason"] == "cancelled"
    messages = http.get(f"/api/sessions/{session_id}/messages").json()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]  # what was shown is kept
    spent = http.get(f"/api/sessions/{session_id}").json()["usage"]
    assert spent["prompt_tokens"] > 1_000 and spent["completion_tokens"] > 0
    api.model.release()


def test_the_document_is_valid_and_names_every_call(api: Api) -> None:
    document = httpx2.get(f"{api.url}/openapi.json", timeout=WAIT_S).json()
    assert document["openapi"].startswith("3.1")
    for name in document["components"]["schemas"]:
        shape = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.Draft202012Validator.check_schema(shape)
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
    listed = {path: set(calls) for path, calls in document["paths"].items()}
    merged: dict[str, set[str]] = {}
    for route in api.routes():
        path = route.path.replace(":path", "")
        merged[path] = merged.get(path, set()) | ({m.lower() for m in route.methods or ()} - {"head"})
    assert listed == merged
    example = {"model": "whet", "messages": [{"role": "user", "content": "hi"}], "user": None}
    validator = jsonschema.Draft202012Validator(
        {"$ref": "#/components/schemas/ChatRequest", "components": document["components"]}
    )
    assert document["paths"]["/mcp"]["post"]["requestBody"]["required"]
    events = document["paths"]["/api/sessions/{id}/events"]["get"]["responses"]["200"]["content"]
    assert list(events) == ["text/event-stream"]
    assert validator.is_valid(example) and not validator.is_valid({"model": 1})


def test_messages_are_masked_with_their_reasoning(api: Api, http: httpx2.Client) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    api.say(ScriptedReply(f"it is {secret}", reasoning=f"the key is {secret}"))
    session_id = begin(http)
    turn(http, session_id, f"what about {secret}?")
    answer = http.get(f"/api/sessions/{session_id}/messages")
    assert secret not in answer.text
    assert answer.json()["messages"][-1]["reasoning"] == "the key is [REDACTED]"


def test_shares_and_costs_are_given_without_the_digits_of_floats(api: Api, http: httpx2.Client) -> None:
    session_id = begin(http, title="counted")
    used = "UPDATE sessions SET prompt_tokens = 3, cache_read_tokens = 1, cost_usd = ? WHERE id = ?"
    api.app.database.write_now(lambda db: db.execute(used, (0.1 + 0.2, session_id)))
    answer = http.get(f"/api/sessions/{session_id}")
    assert (answer.json()["usage"]["cache_hit_ratio"], answer.json()["running"]) == (0.3333, False)
    assert '"cost_usd":0.3,' in answer.text and '"cost_usd":0.3,' in http.get("/api/sessions").text


def test_accepted_messages_are_on_disk_until_a_turn_has_stored_them(api: Api, http: httpx2.Client) -> None:
    stalled = ScriptedReply("Half", pieces=2, fault=Fault(stall_after=-1))
    api.say(stalled, ScriptedReply("Done."), ScriptedReply("More."), stalled)
    session_id = begin(http)
    path = f"/api/sessions/{session_id}"
    started = http.post(f"{path}/turns", json={"text": "work"})
    api.model.wait_for_stall()
    assert http.post(f"{path}/steer", json={"text": "and hurry"}).status_code == 202
    assert http.post(f"{path}/turns", json={"text": "then this", "busy": "queue"}).status_code == 202
    assert http.get(f"{path}/messages").json()["waiting"] == ["and hurry", "then this"]
    api.model.release()
    until(http, session_id, started.json()["last_event_id"], "turn_end")
    while http.get(path).json()["running"] or http.get(f"{path}/messages").json()["waiting"]:
        pass
    texts = [message["content"] for message in http.get(f"{path}/messages").json()["messages"]]
    assert sum("and hurry" in text for text in texts) == sum("then this" in text for text in texts) == 1
