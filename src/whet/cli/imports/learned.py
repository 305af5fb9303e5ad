"""Import notes and skills through the home's learning service, or report them in a dry run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import apsw

from whet.cli import stored
from whet.cli.learned_items.changes import with_learning
from whet.config.load import load
from whet.config.paths import Home
from whet.memory import disk
from whet.memory import notes as our_notes
from whet.memory.library import Library
from whet.memory.requests import Target
from whet.memory.service import LearningService
from whet.moving import notes, skills
from whet.moving.hermes_home import HermesHome
from whet.moving.importing import Consent, ImportOutcome
from whet.store.database import has_store

PROGRAM = "Hermes Agent"


def take_memory(home: Home, theirs: HermesHome, consent: Consent, *, dry: bool) -> list[ImportOutcome]:
    """Import the notes of a Hermes home, or report the result of doing so."""
    if theirs.is_outside(theirs.memories):
        return [ImportOutcome("memories", "left", "it is a link that leads out of the folder")]
    return take_notes(home, notes.read(theirs.memories), PROGRAM, consent, dry=dry)


def take_notes(
    home: Home,
    read: tuple[list[notes.Note], list[ImportOutcome]],
    program: str,
    consent: Consent,
    *,
    dry: bool,
) -> list[ImportOutcome]:
    """Import a program's notes, or report the result of doing so. `read` holds the notes, and the outcomes of
    those that were left out. If the person does not consent, all notes wait in the inbox."""
    imported_notes, skipped = read
    if not imported_notes:
        return skipped

    @cache
    def is_approved() -> bool:
        return consent(
            "Have every new session begin with these notes?", "\n".join(note.text for note in imported_notes)
        )

    if dry:
        preview = _read_existing(home, lambda db: _preview(home, db, imported_notes, program, is_approved))
        return preview + skipped
    outcomes = with_learning(
        home, lambda learning: notes.import_notes(learning, imported_notes, program, is_approved)
    )
    return outcomes + skipped


def take_skills(
    home: Home, root: Path, source: str, *, dry: bool, progress: Callable[[int, int], None]
) -> list[ImportOutcome]:
    """Import the skills below `root`, or report the result of doing so.

    `progress` is called with the number of skills done and the total.
    """
    intakes, skipped = skills.read(skills.find_folders(root), skills.read_bundled_hashes(root))
    if not intakes:
        return skipped
    if dry:
        library = Library(home.root / "skills")
        library.offer_built_in()
        return _read_existing(home, lambda db: skills.preview_skills(db, library, intakes)) + skipped

    async def add_skills(learning: LearningService) -> list[ImportOutcome]:
        return await skills.import_skills(
            learning, intakes, source, lambda done: progress(done, len(intakes))
        )

    return with_learning(home, add_skills) + skipped


def _preview(
    home: Home,
    connection: apsw.Connection | None,
    imported_notes: Sequence[notes.Note],
    program: str,
    is_approved: Callable[[], bool],
) -> list[ImportOutcome]:
    settings = load(home, {}, environ=os.environ).settings.memory
    limits_chars: dict[Target, int] = {"memory": settings.memory_chars, "user": settings.user_chars}
    texts: dict[Target, str] = {
        target: disk.read_text(home.root / path) or "" for target, path in our_notes.FILES.items()
    }
    return notes.preview_notes(connection, texts, limits_chars, imported_notes, program, is_approved)


def _read_existing(
    home: Home, query: Callable[[apsw.Connection | None], list[ImportOutcome]]
) -> list[ImportOutcome]:
    """Call `query` with the store, or with None if there is no store. The store is never created."""
    if not has_store(home):
        return query(None)
    return stored.read(home, query)
