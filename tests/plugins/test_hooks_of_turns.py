# ruff: noqa: E501 plugins are written here as text
"""The hooks that few public plugins have, each called by a real turn, and memories written for other hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.plugins.rig import write
from tests.plugins.test_public_shapes import ALL_HOOKS, OBSERVER, seen, talk
from tests.rewind.running import Consenting
from whet.contract.events import Notice, TurnEnd
from whet.plugins.example_facts import FACTS
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

RARE = {
    "on_session_reset": "session_id old_session_id platform",
    "on_interim_message": "text turn_id session_id",
    "api_request_error": "error turn_id provider model",
    "transform_terminal_output": "command output returncode",
    "on_skill_lifecycle": "action skill_name provenance session_id task_id use_count reused",
}
SKILL = "---\nname: brew-tea\ndescription: How tea is brewed.\n---\n\n1. Boil the water.\n"


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    home = tmp_path_factory.mktemp("rare")
    write(home, "watch", OBSERVER.replace(repr(ALL_HOOKS), repr(list(RARE))))
    look = PracticeCall("terminal", '{"command": "echo hi; exit 7"}', "c1")
    create = json.dumps({"action": "create", "name": "brew-tea", "content": SKILL})
    script = [
        ScriptedReply("I look.", tool_calls=(look,)),
        ScriptedReply(tool_calls=(PracticeCall("skill_manage", create, "c2"),)),
        ScriptedReply("Done."),
        ScriptedReply(fault=Fault(status=400, message="no such thing")),
    ]
    talk(home, ("watch",), script, Consenting(), new=True)
    return seen(home)


@pytest.mark.fast_rows("api_request_error", "on_session_reset")
@pytest.mark.parametrize("hook", RARE)
def test_rare_hooks_get_the_keywords_of_hermes(observed: dict[str, dict[str, Any]], hook: str) -> None:
    assert set(RARE[hook].split()) <= set(observed[hook]), observed[hook]


def test_rare_hooks_are_told_what_happened(observed: dict[str, dict[str, Any]]) -> None:
    reset = observed["on_session_reset"]
    assert reset["old_session_id"] not in ("", reset["session_id"])
    assert observed["on_interim_message"]["text"] == "I look."
    shell = observed["transform_terminal_output"]
    assert (shell["command"], shell["returncode"]) == ("echo hi; exit 7", 7) and "hi" in shell["output"]
    assert "no such thing" in str(observed["api_request_error"]["error"])
    skill = observed["on_skill_lifecycle"]
    facts = (skill["action"], skill["skill_name"], skill["provenance"], skill["session_id"])
    assert facts == ("created", "hello-there", "agent_created", reset["old_session_id"])


@pytest.mark.slow
def test_what_a_command_printed_can_be_changed(home: Path) -> None:
    code = "def register(ctx):\n    ctx.register_hook('transform_terminal_output', lambda output, **k: output.upper())\n"
    write(home, "upper", code)
    reply = ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command": "echo quiet"}', "c1"),))
    _, texts, requests = talk(home, ("upper",), [reply, ScriptedReply("Done.")], Consenting())
    assert texts == [] and b"QUIET" in requests[1]


WAYS = {
    "by other names": "def sync_turn(self, user, assistant): self.log(user, assistant)",
    "by keyword": "def sync_turn(self, *, user_content, assistant_content, session_id): self.log(user_content, assistant_content)",
    "by whatever comes": "def sync_turn(self, *given, **facts): self.log(*given)",
    "without waiting": "async def sync_turn(self, user_content, assistant_content, **facts): self.log(user_content, assistant_content)",
    "with a default": "def sync_turn(self, user_content, assistant_content, session_id='', extra=None): self.log(user_content, assistant_content)",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_memory_takes_a_turn_however_it_is_written(home: Path, way: str) -> None:
    code = f"""
        import json
        from agent.memory_provider import MemoryProvider
        from hermes_constants import get_hermes_home

        class Notes(MemoryProvider):
            name = "notes-db"
            def log(self, *words):
                (get_hermes_home() / "turn.json").write_text(json.dumps(words))
            def is_available(self): return True
            def initialize(self, session_id, **kwargs): pass
            {WAYS[way]}

        def register(ctx):
            ctx.register_memory_provider(Notes())
    """
    write(home, "notes-db", code)
    _, texts, _ = talk(home, ("notes-db",), [ScriptedReply("One.")])
    assert texts == [] and json.loads((home / "turn.json").read_text()) == ["hello there", "One."]


def test_the_doctor_has_an_example_of_every_keyword(observed: dict[str, dict[str, Any]]) -> None:
    missing = {hook: set(facts) - set(FACTS) for hook, facts in observed.items()}
    assert not any(missing.values()), missing


def test_a_failing_hook_after_a_turn_is_named_in_that_turn(home: Path, tmp_path: Path) -> None:
    def fails(hook: str) -> str:
        return f"def fail(**facts):\n    raise KeyError('gone')\ndef register(ctx):\n    ctx.register_hook('{hook}', fail)\n"

    write(home, "before", fails("pre_llm_call"))
    write(home, "after", fails("post_llm_call"))
    with PracticeServer(script=[ScriptedReply("Hello.")]) as server:
        settings: dict[str, object] = {"model.provider": "practice", "model.base_url": server.base_url}
        settings["plugins.enabled"] = ["before", "after"]
        with whet.Agent(settings=settings, workspace=tmp_path) as agent:
            events = list(agent.stream("hi"))
    assert isinstance(events[-1], TurnEnd) and events[-1].text == "Hello."
    notices = "\n".join(event.text for event in events if isinstance(event, Notice) and event.must_show)
    assert "before: its hook pre_llm_call failed: KeyError: 'gone'" in notices
    assert "after: its hook post_llm_call failed: KeyError: 'gone'" in notices
