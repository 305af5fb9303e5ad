"""Judge a call by its own record, by reviews, and by the calls after it.

`OutcomeJudge` reads a session's calls in order, in constant memory. A call is undone if its files have their
former contents again. It is corrected if the same tool is called within the next two calls on the same
target with fixed arguments; the next file, the next page and the next edit are not corrections. That a person
objected, or that other work was taken back, only a review can tell. Nothing is read from disk.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast

import msgspec

from whet.contract.texts import parse_arguments
from whet.contract.tools import tags_of
from whet.store.calls import POINTED, UNMARKED, StoredCall, UserWords
from whet.warm.contents import find_returned
from whet.warm.outcome import Outcome, judge_alone

_MAX_CALLS_BETWEEN = 2
_MAX_PENDING = 2_000
_MAX_EARLIER = 50
_PAGING_ARGUMENTS = frozenset(
    ("offset", "limit", "page", "seq", "ref", "cursor", "start", "end", "timeout_s", "before", "after")
)
_COMMAND_ARGUMENTS = _PAGING_ARGUMENTS | {"command", "workdir", "stdin", "pty"}
_OPTION_PREFIXES = ("-", ">", "<", "|", "&", "2>")
_TOO_SHORT_COMMANDS = [[program] for program in ("ls", "pwd", "date", "git", "env", "ps")]
_TARGET_ARGUMENTS = ("path", "file_path", "url", "name", "file", "uri")
_UNKNOWN_TOOL = (
    r"\b(?:unknown|no such|invalid|no) (?:tool|function)\b"
    r"|\btool\b.{0,80}\b(?:not found|unknown|does not exist)"
)


class JudgedCall(msgspec.Struct, gc=False):
    """A call with its outcome; both may change until `OutcomeJudge.take` returns it.

    `arguments` is parsed. `repairs` is the failed call that this one fixed; `repairs_why` is how it had
    failed.
    """

    call: StoredCall
    arguments: dict[str, Any]
    outcome: Outcome
    reason: str
    repairs: StoredCall | None = None
    repairs_why: str = ""


class OutcomeJudge:
    """Judges the calls of one session. Feed it in order; `take` returns the settled calls."""

    def __init__(
        self, undone_turns: frozenset[int] | set[int] = frozenset(), tools: frozenset[str] = frozenset()
    ) -> None:
        """`tools`: the tool names of the session; empty if unknown."""
        self._undone = undone_turns
        self._tools = tools
        self._turn: list[JudgedCall] = []
        self._previous: list[JudgedCall] = []
        self._settled: list[JudgedCall] = []

    def add(self, item: StoredCall | UserWords) -> None:
        """Add the next call, or the next message of the person."""
        if self._turn and self._turn[-1].call.turn != item.turn:
            self._end_turn()
        if isinstance(item, UserWords):
            return
        arguments = parse_arguments(item.arguments)
        outcome, reason = judge_alone(item, arguments, is_reviewed=item.pointed == UNMARKED)
        if outcome == "ok" and (is_unknown_tool(item) if not self._tools else item.name not in self._tools):
            outcome, reason = "failed", "there is no such tool"
        if item.pointed not in ("", UNMARKED):
            outcome, reason = cast("Outcome", item.pointed), POINTED
        if item.turn in self._undone:
            outcome, reason = "undone", "the turn was undone"
        new = JudgedCall(item, arguments, outcome, reason)
        self._compare(new)
        self._turn.append(new)
        if len(self._turn) > _MAX_PENDING:
            self._settle(_MAX_PENDING // 2)

    def take(self) -> list[JudgedCall]:
        """Return the calls settled so far."""
        settled = self._settled
        if settled:
            self._settled = []
        return settled

    def finish(self) -> list[JudgedCall]:
        """Settle all calls and return them."""
        self._end_turn()
        self._end_turn()
        return self.take()

    def _compare(self, new: JudgedCall) -> None:
        """Find what a call that worked repairs, corrects and undoes."""
        if new.outcome != "ok":
            return
        self._recall_failures(new)
        compared, is_next = 0, True  # a failure is mended by the next call of the tool that worked
        for old in reversed(self._turn) if "aside" not in tags_of(new.call.name) else ():
            if old.call.step == new.call.step:
                continue
            compared += 1
            if compared > _MAX_CALLS_BETWEEN:
                break
            if old.call.name != new.call.name:
                continue
            is_next = is_next and old.outcome == "failed"
            if old.call.arguments != new.call.arguments and (is_next or old.outcome == "ok"):
                _relate(old, new)
        if new.call.effects is not None:
            self._find_undone(new)

    def _find_undone(self, new: JudgedCall) -> None:
        """Find the calls whose files this call brought back to their former contents, in its own turn and the
        previous one. A review that read both calls and pointed at neither excuses them."""
        near = (*reversed(self._turn[-_MAX_EARLIER:]), *reversed(self._previous[-_MAX_EARLIER:]))
        past = {judged.call.seq: judged for judged in near}
        for call in find_returned(new.call, (judged.call for judged in near)):
            is_excused = call.pointed == new.call.pointed == UNMARKED
            if past[call.seq].outcome in ("ok", "corrected", "objected") and not is_excused:
                past[call.seq].outcome = "undone"
                past[call.seq].reason = "its files have their former contents again"

    def _recall_failures(self, new: JudgedCall) -> None:
        """Judge earlier runs of a call by their own record, although a review did not point at them: the call
        was repeated until it worked, so their exit codes were no answer."""
        if new.call.pointed != UNMARKED or judge_alone(new.call, new.arguments)[0] != "ok":
            return
        for old in self._turn[-_MAX_EARLIER:]:
            if old.outcome == "ok" and old.call.arguments == new.call.arguments:
                old.outcome, old.reason = judge_alone(old.call, old.arguments)

    def _end_turn(self) -> None:
        self._settled += self._previous
        self._previous, self._turn = self._turn, []

    def _settle(self, count: int) -> None:
        """Settle the oldest calls of a turn that has very many."""
        self._settled += [*self._previous, *self._turn[:count]]
        self._previous = []
        del self._turn[:count]


def _relate(old: JudgedCall, new: JudgedCall) -> None:
    """Compare two calls of a tool."""
    if old.outcome == "failed":
        if new.repairs is None and new.arguments:
            new.repairs, new.repairs_why = old.call, failure_text(old.call)
            new.reason = f"mends a call that failed ({old.reason})"
    elif is_correction(old, new):
        old.outcome, old.reason = "corrected", "made again with mended arguments"


def is_correction(old: JudgedCall, new: JudgedCall) -> bool:
    """Return whether a successful call of a tool was repeated with fixed arguments on the same target."""
    before, after = old.arguments, new.arguments
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    if not changed - _PAGING_ARGUMENTS:
        return False
    tags = tags_of(new.call.name)
    if "command" in tags:
        return not changed - _COMMAND_ARGUMENTS and _same_command(before, after)
    if "search" in tags:
        return (
            before.get("path") == after.get("path")
            and _has_no_match(old.call)
            and not _has_no_match(new.call)
        )
    if "edits" in tags and "whole" not in tags:
        undone = str(before.get("new_string") or "")
        return (
            before.get("path") == after.get("path")
            and bool(undone)
            and str(after.get("old_string") or "") in (undone, undone.strip())
        )
    same_target = any(key in before and before.get(key) == after.get(key) for key in _TARGET_ARGUMENTS)
    return same_target and not changed & set(_TARGET_ARGUMENTS)


def is_unknown_tool(call: StoredCall) -> bool:
    """Return whether a result is the one-line error for an unknown tool. For stores that kept no flags."""
    text = (call.result or "")[:400].strip()
    return "\n" not in text and call.name in text and re.search(_UNKNOWN_TOOL, text, re.I) is not None


def failure_text(call: StoredCall) -> str:
    """Return how a call failed, in our own words: its result may contain anyone's text."""
    if call.exit_code:
        return f"exit {call.exit_code}"
    return call.error_kind.replace("_", " ") if call.error_kind else "its result says so"


def _same_command(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return whether two commands are the same except for options, settings or redirections."""
    plain, again = (_plain_words(str(arguments.get("command", ""))) for arguments in (before, after))
    return bool(plain) and plain == again and plain not in _TOO_SHORT_COMMANDS


@lru_cache(maxsize=256)
def _plain_words(command: str) -> list[str]:
    """Return a command's words that are no options, settings or redirections."""
    return [word for word in command.split() if "=" not in word and not word.startswith(_OPTION_PREFIXES)]


def _has_no_match(call: StoredCall) -> bool:
    text = (call.result or "").strip().lower()
    return not text or text.startswith(("no match", "nothing", "no files", "[no match", "no results"))
