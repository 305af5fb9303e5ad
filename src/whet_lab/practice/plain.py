"""Plain requests that the practice model recognises: it makes one tool call, then reports the result.

This is for a first-time user without an API key. It matches words and understands nothing. To any other
request it replies that it is a scripted model, and explains how to set up a real one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from whet_lab.practice.ask import CompletedCall, PracticeRequest
from whet_lab.practice.orders_task import run_tests
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.tool_use import ToolUse

INTRODUCTION = (
    "I am Whet's practice model: a scripted stand-in, not a language model. I recognise a few plain "
    "requests and "
    "make real tool calls for them:\n\n"
    "- list files\n- read README.md\n- search for TEXT\n- run the tests\n- run `COMMAND`\n"
    "- create a file hello.txt with TEXT\n- replace OLD with NEW in FILE\n- fetch https://...\n"
    "- search my sessions for TEXT\n\n"
    "For a real model: set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY, or run "
    "`whet config set model.provider NAME` (openai, anthropic, openrouter, ollama, ...) and "
    "`whet config set model.model NAME`; `whet doctor` checks the result."
)
_QUOTES = "`'\"“”"
_SHOWN_LINES = 40

CallMaker = Callable[[ToolUse, "re.Match[str]"], ScriptedReply]


def _word(text: str) -> str:
    return text.strip().strip(_QUOTES).rstrip("?!").strip(_QUOTES).strip()


def _list(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    if tools.has("terminal") or not tools.has("search_files"):
        return tools.shell("ls -la")
    return tools.use("search_files", pattern="*")


def _read(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("read_file", path=_word(match["path"]).rstrip(".,"))


def _write(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("write_file", path=_word(match["path"]), content=_word(match["text"]) + "\n")


def _replace(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    path = _word(match["path"]).rstrip(".,")
    return tools.use("patch", path=path, old=_word(match["old"]), new=_word(match["new"]))


def _search(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("search_files", pattern=re.escape(_word(match["text"])).replace("\\ ", " "))


def _recall(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("session_search", query=_word(match["text"]))


def _fetch(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("web_fetch", url=match["url"].rstrip(".,)"))


def _ask(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("clarify", question=_word(match["text"]).rstrip(".") + "?")


def _delegate(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("delegate_task", task=_word(match["text"]))


def _background(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("terminal", command=_word(match["command"]), background=True)


def _run(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.shell(_word(match["command"]))


def _processes(tools: ToolUse, match: re.Match[str]) -> ScriptedReply:
    return tools.use("process", action="list")


_PATH = r"(?P<path>[`'\"]?[\w~./-]*[\w-]\.\w+[`'\"]?)"
_FILE = r"(?:the )?(?:file )?" + _PATH
_RULES: tuple[tuple[re.Pattern[str], CallMaker], ...] = tuple(
    (re.compile(pattern, re.I | re.M), make)
    for pattern, make in (
        (
            rf"\b(?:create|write|make|save)\b.*?\bfile\b.*?{_PATH}\s+(?:with|containing|saying):?\s+(?P<text>.+)",
            _write,
        ),
        (rf"\bwrite\s+(?P<text>.+?)\s+(?:to|into|in)\s+{_FILE}", _write),
        (rf"\breplace\s+(?P<old>.+?)\s+(?:with|by)\s+(?P<new>.+?)\s+in\s+{_FILE}", _replace),
        (r"\b(?:delegate|hand over):?\s+(?P<text>.+)", _delegate),
        (r"\bask me\s+(?P<text>.+)", _ask),
        (r"\b(?:list|show)\b.*\bprocesses\b", _processes),
        (r"\b(?:list|show)\b.*\bfiles\b|^(?:please )?ls$|\bwhat files\b", _list),
        (r"\b(?:search|look)\b.*\b(?:sessions|conversations|history)\b.*?\bfor\s+(?P<text>.+)", _recall),
        (r"\b(?:search|grep|look|find)\s+(?:\w+ )?for\s+(?P<text>.+?)[.!?]?$", _search),
        (r"(?P<url>https?://\S+)", _fetch),
        (r"\b(?:run|start)\s+[`'\"]?(?P<command>.+?)[`'\"]?\s+in the background", _background),
        (r"\b(?:run|execute)\s+(?:the command\s+)?`(?P<command>[^`]+)`", _run),
        (rf"\b(?:read|show|open|print|cat|display)\b.*?{_PATH}", _read),
        (r"^(?:please )?(?:run|execute)\s+(?:the command\s+)?(?P<command>[^.?!].*)$", _run),
    )
)
_TESTS = re.compile(r"\brun (?:all )?(?:the |my )?tests\b", re.I)


def matches(text: str) -> bool:
    """Return whether `text` is a recognised plain request."""
    return _TESTS.search(text) is not None or any(pattern.search(text) for pattern, _ in _RULES)


def proceed(request: PracticeRequest, start: int, text: str) -> ScriptedReply:
    """CallMaker the call that `text` asks for, or report its result.

    Without a match, introduce the practice model.
    """
    if _TESTS.search(text):
        return run_tests(request, start)
    calls = [call for call in request.completed_calls if call.index > start]
    if calls:
        return ScriptedReply(format_report(calls[-1]))
    for pattern, make in _RULES:
        match = pattern.search(text)
        if match:
            return make(ToolUse(request), match)
    return ScriptedReply(INTRODUCTION)


def format_report(call: CompletedCall) -> str:
    """Return a plain report of a call's result."""
    names = ("command", "path", "pattern", "url")
    argument = next((str(value) for name, value in call.arguments.items() if name in names), "")
    title = f"`{call.name}` ({argument})" if argument else f"`{call.name}`"
    lines = call.result.strip("\n").splitlines()
    preview = "\n".join(lines[:_SHOWN_LINES]) or "(nothing)"
    more = f"\n\n{len(lines) - _SHOWN_LINES} more lines are not shown." if len(lines) > _SHOWN_LINES else ""
    if call.is_denied:
        first, dot, _ = call.result.strip().partition(". ")  # the rest of the refusal is for the model
        return f"{title} was not run: {first}{dot.strip()}"
    if call.is_interrupted:
        return f"{title} was interrupted; nobody knows whether it took effect. The answer was: {preview}"
    return f"{title} gave:\n\n```\n{preview}\n```{more}"
