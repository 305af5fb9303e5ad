"""List the available skills: the home's own, a project's, those that come with the program, and plugins'.

An unreadable skill is listed with the reason and never loaded. This module only reads; changes go through
the learning service.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from whet.config.paths import is_link_upward, list_project_folders
from whet.contract.errors import WhetError
from whet.store.ledger import hash_text

if TYPE_CHECKING:
    from whet.memory.skill_index import SkillFolder, SkillSummary

MAX_MAIN_BYTES = 200_000
_PROJECT_FOLDERS = (".claude/skills", ".agents/skills")
_LINKS_OUTSIDE = "links out of the repository"
_INDEXED_FROM = 30
BUILT_IN = Path(__file__).with_name("builtin_skills")
# Repeated here so that starting a session reads no file for them; a test compares the two.
BUILT_IN_DESCRIPTIONS = {
    "debug-failing-test": "Fix a test that is red, flaky or hangs.",
    "find-slow-code": "Find where time or memory goes, and save it.",
    "migrate-data-safely": "Migrations and bulk edits without loss.",
    "review-a-diff": "Find the defects of a diff or branch.",
    "write-a-commit": "Split work into commits and write their messages.",
}


class SkillInfo(msgspec.Struct, frozen=True):
    """A skill as the index shows it.

    `problem` is the reason why it can't be loaded. `source` is home, project, built-in, the plugin's name, or
    `link` or `group` for one of the home's that is behind a link or in a folder of skills; only those of
    `home` are changed. `hash` is the hash of its SKILL.md.
    """

    name: str
    description: str
    source: str
    location: str = msgspec.field(name="folder")
    problem: str = ""
    hash: str = ""

    @property
    def folder(self) -> Path:
        """The skill's folder. It is built on demand, because the index of thousands needs none."""
        return Path(self.location)


class Library:
    """The skills of one profile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offered: dict[str, SkillInfo] = {}
        self._workspace: Path | None = None

    def look_in(self, workspace: Path) -> None:
        """Also list the skills of the project around this workspace. `share` does not pass them on."""
        self._workspace = workspace

    def offer(self, name: str, folder: Path, source: str, description: str = "") -> None:
        """Add a skill from elsewhere. If the name is in use, the earlier skill stays."""
        self._offered.setdefault(name, SkillInfo(name, description, source, str(folder)))

    def offer_built_in(self) -> None:
        """Add the skills that come with the program."""
        for name, description in BUILT_IN_DESCRIPTIONS.items():
            self.offer(name, BUILT_IN / name, "built-in", description)

    def share(self, other: Library) -> None:
        """Take over the skills that were offered to another library so far, without that library's own."""
        self._offered.update(other._offered)

    def all(self) -> list[SkillInfo]:
        """Return every skill, sorted by name. The home's own skills replace the project's of
        the same name, and these replace others."""
        project = self._list_project()
        infos = {info.name: info for info in project if info.problem == _LINKS_OUTSIDE}
        infos.update(self._offered)
        infos.update((info.name, info) for info in project if info.problem != _LINKS_OUTSIDE)
        infos.update((info.name, info) for info in self._list_own())
        return [infos[name] for name in sorted(infos)]

    def find(self, name: str) -> SkillInfo | None:
        """Return the skill of that name, or None if there is none or a project links to it from outside."""
        named = (info for info in self.all() if info.name == name and info.problem != _LINKS_OUTSIDE)
        info = next(named, None)
        if info is None or info.problem or os.path.isfile(info.folder / "SKILL.md"):
            return info
        return replace(info, problem=f"{info.folder} no longer exists")

    def _list_own(self) -> list[SkillInfo]:
        folders = _list_folders(self.folder)
        summaries: Mapping[str, SkillSummary] = {}
        if len(folders) >= _INDEXED_FROM:
            from whet.memory.skill_index import read_summaries  # noqa: PLC0415 - few homes have many

            summaries = read_summaries(self.folder, folders, self._read_summary)
        infos = [self._describe(folder, summaries.get(folder.path)) for folder in folders]
        return [info for info in infos if info is not None]

    def _describe(self, folder: SkillFolder, summary: SkillSummary | None) -> SkillInfo | None:
        """Return the skill in a folder of the home, from its summary if it has one, or None."""
        if summary is None:
            return _read(self.folder / folder.path, folder.source)
        root = self.folder if folder.source == "home" else self._real_folder
        name = folder.path.rpartition("/")[2]
        location = f"{root}/{folder.path}"
        return SkillInfo(name, summary.description, folder.source, location, hash=summary.hash)

    def _read_summary(self, folder: SkillFolder) -> tuple[str, str] | None:
        info = _read(self.folder / folder.path, folder.source)
        return None if info is None or info.problem else (info.description, info.hash)

    @cached_property
    def _real_folder(self) -> Path:
        return _real(self.folder)

    def _list_project(self) -> list[SkillInfo]:
        """Return the project's skills, those of the folder nearest to the workspace last. Nothing is read
        behind a link that leads out of the repository."""
        folders = list_project_folders(self._workspace) if self._workspace is not None else ()
        root = _real(folders[0]) if folders else Path()
        tops = [folder / part for folder in folders for part in _PROJECT_FOLDERS]
        paths = [top / folder.path for top in tops for folder in _list_folders(top)]
        infos = (
            _read(path, "project") if _real(path).is_relative_to(root) else _refuse_outside(path)
            for path in paths
        )
        return [info for info in infos if info is not None]


def _refuse_outside(folder: Path) -> SkillInfo | None:
    """Return a project's skill that is not read, or None if there is none."""
    is_skill = os.path.isfile(folder / "SKILL.md") or _is_broken(folder)
    return SkillInfo(folder.name, "", "project", str(folder), _LINKS_OUTSIDE) if is_skill else None


def _read(folder: Path, source: str) -> SkillInfo | None:
    """Return the skill in a folder, or None if it holds none. Links to the folder itself are followed."""
    from whet.memory import disk, skill_format  # noqa: PLC0415 - few homes and projects have skills

    info = SkillInfo(folder.name, "", source, str(_real(folder) if source != "home" else folder))
    try:
        text = disk.read_text(info.folder / "SKILL.md", MAX_MAIN_BYTES)
        if text is None:
            problem = "its link leads nowhere" if _is_broken(folder) else ""
            problem = "its link leads to a folder that holds it" if is_link_upward(folder) else problem
            return replace(info, problem=problem) if problem else None
        skill_format.check_name(folder.name)
        name, description = skill_format.name_and_description(text)
    except WhetError as error:
        return replace(info, problem=error.message)
    except OSError as error:
        return replace(info, problem=f"it can't be read: {error.strerror}")
    if name != folder.name:
        return replace(info, problem=f"its front matter names it {name!r}")
    return replace(info, description=description, hash=hash_text(text)[:12])


def _list_folders(top: Path) -> Sequence[SkillFolder]:
    """Return the folders below `top` that may hold a skill, those in folders of skills first."""
    if not os.path.isdir(top):
        return ()
    from whet.memory.skill_index import list_skill_folders  # noqa: PLC0415 - few homes and projects have skills

    return list_skill_folders(top)


def _is_broken(folder: Path) -> bool:
    return os.path.islink(folder) and not os.path.exists(folder)


def _real(path: Path) -> Path:
    """Return the path without links. Of a broken link it is the path that the link names."""
    return Path(os.path.realpath(path))
