"""Rate a turn, with /good and /bad in the chat and with `whet rate` anywhere else.

Ratings, corrections and undone turns show which learned items help. They are stored here and sent nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from whet.cli import stored
from whet.clock import SystemClock, iso
from whet.config.paths import Home
from whet.store import outcomes
from whet.terminal.output import emit_json, home_and_json

if TYPE_CHECKING:
    from whet.cli.interactive.chat_control import ChatControl


@click.command("rate")
@click.argument("rating", type=click.Choice(["good", "bad"]))
@click.argument("session_id", metavar="[SESSION]", required=False, default="")
@click.option("--turn", type=click.IntRange(1), help="This turn instead of the last one.")
@home_and_json
def rate(home: Home, rating: outcomes.Rating, session_id: str, turn: int | None, as_json: bool) -> None:
    """Say that a turn went well or badly; by default the last one of this folder's latest session.

    \b
    whet rate good
    whet rate bad 01JD --turn 2
    """
    stored.require_store(home, "there is no session yet")
    with stored.open_database(home) as database:
        session = database.read_now(lambda db: stored.find_session(db, session_id))
        now = iso(SystemClock().now())
        number = database.write_now(lambda db: outcomes.record_signal(db, session.id, rating, now, turn=turn))
    if as_json:
        return emit_json({"session_id": session.id, "turn": number, "rating": rating})
    click.echo(f"turn {number} of {stored.describe_session(session)} is noted as {rating}")


async def rate_good(chat: ChatControl, arguments: str) -> None:
    """Note that the last turn went well."""
    await _rate(chat, "good")


async def rate_bad(chat: ChatControl, arguments: str) -> None:
    """Note that the last turn went badly."""
    await _rate(chat, "bad")


async def _rate(chat: ChatControl, rating: outcomes.Rating) -> None:
    services, session_id = chat.services, chat.session.id
    now = iso(services.clock.now())
    number = await services.database.write(lambda db: outcomes.record_signal(db, session_id, rating, now))
    chat.say(f"turn {number} is noted as {rating}", "dim")
