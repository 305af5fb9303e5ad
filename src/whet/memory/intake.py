"""Install a skill from elsewhere: check that it is valid, search it for suspicious lines, and enter it in the
ledger.

A skill with suspicious lines is quarantined until a person has read it. Nothing in it is run.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import apsw
import msgspec

from whet.config.paths import decode_text
from whet.contract.errors import WhetError
from whet.contract.origin import Origin
from whet.memory import skill_changes, skill_format
from whet.memory.requests import Refused
from whet.memory.scan import scan
from whet.memory.settling import drop_older_versions, enforce
from whet.shell.fetches import VERBS, reaches_out
from whet.store import learned, ledger
from whet.store.learned import Mark
from whet.store.ledger import FileChange, LedgerRow, NewRow

_MAX_FINDINGS = 10


class SkillIntake(msgspec.Struct, frozen=True):
    """A skill from elsewhere. `findings` are its suspicious lines, which a person should read first."""

    name: str
    description: str
    files: dict[str, bytes]
    findings: tuple[str, ...] = ()

    @property
    def readable_paths(self) -> list[str]:
        """The paths of all files that can be read or run, SKILL.md first; assets can't."""
        return [path for path in self.files if not path.startswith("assets/")]


def read_folder(folder: Path) -> SkillIntake:
    """Read a skill's folder. Raises WhetError if it is not a valid skill."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(folder).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_folder = False
    except OSError as error:
        problem = f"{folder} can't be read: {error.strerror}"
        raise WhetError(problem, hint="check its owner and its rights") from error
    if not is_folder:
        raise WhetError(f"{folder} is not a folder", hint="give the folder that holds SKILL.md")
    files = skill_format.read(folder)
    if skill_changes.MAIN not in files:
        raise WhetError(f"{folder} holds no SKILL.md", hint="name the folder that holds it")
    main = decode_text(files[skill_changes.MAIN], folder / skill_changes.MAIN)
    name, description = skill_format.name_and_description(main)
    skill_format.check_name(name)
    return SkillIntake(name, description, files, tuple(_find_problems(files)))


def enter(
    connection: apsw.Connection, intake: SkillIntake, source: str, *, profile: str, now: str
) -> LedgerRow:
    """Enter a skill in the ledger inside the caller's transaction; its files are written later. Waiting older
    versions are dropped. Raises Refused if there is an active skill of that name."""
    root = f"skills/{intake.name}/"
    if any(state.wanted for state in learned.list_file_states(connection, profile, root)):
        hint = f"to install it again: whet undo, or rm -r the folder skills/{intake.name}"
        raise Refused(f"there is a skill {intake.name} already", hint=hint)
    changes = tuple(
        FileChange(root + path, "", learned.store_text(connection, content))
        for path, content in intake.files.items()
    )
    row = ledger.insert_row(
        connection,
        NewRow(
            kind="skill",
            item=intake.name,
            action="create",
            state="quarantined" if intake.findings else "active",
            origin=Origin("import", execution_context=source),
            after=intake.files[skill_changes.MAIN].decode("utf-8", "replace"),
            changes=changes,
            hash=skill_changes.hash_files(intake.files),
            trust="untrusted" if intake.findings else "user",
            reason="; ".join(intake.findings)[:1_000] or f"installed from {source}",
            profile=profile,
        ),
        now,
    )
    drop_older_versions(connection, row, f"replaced: the skill was installed again (change {row.id})")
    learned.set_mark(connection, profile, Mark(intake.name, "person", source=source))
    if row.state == "active":
        enforce(connection, row)
    return row


def _find_problems(files: dict[str, bytes]) -> list[str]:
    problems: list[str] = []
    for path, content in files.items():
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            if not path.startswith("assets/"):
                problems.append(f"{path}: is not text")
            continue
        for number, line in enumerate(text.splitlines(), 1):
            problem = scan(line)
            if not problem and (reaches_out(line) or VERBS.search(" ".join(line.split()))):
                problem = f"it names a place outside: {line.strip()[:80]}"
            if problem:
                problems.append(f"{path} line {number}: {problem}")
                break  # one line is enough for a person to look at the file
    return problems[:_MAX_FINDINGS]
