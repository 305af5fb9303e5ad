"""What `whet import` takes of notes and skills: handed in at the home's desk, or looked at in a dry run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from whet.cli import stored
from whet.cli.learned import with_desk
from whet.config.load import load
from whet.config.paths import Home
from whet.memory import disk
from whet.memory import notes as our_notes
from whet.memory.desk import LearningService
from whet.memory.intake import SkillIntake
from whet.memory.library import Library
from whet.memory.requests import Target
from whet.moving import notes, skills
from whet.moving.carry import TakenOver
from whet.moving.hermes_home import HermesHome
from whet.moving.notes import Note
from whet.store.database import has_store

PROGRAM = "Hermes Agent"


def take_memory(home: Home, theirs: HermesHome, *, dry: bool) -> list[TakenOver]:
    """Take a home's notes over, or say what that would give."""
    if theirs.leads_out(theirs.memories):
        return [TakenOver("memories", "left", "it is a link that leads out of the folder")]
    found, left = notes.read(theirs.memories)
    if not found:
        return left
    if dry:
        return _looked(home, lambda db: _foresee(home, db, found)) + left
    return with_desk(home, lambda desk: notes.take(desk, found, PROGRAM)) + left


def take_skills(
    home: Home, root: Path, source: str, *, dry: bool, progress: Callable[[int, int], None]
) -> list[TakenOver]:
    """Take the skills below `root` over, or say what that would give; `progress` gets done and all."""
    found, left = skills.read(skills.folders(root), skills.bundled(root))
    if not found:
        return left
    if dry:
        library = Library(home.root / "skills")
        library.offer_built_in()
        return _looked(home, lambda db: skills.foresee(db, library, found)) + left

    async def enter(desk: LearningService, found: Sequence[SkillIntake] = tuple(found)) -> list[TakenOver]:
        return await skills.take(desk, found, source, lambda done: progress(done, len(found)))

    return with_desk(home, enter) + left


def _foresee(home: Home, connection: apsw.Connection | None, found: Sequence[Note]) -> list[TakenOver]:
    settings = load(home, {}, environ=os.environ).settings.memory
    limits_chars: dict[Target, int] = {"memory": settings.memory_chars, "user": settings.user_chars}
    texts: dict[Target, str] = {
        target: disk.read_text(home.root / path) or "" for target, path in our_notes.FILES.items()
    }
    return notes.foresee(connection, texts, limits_chars, found, PROGRAM)


def _looked(home: Home, look: Callable[[apsw.Connection | None], list[TakenOver]]) -> list[TakenOver]:
    """Look with the store where there is one; none is made."""
    if not has_store(home):
        return look(None)
    return stored.read(home, look)
