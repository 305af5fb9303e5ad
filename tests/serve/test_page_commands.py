"""Slash commands in the box of a session's page: they run, complete, and are never prose for the model."""

from __future__ import annotations

import httpx2

from tests.serve.conftest import Api
from tests.serve.test_board import csrf
from tests.serve.test_desk import begin, ended, say
from whet_lab.practice.script import ScriptedReply


def converse(board: Api, person: httpx2.Client) -> str:
    """Begin a session, wait until its turn has ended, and return its page's path."""
    board.say(ScriptedReply("Hello."))
    path = begin(person, "hello")
    ended(person, path)
    return path


def test_commands_run_and_reach_no_model(board: Api, person: httpx2.Client) -> None:
    path = converse(board, person)
    asked = len(board.model.requests)
    for typed, expected in (
        ("/title On the page", "On the page"),
        ("/context", "tokens"),
        ("/usage", "prompt"),
        ("/tools", "read_file"),
        ("/help", "/compress"),
        ("/goal", "goal"),
        ("/memory", ""),
    ):
        answer = say(person, path, typed)
        assert expected in answer.text, typed
    for typed, expected in (("/titel x", "/title"), ("/zzzz", "/help lists"), ("/summarize", "/compact")):
        answer = say(person, path, typed)
        assert answer.status_code == 400 and "there is no command" in answer.text, typed
        assert f">\n{typed}</textarea>" in answer.text, "the text stays in the box"
        assert expected in answer.text, typed
    for typed, why in (
        ("/config ui.theme light", "there is no /config here: it is about the machine that Whet runs on"),
        ("/settings", "there is no /config here: it is about the machine"),
        ("/new", "there is no /new here: a session is begun outside of the conversation"),
    ):
        assert why in say(person, path, typed).text, typed
    assert len(board.model.requests) == asked
    assert '<h1 id="title">On the page' in person.get(path).text
    assert 'data-name="/goal"' in person.get(path).text and 'data-name="/title"' in person.get(path).text


def test_a_goal_is_queued_for_a_worker_from_the_box(board: Api, person: httpx2.Client) -> None:
    path = converse(board, person)
    assert "A worker begins with" in say(person, path, "/goal tidy up --verify 'true'").text
    assert "waits for a worker" in say(person, path, "/goal").text


def test_the_first_message_of_a_session_is_no_command(board: Api, person: httpx2.Client) -> None:
    answer = person.post("/sessions", data={"csrf": csrf(person), "text": "/help"})
    assert answer.status_code == 400 and "/help works in a session" in answer.text
