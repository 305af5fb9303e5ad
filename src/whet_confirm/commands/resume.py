"""`whet confirm resume`: continue agents that ended before their requests were answered."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import click

from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.visible import escape_characters
from whet_confirm.client import BlockingClient
from whet_confirm.resume import KeptCall, KeptCalls, format_command
from whet_confirm.tickets import Failed, Unreachable

_LOOK_S = 2.0


@click.command()
@click.option("--run", "is_run", is_flag=True, help="Run the commands, one after the other.")
@click.option("--wait", "is_wait", is_flag=True, help="Wait until each request has ended.")
@click.option("--url", default="", metavar="URL", help="The service; else WHET_CONFIRM_URL or port 6000.")
@click.pass_obj
def resume(home: Home, is_run: bool, is_wait: bool, url: str) -> None:
    """Show the commands that continue agents which ended before a person answered.

    \b
    whet confirm adopt claude-code --keep 3600    requests wait an hour, although the agent ends
    whet confirm resume                           answered requests, and how to continue their agents
    whet confirm resume --wait --run              continue each agent when its answer is there
    """
    kept = KeptCalls(home.root / "confirm" / "kept")
    if not any(kept):
        return click.echo("No request has outlived its agent.")
    with contextlib.ExitStack() as stack:
        if is_run:
            stack.enter_context(_lock_runs(home.root / "confirm" / "resume.lock"))
        client = stack.enter_context(BlockingClient(url))
        is_good = _look_until_done(client, kept, is_run=is_run, is_wait=is_wait)
    if not is_good:
        sys.exit(1)


@contextlib.contextmanager
def _lock_runs(path: Path) -> Generator[None]:
    """Make sure that no other process continues the same agents. Raises ConfigError."""
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "another `whet confirm resume --run` is running", hint="one of them is enough"
            ) from None
        yield


def _look_until_done(client: BlockingClient, kept: KeptCalls, *, is_run: bool, is_wait: bool) -> bool:
    """Continue each agent whose request was answered. With `is_wait`, repeat until none is left.

    A continued agent may leave further requests, which are included. Returns whether all could be continued.
    """
    handled: set[str] = set()
    is_good = True
    while calls := [call for call in kept if call.request_id not in handled]:
        pending, is_waiting = "", False
        for call in calls:
            record = _read_record(client, call, is_wait)
            if record is None:
                kept.remove(call)
            elif record["status"] == "pending" or kept.is_held(call):
                pending = pending or (call.request_id if record["status"] == "pending" else "")
                is_waiting = is_wait
                if not is_wait:
                    handled.add(call.request_id)
                    _show_waiting(call, record)
            else:
                handled.add(call.request_id)
                is_good &= _continue(call, record, kept, is_run)
        if is_waiting:
            _wait_a_moment(client, pending)
    return is_good


def _show_waiting(call: KeptCall, record: dict[str, Any]) -> None:
    note = "" if record["status"] == "pending" else ": its agent still runs"
    click.echo(f"{call.request_id}  {escape_characters(call.tool)}  {record['status']}{note}")


def _wait_a_moment(client: BlockingClient, request_id: str) -> None:
    """Wait briefly for a request to end. Another one may be answered sooner."""
    if not request_id:
        return time.sleep(_LOOK_S)
    with contextlib.suppress(Unreachable, Failed):  # the next read reports the problem
        client.run(client.calls.wait(request_id, _LOOK_S))


def _read_record(client: BlockingClient, call: KeptCall, is_wait: bool) -> dict[str, Any] | None:
    """Return the request's record, or None if the service no longer has it.

    With `is_wait`, wait for a service that does not answer.
    """
    while True:
        try:
            return client.run(client.calls.status(call.request_id))
        except Unreachable:
            if not is_wait:
                raise
            time.sleep(_LOOK_S)
        except Failed as error:
            if error.status == 404:
                return None
            raise


def _continue(call: KeptCall, record: dict[str, Any], kept: KeptCalls, is_run: bool) -> bool:
    """Show the command that continues an agent, and run it if `is_run`. Returns False if it failed."""
    label = f"{call.request_id}  {escape_characters(call.tool)}  {record['status']}"
    words = call.command(record)
    if not words:
        kept.remove(call)
        click.echo(f"{label}: {call.agent} has no command to continue a session")
        return True
    click.echo(f"{label}\n  {escape_characters(format_command(call, words))}")
    return not is_run or _run(call, words, kept)


def _run(call: KeptCall, words: tuple[str, ...], kept: KeptCalls) -> bool:
    """Run the command. If the agent used the answer or exited with 0, forget the call and return True."""
    environ = {name: value for name, value in os.environ.items() if name != "CONFIRMATION_TOKEN"}
    try:
        code = subprocess.run(words, cwd=Path(call.folder), env=environ, check=False).returncode
    except OSError as error:
        click.echo(
            f"{words[0]} could not start: {error.strerror}: {error.filename}. Run this again.", err=True
        )
        return False
    if code == 0:
        kept.remove(call)
    is_answered = not kept.has(call)
    click.echo(f"{words[0]} exited with {code}{'' if is_answered else '. Run this again.'}")
    return is_answered
