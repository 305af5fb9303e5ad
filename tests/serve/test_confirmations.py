"""A client of the API reads at once that a human has to decide, and at the end what was decided."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests import forked
from tests.confirm.process import Served
from tests.serve.conftest import Api
from tests.stories.program import use
from whet.config.permission_settings import ConfirmSettings
from whet.contract.events import ApprovalAsked, ApprovalDecided, ConfirmationAsked, TurnEnd
from whet.contract.messages import Usage
from whet.serve.chat import ChatCodec
from whet.serve.messages import MessagesCodec, MessagesRequest
from whet.serve.responses import ResponsesCodec, ResponsesRequest
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

MESSAGES = [{"role": "user", "content": "ship it"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/responses": {"input": "ship it"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 99},
}
ASKED = ConfirmationAsked("c", "publish_package", "./ship", "r", "https://c/r", 60.0)
END = TurnEnd("s", "t", "answered", "", 1, usage=Usage(), duration_s=0.0)


def _notices_in(row: dict[str, Any]) -> list[str]:
    notices: list[str] = row.get("notices") or row.get("response", {}).get("notices") or []
    return notices


def _rows_of(stream: httpx2.Response) -> Iterator[dict[str, Any]]:
    lines = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: {"))
    yield from map(json.loads, lines)


@contextmanager
def _confirming(folder: Path) -> Generator[tuple[Served, Api]]:
    """Run a service and an API in one home; the model ships, and then answers."""
    script = [ScriptedReply(tool_calls=(use("terminal", command="./ship 1.0"),)), ScriptedReply("Shipped.")]
    with Served(folder) as service, PracticeServer() as model:
        settings = ConfirmSettings(
            f"http://127.0.0.1:{service.port}", actions=("terminal(./ship *) = publish_package",)
        )
        api = Api(folder, model, confirm=settings)
        api.say(*script)
        yield service, api
        api.close()


def _decide(service: Served, answer: str) -> None:
    (request,) = service.call("GET", "/confirm?status=pending", role="approve")[1]["requests"]
    assert service.call("POST", f"/confirm/{request['id']}/{answer}", {}, role="approve")[0] == 200


@pytest.mark.slow
@pytest.mark.unconfined
@pytest.mark.parametrize("path", REQUESTS)
def test_a_stream_names_the_decision_that_it_waits_for(tmp_path: Path, path: str) -> None:
    body = {"model": "whet", "stream": True, **REQUESTS[path]}
    with _confirming(tmp_path) as (service, api), api.http() as http:
        with http.stream("POST", path, json=body) as stream:
            rows = _rows_of(stream)
            first = next(notices for row in rows if (notices := _notices_in(row)))
            assert first == ["publish_package waits for a human's decision at the confirmation service"]
            session = http.get("/api/sessions").json()["sessions"][0]
            assert (session["running"], session["waiting_for"]) == (True, "a decision on terminal")
            _decide(service, "deny")
            last = [notices for row in rows if (notices := _notices_in(row))][-1]
        assert last == ["publish_package waited for a human's decision and was denied"]
        session = http.get("/api/sessions").json()["sessions"][0]
        assert (session["running"], session["waiting_for"]) == (False, "")


@pytest.mark.slow
@pytest.mark.unconfined
def test_a_cancelled_turn_withdraws_its_request_and_asks_the_model_no_more(tmp_path: Path) -> None:
    body = {"model": "whet", "stream": True, "messages": MESSAGES}
    with _confirming(tmp_path) as (service, api), api.http() as http:
        with http.stream("POST", "/v1/chat/completions", json=body) as stream:
            rows = _rows_of(stream)
            next(row for row in rows if _notices_in(row))
            (session_id,) = api.hosted.running
            api.loop.call_soon_threadsafe(api.hosted.cancel, session_id)
            assert list(rows)
        assert len(api.model.requests) == 1
        assert service.call("GET", "/confirm?status=cancelled", role="approve")[1]["count"] == 1


@pytest.mark.slow
@pytest.mark.unconfined
def test_a_turn_that_waits_takes_a_rotated_token(tmp_path: Path) -> None:
    body = {"model": "whet", "stream": True, "messages": MESSAGES}
    with _confirming(tmp_path) as (service, api), api.http() as http:
        with http.stream("POST", "/v1/chat/completions", json=body) as stream:
            rows = _rows_of(stream)
            next(row for row in rows if _notices_in(row))
            environ = {"WHET_HOME": str(service.home)}
            listed = forked.run(("confirm", "token", "list", "--json"), tmp_path, environ=environ)
            (token_id,) = [row["id"] for row in json.loads(listed.out)["tokens"] if row["role"] == "submit"]
            rotated = forked.run(("confirm", "token", "rotate", token_id), tmp_path, environ=environ)
            assert rotated.code == 0, rotated.err
            _decide(service, "approve")
            last = [notices for row in rows if (notices := _notices_in(row))][-1]
        assert last == ["publish_package waited for a human's decision and was allowed"]


def test_a_stream_names_the_question_that_it_waits_for(asking_api: Api) -> None:
    asking_api.say(ScriptedReply(tool_calls=(use("terminal", command="touch x"),)), ScriptedReply("Done."))
    with asking_api.http() as http:
        body = {"model": "whet", "stream": True, "messages": MESSAGES}
        with http.stream("POST", "/v1/chat/completions", json=body) as stream:
            rows = _rows_of(stream)
            first = next(notices for row in rows if (notices := _notices_in(row)))
            assert first == ["terminal waits for the owner's answer: touch x"]
            (question,) = http.get("/api/approvals").json()["approvals"]
            http.post(f"/api/approvals/{question['id']}", json={"answer": "once"})
            last = [notices for row in rows if (notices := _notices_in(row))][-1]
    assert last == ["terminal waited for the owner's answer and was allowed"]


def test_a_second_question_about_a_call_takes_the_place_of_the_first() -> None:
    codec: Any = ChatCodec("a", "whet")
    for subject in ("rm a", "rm b"):
        assert subject.encode() in codec.event(ApprovalAsked("c", "terminal", subject, ()))
    codec.event(ApprovalAsked("d", "terminal", "rm d", ()))
    codec.event(ApprovalDecided("c", "deny", "person"))
    assert codec.whole(END)["notices"] == [
        "terminal waited for the owner's answer and was denied",
        "terminal waits for the owner's answer: rm d",
    ]


@pytest.mark.parametrize(
    "codec",
    [
        ChatCodec("a", "whet"),
        ResponsesCodec("r", ResponsesRequest("whet", "go")),
        MessagesCodec("a", MessagesRequest("whet", [])),
    ],
    ids=lambda codec: type(codec).__name__,
)
def test_a_whole_answer_says_what_was_decided(codec: Any) -> None:
    assert b"https://c/r" in codec.event(ASKED)
    codec.event(ApprovalDecided("c", "allow", "service"))
    assert codec.whole(END)["notices"] == ["publish_package waited for a human's decision and was allowed"]


def test_decisions_of_other_calls_are_no_notices() -> None:
    codec: Any = ChatCodec("a", "whet")
    assert codec.event(ApprovalDecided("other", "deny", "service")) == b""
    assert "notices" not in codec.whole(END)
