"""Open the confirmation service's files for a command and change them, whether the service runs or not."""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from whet.config.paths import Home, read_small
from whet.contract.errors import ConfigError, NotFound
from whet.contract.forms import DATABASE_SCHEMES
from whet.web.tokens import hash_secret
from whet_confirm import tokens
from whet_confirm.database import ConfirmDatabase
from whet_confirm.keys import load_key
from whet_confirm.ledger import Tx
from whet_confirm.open import ServicePaths, open_database, service_paths
from whet_confirm.recovery import start_time
from whet_confirm.timeline import Timeline

T = TypeVar("T")


class DatabaseLocation(click.ParamType[Path | str]):
    """The location of the service's database: a file, or the URL of a team's PostgreSQL database."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Parse the option's text."""
        return value if isinstance(value, Path) or value.startswith(DATABASE_SCHEMES) else Path(value)


db_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--db-path", type=DatabaseLocation(), help="A file, or a team's postgresql://; else confirmations.db."
)
_AGE = re.compile(r"(\d+)\s*(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Age(click.ParamType[float]):
    """A duration such as 90d, 12h, 30m or 45s, parsed as seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the option's text."""
        if isinstance(value, int | float):
            return float(value)
        match = _AGE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is not like 90d, 12h or 30m", param, ctx)
        return float(int(match[1]) * _SECONDS[match[2]])


@contextmanager
def open_files(
    home: Home, db_path: Path | str | None, *, may_make: bool = False
) -> Generator[tuple[ConfirmDatabase, ServicePaths]]:
    """Open the service's files.

    With `may_make` missing files are created, because tokens may precede the first start. Otherwise raises
    NotFound if there is no database.
    """
    paths = service_paths(home, db_path)
    try:
        is_new = not paths.url and not paths.database.exists()
    except OSError as error:
        hint = "do it as the user that the service runs as"
        raise ConfigError(f"can't look at {paths.database}: {error.strerror}", hint=hint) from error
    if may_make:
        home.ensure()
    elif is_new:
        raise NotFound(f"there is no {paths.database} yet", hint="whet confirm serve makes it")
    with closing(open_database(paths)) as database:
        if may_make:
            load_key(paths.key, may_make=is_new)
        yield database, paths


def change(database: ConfirmDatabase, paths: ServicePaths, operation: Callable[[Tx], T]) -> T:
    """Run `operation` in one transaction, with its events in the audit log."""
    key = load_key(paths.key, may_make=False)
    database.sealer.sign_with(key, {})
    timeline = Timeline(start_time(database)[0])
    return database.write_now(lambda db: operation(Tx(db, timeline.now_s(), key)))


def find_approver(home: Home) -> str:
    """Return the name of the home's first approve token, or an empty string if there is none in use."""
    paths = service_paths(home)
    secret = (read_small(paths.token_path("approve")) or "").strip()
    if not secret or not paths.database.exists():
        return ""
    key = hash_secret(secret)
    with closing(open_database(paths)) as database:
        row = database.read_now(lambda db: tokens.TOKENS.find(db, tokens.TOKENS.by_hash, key))
    return row.name if row is not None and row.revoked_at is None else ""


def actor_name() -> str:
    """Return the name under which the audit log records this user."""
    return f"cli:{getpass.getuser()}"


def find_program() -> tuple[str, ...]:
    """Return the command that starts this program, with its full path."""
    script = Path(sys.argv[0])
    if script.name == "whet" and script.is_absolute() and os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-m", "whet")
