"""Lists the available skills: the home's own, those that come with the program, and plugins'.

An unreadable skill is listed with the reason and never loaded. This module only reads; changes go through
the learning service.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from whet.contract.errors import WhetError
from whet.memory import disk, skill_format
from whet.memory.skill_format import NAME
from whet.store.ledger import hash_text

LARGEST_MAIN_BYTES = 200_000
BUILT_IN = Path(__file__).with_name("builtin_skills")
# Repeated here so that starting a session reads no file for them; a test compares the two.
BUILT_IN_DESCRIPTIONS = {
    "debug-failing-test": "Find out why a test is red, flaky or hangs, and fix the cause.",
    "find-slow-code": "Measure where time or memory goes and make code faster.",
    "migrate-data-safely": "Change data or a schema without loss: migrations, bulk edits.",
    "review-a-diff": "Review a diff, branch or pull request for defects.",
    "write-a-commit": "Split work into commits and write their messages.",
}


class SkillInfo(msgspec.Struct, frozen=True):
    """A skill as the index shows it.

    `problem` is the reason why it can't be loaded. `source` is home, built-in, or the plugin's name.
    `hash` is the hash of its SKILL.md.
    """

    name: str
    description: str
    source: str
    folder: Path
    problem: str = ""
    hash: str = ""


class Library:
    """The skills of one profile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._others: dict[str, SkillInfo] = {}

    def offer(self, name: str, folder: Path, source: str, description: str = "") -> None:
        """Add a skill from elsewhere. If the name is in use, the earlier skill stays."""
        self._others.setdefault(name, SkillInfo(name, description, source, folder))

    def offer_built_in(self) -> None:
        """Add the skills that come with the program."""
        for name, description in BUILT_IN_DESCRIPTIONS.items():
            self.offer(name, BUILT_IN / name, "built-in", description)

    def share(self, other: Library) -> None:
        """Offer the skills that another library was offered from elsewhere, as they are now; not its own
        skills."""
        self._others.update(other._others)

    def all(self) -> list[SkillInfo]:
        """Return every skill, sorted by name. The home's own skills replace others of the same name."""
        infos = {info.name: info for info in self._others.values()}
        infos.update((info.name, info) for info in self._own())
        return [infos[name] for name in sorted(infos)]

    def find(self, name: str) -> SkillInfo | None:
        """Return the skill of that name, or None if it does not exist."""
        if not NAME.fullmatch(name):
            return None
        info = self._read(self.folder / name) or self._others.get(name)
        if info is None or info.problem or (info.folder / "SKILL.md").is_file():
            return info
        return replace(info, problem=f"{info.folder} is gone")

    def _own(self) -> list[SkillInfo]:
        return [info for folder in self.folder.glob("[!.]*") if (info := self._read(folder)) is not None]

    def _read(self, folder: Path) -> SkillInfo | None:
        info = SkillInfo(folder.name, "", "home", folder)
        try:
            text = disk.read_text(folder / "SKILL.md", LARGEST_MAIN_BYTES)
            if text is None:
                return None
            if folder.is_symlink():
                return replace(info, problem="its folder is a symbolic link")
            name, description = skill_format.name_and_description(text)
        except WhetError as error:
            return replace(info, problem=error.message)
        if name != folder.name:
            return replace(info, problem=f"its front matter names it {name!r}")
        return replace(info, description=description, hash=hash_text(text)[:12])
