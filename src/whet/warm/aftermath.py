"""Judge a call by the calls and messages after it: a correction, an objection, or an undo.

`OutcomeJudge` reads a session's calls in order, in constant memory. A call is corrected if the same tool
is called within the next two calls on the same target with fixed arguments; the next file, the next page
and the next edit are not corrections. Nothing is read from disk.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any

import msgspec

from whet.contract.texts import parse_arguments
from whet.contract.tools import tags_of
from whet.late import late_pattern
from whet.store.calls import StoredCall, UserWords
from whet.warm.contents import find_returned, left_alone
from whet.warm.opposites import may_undo
from whet.warm.outcome import EDITS_IN_PLACE, Outcome, judge_alone, read_program
from whet.warm.retry import find_vain_run, find_vain_try, is_again, is_alike, is_same_run, own_output
from whet.warm.takeback import drops_path_of, ends_or_amends, replaces_text, restores_content, undoes

_MAX_CALLS_BETWEEN = 2
_MAX_RUNS_BACK = 6
_MAX_PENDING = 2_000
_MAX_EARLIER = 50
_PAGING_ARGUMENTS = frozenset(
    ("offset", "limit", "page", "seq", "ref", "cursor", "start", "end", "timeout_s", "before", "after")
)
_COMMAND_ARGUMENTS = _PAGING_ARGUMENTS | {"command", "workdir", "stdin", "pty"}
_OPTION_PREFIXES = ("-", ">", "<", "|", "&", "2>")
_TOO_SHORT_COMMANDS = [[program] for program in ("ls", "pwd", "date", "git", "env", "ps")]
_TARGET_ARGUMENTS = ("path", "file_path", "url", "name", "file", "uri")
_REJECTION = (
    r"that(?:'s| is| was) (?:not|(?:the )?wrong|incorrect)|this is (?:not|wrong)|not what i"
    r"|(?:that|this|it|you) (?:did|does|do)(?:n[’']t| not) (?!matter|need|have)|why did you\b"
    r"|i (?:said|told you|asked)\b.*\b(?:not|never)\b|i did(?:n't| not) (?:ask|want|say)"
    r"|you (?:should not|shouldn't|were not supposed|broke|deleted the wrong)"
    r"|undo\b|revert\b(?! to (?:me|us)\b)|roll (?:it |that )?back|put (?:it|that) back|don't do that"
    r"|das (?:ist|war) (?:falsch|nicht)|mach das rückgängig|c'est faux|eso no|不对|错了|違う"
)
"""The beginning of a sentence that rejects what was done."""
_OBJECTION = (
    r"^(?!\W*no\s[^.!?\n]*\?)\W*(?:(?:[aeou]h+|h?m+)\W+)?"
    rf"(?:{_REJECTION})|[.!?]\s+(?:{_REJECTION})"
)
_NO = (
    r"^(?!\W*no\s[^.!?\n]*\?|[^\n!]*\?\s*$)\W*(?:(?:[aeou]h+|h?m+)\W+)?"
    r"(?:(?:no|nope|nah|nein|non|incorrect|falsch|nee?)\b"
    r"(?!\s*(?:problem|worries|need|rush|thanks|thank|idea|doubt|more|other|further|extra))(?:[,.!:; ]|$)"
    # With an object these begin the next task: "stop the timer", "wait for the build".
    r"|(?:stop|wrong|wait|hey|argh|ugh)\b\s*(?:[,.!:;-]|(?:no|not|that|nein|non)\b|$))"
)
"""The beginning of a message that says no, to what was done or to something else."""

_BARE_NO = late_pattern(r"(?i)\W*(?:(?:[aeou]h+|h?m+)\W+)?\w+\s*(?:[,.!:;-]|$)|[^\n]*!\s*$")
_COMPLAINT = late_pattern(
    r"(?i)\b(?:no|not|never|nope|cannot|\w+n[’']t|wrong|instead|still|nicht|kein\w*|falsch"
    r"|immer noch|non|pas|faux|sigue|mal|não|нет|не|nic|furt|ne)\b(?!-)"
    r"|[不没錯错違]|ない|아니|말고|안 |\bلا\b|\bלא\b|^\W*(?:you|your|why)\b"
    r"|(?i:\bi (?:said|told|wanted|asked|meant)\b)"
)
"""A negation, or a sentence that begins by addressing the agent or with the person's own wish."""
_CHANGES = frozenset(("edits", "command"))
_FORBIDS = late_pattern(
    r"(?i)(?:^|[.!?]\s+)\W*(?:please\s+)?(?:never|do(?:n[’']t| not)|nie(?:mals)?|nunca|jamais|никогда)"
    r"\s+(\w+ \w+)"
)
_MIN_SHARED_WORDS = 0.5
_COMPLAINT_CHARS = 160
_UNKNOWN_TOOL = (
    r"\b(?:unknown|no such|invalid|no) (?:tool|function)\b"
    r"|\btool\b.{0,80}\b(?:not found|unknown|does not exist)"
)


class JudgedCall(msgspec.Struct, gc=False):
    """A call with its outcome; both may change until `OutcomeJudge.take` returns it.

    `arguments` is parsed. `repairs` is the failed call that this one fixed; `repairs_why` is how it had
    failed. `changes`: it may have changed something, by an edit or a command.
    """

    call: StoredCall
    arguments: dict[str, Any]
    outcome: Outcome
    reason: str
    repairs: StoredCall | None = None
    repairs_why: str = ""
    changes: bool = False


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
        self._complains = False
        self._request = ""
        self._doubted: list[JudgedCall] = []

    def add(self, item: StoredCall | UserWords) -> None:
        """Add the next call, or the next message of the person."""
        if isinstance(item, UserWords):
            self._add_message(item)
            return
        arguments = parse_arguments(item.arguments)
        outcome, reason = judge_alone(item, arguments, self._request)
        if outcome == "ok" and (is_unknown_tool(item) if not self._tools else item.name not in self._tools):
            outcome, reason = "failed", "there is no such tool"
        if item.turn in self._undone:
            outcome, reason = "undone", "the turn was undone"
        changes = not tags_of(item.name).isdisjoint(_CHANGES)
        new = JudgedCall(item, arguments, outcome, reason, changes=changes)
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

    def _add_message(self, message: UserWords) -> None:
        """Handle a new message: it may object to the previous turn, unless it was typed during that turn."""
        if self._turn and self._turn[-1].call.turn == message.turn:
            return
        if not self._turn:
            self._settle_doubts()
        self._request = message.text
        if not self._turn:
            return
        self._complains = _COMPLAINT.search(message.text[:_COMPLAINT_CHARS]) is not None
        is_rejected = is_objection(message.text)
        doubted: list[JudgedCall] = []
        for judged in self._turn:
            if judged.outcome == "ok" and (is_rejected or _is_forbidden(judged.arguments, message.text)):
                judged.outcome, judged.reason = "objected", "the person objected"
                doubted.append(judged)
        self._end_turn()
        self._doubted = [] if re.search(_OBJECTION, message.text[:300], re.I) else doubted

    def _compare(self, new: JudgedCall) -> None:
        if new.outcome != "ok":
            return
        name, step, tags = new.call.name, new.call.step, tags_of(new.call.name)
        compared = 0
        between = ""
        for old in reversed(self._turn) if "aside" not in tags else ():
            if old.call.step == step:
                continue
            compared += 1
            if compared > _MAX_CALLS_BETWEEN:
                break
            if old.call.name == name and old.call.arguments != new.call.arguments:
                self._relate(old, new, between)
            between = old.call.result or ""
        if "command" in new.arguments:
            self._find_vain_run(new)
        if new.changes:
            self._find_undone(new)
            self._find_replaced_edit(new)
            self._find_redone_call(new)

    def _relate(self, old: JudgedCall, new: JudgedCall, between: str) -> None:
        """Compare two calls of a tool; `between` is the result of a call between them."""
        if old.outcome in ("ok", "corrected") and (reason := _find_vain_command(old, new)):
            old.outcome, old.reason = "failed", f"exit 0, but {reason}"
        if old.outcome == "failed":
            is_named = _is_target_named(new.arguments, between)
            if new.repairs is None and (is_named or is_fix(old.arguments, new.arguments)):
                new.repairs, new.repairs_why = old.call, failure_text(old.call)
                new.reason = f"mends a call that failed ({old.reason})"
        elif old.outcome == "ok" and is_correction(old, new):
            old.outcome, old.reason = "corrected", "made again with mended arguments"

    def _find_vain_run(self, new: JudgedCall) -> None:
        """Find the run of the same command that did nothing until other calls had mended something."""
        command = str(new.arguments["command"])
        acting: list[JudgedCall] = []
        for old in reversed(self._turn[-_MAX_RUNS_BACK:]):
            done = str(old.arguments.get("command", ""))
            if old.outcome in ("ok", "corrected") and acting and done and is_same_run(done, command):
                runs = (done, own_output(old.call.result)), (command, own_output(new.call.result))
                if reason := find_vain_run(
                    *runs, by_command=any("command" in call.arguments for call in acting)
                ):
                    old.outcome, old.reason = "failed", f"exit 0, but {reason}"
                return
            if old.outcome == "ok" and _acts(old):
                acting.append(old)

    def _find_undone(self, new: JudgedCall) -> None:
        """Find the calls that this call undoes, in its own turn and the previous one."""
        near = self._turn[-_MAX_EARLIER:]
        past = {
            judged.call.seq: judged for judged in (*reversed(near), *reversed(self._previous[-_MAX_EARLIER:]))
        }
        for call in find_returned(new.call, (judged.call for judged in past.values())):
            if past[call.seq].outcome in ("ok", "corrected", "objected"):
                past[call.seq].outcome = "undone"
                past[call.seq].reason = "its files have their former contents again"
        command = str(new.arguments.get("command", ""))
        if command and not may_undo(command):
            return
        between: list[dict[str, Any]] = []
        for old in past.values():
            earlier = old.changes and old.outcome in ("ok", "corrected", "objected")
            if earlier and undoes((old.call.name, old.arguments), (new.call.name, new.arguments), between):
                old.outcome, old.reason = "undone", "a later call took it back"
            if old.call.turn == new.call.turn:
                between.append(old.arguments)
        path = new.arguments.get("path")
        if "whole" not in tags_of(new.call.name) or not path:
            return
        writes = [
            write
            for write in (*self._previous[-_MAX_EARLIER:], *near, new)
            if write.arguments.get("path") == path and "content" in write.arguments
        ]
        if restores_content([str(write.arguments["content"]) for write in writes]):
            writes[-2].outcome, writes[-2].reason = "undone", "a later call put back what it replaced"

    def _find_replaced_edit(self, new: JudgedCall) -> None:
        """Find an objection: the first edit after a message replaces text that the previous turn wrote. A
        message that names that text and complains of nothing is the next task."""
        if "edits" not in tags_of(new.call.name) or any(
            "edits" in tags_of(judged.call.name) for judged in self._turn[-_MAX_EARLIER:]
        ):
            return
        for old in self._previous[-_MAX_EARLIER:]:
            is_next = not self._complains and _is_named(str(new.arguments.get("old_string")), self._request)
            if old.outcome == "ok" and replaces_text(old.arguments, new.arguments) and not is_next:
                old.outcome, old.reason = "objected", "the person had it replaced"

    def _find_redone_call(self, new: JudgedCall) -> None:
        """Find an objection: after a message with a negation, or one that names what it should not have
        been, the turn's first call does earlier work in another way."""
        if self._turn or not self._request or self._request.rstrip().endswith(("?", "？", "؟")):
            return
        for old in self._previous[-_MAX_EARLIER:]:
            is_ended = ends_or_amends(old.arguments, new.arguments)
            if not self._complains and not is_ended and not _names_replaced(old, new, self._request):
                continue
            is_redone = is_ended or drops_path_of(old.arguments, new.arguments)
            is_redone = is_redone or (old.call.name == new.call.name and _is_redone(old, new))
            if old.outcome == "ok" and is_redone:
                old.outcome, old.reason = "objected", "the person had it done in another way"

    def _settle_doubts(self) -> None:
        """Decide whether a "no" rejected the calls before it, by the calls after it."""
        if not any(map(_acts, self._turn)) and (self._turn or not _BARE_NO.match(self._request)):
            # A "no" after which nothing is done, and nothing done again, rejects a question or an offer.
            again = {_subject(judged) for judged in self._turn}
            for judged in self._doubted:
                if judged.outcome == "objected" and _subject(judged) not in again:
                    judged.outcome, judged.reason = "ok", "no error flag"
        self._doubted = []

    def _end_turn(self) -> None:
        self._settle_doubts()
        self._settled += self._previous
        self._previous, self._turn = self._turn, []

    def _settle(self, count: int) -> None:
        """Settle the oldest calls of a turn that has very many."""
        self._settled += [*self._previous, *self._turn[:count]]
        self._previous = []
        del self._turn[:count]


def is_objection(text: str) -> bool:
    """Return whether a message rejects what was done before it, in how it or one of its sentences begins."""
    return any(re.search(pattern, text[:300], re.I) is not None for pattern in (_OBJECTION, _NO))


def is_fix(failed: dict[str, Any], later: dict[str, Any]) -> bool:
    """Return whether a successful call is the failed one with fixed arguments, and not another task."""
    if not failed or not later:
        return bool(later)
    if any(failed.get(name) == later[name] for name in _TARGET_ARGUMENTS if name in later):
        return True
    old, new = _argument_text(failed), _argument_text(later)
    if "command" in later:
        return _likeness(old, new) >= 0.45
    last = [text.rstrip("/").rpartition("/")[2] for text in (old, new)]
    return last[0] == last[1] or _likeness(*last) >= 0.6 or _likeness(old, new) >= 0.55


def _is_target_named(later: dict[str, Any], between: str) -> bool:
    """Return whether the call between the failed one and this one named this call's target."""
    targets = [later[name] for name in _TARGET_ARGUMENTS if isinstance(later.get(name), str)]
    targets += [word for word in str(later.get("command", "")).split() if "/" in word or "." in word]
    return bool(between) and any(len(target) > 3 and target in between for target in targets)


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


def _is_named(text: str, request: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", request) is not None


def _is_redone(old: JudgedCall, new: JudgedCall) -> bool:
    """Return whether a call is an earlier one with other words in some places, or continues its edit."""
    before, after = old.arguments, new.arguments
    if before == after:
        return False
    wrote = str(before.get("new_string") or "").strip()
    if wrote and before.get("path") == after.get("path"):
        return wrote in str(after.get("old_string") or "")
    first, second = (set(re.findall(r"[\w./-]+", _argument_text(arguments))) for arguments in (before, after))
    shared = first & second
    return [*shared] not in _TOO_SHORT_COMMANDS and len(shared) >= _MIN_SHARED_WORDS * max(
        len(first), len(second)
    )


def _acts(judged: JudgedCall) -> bool:
    """Return whether a call was an edit, or a command that does more than show data or wait."""
    command = judged.arguments.get("command")
    if not judged.changes or not isinstance(command, str):
        return judged.changes
    program, shows = read_program(command)
    return program not in ("", "sleep") and not shows


def _subject(judged: JudgedCall) -> tuple[str, str]:
    """Return a call's tool, and the program if it is a command."""
    return judged.call.name, read_program(str(judged.arguments.get("command", "")))[0]


def _names_replaced(old: JudgedCall, new: JudgedCall, request: str) -> bool:
    """Return whether a command is an earlier one with another word in one place, and the message between
    them names only the word that was replaced."""
    first, second = (
        re.findall(r"[\w.-]+", str(judged.arguments.get("command", "")).lower()) for judged in (old, new)
    )
    gone, put = set(first) - set(second), set(second) - set(first)
    if len(first) != len(second) or len(gone) != 1 or len(put) != 1:
        return False
    requested = set(re.findall(r"[\w.-]*\w", request.lower()))
    return gone <= requested and requested.isdisjoint(put)


def _find_vain_command(old: JudgedCall, new: JudgedCall) -> str:
    """Return why a command did nothing although it ended with 0, by the next try of it."""
    done, again = (str(judged.arguments.get("command", "")) for judged in (old, new))
    if not done or not again or read_program(done)[1]:
        return ""
    first, second = (done, own_output(old.call.result)), (again, own_output(new.call.result))
    is_named = left_alone(old.call, new.call)
    is_silent = not first[1] and re.search(EDITS_IN_PLACE, done) is not None
    is_clear = is_named or is_silent or not is_alike(first, second)
    if is_named is not None and is_again(done, again) and is_clear:
        return "it changed no file, and the next try changed one"
    return find_vain_try(first, second)


def _is_forbidden(arguments: dict[str, Any], message: str) -> bool:
    """Return whether a sentence forbids what a command did: a negation begins it, and the command has the two
    words after that."""
    words = set(re.findall(r"\w{3,}", str(arguments.get("command", "")).lower()))
    return any(words.issuperset(match[1].lower().split()) for match in _FORBIDS.finditer(message))


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


def _argument_text(arguments: dict[str, Any]) -> str:
    texts = [str(value) for key, value in sorted(arguments.items()) if key not in _PAGING_ARGUMENTS]
    return " ".join(texts)[:400]


def _likeness(old: str, new: str) -> float:
    return SequenceMatcher(None, old, new, autojunk=False).ratio() if old else 0.0
