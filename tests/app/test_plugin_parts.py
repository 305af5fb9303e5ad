"""Plugins in a running program: their tools, hooks and engine take part in real turns."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.agent.rig import calls
from tests.app.opened import ask, open_app, opened, practice_model
from tests.plugins.rig import write
from whet.app.build import App
from whet.app.facade import Agent
from whet.config.paths import Home
from whet.config.permission_settings import ApprovalSettings, SandboxSettings
from whet.config.schema import ModelSettings, NotifySettings, PluginSettings, Settings
from whet.contract.errors import PluginError
from whet.contract.events import TurnEnd
from whet.contract.protocols import Answer, ApprovalRequest, NobodyPresent
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

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


async def test_hooks_tools_and_an_engine_take_part(
    home: Path, tmp_path: Path, settings: dict[str, object]
) -> None:
    settings |= {
        "plugins.enabled": ["house-rules", "word-count", "last-words"],
        "context.engine": "last-words",
    }
    async with opened(settings, tmp_path) as app:
        session = await app.new_session()
        assert "finance/invoices" in (await ask(session, "Where is the invoice?")).text
        assert "word_count" in session.tools and "finance" not in (await ask(session, "Hello")).text
        assert app.services.contexts.host(session.context).runner.name == "last-words"


async def test_what_a_plugin_asks_the_model_counts_against_the_caps(
    home: Path, tmp_path: Path, settings: dict[str, object]
) -> None:
    write(home, "asks", ASKS)
    settings |= {
        "plugins.enabled": ["asks"],
        "wallet.daily_tokens": 900_000,
        "wallet.session_tokens": 900_000,
    }
    async with opened(settings, tmp_path) as app:
        assert (await ask(await app.new_session(), "Hello")).reason == "answered"
        select = "SELECT what, settled, scopes LIKE '%session%' FROM wallet_calls ORDER BY id"
        rows = app.database.read_now(lambda c: c.execute(select).fetchall())
        assert rows == [("plugin", 1, 0), ("turn", 1, 1)]


def test_a_plugin_may_ask_the_model_and_a_broken_one_is_told_of(
    home: Path, tmp_path: Path, settings: dict[str, object]
) -> None:
    write(home, "asks", ASKS)
    write(home, "broken", "1 / 0")
    settings["plugins.enabled"] = ["broken", "asks"]
    with Agent(settings=settings, workspace=tmp_path) as agent:
        events = list(agent.stream("Hello"))
        assert isinstance(events[-1], TurnEnd) and "said by a plugin" in events[-1].text
        assert any("plugin broken: disabled (import)" in str(event) for event in events)


LIFE = """
    import gateway.session_context as served
    from pathlib import Path

    def register(ctx):
        file = ctx.home / "life.txt"

        def write(name, session="", **facts):
            seen = served.get_session_env("HERMES_SESSION_ID"), served.get_session_env("HERMES_SESSION_KEY")
            words = [f"{key}={value}" for key, value in facts.items()]
            with file.open("a") as out:
                out.write(" ".join([name, *seen, *map(str, words)]) + "\\n")

        for name in ("on_session_start", "on_session_end", "on_session_reset"):
            ctx.register_hook(name, lambda session_id, old_session_id="", name=name:
                              write(name, about=session_id, old=old_session_id))
        def start(parent_session_id, child_session_id, child_goal):
            write("subagent_start", parent=parent_session_id, child=child_session_id, goal=child_goal)

        def stop(child_session_id, child_status, child_summary):
            write("subagent_stop", child=child_session_id, status=child_status, said=child_summary)

        ctx.register_hook("subagent_start", start)
        ctx.register_hook("subagent_stop", stop)
        ctx.register_tool(name="who", toolset="life", schema={"name": "who"}, effects={"read"},
                          handler=lambda args: served.get_session_env("HERMES_SESSION_ID"))
        ctx.register_command("who", lambda text: served.get_session_env("HERMES_SESSION_KEY"))
"""


def test_hooks_of_a_life_and_which_session_is_served(home: Path, tmp_path: Path) -> None:
    """A reset is told with the session that was left, a delegated task with its parent, each end once."""
    write(home, "life", LIFE)
    script = [
        calls(("who", "{}"), ("delegate_task", '{"task": "dig"}')),
        ScriptedReply("Dug."),
        ScriptedReply("One."),
        ScriptedReply("Two."),
    ]

    async def main(server: PracticeServer) -> tuple[str, str, str]:
        async with open_app(
            home,
            tmp_path,
            practice_model(server.base_url),
            plugins=PluginSettings(enabled=("life",)),
            approval=ApprovalSettings(mode="auto"),
        ) as app:
            session = await app.new_session()
            await ask(session, "go")
            assert session.log.messages[2].text == session.id
            new = await app.new_session(leaving=session)
            await ask(new, "more")
        return (
            session.id,
            new.id,
            session.log.messages[3].text.rpartition("[helper session ")[2].split(":")[0],
        )

    with PracticeServer(script=script) as server:
        first, second, child = asyncio.run(main(server))
    text = (home / "life.txt").read_text()
    for name, label in ((first, "A"), (second, "B"), (child, "C")):
        text = text.replace(name, label)
    assert text.splitlines() == [
        "on_session_start A A about=A old=",
        "on_session_start C A about=C old=",
        "subagent_start A A parent=A child=C goal=dig",
        "on_session_end C A about=C old=",
        "subagent_stop A A child=C status=answered said=Dug.",
        "on_session_end A A about=A old=",
        "on_session_reset B A about=B old=A",
        "on_session_start B A about=B old=",
        "on_session_end B A about=B old=",
    ]


COMPANY = """
    from whet.providers.connect import connect_one
    import msgspec

    def register(ctx):
        def make(model, secrets):
            wanted = msgspec.structs.replace(model, provider="practice", base_url=secrets["WHERE"])
            return connect_one(wanted, secrets)
        ctx.register_provider("company", make)
        ctx.register_provider("broken", lambda model, secrets: 1 / 0)
        ctx.register_provider("nothing", lambda model, secrets: None)
        ctx.register_provider("openai", make)
"""


@pytest.mark.slow
def test_a_plugins_provider_answers_and_a_broken_one_is_an_error_in_a_line(
    home: Path, tmp_path: Path
) -> None:
    write(home, "company", COMPANY)

    async def main(provider: str, where: str) -> str:
        model = ModelSettings(provider=provider, model="practice-echo")
        settings = Settings(model=model, plugins=PluginSettings(enabled=("company",)))
        async with aclosing(
            await App.start(Home(home), settings, {"WHERE": where}, NobodyPresent(), tmp_path)
        ) as app:
            assert any("openai is refused" in line for line in app.services.plugins.loaded.take_news())  # type: ignore[union-attr]
            session = await app.new_session()
            return (await ask(session, "hello there")).text

    with PracticeServer() as server:
        assert "hello there" in asyncio.run(main("company", server.base_url))
        for name, words in (("broken", "ZeroDivisionError"), ("nothing", "no Provider")):
            with pytest.raises(PluginError, match=words):
                asyncio.run(main(name, server.base_url))


class Yes(NobodyPresent):
    async def approve(self, request: ApprovalRequest) -> Answer | None:
        return "once"


def test_notifiers_are_told_of_questions_and_long_turns_and_hold_nothing_up(
    home: Path, tmp_path: Path
) -> None:
    shutil.copytree(EXAMPLES / "log-file", home / "plugins" / "log-file")
    write(home, "mute", "def register(ctx):\n    ctx.register_notifier('mute', lambda title, text: 1 / 0)\n")

    async def main(server: PracticeServer) -> list[str]:
        async with open_app(
            home,
            tmp_path,
            practice_model(server.base_url),
            Yes(),
            plugins=PluginSettings(enabled=("mute", "log-file")),
            notify=NotifySettings(turns_over_s=0.0001),
            sandbox=SandboxSettings(mode="off"),
        ) as app:
            await ask(await app.new_session(), "go")
        return app.services.plugins.loaded.take_news()  # type: ignore[union-attr] (plugins are loaded)

    script = [calls(("terminal", '{"command": "touch a"}')), ScriptedReply("Touched.")]
    with PracticeServer(script=script) as server:
        news = asyncio.run(main(server))
    lines = (home / "notifications.txt").read_text().splitlines()
    assert sorted(lines) == [
        "Whet asks for approval: terminal: touch a",
        "Whet: the turn ended (answered): Touched.",
    ]
    assert news and all("mute" in line and "ZeroDivisionError" in line for line in news)


@pytest.mark.slow
def test_without_plugins_the_layer_is_not_imported(home: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom whet.app.facade import Agent\n"
        "with Agent(settings={'model.provider': 'practice', 'model.model': 'practice-echo'}) as agent:\n"
        "    agent.run('Hello')\n"
        "print([name for name in sys.modules if name.startswith('whet.plugins')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
