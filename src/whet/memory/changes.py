"""Plan a change to the notes or to a skill, have it judged, and enter it in the ledger in one transaction.

If the item changes meanwhile, the change is planned again. If the same call has already made a row, that row
is returned. Files are written later (`journal.py`); evidence is judged in `gate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import apsw
import msgspec

from whet.contract.errors import StoreBusy
from whet.contract.origin import Origin
from whet.contract.texts import short
from whet.log import mask
from whet.memory import notes, settling, skill_changes, skill_format, subjects
from whet.memory.folding import content_words, fold
from whet.memory.notes import EntryChange
from whet.memory.reader import MemoryReader
from whet.memory.requests import (
    SIMILAR_NOTE,
    Claim,
    GateVerdict,
    MemoryRequest,
    NeedsYes,
    Refused,
    Repeated,
    SkillRequest,
)
from whet.memory.skill_changes import SkillPlan
from whet.store import learned, ledger, sessions
from whet.store.ledger import FileChange, LedgerRow, NewRow, State, hash_text

Judge = Callable[[Claim, Origin], GateVerdict]
"""Judges a claim. Raises Refused if it may not be kept."""
_TRIES = 5


class _Planned(NamedTuple):
    """A planned row. `base` is the state from which it was planned, `read_base` reads that state again, and
    `texts` are those of its files."""

    row: NewRow
    base: object = None
    read_base: Callable[[apsw.Connection], object] | None = None
    texts: Sequence[bytes] = ()


class Changes:
    """Enters changes to the notes and skills of one profile.

    The gate judges them, or `judge_override` if set. Results of tools with the tag `local` and of
    `trusted_tools` count as evidence.
    """

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader
        self._database = reader.database
        self._profile = reader.profile
        self.trusted_tools: frozenset[str] = frozenset()
        self.judge_override: Judge | None = None

    def enter(self, request: MemoryRequest | SkillRequest, origin: Origin) -> LedgerRow:
        """Enter a change and return its row. Raises Refused, NeedsYes, StoreBusy."""
        if isinstance(request, MemoryRequest):
            self._reader.sync_files()
            return self._enter_planned_row(lambda: self._plan_note(request, origin), "the notes")
        self._check_name(request)
        self._reader.sync_files([request.name])
        return self._enter_planned_row(lambda: self._plan_skill(request, origin), f"the skill {request.name}")

    def keep_refusal(self, request: MemoryRequest | SkillRequest, origin: Origin, error: Refused) -> None:
        """Store a refused change of a review, so that the person can read it and accept a note by hand."""
        has_evidence = request.content and request.evidence and not isinstance(error, Repeated)
        if origin.write_origin != "review" or not has_evidence or not origin.tool_call_id:
            return
        edit = EntryChange("", mask(request.content))
        row = msgspec.structs.replace(
            self._build_row(request, origin, GateVerdict("untrusted"), edit),
            action="add" if isinstance(request, MemoryRequest) else request.action,
            state="refused",
            hash="",
            reason=error.outcome.text,
        )
        self._enter_planned_row(lambda: _Planned(row), "the ledger")

    def _enter_planned_row(self, plan: Callable[[], _Planned], item_name: str) -> LedgerRow:
        """Enter the planned row in one transaction. If the same call already made a row, return that one."""
        for _ in range(_TRIES):
            planned = plan()

            def work(connection: apsw.Connection, planned: _Planned = planned) -> LedgerRow | None:
                origin = planned.row.origin
                if existing := ledger.find_by_call(connection, origin.session_id, origin.tool_call_id):
                    return existing
                if planned.read_base and planned.read_base(connection) != planned.base:
                    return None  # the item has changed since it was read
                for content in planned.texts:
                    learned.store_text(connection, content)
                row = ledger.insert_row(connection, planned.row, self._reader.now())
                if row.state == "active":
                    settling.enforce(connection, row)
                return row

            if row := self._database.write_now(work):
                return row
        raise StoreBusy(f"others keep changing {item_name}", hint="try again")

    def _build_row(
        self,
        request: MemoryRequest | SkillRequest,
        origin: Origin,
        verdict: GateVerdict,
        edit: EntryChange | SkillPlan,
    ) -> NewRow:
        is_note = isinstance(request, MemoryRequest)
        content = request.content if is_note else request.content or request.new_string
        state: State = "quarantined" if verdict.trust == "untrusted" else "active"
        return NewRow(
            kind="memory" if is_note else "skill",
            item=request.target if is_note else request.name,
            action=request.action,
            state="staged" if origin.write_origin == "review" else state,
            origin=origin,
            before=edit.before,
            after=edit.after,
            base_hash=hash_text(edit.before) if edit.before else "",
            hash=hash_text(edit.after) if edit.after else "",
            evidence=verdict.evidence,
            trust=verdict.trust,
            reason=request.reason or verdict.why,
            profile=self._profile,
            remark=content if verdict.text else "",
        )

    def _plan_note(self, request: MemoryRequest, origin: Origin) -> _Planned:
        def read_base(connection: apsw.Connection) -> str:
            return settling.read_note_text(connection, self._profile, request.target, origin.task_id)

        base = self._database.read_now(read_base)
        request = self._resolve_remark(request, existing := _list_entries(self._reader, base, origin))
        verdict = self._judge_note(request, origin, base, existing)
        request, verdict, similar = self._keep_old(request, origin, verdict, base)
        limit = self._reader.max_chars(request.target)
        _, edit = notes.plan_change(base, _apply_verdict(request, verdict, existing), limit)
        if verdict.text and not edit.before and not verdict.why:
            similar = similar or _find_similar(edit.after, existing)
        if similar and not verdict.why:
            verdict = msgspec.structs.replace(verdict, why=f"{SIMILAR_NOTE} “{similar}”")
        row = self._hold_removal(self._build_row(request, origin, verdict, edit))
        return _Planned(row, base, read_base)

    def _keep_old(
        self, request: MemoryRequest, origin: Origin, verdict: GateVerdict, base: str
    ) -> tuple[MemoryRequest, GateVerdict, str]:
        """Return the request and the verdict with what stays of the old entry before the new text.

        If the new text doesn't clearly take the entry's place, all of the entry stays if the person's new
        words are about it. Otherwise the request is an addition, and the entry is returned too.
        """
        if request.action != "replace" or not verdict.text:
            return request, verdict, ""
        old, rows = notes.find_entry(base, request.old_text).statement, _list_rows(self._reader, request)
        is_persons = settling.is_persons_entry(rows, old)
        if is_persons and origin.write_origin == "review":  # the change waits for the person
            return request, verdict, ""
        rest = _find_rest(old, verdict, request.old_text)
        if rest is None or (is_persons and verdict.trust != "user"):
            return msgspec.structs.replace(request, action="add", old_text=""), verdict, old
        return request, _add_rest(verdict, rest, rows, old) if rest else verdict, ""

    def _hold_removal(self, row: NewRow) -> NewRow:
        """Return the row, put into the inbox for the person if it removes text without clear evidence."""
        if self.judge_override or row.origin.write_origin != "foreground" or row.state != "active":
            return row
        doubt = self._database.read_now(lambda db: settling.find_doubt(db, row))
        return msgspec.structs.replace(row, state="inbox", reason=doubt) if doubt else row

    def _resolve_remark(self, request: MemoryRequest, existing: tuple[str, ...]) -> MemoryRequest:
        """Return the request. If the model names an entry by the words in which it proposed it, replace these
        by the entry's text."""
        part = fold(request.old_text)
        if not part or any(part in fold(entry) for entry in existing):
            return request
        rows = _list_rows(self._reader, request)
        matches = (row.after for row in rows if part in fold(row.remark) and row.after in existing)
        return msgspec.structs.replace(request, old_text=next(matches, request.old_text))

    def _judge_note(
        self, request: MemoryRequest, origin: Origin, base: str, existing: tuple[str, ...]
    ) -> GateVerdict:
        old = "" if request.action == "add" else notes.find_entry(base, request.old_text).statement
        is_by_hand = origin.write_origin in ("user", "import") or self.judge_override is not None
        if request.action == "remove":
            from whet.memory.removal import is_repeated  # noqa: PLC0415 - loads what reads sessions

            if is_by_hand or is_repeated(old, existing):
                return GateVerdict("user")
            claim = Claim("memory", subjects.mask_amounts(old), request.evidence)
            verdict = msgspec.structs.replace(self._judge(claim, origin), text="")
        else:
            others = tuple(entry for entry in existing if entry != old)
            claim = Claim("memory", request.content, request.evidence, existing=others, target=request.target)
            verdict = self._judge(claim, origin)
        if old and not is_by_hand:
            self._refuse_unrelated(request, old, verdict)
        return verdict

    def _refuse_unrelated(self, request: MemoryRequest, old: str, verdict: GateVerdict) -> None:
        """Raise Refused if the evidence for changing an entry is older, or about something else."""
        from whet.memory.removal import is_about, is_newer  # noqa: PLC0415 - loads what reads sessions

        texts = [verdict.text, *(quote.quote for quote in verdict.evidence)]
        if request.action == "remove" and not is_about(old, texts):
            raise Refused(
                f"These words say nothing about the note “{short(old, 90)}”",
                hint="Quote the newer words that take it back.",
            )
        is_older = bool(verdict.text) and subjects.find_day(verdict.text) < subjects.find_day(old)
        if is_older or not is_newer(_list_rows(self._reader, request), old, verdict.evidence):
            raise Refused(
                f"These words are not newer than the note “{short(old, 90)}”",
                hint="Only newer words of the person or a newer result change a note.",
            )

    def _plan_skill(self, request: SkillRequest, origin: Origin) -> _Planned:
        def read_base(connection: apsw.Connection) -> dict[str, str]:
            return settling.read_skill_hashes(connection, self._profile, request.name, origin.task_id)

        hashes = self._database.read_now(read_base)
        files = self._database.read_now(lambda db: settling.read_texts(db, hashes))
        plan = skill_changes.plan(files, request, by_hand=origin.write_origin in ("user", "import"))
        is_persons_own = self._check_owner(request, origin)
        verdict = self._judge_skill(request, origin, plan)
        if verdict.name not in ("", request.name):
            return self._plan_skill(_rename(request, verdict.name), origin)
        if verdict.text:
            plan = skill_changes.replace_with_sources(files, plan, request.name, verdict)
        after = {path: "" if content is None else hash_text(content) for path, content in plan.files.items()}
        root = f"skills/{request.name}/"
        row = msgspec.structs.replace(
            self._build_row(request, origin, verdict, plan),
            changes=tuple(FileChange(root + path, hashes.get(path, ""), key) for path, key in after.items()),
            base_hash=skill_changes.hash_tree(hashes),
            hash=skill_changes.hash_tree({**hashes, **after}),
        )
        removes_lines = self._hold_removal(row).state == "inbox"
        if (is_persons_own or removes_lines) and not request.confirmed:
            change_text = skill_changes.describe_change(files, plan)
            raise NeedsYes(_write_question(request, change_text, is_persons_own=is_persons_own))
        return _Planned(row, hashes, read_base, [text for text in plan.files.values() if text is not None])

    def _judge_skill(self, request: SkillRequest, origin: Origin, plan: SkillPlan) -> GateVerdict:
        name = request.name if request.action == "create" else ""
        fields = (plan.added_text, request.evidence, plan.before)
        return self._judge(Claim("skill", *fields, is_verbatim=plan.is_file, name=name), origin)

    def _judge(self, claim: Claim, origin: Origin) -> GateVerdict:
        if self.judge_override is not None:
            return self.judge_override(claim, origin)
        if not claim.text:
            return GateVerdict("user")
        # The gate takes longer to import than all other modules used here together.
        from whet.memory.gate import judge_direct, judge_from_sessions  # noqa: PLC0415

        if origin.write_origin in ("user", "import"):
            return judge_direct(claim, is_brought=origin.write_origin == "import")
        foreground = origin.write_origin == "foreground"
        return judge_from_sessions(
            self._database, origin.evidence_session_ids, self.trusted_tools, claim, foreground=foreground
        )

    def _check_name(self, request: SkillRequest) -> None:
        info = self._reader.library.find(request.name)
        if info is not None and info.source != "home":
            origin = "linked from another folder" if info.source == "link" else f"a skill of {info.source}"
            raise Refused(
                f"{request.name} is {origin}; it is not changed here",
                hint="Create one of your own under another name.",
            )

    def _check_owner(self, request: SkillRequest, origin: Origin) -> bool:
        """Return whether a conversation changes a person's own skill. Raises Refused if it is pinned."""
        mark = self._database.read_now(lambda db: learned.get_mark(db, self._profile, request.name))
        if origin.write_origin in ("user", "import") or request.action == "create":
            return False
        if mark.pinned:
            raise Refused(f"The skill {request.name} is pinned", hint="The person wants it to stay as it is.")
        return mark.owner == "person" and origin.write_origin == "foreground"


def _write_question(request: SkillRequest, change_text: str, *, is_persons_own: bool) -> str:
    subject, warning = ("your own skill", "") if is_persons_own else ("the skill", " It takes lines away.")
    return f"May I {request.action} {subject} '{request.name}'?{warning}\n{change_text}"


def _list_rows(reader: MemoryReader, request: MemoryRequest) -> list[LedgerRow]:
    return reader.database.read_now(
        lambda db: ledger.select(db, profile=reader.profile, kind="memory", item=request.target)
    )


def _find_rest(old: str, verdict: GateVerdict, named: str) -> str | None:
    """Return what stays of an old entry before a verdict's text, or None if the text is its own note."""
    from whet.memory.removal import find_rest, may_belong  # noqa: PLC0415 - loads what reads sessions

    rest = find_rest(old, verdict.text, named)
    is_joined = rest is None and verdict.trust == "user" and may_belong(old, verdict.text)
    return old if is_joined else rest


def _add_rest(verdict: GateVerdict, rest: str, rows: Sequence[LedgerRow], old: str) -> GateVerdict:
    """Return the verdict with what stays of an old entry before its text, and with that entry's evidence."""
    earlier = next((row.evidence for row in rows if row.after == old and row.state == "active"), ())
    evidence = tuple(dict.fromkeys((*earlier, *verdict.evidence)))
    return msgspec.structs.replace(verdict, evidence=evidence, text=f"{rest}; {verdict.text}")


def _find_similar(text: str, existing: Sequence[str]) -> str:
    """Return the entry that makes the same statement with other values or words, the one that shares most
    words with it; or an empty string."""
    from whet.memory.removal import find_rest  # noqa: PLC0415 - loads what reads sessions

    matches = [entry for entry in existing if find_rest(entry, text) is not None]
    words = {*content_words(text)}
    return max(matches, key=lambda entry: len(words & {*content_words(entry)}), default="")


def _list_entries(reader: MemoryReader, text: str, origin: Origin) -> tuple[str, ...]:
    """Return the entries that apply in the folder of a change's session, so that the change is not compared
    with those of other folders."""
    folder = ""
    if origin.write_origin in ("review", "foreground"):
        folder = reader.database.read_now(
            lambda db: sessions.get(db, origin.evidence_session_ids[0]).workspace
        )
    entries = notes.parse_entries(reader.drop_other_folders_notes(text, folder))
    return tuple(entry.statement for entry in entries)


def _rename(request: SkillRequest, name: str) -> SkillRequest:
    """Return the request for a new skill under another name."""
    _, body = skill_format.split(request.content)
    content = f"---\nname: {name}\ndescription: {name}\n---\n{body}"
    return msgspec.structs.replace(request, name=name, content=content)


def _apply_verdict(request: MemoryRequest, verdict: GateVerdict, existing: Sequence[str]) -> MemoryRequest:
    """Return the request with the text that the gate wrote from the sources. If an addition certainly updates
    exactly one existing entry, it becomes a replacement of that entry."""
    if not verdict.text:
        return request
    updated = msgspec.structs.replace(request, content=verdict.text)
    older = [entry for entry in existing if subjects.is_update(entry, verdict.text)]
    if request.action != "add" or len(older) != 1:
        return updated
    return msgspec.structs.replace(updated, action="replace", old_text=older[0])
