"""How tool calls went: an own labelled corpus of soft failures, undone and objected calls.

Each line of `cases.jsonl` is a session of a few steps: what the person said, commands with their output and
exit code, edits and written files. `at` is the call that its kind is about (-1: nothing of it happened).
`strangers.jsonl` and `outsiders.jsonl` are by people who knew only the format and the kinds. `unseen.jsonl`
was written from public transcripts and tools' own messages before its writer read the judge, `fresh.jsonl`
after it was built. A call that the person objected to and that was then taken back counts for both kinds. The
program alone judges by records (exit codes, JSON fields, contents of files), which most cases lack;
`*.replies.jsonl` are replies of reviews to the prompts that `replies.py` writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.outcomes.replies import case_id, is_reviewed_at_once, point, read_replies
from benchmarks.table import Row
from whet.contract.changes import hash_bytes
from whet.contract.receipts import HASH_CHARS, CallEffects, FileLines
from whet.store.calls import StoredCall, UserWords
from whet.warm.aftermath import OutcomeJudge

KINDS = {"soft": ("failed",), "undone": ("undone",), "objected": ("objected", "undone")}
UNSEEN = "unseen"
HALVES = ("cases", UNSEEN)
STRANGERS = "strangers"
FRESH = "fresh"
OUTSIDERS = "outsiders"
_NOTES = {
    "unseen": ", written before their writer read the judge, which was mended on them since",
    "strangers": ", by a writer who knew only the format, partly mended on since",
    "fresh": ", from messages in public threads, partly mended on since",
    "outsiders": ", by a writer who knew only the format, not mended on",
}
_REPLIES_BY = {
    "unseen": "a model's, who read 160 prompts drawn by lot without the labels",
    "strangers": "a model's, who read the prompts without the labels",
    "fresh": "the writer's of the cases, so they show what can be verified",
    "outsiders": "a model's, who read the prompts without the labels",
}
_TOOLS = frozenset(("terminal", "patch", "write_file", "read_file"))


class OutcomeCase(msgspec.Struct, frozen=True):
    """A session, what it is a case of, and the call that shows it."""

    kind: str
    at: int
    steps: list[list[Any]]


class StepRecord(msgspec.Struct, frozen=True):
    """What was recorded of a call besides its output: the text of each changed file before and after it
    (None: there was no file), and the exit codes of its last pipeline."""

    files: dict[str, tuple[str | None, str | None]] = {}
    pipeline: tuple[int, ...] = ()


def find_path(half: str) -> Path:
    """Return the file of a part of the corpus, or the given file."""
    return Path(half) if half.endswith(".jsonl") else Path(__file__).parent / f"{half}.jsonl"


def cases(half: str = "cases") -> list[OutcomeCase]:
    """Read one part of the corpus, or the cases of a file."""
    lines = find_path(half).read_text("utf-8").splitlines()
    return [msgspec.json.decode(line, type=OutcomeCase) for line in lines if line.strip()]


def read_items(case: OutcomeCase) -> list[StoredCall | UserWords]:
    """Return a case's calls and messages as the store would."""
    is_recorded = any(isinstance(part, dict) and "files" in part for step in case.steps for part in step)
    items: list[StoredCall | UserWords] = []
    turn = seq = 0
    for step in case.steps:
        seq += 2
        if step[0] == "say":
            turn += 1
            items.append(UserWords(turn, step[1]))
            continue
        name, arguments, result, code = _call(step)
        items.append(
            StoredCall(
                seq,
                seq - 1,
                turn,
                seq,
                name,
                json.dumps(arguments, ensure_ascii=False),
                result,
                error_kind="exit" if code else "",
                exit_code=code,
                effects=_effects(step, recorded=is_recorded),
            )
        )
    return items


def judged(case: OutcomeCase, reply: str = "") -> list[tuple[str, str]]:
    """Return the outcome and the reason of each call of a case, with its review's reply if it has one."""
    items = read_items(case)
    if reply:
        point(items, reply)
    judge = OutcomeJudge(tools=_TOOLS)
    for item in items:
        judge.add(item)
    return [(call.outcome, call.reason) for call in judge.finish()]


def _effects(step: list[Any], *, recorded: bool) -> CallEffects | None:
    """Build what the program recorded of a call: the last item of a step, if it is an object. `recorded`:
    other steps of the session name files, so a command that names none changed none."""
    if not isinstance(step[-1], dict):
        if recorded and step[0] == "write":
            return CallEffects(edits=(FileLines(step[1], 0, 0, after=_hash(step[2])),))
        return CallEffects() if recorded and step[0] == "run" else None
    record = msgspec.convert(step[-1], StepRecord)
    touched = [
        FileLines(path, 0, 0, before=_hash(before), after=_hash(after))
        for path, (before, after) in record.files.items()
    ]
    return CallEffects(touched=tuple(touched), pipeline=record.pipeline)


def _hash(text: str | None) -> str:
    return "" if text is None else hash_bytes(text.encode())[:HASH_CHARS]


def _call(step: list[Any]) -> tuple[str, dict[str, str], str, int | None]:
    kind, *rest = (part for part in step if not isinstance(part, dict))
    if kind == "run":
        return "terminal", {"command": rest[0]}, rest[1] or "(no output)", rest[2]
    if kind == "edit":
        return "patch", dict(zip(("path", "old_string", "new_string"), rest, strict=True)), "patched", None
    return "write_file", dict(zip(("path", "content"), rest, strict=True)), "written", None


class OutcomeTally(msgspec.Struct):
    """How many cases there are of each kind, which were missed, and which calls were misjudged."""

    total: dict[str, int]
    missed: list[str]
    alarms: list[str]
    calls: int = 0
    dropped: int = 0

    def recall(self, kind: str) -> float:
        """The share of a kind that is recognised."""
        missed = sum(line.startswith(f"{kind}: ") for line in self.missed)
        return 1 - missed / self.total[kind]

    @property
    def false_share(self) -> float:
        """The share of calls with nothing to them that are called failed, undone or objected."""
        return len(self.alarms) / self.calls


def run_all(half: str = "cases", *, reviewed: bool = False) -> OutcomeTally:
    """Judge one part of the corpus; if `reviewed`, the cases with recorded replies of their reviews."""
    tally = OutcomeTally({}, [], [])
    replies = read_replies(find_path(half).with_suffix(".replies.jsonl")) if reviewed else {}
    for case in cases(half):
        reply = replies.get(case_id(case), "")
        if reviewed and not reply:
            continue
        tally.total[case.kind] = tally.total.get(case.kind, 0) + 1
        tally.dropped += len(point(read_items(case), reply).unproven)
        results = judged(case, reply)
        shown = " / ".join(str(part) for step in case.steps for part in step)[:300]
        if case.kind != "fine":
            if results[case.at][0] not in KINDS[case.kind]:
                tally.missed.append(f"{case.kind}: {results[case.at]} in {shown}")
            continue
        codes = [step[3] for step in case.steps if step[0] == "run"]
        tally.calls += len(results)
        wrong = [result for result in results if any(result[0] in kinds for kinds in KINDS.values())]
        surplus = max(0, len(wrong) - sum(map(bool, codes)))
        tally.alarms += [f"{result} in {shown}" for result in wrong[:surplus]]
    return tally


def run(runs: int, full: bool) -> list[Row]:
    """The corpus is fixed, so one run is enough."""
    alone = [_row(half, reviewed=False) for half in (*HALVES, STRANGERS, FRESH, OUTSIDERS)]
    return [*alone, *(_row(half, reviewed=True) for half in (UNSEEN, STRANGERS, FRESH, OUTSIDERS))]


def _row(half: str, *, reviewed: bool) -> Row:
    tally = run_all(half, reviewed=reviewed)
    shares = {kind: tally.recall(kind) for kind in KINDS}
    name = "outcomes" if half == "cases" else f"outcomes-{half}"
    is_met = tally.false_share <= 0.02
    how = "by the program alone"
    if reviewed:
        how = (
            f"with recorded replies of reviews ({_REPLIES_BY[half]}; reviewed at once, and not at the day's"
            f" looks: {_count_at_once(half)}), {tally.dropped} without proof"
        )
    return Row(
        f"{name}-reviewed" if reviewed else name,
        f"outcomes of tool calls {how}, {sum(tally.total.values())} labelled sessions{_NOTES.get(half, '')}:"
        f" soft failures, undone, objected recognised; false alarms among {tally.calls} calls",
        "≥ 90 % each; ≤ 2 %" if reviewed else "≤ 2 % alarms",
        f"{', '.join(f'{share:.0%}' for share in shares.values())}; {tally.false_share:.1%}",
        "-",
        is_met and (min(shares.values()) >= 0.9 or not reviewed),
        "python -m benchmarks outcomes",
        details=[*(tally.missed if reviewed else ()), *tally.alarms],
    )


def _count_at_once(half: str) -> str:
    """Write of how many cases of each kind a turn calls for a review by itself."""
    parts: list[str] = []
    for kind in KINDS:
        mine = [case for case in cases(half) if case.kind == kind]
        count = sum(is_reviewed_at_once(read_items(case)) for case in mine)
        parts.append(f"{kind} {count} of {len(mine)}")
    return ", ".join(parts)
