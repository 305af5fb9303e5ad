"""Load plugins in a separate process and report the outcome, so that a bad plugin can't harm this process.

`python -m whet.plugins.probe HOME WORKSPACE try|load NAME...` is that process. It prints a JSON array on
stdout; plugins' output goes to stderr.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from whet.config.paths import Home
from whet.config.schema import PluginSettings
from whet.contract.errors import PluginError
from whet.contract.texts import from_json
from whet.log import mask
from whet.plugins.calls import accepted_keywords, attribute_errors, call, within
from whet.plugins.example_facts import FACTS, ROWS
from whet.plugins.load import LoadedPlugins, PluginHost, load_plugins
from whet.plugins.memories import Memories
from whet.plugins.parts import Problem
from whet.plugins.trial import try_tools

LIMIT_S = 60.0
_HOOK_LIMIT_S = 10.0


class PluginProbe(msgspec.Struct, frozen=True):
    """The outcome for one plugin. `registrations` are the names of its parts by kind.

    `load_s` is the time to load all plugins of the process. `tried` is the outcome by tool: "" if it
    answered, otherwise a reason. `folder` is "" for an installed package.
    """

    name: str
    is_loaded: bool
    registrations: dict[str, list[str]] = {}
    problems: list[str] = []
    load_s: float = 0.0
    tried: dict[str, str] = {}
    folder: str = ""


def probe_plugins(
    home: Home,
    names: Sequence[str],
    *,
    workspace: Path | None = None,
    limit_s: float = LIMIT_S,
    tries: bool = True,
) -> list[PluginProbe]:
    """Load these plugins together in a child process and return the outcome of each.

    If that process hangs or dies, each plugin is loaded in its own process. If `tries`, also call the hooks
    and memories with example events, and run the tools in a sandbox.
    """
    outcome = _probe_in_child(home, names, workspace, limit_s, tries=tries)
    if isinstance(outcome, str) and len(names) > 1:
        probes: list[PluginProbe] = []
        for name in names:
            outcome = _probe_in_child(home, [name], workspace, limit_s, tries=tries)
            probes += _probes_or_failures([name], outcome)
    else:
        probes = _probes_or_failures(names, outcome)
    return [_add_tool_results(home, probe) for probe in probes] if tries else probes


def _add_tool_results(home: Home, probe: PluginProbe) -> PluginProbe:
    if not (probe.is_loaded and probe.registrations.get("tools")):
        return probe
    tried = try_tools(home, probe.name, Path(probe.folder) if probe.folder else None)
    return msgspec.structs.replace(probe, tried=tried)


def _probes_or_failures(names: Sequence[str], outcome: list[PluginProbe] | str) -> list[PluginProbe]:
    if isinstance(outcome, str):
        return [PluginProbe(name, False, problems=[outcome]) for name in names]
    return outcome


def _probe_in_child(
    home: Home, names: Sequence[str], workspace: Path | None, limit_s: float, *, tries: bool
) -> list[PluginProbe] | str:
    """Return the outcome of each plugin, or the reason why the process reported none."""
    # -P: files in the current folder must not be imported as our modules.
    command = [sys.executable, "-P", "-m", "whet.plugins.probe", str(home.root), str(workspace or "")]
    command += ["try" if tries else "load", *names]
    try:
        process = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"loading did not end in {limit_s:g} s"
    try:
        return from_json(process.stdout, list[PluginProbe])
    except msgspec.DecodeError:
        last_line = process.stderr.decode(errors="replace").strip().rpartition("\n")[2].strip()
        code = process.returncode
        end = f"signal {-code}" if code < 0 else f"code {code}"
        return f"the process ended with {end} while loading. {mask(last_line)[:200]}".strip()


def main(arguments: Sequence[str]) -> None:
    """Load plugins and report. `arguments`: the home, the workspace or "", "try" or "load", and the names."""
    report = os.dup(1)
    os.dup2(2, 1)
    home, workspace, mode, *names = arguments
    settings = PluginSettings(enabled=tuple(names), project=bool(workspace))
    began_s = time.monotonic()
    host = PluginHost(workspace=Path(workspace) if workspace else None)
    loaded = load_plugins(Home(Path(home)), settings, os.environ, host)
    load_s = time.monotonic() - began_s
    own_names = {state.manifest.name for state in loaded.plugins} if mode == "try" else set[str]()
    tried = {name: exercise(loaded, name) for name in own_names}
    states = {name: state for state in loaded.plugins for name in (state.manifest.name, state.key)}
    probes = [
        PluginProbe(
            name,
            name in states and states[name].is_loaded,
            states[name].registrations if name in states else {},
            [problem.reason for problem in loaded.problems if problem.plugin == name]
            + (tried.get(states[name].manifest.name, []) if name in states else []),
            round(load_s, 3),
            folder=str(states[name].folder or "") if name in states else "",
        )
        for name in names
    ]
    loaded.close()
    with os.fdopen(report, "wb") as file:
        file.write(msgspec.json.encode(probes))


def exercise(loaded: LoadedPlugins, plugin: str) -> list[str]:
    """Try a plugin's hooks and memories. Returns the failures, one line each."""
    return asyncio.run(_exercise(loaded, plugin))


async def _exercise(loaded: LoadedPlugins, plugin: str) -> list[str]:
    failures: list[str] = []
    hooks = [hook for name in hooks_of(loaded) for hook in loaded.hooks.hooks_named(name)]
    for hook in hooks:
        if hook.plugin != plugin:
            continue
        try:
            with attribute_errors(plugin, hook.name):
                await within(_HOOK_LIMIT_S, call(hook.function, **accepted_keywords(hook.function, FACTS)))
        except PluginError as error:
            failures.append(f"its hook {hook.name} fails when it is called: {error.message}")
    for command in loaded.commands:
        if command.plugin == plugin and not _takes_text(command.handler):
            failures.append(f"its command /{command.name} can't be called with a text")
    problems: list[Problem] = []
    memories = [memory for memory in loaded.memory_providers.values() if memory.plugin == plugin]
    await _call_memories(Memories(memories, problems))
    return [*failures, *(problem.reason for problem in problems)]


def hooks_of(loaded: LoadedPlugins) -> list[str]:
    """Return the names of the hooks that plugins have."""
    return sorted({name for state in loaded.plugins for name in state.registrations.get("hooks", ())})


async def _call_memories(memories: Memories) -> None:
    steps: list[Callable[[], Awaitable[object]]] = [
        lambda: memories.enter("doctor", {"hermes_home": "", "platform": "cli", "agent_context": "flush"}),
        memories.prompt_block,
        lambda: memories.notify_turn_start(1, "Hello", model="model"),
        lambda: memories.prefetch("Hello", "doctor"),
        lambda: memories.before_compaction(ROWS),
        lambda: memories.enter("doctor-2", {}, previous_id="doctor"),
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


if __name__ == "__main__":
    main(sys.argv[1:])
