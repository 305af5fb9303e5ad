"""List, load, install and pin skills."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.contract.errors import NotFound, WhetError
from whet.contract.origin import Origin
from whet.memory import settling, skill_changes, skill_format
from whet.memory.library import Library, SkillInfo
from whet.memory.reader import MemoryReader
from whet.memory.requests import Refused, WriteOutcome
from whet.memory.skill_changes import Files
from whet.memory.skill_format import check_path
from whet.store import learned, ledger
from whet.store.learned import Use
from whet.store.ledger import LedgerRow, hash_text

if TYPE_CHECKING:
    from whet.memory.intake import SkillIntake

_MAX_LISTED = 60
_WORD = re.compile(r"[^\W_]+")


class Load(msgspec.Struct, frozen=True):
    """The result of loading a skill: the text for the model, the file, and the hash of that file's text."""

    text: str
    file: str
    hash: str


class SkillStore:
    """One profile's skills. Methods may be called from any task; files are accessed on a thread."""

    def __init__(self, reader: MemoryReader) -> None:
        self._reader = reader
        self._database = reader.database
        self._profile = reader.profile

    async def list_infos(self) -> list[SkillInfo]:
        """Return every skill, sorted by name. One that can't be used carries the reason."""
        return await asyncio.to_thread(self._reader.library.all)

    async def describe(self, query: str = "") -> str:
        """Return the names and descriptions of all skills, or of those that match the words of `query`."""
        return await asyncio.to_thread(lambda: format_list(self._reader.library.all(), query))

    async def view(self, name: str, file_path: str, origin: Origin, how: str = "view") -> WriteOutcome:
        """Return a skill's text, or one of its files, with its hash. The load is recorded."""

        def work() -> WriteOutcome:
            self._reader.sync_files([name])
            if (files := self._staged_files(name, origin.task_id)) is not None:
                staged = format_file(name, files, file_path, "not in force yet")
                return WriteOutcome(True, "staged", staged.text, hash=staged.hash)
            skill_load = load(self._reader.library, name, file_path)
            ids = (origin.session_id, origin.turn_id, origin.tool_call_id)
            use = Use(*ids, name, skill_load.file, skill_load.hash, how)
            self._database.write_now(lambda db: learned.add_use(db, self._profile, use, self._reader.now()))
            return WriteOutcome(
                True, "active", skill_load.text, summary=f"Skill '{name}' loaded", hash=skill_load.hash
            )

        try:
            return await asyncio.to_thread(work)
        except Refused as error:
            return error.outcome

    async def install(self, intake: SkillIntake, source: str) -> LedgerRow:
        """Enter a foreign skill. It is in force if it has no findings, and quarantined until accepted
        otherwise.

        Raises Refused if a skill of that name exists.
        """
        from whet.memory.intake import enter  # noqa: PLC0415 - the scan costs 10 ms to import

        def work(connection: apsw.Connection) -> LedgerRow:
            return enter(connection, intake, source, profile=self._profile, now=self._reader.now())

        return await asyncio.to_thread(self._reader.change, work, [intake.name])

    async def pin(self, name: str, pinned: bool) -> None:
        """Pin or unpin a skill; only the person can change a pinned one. Raises NotFound."""

        def work(connection: apsw.Connection) -> None:
            mark = learned.get_mark(connection, self._profile, name)
            learned.set_mark(connection, self._profile, msgspec.structs.replace(mark, pinned=pinned))

        info = self._reader.library.find(name)
        if info is None or info.source != "home":
            raise NotFound(f"there is no skill {name} of yours", hint="whet skills list")
        await self._database.write(work)

    def _staged_files(self, name: str, task_id: str) -> Files | None:
        """Return a skill's files including the changes that this review staged, or None if it staged none."""

        def work(connection: apsw.Connection) -> Files | None:
            staged = ledger.list_task_rows(connection, task_id, ("staged",))
            is_staged = any((row.kind, row.item) == ("skill", name) for row in staged)
            hashes = settling.read_skill_hashes(connection, self._profile, name, task_id)
            return settling.read_texts(connection, hashes) if is_staged else None

        return self._database.read_now(work) if task_id else None


def format_list(skills: Sequence[SkillInfo], query: str) -> str:
    """Return the list of names and descriptions, best match first if there is a query."""
    matches = search(skills, query) if query.strip() else list(skills)
    if not skills:
        return "There are no skills yet."
    if not matches:
        return f"No skill fits {query!r}; without a query all are listed."
    lines = [
        f"{info.name}: " + (f"can't be used: {info.problem}" if info.problem else info.description)
        for info in matches[:_MAX_LISTED]
    ]
    if len(matches) > _MAX_LISTED:
        lines.append(f"({len(matches) - _MAX_LISTED} more; give a query)")
    return "\n".join(lines)


def search(skills: Sequence[SkillInfo], query: str) -> list[SkillInfo]:
    """Return the skills that share a word with `query`, best match first."""
    query_words = {word.lower() for word in _WORD.findall(query)}

    def score(info: SkillInfo) -> float:
        names = {word.lower() for word in _WORD.findall(info.name)}
        words = {word.lower() for word in _WORD.findall(info.description)}
        part = sum(any(len(w) > 3 and w in word for word in words | names) for w in query_words)
        return 3 * len(query_words & names) + len(query_words & words) + 0.5 * part

    scored = sorted(((score(info), info) for info in skills), key=lambda pair: (-pair[0], pair[1].name))
    return [info for points, info in scored if points > 0]


def find_problem(info: SkillInfo) -> str:
    """Return why a skill can't be loaded, or an empty string. Walks its folder."""
    if info.problem:
        return info.problem
    try:
        skill_format.check_name(info.name)
        skill_format.list_files(info.folder)
    except WhetError as error:
        return error.message
    return ""


def load(library: Library, name: str, file_path: str = "") -> Load:
    """Load a skill's file, SKILL.md by default. Raises Refused with the available alternatives."""
    info = library.find(name) or next((skill for skill in library.all() if skill.name == name), None)
    if info is None:
        near = [match.name for match in search(library.all(), name)[:3]]
        hint = f"Near: {', '.join(near)}." if near else "skills_list shows what there is."
        raise Refused(f"There is no skill {name!r}", hint=hint)
    if info.problem:
        raise Refused(
            f"The skill {name} can't be used: {info.problem}", hint=f"A person must mend {info.folder}."
        )
    try:
        skill_format.check_name(name)
        files = skill_format.read(info.folder)
    except WhetError as error:
        raise Refused(f"The skill {name} can't be used: {error.message}", hint=error.hint) from error
    return format_file(name, files, file_path, str(info.folder))


def format_file(name: str, files: Mapping[str, bytes], file_path: str, where: str) -> Load:
    """Return a file of a skill as the model reads it. Raises Refused."""
    path = check_path(file_path) if file_path else skill_changes.MAIN
    text = skill_changes.read_text(name, files, path)
    others = [other for other in files if other != path]
    head = f"[skill {name}, {path}, hash {skill_changes.hash_files(files)}, folder {where}]"
    tail = f"\n[its files: {', '.join(others[:40])}]" if others and path == skill_changes.MAIN else ""
    return Load(f"{head}\n{text.rstrip()}{tail}", path, hash_text(text)[:12])
