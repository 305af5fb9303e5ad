"""Compute the effect of a skill request on the skill's current files: validity, compare-and-swap, patches.

Pure functions: files are passed as bytes by relative path. A failed patch reports the nearest text, so
that the next attempt can match it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import product

import msgspec

from whet.contract.texts import flat, short
from whet.markdown import code_block
from whet.memory import skill_format
from whet.memory.cases import parse_steps
from whet.memory.entries import restore_placeholders
from whet.memory.requests import GateVerdict, Refused, Repeated, SkillRequest
from whet.memory.skill_format import check_name, check_path
from whet.store.ledger import hash_text
from whet.visible import visible

MAIN = "SKILL.md"
MAX_FILE_CHARS = 60_000
_NO_CLAIM = re.compile(r"---\s*$|name:\s|(?:license|version|author|metadata|compatibility|tags):")
_STEP = re.compile(r"^\d{1,2}\. ")
_MAX_ABOUT = 140
_MAX_SHOWN_CHARS = 8_000
_PLACES = ("references/", "scripts/", "assets/")
Files = Mapping[str, bytes]


class SkillPlan(msgspec.Struct, frozen=True):
    """The new content of a skill's files (None: deleted), and the main file's text before and after."""

    files: dict[str, bytes | None]
    before: str
    after: str

    @property
    def is_file(self) -> bool:
        """Whether it writes a file other than SKILL.md."""
        return MAIN not in self.files and bool(self.after)

    @property
    def added_text(self) -> str:
        """The lines of `after` that are not in `before`: the change's claim."""
        old = set(self.before.splitlines())
        new = [line for line in self.after.splitlines() if line not in old]
        if not self.is_file:
            new = [line.removeprefix("description:") for line in new if not _NO_CLAIM.match(line)]
        return "\n".join(new)


def plan(files: Files, request: SkillRequest, *, by_hand: bool = False) -> SkillPlan:
    """Return the change that `request` asks for, based on the skill's current files. Raises Refused.

    `by_hand`: the person asks, so no base hash is needed.
    """
    check_name(request.name)
    skill_plan = _build_plan(files, request, by_hand=by_hand)
    if (main := skill_plan.files.get(MAIN)) is not None:
        declared, _ = skill_format.name_and_description(read_text(request.name, {MAIN: main}, MAIN))
        if declared != request.name:
            raise Refused(
                f"The front matter names the skill {declared!r}, not {request.name!r}",
                hint="They must be the same.",
            )
    return skill_plan


def describe_change(files: Files, skill_plan: SkillPlan) -> str:
    """Return the changed lines of a plan as a diff for a person, in a code block, because chats read
    Markdown. What is cut off is counted."""
    rows: list[str] = []
    for path, content in sorted(skill_plan.files.items()):
        before, after = (
            [] if data is None else data.decode("utf-8", "replace").splitlines()
            for data in (files.get(path), content)
        )
        names = path if path in files else "(no file)", "(no file)" if content is None else path
        rows += difflib.unified_diff(before, after, *names, n=1, lineterm="")
    return code_block(visible("\n".join(rows), _MAX_SHOWN_CHARS))


def replace_with_sources(files: Files, skill_plan: SkillPlan, name: str, verdict: GateVerdict) -> SkillPlan:
    """Return the plan with the new lines of SKILL.md replaced by the text that the gate wrote.

    The text takes the place of the first new line. Old lines stay, and a step that is among them is not added
    again.
    """
    if skill_plan.files.get(MAIN) is None:
        return skill_plan
    old = read_text(name, files, MAIN) if MAIN in files else ""
    head, body = skill_format.split(old) if old else (_write_head(name, verdict.about), "")
    old_lines = set(body.splitlines())
    new = skill_format.split(skill_plan.after)[1].splitlines()
    kept_lines = [line for line in new if line in old_lines or not line.strip()]
    at = next((n for n, line in enumerate(new) if line.strip() and line not in old_lines), len(kept_lines))
    old_steps = parse_steps("\n".join(kept_lines))
    fresh = [
        line
        for line in verdict.text.splitlines()
        if line not in kept_lines
        and not any(_is_same_step(*steps) for steps in product(old_steps, parse_steps(line)))
    ]
    fresh = _restore_steps(fresh, old_lines, new)
    if verdict.text.strip() and not fresh and len(kept_lines) == len(body.splitlines()):
        raise Repeated("The skill has these steps already", hint="Nothing has to be saved.")
    text = "\n".join(_renumber([*kept_lines[:at], *fresh, *kept_lines[at:]]))
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n")
    text = _check_text(f"---\n{head}\n---\n\n{text}\n", "the skill")
    return SkillPlan({**skill_plan.files, MAIN: text.encode()}, skill_plan.before, text)


def _restore_steps(fresh: list[str], old: Collection[str], new: Collection[str]) -> list[str]:
    """Return the gate's lines. If an old step is missing from the new text, a statement that names a command
    of the new text becomes a step with that command."""
    if not any(parse_steps(line) for line in old if line not in new):
        return fresh
    commands = [step for line in new if line not in old for step in parse_steps(line)]
    restored: list[str] = []
    for line in fresh:
        named = [step for step in commands if line.startswith("- “") and _names(line, step)]
        restored.append(f"1. `{named[0]}` → {line.removeprefix('- ')}" if named else line)
    return restored


def _names(text: str, command: str) -> bool:
    return re.search(rf"(?<![\w./-]){re.escape(command)}(?![\w/-]|\.\w)", text) is not None


def _is_same_step(old: str, new: str) -> bool:
    """Return whether two steps are one command for different things."""
    first, second = (re.sub(r"\S*\d\S*", "_", " ".join(step.split())) for step in (old, new))
    return first == second or restore_placeholders(old, new) != ""


def _renumber(lines: Sequence[str]) -> list[str]:
    """Renumber the steps, starting again below each heading."""
    count = 0
    numbered: list[str] = []
    for line in lines:
        bare = _STEP.sub("", line)
        count = 0 if line.startswith("#") else count + (bare != line)
        numbered.append(line if bare == line else f"{count}. {bare}")
    return numbered


def _write_head(name: str, purpose: str) -> str:
    request = re.sub(r":\s", " - ", flat(purpose).replace("#", ""))
    return f"name: {name}\ndescription: What worked for “{short(request, _MAX_ABOUT) or name}”"


def hash_tree(files: Mapping[str, str]) -> str:
    """Return a skill's hash from its files' hashes, or an empty string if there are no files.

    The hash is short because models repeat it.
    """
    lines = "\n".join(f"{path} {key}" for path, key in sorted(files.items()) if key)
    return hash_text(lines)[:12] if lines else ""


def hash_files(files: Files) -> str:
    """Return a skill's hash from its files."""
    return hash_tree({path: hash_text(content) for path, content in files.items()})


def _build_plan(files: Files, request: SkillRequest, *, by_hand: bool) -> SkillPlan:
    action = request.action
    if action == "create":
        if files:
            raise Refused(
                f"There is a skill {request.name} already", hint="Look at it (skill_view), then patch it."
            )
        content = _check_text(request.content, "content")
        return SkillPlan({MAIN: content.encode()}, "", content)
    path = _check_folder(request.file_path) if action in ("write_file", "remove_file") else MAIN
    if action == "patch" and request.file_path:
        path = check_path(request.file_path)
    if action == "delete" and MAIN not in files:
        path = next(iter(files), MAIN)
    is_new = action == "write_file" and path not in files
    before = _read_existing(files, request, MAIN if is_new else path)
    _check_base(files, request, needed=not (by_hand or is_new or action == "patch"))
    if action in ("delete", "remove_file"):
        return SkillPlan(dict.fromkeys(files if action == "delete" else [path]), before, "")
    if action == "patch":
        after = _patch(before, path, request)
    else:
        label = "content" if action == "edit" else "file_content"
        after = _check_text(request.content if action == "edit" else request.file_content, label)
        before = "" if is_new else before
        if after == before:
            raise Repeated(f"That is what {path} says already", hint="Nothing has to be saved.")
    return SkillPlan({path: after.encode()}, before, after)


def _patch(before: str, path: str, request: SkillRequest) -> str:
    old, new = request.old_string, request.new_string
    if not old:
        raise Refused("old_string is empty", hint="Give the exact text to change, with enough around it.")
    count, at = before.count(old), before.rfind(old)
    # The description may contain the text too.
    is_once_in_body = path == MAIN and skill_format.split(before)[1].count(old) == 1
    if count > 1 and not is_once_in_body:
        raise Refused(
            f"old_string stands {count} times in {path}", hint="Add lines around it until it is unique."
        )
    if not count:
        raise Refused(f"old_string does not stand in {path}", hint=_nearest(before, old))
    if old == new:
        raise Repeated("old_string and new_string are the same", hint="Nothing has to be saved.")
    after = before[:at] + new + before[at + len(old) :]
    _check_text(after, "the patched file")
    return after


def _check_folder(path: str) -> str:
    path = check_path(path)
    if not path.startswith(_PLACES):
        raise Refused(f"{path} is not below {', '.join(_PLACES)}", hint="SKILL.md itself: edit or patch.")
    return path


def _read_existing(files: Files, request: SkillRequest, path: str) -> str:
    if not files:
        raise Refused(
            f"There is no skill {request.name} of yours", hint="skills_list shows them; create makes one."
        )
    return read_text(request.name, files, path)


def read_text(name: str, files: Files, path: str) -> str:
    """Return the text of a skill's file. Raises Refused."""
    if path not in files:
        raise Refused(f"The skill {name} has no {path}", hint=f"It has: {', '.join(list(files)[:40])}")
    try:
        return files[path].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refused(f"{path} of the skill {name} is not text", hint="It can be used by its path.") from None


def _check_base(files: Files, request: SkillRequest, *, needed: bool) -> None:
    current = hash_files(files)
    if request.base_hash and request.base_hash != current:
        raise Refused(
            f"The skill {request.name} has changed since: its hash is {current}, not {request.base_hash}",
            hint="Look at it again (skill_view), then repeat the change.",
        )
    if needed and not request.base_hash:
        raise Refused(
            f"{request.action} needs base_hash",
            hint="skill_view shows the skill with its hash; or use patch.",
        )


def _check_text(content: str, label: str) -> str:
    if not content.strip():
        raise Refused(f"{label} is empty", hint="Give the whole text.")
    if len(content) > MAX_FILE_CHARS:
        raise Refused(
            f"{label} has more than {MAX_FILE_CHARS:,} characters", hint="Split it into references/."
        )
    return content if content.endswith("\n") else content + "\n"


def _nearest(text: str, part: str) -> str:
    lines, size = text.splitlines(), len(part.splitlines())
    spans = ["\n".join(lines[i : i + size]) for i in range(len(lines))][:2_000]
    near = difflib.get_close_matches(part, spans, 1, 0.3)
    if not near:
        return "Nothing like it is there; skill_view shows it."
    return f"The nearest text there is:\n{near[0][:1_500]}"
