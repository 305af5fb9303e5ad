"""What learned items are seen to do, and taking out what hurts: `stats` and `retire` of memory and skills.

It lists and proposes; nothing is taken out before a person says so, and `whet undo` brings it back.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from whet.cli.learned import with_desk
from whet.cli.output import Column, emit_json, home_and_json, table, wrapped
from whet.cli.wording import printable
from whet.config.paths import Home
from whet.contract.errors import NotFound, WhetError
from whet.contract.origin import Origin
from whet.memory import notes
from whet.memory.desk import LearningService
from whet.memory.effects import LEAST_SESSIONS, Effect, Sums, of_desk
from whet.memory.reader import entry_id
from whet.memory.requests import MemoryRequest, SkillRequest, WriteOutcome
from whet.stats import Interval

_BY_HAND = Origin("user", execution_context="command line")
_all = click.option("--all", "with_gone", is_flag=True, help="Earlier versions and removed ones too.")


@click.command("stats")
@_all
@home_and_json
def memory_stats(home: Home, with_gone: bool, as_json: bool) -> None:
    """Say how sessions went with each note and without it; what hurts is proposed for retirement."""
    found = with_desk(home, lambda desk: of_desk(desk, ("memory", "user")))
    _show(found, with_gone, as_json, "whet memory retire")


@click.command("stats")
@_all
@home_and_json
def skills_stats(home: Home, with_gone: bool, as_json: bool) -> None:
    """Say how sessions went with each skill and without it; what hurts is proposed for retirement."""
    found = with_desk(home, lambda desk: of_desk(desk, ("skill",)))
    _show(found, with_gone, as_json, "whet skills retire")


@click.command("retire")
@click.argument("item_id", metavar="ID")
@home_and_json
def memory_retire(home: Home, item_id: str, as_json: bool) -> None:
    """Take a note out, by its id in `whet memory stats`; `whet undo` brings it back."""
    _tell(with_desk(home, lambda desk: _retire_note(desk, item_id)), as_json)


@click.command("retire")
@click.argument("name")
@home_and_json
def skills_retire(home: Home, name: str, as_json: bool) -> None:
    """Take a skill out; the ledger keeps it, and `whet undo` brings it back."""
    request = SkillRequest("delete", name)
    _tell(with_desk(home, lambda desk: desk.hand_in(request, _BY_HAND)), as_json)


def proposals(found: Sequence[Effect]) -> list[Effect]:
    """Give what is seen to hurt and is still there."""
    return [one for one in found if one.current and one.finding == "hurts"]


async def _retire_note(desk: LearningService, item_id: str) -> WriteOutcome:
    await desk.apply()  # a hand edit is entered before it is built upon
    found = [
        MemoryRequest("remove", target, old_text=entry.said)
        for target, path in notes.FILES.items()
        for entry in notes.entries(desk.reader.text(path))
        if item_id and entry_id(entry).startswith(item_id)
    ]
    if len(found) > 1:
        raise NotFound(f"{item_id} fits {len(found)} notes", hint="give more of the id")
    if not found:
        raise NotFound(f"there is no note {item_id}", hint="`whet memory stats` shows the ids")
    return await desk.hand_in(found[0], _BY_HAND)


def _tell(outcome: WriteOutcome, as_json: bool) -> None:
    if not outcome.ok:
        raise WhetError(outcome.text)
    if as_json:
        return emit_json({"ledger_id": outcome.ledger_id, "summary": outcome.summary})
    click.echo(f"{outcome.summary}; `whet undo {outcome.ledger_id}` brings it back")


def _show(found: Sequence[Effect], with_gone: bool, as_json: bool, retire: str) -> None:
    shown = [one for one in found if with_gone or one.current]
    worst = proposals(shown)
    if as_json:
        return emit_json({"items": shown, "proposed": [one.item for one in worst]})
    if not shown:
        click.echo("no session has begun with a learned item yet; this fills up as you work")
        return
    shape: list[Column[Effect]] = [
        Column("id", lambda one: one.item.name),
        Column("item", lambda one: printable(one.item.label) or one.item.name, grows=True, least=16),
        Column("sessions", lambda one: str(one.shown.sessions), right=True),
        Column("opened", _opened, right=True, rank=4),
        Column("trouble", lambda one: _share(one.shown.trouble), rank=2),
        Column("failed calls", lambda one: _rate(one.shown), right=True, rank=5),
        Column("compared with", _basis, rank=3),
        Column("difference", _gap, rank=1),
        Column("finding", lambda one: one.finding),
    ]
    click.echo(table(shown, shape))
    for one in worst:
        where = f"{retire} {one.item.name}"
        click.echo(f"proposed for retirement ({one.basis}): {printable(one.item.label)}\n  {where}")
    if not any(one.basis == "hold-out" for one in shown):
        text = (
            "Nothing here is causal: without a hold-out, sessions with an item and without it differ in more "
            "than the item. To let chance decide: whet config set memory.holdout_share 0.05"
        )
        click.echo(f"\n{wrapped(text)}")


def _opened(one: Effect) -> str:
    return str(one.loaded or "") if one.item.kind == "skill" else ""


def _basis(one: Effect) -> str:
    return f"{one.basis}: {one.compared.sessions}" if one.compared.sessions else "nothing"


def _share(found: Interval) -> str:
    return f"{found.estimate:.0%} [{found.low:.0%}, {found.high:.0%}]"


def _rate(sums: Sums) -> str:
    return f"{sums.failed_calls / sums.calls:.0%}" if sums.calls else "-"


def _gap(one: Effect) -> str:
    if min(one.shown.sessions, one.compared.sessions) < LEAST_SESSIONS:
        return "too few sessions"
    gap = one.difference
    return f"{gap.estimate:+.0%} [{gap.low:+.0%}, {gap.high:+.0%}]"
