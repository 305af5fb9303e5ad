"""`whet review`: run a review by hand, see the results and cost of reviews, decide on waiting changes.

A review is named by its id, the beginning of its id, or the id of its own session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import apsw
import click
import msgspec

from whet.app.learning.review_worker import open_reviews
from whet.app.learning.reviews import ReviewRunner
from whet.cli import stored
from whet.cli.learned_items.changes import accept_shown, digest_option, with_learning
from whet.cli.learned_items.stats import describe_harm, proposals
from whet.cli.main import run_on_loop
from whet.cli.transcript import load_ui, render
from whet.clock import SystemClock
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import NotFound, WhetError
from whet.contract.events import ReviewFinished
from whet.contract.messages import Message, Usage
from whet.contract.texts import plural
from whet.memory.effects import Effect, measure_effects
from whet.memory.service import LearningService
from whet.review.jobs import KINDS, Kind, read_review_job
from whet.review.spending import Weights, weigh_day
from whet.review.triggers import day_start
from whet.store import ledger, lesson_counts, reviews, search, sessions
from whet.store.database import has_store
from whet.store.ledger import LedgerRow
from whet.store.reviews import DaySpending, DayUsage, ReviewRow
from whet.terminal import output
from whet.terminal.output import Column, emit_json, home_and_json
from whet.terminal.wording import count, printable, review_line

T = TypeVar("T")
_EVERYTHING = 1 << 30
_NONE_YET = "No reviews yet. They come by themselves; by hand: whet review run --session ID"


review: click.Group = click.Group(
    "review",
    help="Review finished turns: run one, see what each did and cost, accept or reject.",
    epilog='Example: whet review run --session 0kqv --focus "how the tests are run"',
)


@review.command("run")
@click.option(
    "--session", "name", required=True, metavar="ID", help="The session: an id, its beginning, a title."
)
@click.option("--focus", default="", metavar="TEXT", help="What to look at above all.")
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, help="Only memory, or only skills.")
@home_and_json
def run(home: Home, name: str, focus: str, kinds: tuple[Kind, ...], as_json: bool) -> None:
    """Review a session now and report the saved changes."""
    stored.require_store(home)

    async def review_session(runner: ReviewRunner) -> tuple[str, ReviewFinished | None]:
        session_id = await runner.database.read(lambda db: sessions.resolve_id(db, name))
        queued = await runner.queue_review(session_id, focus, kinds)
        if sys.stderr.isatty():
            click.echo("reviewing; Ctrl-C leaves the rest to the next worker", err=True)
        return queued.job_id, await runner.run(queued.job_id)

    job_id, finished = run_on_loop(_with_reviews(home, review_session))
    if finished is None:
        raise NotFound("another process reviews this conversation now", hint="whet review list")
    if as_json:
        emit_json({"review": job_id, **msgspec.to_builtins(finished)})
        click.get_current_context().exit(int(finished.state in ("failed", "waiting")))
    if finished.state in ("failed", "waiting"):
        raise WhetError(review_line(finished), hint="whet review list")
    click.echo(review_line(finished))


@review.command("list")
@click.option("--session", "name", default="", metavar="ID", help="Only of this session.")
@click.option("-n", "--limit", default=20, type=click.IntRange(1), show_default=True, help="How many.")
@home_and_json
def list_(home: Home, name: str, limit: int, as_json: bool) -> None:
    """List reviews with their tokens, cached share and cost, and today's total."""
    since = day_start(SystemClock().now())

    def read(db: apsw.Connection) -> tuple[list[ReviewRow], DaySpending, DayUsage]:
        session_id = sessions.resolve_id(db, name) if name else ""
        listed = reviews.list_reviews(db, limit, session_id=session_id)
        return listed, reviews.spent_since(db, since), reviews.usage_since(db, since)

    if has_store(home):
        rows, spent, day = stored.read(home, read)
    else:
        rows, spent, day = [], DaySpending(0, 0, 0.0), DayUsage(Usage(), Usage())
    if as_json:
        return emit_json({"reviews": [_list_facts(row) for row in rows], "today": spent})
    if not rows:
        return click.echo(_NONE_YET)
    click.echo(_table(rows))
    click.echo(_describe_today(home, spent, day))


@review.command("show")
@click.argument("name", metavar="REVIEW")
@click.option("--full", is_flag=True, help="Tool calls with their arguments and results in full.")
@home_and_json
def show(home: Home, name: str, full: bool, as_json: bool) -> None:
    """Show one review: its reasons, cost, saved changes and whole conversation."""
    row = _find_review(home, name)

    def read(db: apsw.Connection) -> tuple[list[LedgerRow], list[tuple[int, Message]]]:
        child = row.review_session_id
        transcript = search.read_messages_around(db, child, 0, 0, _EVERYTHING) if child else []
        return ledger.list_task_rows(db, row.id), transcript

    written, transcript = stored.read(home, read)
    if as_json:
        messages = [{"seq": seq, **msgspec.to_builtins(message)} for seq, message in transcript]
        return emit_json({**_list_facts(row), "writes": written, "messages": messages})
    lines = [*_describe_review(row), *(_describe_change(change) for change in written), ""]
    if child := row.review_session_id:
        lines.append(
            stored.read(home, lambda db: render(db, sessions.get(db, child), load_ui(home), full=full))
        )
    output.print_long("\n".join(lines))


@review.command("inbox")
@home_and_json
def inbox(home: Home, as_json: bool) -> None:
    """List changes that wait for your decision, those that reviews were refused, and notes that do harm."""
    rows, refused, harmful = [], [], []
    if has_store(home):
        rows = stored.read(home, lambda db: ledger.select(db, states=lesson_counts.WAITING))
        refused = stored.read(home, lesson_counts.list_refusals)
        harmful = _list_harmful(home)
    if as_json:
        return emit_json({"inbox": rows, "refused": refused, "harmful": [effect.item for effect in harmful]})
    for effect in harmful:
        click.echo(describe_harm(effect))
    if not rows and not refused:
        return None if harmful else click.echo("Nothing waits for you.")
    for row in rows:
        _print_change(row)
    if refused:
        click.echo(output.style_text("Refused (a note can be accepted by hand, as your own word):", "bold"))
    for row in refused:
        _print_change(row)
    first = (rows or refused)[0].id
    click.echo(f"\nwhet review accept {first}" + (f"   ·   whet review reject {first}" if rows else ""))


def _list_harmful(home: Home) -> list[Effect]:
    return proposals(
        with_learning(home, lambda learning: measure_effects(learning, ("memory", "user", "skill")))
    )


def _print_change(row: LedgerRow) -> None:
    click.echo(output.style_text(f"{row.id}  {row.kind} {row.item}  {row.action}  {row.state}", "bold"))
    if row.reason:
        click.echo(output.wrap_text(printable(row.reason), indent=2))
    click.echo(output.wrap_text(printable(row.after or f"removes: {row.before}")[:600], indent=2))
    for quote in row.evidence:
        source = quote.tool or quote.role
        click.echo(output.wrap_text(f'"{printable(quote.quote)}" ({source}, message {quote.seq})', indent=4))


@review.command("accept")
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@digest_option
@home_and_json
def accept(home: Home, ids: tuple[int, ...], digest: str, as_json: bool) -> None:
    """Show waiting changes whole and let them come into force if you say so."""
    stored.require_store(home)

    async def select(learning: LearningService) -> list[LedgerRow]:
        return [await learning.get_change(id_) for id_ in ids]

    _report_decided(accept_shown(home, select, digest, asks=not as_json), "in force", as_json=as_json)


@review.command("reject")
@click.argument("ids", metavar="ID...", type=int, nargs=-1, required=True)
@home_and_json
def reject(home: Home, ids: tuple[int, ...], as_json: bool) -> None:
    """Drop waiting changes; the ledger keeps that they were made and dropped."""
    stored.require_store(home)

    async def reject_changes(runner: ReviewRunner) -> list[LedgerRow]:
        return [await runner.learning.reject(id_) for id_ in ids]

    _report_decided(run_on_loop(_with_reviews(home, reject_changes)), "dropped", as_json=as_json)


def _report_decided(rows: list[LedgerRow], success: str, *, as_json: bool) -> None:
    if as_json:
        return emit_json({"changes": rows})
    for row in rows:
        word = success if row.state in ("active", "rejected") else f"{row.state} ({row.reason})"
        click.echo(printable(f"{row.id}  {row.kind} {row.item}: {word}"))


async def _with_reviews(home: Home, function: Callable[[ReviewRunner], Awaitable[T]]) -> T:
    settings = load(home, {}, environ=os.environ).settings
    async with open_reviews(home, settings, load_secrets(home, os.environ)) as runner:
        return await function(runner)


def _find_review(home: Home, name: str) -> ReviewRow:
    stored.require_store(home)
    rows = stored.read(home, lambda db: reviews.list_reviews(db, 2, review_id=name)) if name else []
    if len(rows) != 1:
        problem = f"{name!r} fits several reviews" if rows else f"there is no review {name!r}"
        raise NotFound(problem, hint="whet review list")
    return rows[0]


def _list_facts(row: ReviewRow) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(row)
    payload = facts.pop("payload")
    try:
        job = read_review_job(payload)
    except WhetError:
        return facts
    usage = {**facts["usage"], "cache_hit_ratio": round(row.usage.cache_hit_ratio, 4)}
    return {**facts, "kinds": job.kinds, "reasons": job.reasons, "focus": job.focus, "usage": usage}


def _table(rows: list[ReviewRow]) -> str:
    now = SystemClock().now()
    columns: list[Column[ReviewRow]] = [
        Column("id", lambda row: row.id),
        Column("when", lambda row: output.age(row.finished or row.created, now), rank=2),
        Column("session", lambda row: row.session_id, rank=4),
        Column("state", lambda row: row.state),
        Column("tokens", lambda row: count(row.usage.total_tokens), right=True, rank=3),
        Column("cached", _cached_share, right=True, rank=3),
        Column("cost", lambda row: output.usage_cost(row.usage), right=True, rank=3),
        Column("what came of it", _outcome, grows=True, least=14),
    ]
    return output.table(rows, columns)


def _cached_share(row: ReviewRow) -> str:
    return f"{row.usage.cache_hit_ratio:.0%}" if row.usage.prompt_tokens else ""


def _outcome(row: ReviewRow) -> str:
    text = row.summary.partition(": ")[2] or ("" if row.note or row.state != "done" else "nothing to save")
    return " · ".join(filter(None, (text, row.note)))


def _describe_today(home: Home, spent: DaySpending, day: DayUsage) -> str:
    settings = load(home, {}, environ=os.environ).settings.review
    limit = f" of {count(settings.daily_tokens)}" if settings.daily_tokens else ""
    usd = f", {output.cost(spent.usd)}" + (f" of ${settings.daily_usd:.2f}" if settings.daily_usd else "")
    weighed = weigh_day(day, Weights())
    total = weighed.review_tokens + weighed.other_tokens
    share = f", {weighed.review_tokens / total:.1%} of the day's cost" if total else ""
    return f"today: {count(spent.review_tokens)}{limit} tokens{usd}{share}"


def _describe_review(row: ReviewRow) -> list[str]:
    facts, usage = _list_facts(row), row.usage
    lines = [
        f"review {row.id} of session {row.session_id or '(deleted)'}: {row.state}",
        f"for {' and '.join(facts.get('kinds', ()))}, because of: {', '.join(facts.get('reasons', ()))}",
        f"{count(usage.total_tokens)} tokens, {usage.cache_hit_ratio:.0%} of the prompts cached, "
        f"{output.usage_cost(usage)}, {row.model or 'not begun'}",
    ]
    return [printable(line) for line in [*lines, *filter(None, (facts.get("focus"), _outcome(row)))]]


def _describe_change(row: LedgerRow) -> str:
    quotes = f", {plural(len(row.evidence), 'quote')}" if row.evidence else ""
    why = f": {row.reason}" if row.reason else ""
    return printable(f"  {row.id}  {row.kind} {row.item}  {row.action}  {row.state}{quotes}{why}")
