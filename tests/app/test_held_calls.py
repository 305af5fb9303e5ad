"""A reply whose calls are planned together ends, also if one of them stops what runs in the sandbox."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.agent.rig import calls
from tests.app.opened import ask, open_app, practice_model
from tests.approval.test_gate import Someone
from whet.config.permission_settings import ApprovalSettings, HookSettings, HooksSettings
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow
OUTSIDE = ("terminal", '{"command": "sudo -n true; touch ran"}')
JOB = ("terminal", '{"command": "sleep 60", "background": true}')
OTHERS = {
    "a call with a hook": ("read_file", '{"path": "a.txt"}'),
    "a helper": ("delegate_task", '{"task": "write b.txt"}'),
    "a command inside": ("terminal", '{"command": "echo x > b.txt"}'),
    "a missing folder": ("terminal", '{"command": "sudo -n true", "workdir": "none"}'),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "second"])
def test_a_call_beside_one_with_full_rights_ends(
    tmp_path: Path, other: tuple[str, str], is_first: bool
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("a")
    both = (other, OUTSIDE) if is_first else (OUTSIDE, other)
    # of the turn, and of the helper that it may start
    script = [calls(JOB), calls(*both), *[ScriptedReply("done")] * 4]
    hooks = {"guard": HookSettings("PreToolUse", "true", tools="read_file")}

    async def main() -> str:
        with PracticeServer(script=script) as server:
            model = practice_model(server.base_url)
            async with (
                asyncio.timeout(60),
                open_app(
                    tmp_path / "home",
                    workspace,
                    model,
                    Someone("once", "once"),
                    approval=ApprovalSettings(mode="ask"),
                    hooks=HooksSettings(hooks),
                ) as app,
            ):
                return (await ask(await app.new_session(), "do it")).reason

    assert asyncio.run(main()) == "answered"
    assert os.path.exists(workspace / "a.txt")
