"""The order of hooks, what their answers do, and what becomes of one that fails or hangs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from tests.support import let_pass
from whet.plugins.hooks import Hooks
from whet.plugins.parts import Hook, Problem


def hooks(name: str, *functions: Any, limit_s: float = 5.0) -> tuple[Hooks, list[Problem]]:
    problems: list[Problem] = []
    made = [Hook(f"p{number}", name, function) for number, function in enumerate(functions)]
    return Hooks(made, problems, limit_s=limit_s), problems


def test_changes_chain_and_the_first_block_ends_it() -> None:
    seen: list[dict[str, Any]] = []

    def first(args: dict[str, Any]) -> dict[str, Any]:
        return {"action": "modify", "args": {**args, "a": 1}}

    async def second(tool_name: str, args: dict[str, Any], **more: Any) -> None:
        seen.append({"tool_name": tool_name, **args, **more})
        args["not"] = "lost"

    def third(tool_name: str) -> dict[str, str] | None:
        return {"action": "block", "message": "not today"} if tool_name == "terminal" else None

    def fourth(args: dict[str, Any]) -> None:
        seen.append({"last": True})

    table, problems = hooks("pre_tool_call", first, second, third, fourth)
    given = {"b": 2}
    verdict = asyncio.run(table.before_tool("write_file", given, session_id="s"))
    assert verdict.arguments == {"a": 1, "b": 2, "not": "lost"} and not verdict.blocked and given == {"b": 2}
    assert seen == [{"tool_name": "write_file", "a": 1, "b": 2, "session_id": "s"}, {"last": True}]
    verdict = asyncio.run(table.before_tool("terminal", given))
    assert verdict.blocked == "blocked by the plugin p2: not today"
    assert len(seen) == 3 and not problems


def test_results_are_changed_in_order_and_context_is_joined() -> None:
    table, _ = hooks(
        "transform_tool_result", lambda result: result + "b", lambda result: None, lambda result: result + "c"
    )
    assert asyncio.run(table.transform("a", tool_name="t")) == "abc"

    async def second(user_message: str) -> str:
        return f" two {user_message} "

    table, _ = hooks("pre_llm_call", lambda: {"context": "one"}, second, lambda: None, lambda: {"other": 1})
    assert asyncio.run(table.context(user_message="hello", session_id="s")) == "one\n\ntwo hello"


def test_a_failing_hook_is_named_and_off_after_three_failures_in_a_row_and_the_others_run() -> None:
    calls: list[str] = []

    def fails() -> None:
        calls.append("fails")
        if len([call for call in calls if call == "fails"]) != 2:
            raise KeyError("gone")

    table, problems = hooks("post_tool_call", fails, lambda: calls.append("works"))
    for _ in range(8):
        asyncio.run(table.call_all("post_tool_call"))
    assert calls.count("works") == 8 and calls.count("fails") == 5
    assert len(problems) == 4 and problems[0].plugin == "p0" and "KeyError: 'gone'" in problems[0].reason
    assert problems[-1].reason.endswith("it is off now, after 3 failures in a row")


def test_a_call_that_a_broken_guard_could_not_judge_does_not_run() -> None:
    def fails() -> None:
        raise RuntimeError("no rules file")

    table, problems = hooks("pre_tool_call", fails)
    verdict = asyncio.run(table.before_tool("terminal", {}))
    assert "p0 could not judge it: RuntimeError: no rules file" in verdict.blocked and len(problems) == 1
    for _ in range(4):
        assert asyncio.run(table.before_tool("terminal", {})).blocked  # it is never switched off
    table, problems = hooks("pre_tool_call", lambda: "block")
    assert "must answer None" in asyncio.run(table.before_tool("terminal", {})).blocked


async def test_a_hook_that_hangs_is_given_up_on() -> None:
    release = threading.Event()
    loop = asyncio.get_running_loop()

    def hangs() -> None:
        loop.call_soon_threadsafe(let_pass, 60)
        release.wait(60)

    table, problems = hooks("post_llm_call", hangs, lambda: "other", limit_s=60)
    said = await table.call_all("post_llm_call")
    release.set()
    assert "no answer in 60 s" in problems[0].reason
    assert said == ["other"]


def test_a_hook_gets_only_the_keywords_that_it_names() -> None:
    class Watcher:
        def __init__(self) -> None:
            self.seen: list[object] = []

        async def __call__(self, session_id: str, *, missing: str = "default") -> None:
            self.seen.append((session_id, missing))

    watcher = Watcher()
    table, problems = hooks("on_session_start", watcher)
    assert table.has("on_session_start", "on_session_end") and not table.has("on_session_end")
    asyncio.run(table.call_all("on_session_start", session_id="s", platform="cli"))
    assert watcher.seen == [("s", "default")] and not problems
