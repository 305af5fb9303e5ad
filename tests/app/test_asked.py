"""What was shown is what runs: a yes holds for those bytes only, for tools of programs too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.agent.rig import calls
from whet.app.facade import AsyncAgent
from whet.contract.events import ApprovalAsked, Event, ToolFinished
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.tools.signature import make_tool
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined

PATCH = ("patch", '{"path": "a.py", "old_string": "one", "new_string": "two"}')


class Asked:
    """A person who does something while asked, and then answers."""

    def __init__(self, answer: Callable[[ApprovalRequest], Answer | Reply | None]) -> None:
        self.requests: list[ApprovalRequest] = []
        self._answer = answer

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        self.requests.append(request)
        return self._answer(request)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        return None


def go(
    folder: Path, person: Asked, *replies: ScriptedReply, tools: Sequence[object] = ()
) -> tuple[list[Event], str]:
    """Run a turn; give its events and the last request."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "a.py").write_text("one\n")

    async def story(server: PracticeServer) -> list[Event]:
        settings = {
            "model.provider": "practice",
            "model.base_url": server.base_url,
            "model.model": "practice",
        }
        async with AsyncAgent(
            home=folder / "home",
            workspace=work,
            person=person,
            settings={**settings, "review.worker": "off"},
            tools=tools,  # type: ignore[arg-type]
        ) as agent:
            return [event async for event in agent.stream("go")]

    with PracticeServer(script=[*replies, ScriptedReply("Done.")]) as server:
        events = asyncio.run(story(server))
        return events, server.requests[-1].body.decode()


def test_a_file_that_changed_under_the_question_is_not_written(tmp_path: Path) -> None:
    def meddle(request: ApprovalRequest) -> Answer:
        if len(person.requests) == 1:
            (tmp_path / "work" / "a.py").write_text("zero\none\n")
        return "once"

    person = Asked(meddle)
    _, text = go(tmp_path, person, calls(PATCH), calls(PATCH))
    assert "changed after the person was shown" in text and len(person.requests) == 2
    assert (tmp_path / "work" / "a.py").read_text() == "zero\ntwo\n"  # the second question showed that


def test_two_edits_of_a_file_in_one_reply_are_each_shown_as_they_will_be(tmp_path: Path) -> None:
    person = Asked(lambda request: "once")
    second = ("patch", '{"path": "a.py", "old_string": "two", "new_string": "three"}')
    events, _ = go(tmp_path, person, calls(PATCH, second))
    assert [request.changes[0].old for request in person.requests] == ["one\n", "two\n"]
    assert (tmp_path / "work" / "a.py").read_text() == "three\n"
    edits = [event.edits[0] for event in events if isinstance(event, ToolFinished)]
    assert [(edit.path, edit.added, edit.removed) for edit in edits] == [("a.py", 1, 1)] * 2
    assert "-one\n+two" in edits[0].diff


def test_an_edit_that_can_not_run_is_told_and_asked_again(tmp_path: Path) -> None:
    wrong: dict[str, object] = {"path": "a.py", "old_string": "nowhere", "new_string": "x"}

    def answer(request: ApprovalRequest) -> Reply:
        return Reply("once", arguments=wrong) if len(person.requests) == 1 else Reply("no", words="enough")

    person = Asked(answer)
    events, text = go(tmp_path, person, calls(PATCH))
    assert any("can't run" in getattr(event, "text", "") for event in events)
    assert len(person.requests) == 2 and "Their words: enough" in text
    assert (tmp_path / "work" / "a.py").read_text() == "one\n"


def test_an_edit_may_not_go_where_a_rule_forbids(tmp_path: Path) -> None:
    deadly: dict[str, object] = {"command": "rm -rf /"}
    person = Asked(lambda r: Reply("once", arguments=deadly) if len(person.requests) == 1 else "no")
    events, _ = go(tmp_path, person, calls(("terminal", '{"command": "touch made"}')))
    assert any("denied by policy" in getattr(event, "text", "") for event in events)
    assert not (tmp_path / "work" / "made").exists()


def test_a_programs_own_tool_that_edits_shows_its_diff_and_is_held_to_it(tmp_path: Path) -> None:
    async def put_text(path: str, content: str) -> str:
        """Write a file."""
        (tmp_path / "work" / path).write_text(content)
        return "written"

    mine = make_tool(put_text, toolset="own", effects={"write"}, tags=("path", "edits", "whole"))

    def meddle(request: ApprovalRequest) -> Answer:
        if len(person.requests) == 1:
            (tmp_path / "work" / "a.py").write_text("theirs\n")
        return "once"

    person = Asked(meddle)
    put = ("put_text", '{"path": "a.py", "content": "mine\\n"}')
    events, text = go(tmp_path, person, calls(put), calls(put), tools=[mine])
    assert [(c.old, c.new) for r in person.requests for c in r.changes] == [
        ("one\n", "mine\n"),
        ("theirs\n", "mine\n"),
    ]
    assert "changed after the person was shown" in text
    asked = [event for event in events if isinstance(event, ApprovalAsked)]
    assert all(event.edits[0].diff for event in asked)
    assert (tmp_path / "work" / "a.py").read_text() == "mine\n"


def test_nothing_covers_all_files_by_one_key(tmp_path: Path) -> None:
    person = Asked(lambda request: "no")
    writes = [
        ("write_file", f'{{"path": "{path}", "content": "x"}}')
        for path in ("a.py", "deep/er/b.py", "we*rd.txt", "../out.txt", ".git/config")
    ]
    go(tmp_path, person, *(calls(write) for write in writes), calls(PATCH))
    scopes = [scope for request in person.requests for scope in request.scopes]
    rules = {rule for scope in scopes for rule in scope.rules}
    assert rules >= {("write_file", "we\\*rd.txt"), ("write_file", "deep/er/*"), ("patch", "a.py")}
    assert not [scope for scope in scopes for pattern in scope.patterns if pattern.startswith("*")]
