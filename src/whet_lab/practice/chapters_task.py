"""The practice model's task of numbering the demo's 20 chapters, one command per step.

A run can be killed in the middle.
Each command adds the chapter's number to its file and a line to steps.log; neither may happen twice. The
task continues from the results in the transcript. If they are missing (a compaction) or say that the
outcome is unknown (a crash), it checks the files before it writes.
"""

from __future__ import annotations

import re

from whet_lab.practice.ask import CompletedCall, PracticeRequest
from whet_lab.practice.project import CHAPTERS
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.tool_use import ToolUse

MATCH = re.compile(r"number the chapters", re.I)

_PAUSE = re.compile(r"pause (\d+(?:\.\d+)?) s", re.I)
_LOOK = "ls . book"
_READ_LOG = "tail -n 1 steps.log"


def number_command(chapter: int, pause: str = "") -> str:
    """Return the command that numbers a chapter. Its result shows `-- N --`; the command itself does not."""
    path = f"book/chapter_{chapter:02d}.md"
    wait = f"sleep {pause} && " if pause else ""
    return f"{wait}echo '--' {chapter} '--' >> {path} && echo {chapter} >> steps.log && tail -n 1 {path}"


def choose_reply(request: PracticeRequest, start: int) -> ScriptedReply:
    """Take the next step of the task that began with message `start`."""
    tools = ToolUse(request)
    calls = [call for call in request.completed_calls if call.index > start]
    last = _last_chapter(calls)
    if last is None:
        return _begin(request, start, tools, calls)
    chapter, result = last
    if result.is_denied:
        return ScriptedReply(f"I stopped at chapter {chapter}: the command was not run. {result.first_line}")
    if result.is_interrupted and f"-- {chapter} --" not in result.result:
        return _check(tools, calls, chapter, result, _pause(request, start))
    if f"-- {chapter} --" not in result.result:
        return ScriptedReply(
            f"I stopped at chapter {chapter}; its command failed:\n\n    {result.first_line}"
        )
    return _go_on(tools, chapter, _pause(request, start))


def _begin(request: PracticeRequest, start: int, tools: ToolUse, calls: list[CompletedCall]) -> ScriptedReply:
    look = _by_command(calls, _LOOK)
    if look is None:
        return tools.shell(_LOOK, "I look at what is there.")
    if "chapter_" not in look.result:
        return ScriptedReply(f"I find no chapters here. `{_LOOK}` said: {look.first_line}")
    if "steps.log" not in look.result:
        return _go_on(tools, 0, _pause(request, start))
    log = _by_command(calls, _READ_LOG)
    if log is None:
        return tools.shell(_READ_LOG, "Somebody has begun; I read how far they got.")
    number = re.search(r"^\s*(\d+)\s*$", log.result, re.M)
    return _go_on(tools, int(number[1]) if number else 0, _pause(request, start))


def _check(
    tools: ToolUse, calls: list[CompletedCall], chapter: int, result: CompletedCall, pause: str
) -> ScriptedReply:
    path = f"book/chapter_{chapter:02d}.md"
    look_command = f"tail -n 1 {path}; {_READ_LOG}"
    checks = [call for call in calls if call.command == look_command and call.index > result.index]
    if not checks or checks[-1].is_interrupted:
        return tools.shell(
            look_command, f"Nobody knows whether chapter {chapter} was numbered, so I look before I go on."
        )
    output = checks[-1].result
    in_file = f"-- {chapter} --" in output
    in_log = re.search(rf"^\s*{chapter}\s*$", output, re.M) is not None
    if in_file and not in_log:
        finish = f"echo {chapter} >> steps.log"
        if _by_command(calls, finish) is None:
            return tools.shell(finish, f"Chapter {chapter} has its number, only the log lacks it.")
    if in_file or in_log:
        return _go_on(tools, chapter, pause)
    return tools.shell(number_command(chapter, pause), f"Chapter {chapter} was not numbered; I do it now.")


def _go_on(tools: ToolUse, numbered: int, pause: str) -> ScriptedReply:
    if numbered >= CHAPTERS:
        return ScriptedReply(f"All {CHAPTERS} chapters are numbered; steps.log has a line for each.")
    return tools.shell(number_command(numbered + 1, pause), f"Chapter {numbered + 1} of {CHAPTERS}.")


def _last_chapter(calls: list[CompletedCall]) -> tuple[int, CompletedCall] | None:
    for item in reversed(calls):
        match = re.search(r">> book/chapter_(\d\d)\.md", item.command)
        if match:
            return int(match[1]), item
    return None


def _by_command(calls: list[CompletedCall], command: str) -> CompletedCall | None:
    return next((call for call in reversed(calls) if call.command == command), None)


def _pause(request: PracticeRequest, start: int) -> str:
    match = _PAUSE.search(request.messages[start].text)
    return match[1] if match else ""
