"""Write lessons from the sources' own words: the model points at passages, this module copies them.

A preference is the person's sentence with its day. A fact is the whole line with the file or command that
it comes from. A pitfall is the failed call, its error line and the call that then worked. No text of the
model is included, so it cannot distort a lesson. The gate decides which lessons may be kept. A skill's name
comes from the sources too, because every prompt shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from whet.memory import typed, units
from whet.memory.folding import join_words
from whet.memory.notes import PITFALL_PREFIX
from whet.memory.sources import SourceText
from whet.memory.taint import strip_talk
from whet.memory.transcript import Passage, QuotableTranscript

_OPTION = re.compile(r"-|[^=\s]+=")
_STATEMENT_WORDS = 3
_NAME_PART = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_MAX_NAME_PARTS = 3
_MAX_NAME_CHARS = 64


def write_note(passages: Sequence[Passage], forms: Sequence[str] = ()) -> str:
    """Return the note for the passages, in the session's order. `forms` are commands with placeholders."""
    failed = [passage for passage in passages if passage.source.failed]
    successes = [passage for passage in passages if not passage.source.failed]
    body = "; ".join(_format_groups(successes, forms))
    if not failed:
        return body
    wrong = "; ".join(_format_failures(failed))
    return f"{PITFALL_PREFIX}{wrong}. Then: {body}"


def write_steps(passages: Sequence[Passage], forms: Sequence[str] = ()) -> list[str]:
    """Return a skill's lines for the passages: numbered steps for calls that succeeded, then statements, then
    failures."""
    failed = [passage for passage in passages if passage.source.failed]
    done = [
        passage
        for passage in passages
        if not passage.source.failed and (passage.source.is_command or not passage.unit)
    ]
    other = [passage for passage in passages if not passage.source.failed and passage not in done]
    commands = _label_commands(done, forms)
    lines: list[str] = []
    for number, source in enumerate(_list_sources(done), 1):
        call = strip_talk(source)
        step = format_code(commands[call]) if source.is_command else f"{source.tool} {format_code(call)}"
        # The output of one run does not belong to a step with parameters.
        proof = (
            _join_quotes([o for o in done if o.source is source]) if commands.get(call, "") == call else ""
        )
        lines.append(f"{number}. {step}" + (f" → {proof}" if proof else ""))
    lines += [f"- {text}" for text in _format_groups(other, forms)]
    lines += [f"- Fails: {text}" for text in _format_failures(failed)]
    return lines


def name_skill(name: str, passages: Sequence[Passage], transcript: QuotableTranscript) -> str:
    """Return the name under which a skill is kept.

    The model's name is kept if the person typed its words in this order, or a call of the skill has them.
    Otherwise the name is made from the skill's first call, or from the person's sentence.
    """
    own = (typed.drop_quotations(source.text) for source in transcript.sources if source.tier == "user")
    calls = [strip_talk(item.source) for item in passages if item.tier == "observed"]
    wanted = join_words(name)
    if any(wanted in join_words(text.replace("_", " ")) for text in (*own, *calls)):
        return name
    texts = (*calls, *(item.unit for item in passages if item.tier == "user"))
    names = (_derive_name(text) for text in texts)
    return next((name for name in names if name), "steps")


def _derive_name(text: str) -> str:
    """Return the first plain words of a call or a sentence, such as make-docs, or an empty string."""
    names = (word.rpartition("/")[2].strip(".,;:!?") for word in text.lower().split() if word[0] != "-")
    words = [name.partition(".")[0] for name in names]  # fire.sh without its ending
    plain = [word for word in words[:_MAX_NAME_PARTS] if _NAME_PART.fullmatch(word)]
    return "-".join(plain)[:_MAX_NAME_CHARS].strip("-")


def format_code(command: str) -> str:
    """Return a command as inline code on one line."""
    flat = " ".join(command.split())
    fence = "``" if "`" in flat else "`"
    return f"{fence}{flat}{fence}"


def _format_failures(failed: Sequence[Passage]) -> list[str]:
    """Return one text for each failed call: the call, and the lines of its error that were quoted."""
    texts: list[str] = []
    for source in _list_sources(failed):
        quotes = _join_quotes([passage for passage in failed if passage.source is source])
        texts.append(format_code(strip_talk(source)) + (f" → {quotes}" if quotes else " fails"))
    return texts


def _format_groups(passages: Sequence[Passage], forms: Sequence[str]) -> list[str]:
    """Return one text for each source, its statements in order."""
    texts: list[str] = []
    commands = _label_commands(passages, forms)
    for source in _list_sources(passages):
        quote = _join_quotes([passage for passage in passages if passage.source is source])
        is_said = not source.call if source.role == "user" else source.tier == "user" and _is_statement(quote)
        if is_said:
            texts.append(f"{quote} (said {source.day})" if source.day else quote)
            continue
        label = format_code(commands[strip_talk(source)]) if source.is_command else source.call
        if source.tier == "user":
            label = f"asked “{units.split_sentences(label)[-1]}”"
        between = " →" if source.is_command else ":"
        text = f"{label}{between} {quote}" if quote else f"{label} worked"
        day = f" ({'said ' if source.role == 'user' else ''}{source.day})" if source.day else ""
        if not quote and texts and texts[-1].endswith(f" worked{day}"):
            texts[-1] = texts[-1].removesuffix(day)
        texts.append(f"{text}{day}")
    return texts


def _is_statement(quote: str) -> bool:
    """Return whether an answer says something without the question, which is the assistant's."""
    return len(quote.split()) >= _STATEMENT_WORDS or units.is_talk(quote)


def _label_commands(passages: Sequence[Passage], forms: Sequence[str]) -> dict[str, str]:
    """Return how each command is shown, by the command without talk.

    A command is shown with parameters if a tool's own error uses a placeholder for them (`forms`), or if
    the same command also ran with another word in one position.
    """
    ran = [strip_talk(source) for source in _list_sources(passages) if source.is_command]
    labels = {
        command: next(filter(None, (restore_placeholders(form, command) for form in forms)), "")
        for command in ran
    }
    return {command: form or _mark_variable(command, ran) for command, form in labels.items()}


def _list_sources(passages: Sequence[Passage]) -> list[SourceText]:
    each = {id(passage.source): passage.source for passage in passages}
    return sorted(each.values(), key=lambda source: source.seq)


def _join_quotes(passages: Sequence[Passage]) -> str:
    texts = dict.fromkeys(_flatten(passage) for passage in passages if passage.unit)
    longest = [text for text in texts if not any(text != other and text in other for other in texts)]
    return " … ".join(f"“{text}”" for text in longest)


def _flatten(passage: Passage) -> str:
    lines = [" ".join(line.split()) for line in passage.unit.splitlines() if line.strip()]
    return (" / " if passage.source.role == "tool" else " ").join(lines)


def restore_placeholders(form: str, command: str) -> str:
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


def _mark_variable(command: str, commands: Sequence[str]) -> str:
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
        if units.mask_values(pair[0]) == units.mask_values(pair[1]) or arguments.issuperset(pair):
            return " ".join([*words[:-1], "<ITEM>"])
    return command
