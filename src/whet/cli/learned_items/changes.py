"""Open the learning service for a command, and show learned changes, for `whet memory`, `skills` and `undo`.

Reads and writes go through the service, which first records edits by hand.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from whet.cli import stored
from whet.cli.main import run_on_loop
from whet.clock import SystemClock, local_minute
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError
from whet.memory.reader import MemoryReader
from whet.memory.requests import Refused, summarize_change
from whet.memory.service import LearningService
from whet.memory.undo import refuse_if_decided
from whet.memory.whole_change import digest_changes
from whet.store.ledger import LedgerRow
from whet.terminal.output import Column, age, print_long, table, wrap_text
from whet.terminal.person import ask_yes
from whet.terminal.wording import cut, printable
from whet.tools.toolsets.skills import SKILL_VIEW, SKILLS_LIST

T = TypeVar("T")
_GROUP = {"memory": "memory", "skill": "skills"}
_AUTHORS = {"foreground": "the agent", "review": "a review", "user": "you", "import": "installed"}


NOT_SHOWN = "nothing was accepted: this needs a terminal, or --digest for what you have read"
digest_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--digest", default="", help="The digest of exactly this, for scripts; then nothing is asked."
)
_ACCEPT = (
    "yes: exactly this is in force for every new session (take it back: {}). Any other text: it goes on"
    " waiting."
)
_COMMANDS_OF_TOOLS = {SKILLS_LIST: "`whet skills list`", SKILL_VIEW: "`whet skills show NAME`"}


def words_for_person(text: str) -> str:
    """Return a text for the model with the person's commands in place of the model's tools."""
    for tool, command in _COMMANDS_OF_TOOLS.items():
        text = text.replace(tool, command)
    return text


def with_learning(home: Home, function: Callable[[LearningService], Awaitable[T]]) -> T:
    """Return the result of `function` for the home's learning service, which includes the skills and memories
    of its plugins. Raises WhetError."""
    settings = load(home, {}, environ=os.environ).settings
    load_secrets(home, os.environ)  # so that their values are masked in all output
    home.ensure()
    clock = SystemClock()
    with stored.open_database(home) as database:
        learning = LearningService(
            MemoryReader(database, clock, home.root, (settings.memory, settings.review))
        )
        learning.library.offer_built_in()
        with suppress(OSError):  # the current folder may have been deleted
            learning.library.look_in(Path.cwd())

        async def run() -> T:
            if not settings.plugins.enabled:
                return await function(learning)
            # Imported late because most homes have no plugin: it imports the clients of model servers.
            from whet.app.plugins import memories  # noqa: PLC0415

            async with memories.connect_plugins(memories.load_home_plugins(home, settings), learning):
                return await function(learning)

        try:
            return run_on_loop(run())
        except Refused as error:  # the message names the model's tools, which a person can't call
            raise Refused(words_for_person(error.message), hint=words_for_person(error.hint)) from error


def accept_shown(
    home: Home,
    select: Callable[[LearningService], Awaitable[Sequence[LedgerRow]]],
    digest: str,
    *,
    asks: bool = True,
) -> list[LedgerRow]:
    """Show waiting changes in full, and accept them if the person says yes or `digest` is theirs.

    Either all of them come into force or none. Raises ConfigError if the digest does not match or no person
    can be asked, CannotUndo if one of them can't be accepted, and Abort if the person says no.
    """

    async def read(learning: LearningService) -> list[tuple[LedgerRow, str]]:
        return [(row, await learning.describe_whole(row)) for row in await select(learning)]

    descriptions = with_learning(home, read)
    rows = [row for row, _ in descriptions]
    for row in rows:
        refuse_if_decided(row)
    expected = digest_changes(rows)
    if digest and digest != expected:
        raise ConfigError(
            "what waits is not what this digest was made of", hint="leave --digest out to see it"
        )
    if not digest:
        if not asks:
            raise ConfigError(NOT_SHOWN, hint="without --json it is shown, with its digest")
        texts = [
            f"change {row.id}, not in force yet: {summarize_change(row)}\n{text}\n"
            for row, text in descriptions
        ]
        print_long("\n".join(texts), masks=False)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise ConfigError(NOT_SHOWN, hint=f"the same command with --digest {expected}")
        undo = ", ".join(f"whet undo {row.id}" for row in rows)
        click.echo(wrap_text(_ACCEPT.format(undo)), err=True)
        if not ask_yes("Type yes or no, then Enter. Enter alone is no"):
            raise click.Abort()

    return with_learning(home, lambda learning: learning.accept_all([row.id for row in rows]))


def changes_table(rows: Sequence[LedgerRow]) -> str:
    """Format changes as a table."""
    now = SystemClock().now()
    columns: list[Column[LedgerRow]] = [
        Column("id", lambda row: str(row.id), right=True),
        Column("when", lambda row: age(row.at, now), rank=2),
        Column("who", lambda row: _AUTHORS[row.origin.write_origin], rank=3),
        Column("item", lambda row: row.item, rank=4),
        Column("change", lambda row: row.action.replace("_", " ")),
        Column("state", lambda row: row.state, rank=1),
        Column("text", lambda row: printable(" ".join(_summarize(row).split())), grows=True, least=16),
    ]
    return table(rows, columns)


def change_lines(row: LedgerRow) -> list[str]:
    """Return the details of a change: author, time, reason, quoted messages and replaced text."""
    origin = row.origin
    lines = [f"change {row.id}: {summarize_change(row)} ({row.action.replace('_', ' ')}), {row.state}"]
    lines.append(f"  by      {_AUTHORS[origin.write_origin]}, {local_minute(row.at)}")
    where = origin.parent_session_id or origin.session_id
    if where:
        reviewed = f", in review {origin.session_id}" if origin.parent_session_id else ""
        lines.append(f"  session {where}{reviewed}")
    if row.trust:
        lines.append(f"  trust   {row.trust}")
    if row.reason:
        lines.append(_add_labels("reason", row.reason))
    for quote in row.evidence:
        speaker = f"{quote.role} {quote.tool}".strip()
        lines.append(_add_labels("quote", f"“{quote.quote}” (message {quote.seq}, {speaker})"))
    for sign, text in (("-", row.before), ("+", row.after)):
        lines += [f"  {sign} {printable(line)}" for line in text.splitlines()]
    if row.undoes:
        lines.append(f"  takes back change {row.undoes}")
    if row.undone_by:
        lines.append(f"  taken back by change {row.undone_by}; to have it again: whet undo {row.undone_by}")
    elif row.state == "active":
        lines.append(f"  to take it back: whet undo {row.id}")
    elif row.state in ("quarantined", "inbox"):
        lines.append(
            f"  to bring it into force: whet {_GROUP[row.kind]} accept {row.id}; else: whet undo {row.id}"
        )
    return lines


def _add_labels(label: str, text: str) -> str:
    """Return a label, and a text that is wrapped and aligned with the other details."""
    return f"  {label:<8}{wrap_text(printable(text), indent=10).lstrip()}"


def as_object(row: LedgerRow) -> dict[str, Any]:
    """Return a change as a JSON object, including the set fields of its origin."""
    return {**msgspec.to_builtins(row), "origin": row.origin.metadata()}


def _summarize(row: LedgerRow) -> str:
    if row.kind == "memory":
        return row.after or f"(was: {row.before})"
    return cut(row.reason, 60) if row.reason else ", ".join(c.path.split("/", 2)[-1] for c in row.changes)
