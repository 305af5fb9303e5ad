"""`whet agents`: list every recent session with its state, show one, or stop its turn."""

from __future__ import annotations

import os
import signal
from datetime import timedelta

import apsw
import click

from whet.cli import stored
from whet.cli.transcript import begin_text, load_ui
from whet.clock import SystemClock, iso
from whet.config.paths import Home
from whet.contract.errors import NotFound, WhetError
from whet.contract.texts import plural
from whet.store import session_states, sessions
from whet.store.database import has_store
from whet.store.export import iter_messages
from whet.store.parts import list_parts
from whet.store.session_states import AgentRow
from whet.terminal.output import Column, age, emit, emit_rows, home_and_json
from whet.terminal.wording import exact

_DAYS = 2
_SHOWN_MESSAGES, _SHOWN_ROWS = 8, 24
_NO_SESSIONS = f"no session was active in the last {_DAYS} days; `whet sessions` lists older ones"


@click.group("agents", invoke_without_command=True, help="See every session of this machine, and its state.")
@click.option("--days", default=_DAYS, type=click.IntRange(1), show_default=True, help="How far back.")
@home_and_json
@click.pass_context
def agents(context: click.Context, home: Home, days: int, as_json: bool) -> None:
    """List the sessions: those that wait for a person first, then those that run."""
    if context.invoked_subcommand is None:
        _list(home, days, as_json)


def _list(home: Home, days: int, as_json: bool) -> None:
    now = SystemClock().now()
    rows: list[AgentRow] = []
    if has_store(home):
        since = iso(now - timedelta(days=days))
        rows = stored.read(home, lambda db: session_states.list_states(db, since, now))
    columns: list[Column[AgentRow]] = [
        Column("id", lambda row: row.id),
        Column("state", lambda row: row.state),
        Column("active", lambda row: age(row.last_active, now), rank=2),
        Column("from", lambda row: "helper" if row.parent else row.source, rank=4),
        Column("folder", lambda row: os.path.basename(row.workspace), rank=3),
        Column("what", _describe, grows=True, least=16),
    ]
    emit_rows(rows, columns, {"agents": rows}, none=_NO_SESSIONS, as_json=as_json)
    waiting = sum(row.state == "waiting" for row in rows)
    if waiting and not as_json:
        click.echo(f"{plural(waiting, 'session')} waiting for you; whet agents show ID says for what")


@agents.command("show")
@click.argument("session")
@home_and_json
def show(home: Home, session: str, as_json: bool) -> None:
    """Show a session's state, its last messages, and where it is answered."""
    row = _find(home, session)
    messages = stored.read(home, lambda db: list(iter_messages(db, row.id, last=_SHOWN_MESSAGES)))
    lines = [f"{row.state}{f': {row.detail}' if row.detail else ''}  {row.title or '(no title)'}"]
    lines.append(f"in {exact(row.workspace)}" + (f", process {row.pid}" if row.pid else ""))
    past = begin_text(load_ui(home))
    past.add(list_parts(messages))
    lines.append(past.read_end(_SHOWN_ROWS).strip("\n"))
    lines += _next_steps(row)
    emit({"agent": row, "messages": messages}, "\n".join(lines), as_json=as_json)


@agents.command("stop")
@click.argument("session")
@home_and_json
def stop(home: Home, session: str, as_json: bool) -> None:
    """Stop the running turn of a session at a terminal of this machine, as Ctrl-C there does."""
    row = _find(home, session)
    if row.state not in ("running", "waiting"):
        raise WhetError(f"no turn of session {row.id} runs: {row.state}")
    if not _can_stop(row):
        raise WhetError(
            f"session {row.id} runs in another program ({row.source}), which would end with it",
            hint="stop it there: its page, its chat, or /jobs in the session that it works for",
        )
    os.kill(row.pid, signal.SIGINT)
    emit({"stopped": row.id}, f"stopped the turn of {row.id}", as_json=as_json)


def _find(home: Home, name: str) -> AgentRow:
    stored.require_store(home)
    now = SystemClock().now()

    def read(connection: apsw.Connection) -> AgentRow:
        session_id = sessions.resolve_id(connection, name)
        row = session_states.find_state(connection, session_id, now)
        if row is None:
            raise NotFound(f"{session_id} is not a conversation", hint="whet agents")
        return row

    return stored.read(home, read)


def _describe(row: AgentRow) -> str:
    return f"{row.title or '(no title)'}{f' — {row.detail}' if row.detail else ''}"


def _can_stop(row: AgentRow) -> bool:
    """Return whether a signal to the session's process would stop its turn and nothing else."""
    return row.source == "cli" and not row.parent and row.host == os.uname().nodename


def _next_steps(row: AgentRow) -> list[str]:
    if row.state in ("running", "waiting"):
        where = "its terminal" if row.source == "cli" else f"its {row.source}"
        stop = f"; whet agents stop {row.id} stops the turn" if _can_stop(row) else ""
        return [f"answer it at {where}{stop}"]
    return [f"whet --resume {row.id} goes on with it"]
