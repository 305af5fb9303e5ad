"""Check the claims with which a model ends a goal: each claim points at a call that must support it.

If the call does not exist or its result does not contain the claimed words, the claim is false and the goal
can't end. A true claim proves something only if the call succeeded, came after the last edit, and printed
words that the model did not write itself; otherwise it is doubtful, and the goal ends as unproven.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal
from urllib.parse import unquote_plus

import msgspec

from whet.contract.receipts import CallEffects
from whet.contract.texts import NOT_JSON, flat, from_json, map_texts
from whet.contract.tools import tags_of
from whet.store.calls import StoredCall, UserWords
from whet.store.facts import FactRow

FINISH = "finish"
ClaimKind = Literal["tests", "command", "edit", "read", "sent", "noted"]
_RUN_KINDS = ("tests", "command")
_NOT_READING = frozenset({"command", "edits", "aside", "own", "asks", "delegates"})
_TARGET_ARGUMENTS = ("command", "path", "url", "query", "pattern")
_MIN_CHARS = 2
_LINE_NUMBERS = re.compile(r"^\s*\d+\|", re.MULTILINE)


class GoalClaim(msgspec.Struct, frozen=True):
    """A claim that a call shows something.

    `call` is the command, path, address or query of the call, its tool's name or its id. `shows` are words
    from its result. For an edit they are the file's name, and for a message or a note words of its text.
    """

    kind: ClaimKind
    call: str
    shows: str


class GoalCall(msgspec.Struct, frozen=True):
    """A call of the goal with its facts, arguments and result.

    `step` is (turn, number). `later_changes` are the files that have changed since the end of that step, in
    any way. `unfit_reason` is why the tests that it ran or the file that it read prove nothing, or empty.
    `test_command` is the part of its command that runs tests, which Whet can run again. `present_text` is
    that of the file that it read, or None if that is not a text file of the workspace.
    """

    seq: int
    call_id: str
    name: str
    arguments: str
    result: str
    error_kind: str
    exit_code: int | None
    facts: CallEffects
    step: tuple[int, int] = (0, 0)
    later_changes: tuple[str, ...] = ()
    unfit_reason: str = ""
    test_command: str = ""
    present_text: str | None = None

    @property
    def rerun_command(self) -> str:
        """The command that Whet must run itself, because the call's exit code does not prove that the tests
        passed; else empty."""
        tests = self.facts.tests
        return self.test_command if tests is None or not tests.direct else ""

    @property
    def changed_paths(self) -> tuple[str, ...]:
        """The files that the call changed."""
        return tuple(change.path for change in (*self.facts.edits, *self.facts.touched))


def join_facts(stored: Sequence[StoredCall | UserWords], facts: Sequence[FactRow]) -> list[GoalCall]:
    """Combine calls with their facts, in order. User messages and calls without a result are skipped."""
    by_seq = {row.seq: row for row in facts}
    goal_calls: list[GoalCall] = []
    for call in stored:
        if isinstance(call, UserWords) or call.result is None:
            continue
        row = by_seq.get(call.seq)
        goal_calls.append(
            GoalCall(
                call.seq,
                row.call_id if row else "",
                call.name,
                call.arguments,
                call.result,
                call.error_kind,
                call.exit_code,
                row.facts if row else CallEffects(),
                (row.turn, row.step) if row else (0, 0),
            )
        )
    return goal_calls


def add_later_changes(
    calls: Sequence[GoalCall], later: Mapping[tuple[int, int], Sequence[str]]
) -> list[GoalCall]:
    """Return the calls with the files that have changed since their steps (`later`)."""
    return [msgspec.structs.replace(call, later_changes=tuple(later.get(call.step, ()))) for call in calls]


def find_refusals(claims: Sequence[GoalClaim], calls: Sequence[GoalCall]) -> list[str]:
    """Return a reason for each false claim, with which a goal can't end, or for their absence."""
    if not claims:
        return ["there is no claim: point at the calls that show that the goal is reached"]
    return _list_faults(claims, calls, _find_falsehood)


def find_doubts(claims: Sequence[GoalClaim], calls: Sequence[GoalCall]) -> list[str]:
    """Return the reasons why true claims do not prove anything, or an empty list if they do."""
    reasons = _list_faults(claims, calls, _find_doubt)
    last_edit = max((call.seq for call in calls if call.facts.edits or call.facts.touched), default=0)
    if not reasons and last_edit and not any(claim.kind in _RUN_KINDS for claim in claims):
        reasons.append("files were changed, and no claim points at a command that shows that they work")
    test_runs = [call for call in calls if call.facts.tests is not None]
    if test_runs and test_runs[-1].facts.tests is not None and _is_failure(test_runs[-1]):
        reasons.append(f"the last test run failed ({test_runs[-1].facts.tests.text})")
    return reasons


def is_failure_report(claims: Sequence[GoalClaim], calls: Sequence[GoalCall]) -> bool:
    """Return whether a claim points at a call that failed, or whose tests did."""
    claimed_calls = [call for claim in claims if (call := find_call(claim, calls)) is not None]
    return any(call.exit_code not in (None, 0) or _is_failure(call) for call in claimed_calls)


def is_stale(call: GoalCall, calls: Sequence[GoalCall]) -> bool:
    """Return whether files changed after a call."""
    return bool(call.later_changes) or any(other.seq > call.seq and other.changed_paths for other in calls)


def _list_faults(
    claims: Sequence[GoalClaim],
    calls: Sequence[GoalCall],
    find_fault: Callable[[GoalClaim, Sequence[GoalCall]], str],
) -> list[str]:
    return [
        f"claim {number} ({claim.kind} {claim.call!r}): {fault}"
        for number, claim in enumerate(claims, 1)
        if (fault := find_fault(claim, calls))
    ]


def _find_falsehood(claim: GoalClaim, calls: Sequence[GoalCall]) -> str:
    """Return how a claim contradicts its call, or an empty string."""
    call = find_call(claim, calls)
    if call is None:
        return "there is no such call in this goal"
    shows = flat(claim.shows)
    if claim.kind == "edit":
        return "" if _names_change(claim, call) else "that call did not change this file"
    if claim.kind == "sent" and not call.facts.sent:
        return "that call sent nothing"
    if claim.kind == "noted" and not tags_of(call.name) & {"notes", "skills"}:
        return "that call noted nothing"
    if call.name == FINISH:
        return "that call read nothing"
    if not shows:
        may_be_silent = bool(call.facts.command) and call.exit_code is not None and call.facts.tests is None
        return "" if may_be_silent else "say in `shows` what it shows"
    if claim.kind in ("sent", "noted"):
        text = _argument_text(call)
    else:
        text = flat(_LINE_NUMBERS.sub("", call.result))
    is_true = _contains_words(shows, text) or _contains_words(shows, flat(call.result))
    return "" if is_true else "its result does not say that; copy the words that it printed"


def _is_failure(call: GoalCall) -> bool:
    return bool(call.error_kind) or (call.facts.tests is not None and call.facts.tests.failed > 0)


def _find_doubt(claim: GoalClaim, calls: Sequence[GoalCall]) -> str:
    """Return why a claim proves nothing, or an empty string."""
    call = find_call(claim, calls)
    if call is None:
        return "there is no such call in this goal"
    if call.error_kind or call.exit_code not in (None, 0):
        return f"that call failed ({call.error_kind or 'exit'} {call.exit_code or ''})".replace(" )", ")")
    if claim.kind == "edit":
        return "" if _names_change(claim, call) else "that call did not change this file"
    if claim.kind not in _RUN_KINDS:
        return _find_content_doubt(claim, call, calls)
    if not call.facts.command or call.exit_code is None:
        return "that call ran no command to its end"
    if claim.kind == "tests" and call.test_command:
        return _find_run_doubt(claim, call, calls)  # Whet runs them again if files changed later
    later = next((other for other in calls if other.seq > call.seq and other.changed_paths), None)
    if later is not None:
        return f"it is stale: {later.changed_paths[0]} was changed after it; run it again"
    if call.later_changes:
        return f"it is stale: {call.later_changes[0]} is not what it was then; run it again"
    if call.changed_paths and not (claim.kind == "tests" and call.rerun_command):
        return f"the command itself changed {call.changed_paths[0]}; run the check alone"
    return _find_run_doubt(claim, call, calls)


def find_call(claim: GoalClaim, calls: Sequence[GoalCall]) -> GoalCall | None:
    """Return the last call that a claim points at, by its id, its arguments, or its tool's name."""
    target = claim.call.strip()
    if not target:
        return None
    for call in reversed(calls):
        arguments = text_arguments(call.arguments)
        names = {call.call_id, call.name, *(arguments.get(name, "") for name in _TARGET_ARGUMENTS)}
        if target in names or (claim.kind == "edit" and target in call.changed_paths):
            return call
    return _find_abbreviated(claim, target, calls)


def _find_abbreviated(claim: GoalClaim, target: str, calls: Sequence[GoalCall]) -> GoalCall | None:
    """Return the last call whose command contains the claimed words in their order, or None."""
    words = target.split()
    if claim.kind not in _RUN_KINDS or not words:
        return None
    for call in reversed(calls):
        command = text_arguments(call.arguments).get("command", "")
        if call.facts.command and _has_in_order(words, command):
            return call
    return None


def _names_change(claim: GoalClaim, call: GoalCall) -> bool:
    """Return whether a claim names a file that its call changed, or words that the call wrote into it."""
    if claim.shows in call.changed_paths:
        return True
    shows = flat(claim.shows)
    return claim.call.strip() in call.changed_paths and bool(shows) and shows in _argument_text(call)


def _has_in_order(words: Sequence[str], command: str) -> bool:
    """Return whether a command has these words in their order; the last one may be cut off."""
    command_words = iter(command.split())  # each search continues where the last one ended
    head, last = words[:-1], words[-1]
    return all(word in command_words for word in head) and any(
        word.startswith(last) for word in command_words
    )


def _find_run_doubt(claim: GoalClaim, call: GoalCall, calls: Sequence[GoalCall]) -> str:
    """Return why a command or test run proves nothing, or an empty string."""
    tests = call.facts.tests
    if claim.kind == "tests":
        if (tests is None or not tests.direct) and not call.rerun_command:
            return "no test runner printed its counts and set the exit code there: run it by itself"
        if call.unfit_reason:
            return call.unfit_reason
        if tests is not None and (tests.failed or not tests.passed):
            return f"the runner printed: {tests.text}"
    shows = flat(claim.shows)
    if len(shows) < _MIN_CHARS or not _contains_words(shows, flat(call.result)):
        return "its result does not say that; copy the words that it printed"
    if shows in flat(text_arguments(call.arguments).get("command", "")):
        return "these words stand in the command itself: an echo shows nothing"
    if claim.kind == "command" and _is_quote(call, calls):
        return "it only prints what you wrote yourself"
    return ""


def _find_content_doubt(claim: GoalClaim, call: GoalCall, calls: Sequence[GoalCall]) -> str:
    """Return why a call does not prove that something was read, sent or noted, or an empty string."""
    tags, shows, argument_text = tags_of(call.name), flat(claim.shows), _argument_text(call)
    if len(shows) < _MIN_CHARS:
        return "say in `shows` what it shows"
    if claim.kind == "read":
        if call.name == FINISH or call.facts != CallEffects() or tags & _NOT_READING:
            return "that call read nothing"
        return _find_read_doubt(shows, call, calls)
    if claim.kind == "sent" and not call.facts.sent:
        return "that call sent nothing"
    if claim.kind == "noted" and not tags & {"notes", "skills"}:
        return "that call noted nothing"
    return "" if _contains_words(shows, argument_text) else "it does not say that; copy words of what went in"


def _find_read_doubt(shows: str, call: GoalCall, calls: Sequence[GoalCall]) -> str:
    if call.unfit_reason:
        return call.unfit_reason
    if not _contains_words(shows, flat(_LINE_NUMBERS.sub("", call.result))):
        return "its result does not say that; copy the words that stand in it"
    if call.present_text is not None and not _contains_words(shows, flat(call.present_text)):
        return "it is stale: the file does not say that any more; read it again"
    earlier_writes = [
        other for other in calls if other.seq < call.seq and (other.changed_paths or other.facts.command)
    ]
    if any(_contains_words(shows, _argument_text(other)) for other in (call, *earlier_writes)):
        return "these words are your own: what you wrote or asked for shows nothing"
    return ""


def _argument_text(call: GoalCall) -> str:
    """Return all texts among a call's arguments, also URL-decoded."""
    texts: list[str] = []

    def keep(text: str) -> str:
        texts.append(text)
        return text

    try:
        map_texts(msgspec.json.decode(call.arguments or "{}"), keep)
    except NOT_JSON:
        return ""
    return flat(" ".join((*texts, *map(unquote_plus, texts))))


def _is_quote(call: GoalCall, calls: Sequence[GoalCall]) -> bool:
    """Return whether each line of a result is one that the model itself has written, into a file or a
    command."""
    lines = {line.strip() for line in call.result.splitlines() if line.strip()}
    lines = {line for line in lines if not (line.startswith("[exit ") and line.endswith("]"))}
    own_lines: set[str] = set()
    for earlier in calls:
        if earlier.seq <= call.seq:
            texts = text_arguments(earlier.arguments).values()
            own_lines |= {line.strip() for text in texts for line in text.splitlines()}
    return bool(lines) and lines <= own_lines


def text_arguments(arguments: str) -> dict[str, str]:
    try:
        values = from_json(arguments or "{}", dict[str, object])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return {key: value.strip() for key, value in values.items() if isinstance(value, str)}


def _contains_words(words: str, text: str) -> bool:
    """Return whether a text contains these words, without cutting the first word or a number."""
    before = r"(?<!\w)(?<!\d[.,])" if words[0].isalnum() else ""
    after = r"(?!\d|[.,]\d)" if words[-1].isdigit() else ""
    return re.search(before + re.escape(words) + after, text) is not None
