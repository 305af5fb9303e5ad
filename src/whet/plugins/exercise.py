"""Try what a plugin registered, with arguments as a session gives them: each hook, and the life of a memory.

Tools are run elsewhere, for they may send or delete: `trial.py`. Only for a process of its own: `probe.py`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from whet.contract.errors import PluginError
from whet.plugins.calls import blamed, call, fitting, within
from whet.plugins.example_facts import FACTS, ROWS
from whet.plugins.load import LoadedPlugins
from whet.plugins.memories import Memories
from whet.plugins.parts import Problem

_LIMIT_S = 10.0


def exercise(loaded: LoadedPlugins, plugin: str) -> list[str]:
    """Try a plugin's hooks and memories and give what went wrong, a line each."""
    return asyncio.run(_exercise(loaded, plugin))


async def _exercise(loaded: LoadedPlugins, plugin: str) -> list[str]:
    wrong: list[str] = []
    for hook in (one for name in hooks_of(loaded) for one in loaded.hooks.of(name) if one.plugin == plugin):
        try:
            with blamed(plugin, hook.name):
                await within(_LIMIT_S, call(hook.function, **fitting(hook.function, FACTS)))
        except PluginError as error:
            wrong.append(f"its hook {hook.name} fails when it is called: {error.message}")
    for command in loaded.commands:
        if command.plugin == plugin and not _takes_text(command.handler):
            wrong.append(f"its command /{command.name} can't be called with a text")
    problems: list[Problem] = []
    chosen = [one for one in loaded.memory_providers.values() if one.plugin == plugin]
    await _live(Memories(chosen, problems))
    return [*wrong, *(problem.reason for problem in problems)]


def hooks_of(loaded: LoadedPlugins) -> list[str]:
    """Give the names of the hooks that plugins have."""
    return sorted({name for state in loaded.plugins for name in state.has.get("hooks", ())})


async def _live(memories: Memories) -> None:
    steps: list[Callable[[], Awaitable[object]]] = [
        lambda: memories.enter("doctor", {"hermes_home": "", "platform": "cli", "agent_context": "flush"}),
        memories.prompt_block,
        lambda: memories.turn_began(1, "Hello", model="model"),
        lambda: memories.prefetch("Hello", "doctor"),
        lambda: memories.before_compaction(ROWS),
        lambda: memories.enter("doctor-2", {}, left="doctor"),
        memories.shutdown,
    ]
    for step in steps:
        await step()


def _takes_text(handler: Callable[..., object]) -> bool:
    try:
        inspect.signature(handler).bind("text")
    except TypeError:
        return False
    except ValueError:
        return True
    return True
