"""A hundred tools behind two: found by words, called under their own names, behind an unchanged prefix."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.cli.running import flags, run
from tests.mcp.rig import HERE, bench
from whet.config.permission_settings import McpServerSettings
from whet.contract.errors import BadInput
from whet.contract.tools import Tool, ToolOutput, ToolSpec
from whet.mcp.finding import ToolFinder
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

BIG = (sys.executable, "-S", str(HERE / "big_server.py"))
SERVER = McpServerSettings(command=BIG[0], args=BIG[1:])
TOKENS, CHARS = 600, 4


def shown(tools: Sequence[Tool]) -> list[Tool]:
    """What the model is told of at the start."""
    return [tool for tool in tools if "deferred" not in tool.tags]


@pytest.mark.slow
async def test_a_hundred_tools_take_up_little_and_are_found_by_words(home: Path) -> None:
    async with bench(home, {"big": SERVER}) as b:
        tools = b.servers.tools()
        first = shown(tools)
        assert [tool.name for tool in first] == ["mcp_find", "mcp_call"] and len(tools) == 102
        assert len(msgspec.json.encode([tool.spec for tool in first])) <= TOKENS * CHARS
        for words, name in {
            "create a new bug report": "create_issue",
            "remove an invoice": "delete_invoice",
            "searching contacts": "search_contact",
            "pull requests list": "list_pull_request",
            "download the spreadsheet": "export_spreadsheet",
            "meeting update": "update_calendar_event",
            "comment on the handbook page": "comment_on_wiki_page",
            "mcp__big__share_photo": "share_photo",
            "which release runs on the servers": "get_deployment",
        }.items():
            text = (await b.call("mcp_find", query=words)).text
            best = [line for line in text.splitlines() if line.startswith("mcp__big__")]
            wanted = name.rpartition("_")[2] if name == "get_deployment" else name
            assert wanted in best[0], (words, best)
            assert "Fields that are left out stay as they are." in text and '"properties"' in text
        assert "No tool fits" in (await b.call("mcp_find", query="zyzzogeton")).text
        with pytest.raises(BadInput, match="query"):
            await first[0].run(None, {})  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="name says which tool"):
            first[1].stands_for({"arguments": {}})  # type: ignore[misc]


async def test_few_tools_are_sent_as_they_are(home: Path) -> None:
    few = McpServerSettings(command=BIG[0], args=BIG[1:], allow=("*_photo",))
    async with bench(home, {"big": few}) as b:
        assert len(shown(b.servers.tools())) == 10


def test_what_is_called_is_a_tool_that_there_is() -> None:
    async def never(*_given: object) -> ToolOutput:
        raise AssertionError

    shape = {"type": "object", "properties": {"to": {"type": "array"}}}
    spec = ToolSpec("mcp__s__send_mail", "Send a letter.", shape)
    tools = {"s": [Tool(spec=spec, toolset="mcp", effects=frozenset({"execute"}), run=never)]}
    meant = ToolFinder(tools, "mcp").tools()[1].stands_for
    assert meant and meant({"name": spec.name, "arguments": {"a": 1, "to": '["x"]'}}) == (
        spec.name,
        {"a": 1, "to": ["x"]},
    )
    for wrong in (
        {"name": "mail"},
        {"name": "terminal", "arguments": {}},
        {"name": spec.name, "arguments": "x"},
        {},
    ):
        with pytest.raises(BadInput):
            meant(wrong)


@pytest.mark.slow
def test_found_and_called_in_a_chat_prefix_and_rules_stay_the_tools_own(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    home.mkdir()
    server = json.dumps({"command": BIG[0], "args": BIG[1:]})
    (home / "config.yaml").write_text(f"mcp:\n  servers:\n    big: {server}\n")
    code, out, err = run(["mcp", "test", "big", "--json"], folder)
    assert code == 0, err
    assert run(["mcp", "trust", "big", "create_issue", "delete_issue"], folder)[0] == 0

    def call(tool: str) -> PracticeCall:
        return PracticeCall("mcp_call", json.dumps({"name": f"mcp__big__{tool}", "arguments": {"text": "x"}}))

    with PracticeServer() as server:
        server.install(
            [
                ScriptedReply(tool_calls=(PracticeCall("mcp_find", json.dumps({"query": "new issue"})),)),
                ScriptedReply(tool_calls=(call("create_issue"), call("delete_issue"), call("delete_photo"))),
                ScriptedReply(tool_calls=(PracticeCall("mcp__big__create_issue", "{}"),)),
                ScriptedReply("Done."),
            ]
        )
        code, out, err = run(["chat", "-q", "File it.", "--json", *flags(server)], folder)
        done = json.loads(out)
        bodies = [json.loads(request.body) for request in server.requests]
    assert code == 0, err
    assert [(tool_call["name"], tool_call["ok"]) for tool_call in done["tool_calls"]] == [
        ("mcp_find", True),
        ("mcp_call", True),
        ("mcp_call", True),
        ("mcp_call", False),
        ("mcp__big__create_issue", True),
    ]
    for before, after in itertools.pairwise(bodies):
        assert before["tools"] == after["tools"]
        assert after["messages"][: len(before["messages"])] == before["messages"]
    contents = [row["content"] for row in bodies[-1]["messages"] if row["role"] == "tool"]
    assert 'create_issue {"text": "x"}' in contents[1] and 'delete_issue {"text": "x"}' in contents[2]
    assert "Nobody was there to ask" in contents[3]
    assert len([tool for tool in bodies[0]["tools"] if "mcp" in tool["function"]["name"]]) == 2


@pytest.mark.slow
def test_trust_names_each_tool_and_a_pattern_that_misses_it_is_said(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    home.mkdir()
    settings = {
        "mcp": {"servers": {"big": {"command": BIG[0], "args": list(BIG[1:]), "allow": ["*_photo"]}}},
        "approval": {"allow": ["mcp__big__*", "web_fetch"]},
    }
    (home / "config.yaml").write_text(json.dumps(settings))
    assert "not known yet" in run(["mcp", "trust", "big"], folder)[2]
    report = json.loads(run(["mcp", "test", "--json"], folder)[1])["servers"][0]
    assert report["asked_about"] == ["mcp__big__delete_photo"]
    assert "whet mcp trust big delete_photo" in " ".join(run(["mcp", "test"], folder)[1].split())
    assert "may destroy" in run(["mcp", "trust", "big", "delete_photo"], folder)[1]
    assert json.loads(run(["mcp", "test", "--json"], folder)[1])["servers"][0]["asked_about"] == []
    assert "has no tool 'nope'" in run(["mcp", "trust", "big", "nope"], folder)[2]
    everything = json.loads(run(["mcp", "trust", "big", "--json"], folder)[1])
    assert len(everything["tools"]) == 10
    assert run(["mcp", "trust", "big", "--remove"], folder)[0] == 0
    allow = json.loads(run(["config", "get", "approval.allow", "--json"], folder)[1])
    assert "mcp__big__*" in json.dumps(allow) and "delete_photo" not in json.dumps(allow)
