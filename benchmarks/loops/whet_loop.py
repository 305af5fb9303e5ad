"""The same conversation through Whet's own loop: gate, store with fsync, events, everything on.

Run as: python whet_loop.py BASE_URL STEPS
"""

import asyncio
import gc
import itertools
import json
import resource
import sys
import tempfile
from pathlib import Path

from benchmarks.loops.peak import peak_mb
from whet.agent.loop import run_turn
from whet.app.build import App
from whet.config.paths import Home
from whet.config.schema import AgentSettings, ModelSettings, Settings
from whet.contract.events import Event
from whet.contract.protocols import NobodyPresent
from whet.contract.tools import ToolContext
from whet.tools.signature import tool

_CALLS = itertools.count()


@tool(toolset="file", effects={"read"}, parallel=True, repeatable=True)
async def noop(ctx: ToolContext) -> str:
    """Do nothing."""
    return f"ok {next(_CALLS)}"  # a call that repeats without change is stopped


async def turn_of(base_url: str, model: str, folder: Path) -> float:
    """Give the CPU seconds of a turn that this model answers."""
    _, spent = await measured(base_url, model, 10_000, folder)
    return spent


async def measured(base_url: str, model: str, max_steps: int, folder: Path) -> tuple[int, float]:
    """Give a turn's steps and CPU seconds."""
    settings = Settings(
        model=ModelSettings(provider="practice", base_url=base_url, model=model),
        agent=AgentSettings(max_steps=max_steps),
    )
    app = await App.start(Home(folder / "home"), settings, {}, NobodyPresent(), folder)
    app.services.tools.registry.add(noop)
    await app.services.models.provider.list_models()  # connect and load what is loaded late
    gc.freeze()  # as the program does once it has started (cli/launch.py)
    gc.set_threshold(50_000, 20, 50)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    session = await app.new_session()

    def ignore(event: Event) -> None:
        pass

    end = await run_turn(session, session.user_message("go"), ignore)
    assert end.reason == "answered", end
    usage = resource.getrusage(resource.RUSAGE_SELF)
    spent = usage.ru_utime + usage.ru_stime - cpu
    await app.aclose()
    return end.steps, spent


async def main(base_url: str, steps: int, folder: Path) -> None:
    calls, spent = await measured(base_url, f"practice-steps-{steps}", steps + 10, folder)
    print(json.dumps({"calls": calls, "loop_cpu_s": spent, "rss_mb": peak_mb()}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(name)))
