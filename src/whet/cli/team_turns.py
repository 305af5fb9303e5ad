"""`whet worker --turns` and `whet team ask`: run a team's queued turns; queue one and wait for it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, closing

import apsw
import click
import msgspec

from whet.app.build import App
from whet.app.hosted import SessionHost
from whet.app.people import Switchboard
from whet.cli.launch import workspace_of
from whet.cli.main import run_on_loop
from whet.cli.output import emit_json
from whet.cli.wording import printable
from whet.clock import SystemClock, iso
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError, StoreError
from whet.postgres.driver import needs_driver
from whet.serve.team_questions import WorkerQuestions
from whet.store import claims, sessions, turns
from whet.store.database import StateDatabase, open_store
from whet.store.sessions import NewSession
from whet.team import orders
from whet.team.notices import ENDED
from whet.team.queue import AskedTurn, DatabaseQueue, EndedTurn, TurnQueue, outcome
from whet.team.worker import TurnWorker

_LOOK_S = 2.0


def _tell(ended: EndedTurn) -> None:
    """Say in a line what came of a turn."""
    why = f": {printable(ended.error)}" if ended.error else ""
    click.echo(f"Turn in session {ended.session_id} {ended.reason}{why}")
    sys.stdout.flush()


class WorkerOptions(msgspec.Struct, frozen=True):
    """How many turns at a time, how long they have to end, and where those who watch it ask (-1: nowhere)."""

    most: int
    drain_s: float
    host: str = "127.0.0.1"
    port: int = -1


def run_turns(home: Home, wanted: WorkerOptions) -> None:
    """Run turns of the queue until SIGTERM or Ctrl-C; then give them their time to end.

    What has not ended by then stays open, and another worker goes on with it.
    """
    settings = load(home, {}, environ=os.environ).settings
    workspace = workspace_of(settings)

    async def go() -> None:
        people = Switchboard()
        app = await App.start(
            home, settings, load_secrets(home, os.environ), people, workspace, source="team"
        )
        hosted = SessionHost(app, people, max_turns=wanted.most)
        try:
            queue = queue_of(app.database)
            questions = WorkerQuestions(queue.database, app.clock)
            owner = claims.owner_name(app.clock.new_id())
            worker = TurnWorker(hosted, queue, owner, wanted.most, _tell, questions.person_of)
            worker.heard.append(questions.heard)
            loop = asyncio.get_running_loop()

            def stop() -> None:
                worker.stop()
                loop.call_later(wanted.drain_s, _leave)

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            async with watched(worker, queue, wanted) as where:
                click.echo(f"working on the team's turns, {wanted.most} at a time{where}")
                sys.stdout.flush()
                await worker.serve(settings.store.lease_s)
        finally:
            await hosted.aclose()
            await app.reviews.leave()
            await app.aclose()

    run_on_loop(go())


@asynccontextmanager
async def watched(worker: TurnWorker, queue: TurnQueue, wanted: WorkerOptions) -> AsyncGenerator[str]:
    """Answer those who watch the worker; gives where, in words."""
    if wanted.port < 0:
        yield ""
        return
    from whet.team.probe import WorkerProbe  # noqa: PLC0415 - brings the server's modules, 80 ms

    async with aclosing(
        WorkerProbe(queue.database, worker.counts, lambda: worker.is_taking, wanted.host, wanted.port)
    ) as probe:
        yield f"; metrics at http://{wanted.host}:{probe.port}/metrics"


def _leave() -> None:
    """End at once, as a crash would: a cancelled turn would be over, one that is left is gone on with."""
    click.echo("the time to end is over: open turns are left to other workers", err=True)
    os._exit(0)


def queue_of(database: StateDatabase) -> DatabaseQueue:
    """Give the queue of a team's database. Raises ConfigError for the home's own file."""
    with needs_driver():
        from whet.store.team import TeamDatabase  # noqa: PLC0415 - brings psycopg, an extra

        if not isinstance(database, TeamDatabase):
            raise ConfigError(
                "this home has no team's database", hint="whet config set store.url postgresql://..."
            )
        return DatabaseQueue(database)


def ask(home: Home, text: str, session: str, timeout_s: float, *, as_json: bool) -> None:
    """Queue a turn, in a new session or a stored one, and print its answer when a worker has given it."""
    database, clock = open_store(home, SystemClock()), SystemClock()
    with closing(database):
        queue = queue_of(database)
        turn_id = clock.new_id()

        def put(db: apsw.Connection) -> str:
            if session:
                id_ = sessions.resolve(db, session)
            else:
                id_ = sessions.create(db, NewSession(clock.new_id(), source="team"), iso(clock.now())).id
            queue.ask(db, AskedTurn(turn_id, id_, text))
            return id_

        session_id = database.write_now(put)
        ended = _waited(queue, turn_id, timeout_s)
        key = database.read_now(lambda db: sessions.key_of(db, session_id))
        said = database.read_now(lambda db: turns.outcome(db, key, ended.turn)[2])
    if as_json:
        emit_json(
            {
                "session_id": session_id,
                "text": said,
                "end_reason": ended.reason,
                "error": ended.error,
                "attempts": ended.attempts,
                "worker": ended.owner,
            }
        )
    else:
        click.echo(said or ended.error)
    if ended.reason != "answered":
        raise click.exceptions.Exit(1)


def _waited(queue: DatabaseQueue, turn_id: str, timeout_s: float) -> EndedTurn:
    clock = SystemClock()
    until_s = clock.monotonic_s() + timeout_s
    with closing(queue):
        while clock.monotonic_s() < until_s:
            found = outcome(queue.database, turn_id)
            if found is not None and found.reason:
                return found
            queue.hear(ENDED, _LOOK_S)
    why = queue.database.read_now(lambda db: orders.why_waiting(db, turn_id))
    told = f" ({why})" if why else ""
    raise StoreError(
        f"no worker has answered within {timeout_s:g} s{told}; the turn stays in the queue",
        hint="whet team status shows what waits; start one: whet worker --turns 8",
    )
