"""Plugins in a running program: their tools, hooks and engine take part in real turns."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.rig import write
from whet.app.facade import Agent

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"
ASKS = """
    import time
    from agent.auxiliary_client import call_llm

    def register(ctx):
        def ask(**facts):
            answer = call_llm(task="extraction", messages=[{"role": "user", "content": "said by a plugin"}])
            return {"context": answer.choices[0].message.content}
        ctx.register_hook("pre_llm_call", ask)
"""


@pytest.fixture
def settings(home: Path) -> dict[str, object]:
    """A home with the example plugins, and settings for the practice model."""
    shutil.copytree(EXAMPLES, home / "plugins")
    return {"model.provider": "practice", "model.model": "practice-echo"}


def test_hooks_tools_and_an_engine_take_part(home: Path, tmp_path: Path, settings: dict[str, object]) -> None:
    settings |= {
        "plugins.enabled": ["house-rules", "word-count", "last-words"],
        "context.engine": "last-words",
    }
    with Agent(settings=settings, workspace=tmp_path) as agent:
        assert "finance/invoices" in agent.run("Where is the invoice?").text
        assert "word_count" in agent.session.tools and "finance" not in agent.run("Hello").text
        assert agent._app.contexts.host(agent.session.context).seat.name == "last-words"


def test_a_plugin_may_ask_the_model_and_a_broken_one_is_told_of(
    home: Path, tmp_path: Path, settings: dict[str, object]
) -> None:
    write(home, "asks", ASKS)
    write(home, "broken", "1 / 0")
    settings["plugins.enabled"] = ["broken", "asks"]
    with Agent(settings=settings, workspace=tmp_path) as agent:
        events = list(agent.stream("Hello"))
        assert "said by a plugin" in events[-1].text
        assert any("plugin broken: disabled (import)" in str(event) for event in events)


def test_without_plugins_the_layer_is_not_imported(home: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom whet.app.facade import Agent\n"
        "with Agent(settings={'model.provider': 'practice', 'model.model': 'practice-echo'}) as agent:\n"
        "    agent.run('Hello')\n"
        "print([name for name in sys.modules if name.startswith('whet.plugins')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
