"""The practice model's task of fixing the demo project: "The order totals are wrong for discounts".

It works as a newcomer does: without the test command in its context it runs the obvious one, reads the
error, reads the page that the error names, and runs the tests again. If the command is anywhere in the
system prompt or an earlier message (a memory, a skill, an example), it uses it at once. Each step follows
from the results in the transcript. It does not know which files exist until it has seen them.
"""

from __future__ import annotations

import re

from whet_lab.practice.ask import CompletedCall, PracticeRequest
from whet_lab.practice.project import DATABASE_SETTING, FAULTY_LINE, MENDED_LINE
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.tool_use import ToolUse, find_unopened_skills, open_skill

MATCH = re.compile(r"order totals|totals are wrong|wrong for discounts", re.I)

NAIVE = "python3 -m unittest -q"
PROPER = f"{DATABASE_SETTING} {NAIVE}"
_PAGE = "docs/testing.md"
_SOURCE = "orders/price.py"
_MAX_RUNS = 6
_TEST_SKILL = re.compile(r"^run-unittest\b")


def proceed(request: PracticeRequest, start: int) -> ScriptedReply:
    """Take the next step of the task that began with message `start`."""
    tools = ToolUse(request)
    calls = [call for call in request.completed_calls if call.index > start]
    if not calls and tools.has("terminal"):
        return tools.shell("ls -R orders tests docs", "I look at the project first.")
    runs = [call for call in calls if _is_test(call)]
    if not runs:
        return _first_run(request, start, tools)
    if len(runs) > _MAX_RUNS:
        return ScriptedReply(
            f"I ran the tests {len(runs)} times and stop here. The last run said:\n\n{_tail(runs[-1])}"
        )
    return _after_run(tools, calls, runs[-1])


def run_tests(request: PracticeRequest, start: int) -> ScriptedReply:
    """Choose the reply to "run the tests": run them, recover from a missing setting, report."""
    tools = ToolUse(request)
    calls = [call for call in request.completed_calls if call.index > start]
    runs = [call for call in calls if _is_test(call)]
    if not runs:
        return _first_run(request, start, tools)
    last = runs[-1]
    if (last.is_interrupted or _lacks_setting(last)) and len(runs) < _MAX_RUNS:
        return _recover(tools, calls, last)
    return ScriptedReply(f"{_verdict(last)} `{last.command}` said:\n\n{_tail(last)}")


def _first_run(request: PracticeRequest, start: int, tools: ToolUse) -> ScriptedReply:
    if skills := find_unopened_skills(request, start, _TEST_SKILL):
        say = "There is a skill for running the tests here; I read it first."
        return ScriptedReply(say, tool_calls=(open_skill(skills[0]),))
    skill_texts = [
        call.result for call in request.completed_calls if call.index > start and call.name == "skill_view"
    ]
    if request.mentions(DATABASE_SETTING, before=start) or any(
        DATABASE_SETTING in text for text in skill_texts
    ):
        return tools.shell(
            PROPER, f"I know that the tests here need {DATABASE_SETTING}, so I run them with it."
        )
    return tools.shell(NAIVE, "I run the tests.")


def _after_run(tools: ToolUse, calls: list[CompletedCall], last: CompletedCall) -> ScriptedReply:
    if last.is_denied:
        return ScriptedReply(
            f"I may not run the tests, so I can't show that they pass. The answer was:\n\n{_tail(last)}"
        )
    if last.is_interrupted or _lacks_setting(last):
        return _recover(tools, calls, last)
    if _tests_pass(last):
        return _summary(calls)
    if "FAILED" not in last.result:
        return ScriptedReply(f"I could not run the tests. The last run said:\n\n{_tail(last)}")
    return _mend(tools, calls, last)


def _recover(tools: ToolUse, calls: list[CompletedCall], last: CompletedCall) -> ScriptedReply:
    if last.is_interrupted:
        return tools.shell(
            PROPER if DATABASE_SETTING in str(last.arguments) else NAIVE, "I run the tests again."
        )
    if not any(_PAGE in str(call.arguments) for call in calls):
        say = f"The tests need a setting; the error names {_PAGE}, so I read that."
        if tools.has("read_file"):
            return tools.use("read_file", say, path=_PAGE)
        return tools.shell(f"cat {_PAGE}", say)
    return tools.shell(PROPER, f"The page says how: with {DATABASE_SETTING}.")


def _mend(tools: ToolUse, calls: list[CompletedCall], last: CompletedCall) -> ScriptedReply:
    patches = [call for call in calls if call.name in ("patch", "write_file")]
    if patches and patches[-1].index < last.index:
        return ScriptedReply(f"I changed `{_SOURCE}`, but the tests still fail:\n\n{_tail(last)}")
    if patches and patches[-1].is_denied:
        return ScriptedReply(
            f"I found the fault in `{_SOURCE}` but may not change it: {patches[-1].first_line}"
        )
    looks = [
        call for call in calls if _SOURCE in str(call.arguments) and call.name not in ("patch", "write_file")
    ]
    if not looks or (patches and patches[-1].is_interrupted and looks[-1].index < patches[-1].index):
        say = "One test fails: a discount is not rounded. I read where prices are made."
        if tools.has("read_file"):
            return tools.use("read_file", say, path=_SOURCE)
        return tools.shell(f"cat {_SOURCE}", say)
    if MENDED_LINE.strip() in looks[-1].result or (patches and not patches[-1].is_interrupted):
        return tools.shell(PROPER, "I run the tests again.")
    if FAULTY_LINE.strip() not in looks[-1].result:
        return ScriptedReply(
            f"I read `{_SOURCE}` but don't see the fault there. The tests say:\n\n{_tail(last)}"
        )
    return tools.use(
        "patch",
        "`int(...)` cuts the fraction off instead of rounding it. I mend that line.",
        path=_SOURCE,
        old=FAULTY_LINE.strip(),
        new=MENDED_LINE.strip(),
    )


def _summary(calls: list[CompletedCall]) -> ScriptedReply:
    runs = [call for call in calls if _is_test(call)]
    command = runs[-1].command
    if not any(call.name in ("patch", "write_file") for call in calls):
        return ScriptedReply(
            f"The tests pass as they are (`{command}`), so there was nothing to mend:\n\n{_tail(runs[-1])}"
        )
    stumbled = any(_lacks_setting(call) for call in runs)
    lesson = f" The tests only run with `{DATABASE_SETTING}`; {_PAGE} says so." if stumbled else ""
    return ScriptedReply(
        f"Mended. `discounted` in `{_SOURCE}` cut fractions of a cent off; now it rounds to the nearest cent,"
        f" halves up. The tests pass (`{command}`).{lesson}\n\n{_tail(runs[-1])}"
    )


def _verdict(run: CompletedCall) -> str:
    if run.is_denied:
        return "The tests were not run."
    if _tests_pass(run):
        return "The tests pass."
    return "The tests fail." if "FAILED" in run.result else "I can't tell whether tests pass here."


def _is_test(call: CompletedCall) -> bool:
    return "unittest" in call.command


def _lacks_setting(call: CompletedCall) -> bool:
    return f"set {DATABASE_SETTING}" in call.result


def _tests_pass(call: CompletedCall) -> bool:
    return (
        re.search(r"^OK\b", call.result, re.M) is not None
        and "FAILED" not in call.result
        and "Ran 0 tests" not in call.result
    )


def _tail(call: CompletedCall) -> str:
    lines = [line for line in call.result.strip().splitlines() if line.strip()]
    return "    " + "\n    ".join(lines[-6:] or ["(no output)"])
