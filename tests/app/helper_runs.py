"""Sessions whose model asks for helpers: what each model does is read off its own conversation."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.app.goal_runs import Judge
from tests.app.opened import open_app, practice_model
from whet.app.build import App
from whet.config.permission_settings import ApprovalSettings, SandboxSettings
from whet.config.schema import AgentSettings, RewindSettings
from whet_lab.practice.ask import PracticeCall, PracticeRequest
from whet_lab.practice.script import ScriptedReply


def steps(*calls: Sequence[tuple[str, dict[str, Any]]], answer: str = "Over.") -> str:
    rows = [[[name, arguments] for name, arguments in step] for step in calls]
    return "STEPS " + json.dumps({"calls": rows, "answer": answer}) + " END"


def helper(task: str, **wish: Any) -> tuple[str, dict[str, Any]]:
    return "delegate_task", {"task": task, **wish}


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return "terminal", {"command": command}


def process(action: str, name: str = "", **more: Any) -> tuple[str, dict[str, Any]]:
    """Give a call that looks after a helper."""
    return "process", {"action": action, "id": name, **more}


def mind(request: PracticeRequest) -> ScriptedReply:
    """Take the next step of the last message that names steps; answer where all are taken."""
    asked = [
        at
        for at, message in enumerate(request.messages)
        if message.role == "user" and "STEPS " in message.text
    ]
    if not asked:
        return ScriptedReply("Nothing was asked.")
    text = request.messages[asked[-1]].text
    wanted = json.loads(text.partition("STEPS ")[2].rpartition(" END")[0])
    taken = sum(
        bool(message.calls) for message in request.messages[asked[-1] :] if message.role == "assistant"
    )
    if taken < len(wanted["calls"]):
        step = wanted["calls"][taken]
        return ScriptedReply(
            tool_calls=tuple(PracticeCall(name, json.dumps(arguments)) for name, arguments in step)
        )
    return ScriptedReply(wanted["answer"])


@asynccontextmanager
async def program(
    folder: Path, base_url: str, *, parallel: int = 4, record: bool = False
) -> AsyncGenerator[App]:
    """Give a program that works in `folder`/work, where every call is allowed."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    async with open_app(
        folder / "home",
        folder / "work",
        practice_model(base_url, "practice-echo"),
        Judge(),
        agent=AgentSettings(delegate_parallel=parallel),
        approval=ApprovalSettings(mode="auto", allow=("terminal", "write_file", "patch", "process")),
        sandbox=SandboxSettings(mode="off"),
        rewind=RewindSettings(record=record),
    ) as app:
        yield app
