"""Writes lessons from the sources' own words: the model points at passages, this module copies them.

A preference is the person's sentence with its day. A fact is the whole line with the file or command that
it comes from. A pitfall is the failed call, its error line and the call that then worked. No text of the
model is included, so it cannot distort a lesson. The gate decides which lessons may be kept.
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
    """Return the note for the passages, in the session's order. `forms` are commands with placeholders."""
    failed = [passage for passage in pointed if passage.source.failed]
    successes = [passage for passage in pointed if not passage.source.failed]
    body = "; ".join(_grouped(successes, named))
    if not failed:
        return body
    wrong = "; ".join(_failing(passage) for passage in failed)
    return f"{SAID_PITFALL}{wrong}. Then: {body}"


def steps(pointed: Sequence[Pointed], named: Sequence[str] = ()) -> list[str]:
    """Return a skill's lines for the passages: numbered steps for calls that succeeded, then statements, then
    failures."""
    failed = [passage for passage in pointed if passage.source.failed]
    done = [
        passage
        for passage in pointed
        if not passage.source.failed and (passage.source.is_command or not passage.unit)
    ]
    other = [passage for passage in pointed if not passage.source.failed and passage not in done]
    commands = _commands(done, named)
    lines: list[str] = []
    for number, source in enumerate(_sources(done), 1):
        call = kept(source)
        step = ticked(commands[call]) if source.is_command else f"{source.tool} {ticked(call)}"
        # The output of one run does not belong to a step with parameters.
        proof = _quoted([o for o in done if o.source is source]) if commands.get(call, "") == call else ""
        lines.append(f"{number}. {step}" + (f" → {proof}" if proof else ""))
    lines += [f"- {text}" for text in _grouped(other, named)]
    lines += [f"- Fails: {_failing(passage)}" for passage in failed]
    return lines


def subject(text: str) -> str:
    """Return the subject of an entry written here: its text without values and day."""
    return units.shape(_DATED.sub("", text).replace("`", " "))


def ticked(command: str) -> str:
    """Return a command as inline code on one line."""
    flat = " ".join(command.split())
    fence = "``" if "`" in flat else "`"
    return f"{fence}{flat}{fence}"


def _failing(one: Pointed) -> str:
    return ticked(kept(one.source)) + (f" → {_quoted([one])}" if one.unit else " fails")


def _grouped(pointed: Sequence[Pointed], named: Sequence[str]) -> list[str]:
    """Return one text for each source, its statements in order."""
    texts: list[str] = []
    commands = _commands(pointed, named)
    for source in _sources(pointed):
        quote = _quoted([passage for passage in pointed if passage.source is source])
        if source.role == "user":
            texts.append(f"{quote} (said {source.day})" if source.day else quote)
            continue
        label = ticked(commands[kept(source)]) if source.is_command else source.call
        if source.tier == "user":
            label = f"asked “{label}”"
        between = " →" if source.is_command else ":"
        text = f"{label}{between} {quote}" if quote else f"{label} worked"
        texts.append(f"{text} ({source.day})" if source.day else text)
    return texts


def _commands(pointed: Sequence[Pointed], named: Sequence[str]) -> dict[str, str]:
    """Return how each command is shown, by its kept form.

    A command is shown with parameters if a tool's own error uses a placeholder for them (`forms`), or if
    the same command also ran with another word in one position.
    """
    ran = [kept(source) for source in _sources(pointed) if source.is_command]
    labels = {command: next(filter(None, (filled(form, command) for form in named)), "") for command in ran}
    return {command: form or _varied(command, ran) for command, form in labels.items()}


def _sources(pointed: Sequence[Pointed]) -> list[SourceText]:
    each = {id(passage.source): passage.source for passage in pointed}
    return sorted(each.values(), key=lambda source: source.seq)


def _quoted(pointed: Sequence[Pointed]) -> str:
    texts = dict.fromkeys(_flat(passage) for passage in pointed if passage.unit)
    longest = [text for text in texts if not any(text != other and text in other for other in texts)]
    return " … ".join(f"“{text}”" for text in longest)


def _flat(one: Pointed) -> str:
    lines = [" ".join(line.split()) for line in one.unit.splitlines() if line.strip()]
    return (" / " if one.source.role == "tool" else " ").join(lines)


def filled(form: str, command: str) -> str:
    """Put placeholders back into a command that is a filled-in form, or return an empty string if it is not.

    A placeholder at the end may match several words; options after it are kept.
    """
    form_words, words = form.split(), command.split()
    if not any(map(units.PLACEHOLDER.fullmatch, form_words)):
        return ""
    for at in range(len(words) - len(form_words) + 1):
        pairs = zip(form_words, words[at:], strict=False)
        if not all(units.PLACEHOLDER.fullmatch(w) or w == g for w, g in pairs):
            continue
        options = words[at + len(form_words) :]
        while options and units.PLACEHOLDER.fullmatch(form_words[-1]) and not _OPTION.match(options[0]):
            options = options[1:]
        if all(map(_OPTION.match, options)):
            return " ".join([*words[:at], *form_words, *options])
    return ""


def _varied(command: str, commands: Sequence[str]) -> str:
    """Replace the last word of a command with a placeholder if the command also ran with another one.

    That other word must be a value of the same shape, or both must be the argument of another command,
    too. `make clean` and `make site` remain two different steps.
    """
    words = command.split()
    for other in commands:
        theirs = other.split()
        if len(words) < 2 or theirs[:-1] != words[:-1] or other == command:
            continue
        pair = (words[-1], theirs[-1])
        arguments = {
            word for each in commands if each.split()[:-1] != words[:-1] for word in each.split()[1:]
        }
        if units.shape(pair[0]) == units.shape(pair[1]) or arguments.issuperset(pair):
            return " ".join([*words[:-1], "<ITEM>"])
    return command
