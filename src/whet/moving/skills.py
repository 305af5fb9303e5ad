"""Import the skills below a folder, in the agentskills format.

Imported skills are not run. A skill that looks dangerous is quarantined until a person accepts it. Not
imported are a skill whose name is in use, and one that Hermes Agent ships and that is unchanged. Links are
not followed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import apsw

from whet.contract.errors import WhetError
from whet.memory import skill_changes
from whet.memory.intake import SkillIntake, read_folder
from whet.memory.library import Library
from whet.memory.requests import Refused
from whet.memory.service import LearningService
from whet.moving.importing import ImportOutcome
from whet.store import ledger
from whet.store.ledger import LedgerRow

_MAX_DEPTH = 5
_MAX_SKILLS = 1_000
_MANIFEST = ".bundled_manifest"
_MAX_HASHED_BYTES = 20_000_000


def find_folders(root: Path) -> list[Path]:
    """Return `root` if it is a skill's folder, else those below it. Skips hidden folders and links."""
    skill_folders: list[Path] = []
    for folder, inner, names in os.walk(root, followlinks=False):
        path = Path(folder)
        if "SKILL.md" in names:
            skill_folders.append(path)
            inner.clear()
            continue
        is_deepest = len(path.relative_to(root).parts) >= _MAX_DEPTH
        inner[:] = [] if is_deepest else sorted(name for name in inner if not name.startswith("."))
    return skill_folders[:_MAX_SKILLS]


def read_bundled_hashes(root: Path) -> Mapping[str, str]:
    """Return the original hash of each skill that Hermes Agent ships, by name, from its manifest."""
    path = root / _MANIFEST
    try:
        text = path.read_text("utf-8") if path.is_file() and not path.is_symlink() else ""
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): hash_.strip() for name, _, hash_ in pairs if hash_.strip()}


def read(
    skill_folders: Sequence[Path], bundled_hashes: Mapping[str, str] | None = None
) -> tuple[list[SkillIntake], list[ImportOutcome]]:
    """Return the skills to import, and an outcome for each other one.

    Others are invalid, or unchanged from the program that they came with.
    """
    intakes: list[SkillIntake] = []
    left_out: list[ImportOutcome] = []
    bundled_hashes = bundled_hashes or {}
    for folder in skill_folders:
        try:
            skill = read_folder(folder)
            original_hashes = {bundled_hashes.get(name, "") for name in (skill.name, folder.name)} - {""}
            if original_hashes and _hash_folder(folder) in original_hashes:
                left_out.append(
                    ImportOutcome(skill.name, "left", "it came with Hermes Agent and is unchanged")
                )
            else:
                intakes.append(skill)
        except WhetError as error:
            left_out.append(ImportOutcome(folder.name, "left", error.message))
        except OSError as error:
            left_out.append(ImportOutcome(folder.name, "left", error.strerror or "it can't be read"))
    return intakes, left_out


async def import_skills(
    learning: LearningService, skills: Sequence[SkillIntake], source: str, progress: Callable[[int], None]
) -> list[ImportOutcome]:
    """Install skills and return the outcomes in order. Each skill is durable by itself."""
    names = _list_names(learning.library)
    outcomes: list[ImportOutcome] = []
    for number, skill in enumerate(skills, 1):
        rows = await learning.database.read(lambda db, name=skill.name: _read_rows(db, name))
        outcomes.append(_describe_existing(skill, rows, names) or await _install(learning, skill, source))
        names.add(skill.name)
        progress(number)
    return outcomes


async def _install(learning: LearningService, skill: SkillIntake, source: str) -> ImportOutcome:
    try:
        row = await learning.skills.install(skill, source)
    except Refused as error:
        return ImportOutcome(skill.name, "kept", error.message)
    return _describe_install(skill, quarantined=row.state == "quarantined")


def preview_skills(
    connection: apsw.Connection | None, library: Library, skills: Sequence[SkillIntake]
) -> list[ImportOutcome]:
    """Return the outcomes that `import_skills` would have. Writes nothing."""
    names = _list_names(library)
    outcomes: list[ImportOutcome] = []
    for skill in skills:
        rows = _read_rows(connection, skill.name) if connection else []
        outcomes.append(
            _describe_existing(skill, rows, names)
            or _describe_install(skill, quarantined=bool(skill.findings))
        )
        names.add(skill.name)
    return outcomes


def _describe_install(skill: SkillIntake, *, quarantined: bool) -> ImportOutcome:
    if not quarantined:
        return ImportOutcome(skill.name, "installed")
    why = "; ".join(skill.findings[:3])
    return ImportOutcome(skill.name, "quarantined", f"{why}. To use it: whet skills accept {skill.name}")


def _describe_existing(
    skill: SkillIntake, rows: Sequence[LedgerRow], names: Collection[str]
) -> ImportOutcome | None:
    """Return an outcome if the skill is here already or was imported before, or None if it is new."""
    own_hash = skill_changes.hash_files(skill.files)
    for row in rows:
        if row.origin.write_origin == "import" and row.hash == own_hash:
            if row.state == "quarantined":
                return ImportOutcome(
                    skill.name, "kept", f"it came before and waits for: whet skills accept {skill.name}"
                )
            reason = "it was taken back here" if row.state in ("undone", "rejected") else "it came before"
            return ImportOutcome(skill.name, "kept", f"{reason} (change {row.id})")
    if skill.name in names:
        return ImportOutcome(skill.name, "kept", "a skill of that name is here already")
    return None


def _list_names(library: Library) -> set[str]:
    return {info.name for info in library.all()}


def _read_rows(connection: apsw.Connection, name: str) -> list[LedgerRow]:
    return ledger.select(connection, kind="skill", item=name, profile="")


def _hash_folder(folder: Path) -> str:
    """Return a folder's hash as in Hermes Agent's manifest, or "" if the folder is too large.

    Source: skills_sync of hermes-agent 0.19.0.
    """
    digest, remaining_bytes = hashlib.md5(usedforsecurity=False), _MAX_HASHED_BYTES
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            remaining_bytes -= path.stat().st_size
            if remaining_bytes < 0:
                return ""
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
