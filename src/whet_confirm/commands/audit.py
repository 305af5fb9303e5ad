"""`whet confirm audit | prune`: verify and export the audit log, and remove old requests."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import apsw
import click
import msgspec

from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.contract.texts import plural
from whet.terminal.output import (
    ProgressLine,
    emit_json,
    home_and_json,
    style_text,
)
from whet.terminal.wording import printable
from whet_confirm import audit as checks
from whet_confirm import retention
from whet_confirm.commands.files import Age, actor_name, change, db_option, open_files
from whet_confirm.database import ConfirmDatabase
from whet_confirm.keys import PublicKey, load_key
from whet_confirm.open import ServicePaths

_ENOUGH_FOR_A_RATE = 10_000  # with fewer events the start-up takes longer than the check
audit: click.Group = click.Group("audit", help="Verify and export the audit log.")


@audit.command()
@click.option(
    "--checkpoint", type=click.Path(path_type=Path, exists=True), help="Checkpoints kept elsewhere."
)
@click.option(
    "--key", "key_path", type=click.Path(path_type=Path, exists=True), help="Public key kept elsewhere."
)
@db_option
@home_and_json
def verify(
    home: Home, checkpoint: Path | None, key_path: Path | None, db_path: Path | str | None, as_json: bool
) -> None:
    """Check the hash chain, the signed checkpoints and every record; exit 1 if something is wrong.

    \b
    whet confirm audit verify
    whet confirm audit verify --checkpoint /mnt/elsewhere/checkpoints.jsonl
    """
    progress = ProgressLine("verifying", SystemClock())
    with open_files(home, db_path) as (database, paths):
        keys = _with_private_key(checks.read_keys(key_path or paths.public_key), paths)
        outside = checks.read_checkpoints(paths.checkpoints) if paths.checkpoints.exists() else []
        exported = [*outside]
        outside += checks.read_checkpoints(checkpoint) if checkpoint else []
        report = database.read_now(
            lambda db: checks.verify(db, keys, outside, lambda count: progress.update(f"{count} events"))
        )
        missing = database.read_now(lambda db: checks.find_removed_checkpoints(db, exported))
        report = msgspec.structs.replace(report, problems=(*report.problems, *missing))
    progress.finish()
    if as_json:
        emit_json({"ok": report.is_good, **msgspec.to_builtins(report)})
    else:
        for problem in report.problems:
            click.echo(style_text("wrong: ", "red") + printable(problem))
        counts = ((report.events, "event"), (report.checkpoints, "checkpoint"), (report.records, "record"))
        took = f" in {report.seconds:.2f} s"
        if report.events >= _ENOUGH_FOR_A_RATE:
            took += f" ({report.events / report.seconds:,.0f} events/s)"
        click.echo(", ".join(plural(*pair) for pair in counts) + took)
        click.echo(
            style_text("Nothing was altered.", "green")
            if report.is_good
            else "The log or a record WAS ALTERED."
        )
    if not report.is_good:
        raise click.exceptions.Exit(1)


def _with_private_key(keys: dict[str, PublicKey], paths: ServicePaths) -> checks.Keys:
    """Return the keys, with the service's private key if this user may read it.

    Only the private key can verify events that are not signed yet.
    """
    try:
        key = load_key(paths.key, may_make=False)
    except WhetError:
        return keys
    is_known = key.id in keys and keys[key.id].raw == key.raw
    return {**keys, key.id: key} if is_known else keys


def _refuse_altered(database: ConfirmDatabase, paths: ServicePaths) -> None:
    """Raise WhetError if the log does not verify: what it still shows would be lost."""
    keys = _with_private_key(checks.read_keys(paths.public_key), paths)
    outside = checks.read_checkpoints(paths.checkpoints) if paths.checkpoints.exists() else []
    report = database.read_now(lambda db: checks.verify(db, keys, outside))
    if not report.is_good:
        raise WhetError(
            f"the log was altered, so nothing was taken: {report.problems[0]}",
            hint="whet confirm audit verify; keep a copy, then use --even-if-altered",
        )


@audit.command()
@click.option("--after", default=0, help="Only events after this number.")
@db_option
@click.pass_obj
def export(home: Home, after: int, db_path: Path | str | None) -> None:
    """Print the log as JSON lines, one event each."""
    with open_files(home, db_path) as (database, _):

        def write(db: apsw.Connection) -> None:
            for line in checks.export(db, after):
                sys.stdout.buffer.write(line)

        sys.stdout.flush()
        database.read_now(write)


@click.command()
@click.option("--older-than", "age_s", type=Age(), required=True, metavar="TIME", help="e.g. 90d")
@click.option(
    "--archive", type=click.Path(path_type=Path), help="Append the events taken to this file first."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--even-if-altered", is_flag=True, help="Also if the log does not verify.")
@db_option
@click.pass_obj
def prune(
    home: Home,
    age_s: float,
    archive: Path | None,
    dry_run: bool,
    even_if_altered: bool,
    db_path: Path | str | None,
) -> None:
    """Remove requests that ended long ago, and their events, from the database.

    The log still verifies: it then begins at a signed checkpoint. A log that does not verify is kept.
    """
    with open_files(home, db_path) as (database, paths):
        if not even_if_altered:
            _refuse_altered(database, paths)
        plan = database.read_now(lambda db: retention.plan_pruning(db, time.time() - age_s))
        text = f"{plural(plan.requests, 'request')} and {plural(plan.events, 'event')}"
        if dry_run:
            return click.echo(f"Would take {text}.")
        if archive is not None:
            with archive.open("ab") as file:
                database.read_now(lambda db: file.writelines(checks.export(db, 0, plan.size)))
        change(database, paths, lambda tx: retention.record_pruning(tx, plan, actor_name()))
        while database.write_now(lambda db: retention.prune_batch(db, plan)):
            pass
    click.echo(f"Took {text}.")
