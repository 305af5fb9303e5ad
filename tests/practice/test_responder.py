"""The stand-in's plain requests and its models."""

from __future__ import annotations

import json

import pytest

from tests.practice.loop import OFFERS, Loop
from tests.support import each
from whet_lab.practice.ask import Offer, PracticeCall, PracticeRequest, RequestMessage
from whet_lab.practice.project import make_project
from whet_lab.practice.responder import answer, is_offered


def ask(*heard, model="practice", offers=OFFERS, system="", thinking=False):
    return PracticeRequest("chat_completions", model, system, offers, heard, thinking)


@each(
    ("text", "tool", "arguments"),
    [
        ("list files", "terminal", {"command": "ls -la"}),
        ("Please list the files here.", "terminal", {"command": "ls -la"}),
        ("read README.md", "read_file", {"path": "README.md"}),
        ("Show me `docs/testing.md`.", "read_file", {"path": "docs/testing.md"}),
        ("search for discounted", "search_files", {"pattern": "discounted"}),
        ('Search for "a b" please'.removesuffix(" please"), "search_files", {"pattern": "a b"}),
        ("run `echo hi | wc -c`", "terminal", {"command": "echo hi | wc -c"}),
        ("run echo hi", "terminal", {"command": "echo hi"}),
        (
            "create a file hello.txt with Hello there!",
            "write_file",
            {"path": "hello.txt", "content": "Hello there\n"},
        ),
        ("write abc to x/y.txt", "write_file", {"path": "x/y.txt", "content": "abc\n"}),
        (
            "replace foo with bar in a.txt",
            "patch",
            {"path": "a.txt", "old_string": "foo", "new_string": "bar"},
        ),
        ("run the tests", "terminal", {"command": "python3 -m unittest -q"}),
        ("[2026-11-21 09:00 UTC; in /tmp/list files]\nread a.txt", "read_file", {"path": "a.txt"}),
        ("<context>\nsearch for x\n</context>\nread a.txt", "read_file", {"path": "a.txt"}),
    ],
)
def test_plain_requests_become_calls(text, tool, arguments):
    (call,) = answer(ask(RequestMessage("user", text))).tool_calls
    assert (call.name, json.loads(call.arguments)) == (tool, arguments)


def test_the_tools_own_argument_names_are_used():
    offers = {
        "terminal": Offer(
            "terminal",
            {
                "properties": {"cmd": {"type": "string"}, "mode": {"enum": ["a", "b"]}},
                "required": ["cmd", "mode"],
            },
        ),
        "process": Offer("process", {"properties": {"action": {"type": "string"}}}),
        "web_fetch": Offer("web_fetch", {"properties": {"url": {"type": "string"}}}),
        "clarify": Offer("clarify", {"properties": {"question": {"type": "string"}}}),
        "session_search": Offer("session_search", {"properties": {"query": {"type": "string"}}}),
        "delegate_task": Offer("delegate_task", {"properties": {"tasks": {"type": "array"}}}),
    }
    asked = {
        "run ls": ("terminal", {"cmd": "ls", "mode": "a"}),
        "list the processes": ("process", {"action": "list"}),
        "fetch https://example.org/a": ("web_fetch", {"url": "https://example.org/a"}),
        "ask me which one": ("clarify", {"question": "which one?"}),
        "search my sessions for totals": ("session_search", {"query": "totals"}),
        "delegate: list files": ("delegate_task", {"tasks": ["list files"]}),
        "run sleep 5 in the background": ("terminal", {"cmd": "sleep 5", "background": True, "mode": "a"}),
    }
    for text, expected in asked.items():
        (call,) = answer(ask(RequestMessage("user", text), offers=offers)).tool_calls
        assert (call.name, json.loads(call.arguments)) == expected


def test_results_are_reported_as_they_are(tmp_path):
    loop = Loop(tmp_path)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert "   2\ttwo" in loop.ask("read a.txt")
    assert "no-such-command" in loop.ask("run no-such-command")
    loop.gate = lambda command: "Denied: nobody was there to ask."
    text = loop.ask("run echo hi")
    assert "was not run" in text and "nobody was there to ask" in text


def test_long_results_are_cut_and_the_rest_is_counted(tmp_path):
    assert "60 more lines are not shown" in Loop(tmp_path).ask("run seq 100")


@pytest.mark.parametrize("text", ["what can you do", "hello", "explain quantum physics", "help"])
def test_anything_else_gets_an_honest_answer(text):
    reply = answer(ask(RequestMessage("user", text)))
    assert not reply.tool_calls
    assert "a scripted stand-in, not a language model" in reply.text
    assert "whet config set model.provider" in reply.text and "OPENAI_API_KEY" in reply.text


def test_a_missing_tool_is_named():
    assert "`web_fetch`" in answer(ask(RequestMessage("user", "fetch https://example.org"))).text


@pytest.mark.slow
def test_running_tests_recovers_from_the_missing_setting(tmp_path):
    make_project(tmp_path)
    loop = Loop(tmp_path)
    assert loop.ask("run the tests").startswith("The tests fail.")
    assert loop.commands == ["python3 -m unittest -q", "read_file", "ORDERS_DB=memory python3 -m unittest -q"]
    loop.calls.clear()
    loop.ask("run the tests")
    assert loop.commands == ["ORDERS_DB=memory python3 -m unittest -q"]


@pytest.mark.slow
def test_a_folder_without_tests_gives_no_verdict(tmp_path):
    assert Loop(tmp_path).ask("run the tests").startswith("I can't tell whether tests pass")


def test_ids_never_come_back_when_the_past_is_shortened(tmp_path):
    loop = Loop(tmp_path)
    loop.ask("run echo 1")
    loop.ask("run echo 2")
    loop.heard.clear()
    loop.ask("run echo 3")
    assert len({call.id for call in loop.calls}) == 3


def test_echo_and_thinking():
    assert answer(ask(RequestMessage("user", "same"), model="practice-echo")).text == "same"
    assert "does not think" in answer(ask(RequestMessage("user", "hi"), thinking=True)).reasoning


def test_steps_prefer_harmless_tools_and_fill_what_is_required():
    def call(offers, text="go"):
        request = ask(RequestMessage("user", text), model="practice-steps-2", offers=offers)
        (tool_call,) = answer(request).tool_calls
        return tool_call.name, json.loads(tool_call.arguments)

    string = {"type": "string"}
    schema = {"properties": {"path": string, "n": {"type": "integer"}}, "required": ["path", "n"]}
    assert call(OFFERS, "go through notes.txt") == ("read_file", {"path": "notes.txt"})
    assert call(OFFERS) == ("read_file", {"path": "README.md"})
    assert call({"x": Offer("x", schema), "noop": Offer("noop", {})}) == ("noop", {})
    assert call({"x": Offer("x", schema)}) == ("x", {"path": "README.md", "n": 1})
    assert "no tool" in answer(ask(RequestMessage("user", "go"), model="practice-steps-2", offers={})).text


def test_steps_count_from_the_last_user_message():
    call = RequestMessage("assistant", "", (PracticeCall("noop", "{}", "a"),))
    done = call, RequestMessage("tool", "ok", call_id="a")
    offers = {"noop": Offer("noop", {})}
    assert answer(
        ask(RequestMessage("user", "go"), *done, model="practice-steps-1", offers=offers)
    ).text.startswith("Done: 1")
    again = ask(
        RequestMessage("user", "go"),
        *done,
        RequestMessage("user", "more"),
        model="practice-steps-1",
        offers=offers,
    )
    assert answer(again).tool_calls


def test_models():
    assert is_offered("practice") and is_offered("practice-steps-123")
    assert not is_offered("gpt-9") and not is_offered("practice-steps-x")
