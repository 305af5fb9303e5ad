"""Forms of a session's page that can't be done: what the page or its script is told, and by which status."""

from __future__ import annotations

import json
from typing import cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests.serve.test_page_values import VISIT, Told, frame, model, talked
from whet.rewind.planning import Change, Conflict
from whet.rewind.rewinding import Outcome
from whet.rewind.taking_back import RewindResult
from whet.serve.board.history_pages import HistoryPages
from whet.serve.board.live_turn import LiveTurns
from whet.serve.board.session_chat import SessionChat, format_outcome
from whet.serve.turns import TurnInput
from whet.serve.wire import ApiError
from whet.store import sessions
from whet.web.sessions import Sessions

__all__ = ["frame", "model"]  # fixtures


def posted(form: dict[str, str], session_id: str = "s1", *, by_script: bool = True) -> Request:
    headers = [(b"accept", b"application/json")] if by_script else []
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
    request = Request({**scope, "path_params": {"id": session_id}})
    request.state.form, request.state.files = form, ()
    return request


def desk(frame: Told) -> SessionChat:
    live = LiveTurns()
    return SessionChat(frame, HistoryPages(frame, live), live, cast("Sessions", None), 1.0)


def told(answer: Response) -> tuple[int, str]:
    return answer.status_code, str(json.loads(bytes(answer.body))["problem"])


@pytest.mark.parametrize(
    ("name", "form", "status", "said"),
    [
        ("say", {"text": " "}, 400, "Nothing was written."),
        ("fork", {"turn": "7"}, 400, "there is no turn 7 that has ended"),
        ("rewind", {"turn": "9"}, 409, "there is no point 9"),
        ("stop", {}, 409, "Nothing of this session runs in this server."),
    ],
)
async def test_what_cannot_be_done_in_a_session_is_told_with_its_status(
    frame: Told, name: str, form: dict[str, str], status: int, said: str
) -> None:
    await talked(frame, 1)
    answer = await getattr(desk(frame), name)(posted(form), VISIT)
    found = told(answer)
    assert found[0] == status and found[1].startswith(said), found
    await getattr(desk(frame), name)(posted(form, by_script=False), VISIT)
    assert frame.status == status and frame.values["problem"] == found[1]


@pytest.mark.parametrize("name", ["say", "fork", "rewind", "plan"])
async def test_a_session_that_is_no_chat_takes_nothing(frame: Told, name: str) -> None:
    await talked(frame, 1)
    review = sessions.NewSession("r1", parent_session_id="s1", kind="review")
    frame.services.database.write_now(lambda db: sessions.create(db, review, "2026-11-21T09:00:00.000Z"))
    answer = await getattr(desk(frame), name)(posted({"text": "x", "turn": "1"}, "r1"), VISIT)
    status, text = told(answer)
    assert status == 400
    assert text in ("A review takes no messages.", "a review has no plan of a person's")


async def test_nothing_is_taken_back_while_a_turn_runs_or_was_begun(frame: Told) -> None:
    await talked(frame, 1)
    turn = await frame.turns.begin("s1", TurnInput("go on"))
    assert told(await desk(frame).rewind(posted({"turn": "1"}), VISIT)) == (
        409,
        "A turn is running; stop it first.",
    )
    await turn


@pytest.mark.parametrize("text", ["", "/plan", "/plan go", "/plan off", "/plan steps\nx"])
async def test_nothing_begins_with_nothing_to_do(frame: Told, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        await desk(frame).begin(posted({"text": text}), VISIT)
    assert caught.value.status == 400
    assert frame.services.database.read_now(lambda db: sessions.list_sessions(db, 9)) == []


def outcome(*changes: str, conflicts: tuple[Conflict, ...] = (), failed: str = "") -> Outcome:
    made = [Change(path, None, None) for path in changes]
    return Outcome(RewindResult(made, conflicts, {failed: "it is gone"} if failed else {}), True, "")


def test_what_a_rewind_did_is_told_by_file() -> None:
    assert format_outcome(outcome(), is_plan=False) == "no file was to be restored"
    assert format_outcome(outcome("a"), is_plan=True) == "would restore 1 path: a"
    names = [f"f{number}" for number in range(22)]
    many = outcome(*names, failed="f0", conflicts=(Conflict("b", "somebody changed it", can_force=True),))
    assert format_outcome(many, is_plan=False).splitlines() == [
        f"restored 21 paths: {', '.join(names[1:21])}",
        "left as it is (somebody changed it): b",
        "failed (it is gone): f0",
    ]
