"""The practice model's task of writing a summary for a context engine: it copies parts of the record.

It uses the first request as the goal and lists the newest calls. The format of the record is defined by
the context engine that asks; the rest of the request is ignored.
"""

from __future__ import annotations

import re

from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.script import ScriptedReply

MATCH = re.compile(r"\ASummarise the record below\b")

_RECORD = re.compile(r"<record>\n(.*)\n</record>", re.DOTALL)
_LINE = re.compile(r"^\[(?:#(\d+) )?(user|assistant|result of \S+?)[,\]]", re.MULTILINE)
_CALL = re.compile(r"^  calls (\S+) (.*)$", re.MULTILINE)
_GOAL = re.compile(r"^## 2\. .*\n(.+)$", re.MULTILINE)
_MAX_ACTIONS, _CHARS = 8, 120


def proceed(request: PracticeRequest, start: int) -> ScriptedReply:
    """Write sections 2 and 4 of the summary that message `start` asks for."""
    text = request.messages[start].text
    record_match = _RECORD.search(text)
    record = record_match[1] if record_match else ""
    earlier = _GOAL.search(text[: record_match.start()] if record_match else text)
    goal = _short(_first_request(record) or (earlier[1] if earlier else "Go on with the conversation."))
    actions = [f"{name} {_short(arguments)}" for name, arguments in _CALL.findall(record)]
    lines = [f"{number}. {action}" for number, action in enumerate(actions[-_MAX_ACTIONS:], 1)]
    pages = re.findall(r"^\[#(\d+) ", record, re.MULTILINE)
    if pages:
        lines.append(
            f"{len(lines) + 1}. Messages [#{pages[0]}-{pages[-1]}] hold {len(actions)} calls in all."
        )
    return ScriptedReply("\n".join(("## 2. Goal", goal, "## 4. Completed actions", *lines)))


def _first_request(record: str) -> str:
    for match in _LINE.finditer(record):
        if match[2] == "user":
            return record[match.end() :].split("\n", 1)[0].strip()
    return ""


def _short(text: str) -> str:
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 3]}..."
