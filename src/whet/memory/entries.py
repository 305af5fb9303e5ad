"""Writes what comes into force from the sources' own words: the model points, this writes.

A preference is the person's sentence with its day; a fact the whole line with the place that it stands in; a
pitfall the failed call, its error's line and what then worked. Nothing that a model wrote is in it, so a
twist is impossible. It does not decide what may be kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.memory import units
from whet.memory.carried import kept
from whet.memory.notes import SAID_PITFALL
from whet.memory.sources import SourceText
from whet.memory.transcript import Pointed

_OPTION = re.compile(r"-|[^=\s]+=")
_DATED = re.compile(r"\s*\((?:said |asked |checked )?\d{4}-\d\d-\d\d\)")


def entry(pointed: Sequence[Pointed], named: Sequence[str] = ()) -> str:
    """Give the note for what was pointed at, in the session's order. `named`: commands with placeholders."""
    failed = [one for one in pointed if one.source.failed]
    rest = [one for one in pointed if not one.source.failed]
    body = "; ".join(_grouped(rest, named))
    if not failed:
        return body
    wrong = "; ".join(_failing(one) for one in failed)
    return f"{SAID_PITFALL}{wrong}. Then: {body}"


def steps(pointed: Sequence[Pointed], named: Sequence[str] = ()) -> list[str]:
    """Give a skill's lines for what was pointed at: calls that succeeded in their order, what was said."""
    failed = [one for one in pointed if one.source.failed]
    done = [one for one in pointed if not one.source.failed and (one.source.is_command or not one.unit)]
    other = [one for one in pointed if not one.source.failed and one not in done]
    commands = _commands(done, named)
    lines: list[str] = []
    for number, source in enumerate(_sources(done), 1):
        call = kept(source)
        step = ticked(commands[call]) if source.is_command else f"{source.tool} {ticked(call)}"
        # What one instance printed is no part of a step with parameters.
        proof = _quoted([o for o in done if o.source is source]) if commands.get(call, "") == call else ""
        lines.append(f"{number}. {step}" + (f" → {proof}" if proof else ""))
    lines += [f"- {text}" for text in _grouped(other, named)]
    lines += [f"- Fails: {_failing(one)}" for one in failed]
    return lines


def subject(text: str) -> str:
    """Give what an entry that was written here is about: it without its values and its day."""
    return units.shape(_DATED.sub("", text).replace("`", " "))


def ticked(command: str) -> str:
    """Give a command as code on one line."""
    flat = " ".join(command.split())
    fence = "``" if "`" in flat else "`"
    return f"{fence}{flat}{fence}"


def _failing(one: Pointed) -> str:
    return ticked(kept(one.source)) + (f" → {_quoted([one])}" if one.unit else " fails")


def _grouped(pointed: Sequence[Pointed], named: Sequence[str]) -> list[str]:
    """Give one text for each source, its statements in order."""
    found: list[str] = []
    commands = _commands(pointed, named)
    for source in _sources(pointed):
        said = _quoted([one for one in pointed if one.source is source])
        if source.role == "user":
            found.append(f"{said} (said {source.day})" if source.day else said)
            continue
        place = ticked(commands[kept(source)]) if source.is_command else source.call
        if source.tier == "user":
            place = f"asked “{place}”"
        between = " →" if source.is_command else ":"
        shown = f"{place}{between} {said}" if said else f"{place} worked"
        found.append(f"{shown} ({source.day})" if source.day else shown)
    return found


def _commands(pointed: Sequence[Pointed], named: Sequence[str]) -> dict[str, str]:
    """Give what each command is shown as, by how it is kept: with parameters where a tool's own error has
    `named` a placeholder, or where the same command ran with something else in one place."""
    ran = [kept(source) for source in _sources(pointed) if source.is_command]
    given = {one: next(filter(None, (filled(form, one) for form in named)), "") for one in ran}
    return {one: form or _varied(one, ran) for one, form in given.items()}


def _sources(pointed: Sequence[Pointed]) -> list[SourceText]:
    each = {id(one.source): one.source for one in pointed}
    return sorted(each.values(), key=lambda source: source.seq)


def _quoted(pointed: Sequence[Pointed]) -> str:
    texts = dict.fromkeys(_flat(one) for one in pointed if one.unit)
    kept = [text for text in texts if not any(text != other and text in other for other in texts)]
    return " … ".join(f"“{text}”" for text in kept)


def _flat(one: Pointed) -> str:
    lines = [" ".join(line.split()) for line in one.unit.splitlines() if line.strip()]
    return (" / " if one.source.role == "tool" else " ").join(lines)


def filled(form: str, command: str) -> str:
    """Give a command that is a form with its placeholders filled, with the placeholders put back; empty where
    it is none. A placeholder at the end stands for several words; options after it are kept."""
    wanted, given = form.split(), command.split()
    if not any(map(units.PLACEHOLDER.fullmatch, wanted)):
        return ""
    for at in range(len(given) - len(wanted) + 1):
        pairs = zip(wanted, given[at:], strict=False)
        if not all(units.PLACEHOLDER.fullmatch(w) or w == g for w, g in pairs):
            continue
        rest = given[at + len(wanted) :]
        while rest and units.PLACEHOLDER.fullmatch(wanted[-1]) and not _OPTION.match(rest[0]):
            rest = rest[1:]
        if all(map(_OPTION.match, rest)):
            return " ".join([*given[:at], *wanted, *rest])
    return ""


def _varied(command: str, commands: Sequence[str]) -> str:
    """Mark the last word of a command that ran with another one in its place: another number of one kind, or
    each the subject of another command, too. `make clean` and `make site` are two steps."""
    words = command.split()
    for other in commands:
        theirs = other.split()
        if len(words) < 2 or theirs[:-1] != words[:-1] or other == command:
            continue
        pair = (words[-1], theirs[-1])
        rest = {word for each in commands if each.split()[:-1] != words[:-1] for word in each.split()[1:]}
        if units.shape(pair[0]) == units.shape(pair[1]) or rest.issuperset(pair):
            return " ".join([*words[:-1], "<ITEM>"])
    return command
