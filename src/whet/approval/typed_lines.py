"""Judge text typed into a running process together with the start of its line, which earlier calls typed, and
with the start of its statement, which may be lines before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from whet.approval.danger_code import judge_query
from whet.approval.person_request import GateCase
from whet.approval.policy import Ruling
from whet.contract.protocols import GateCall

if TYPE_CHECKING:  # the import takes time, and only a program with a confirmation service needs it
    from whet.approval.high_risk import HighRisk

_MAX_PROCESSES, _MAX_START_INPUTS = 1_000, 20
_MAX_CHARS = 20_000
_MAX_STATEMENT_CHARS = 2_000
_SPLIT_LINE_DENIED = (
    "together with the text typed before, this line would need a different ruling ({})."
    " End that line, then send the whole line in one call"
)
_SPLIT_STATEMENT = (
    "together with the lines typed before, this is a statement that {}. End that statement with `;`, then"
    " send the whole one in one call"
)
Judge = Callable[[GateCase], Awaitable[Ruling]]


class TypedLines:
    """The unfinished lines that were typed into processes, by the processes' ids.

    Input given when a process starts is recorded before the process has an id. It is therefore tried as the
    start of the line of every process into which nothing was typed yet.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, str] = OrderedDict()
        self._start_inputs: OrderedDict[str, None] = OrderedDict()
        self._statements: OrderedDict[str, str] = OrderedDict()
        self._start_statements: OrderedDict[str, None] = OrderedDict()

    def record(self, call: GateCall) -> None:
        """Record the text of a call that will run."""
        if "command" in call.tool.tags:
            stdin = str(call.arguments.get("stdin") or "")
            if stdin and call.arguments.get("background"):
                _add(self._start_inputs, stdin.rpartition("\n")[2][-_MAX_CHARS:])
                _add(self._start_statements, _open_statement(stdin))
        elif _is_typing(call):
            end = "\n" if call.arguments.get("newline", True) else ""
            text = f"{call.arguments.get('text', '')}{end}"
            key = str(call.arguments.get("id"))
            line = f"{self._lines.pop(key, '')}{text}".rpartition("\n")[2][-_MAX_CHARS:]
            self._lines[key] = line
            self._statements[key] = _open_statement(f"{self._statements.pop(key, '')}{text}")
            for texts in (self._lines, self._statements):
                while len(texts) > _MAX_PROCESSES:
                    texts.popitem(last=False)

    def complete(self, call: GateCall) -> Sequence[GateCall]:
        """Return copies of a typing call, one for each unfinished line that its text may complete, with that
        line before the text. Empty if the text begins a line."""
        if not _is_typing(call):
            return ()
        line = self._lines.get(str(call.arguments.get("id")))
        lines = list(self._start_inputs) if line is None else [line] if line else []
        text = str(call.arguments.get("text", ""))
        return [
            msgspec.structs.replace(call, arguments={**call.arguments, "text": f"{line}{text}"})
            for line in lines
        ]

    def deny_statement(self, call: GateCall) -> str:
        """Return why a typing call is denied if it completes a statement that destroys data, of which neither
        the earlier lines nor its own text show that alone. Returns an empty string otherwise."""
        if not _is_typing(call):
            return ""
        begun = self._statements.get(str(call.arguments.get("id")))
        text = str(call.arguments.get("text", ""))
        if judge_query(text):
            return ""
        for start in list(self._start_statements) if begun is None else [begun]:
            finding = judge_query(f"{start}{text}")
            if finding and not judge_query(start):
                return _SPLIT_STATEMENT.format(finding[1])
        return ""

    async def judge(
        self,
        case: GateCase,
        make_case: Callable[[GateCall], GateCase],
        judge: Judge,
        high_risk: HighRisk | None,
    ) -> Ruling:
        """Return the ruling on a call, or a denial if a statement or line that it completes would get a
        stricter one."""
        if why := self.deny_statement(case.call):
            return Ruling("deny", why)
        return await _judge_lines(case, map(make_case, self.complete(case.call)), judge, high_risk)


def _open_statement(text: str) -> str:
    """Return the text after the last statement that ended."""
    return text.rpartition(";")[2][-_MAX_STATEMENT_CHARS:]


def _add(texts: OrderedDict[str, None], text: str) -> None:
    """Add a start of input, and drop the oldest if there are too many."""
    if text:
        texts[text] = None
    while len(texts) > _MAX_START_INPUTS:
        texts.popitem(last=False)


def _is_typing(call: GateCall) -> bool:
    return "background" in call.tool.tags and call.arguments.get("action") == "write"


async def _judge_lines(
    case: GateCase, completed: Iterable[GateCase], judge: Judge, high_risk: HighRisk | None
) -> Ruling:
    """Return the ruling on a call, or a denial if one of its `completed` lines would get a stricter one."""
    ruling = await judge(case)
    for whole_line in completed:
        line_ruling = await judge(whole_line)
        risk = high_risk.name_of(whole_line.action) if high_risk else ""
        question = ("ask", line_ruling.reason)
        asks_more = line_ruling.verdict == "ask" and (ruling.verdict, ruling.reason) != question
        if line_ruling.verdict == "deny" or asks_more or (ruling.verdict == "allow" and risk):
            return Ruling("deny", _SPLIT_LINE_DENIED.format(line_ruling.reason or risk))
    return ruling
