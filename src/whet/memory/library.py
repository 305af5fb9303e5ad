"""Which skills there are: the home's, the ones that come with the program, and plugins'.

A skill that can't be read is listed with the reason and never loaded. It reads only; changes go through
the desk.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from whet.contract.errors import WhetError
from whet.memory import disk, skill_format
from whet.memory.skill_format import NAME
from whet.store.ledger import digest

LARGEST_MAIN_BYTES = 200_000
BUILT_IN = Path(__file__).with_name("builtin_skills")
# Here too, so that a session's start reads no file for them; a test holds the two together.
BUILT_IN_DESCRIPTIONS = {
    "debug-failing-test": "Find out why a test is red, flaky or hangs, and fix the cause.",
    "find-slow-code": "Measure where time or memory goes and make code faster.",
    "migrate-data-safely": "Change data or a schema without loss: migrations, bulk edits.",
    "review-a-diff": "Review a diff, branch or pull request for defects.",
    "write-a-commit": "Split work into commits and write their messages.",
}


class SkillInfo(msgspec.Struct, frozen=True):
    """A skill as the index shows it; `problem` says why it can't be loaded. `source`: home, built-in, or
    the plugin's name; `hash` that of its SKILL.md."""

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
        """Add a skill from elsewhere; a name that is taken stays with whoever had it first."""
        self._others.setdefault(name, SkillInfo(name, description, source, folder))

    def offer_built_in(self) -> None:
        """Add the skills that come with the program."""
        for name, description in BUILT_IN_DESCRIPTIONS.items():
            self.offer(name, BUILT_IN / name, "built-in", description)

    def share(self, other: Library) -> None:
        """Offer what another library was offered from elsewhere, as it is now; not its own skills."""
        self._others.update(other._others)

    def all(self) -> list[SkillInfo]:
        """Give every skill, sorted by name; the home's own stand before others of the same name."""
        found = {info.name: info for info in self._others.values()}
        found.update((info.name, info) for info in self._own())
        return [found[name] for name in sorted(found)]

    def find(self, name: str) -> SkillInfo | None:
        """Give the skill of that name, None without one."""
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
        return replace(info, description=description, hash=digest(text)[:12])
