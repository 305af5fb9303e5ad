"""Start one warm session: choose a template, draw the hold-out, write the prefix, reopen the link.

Errors here never stop a turn: the session starts cold and the person reads why.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Sequence

import apsw
import msgspec

from whet.agent.session import Session
from whet.clock import iso
from whet.config.redact import redact
from whet.context.rows import list_tokens, text_tokens
from whet.contract.errors import WhetError
from whet.contract.texts import plural
from whet.store import learned, sessions, warm
from whet.store.learned import ContextItem
from whet.store.warm import TemplateState, WarmStart
from whet.warm.openings import AUTO, SessionOpening, WarmStarts, WarmWish
from whet.warm.outline import outline
from whet.warm.prime import PrimedLink, encode_prime, make_prime
from whet.warm.select import Situation, pick_examples, rank_templates, usable_examples
from whet.warm.template import Example, Template, iter_templates, load

MAX_HOLDOUT = 0.5
_MINED_REASON = re.compile(r"(?s)Before it, .* had failed \((?:exit -?\d+|[a-z]+(?: [a-z]+){0,3})\)\.")


class TemplateChoice(msgspec.Struct, frozen=True):
    """A template, the examples that the session gets, and lines for the person."""

    template: Template
    examples: Sequence[Example]
    lines: tuple[str, ...]


class NoTemplate(msgspec.Struct, frozen=True):
    """No template fits the session. `lines` say why."""

    lines: tuple[str, ...]


async def start_warm(
    warmth: WarmStarts, session: Session, wish: WarmWish, opening: SessionOpening, text: str
) -> None:
    """Start a session with the examples that fit its first message. Durable on return; a second call does
    nothing."""
    try:
        row = await warmth.database.read(lambda db: warm.read_start(db, session.id))
        if row is not None or session.log.messages:
            return
        choice = await _choose_template(warmth, session, wish, opening, text)
        if isinstance(choice, NoTemplate):
            _show_lines(opening, choice.lines)
            return
        held_out = wish.chosen_by in ("auto", "default") and is_held_out(
            session.id, choice.template.hash, warmth.settings.holdout
        )
        await _write_start(warmth, session, wish, opening, choice, held_out=held_out)
    except WhetError as error:
        _show_lines(opening, (f"started cold: {error.message}",))


def is_held_out(session_id: str, template_hash: str, share: float) -> bool:
    """Draw whether a session is held out; the result is always the same for the same session."""
    return zlib.crc32(f"{template_hash}:{session_id}".encode()) / 0x1_0000_0000 < min(share, MAX_HOLDOUT)


async def _choose_template(
    warmth: WarmStarts, session: Session, wish: WarmWish, opening: SessionOpening, text: str
) -> TemplateChoice | NoTemplate:
    is_auto = wish.name == AUTO
    if is_auto:
        templates = [
            candidate
            for candidate in await asyncio.to_thread(lambda: list(iter_templates(warmth.home)))
            if isinstance(candidate, Template)
        ]
    else:
        templates = [load(warmth.home, wish.name)]
    sources = list(dict.fromkeys(id_ for candidate in templates for id_ in candidate.source_session_ids))

    def read_states(db: apsw.Connection) -> tuple[dict[str, TemplateState], tuple[set[str], set[str]]]:
        return warm.list_states(db), warm.find_hidden_sources(db, sources)

    states, (private, gone) = await warmth.database.read(read_states)
    situation = Situation(
        text=text,
        workspace=str(session.workspace),
        tools={spec.name: spec for spec in opening.specs},
        now=warmth.clock.now(),
        private=private,
        gone=gone,
        last_wins={hash_: state.last_win for hash_, state in states.items()},
    )
    if is_auto:
        templates = [template for template, _ in rank_templates(templates, situation)]
    lines: list[str] = []
    for template in templates:
        off = states.get(template.hash, TemplateState()).off_reason
        if off and (is_auto or wish.chosen_by == "default"):
            lines.append(f"warm template {template.name} is switched off: {off}")
        elif examples := pick_examples(template, situation):
            return TemplateChoice(template, examples, tuple(lines))
        elif not is_auto:
            is_stale = not usable_examples(template, situation)
            reason = "every example of {} is stale" if is_stale else "no example of {} fits this task"
            name = template.name
            lines.append(f"started cold: {reason.format(name)} (whet warm show {name})")
    return NoTemplate(tuple(lines))


async def _write_start(
    warmth: WarmStarts,
    session: Session,
    wish: WarmWish,
    opening: SessionOpening,
    choice: TemplateChoice,
    *,
    held_out: bool,
) -> None:
    template = choice.template
    arm = "held_out" if held_out else "warm"
    row = WarmStart(template.name, template.hash, arm, wish.chosen_by, len(choice.examples))
    now = iso(warmth.clock.now())
    items = [_make_item(template, example) for example in choice.examples]
    by_chance = wish.chosen_by in ("auto", "default") and warmth.settings.holdout > 0

    def record(db: apsw.Connection) -> None:
        warm.record_start(db, session.id, row, now)
        shown_items, held_items = ((), items) if held_out else (items, ())
        learned.record_items(db, session.id, shown_items, held_items, randomised=by_chance)

    if held_out:
        await warmth.database.write(record)
        _show_lines(opening, choice.lines)
        return
    # Redacted a second time: a secret here may not have been recognised as one when the example was stored.
    examples = [redact_example(example) for example in choice.examples]
    prime = make_prime(template.hash, examples, redact(template.system_prompt_addendum))
    prompt = f"{opening.prompt}\n\n{prime.addendum}"

    def write(db: apsw.Connection) -> None:
        sessions.set_prime(db, session.id, prompt, encode_prime(prime))
        record(db)

    await warmth.database.write(write)
    line = f"started warm with {template.name}: {plural(len(examples), 'example')}"
    opening.use_link(PrimedLink(opening.open_link(prompt), prime.messages, (*choice.lines, line)))
    opening.lengthen(session.context, list_tokens(prime.messages) + text_tokens(prime.addendum))


def _make_item(template: Template, example: Example) -> ContextItem:
    """Return an example as an item for the record of session starts."""
    arguments = redact(msgspec.json.encode(example.arguments).decode())
    return ContextItem("example", template.name, example.hash, f"{example.tool_name} {arguments}")


def redact_example(example: Example) -> Example:
    """Return an example redacted by the present rules, whatever applied when it was stored."""
    mined = bool(example.session_id)
    arguments = msgspec.json.decode(redact(msgspec.json.encode(example.arguments).decode()))
    return msgspec.structs.replace(
        example,
        arguments=arguments if isinstance(arguments, dict) else example.arguments,
        # an example mined before results were outlined still contains the original text
        result_summary=outline(example.result_summary) if mined else redact(example.result_summary),
        context_hint=redact(example.context_hint),
        why="" if mined and not _MINED_REASON.fullmatch(example.why) else redact(example.why),
    )


def _show_lines(opening: SessionOpening, lines: Sequence[str]) -> None:
    if lines:
        opening.use_link(PrimedLink(opening.open_link(opening.prompt), (), lines))
