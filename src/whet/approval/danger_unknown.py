"""Judge installed programs that no table describes, by the verbs on their line (tables/verbs.toml).

Findings as in danger_files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from whet.approval.risk import Finding, Irreversible
from whet.late import late_pattern
from whet.shell.programs import Kinds, ProgramFacts, ProgramWords, program, read_table
from whet.shell.words import Word


@cache
def read_verbs() -> Mapping[str, str]:
    """Return the name of a high-risk action by the verb of a program that no table lists."""
    table = read_table(
        Path(__file__).with_name("tables").joinpath("verbs.toml").read_text("utf-8"), ProgramWords
    )
    return {verb: action for action, verbs in table.items() for verb in verbs}


_MAX_VERB_WORDS = 5
_OPTION_VERB = late_pattern(r"--?([\w-]+)(?:=(.*))?", re.DOTALL)


_KINDS_WITHOUT_VERBS = Kinds("brings outside")


def find_verbs(texts: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command (program left out) that may be the verb of a program that no table lists,
    and whose verbs `read_verbs` names: one of the first operands (`tool noun verb`, `noun:verb`), or an
    option or its value (`--delete`, `--action=delete`)."""
    verbs = read_verbs()
    operand_texts = [text for text in texts if not text.startswith("-")][:_MAX_VERB_WORDS]
    for text in operand_texts:
        yield from (text for part in text.lower().split(":") if part in verbs or _is_deleting(part))
    for match in filter(None, map(_OPTION_VERB.fullmatch, texts)):
        name, value = match[1].lower(), (match[2] or "").lower()
        is_verb = name in verbs and len(name) > 3  # `--rm` removes when it ends
        yield from [match[0]] if is_verb or value in verbs else []


def _is_deleting(text: str) -> bool:
    """Return whether a word of a compound such as `sql-drop` or `delete-bucket` is a verb that deletes."""
    parts = text.split("-") if re.fullmatch(r"[a-z]+(-[a-z]+)+", text) else ()
    deleting = ("delete_data", "wipe_database")
    return any(len(part) > 2 and read_verbs().get(part) in deleting for part in parts)


def judge_unknown(words: Sequence[Word]) -> Iterator[Finding]:
    """Judge an installed program by its verb if no table says how to read its operands. `./deploy` is a path;
    `deploy` is a verb even if a folder has that name, since the agent could have made the folder. A script
    of the workspace is the project's own."""
    facts = program(words[0].text)
    others = msgspec.structs.replace(facts, kinds=facts.kinds - _KINDS_WITHOUT_VERBS, told={}, why="")
    if others != ProgramFacts() or "/" in words[0].text:
        return
    if verb := next(find_verbs([word.text for word in words[1:]]), ""):
        yield "dangerous", Irreversible(f"{words[0].text} {verb}: may change what nobody can bring back")
