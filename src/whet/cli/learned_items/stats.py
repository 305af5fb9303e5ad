"""`stats` and `retire` of `whet memory` and `whet skills`: show measured effects, and remove harmful items.

Only the person removes an item, and `whet undo` restores it.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from whet.cli.learned_items.changes import with_learning, words_for_person
from whet.config.paths import Home
from whet.contract.errors import NotFound, WhetError
from whet.contract.origin import Origin
from whet.memory import notes
from whet.memory.effects import MIN_SESSIONS, Effect, Sums, measure_effects
from whet.memory.reader import hash_entry
from whet.memory.requests import MemoryRequest, SkillRequest, WriteOutcome
from whet.memory.service import LearningService
from whet.terminal.output import Column, emit_json, home_and_json, table, wrap_text
from whet.terminal.wording import printable

_BY_HAND = Origin("user", execution_context="command line")
_all = click.option("--all", "with_gone", is_flag=True, help="Earlier versions and removed ones too.")


@click.command("stats")
@_all
@home_and_json
def memory_stats(home: Home, with_gone: bool, as_json: bool) -> None:
    """Compare sessions with and without each note; what hurts is proposed for retirement."""
    effects = with_learning(home, lambda learning: measure_effects(learning, ("memory", "user")))
    _show(effects, with_gone, as_json)


@click.command("stats")
@_all
@home_and_json
def skills_stats(home: Home, with_gone: bool, as_json: bool) -> None:
    """Compare sessions with and without each skill; what hurts is proposed for retirement."""
    effects = with_learning(home, lambda learning: measure_effects(learning, ("skill",)))
    _show(effects, with_gone, as_json)


@click.command("retire")
@click.argument("item_id", metavar="ID")
@home_and_json
def memory_retire(home: Home, item_id: str, as_json: bool) -> None:
    """Remove a note, by its id in `whet memory show`; `whet undo` brings it back."""
    _print_outcome(with_learning(home, lambda learning: _retire_note(learning, item_id)), as_json)


@click.command("retire")
@click.argument("name")
@home_and_json
def skills_retire(home: Home, name: str, as_json: bool) -> None:
    """Remove a skill; the ledger keeps it, and `whet undo` brings it back."""
    request = SkillRequest("delete", name)
    _print_outcome(with_learning(home, lambda learning: learning.submit(request, _BY_HAND)), as_json)


def proposals(effects: Sequence[Effect]) -> list[Effect]:
    """Return the current items that were measured to hurt."""
    return [effect for effect in effects if effect.current and effect.finding == "hurts"]


def describe_harm(effect: Effect) -> str:
    """Return the proposal to retire an item that hurts, with the command."""
    kind = "skills" if effect.item.kind == "skill" else "memory"
    return (
        f"proposed for retirement ({effect.basis}): {printable(effect.item.label)}\n"
        f"  whet {kind} retire {effect.item.name}"
    )


async def _retire_note(learning: LearningService, item_id: str) -> WriteOutcome:
    await learning.apply()  # enter hand edits before the new change
    requests = [
        MemoryRequest("remove", target, old_text=entry.statement)
        for target, text in learning.reader.read_texts().items()
        for entry in notes.parse_entries(text)
        if item_id and hash_entry(entry).startswith(item_id)
    ]
    if len(requests) > 1:
        raise NotFound(f"{item_id} fits {len(requests)} notes", hint="give more of the id")
    if not requests:
        raise NotFound(f"there is no note {item_id}", hint="`whet memory show` shows the ids")
    return await learning.submit(requests[0], _BY_HAND)


def _print_outcome(outcome: WriteOutcome, as_json: bool) -> None:
    if not outcome.ok:
        raise WhetError(words_for_person(outcome.text))
    if as_json:
        return emit_json({"ledger_id": outcome.ledger_id, "summary": outcome.summary})
    click.echo(f"{outcome.summary}; `whet undo {outcome.ledger_id}` brings it back")


def _show(effects: Sequence[Effect], with_gone: bool, as_json: bool) -> None:
    effects = [effect for effect in effects if with_gone or effect.current]
    harmful = proposals(effects)
    if as_json:
        return emit_json({"items": effects, "proposed": [effect.item for effect in harmful]})
    if not effects:
        click.echo("no session has begun with a learned item yet; this fills up as you work")
        return
    columns: list[Column[Effect]] = [
        Column("id", lambda effect: effect.item.name),
        Column("item", lambda effect: printable(effect.item.label) or effect.item.name, grows=True, least=16),
        Column("sessions", lambda effect: str(effect.shown.sessions), right=True),
        Column("opened", _format_loads, right=True, rank=4),
        Column("trouble", lambda effect: effect.shown.trouble.format(".0%"), rank=2),
        Column("failed calls", lambda effect: _format_rate(effect.shown), right=True, rank=5),
        Column("steps", _format_steps, right=True, rank=6),
        Column("compared with", _format_basis, rank=3),
        Column("difference", _format_difference, rank=1),
        Column("finding", lambda effect: effect.finding),
    ]
    click.echo(table(effects, columns))
    for effect in harmful:
        click.echo(describe_harm(effect))
    if not any(effect.basis == "hold-out" for effect in effects):
        text = (
            "Nothing here is causal: without a hold-out, sessions with an item and without it differ in more "
            "than the item. To let chance decide: whet config set memory.holdout_share 0.05"
        )
        click.echo(f"\n{wrap_text(text)}")


def _format_loads(effect: Effect) -> str:
    return str(effect.loaded or "") if effect.item.kind == "skill" else ""


def _format_basis(effect: Effect) -> str:
    return f"{effect.basis}: {effect.compared.sessions}" if effect.compared.sessions else "nothing"


def _format_rate(sums: Sums) -> str:
    return f"{sums.failed_calls / sums.calls:.0%}" if sums.calls else "-"


def _format_steps(effect: Effect) -> str:
    """Return the mean steps of sessions with the item, and of those it is compared with."""
    means = [
        f"{sums.steps / sums.sessions:.1f}" if sums.sessions else "-"
        for sums in (effect.shown, effect.compared)
    ]
    return " / ".join(means)


def _format_difference(effect: Effect) -> str:
    if min(effect.shown.sessions, effect.compared.sessions) < MIN_SESSIONS:
        return "too few sessions"
    return effect.difference.format("+.0%")
