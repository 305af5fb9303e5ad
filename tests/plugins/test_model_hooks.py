# ruff: noqa: E501 plugins are written here as text
"""Hooks around failures of a model server, and around requests beside the turns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.app.opened import ask, open_app, practice_model
from tests.plugins.rig import write
from tests.plugins.test_public_shapes import seen
from tests.rewind.running import Consenting
from whet.app.build import App
from whet.config.schema import FallbackSettings, PluginSettings
from whet.contract.events import Retry
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

JUDGE = """
    import json
    def register(ctx):
        def judge(provider, status_code, error_message, error_code, **facts):
            with (ctx.home / "seen.jsonl").open("a") as out:
                out.write(json.dumps(["judge", dict(facts, provider=provider, status=status_code, code=error_code)], default=str) + "\\n")
            if "flux" not in error_message:
                return None
            return {answer!r}
        ctx.register_hook("transform_api_error_classification", judge)
"""
DRIFT = ScriptedReply(fault=Fault(status=400, message="flux capacitor drift", code="drift"))


def _turns(
    home: Path, enabled: str, server: PracticeServer, work: Any = None, **more: Any
) -> tuple[str, list[Any]]:
    """One turn of a real program; its answer or the failure's line, and its events."""
    events: list[Any] = []

    async def main() -> str:
        model = practice_model(server.base_url, max_retries=1)
        plugins = PluginSettings(enabled=(enabled,))
        async with open_app(home, home, model, Consenting(), plugins=plugins, **more) as app:
            session = await app.new_session()
            end = await ask(session, "hello", events)
            if work is not None:
                await work(app, session)
            return end.text or f"failed: {end.error}"

    return asyncio.run(main()), events


@pytest.mark.fast_rows("billing", "no such reason", "None-", "Tr-Done")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "failed: practice: flux capacitor drift (HTTP 400)"),
        ({"retryable": True}, "failed: practice: flux capacitor drift (HTTP 400)"),
        ({"reason": "overloaded", "retryable": True}, "Done."),
        ({"reason": "no such reason", "retryable": True}, "Done."),
        ({"reason": "rate_limit", "message": "it recovers soon"}, "Done."),
        ({"reason": "billing"}, "failed: practice: flux capacitor drift (HTTP 400)"),
        (
            {"reason": "overloaded", "retryable": False, "message": "come back tomorrow"},
            "failed: practice: come back tomorrow",
        ),
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_plugin_says_what_a_failure_counts_as(home: Path, answer: Any, said: str) -> None:
    write(home, "judge", JUDGE.replace("{answer!r}", repr(answer)))
    with PracticeServer(script=[DRIFT, ScriptedReply("Done.")]) as server:
        text, events = _turns(home, "judge", server)
        assert text == said
        assert server.count == (2 if said == "Done." else 1)
    if said == "Done.":
        wanted = (answer or {}).get("message", "flux capacitor drift")
        assert wanted in next(event for event in events if isinstance(event, Retry)).reason
    facts = seen(home)["judge"]
    assert (facts["provider"], facts["status"]) == ("practice", 400) and "drift" in facts["code"]
    assert facts["num_messages"] == 1 and facts["error_type"] == "BadRequest"


def test_a_failure_that_a_plugin_hands_on_is_answered_by_the_fallback(home: Path) -> None:
    write(
        home,
        "judge",
        JUDGE.replace(
            "{answer!r}", repr({"reason": "format_error", "should_fallback": True, "retryable": False})
        ),
    )
    with PracticeServer(script=[DRIFT, ScriptedReply("By the other.")]) as server:
        fallback = FallbackSettings(provider="practice", base_url=server.base_url, model="practice-echo")
        text, _ = _turns(home, "judge", server, fallback=fallback)
        assert text == "By the other." and b'"practice-echo"' in server.requests[1].body


ASIDE = """
    import json
    def register(ctx):
        def watch(name):
            def hook(**facts):
                with (ctx.home / "seen.jsonl").open("a") as out:
                    out.write(json.dumps([name, facts], default=str) + "\\n")
                if name == "pre_auxiliary_call":
                    ctx.llm.complete([{"role": "user", "content": "from within"}])
            return hook
        for name in ("pre_auxiliary_call", "post_auxiliary_call", "post_api_request"):
            ctx.register_hook(name, watch(name))
        ctx.register_command("side", lambda text: ctx.llm.complete([{"role": "user", "content": text}]).text)
"""


def test_requests_beside_the_turns_are_told_and_those_of_the_hooks_are_not(home: Path) -> None:
    write(home, "aside", ASIDE)

    async def work(app: App, session: Any) -> None:
        command = next(one for one in app.services.plugins.loaded.commands if one.name == "side")  # type: ignore[union-attr]
        assert await command.run("on the side") == "Told."

    script = [ScriptedReply("Hello."), ScriptedReply("Within."), ScriptedReply("Told.")]
    with PracticeServer(script=script) as server:
        assert _turns(home, "aside", server, work)[0] == "Hello."
        assert server.count == 3
    rows = [json.loads(line) for line in (home / "seen.jsonl").read_text().splitlines()]
    assert [row[0] for row in rows] == ["post_api_request", "pre_auxiliary_call", "post_auxiliary_call"]
    (_, turn), (_, before), (_, after) = rows
    assert before["request_messages"][0]["content"] == "on the side" and before["aux_task"]
    assert (before["provider"], before["model"]) == ("practice", "practice")
    assert after["api_request_id"] == before["api_request_id"] and after["error"] is None
    assert after["response"]["assistant_message"]["content"] == "Told." and after["finish_reason"] == "stop"
    assert after["usage"]["output_tokens"] == after["usage"]["completion_tokens"] > 0
    assert turn["usage"]["input_tokens"] == turn["usage"]["prompt_tokens"] > 0
