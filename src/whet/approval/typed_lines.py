"""Judge what is typed into a process with the beginning of its line, which came with earlier calls."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from whet.approval.person_request import GateCase
from whet.approval.policy import Ruling
from whet.contract.protocols import GateCall

if TYPE_CHECKING:  # importing it takes time, and only a program with a confirmation service needs it
    from whet.approval.high_risk import HighRisk

_MAX_PROCESSES, _MAX_STARTS = 1_000, 20
_MAX_CHARS = 20_000
_SPLIT = (
    "with the text that was typed before it, the line would be another one ({})."
    " End that line, then send the whole line in one call"
)
Judge = Callable[[GateCase], Awaitable[Ruling]]


class TypedLines:
    """The unfinished lines of a program's processes, by their ids.

    A process that starts with input has no id yet: its line may be that of any process whose first text
    comes later.
    """

    def __init__(self) -> None:
        self._lines: OrderedDict[str, str] = OrderedDict()
        self._starts: OrderedDict[str, None] = OrderedDict()

    def record(self, call: GateCall) -> None:
        """Record the text of a call that will run."""
        if "command" in call.tool.tags:
            line = str(call.arguments.get("stdin") or "").rpartition("\n")[2][-_MAX_CHARS:]
            if line and call.arguments.get("background"):
                self._starts[line] = None
                while len(self._starts) > _MAX_STARTS:
                    self._starts.popitem(last=False)
        elif _types(call):
            text = f"{call.arguments.get('text', '')}{chr(10) * bool(call.arguments.get('newline', True))}"
            key = str(call.arguments.get("id"))
            line = f"{self._lines.pop(key, '')}{text}".rpartition("\n")[2][-_MAX_CHARS:]
            self._lines[key] = line
            while len(self._lines) > _MAX_PROCESSES:
                self._lines.popitem(last=False)

    def complete(self, call: GateCall) -> Sequence[GateCall]:
        """Return a call that types with each line that its text may end; none if it begins a line."""
        if not _types(call):
            return ()
        line = self._lines.get(str(call.arguments.get("id")))
        lines = list(self._starts) if line is None else [line] if line else []
        text = str(call.arguments.get("text", ""))
        return [
            msgspec.structs.replace(call, arguments={**call.arguments, "text": f"{line}{text}"})
            for line in lines
        ]


async def judge_lines(
    case: GateCase, lines: Iterable[GateCase], judge: Judge, high_risk: HighRisk | None
) -> Ruling:
    """Return the ruling on a call, or a denial if one of the `lines` that it completes has a stricter one."""
    ruling = await judge(case)
    for line in lines:
        whole = await judge(line)
        risk = high_risk.name_of(line.action) if high_risk else ""
        is_asked = whole.verdict == "ask" and (ruling.verdict, ruling.reason) != ("ask", whole.reason)
        if whole.verdict == "deny" or is_asked or (ruling.verdict == "allow" and risk):
            return Ruling("deny", _SPLIT.format(whole.reason or risk))
    return ruling


def _types(call: GateCall) -> bool:
    return "background" in call.tool.tags and call.arguments.get("action") == "write"
