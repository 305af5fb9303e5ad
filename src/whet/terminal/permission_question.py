"""A permission question at a terminal: its rows, its options, and the scope of a lasting yes.

The one-shot and the chat use it and draw the rows themselves. `whet.typed_answer` parses the answer. The
module imports neither rich nor prompt_toolkit.
"""

from __future__ import annotations

import msgspec

from whet.amending import find_editable
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.contract.texts import join_names
from whet.contract.tools import tags_of
from whet.question import (
    ANY_ARGUMENTS,
    FOLDED_ROWS,
    IN_WORKSPACE,
    LABELS,
    NO_COMMANDS,
    NOTHING_ELSE,
    QuestionText,
    Row,
    build_question,
    describe_scope,
)
from whet.terminal.diff_view import PaintedRow, paint_rows
from whet.terminal.themes import Theme
from whet.terminal.wording import cut, cut_middle, exact
from whet.typed_answer import ALWAYS, BECAUSE, EDIT, NO, ONCE, SESSION, VIEW, AnswerOption

UNSEEN = "not an answer yet: only a part was shown. Now all of it was; answer again"
ANSWER_PROMPT = "Type a number or a word, then Enter. Enter alone is no: "
"""The prompt of the line on which the answer is typed."""
FACT_PREFIXES = {kind: f"  {label + ':':<10} " for kind, label in LABELS.items()}
_TAKE_BACK_PREFIX = f"  {'Take back:':<10} "
SHOWN_PREFIX = f"  {'Shown:':<10} "
_LASTING, _AGAIN = "Yes, and until ", " don't ask again to "
_EDITED = {"new text": "proposed file", "diff": "proposed diff", "call's arguments": "call as JSON"}
_SHORT_LASTING = "Yes, lasting: "
_SHELL_FILE = "command.sh"
_FIRST_SCOPE = 2


def shorten_choice(text: str, width: int) -> str:
    """Return an answer in one row. Of a lasting one, the beginning and the end of its scope stay, so that two
    of them look different."""
    if not text.startswith(_LASTING):
        return cut(text, width)
    scope = text.partition(_AGAIN)[2].removesuffix(NO_COMMANDS).removesuffix(NOTHING_ELSE)
    scope = scope.removesuffix(IN_WORKSPACE).replace(ANY_ARGUMENTS, " …")
    return _SHORT_LASTING + cut_middle(scope, width - len(_SHORT_LASTING))


class TerminalDecision:
    """The state of one approval request while the person answers it. With `has_keys`, single keys such as Tab
    and Esc are answers, too; without it only lines are."""

    def __init__(
        self,
        request: ApprovalRequest,
        theme: Theme,
        max_rows: int = FOLDED_ROWS,
        *,
        has_keys: bool = True,
    ) -> None:
        self._has_keys = has_keys
        self._end = "you quit this chat" if has_keys else "this run ends"
        self.max_rows: int = max_rows
        self.request = request
        self.question: QuestionText = build_question(request)
        self.is_shown_whole: bool = not self.is_long
        self._theme = theme
        self._scope = 0
        self._session_options = [
            msgspec.structs.replace(SESSION, number=str(number))
            if number == _FIRST_SCOPE
            else AnswerOption(f"session {number}", number=str(number), lasts=True)
            for number in range(_FIRST_SCOPE, _FIRST_SCOPE + max(len(request.scopes), 1))
        ]
        self._always_options = [
            ALWAYS if number == _FIRST_SCOPE else AnswerOption(f"always {number}", lasts=True)
            for number, scope in enumerate(request.scopes, _FIRST_SCOPE)
            if scope.always and request.grant
        ]
        self._no = str(_FIRST_SCOPE + len(self._session_options))

    def choices(self) -> list[tuple[str, str]]:
        """Return the numbered answers, each as a prefix and a text."""
        tags = tags_of(self.request.tool)
        noun, effect = "call", "the tool is not used"
        if self.request.changes:
            noun, effect = "change", "nothing is changed"
        elif "command" in tags:
            noun, effect = "command", "it does not run"
        elif "url" in tags:
            noun, effect = "page", "the page is not read"
        elif "path" in tags:
            noun, effect = "file", "the file is not read"
        rows = [("  1  ", f"Yes, once: only this {noun}; it allows nothing later")]
        scopes = [describe_scope(scope) for scope in self.request.scopes]
        rows += [
            (f"  {option.number}  ", f"{_LASTING}{self._end}{_AGAIN}{exact(scope)}")
            for option, scope in zip(
                self._session_options, scopes or [f"use the tool {self.request.tool}"], strict=True
            )
        ]
        keys = "Enter and Esc mean no, too" if self._has_keys else "Enter means no, too"
        return [*rows, (f"› {self._no}  ", f"No: {effect} ({keys})")]

    def other_answers(self) -> list[tuple[str, str]]:
        """Return the other answers that can be typed and their effects, as prefixes and texts."""
        answers = [("v", "show all of it, then ask again")] if self.is_long else []
        noun = find_editable(self.request).noun
        edit = "Tab" if self._has_keys else "edit"
        if self._can_edit:
            text = f"edit the {_EDITED.get(noun, noun)}; then it asks again about what you saved"
            answers.append((edit, text))
        elif self._has_keys:
            answers.append((edit, "does nothing here: there is no text to edit"))
        later = "reopened or new chats" if self._has_keys else "later runs"
        for option in self._always_options:
            number = option.name.partition(" ")[2] or _FIRST_SCOPE
            answers.append((option.name, f"like {number}, also in {later} of this very folder"))
        answers.append(("else", "any other text is a no; the model reads it as the reason"))
        width = max(len(name) for name, _ in answers)
        return [(f"  or {name:<{width}}  ", text) for name, text in answers]

    def fold_to(self, max_rows: int) -> None:
        """Show at most `max_rows` rows of the change or command."""
        self.max_rows = max_rows
        self.is_shown_whole = not self.is_long

    @property
    def _can_edit(self) -> bool:
        """Whether the call has a text to edit. A call that only deletes files has none."""
        changes = self.request.changes
        return not changes or any(change.new is not None for change in changes)

    @property
    def is_long(self) -> bool:
        """Whether some rows of the question are folded."""
        return self.question.fold_rows(self.max_rows) != self.question.body

    def rows(self, *, unfold: bool = False) -> list[PaintedRow]:
        """Return the rows of the change or command, with `unfold` all of them."""
        body = self.question.body if unfold else self.question.fold_rows(self.max_rows)
        body = tuple(Row("fold", f"{row.text} (v shows all)") if row.kind == "fold" else row for row in body)
        path = _SHELL_FILE if "command" in tags_of(self.request.tool) else ""
        if len(self.request.changes) == 1:  # the title names the file
            body, path = body[1:], self.request.changes[0].path
        exact_body = [Row(row.kind, exact(row.text)) for row in body]
        return paint_rows(exact_body, self._theme, path)

    def facts(self) -> list[tuple[str, str]]:
        """Return further facts that matter for the answer, as prefixes and texts."""
        facts = [
            (FACT_PREFIXES.get(row.kind, "  "), exact(row.text))
            for row in self.question.notes
            if row.kind != "scope"
        ]
        always = [option.name for option in self._always_options]
        if self._has_keys:
            names = join_names([*(option.number for option in self._session_options), *always])
            facts.append((_TAKE_BACK_PREFIX, f"/approvals ends {names} at any time"))
        elif always:
            facts.append((_TAKE_BACK_PREFIX, f"whet approvals ends {join_names(always)} at any time"))
        if self.is_long and not self.is_shown_whole:
            facts.append((SHOWN_PREFIX, "only a part; any first yes, or v, only shows all and asks again"))
        return facts

    def options(self) -> tuple[AnswerOption, ...]:
        """Return the options that may be typed."""
        once = msgspec.structs.replace(ONCE, number="1")
        no = msgspec.structs.replace(NO, number=self._no)
        edit = (EDIT,) if self._can_edit else ()
        return (once, *self._session_options, *self._always_options, no, BECAUSE, *edit, VIEW)

    def grant(self, option: str) -> Answer | None:
        """Return the kind of yes that an option means, or None if it is not a yes. Remembers the scope that
        the option names for `reply`."""
        name, _, number = option.partition(" ")
        if name != "once" and name != "session" and name != "always":
            return None
        self._scope = int(number) - _FIRST_SCOPE if number else 0
        return name

    def reply(self, answer: Answer) -> Reply:
        """Return the answer with the scope that `grant` remembered."""
        return Reply(answer, self._scope)

    def scope_text(self) -> str:
        """Describe the scope that `grant` remembered. Returns the request's grant if it has no scopes."""
        return describe_scope(self.request.scopes[self._scope]) if self.request.scopes else self.request.grant
