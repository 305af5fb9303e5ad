"""Skills as they are shown: the list, found by words, and a load with its text and hash."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from whet.contract.errors import WhetError
from whet.memory import disk, skill_changes
from whet.memory.folders import MOST_BYTES, BadFolder, files_of, good_path
from whet.memory.library import Library, SkillInfo
from whet.memory.requests import Refused
from whet.store.ledger import digest

_MOST_LISTED = 60
_WORD = re.compile(r"[^\W_]+")


class Load(msgspec.Struct, frozen=True):
    """What a load shows: the text for the model, the file, and the hash of that file's text."""

    text: str
    file: str
    hash: str


def listed(skills: Sequence[SkillInfo], query: str) -> str:
    """Write the list: name and description, the best fit first where words are given."""
    found = search(skills, query) if query.strip() else list(skills)
    if not found:
        return (
            f"No skill fits {query!r}; without a query all are listed."
            if skills
            else "There are no skills yet."
        )
    lines = [
        f"{info.name}: {info.description}"
        if not info.problem
        else f"{info.name}: can't be used: {info.problem}"
        for info in found[:_MOST_LISTED]
    ]
    if len(found) > _MOST_LISTED:
        lines.append(f"({len(found) - _MOST_LISTED} more; give a query)")
    return "\n".join(lines)


def search(skills: Sequence[SkillInfo], query: str) -> list[SkillInfo]:
    """Give the skills that share a word with `query`, the best fit first."""
    wanted = {word.lower() for word in _WORD.findall(query)}

    def score(info: SkillInfo) -> float:
        names = {word.lower() for word in _WORD.findall(info.name)}
        words = {word.lower() for word in _WORD.findall(info.description)}
        part = sum(any(len(w) > 3 and w in word for word in words | names) for w in wanted)
        return 3 * len(wanted & names) + len(wanted & words) + 0.5 * part

    scored = sorted(((score(info), info) for info in skills), key=lambda pair: (-pair[0], pair[1].name))
    return [info for points, info in scored if points > 0]


def load(library: Library, name: str, file_path: str = "") -> Load:
    """Give a skill's file, SKILL.md by default. Raises Refused with what there is instead."""
    info = library.find(name)
    if info is None:
        near = [found.name for found in search(library.all(), name)[:3]]
        hint = f"Near: {', '.join(near)}." if near else "skills_list shows what there is."
        raise Refused(f"There is no skill {name!r}", hint=hint)
    if info.problem:
        raise Refused(f"The skill {name} can't be used: {info.problem}", hint="Tell the person.")
    try:
        files = {path: disk.read(info.folder / path, MOST_BYTES) or b"" for path in files_of(info.folder)}
    except WhetError as error:
        raise Refused(f"The skill {name} can't be used: {error.message}", hint=error.hint) from error
    return shown(name, files, file_path, str(info.folder))


def shown(name: str, files: Mapping[str, bytes], file_path: str, where: str) -> Load:
    """Give a file of a skill as the model reads it. Raises Refused."""
    path = skill_changes.MAIN
    try:
        path = good_path(file_path) if file_path else path
        if path not in files:
            raise Refused(f"The skill {name} has no {path}", hint=f"It has: {', '.join(list(files)[:40])}")
        text = files[path].decode("utf-8-sig")
    except BadFolder as error:
        raise Refused(error.message, hint=error.hint) from error
    except UnicodeDecodeError:
        raise Refused(f"{path} of the skill {name} is not text", hint="It can be used by its path.") from None
    others = [one for one in files if one != path]
    head = f"[skill {name}, {path}, hash {skill_changes.of(files)}, folder {where}]"
    tail = f"\n[its files: {', '.join(others[:40])}]" if others and path == skill_changes.MAIN else ""
    return Load(f"{head}\n{text.rstrip()}{tail}", path, digest(text)[:12])
