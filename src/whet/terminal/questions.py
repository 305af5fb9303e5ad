"""Questions at the terminal: the gate's take a key alone or a line, the model's a line, a list is searched by
typing.

They stand in place of the input line while they wait; `Terminal` shows them and hands the keys on.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from whet.contract.errors import ConfigError
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.question import RowKind
from whet.terminal import wording
from whet.terminal.permission_question import TerminalDecision, has_colour, paint_row
from whet.terminal.person import resolve_choice
from whet.terminal.signs import Fragment, Marks
from whet.terminal.typed_keys import TypedKeys
from whet.terminal.wrapping import wrap_lines
from whet.typed_answer import AnswerOption, TypedAnswer, read_line

T = TypeVar("T")
_BAR = "  | "
_ROW_STYLES: dict[RowKind, str] = {
    "added": "ansigreen",
    "removed": "ansired",
    "hunk": "ansicyan",
    "file": "bold",
    "fold": "class:dim",
}
_OWN_NUMBER = re.compile(r" *(\d+)  ")
_GRANTS = {"session": "for this session", "always": "from now on"}


class TerminalQuestion:
    """A question on the screen and its coming answer. With `options` it is answered by a key alone or by a
    line (`typed`), else by a line of the input. `more` says how to see rows that the screen has no room for.

    `is_repeated` states that it goes on with a question that was seen, `has_early_keys` that keys were typed
    which belong to typing from before it.

    Each line has a prefix. Every row of what would run gets its bar, and the rows of a long reason are set in
    below its dash, so that none can pass for a line of ours.
    """

    def __init__(
        self,
        lines: Sequence[tuple[str, str] | tuple[str, str, str]],
        *,
        keys: str = "",
        options: Sequence[AnswerOption] = (),
        more: str = "",
    ) -> None:
        self._keys = keys
        self._more = more
        self.is_drawn = False
        self.is_repeated = False
        self.has_early_keys = False
        self.options = options
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.typed: TypedKeys | None = TypedKeys(options, self.give) if options else None
        self._lines = lines

    @property
    def keys(self) -> str:
        """What is shown where the answer is typed: the options, and what was typed of a line."""
        hint = self.typed.hint() if self.typed is not None else ""
        if self.has_early_keys:
            hint = "not an answer: keys from before this question; pause a second, then answer"
        return f"{self._keys}\n{wording.printable(hint)}" if hint else self._keys

    def give(self, answer: str | None) -> None:
        """Set the answer. Later calls change nothing."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def rows(self, width: int, height: int) -> list[list[Fragment]]:
        """Lay the question out. If it is too long for the screen, keep its head and its end."""
        rows: list[Fragment] = []
        for prefix, line, *style in self._lines:
            further = prefix if prefix == _BAR else " " * len(prefix)
            for at, row in enumerate(wrap_lines(line, max(width - len(prefix), 8))):
                rows.append((style[0] if style else "", (further if at else prefix) + row))
        if len(rows) > height:
            hidden = len(rows) - height + 1
            rows = [
                *rows[: height // 2],
                ("", f"  ... {hidden} lines{self._more} ..."),
                *rows[hidden + height // 2 :],
            ]
        return [[row] for row in rows]


class PickQuestion(TerminalQuestion):
    """A list to pick from: a choice's number picks it, other words narrow the list, Up and Down move, Enter
    takes, Esc takes none.

    `typed_text` gives the text of the input line. Each choice is a line and a preview that is shown for the
    one that is pointed at. If the choice `decides` something, typing does not narrow: the line is the answer.
    """

    def __init__(
        self,
        title: str,
        choices: Sequence[tuple[str, str]],
        typed_text: Callable[[], str],
        *,
        decides: bool = False,
    ) -> None:
        super().__init__([])
        self._title = title
        self._choices = choices
        self._typed_text = typed_text
        self._decides = decides
        self.line: str = ""
        self._at = 0
        own = [_OWN_NUMBER.match(line) for line, _ in choices]
        self._has_own_numbers = bool(own) and all(own)
        self._numbers = [match[1] if match and all(own) else str(at) for at, match in enumerate(own, 1)]

    @property
    def matches(self) -> list[int]:
        """Return the index of the choice whose number is typed, or of those that contain every typed word."""
        if not self._decides and (typed := self._typed_text().strip()) in self._numbers:
            return [self._numbers.index(typed)]
        words = [] if self._decides else self._typed_text().lower().split()
        texts = [f"{line} {preview}".lower() for line, preview in self._choices]
        return [at for at, text in enumerate(texts) if all(word in text for word in words)]

    def move(self, by: int) -> None:
        """Move the selection by `by` choices."""
        self._at = max(0, min(self._at + by, len(self.matches) - 1))

    def give(self, answer: str | None) -> None:
        """Answer with the number of the one pointed at; None stays none. If the choice decides something, a
        typed line is kept in `line` and answers instead."""
        if self._decides and answer is not None and (line := self._typed_text()).strip():
            self.line = line
            answer = None
        matches = self.matches
        at = min(self._at, len(matches) - 1)
        super().give(None if answer is None or not matches else str(matches[at]))

    def rows(self, width: int, height: int) -> list[list[Fragment]]:
        """Return the title, the choices around the selected one, and its preview."""
        matches = self.matches
        self._at = max(0, min(self._at, len(matches) - 1))
        rows: list[list[Fragment]] = [[("bold", wording.clip(self._title, width))]]
        preview: list[str] = []
        if matches:
            preview = wrap_lines(wording.printable(self._choices[matches[self._at]][1]), max(width - 4, 8))[
                :3
            ]
        max_rows = max(height - 2 - len(preview), 3)
        first = max(0, min(self._at - max_rows // 2, len(matches) - max_rows))
        for at in range(first, min(first + max_rows, len(matches))):
            is_selected = at == self._at
            label = wording.printable(self._choices[matches[at]][0])
            number = "" if self._has_own_numbers else f"{self._numbers[matches[at]]}. "
            line = wording.cut(number + label, width - 2)
            rows.append([("class:sign" if is_selected else "", f"{'>' if is_selected else ' '} {line}")])
            if is_selected:
                rows += [[("class:dim", f"    {text}")] for text in preview if text.strip()]
        if not matches:
            rows.append([("class:dim", "  nothing fits")])
        ways = "a number or words" if self._decides else "a number, or type to narrow"
        hint = f"{len(matches)} of {len(self._choices)} · {ways} · Enter takes · Esc leaves"
        rows.append([("class:dim", wording.clip(hint, width))])
        return rows


class QuestionScreen(Protocol):
    """The screen that questions are shown on; see `Terminal`."""

    stop_turn: Callable[[], object]

    def width(self) -> int:
        """Return the screen's width in columns."""
        ...

    def height(self) -> int:
        """Return the screen's height in rows."""
        ...

    def write(self, text: str) -> None:
        """Write finished text above the input line."""
        ...

    async def ask(self, question: TerminalQuestion) -> str | None:
        """Put a question in place of the input line, and return its answer."""
        ...

    async def lend(self, work: Callable[[], T]) -> T:
        """Release the terminal to another program while `work` runs."""
        ...


class TerminalPerson:
    """The person at a terminal: the gate's questions take a key alone or a line, the model's a line."""

    def __init__(self, terminal: QuestionScreen, marks: Marks) -> None:
        self._terminal = terminal
        self._marks = marks

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask until an answer decides. Enter, Esc, Ctrl-C and every line that is no option are a no."""
        decision = TerminalDecision(request, max(self._terminal.height() - 20, 8))
        is_drawn = False
        while True:
            question = self._question(decision)
            question.is_drawn = question.is_repeated = is_drawn  # still the question that was seen
            text = await self._terminal.ask(question)
            is_drawn = True
            typed = read_line(text or "", decision.options())
            if decision.choose(typed.option):
                continue
            match typed.option:
                case "view":
                    self._show_whole(decision)
                case "edit":
                    if edited := await self._edit(request):
                        return edited
                case "because":
                    reason = TerminalQuestion([("", "No, because:")])
                    reason.is_repeated = True
                    words = await self._terminal.ask(reason)
                    return Reply("no", words=words or "")
                case "once" | "session" | "always":
                    return self._report_grant(decision, typed.option)
                case _:
                    return await self._refuse(typed)

    def _question(self, decision: TerminalDecision) -> TerminalQuestion:
        lines = [("", wording.printable(decision.question.title), "bold")]
        for prefix, row in decision.rows():
            style = _ROW_STYLES.get(row.kind, "") if has_colour() else ""
            lines.append((prefix, wording.exact(row.text), style))
        return TerminalQuestion(
            lines,
            keys=decision.keys(self._terminal.width() - 1),
            options=decision.options(),
            more=" (v shows all)",
        )

    async def _refuse(self, typed: TypedAnswer) -> Reply | Answer:
        """Return the no. If the person asks for it, stop the turn first, so that it gets no answer."""
        if typed.stops:
            self._terminal.stop_turn()
            await asyncio.sleep(0)  # the cancel comes here
        return Reply("no", words=typed.words).short

    def _report_grant(self, decision: TerminalDecision, answer: Answer) -> Answer | Reply:
        if answer not in _GRANTS:
            return answer
        text = f"allowed {_GRANTS[answer]}: {decision.scope_text() or decision.request.subject}"
        self._terminal.write(wording.clip(wording.printable(text), self._terminal.width()) + "\n")
        return decision.reply(answer).short

    def _show_whole(self, decision: TerminalDecision) -> None:
        rows = [f"{prefix}{wording.exact(row.text)}" for prefix, row in decision.rows(unfold=True)]
        painted = [
            paint_row(row, text, colour=has_colour())
            for (_, row), text in zip(decision.rows(unfold=True), rows, strict=True)
        ]
        self._terminal.write("\n".join([wording.printable(decision.question.title), *painted]) + "\n")

    async def _edit(self, request: ApprovalRequest) -> Reply | None:
        from whet.terminal.rewriting import rewrite  # noqa: PLC0415 - most questions are not edited

        try:
            arguments = await self._terminal.lend(lambda: rewrite(request, os.environ))
        except ConfigError as error:
            self._terminal.write(f"{wording.printable(error.message)}\n")
            return None
        if arguments is None:
            self._terminal.write("nothing was changed\n")
            return None
        return Reply("once", arguments=arguments)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask for a line. A number picks a choice; Esc returns None."""
        options = [(f"  {number}. ", wording.printable(choice)) for number, choice in enumerate(choices, 1)]
        answer = await self._terminal.ask(TerminalQuestion([("", wording.printable(question)), *options]))
        if answer is None:
            return None
        answer = resolve_choice(answer.strip(), choices)
        text = f"{wording.printable(question)}\n  {self._marks.prompt}{wording.printable(answer)}\n"
        self._terminal.write(text)
        return answer
