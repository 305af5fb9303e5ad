"""Questions of the chat at the terminal: permission questions, the model's questions, lists to pick from.

A question is shown in place of the input line. `Terminal` draws it and passes the keys to it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from whet.contract.brought_text import unwrap_pastes
from whet.contract.errors import ConfigError
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.question import TAKE_BACK
from whet.terminal import wording
from whet.terminal.diff_view import PaintedRow
from whet.terminal.pasted_text import fold_pastes
from whet.terminal.permission_question import (
    ANSWER_PROMPT,
    FACT_PREFIXES,
    SHOWN_PREFIX,
    UNSEEN,
    TerminalDecision,
    shorten_choice,
)
from whet.terminal.person import answer_prompt, resolve_choice
from whet.terminal.render import Painter
from whet.terminal.signs import Fragment, Marks
from whet.terminal.typed_keys import TypedKeys
from whet.terminal.wrapping import wrap_lines
from whet.typed_answer import AnswerOption, TypedAnswer, may_count, read_line

T = TypeVar("T")
_BAR = "  | "
_DECISION_PROMPT = "Type a number or words, then Enter. Enter alone takes >, Esc the last: "
_LEAST_ROWS = 7  # of the command or change
_FRAME_ROWS = 11  # of the title, the rules, the input, and the rows above it
_MIN_SHOWN = 4  # rows of the command or change; if there are fewer, reasons and hints are left out
_OWN_NUMBER = re.compile(r" *(\d+)  ")
_GRANTS = {
    "session": "until you quit this chat, Whet won't ask again to",
    "always": f"in this folder ({TAKE_BACK}), Whet won't ask again to",
}


class TerminalQuestion:
    """A question on the screen and the future of its answer.

    With `options`, it is answered by a single key or a line (`typed`), otherwise by a line of the input.
    `more` says how to see rows for which the screen has no room. The last `kept` lines are always shown, and
    `hints` below them if there is room. Each line has a prefix: every row of a command has a bar, and the
    rows of a long reason are indented, so that none looks like a line of Whet.

    `is_repeated` is set if the person has already seen the question, `has_early_keys` if ignored keys were
    typed, `is_cut` if some rows did not fit the screen, and `decides` if the answer permits something.
    """

    def __init__(
        self,
        lines: Sequence[tuple[str, str] | tuple[str, str, str] | PaintedRow],
        *,
        keys: str = "",
        options: Sequence[AnswerOption] = (),
        more: str = "",
        kept: int = 0,
        hints: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._keys = keys
        self._hints = hints
        self._more = more
        self._kept = kept
        self.is_drawn = False
        self.is_repeated = False
        self.is_cut: bool = False
        self.has_early_keys = False
        self.options = options
        self.decides: bool = bool(options)
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.typed: TypedKeys | None = TypedKeys(options, self.give) if options else None
        self._lines = lines
        self._laid_out: tuple[tuple[int, int], list[list[Fragment]]] = ((0, 0), [])

    @property
    def keys(self) -> str:
        """The text where the answer is typed: the prompt, and a hint about the typed text."""
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
        if self._laid_out[0] != (width, height):
            self._laid_out = ((width, height), self._lay_out(width, height))
        return list(self._laid_out[1])

    def _lay_out(self, width: int, height: int) -> list[list[Fragment]]:
        laid_out = [
            _paint(line, width) if isinstance(line, PaintedRow) else _wrap(line, width)
            for line in self._lines
        ]
        rows = [row for line in laid_out for row in line]
        hint = [row for line in self._hints for row in _wrap((*line, "class:dim"), width)]
        is_cut = len(rows) > height
        # A later drawing may have less room, because of a hint. The rows have been seen by then.
        self.is_cut = is_cut and (self.is_cut or not self._laid_out[1])
        if not is_cut:
            return [*rows, *_take_whole_lines(self._hints, width, height - len(rows))]
        if not self._kept:
            end = rows[len(rows) - (height - 1 - height // 2) :]
        else:
            end = self._choose_end(laid_out, hint, width, height - 1 - len(laid_out[0]))
        head = max(height - 1 - len(end), 1)
        hidden = len(rows) + len(hint) - head - len(end)
        note = wording.cut(f"  ... {hidden} lines{self._more} ...", width)
        return [*rows[:head], [("", note)], *end]

    def _choose_end(
        self, laid_out: list[list[list[Fragment]]], hint: list[list[Fragment]], width: int, room: int
    ) -> list[list[Fragment]]:
        """Return the rows below the folded ones: the answers, and if there is `room` the reasons and the
        hint. Enough room for a part of the command is left free."""
        first = len(self._lines) - self._kept
        answers = [row for line in laid_out[first:] for row in line]
        reasons = [
            row
            for line, its_rows in zip(self._lines[:first], laid_out, strict=False)
            if not isinstance(line, PaintedRow) and line[0] in (*FACT_PREFIXES.values(), SHOWN_PREFIX)
            for row in its_rows
        ]
        for end in ([*reasons, *answers, *hint], [*reasons, *answers]):
            if len(end) + _MIN_SHOWN <= room:
                return end
        if len(answers) + _MIN_SHOWN <= room:
            return answers
        return [_one_row(line, width) for line in self._lines[first:]]


def _take_whole_lines(hints: Sequence[tuple[str, str]], width: int, room: int) -> list[list[Fragment]]:
    """Return the rows of as many hints as fit completely."""
    rows: list[list[Fragment]] = []
    for line in hints:
        hint_rows = _wrap((*line, "class:dim"), width)
        if len(rows) + len(hint_rows) > room:
            break
        rows += hint_rows
    return rows


def _one_row(line: PaintedRow | tuple[str, str] | tuple[str, str, str], width: int) -> list[Fragment]:
    """Return a line as one row, with … if it was cut."""
    if isinstance(line, PaintedRow):
        return _paint(line, width)[0]
    prefix, text, *style = line
    row = prefix + shorten_choice(" ".join(text.split("\n")), max(width - len(prefix), 8))
    return [(style[0] if style else "", wording.cut(row, width))]


def _wrap(line: tuple[str, str] | tuple[str, str, str], width: int) -> list[list[Fragment]]:
    prefix, text, *style = line
    further = prefix if prefix == _BAR else " " * len(prefix)
    rows = wrap_lines(text, max(width - len(prefix), 8))
    return [[(style[0] if style else "", (further if at else prefix) + row)] for at, row in enumerate(rows)]


def _paint(row: PaintedRow, width: int) -> list[list[Fragment]]:
    from prompt_toolkit.formatted_text import ANSI, to_formatted_text  # noqa: PLC0415 - the chat has it already

    lines = row.to_lines(width)
    return [[(part[0], part[1]) for part in to_formatted_text(ANSI(line))] for line in lines]


class PickQuestion(TerminalQuestion):
    """A list to pick from: a number picks a choice, words narrow the list, Up and Down move the selection,
    Enter takes it, Esc takes none.

    `typed_text` returns the text of the input line. Each choice is a line and a preview, which is shown for
    the selected choice. If the choice `decides` something, all previews are shown, typing does not narrow the
    list, a typed line is the answer, and Enter alone takes the last choice, which must be the safe one.
    """

    def __init__(
        self,
        title: str,
        choices: Sequence[tuple[str, str]],
        typed_text: Callable[[], str],
        *,
        decides: bool = False,
    ) -> None:
        super().__init__([], keys=_DECISION_PROMPT if decides else "")
        self._title = title
        self._choices = choices
        self._typed_text = typed_text
        self.decides = decides
        self.line: str = ""
        self._at = len(choices) - 1 if decides else 0
        matches = [_OWN_NUMBER.match(line) for line, _ in choices]
        self._has_own_numbers = bool(matches) and all(matches)
        self._numbers = [str(at) for at in range(1, len(choices) + 1)]
        if self._has_own_numbers:
            self._numbers = [match[1] for match in matches if match]

    @property
    def matches(self) -> list[int]:
        """The index of the choice whose number is typed, or those of the choices with every typed word."""
        if not self.decides and (typed := self._typed_text().strip()) in self._numbers:
            return [self._numbers.index(typed)]
        words = [] if self.decides else self._typed_text().lower().split()
        texts = [f"{line} {preview}".lower() for line, preview in self._choices]
        return [at for at, text in enumerate(texts) if all(word in text for word in words)]

    def move(self, by: int) -> None:
        """Move the selection by `by` choices."""
        self._at = max(0, min(self._at + by, len(self.matches) - 1))

    def give(self, answer: str | None) -> None:
        """Answer with the index of the selected choice, or with None if `answer` is None. If the choice
        decides something, a typed line is stored in `line` and the answer is None."""
        if self.decides and answer is not None and (line := self._typed_text()).strip():
            self.line = line
            answer = None
        matches = self.matches
        at = min(self._at, len(matches) - 1)
        super().give(None if answer is None or not matches else str(matches[at]))

    def rows(self, width: int, height: int) -> list[list[Fragment]]:
        """Return the title, the choices around the selected one, and its preview. If the choice decides
        something and there is room, all previews are included."""
        rows = self._list_rows(width, height, has_all=self.decides)
        return rows if len(rows) <= height else self._list_rows(width, height, has_all=False)

    def _list_rows(self, width: int, height: int, *, has_all: bool) -> list[list[Fragment]]:
        matches = self.matches
        self._at = max(0, min(self._at, len(matches) - 1))
        title = wrap_lines(self._title, width) if has_all else [wording.clip(self._title, width)]
        rows: list[list[Fragment]] = [[("bold", line)] for line in title]
        preview = self._preview(matches[self._at], width) if matches else []
        max_rows = max(height - 3 - len(preview), 3)
        first = max(0, min(self._at - max_rows // 2, len(matches) - max_rows))
        for at in range(first, min(first + max_rows, len(matches))):
            is_selected = at == self._at
            label = wording.printable(self._choices[matches[at]][0])
            number = "" if self._has_own_numbers else f"{self._numbers[matches[at]]}. "
            line = wording.cut(number + label, width - 2)
            rows.append([("class:sign" if is_selected else "", f"{'>' if is_selected else ' '} {line}")])
            if is_selected or has_all:
                rows += [[("class:dim", f"    {text}")] for text in self._preview(matches[at], width)]
        if not matches:
            rows.append([("class:dim", "  nothing fits")])
        if not self.decides:
            counts = f"{len(matches)} of {len(self._choices)}"
            hint = f"{counts} · a number, or type to narrow · Enter takes · Esc leaves"
            rows += [[("class:dim", line)] for line in wrap_lines(hint, width)]
        return rows

    def _preview(self, choice: int, width: int) -> list[str]:
        """Return the first rows of a choice's preview."""
        lines = wrap_lines(wording.printable(self._choices[choice][1]), max(width - 4, 8))[:3]
        return [line for line in lines if line.strip()]


class QuestionScreen(Protocol):
    """The screen that questions are shown on, implemented by `Terminal`."""

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
        """Show a question in place of the input line, and return its answer."""
        ...

    async def page(self, text: str) -> None:
        """Show a text of any length: in a pager if it is longer than the screen."""
        ...

    async def lend_terminal(self, function: Callable[[], T]) -> T:
        """Release the terminal to another program while `function` runs."""
        ...


class TerminalPerson:
    """The person at a terminal. Permission questions take a single key or a line, the model's a line."""

    def __init__(self, terminal: QuestionScreen, marks: Marks, painter: Painter) -> None:
        self._terminal = terminal
        self._marks = marks
        self._painter = painter

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask until an answer decides. Enter, Esc, Ctrl-C and every line that is not an option are a no."""
        decision = TerminalDecision(request, self._painter.theme, _LEAST_ROWS)
        lines = (*decision.facts(), *decision.choices(), *decision.other_answers())
        text_rows = sum(len(_wrap(line, self._terminal.width())) for line in lines)
        decision.fold_to(max(self._terminal.height() - text_rows - _FRAME_ROWS, _LEAST_ROWS))
        is_drawn = is_viewed = False
        while True:
            question = self._make_question(decision)
            question.is_drawn = question.is_repeated = is_drawn
            text = await self._terminal.ask(question)
            is_drawn = True
            typed = read_line(text or "", decision.options())
            is_whole = decision.is_shown_whole and (is_viewed or not question.is_cut)
            if not may_count(typed.option, is_shown_whole=is_whole):
                await self._show_whole(decision, is_cut=question.is_cut)
                self._say(UNSEEN)
                is_drawn, is_viewed = False, True  # keys that were typed before this answer nothing
                continue
            if grant := decision.grant(typed.option):
                return self._report_grant(decision, grant)
            match typed.option:
                case "view":
                    await self._show_whole(decision, is_cut=question.is_cut)
                    is_viewed = True
                case "edit":
                    if edited := await self._edit(request):
                        return edited
                case "because":
                    reason = TerminalQuestion([("", "No, because:")])
                    reason.is_repeated = True
                    words = await self._terminal.ask(reason)
                    return Reply("no", words=unwrap_pastes(words or ""))
                case _:
                    return await self._refuse(typed)

    def _make_question(self, decision: TerminalDecision) -> TerminalQuestion:
        choices = decision.choices()
        return TerminalQuestion(
            [
                ("", wording.printable(decision.question.title), "bold"),
                *decision.rows(),
                *decision.facts(),
                ("", ""),
                *choices,
            ],
            keys=ANSWER_PROMPT,
            options=decision.options(),
            more=" (v shows all)",
            kept=len(choices),
            hints=decision.other_answers(),
        )

    async def _refuse(self, typed: TypedAnswer) -> Reply | Answer:
        """Return the no. If the person asks to stop the turn, stop it first, so that it gets no answer."""
        if typed.stops:
            self._terminal.stop_turn()
            await asyncio.sleep(0)  # the task is cancelled here
        return Reply("no", words=typed.words).short

    def _report_grant(self, decision: TerminalDecision, answer: Answer) -> Answer | Reply:
        if answer not in _GRANTS:
            return answer
        text = f"{_GRANTS[answer]} {decision.scope_text() or decision.request.subject}"
        self._say(wording.printable(text))
        return decision.reply(answer).short

    def _say(self, text: str) -> None:
        self._terminal.write("\n".join([*wrap_lines(text, self._terminal.width()), ""]))

    async def _show_whole(self, decision: TerminalDecision, *, is_cut: bool) -> None:
        lines = decision.facts()
        if is_cut:  # then the answers may have been cut, too
            lines += [*decision.choices(), *decision.other_answers()]
        rows = [row.to_line() for row in decision.rows(unfold=True)]
        rows += [row[0][1] for line in lines for row in _wrap(line, self._terminal.width())]
        await self._terminal.page("\n".join([wording.printable(decision.question.title), *rows]) + "\n")
        decision.is_shown_whole = True

    async def _edit(self, request: ApprovalRequest) -> Reply | None:
        from whet.terminal.rewriting import rewrite  # noqa: PLC0415 - most questions are not edited

        try:
            arguments = await self._terminal.lend_terminal(lambda: rewrite(request, os.environ))
        except ConfigError as error:
            self._say(wording.printable(error.message))
            return None
        if arguments is None:
            self._say("nothing was changed")
            return None
        return Reply("once", arguments=arguments)

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask for a line. A number picks a choice; Esc returns None. Pastes in the line are in tags."""
        options = [(f"  {number}  ", wording.exact(choice)) for number, choice in enumerate(choices, 1)]
        prompt = [("", wording.exact(question)), *options]
        answer = await self._terminal.ask(TerminalQuestion(prompt, keys=answer_prompt(choices)))
        if answer is None:
            return None
        chosen = resolve_choice(unwrap_pastes(answer).strip(), choices)
        answer = chosen if chosen in choices else answer.strip()
        shown = wording.printable(fold_pastes(answer))
        text = f"{wording.exact(question)}\n  {self._marks.prompt}{shown}\n"
        self._terminal.write(text)
        return answer
