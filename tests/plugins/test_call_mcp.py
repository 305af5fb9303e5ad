"""`ctx.call_mcp` against a server of the official SDK: its data, its failures, and the gate's no."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.app.opened import ask, open_app, practice_model
from tests.plugins.rig import write
from tests.rewind.running import Consenting
from whet.config.permission_settings import ApprovalSettings, McpServerSettings, McpSettings
from whet.config.schema import PluginSettings
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ROOT = Path(__file__).parents[2]
CALLER = """
    import json
    def register(ctx):
        def handler(args, **facts):
            asked = [("weather", {"place": "Rome"}), ("add", {"a": "x"}), ("wipe", {"name": "it"})]
            asked.append(("none", {}))
            return json.dumps([ctx.call_mcp("bench", *one) for one in asked])
        schema = {"name": "ask_server", "parameters": {"type": "object", "properties": {}}}
        ctx.register_tool("ask_server", "extra", schema, handler, effects={"read"})
"""


@pytest.mark.slow
async def test_a_plugin_gets_a_servers_data_its_failures_and_the_gates_no(home: Path) -> None:
    write(home, "caller", CALLER)
    (home / "config.yaml").write_text("plugins:\n  entries:\n    caller:\n      mcp_allowlist: [bench]\n")
    bench = McpServerSettings(command=sys.executable, args=(str(ROOT / "tests" / "mcp" / "sdk_server.py"),))
    call = ScriptedReply(tool_calls=(PracticeCall("ask_server", "{}", "c1"),))

    class No(Consenting):
        async def approve(self, request: Any) -> Any:
            self.requests.append(request)
            return "deny"

    person = No()

    with PracticeServer(script=[call, ScriptedReply("Done.")]) as server:
        async with open_app(
            home,
            home,
            practice_model(server.base_url),
            person,
            plugins=PluginSettings(enabled=("caller",)),
            approval=ApprovalSettings(mode="auto"),
            mcp=McpSettings(servers={"bench": bench}),
        ) as app:
            await ask(await app.new_session(), "go")
        content = json.loads(server.requests[1].body)["messages"][-1]["content"]
    weather, wrong, wiped, none = json.loads(content)
    assert weather == {"ok": True, "result": {"place": "Rome", "degrees": 21.5}}
    assert wrong["ok"] is False and "untrusted" not in wrong["error"] and wrong["error"]
    assert wiped["ok"] is False and [request.tool for request in person.requests] == ["mcp__bench__wipe"]
    assert none == {"ok": False, "error": "there is no tool named mcp__bench__none"}
