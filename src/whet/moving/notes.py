"""Import another program's MEMORY.md and USER.md into the notes, entry by entry.

Hermes Agent separates entries by a line with "§". Each entry becomes a change in the ledger with the entry's
hash, so a second run adds nothing, and undone entries stay undone. Entries that the scan rejects or that are
too long are listed. The other program's agent may have written an entry, so it is quarantined until the
person has seen it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import msgspec

from whet.contract.errors import WhetError
from whet.contract.origin import Origin
from whet.log import mask
from whet.memory import disk, notes
from whet.memory.folding import fold
from whet.memory.gate import judge_direct
from whet.memory.requests import Claim, MemoryRequest, Refused, Target
from whet.memory.scan import scan
from whet.memory.service import LearningService
from whet.memory.undo import CannotUndo
from whet.moving.importing import ImportOutcome
from whet.shell.fetches import find_outside_host
from whet.store import ledger
from whet.store.ledger import LedgerRow, hash_text

_MARK = "§"
_LONG_CHARS = 700
_SHOWN_CHARS = 60


IsApproved = Callable[[], bool]
"""Returns whether the person has seen the notes and wants to use them. Called if there is a new note."""


class Note(msgspec.Struct, frozen=True):
    """An entry of a notes file. `number` is its position in `file`, from 1."""

    target: Target
    file: str
    number: int
    text: str

    @property
    def label(self) -> str:
        """Its file, its number and, unless the scan rejects the text, its first words."""
        location = f"{self.file} {self.number}"
        if scan(self.text):
            return location
        words = mask(" ".join(self.text.split()))
        return f"{location}: {words if len(words) <= _SHOWN_CHARS else words[: _SHOWN_CHARS - 1] + '…'}"


def split_entries(text: str) -> list[str]:
    """Return the entries of a notes file. One that is long or begins with a heading is split as Markdown."""
    pieces: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == _MARK:
            pieces.append([])
        else:
            pieces[-1].append(line)
    entry_texts: list[str] = []
    for piece in ("\n".join(lines).strip() for lines in pieces):
        is_whole = len(piece) <= _LONG_CHARS and not piece.startswith("#")
        entry_texts += [piece] if is_whole else [entry.statement for entry in notes.parse_entries(piece)]
    return [entry for entry in entry_texts if entry.strip()]


def read(
    folder: Path, clean: Callable[[str, str], str] = lambda name, text: text
) -> tuple[list[Note], list[ImportOutcome]]:
    """Return the notes in `folder`, and an outcome for each file that can't be read. Follows no links.

    `clean` gets a file's name and text, and returns the text with only its notes.
    """
    found_notes: list[Note] = []
    left_out: list[ImportOutcome] = []
    for target, path in notes.FILES.items():
        name = path.rpartition("/")[2]
        try:
            text = disk.read_text(folder / name)
        except WhetError as error:
            left_out.append(ImportOutcome(name, "left", error.message))
            continue
        entries = split_entries(clean(name, text or ""))
        found_notes += [Note(target, name, number, entry) for number, entry in enumerate(entries, 1)]
    return found_notes, left_out


async def import_notes(
    learning: LearningService, found_notes: Sequence[Note], program: str, is_approved: IsApproved
) -> list[ImportOutcome]:
    """Store each note and return the outcomes in order. Each note is durable by itself.

    A note is active if the person has approved it and it names no address. Otherwise it is quarantined.
    """
    return [await _import_note(learning, note, program, is_approved) for note in found_notes]


async def _import_note(
    learning: LearningService, note: Note, program: str, is_approved: IsApproved
) -> ImportOutcome:
    call_id = _call_id(note, program)
    row = await learning.database.read(lambda db: ledger.find_by_call(db, "", call_id))
    if row is not None:
        return _describe_previous(note, row)
    texts = {state.target: state.text for state in await learning.reader.read_notes()}
    if _is_known(note, texts[note.target]):
        return ImportOutcome(note.label, "kept", "it is remembered already")
    origin = Origin("import", tool_call_id=call_id, execution_context=program)
    reason = f"imported from {program}"
    outcome = await learning.submit(MemoryRequest("add", note.target, note.text, reason=reason), origin)
    if not outcome.ok:
        return ImportOutcome(note.label, "left", outcome.text)
    is_quarantined = outcome.state == "quarantined"
    if is_quarantined and is_approved() and not find_outside_host(note.text):
        try:
            await learning.accept(outcome.ledger_id)
        except CannotUndo as error:
            return ImportOutcome(note.label, "left", error.message)
        is_quarantined = False
    return _describe_outcome(note, is_quarantined, f"whet memory accept {outcome.ledger_id}")


def _describe_outcome(note: Note, is_quarantined: bool, detail: str) -> ImportOutcome:
    if is_quarantined:
        return ImportOutcome(note.label, "quarantined", detail)
    return ImportOutcome(note.label, "saved")


def preview_notes(
    connection: apsw.Connection | None,
    texts: dict[Target, str],
    limits_chars: dict[Target, int],
    found_notes: Sequence[Note],
    program: str,
    is_approved: IsApproved,
) -> list[ImportOutcome]:
    """Return the outcomes that `import_notes` would have, given the current texts. Writes nothing."""
    outcomes: list[ImportOutcome] = []
    texts = dict(texts)
    for note in found_notes:
        row = ledger.find_by_call(connection, "", _call_id(note, program)) if connection else None
        text = texts[note.target]
        if row is not None:
            outcomes.append(_describe_previous(note, row))
        elif _is_known(note, text):
            outcomes.append(ImportOutcome(note.label, "kept", "it is remembered already"))
        else:
            try:
                verdict = judge_direct(Claim("memory", note.text, ()), is_brought=True)
                request = MemoryRequest("add", note.target, note.text)
                planned, _ = notes.plan_change(text, request, limits_chars[note.target])
                is_quarantined = not is_approved() or bool(find_outside_host(note.text))
                texts[note.target] = text if is_quarantined else planned
                outcomes.append(_describe_outcome(note, is_quarantined, verdict.why))
            except Refused as error:
                outcomes.append(ImportOutcome(note.label, "left", f"{error.message}. {error.hint}".strip()))
    return outcomes


def _call_id(note: Note, program: str) -> str:
    return f"import-{program}-{note.target}-{hash_text(note.text)}"


def _is_known(note: Note, text: str) -> bool:
    statements = {fold(entry.statement).rstrip(".") for entry in notes.parse_entries(text)}
    return fold(note.text).rstrip(".") in statements


def _describe_previous(note: Note, row: LedgerRow) -> ImportOutcome:
    if row.state == "undone":
        return ImportOutcome(note.label, "kept", f"it was taken back here (change {row.id})")
    return ImportOutcome(note.label, "kept", f"it came before (change {row.id})")
