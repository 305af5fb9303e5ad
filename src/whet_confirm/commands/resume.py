"""`whet confirm resume`: continue agents that ended before their requests were answered."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import click

from whet.config.paths import Home
from whet.visible import escape_characters
from whet_confirm.client import BlockingClient
from whet_confirm.resume import KeptCall, KeptCalls, format_command
from whet_confirm.tickets import Failed

_LONG_S = 300.0


@click.command()
@click.option("--run", "is_run", is_flag=True, help="Run the commands, one after the other.")
@click.option("--wait", "is_wait", is_flag=True, help="Wait until each request has ended.")
@click.option("--url", default="", metavar="URL", help="The service; else WHET_CONFIRM_URL or port 6000.")
@click.pass_obj
def resume(home: Home, is_run: bool, is_wait: bool, url: str) -> None:
    """Show the commands that continue agents which ended before a person answered.

    \b
    whet confirm adopt claude-code --keep 28800   requests wait 8 hours, although the agent ends
    whet confirm resume                           answered requests, and how to continue their agents
    whet confirm resume --wait --run              continue each agent when its answer is there
    """
    kept = KeptCalls(home.root / "confirm" / "kept")
    calls = list(kept)
    if not calls:
        return click.echo("No request has outlived its agent.")
    with BlockingClient(url) as client:
        for call in calls:
            record = _read_record(client, call, is_wait)
            if record is None:
                kept.remove(call)
                continue
            _continue(call, record, kept, is_run)


def _read_record(client: BlockingClient, call: KeptCall, is_wait: bool) -> dict[str, Any] | None:
    """Return the request's record, or None if the service does not know it any more."""
    try:
        while True:
            record = client.run(client.calls.wait(call.request_id, _LONG_S if is_wait else 0.0))
            if record["status"] != "pending" or not is_wait:
                return record
    except Failed as error:
        if error.status == 404:
            return None
        raise


def _continue(call: KeptCall, record: dict[str, Any], kept: KeptCalls, is_run: bool) -> None:
    label = f"{call.request_id}  {escape_characters(call.tool)}  {record['status']}"
    if record["status"] == "pending":
        return click.echo(label)
    words = call.command(record)
    if not words:
        kept.remove(call)
        return click.echo(f"{label}: {call.agent} has no command to continue a session")
    click.echo(f"{label}\n  {escape_characters(format_command(call, words))}")
    if is_run:
        kept.remove(call)  # first: an agent that asks again makes its own entry
        environ = {name: value for name, value in os.environ.items() if name != "CONFIRMATION_TOKEN"}
        done = subprocess.run(words, cwd=Path(call.folder), env=environ, check=False)
        click.echo(f"{words[0]} exited with {done.returncode}")
