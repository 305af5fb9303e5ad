"""Judge every learned change: find the texts that it quotes, who wrote them, and whether they may be stored.

The model's own words are never evidence: the stored text is written from the sources (`entries.py`). The
reason of a refusal helps the model to quote better. Text from untrusted sources, and sentences of files and
programs, wait for the person. This module knows neither files nor the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from whet.contract.texts import short
from whet.foreign_text import find_orders
from whet.log import mask
from whet.memory import entries, units
from whet.memory.folding import UNSPACED, content_words, fold, has_part
from whet.memory.provenance import may_have_received
from whet.memory.requests import Claim, GateVerdict, Refused, Repeated
from whet.memory.scan import scan
from whet.memory.sources import SourceText
from whet.memory.taint import fetches_only_known, strip_talk, why_foreign_line, why_not_own
from whet.memory.transcript import Passage, QuotableTranscript, load_transcript
from whet.shell.fetches import find_outside_host
from whet.store import sessions
from whet.store.database import StateDatabase
from whet.store.ledger import Quote, Trust

_MAX_QUOTES = 12
_KEPT_QUOTE_CHARS = 400
_MIN_CHARS = 6
_NUMBERED = re.compile(r"(?m)^\s*\d{1,2}[.)]\s")
_TWO_WORDS = re.compile(r"[^\W\d_]+(?:[/-][^\W\d_]+)+")
_MIN_SIGNS = 4
_SIGN = re.compile(f"[{UNSPACED}]")
_LABEL = re.compile(r"(?:[^\s:]+ ){0,2}[^\s:]+: (?=\S+ \S+ \S)")  # before a statement of three words or more
_QUOTED_NOTE = re.compile(r'"([^"]+)" \([^()]*\)\Z')
_PACKED = re.compile(f"[{UNSPACED}]{{3,}}")


def judge_direct(claim: Claim, *, is_brought: bool) -> GateVerdict:
    """Judge a text that the person wrote, or that `is_brought` from another program's memory.

    Brought text waits for the person. Raises Refused for text that may never be stored, and for brought text
    that reads like orders to the assistant, because a person who accepts many entries at once may overlook
    it.
    """
    finding = scan(claim.text)
    if not finding and is_brought and (order := find_orders(claim.text)):
        finding = f"it reads like orders to the assistant: {order!r}"
    if finding:
        raise Refused(f"Not kept: {finding}", hint="Leave it out or say it otherwise.")
    if existing := _find_same(claim, [claim.text]):
        raise _repeat_error(existing)
    if is_brought:
        host = find_outside_host(claim.text)
        return GateVerdict("untrusted", why=f"it was written elsewhere{f' and names {host}' if host else ''}")
    return GateVerdict("user")


def judge_from_sessions(
    database: StateDatabase,
    session_ids: Sequence[str],
    trusted_tools: Collection[str],
    claim: Claim,
    *,
    foreground: bool,
) -> GateVerdict:
    """Judge a claim by the session that contains most of its quotes. Other quotes are dropped. Raises
    Refused, NotFound."""
    best: QuotableTranscript | None = None
    best_quotes: tuple[str, ...] = ()
    for session_id in session_ids:
        if database.read_now(lambda db, id_=session_id: sessions.get(db, id_)).private:
            raise Refused("This session is private: nothing is learned from it", hint="Go on without saving.")
        transcript = database.read_now(lambda db, id_=session_id: load_transcript(db, id_, trusted_tools))
        is_step = claim.kind == "skill"
        quotes = tuple(quote for quote in claim.quotes if transcript.find_passage(quote, is_step=is_step))
        if best is None or len(quotes) > len(best_quotes):
            best, best_quotes = transcript, quotes
        if quotes == claim.quotes:
            break
    assert best is not None  # a lesson always belongs to a session
    chosen = best
    chosen.why_foreign_line = lambda passage: database.read_now(
        lambda db: why_foreign_line(db, chosen.session_id, passage)
    )
    if best_quotes and len(session_ids) > 1:
        claim = msgspec.structs.replace(claim, quotes=best_quotes)
    return judge(claim, chosen, foreground=foreground)


def judge(claim: Claim, transcript: QuotableTranscript, *, foreground: bool) -> GateVerdict:
    """Return the verdict on a claim, with the text to store. Raises Refused, with a hint for a better
    claim."""
    if claim.is_verbatim:
        return _judge_file(claim, transcript)
    passages = _find_passages(claim, transcript, foreground=foreground)
    if claim.kind == "skill":
        passages += _find_named_calls(claim.text, passages, transcript)
    passages += [reply for item in passages for reply in transcript.find_replies(item)]
    checked = _add_remedy([_check_passage(item, claim, transcript) for item in passages], transcript)
    is_pitfall = any(item.source.failed for item in checked)
    passages = [_drop_prose(item, claim, transcript, is_pitfall=is_pitfall) for item in checked]
    passages += _find_suggested_calls(checked, transcript)
    _refuse_off_topic(claim, passages, transcript)
    _refuse_repeats(claim, passages)
    # Show commands with the placeholders that error messages of local programs use.
    errors = (item for item in transcript.list_results() if item.failed and item.tier == "observed")
    forms = [form for item in errors for form in units.find_quoted_commands(item.text)]
    if claim.kind == "memory":
        text = entries.write_note(passages, forms)
    else:
        text = "\n".join(entries.write_steps(passages, forms))
    if finding := scan(text):
        raise Refused(f"Not kept: {finding}", hint="Point at another statement.")
    if claim.target == "user" and not any(item.tier == "user" for item in passages):
        raise Refused(
            "About the person only their own typed words are kept", hint="Quote them, or use target memory."
        )
    evidence = tuple(_build_quote(item, transcript.session_id) for item in passages)
    request = _find_request(passages, transcript) if claim.kind == "skill" else ""
    name = entries.name_skill(claim.name, passages, transcript) if claim.name else ""
    foreign = next((item.why for item in passages if item.tier == "untrusted"), "")
    if why := foreign or _why_unconfirmed(passages, transcript):
        return GateVerdict("untrusted", evidence, why=why, text=text, about=request, name=name)
    trust: Trust = "user" if any(item.tier == "user" for item in passages) else "observed"
    return GateVerdict(trust, evidence, text=text, about=request, name=name)


def _judge_file(claim: Claim, transcript: QuotableTranscript) -> GateVerdict:
    """Accept a file if the person typed each of its lines or a local tool printed it. Raises Refused
    otherwise."""
    passages: dict[int, Passage] = {}
    for line in filter(str.strip, claim.text.splitlines()):
        passage = transcript.find_passage(line, is_exact=True)
        is_usable = passage is not None and passage.tier in ("user", "observed") and not passage.source.failed
        if passage is None or not is_usable or _why_unconfirmed([passage], transcript):
            raise Refused(
                f"Nobody typed this line, and no local tool showed it: {_short(line)}",
                hint="A file keeps what stands in the session; SKILL.md is written for you.",
            )
        passages.setdefault(id(passage.source), passage)
    if finding := scan(claim.text):
        raise Refused(f"Not kept: {finding}", hint="Leave it out.")
    quotes = tuple(_build_quote(passage, transcript.session_id) for passage in passages.values())
    return GateVerdict("observed", quotes)


def _find_request(passages: Sequence[Passage], transcript: QuotableTranscript) -> str:
    """Return the first sentence of the person's request for the work that the passages belong to."""
    turn = min(item.source.turn for item in passages)
    messages = (item for item in transcript.sources if item.tier == item.role == "user" and item.turn >= turn)
    return next((units.split_sentences(item.text)[0] for item in messages), "")


def _find_passages(claim: Claim, transcript: QuotableTranscript, *, foreground: bool) -> list[Passage]:
    """Return the passages that the quotes point at. If a conversation's claim has no quotes, return sentences
    that the person typed this turn. Raises Refused if there is no usable passage."""
    if not claim.quotes and foreground:
        return _find_turn_passages(claim, transcript)
    quotes = list(dict.fromkeys(claim.quotes[:_MAX_QUOTES])) or [claim.text]
    passages: list[Passage] = []
    for quote in quotes:
        passage = transcript.find_passage(quote, is_step=claim.kind == "skill")
        if passage is None and not claim.quotes:
            hint = "Give verbatim quotes from the session: the person's words, or a result."
            raise Refused("There is no evidence", hint=hint)
        if passage is None:
            hint = "Copy it letter by letter from the person or from a result, one message per quote."
            raise Refused(f"This quote does not stand in the session: {_short(quote)}", hint=hint)
        if _is_long_enough(quote, passage):
            passages.append(passage)
    if not passages:
        problem = f"These quotes are too short to point at anything: {_short(quotes[0])}"
        raise Refused(problem, hint="Quote a sentence or a line.")
    usable = [passage for passage in passages if passage.tier != "own"]
    if not usable:
        raise Refused(
            "The quotes are the assistant's own words, which show nothing; quote the person or a result"
        )
    return usable


def _find_turn_passages(claim: Claim, transcript: QuotableTranscript) -> list[Passage]:
    """Return the sentences typed this turn that share words with the claim, or all sentences if none does.
    Raises Refused if there are none."""
    words = set(content_words(claim.text))
    messages = [item for item in transcript.sources if item.turn == transcript.turn and item.tier == "user"]
    sentences = [sentence for item in messages for sentence in units.split_sentences(item.text)]
    near = [sentence for sentence in sentences if words & set(content_words(sentence))]
    matches = map(transcript.find_passage, near or sentences)
    passages = [item for item in matches if item is not None and item.tier == "user"]
    if not passages:
        hint = "Quote a result or an earlier message of theirs."
        raise Refused("The person typed nothing in this turn that could be kept", hint=hint)
    return [item for item in passages if not units.is_question(item.unit)] or passages


def _is_long_enough(quote: str, passage: Passage) -> bool:
    """Return whether a quote is long enough to point at a passage."""
    folded = fold(quote)
    is_word = len(re.findall(r"\w+", folded)) < 2 and len(_SIGN.findall(folded)) < _MIN_SIGNS
    is_answer = passage.source.role == "user" and folded == fold(passage.unit) and is_word
    if is_answer and not passage.source.call:
        return False  # it answers something, and nobody knows what
    if folded == fold(passage.unit) or not passage.unit or _PACKED.search(folded):
        return len(folded) >= 2
    return len(folded.replace(" ", "")) >= _MIN_CHARS


def _check_passage(passage: Passage, claim: Claim, transcript: QuotableTranscript) -> Passage:
    """Return the passage, marked untrusted if it repeats untrusted text.

    Raises Refused for a question, a statement that was taken back later, and a text that is too long. A
    command that fetches only from known sources is trusted as a step or a failure, without its output.
    """
    if passage.tier == "user" and _is_question(passage):
        raise Refused(
            f"That is a question, not a rule or a fact: {_short(passage.unit)}",
            hint="Quote what was decided.",
        )
    if passage.tier != "untrusted" and (later := transcript.find_retraction(passage, claim.text)):
        problem = "A later look shows something else"
        if passage.tier == "user":
            problem = "The person took that back later in the session"
        raise Refused(f"{problem}: {_short(later)}", hint="Quote what holds in the end, or keep nothing.")
    ran = passage.source
    if claim.kind == "skill" and ran.is_done and passage.unit:
        is_look = not ran.is_command and passage.tier == "observed"
        if len(passage.unit) > units.MAX_CHARS or (is_look and not _is_confirmed(passage, transcript)):
            # the call is a step because it ran; its output does not matter
            passage = msgspec.structs.replace(passage, unit="")
    if len(passage.unit) > units.MAX_CHARS:
        raise Refused(
            f"What this quote stands in is too long to be kept whole: {_short(passage.quote)}",
            hint="Point at a shorter line.",
        )
    is_fetch = ran.is_command and may_have_received(ran.call, ran.received)
    is_step = is_fetch and (claim.kind == "skill" or ran.failed)
    if passage.tier == "untrusted" and is_step and fetches_only_known(ran, transcript):
        passage = msgspec.structs.replace(passage, tier="observed", unit="", why="")
    is_call = ran.is_command or not passage.unit
    why = why_not_own(ran, transcript) if passage.tier == "observed" and is_call else ""
    if not why and passage.tier == "observed" and passage.unit and not ran.failed:
        why = transcript.why_foreign_line(passage)
    return msgspec.structs.replace(passage, tier="untrusted", why=why) if why else passage


def _is_question(passage: Passage) -> bool:
    """Return whether the quoted sentence is a question, also if its message contains statements."""
    quote = fold(passage.quote)
    return units.is_question(passage.unit) and not any(
        quote in fold(part) for part in units.find_statements(passage.unit)
    )


def _drop_prose(
    passage: Passage, claim: Claim, transcript: QuotableTranscript, *, is_pitfall: bool
) -> Passage:
    """Return the passage without its output if that is prose and the claim is about the command, or if it is
    the unconfirmed output of a failed command."""
    if passage.tier != "observed" or not passage.source.is_command:
        return passage
    if passage.source.failed:
        return passage if _is_confirmed(passage, transcript) else msgspec.structs.replace(passage, unit="")
    is_about_call = is_pitfall or claim.kind == "skill" or _names_call(claim.text, passage.source.call)
    is_prose = units.is_prose(passage.unit) or not _is_confirmed(passage, transcript)
    return msgspec.structs.replace(passage, unit="") if is_about_call and is_prose else passage


def _names_call(text: str, call: str) -> bool:
    words = [word for word in re.findall(r"[\w./-]{2,}", fold(call)) if not word.startswith("-")][:2]
    return bool(words) and all(word in fold(text) for word in words)


def _find_named_calls(
    text: str, passages: Sequence[Passage], transcript: QuotableTranscript
) -> list[Passage]:
    """Return the successful calls of the passages' turns whose complete command the claim contains."""
    folded = fold(text)
    source_ids, turns = {id(item.source) for item in passages}, {item.source.turn for item in passages}
    by_call: dict[str, Passage] = {}
    for ran in transcript.list_results():
        is_other = ran.turn in turns and not ran.failed and id(ran) not in source_ids
        if is_other and len(ran.call) >= 4 and fold(ran.call) in folded:
            by_call[ran.call] = Passage(ran.call, ran, "", ran.tier, ran.why)
    return list(by_call.values())


def _add_remedy(passages: list[Passage], transcript: QuotableTranscript) -> list[Passage]:
    """Return passages of failed calls with the call that worked afterwards. Raises Refused if there is
    none."""
    failed = [passage for passage in passages if passage.source.failed]
    if not failed or any(passage.source.seq > failed[-1].source.seq for passage in passages):
        return passages
    last = failed[-1].source
    words = set(last.call.split())
    later = [result for result in transcript.list_results() if result.seq > last.seq and result.ran_well]
    nearest = max(later, key=lambda result: len(words & set(result.call.split())), default=None)
    if nearest is not None:
        doubled_shared = len(words & set(nearest.call.split())) * 2
        # More than half of the words must be the same; half is enough for a command of two.
        if doubled_shared > len(words) or doubled_shared == len(words) <= 2:
            return [*passages, _point_at_call(nearest, transcript)]
    steps = _find_suggested_calls(failed, transcript)
    if any(_is_settled(failed[-1], step.source, transcript) for step in steps):
        return passages
    raise Refused(
        "The quotes are from failed results, and nothing shows what worked instead",
        hint="Quote the result that worked then, or the person's word for it.",
    )


def _point_at_call(ran: SourceText, transcript: QuotableTranscript) -> Passage:
    """Return the passage for a call that worked, untrusted if the call repeats untrusted text."""
    why = why_not_own(ran, transcript)
    return Passage(ran.call, ran, "", "untrusted" if why else "observed", why)


def _is_settled(failed: Passage, step: SourceText, transcript: QuotableTranscript) -> bool:
    """Return whether a similar call ran without the error after the step that the error asks for."""
    error, words = fold(failed.unit), set(failed.source.call.split())
    later = [
        result for result in transcript.list_results() if result.seq > step.seq and result.tier == "observed"
    ]
    similar = (result for result in later if len(words & set(result.call.split())) * 2 >= len(words))
    return any(error not in result.folded for result in similar)


def _find_suggested_calls(passages: Sequence[Passage], transcript: QuotableTranscript) -> list[Passage]:
    """Return the successful calls that the errors themselves ask for, such as "run `prep ITEM` first"."""
    quoted_calls = {item.source.call for item in passages}
    by_call: dict[str, Passage] = {}
    for failed in (item for item in passages if item.source.failed):
        for form in units.find_quoted_commands(failed.unit):
            for item in transcript.list_results():
                is_later = item.ran_well and item.seq > failed.source.seq and item.call not in quoted_calls
                if is_later and (form == item.call or entries.restore_placeholders(form, item.call)):
                    by_call[item.call] = _point_at_call(item, transcript)
    return list(by_call.values())


def _why_unconfirmed(passages: Sequence[Passage], transcript: QuotableTranscript) -> str:
    """Return why the person must decide about words of a file or a program, or an empty string."""
    for passage in passages:
        if passage.tier == "observed" and passage.unit and not _is_confirmed(passage, transcript):
            label = passage.source.call[:60] or "a result"
            return f"only the text of {label} says it, and you did not"
    return ""


def _is_confirmed(passage: Passage, transcript: QuotableTranscript) -> bool:
    """Return whether a passage contains no sentence, only settings, values and commands that ran. A sentence
    of a file or a program may be a stranger's, even if the person typed a part of it or a call tried it."""
    if any(units.has_prose(line) or units.has_short_sentence(line) for line in passage.unit.splitlines()):
        return False
    calls = [result.call for result in transcript.list_results()]
    return all(
        any(form == call or entries.restore_placeholders(form, call) for call in calls)
        for form in units.find_commands(passage.unit)
    )


def _refuse_off_topic(claim: Claim, passages: Sequence[Passage], transcript: QuotableTranscript) -> None:
    """Raise Refused if the quotes contain none of the claim's values.

    Words are not compared, because the claim may be in another language. Two words joined by a dash or a
    slash are not a value. A skill's values may be anywhere in the session except in untrusted text.
    """
    values = units.find_values(_NUMBERED.sub("", claim.text)) - units.find_values(claim.edited_text)
    subjects = {value for value in values if not _TWO_WORDS.fullmatch(value)}
    if claim.kind == "skill":
        texts = [item.folded for item in transcript.sources if item.tier != "untrusted"]
    else:
        texts = [fold(f"{item.unit} {item.source.call} {item.source.text[:4_000]}") for item in passages]
    text = " ".join(texts)
    parts = {part for value in subjects for part in re.findall(r"\w{3,}|\d+", value)}
    if subjects and not any(value in text for value in (*subjects, *parts)):
        raise Refused(
            f"The quotes are about something else: they don't hold {_short(', '.join(sorted(subjects)[:4]))}",
            hint="Quote the statement that does.",
        )


def _repeat_error(text: str) -> Repeated:
    return Repeated(
        f"That is remembered already: {_short(text)}", hint="Nothing has to be saved; or replace it."
    )


def _refuse_repeats(claim: Claim, passages: Sequence[Passage]) -> None:
    """Raise Repeated if an existing entry makes the claim's statement, or contains its lines and calls."""
    if existing := _find_same(claim, [passage.unit for passage in passages]):
        raise _repeat_error(existing)
    lines = [fold(line) for passage in passages for line in passage.unit.splitlines()]
    asked = [passage.source.call for passage in passages if passage.source.role == "user"]
    calls = [fold(strip_talk(passage.source)) for passage in passages if not passage.unit]
    calls += map(fold, filter(None, asked))
    for existing in claim.existing if lines else ():
        if all(has_part(fold(existing), part) for part in (*lines, *calls)):
            raise _repeat_error(existing)


def _find_same(claim: Claim, statements: Sequence[str]) -> str:
    """Return the existing entry that is the same as the only statement, or an empty string."""
    mine = _read_forms(statements[0]) if len(statements) == 1 else []
    for existing in claim.existing if mine else ():
        theirs = _read_forms(existing)
        # Two different labels before the same words are one statement only if the model says it without one.
        has_own_form = mine[0] in theirs or mine[-1] == theirs[0]
        if has_own_form or mine[-1] == theirs[-1] == _read_forms(claim.text)[0]:
            return existing
    return ""


def _read_forms(text: str) -> list[str]:
    """Return the folded statement and, if it begins with a label ("Remember: "), also the form without it. Of
    a note these are the words inside its quotation marks."""
    folded = _QUOTED_NOTE.sub(r"\1", fold(text).removeprefix("pitfall: ")).rstrip(".")
    label = _LABEL.match(folded)
    return [folded, folded[label.end() :]] if label else [folded]


def _build_quote(passage: Passage, session_id: str) -> Quote:
    source = passage.source
    text = mask((passage.unit or passage.quote)[:_KEPT_QUOTE_CHARS])
    return Quote(text, session_id, source.seq, source.role, source.tool, passage.tier, source.failed)


def _short(text: str) -> str:
    return f"“{short(text, 90)}”"
