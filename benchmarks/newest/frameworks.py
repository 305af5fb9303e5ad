"""API frameworks of others with `whet serve` as their model."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

from benchmarks import clients
from benchmarks.newest.install import Cache, version_of
from benchmarks.newest.row import Cells, Trial
from benchmarks.serving import serving
from whet_lab.practice.server import PracticeServer

# The packages of each, the main one first, and the drivers of `clients/drive.py` that use it.
CLIENTS = {
    "openai": (["openai"], ("openai", "openai-responses")),
    "anthropic": (["anthropic"], ("anthropic",)),
    "litellm": (["litellm"], ("litellm", "litellm-anthropic")),
    "llm": (["llm"], ("llm",)),
    "openai-agents": (["openai-agents"], ("agents", "agents-chat")),
    "langchain": (["langchain-openai", "langchain-anthropic"], ("langchain", "langchain-anthropic")),
    "pydantic-ai": (
        ["pydantic-ai-slim[openai,anthropic]"],
        ("pydantic-ai", "pydantic-ai-responses", "pydantic-ai-anthropic"),
    ),
}
AGENTS = {
    "langgraph": ["langgraph", "langchain", "langchain-openai"],
    "llama-index": ["llama-index-llms-openai-like", "llama-index-core"],
    "smolagents": ["smolagents[openai]"],
    "haystack": ["haystack-ai"],
    "instructor": ["instructor"],
    "agno": ["agno", "openai"],
    "strands": ["strands-agents[openai]"],
    "dspy": ["dspy"],
}
FEATURES = ("plain", "stream", "tools", "form", "turns")
NODE_PACKAGES = (
    "openai",
    "@anthropic-ai/sdk",
    "ai",
    "@ai-sdk/openai-compatible",
    "@ai-sdk/openai",
    "@ai-sdk/anthropic",
    "zod",
)
NODE = {
    "openai (npm)": ("openai", ("openai", "openai-responses")),
    "@anthropic-ai/sdk (npm)": ("@anthropic-ai/sdk", ("anthropic",)),
    "ai (npm)": ("ai", ("ai", "ai-responses", "ai-anthropic")),
}


def _drive_all(commands: dict[str, list[str]], folder: Path, features: tuple[str, ...]) -> Cells:
    """Drive the features with each command; with several, a cell's name begins with the driver's."""
    cells: dict[str, str] = {}
    with (
        PracticeServer(responder=clients.reply) as model,
        serving(folder, model.base_url) as server,
    ):
        environment = clients.driver_environment(server.url, server.token)
        for name, command in commands.items():
            driven = clients.drive(model, command, environment, features)
            cells |= {f"{name} {key}" if len(commands) > 1 else key: cell for key, cell in driven.items()}
    return _merge(cells) if len(commands) > 1 else cells


def _merge(cells: Cells) -> Cells:
    """Return one cell for each feature: its first fault, "yes" if a driver has it, or why none has it."""
    merged: dict[str, str] = {}
    for key, cell in cells.items():
        driver, feature = key.split(" ")
        before = merged.get(feature, "—")
        if cell.startswith("no:") and not before.startswith("no:"):
            merged[feature] = f"no: {driver}: {cell[4:]}"
        elif before.startswith("—"):
            merged[feature] = cell
    return merged


def _try_client(name: str, cache: Cache, folder: Path) -> tuple[str, Cells]:
    packages, drivers = CLIENTS[name]
    python = cache.python(name, packages)
    commands = {driver: [str(python), str(clients.HERE / "drive.py"), driver] for driver in drivers}
    return version_of(python, packages[0]), _drive_all(commands, folder, clients.FEATURES)


def _try_agent(name: str, cache: Cache, folder: Path) -> tuple[str, Cells]:
    python = cache.python(name, AGENTS[name])
    command = [str(python), str(clients.HERE / "drive_agents.py"), name]
    return version_of(python, AGENTS[name][0]), _drive_all({name: command}, folder, FEATURES)


def _try_node(name: str, cache: Cache, folder: Path) -> tuple[str, Cells]:
    package, drivers = NODE[name]
    node = cache.node() / "node"
    modules = cache.npm("javascript-sdks", NODE_PACKAGES)
    script = shutil.copy(clients.HERE / "drive.mjs", modules / "drive.mjs")
    commands = {driver: [str(node), str(script), driver] for driver in drivers}
    return version_of(modules, package), _drive_all(commands, folder, clients.FEATURES)


TRIALS = [
    *(Trial("framework", name, partial(_try_client, name)) for name in CLIENTS),
    *(Trial("framework", name, partial(_try_agent, name)) for name in AGENTS),
    *(Trial("framework", name, partial(_try_node, name)) for name in NODE),
]
