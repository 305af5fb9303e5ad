"""Check whether a call repeats untrusted text, and remove talk from a call before it is stored.

A command that repeats earlier untrusted text is untrusted too. So is a line of a file that another session
wrote from untrusted text. Text that a command only prints or only writes into a file is the assistant's own
talk.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import apsw

from whet.contract.texts import collect_texts, parse_arguments
from whet.contract.tools import tags_of
from whet.memory import provenance, units
from whet.memory.folding import fold
from whet.memory.sources import SourceText
from whet.memory.transcript import Passage, QuotableTranscript, load_by_key
from whet.shell.fetches import find_fetch_sources, find_fetched_packages
from whet.shell.programs import Kinds, program
from whet.shell.reading import read
from whet.store import calls, sessions

_RUN_WORDS = 3
_MIN_NAME_CHARS = 3
_WORDS = re.compile(r"[^\W_]+(?:[-'’.][^\W_]+)*")
_HIT = re.compile(r"(?m)^([^\s:|]*[./][^\s:|]*)(?=:|$)")
_TO_FILE = re.compile(r"(?<![\d&])>{1,2}\s*[^&\s]")
# Words given to these programs are a search pattern, code or a query.
_USES = Kinds("pattern-then-files makes-text shell database sql")
_LITERAL = re.compile(r"(['\"])(?:(?!\1)[^\n()])*\1")


def fetches_only_known(ran: SourceText, transcript: QuotableTranscript) -> bool:
    """Return whether a command fetches only from known sources: addresses and repositories that the person
    has typed, or packages that the person or a local tool has named."""
    addresses, packages = find_fetch_sources(ran.call), find_fetched_packages(ran.call)
    before = [s for s in transcript.sources if s.seq < ran.seq]
    typed = "\n".join(s.folded for s in before if s.tier == "user")
    if addresses and all(
        re.search(rf"(?<![\w./-]){re.escape(address)}(?![\w/-])", typed) for address in addresses
    ):
        return True
    known_words = _join_words(s.folded for s in before if s.tier in ("user", "observed")) if packages else ""
    return packages is not None and all(f" {name} " in known_words for name in packages)


def why_not_own(ran: SourceText, transcript: QuotableTranscript) -> str:
    """Return why a call can't be trusted (it contains talk, or repeats earlier untrusted text), or an empty
    string."""
    if any(map(units.is_talk, strip_talk(ran).splitlines())):
        return "its command holds sentences of the assistant's own"
    return _why_repeats(ran.call if ran.is_command else ran.about, ran, transcript)


def why_foreign_line(connection: apsw.Connection, session_id: str, passage: Passage) -> str:
    """Return why a line does not originate in this workspace, or an empty string.

    A file that a search hit names may have come from elsewhere, or another session may have written the line
    into the file, copied from untrusted text or in the assistant's own words.
    """
    session, own_key = sessions.get(connection, session_id), sessions.key_of(connection, session_id)
    ran = passage.source
    hits = _HIT.findall(passage.unit) if ran.is_command or "search" in tags_of(ran.tool) else []
    if why := provenance.FileOrigins(connection, session.workspace).why_any_foreign(hits):
        return why
    for path in (*hits, *(read(ran.call).files if ran.is_command else [ran.call])):
        name = path.rpartition("/")[2]
        if len(name) < _MIN_NAME_CHARS:
            continue
        for past in calls.find_calls_naming(connection, session.workspace, name):
            if past.key == own_key or "edits" not in tags_of(past.name):
                continue
            texts = collect_texts(parse_arguments(past.arguments))
            lines = [line for line in passage.unit.splitlines() if any(fold(line) in fold(x) for x in texts)]
            other = load_by_key(connection, past.key) if lines else None
            source = next((s for s in other.sources if s.seq == past.seq), None) if other else None
            if other and source and any(_why_repeats(line, source, other) for line in lines):
                return f"another session wrote into {path} what untrusted text said"
            if any(map(units.has_prose, lines)):
                return f"the assistant wrote it into {path} in another session"
    return ""


def strip_talk(ran: SourceText) -> str:
    """Return the call without lines that it only prints and text that it only writes into a file."""
    if not ran.is_command:
        return ran.about
    lines = map(fold, ran.text.splitlines())
    printed = {line for line in lines if line.count(" ") >= 2 or units.is_packed(line)}
    call = ran.call
    for start, end, is_document in reversed(read(call).strings):
        call = call[:start] + _strip_string(call, start, end, printed, is_document=is_document) + call[end:]
    call = _LITERAL.sub(lambda m: f"{m[1]}…{m[1]}" if fold(m[0][1:-1]) in printed else m[0], call)
    parts = read(call).parts
    used = {word for part in parts if part.code or program(part.name).kinds & _USES for word in part.words}
    for word in {word for part in parts for word in part.words if re.search(r"\s", word)} - used:
        if units.has_prose(word):
            call = re.sub(rf"(['\"]){re.escape(word)}\1", lambda m: f"{m[1]}…{m[1]}", call)
    for part in read(call).parts:
        if fold(" ".join(part.words[1:])) in printed:
            call = call.replace(part.text, f"{part.words[0]} …")
    return call


def _strip_string(call: str, start: int, end: int, printed: Collection[str], *, is_document: bool) -> str:
    """Return a string or here-document of a call without lines of talk. The first line of a string is
    kept."""
    before, lines = call[:start].rstrip("\n").rpartition("\n")[2], call[start:end].split("\n")
    if is_document and _TO_FILE.search(before) and any(map(units.has_prose, lines)):
        return f"…\n{lines[-1]}"
    for at, line in enumerate(lines):
        is_last = at == len(lines) - 1
        if is_last and at > 0 and units.is_talk(line):
            lines[at] = f"…{line[-1]}"
        elif not is_last and (at > 0 or is_document) and (units.is_talk(line) or fold(line) in printed):
            lines[at] = "…"
    return "\n".join(lines)


def _why_repeats(text: str, ran: SourceText, transcript: QuotableTranscript) -> str:
    """Return which words of a text repeat untrusted text that came before the call, or an empty string.

    Words that the person typed or a local tool printed before are not counted.
    """
    before = [part for s in transcript.sources if s.seq < ran.seq for part in _split_prose(s)]
    foreign = _join_words(text for is_foreign, text in before if is_foreign)
    each: list[tuple[bool | None, str]] = []
    for run in _list_runs(text, is_command=ran.is_command):
        if run in foreign:
            each = each or [(is_foreign, _join_words([text])) for is_foreign, text in before]
            kinds = [is_foreign for is_foreign, words in each if run in words]
            if kinds[:1] == [True] and False not in kinds:
                return f"the command repeats what untrusted text said: {run.strip()[:60]}"
    return ""


def _split_prose(source: SourceText) -> Iterator[tuple[bool | None, str]]:
    """Yield the parts of a text with whether they are foreign: those of untrusted text, and the prose of a
    local file or program, unless it failed. The assistant's own are neither (None)."""
    if source.tier != "observed" or source.failed:
        yield {"untrusted": True, "own": None}.get(source.tier, False), source.folded
        return
    for line in filter(str.strip, source.text.splitlines()):
        yield units.is_prose(line), fold(line)


def _join_words(texts: Iterable[str]) -> str:
    """Return the words of the texts separated by single spaces, each text followed by its values."""
    words = ([*_WORDS.findall(text), *units.find_values(text)] for text in texts)
    return f" {' '.join(word for each in words for word in each)} "


def _list_runs(text: str, *, is_command: bool) -> Iterable[str]:
    """Yield the parts of a call that rarely occur twice by chance: runs of words, and values with their
    parts, except names of programs."""
    words = _WORDS.findall(fold(text))
    for at in range(len(words) - _RUN_WORDS + 1):
        run = " ".join(words[at : at + _RUN_WORDS])
        if len(run) >= 14 or (not run.isascii() and len(run) >= 8):
            yield run
    programs = read(text).programs if is_command else ()
    for value in units.find_values(text).difference(fold(name) for name in programs if "/" not in name):
        yield value if len(value) >= 7 else f" {value} "
        parts = re.split(r"[=:/@]", value)
        yield from (f" {part} " for part in parts if len(part) >= 4 and not part.isalpha() and part != value)
