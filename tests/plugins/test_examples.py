"""Every example plugin does what it shows."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.rig import loading
from tests.tools.running import context
from whet.config.schema import ModelSettings
from whet.plugins.load import LoadedPlugins

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
NAMES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())


@pytest.fixture
def loaded(home: Path) -> Iterator[LoadedPlugins]:
    shutil.copytree(EXAMPLES, home / "plugins")
    with loading(home, *NAMES) as everything:
        assert not everything.problems and all(state.is_loaded for state in everything.plugins)
        yield everything


def test_tool(loaded: LoadedPlugins) -> None:
    (tool,) = loaded.tools
    assert tool.effects == {"read"} and tool.toolset == "text"
    assert asyncio.run(tool.run(context(), {"text": "to be or not"})).text == '{"words": 4}'


def test_command(loaded: LoadedPlugins) -> None:
    (command,) = loaded.commands
    assert asyncio.run(command.run("")) == "nothing noted yet"
    assert asyncio.run(command.run("fixed the build")) == "noted"
    assert asyncio.run(command.run("")) == "- fixed the build"


def test_hooks(loaded: LoadedPlugins) -> None:
    hooks = loaded.hooks

    def before(command: str) -> tuple[str, str]:
        verdict = asyncio.run(hooks.before_tool("terminal", {"command": command}))
        return verdict.arguments["command"], verdict.blocked

    assert before("ls") == ("ls", "")
    assert before("npm install left-pad") == ("npm install left-pad --no-fund", "")
    assert "done by people" in before("deploy --env production")[1]
    assert asyncio.run(hooks.transform("for CUST-123456")) == "for CUST-******"
    assert "finance/invoices" in asyncio.run(hooks.context(user_message="Where is the invoice?"))
    assert asyncio.run(hooks.context(user_message="Hello")) == ""


def test_engine(loaded: LoadedPlugins) -> None:
    fresh = loaded.engines["last-words"].make_instance()
    fresh.update_model(model="m", context_length=1_000)
    assert not fresh.should_compress() and fresh.should_compress(800)
    rows = [{"role": ("user", "assistant")[n % 2], "content": str(n)} for n in range(61)]
    kept = fresh.compress(rows)
    assert kept[0] is rows[0] and kept[1]["role"] == "user" and len(kept) <= 21
    assert fresh.compress(rows[:4]) == rows[:4] and fresh.compression_count == 1


def test_memory_provider(loaded: LoadedPlugins) -> None:
    memory = loaded.memory_providers["shared-notes"].provider
    assert memory.prefetch("build") == ""  # type: ignore[attr-defined] (the example's own)
    memory.on_memory_write("add", "memory", "the build needs node 22")  # type: ignore[attr-defined] (as above)
    assert "node 22" in memory.prefetch("fix the build")  # type: ignore[attr-defined] (as above)


def test_skill(loaded: LoadedPlugins) -> None:
    (skill,) = loaded.skills
    assert skill.name == "release-notes" and (skill.folder / "SKILL.md").read_text().startswith("---")


def test_provider(loaded: LoadedPlugins) -> None:
    provider = loaded.providers["company"].open(
        ModelSettings(provider="company", model="small"), {"COMPANY_MODELS_KEY": "x" * 12}
    )
    assert (provider.info.provider, provider.info.model) == ("company", "small")
    asyncio.run(provider.aclose())


def test_notifier(loaded: LoadedPlugins, home: Path) -> None:
    asyncio.run(loaded.notifiers["log-file"].send("Done", "the build is green"))
    assert (home / "notifications.txt").read_text() == "Done: the build is green\n"
