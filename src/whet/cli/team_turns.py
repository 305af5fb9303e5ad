"""Run a team's queued turns (`whet worker --turns`), and queue a turn and wait for its end (`whet team
ask`)."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, closing, suppress

import apsw
import click
import msgspec

from whet.app.build import App
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.cli.launch import workspace_of
from whet.cli.main import run_on_loop
from whet.clock import SystemClock, iso
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError, StoreError
from whet.log import mask
from whet.postgres.driver import needs_driver
from whet.serve.team_questions import WorkerQuestions
from whet.sqlite.lane import ScopedWrite
from whet.store import claims, sessions, turns
from whet.store.database import StateDatabase, open_store
from whet.team import aside, orders
from whet.team.notices import ENDED, Notices, wait_briefly
from whet.team.queue import AskedTurn, DatabaseQueue, EndedTurn, read_result
from whet.team.worker import TurnWorker
from whet.terminal.output import emit_json
from whet.terminal.wording import printable

_MAX_EXIT_S = 2.0
_QUIET_S = 2.0
_PROBES = 5
_MIN_ANSWERS_PER_LEASE = 8


def _print_end(ended: EndedTurn) -> None:
    """Print a line about the end of a turn."""
    why = f": {printable(ended.error)}" if ended.error else ""
    click.echo(f"Turn in session {ended.session_id} {ended.reason}{why}")
    sys.stdout.flush()


class WorkerOptions(msgspec.Struct, frozen=True):
    """The options of a worker.

    It runs at most `max_turns` turns at once. When it stops, they have `drain_s` seconds to end. Its metrics
    are served at `host` and `port`, or not at all if `port` is -1.
    """

    max_turns: int
    drain_s: float
    host: str = "127.0.0.1"
    port: int = -1


def run_turns(home: Home, options: WorkerOptions) -> None:
    """Run turns of the queue until SIGTERM or Ctrl-C. Running turns then have `drain_s` seconds to end; after
    that, other workers continue them."""
    settings = load(home, {}, environ=os.environ).settings
    workspace = workspace_of(settings)

    async def serve() -> None:
        people = PersonRouter()
        app = await App.start(
            home, settings, load_secrets(home, os.environ), people, workspace, source="team"
        )
        hosted = SessionHost(app.sessions, people, max_turns=options.max_turns)
        try:
            app.services.models.require_model()
            queue = open_queue(app.database)
            _check_lease(queue, settings.store.lease_s)
            questions = WorkerQuestions(queue.database, app.clock)
            owner = claims.owner_name(app.clock.new_id())
            worker = TurnWorker(hosted, queue, owner, options.max_turns, _print_end, questions.person_of)
            worker.answer_listeners.append(questions.read_answers)
            loop = asyncio.get_running_loop()
            ending: list[asyncio.Task[None]] = []

            def stop() -> None:
                worker.stop()
                loop.call_later(options.drain_s, lambda: ending.append(loop.create_task(_exit_now(worker))))

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            async with serve_probe(worker, queue, options) as address_note:
                click.echo(f"working on the team's turns, {options.max_turns} at a time{address_note}")
                sys.stdout.flush()
                await worker.serve(settings.store.lease_s)
        finally:
            await hosted.aclose()
            await app.leave_reviews()
            await app.aclose()

    run_on_loop(serve())


@asynccontextmanager
async def serve_probe(
    worker: TurnWorker, queue: DatabaseQueue, options: WorkerOptions
) -> AsyncGenerator[str]:
    """Serve the worker's health checks and metrics, and yield a text with their address (empty if not
    served)."""
    if options.port < 0:
        yield ""
        return
    from whet.team.probe import WorkerProbe  # noqa: PLC0415 - brings the server's modules, 80 ms

    async with aclosing(
        WorkerProbe(queue.database, worker.counts, lambda: worker.is_taking, options.host, options.port)
    ) as probe:
        yield f"; metrics at http://{options.host}:{probe.port}/metrics"


async def _exit_now(worker: TurnWorker) -> None:
    """Release the open turns to other workers, and exit without cancelling them: a cancelled turn would not
    be continued."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_MAX_EXIT_S):
            await worker.leave_all()
    click.echo("the time to end is over: open turns are left to other workers", err=True)
    os._exit(0)


def _check_lease(queue: DatabaseQueue, lease_s: float) -> None:
    """Raise ConfigError if the database answers too slowly for leases of this length."""
    times_s: list[float] = []
    for _ in range(_PROBES):
        began_s = time.monotonic()
        queue.database.run(lambda db: db.execute("SELECT 1").fetchone())
        times_s.append(time.monotonic() - began_s)
    least_s = statistics.median(times_s) * _MIN_ANSWERS_PER_LEASE
    if lease_s < least_s:
        raise ConfigError(
            f"leases of {lease_s:g} s are too short: the team's database takes"
            f" {statistics.median(times_s):.2f} s to answer",
            hint=f"whet config set store.lease_s {max(20, round(least_s * 3))}",
        )


def list_aside(home: Home) -> list[aside.AsideTurn]:
    """Return the team's turns that were set aside."""
    with closing(open_store(home, SystemClock())) as database:
        return open_queue(database).database.read_now(aside.list_aside)


def release_turns(home: Home, turn_ids: Sequence[str]) -> None:
    """Put turns that were set aside back into the queue, all or none. Raises NotFound."""
    with closing(open_store(home, SystemClock())) as database:

        def release_all(connection: apsw.Connection) -> None:
            for turn_id in turn_ids:
                aside.release_turn(connection, turn_id)

        open_queue(database).database.write_now(release_all)


def open_queue(database: StateDatabase) -> DatabaseQueue:
    """Return the queue of a team's database. Raises ConfigError if the home uses its own file."""
    with needs_driver():
        from whet.store.team import TeamDatabase  # noqa: PLC0415 - brings psycopg, an extra

        if not isinstance(database, TeamDatabase):
            raise ConfigError(
                "this home has no team's database", hint="whet config set store.url postgresql://..."
            )
        return DatabaseQueue(database)


def ask(home: Home, text: str, session: str, timeout_s: float, *, as_json: bool) -> None:
    """Queue a turn, in a new session or a stored one, and print its answer when a worker has finished it."""
    clock = SystemClock()
    with closing(open_store(home, clock)) as database:
        queue = open_queue(database)
        turn_id, session_id = clock.new_id(), clock.new_id()
        if session:
            session_id = database.read_now(lambda db: sessions.resolve_id(db, session))

        def queue_turn(db: apsw.Connection) -> None:
            if not session:
                sessions.insert(db, sessions.NewSession(session_id, source="team"), iso(clock.now()))
            queue.ask(db, AskedTurn(turn_id, session_id, text))

        database.write_now(ScopedWrite(session_id, queue_turn))
        ended = run_on_loop(_wait_for_end(queue, turn_id, timeout_s))
        key = database.read_now(lambda db: sessions.key_of(db, session_id))
        answer = database.read_now(lambda db: turns.read_outcome(db, key, ended.turn)[2])
    if as_json:
        emit_json(
            {
                "session_id": session_id,
                "text": answer,
                "end_reason": ended.reason,
                "error": mask(ended.error),
                "attempts": ended.attempts,
                "worker": ended.owner,
            },
            masks=False,
        )
    else:
        click.echo(answer or ended.error)
    if ended.reason != "answered":
        raise click.exceptions.Exit(1)


async def _wait_for_end(queue: DatabaseQueue, turn_id: str, timeout_s: float) -> EndedTurn:
    async def read_reason() -> str:
        return await queue.database.read(lambda db: orders.describe_wait(db, turn_id))

    has_news, quiet_until_s = asyncio.Event(), time.monotonic() + _QUIET_S
    async with aclosing(Notices(queue.database, {ENDED: lambda _: has_news.set()})) as notices:
        notices.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    has_news.clear()
                    ended = await asyncio.to_thread(read_result, queue.database, turn_id)
                    if ended is not None and ended.reason:
                        return ended
                    if time.monotonic() > quiet_until_s and (reason := await read_reason()):
                        click.echo(f"{reason}; {orders.START_WORKER}", err=True)
                        quiet_until_s = math.inf
                    await wait_briefly(has_news)
    reason = await read_reason() or "the turn runs or waits for an earlier one"
    raise StoreError(
        f"no answer within {timeout_s:g} s: {reason}",
        hint=f"the turn stays in the queue, which whet team status shows; {orders.START_WORKER}",
    )
