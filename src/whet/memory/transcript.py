"""A session in which quotes can be located, each with the whole statement around it.

Text that the assistant or an untrusted source said first does not become true when a local tool repeats
it. Later words of the person about the same subject override earlier ones, and so does a later look at the
same file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from itertools import islice

import apsw
import msgspec

from whet.clock import local_time
from whet.memory import typed, units
from whet.memory.alignment import find_aligned, may_hold
from whet.memory.composed import is_composed
from whet.memory.folding import content_words, find_span, fold, join_words
from whet.memory.provenance import FileOrigins
from whet.memory.replies import (
    BARE_REPLY,
    RELATED_REPLY,
    SHORT_REPLY,
    adds_to,
    contradicts,
    find_replacement,
    is_aside,
    is_rejection,
    is_short,
    names_other_value,
    says_only_no,
    states_another,
)
from whet.memory.sources import SourceText, StoredText, Tier, read_sources, strip_line_numbers
from whet.shell.reading import read
from whet.store import calls, rows, sessions

_RANK = ("own", "untrusted", "observed", "user")
_NOTHING_CHARS = 8
_MAX_REPLIES = 3


class Passage(msgspec.Struct, frozen=True):
    """The statement that a quote points at: its whole text (`unit`, empty for a call itself), its source and
    its tier."""

    quote: str
    source: SourceText
    unit: str
    tier: Tier
    why: str = ""


class QuotableTranscript:
    """The texts of one session, in order. `turn` is the last turn's number.

    `why_foreign_line` returns why a line is not from this workspace: its file came from elsewhere, or
    another session wrote it from untrusted text.
    """

    def __init__(self, session_id: str, sources: Sequence[SourceText]) -> None:
        self.session_id = session_id
        self.sources: list[SourceText] = list(sources)
        self.why_foreign_line: Callable[[Passage], str] = lambda passage: ""
        self.turn: int = max((source.turn for source in sources), default=0)

    def find_passage(self, quote: str, *, is_step: bool = False, is_exact: bool = False) -> Passage | None:
        """Return the passage that a quote points at, or None: the one with the highest tier, the latest of
        several.

        A command points at its last successful call. For a step of a procedure (`is_step`), so does any
        part of a tool's arguments that is not prose. Slips in a quote are mended unless `is_exact`.
        """
        folded = fold(strip_line_numbers(quote))
        best: Passage | None = None
        for source in self.sources:
            span = find_span(source.text, folded) if folded and folded in source.folded else None
            if span is not None:
                passage = self._build_passage(quote, source, span)
                best = passage if best is None or _rank(passage) >= _rank(best) else best
        if best is None or best.tier == "own" or (is_step and best.tier == "untrusted"):
            candidates = (best, self._find_call(quote, folded, is_step=is_step))
            best = max(filter(None, candidates), key=_rank, default=None)
        if is_exact or (best is not None and best.tier != "own"):
            return best
        return self._find_aligned(quote) or best

    def _find_aligned(self, quote: str) -> Passage | None:
        """Return the passage that a quote with slips points at, with the source's own words as its quote.

        If several statements fit, return None: only one that is the same everywhere is certain.
        """
        matches: dict[str, Passage] = {}
        quote = strip_line_numbers(quote)
        for source in self.sources:
            if source.tier == "own" or not may_hold(source.folded, quote):
                continue
            for span in find_aligned(source.text, quote):
                passage = self._build_passage(source.text[slice(*span)], source, span)
                key = join_words(passage.unit)
                if key not in matches or _rank(passage) >= _rank(matches[key]):
                    matches[key] = passage
        return next(iter(matches.values())) if len(matches) == 1 else None

    def list_results(self) -> list[SourceText]:
        """Return the results of commands, in order."""
        return [source for source in self.sources if source.is_command]

    def find_replies(self, passage: Passage) -> list[Passage]:
        """Return the reply to a statement and the replies to that one, but not a whole conversation's."""
        replies: list[Passage] = []
        last = self.find_reply(passage)
        while last is not None and len(replies) < _MAX_REPLIES:
            replies.append(last)
            last = self.find_reply(last)
        return replies

    def find_reply(self, passage: Passage) -> Passage | None:
        """Return the person's next message if it is short and about the same: "to Tomas, not to Ines".

        It is if it shares a word or has another value, or if the assistant neither asked for it nor did
        anything about it. A question between them does not count.
        """
        mine = passage.source
        messages = [s for s in self.sources if s.seq > mine.seq and s.tier == s.role == "user"]
        reply = next((message for message in messages if not units.is_question(message.text)), None)
        if reply is None or mine.role != "user" or passage.tier != "user" or self._is_series(reply):
            return None
        if states_another(passage.unit, reply.text):
            return None
        between = [other for other in self.sources if mine.seq < other.seq < reply.seq]
        is_done = any(other.tool for other in self.sources if mine.turn <= other.turn <= reply.turn)
        is_answer = self._is_answer(mine, reply)
        is_talk = bool(between) and reply is messages[0] and not is_done and not is_answer
        is_related = bool(set(content_words(passage.unit)) & set(content_words(reply.text)))
        is_related = is_related or (not is_answer and names_other_value(reply.folded, passage.unit))
        is_related = is_related or is_rejection(reply.text)
        is_near = is_related or is_aside(reply.text, passage.unit)
        is_long = is_rejection(reply.text) or (is_near and not is_done)
        limit = RELATED_REPLY if is_long else SHORT_REPLY
        is_kept = (is_related or is_talk) and is_short(reply.folded, limit)
        return Passage(reply.text, reply, reply.text, "user") if is_kept else None

    def _is_series(self, message: SourceText) -> bool:
        """Return whether the next message is the same one with another number, as tasks in a row are."""
        later = (s for s in self.sources if s.seq > message.seq and s.tier == s.role == "user")
        shape = units.mask_values(message.text)
        return any(units.mask_values(other.text) == shape != other.folded for other in islice(later, 1))

    def _is_answer(self, before: SourceText, reply: SourceText) -> bool:
        """Return whether a message answers a question that the assistant asked after another message."""
        texts = [s for s in self.sources if before.seq < s.seq < reply.seq and s.role == "assistant"]
        return bool(texts) and texts[-1].tool == "" and units.is_question(texts[-1].text)

    def find_retraction(self, passage: Passage, claim: str = "") -> str:
        """Return a later text about the same subject that contradicts the passage, or an empty string.

        A reply with a newer value is kept with the statement, unless the claim is about the older value.
        """
        source, unit = passage.source, passage.unit
        later = [other for other in self.sources if other.seq > source.seq]
        messages = all_messages = [other for other in later if other.tier == other.role == "user"]
        reply = self.find_reply(passage)
        if reply is not None and adds_to(unit, reply.unit, claim):
            # another value, or another thing's: the note shows both
            messages = [other for other in messages if other is not reply.source]
        elif source.role == "user" and messages and self._is_taken_back(messages[0], passage):
            return messages[0].text
        for other in messages:
            for sentence in units.split_sentences(other.text):
                is_against = contradicts(unit, sentence, is_typed=source.role == "user")
                if not is_against or units.is_question(sentence):
                    continue
                if not is_rejection(sentence) or not _is_about_nearer(sentence, unit, all_messages, other):
                    return sentence
        mine = (source.tool, source.call, source.tier, source.failed)
        for other in later if source.tier == "observed" and not source.failed else ():
            is_same = (other.tool, other.call, other.tier, other.failed) == mine
            if is_same and unit and fold(unit.splitlines()[-1]) not in other.folded:
                return find_replacement(unit, other.text)
        return ""

    def _is_taken_back(self, reply: SourceText, passage: Passage) -> bool:
        """Return whether the message right after a statement rejects it or names another value.

        A bare value that answers a question of the assistant's is about that question.
        """
        folded = reply.folded.strip(" .!,")
        if is_short(folded) and is_rejection(folded):
            return len(folded.split()) <= BARE_REPLY or says_only_no(passage.unit, reply.text)
        if not is_short(folded) or not names_other_value(folded, passage.unit) or self._is_series(reply):
            return False
        return not self._is_answer(passage.source, reply) or bool(
            set(content_words(passage.unit)) & set(content_words(reply.text))
        )

    def _build_passage(self, quote: str, source: SourceText, span: tuple[int, int]) -> Passage:
        """Return the passage around a span of a source."""
        if source.tier == source.role == "user":
            unit = self._add_condition(source, units.find_sentence(source.text, *span))
            if typed.is_quotation(source.text, *span, unit.text):
                return Passage(quote, source, unit.text, "untrusted", "you report what others said")
            heading = units.split_sentences(typed.find_heading(source.text, unit.start))[-1:]
            if question := self._find_question(source):
                why = self._why_not_asked(question, source)
                answer = msgspec.structs.replace(source, call=question)
                return Passage(quote, answer, unit.text, "untrusted" if why else "user", why)
            text = units.shorten(source.text, unit, *span)
            return Passage(quote, source, " ".join([*heading, text]), "user")
        if source.role != "tool":
            return Passage(quote, source, quote, source.tier, source.why)
        if source.tier == "user" and is_short(source.folded, BARE_REPLY):
            why = self._why_not_asked(source.call, source)
            return Passage(quote, source, source.text, "untrusted" if why else "user", why)
        unit = units.find_line(source.text, *span)
        if units.is_prose(unit.text.splitlines()[-1]) and not source.failed:
            unit = units.find_prose(source.text, *span)
        tier, why = source.tier, source.why
        lines = (unit.text, *source.text[unit.start : unit.end].splitlines())
        earlier = (self._find_earlier(line, source) for line in lines)
        if tier == "observed" and (first := next(filter(None, earlier), None)):
            tier, why = first.tier, first.why or "the assistant wrote it before a tool repeated it"
        before = (other for other in self.sources if other.seq < source.seq)
        if tier == "observed" and is_composed(unit.text, source, before):
            tier, why = "own", "the assistant put it together"
        return Passage(quote, source, unit.text, tier, why)

    def _find_question(self, answer: SourceText) -> str:
        """Return the assistant's question that a message of a few words answers, or an empty string.

        Without the question a "yes" says nothing.
        """
        before = [other for other in self.sources if other.seq < answer.seq][-1:]
        if not is_short(answer.folded, BARE_REPLY) or not before or before[0].role != "assistant":
            return ""
        questions = [text for text in units.split_sentences(before[0].text) if units.is_question(text)]
        return questions[-1] if questions and not before[0].tool else ""

    def _why_not_asked(self, question: str, answer: SourceText) -> str:
        """Return why the person has to decide about a question that they answered, or an empty string.

        Its words are the assistant's: they may repeat untrusted text, or name a value that nobody gave.
        """
        before = [other for other in self.sources if other.seq < answer.seq]
        if foreign := next((other for other in before if other.tier == "untrusted"), None):
            return f"the question may repeat foreign text: {foreign.why}"
        given = " ".join(other.folded for other in before if other.tier != "own")
        value = next((value for value in units.find_values(question) if value not in given), "")
        return value and f"the assistant's question was the first to name {value}"

    def _add_condition(self, source: SourceText, unit: units.Unit) -> units.Unit:
        """Return a typed statement with the sentence after it, which may be its condition.

        The last sentence of a message after which something was done is the task, so it is left out.
        """
        following = units.find_following(source.text, unit.end)
        if following is None or states_another(unit.text, following.text):
            return unit
        is_last = not source.text[following.end :].strip()
        if is_last and any(other.turn == source.turn and other.tool for other in self.sources):
            return unit
        return units.Unit(source.text[unit.start : following.end], unit.start, following.end)

    def _find_earlier(self, unit: str, source: SourceText) -> SourceText | None:
        folded = fold(unit)
        if len(folded) < _NOTHING_CHARS:
            return None
        letters = join_words(unit).replace(" ", "")
        for other in self.sources:
            if other.seq < source.seq and (
                folded in other.folded or (other.has_effect and letters in other.letters)
            ):
                if other.tier in ("user", "observed"):
                    return None
                if other.tier == "untrusted" or other.has_effect:
                    return other
        return None

    def _find_call(self, quote: str, folded: str, *, is_step: bool) -> Passage | None:
        """Return the last successful call whose command is the quote.

        For a step, a quote that is a part of the command, or that the call printed, is enough.
        """
        bare = folded.strip("`$ ")
        requests = (source for source in self.sources if source.tier == "own" and bare in source.folded)
        call_ids = {source.call_id for source in requests if source.call_id}
        for source in reversed(self.sources):
            is_given = source.call_id in call_ids and _is_of_call(bare, source, is_step=is_step)
            is_printed = is_step and len(bare) >= _NOTHING_CHARS and bare in source.folded
            if bare and source.is_done and (is_given or is_printed):
                is_foreign = source.tier == "untrusted"
                return Passage(quote, source, "", "untrusted" if is_foreign else "observed", source.why)
        return None


def load_transcript(
    connection: apsw.Connection, session_id: str, trusted: Collection[str] = ()
) -> QuotableTranscript:
    """Read a session's messages, including those that a compaction removed from view. Raises NotFound.

    `trusted` is as in `read_sources`.
    """
    session = sessions.get(connection, session_id)
    origins = FileOrigins(connection, session.workspace)
    stored = _read_messages(connection, sessions.key_of(connection, session_id))
    texts = read_sources(stored, has_person=session.kind == "chat", trusted=trusted, origins=origins)
    return QuotableTranscript(session_id, texts)


def load_by_key(connection: apsw.Connection, key: int) -> QuotableTranscript:
    """Read another session by its key, from its messages only; no file is looked at."""
    return QuotableTranscript("", read_sources(_read_messages(connection, key)))


def _read_messages(connection: apsw.Connection, key: int) -> list[StoredText]:
    records = connection.execute(
        "SELECT m.id, m.turn, m.role, m.content, m.extra, m.at, c.facts"
        f" FROM messages m LEFT JOIN tool_calls c ON c.session = ?3 AND c.seq = m.id & {rows.SEQ_LIMIT - 1}"
        f" AND m.role = {rows.TOOL} WHERE m.id >= ?1 AND m.id < ?2"
        " AND m.turn NOT IN (SELECT number FROM turns WHERE session = ?3 AND undone <> '') ORDER BY m.id",
        (*rows.ids_of(key), key),
    ).fetchall()
    texts: list[StoredText] = []
    for id_, turn, role, content, extra, at_ms, facts in records:
        message, received = rows.unpack(role, content, extra), calls.has_received_bytes(facts)
        of_call = (received, calls.read_next_folder(facts))
        texts.append(StoredText(id_ & (rows.SEQ_LIMIT - 1), turn, message, _format_day(at_ms), *of_call))
    return texts


def _format_day(at_ms: int) -> str:
    return local_time(datetime.fromtimestamp(at_ms / 1000, UTC)).date().isoformat()


def _is_of_call(bare: str, ran: SourceText, *, is_step: bool) -> bool:
    """Return whether a quote is the command or, for a step, a part of it or of another tool's arguments."""
    call = fold(ran.call) if ran.is_command else ""
    if not is_step or len(bare) < _NOTHING_CHARS or bare == call:
        return bare == call
    return not ran.is_command or (bare in call and _is_action(bare, call, ran))


def _is_action(part: str, call: str, ran: SourceText) -> bool:
    """Return whether a part of a command does something: its strings are not prose."""
    stripped, at = fold(read(ran.call).bare), call.find(part)
    bare = stripped[at : at + len(part)] if len(stripped) == len(call) else "_" * len(part)
    strings = (part[slice(*match.span())] for match in re.finditer(r"_[_\s]*", bare))
    return not any(map(units.has_prose, strings))


def _is_about_nearer(sentence: str, unit: str, messages: Sequence[SourceText], source: SourceText) -> bool:
    """Return whether a message between a statement and a later sentence shares as many words with it."""
    words = set(content_words(sentence))
    shared_count = len(words & set(content_words(unit)))
    between = (message for message in messages if message.seq < source.seq)
    return any(len(words & set(content_words(message.text))) >= shared_count for message in between)


def _rank(passage: Passage) -> tuple[int, bool]:
    return _RANK.index(passage.tier), not passage.source.failed
