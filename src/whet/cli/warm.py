"""`whet warm`: build, list, show, delete, import and export templates; measure and label calls.

A template holds calls that worked in earlier sessions; new sessions can start with them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from whet.cli import stored
from whet.clock import SystemClock, local_day
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.texts import plural
from whet.contract.tools import ToolSpec
from whet.memory.effects import Effect
from whet.stats import Interval
from whet.store.calls import read_latest_tools_json
from whet.store.database import StateDatabase
from whet.terminal.output import Column, ProgressLine, emit_json, home_and_json, style_text, table, wrap_text
from whet.terminal.wording import printable
from whet.tools.registry import read_specs
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope
from whet.warm.rates import Rate, Rates
from whet.warm.template import Template, encode
from whet.warm.template_store import Built, Listed, WarmTemplates

warm: click.Group = click.Group(
    "warm",
    help="Start sessions with tool calls that worked before, and measure whether that helps.",
    epilog='First: whet warm build NAME. Then: whet chat --warm NAME -q "..."  or  '
    "whet config set warm.default auto.",
)


@warm.command("build", epilog="Example: whet warm build tests --tags python,pytest --project .")
@click.argument("name")
@click.option("--description", default="", help="What it is for; helps --warm auto to choose.")
@click.option(
    "--min-messages", type=click.IntRange(1), default=20, show_default=True, help="Shortest session."
)
@click.option("--max-sessions", type=click.IntRange(1), help="Only the newest so many.")
@click.option("--source", default="", metavar="cli|telegram|...", help="Only sessions from there.")
@click.option("--project", default="", metavar="DIR", help="Only sessions of that folder.")
@click.option("--tags", default="", metavar="A,B", help="Words for --warm auto.")
@click.option(
    "--budget",
    "budget_tokens",
    type=click.IntRange(200, 20_000),
    default=1_500,
    show_default=True,
    help="Tokens.",
)
@click.option("--with-changes", is_flag=True, help="Take calls that run programs or change files too.")
@home_and_json
def build(home: Home, name: str, as_json: bool, **values: Any) -> None:
    """Mine the store for calls that worked and save them as template NAME."""
    project = str(Path(values["project"]).expanduser().absolute()) if values["project"] else ""
    tags = tuple(tag.strip() for tag in values["tags"].split(",") if tag.strip())
    options = BuildOptions(
        name=name,
        description=values["description"],
        tags=tags,
        budget_tokens=values["budget_tokens"],
        with_changes=values["with_changes"],
        project=project,
    )
    scope = MiningScope(
        min_messages=values["min_messages"],
        max_sessions=values["max_sessions"] or 0,
        source=values["source"],
        project=project,
    )
    with _open_templates(home) as templates, _progress("reading", "messages") as show:
        built = templates.build(options, scope, show)
    if as_json:
        return emit_json(_as_object(built))
    _print_built(built)


@warm.command("list")
@home_and_json
def list_(home: Home, as_json: bool) -> None:
    """List templates and their effect: error rate of the first 10 calls, held-out minus warm sessions."""
    with _open_templates(home) as templates:
        rows = templates.list_rows()
    if as_json:
        return emit_json({"templates": rows})
    if not rows:
        click.echo("No template yet. Build one from your sessions: whet warm build NAME")
        return
    columns: list[Column[Listed]] = [
        Column("name", lambda row: printable(row.name), grows=True),
        Column(
            "examples", lambda row: "" if row.state == "broken" else str(row.examples), right=True, rank=2
        ),
        Column("warm", lambda row: str(row.warm_sessions), right=True, rank=1),
        Column("held out", lambda row: str(row.held_out_sessions), right=True, rank=1),
        Column("fewer errors", _format_uplift, rank=0),
        Column("state", _format_state, grows=True, least=6, rank=3),
    ]
    click.echo(table(rows, columns))
    for row in rows:
        if row.problem:
            click.echo(wrap_text(f"{printable(row.name)}: {printable(row.problem)}"), err=True)


@warm.command("show")
@click.argument("name")
@click.option("--why", is_flag=True, help="Say of each example why it was chosen and where it is from.")
@home_and_json
def show(home: Home, name: str, why: bool, as_json: bool) -> None:
    """Show a template's examples, and which of them are stale."""
    with _open_templates(home) as templates:
        template = templates.load(name)
        stale = templates.find_stale(template, _read_tools(templates.database), templates.clock.now())
        effects = templates.effects(template)
    if as_json:
        row = msgspec.json.decode(encode(template))
        return emit_json({**row, "hash": template.hash, "stale": stale, "effects": effects})
    _print_template(template, stale, effects, why=why)


@warm.command("delete")
@click.argument("name")
@click.pass_obj
def delete(home: Home, name: str) -> None:
    """Delete a template, a broken one too; sessions started with it stay as they are."""
    with _open_templates(home) as templates:
        templates.delete(name)
    click.echo(f"deleted {name}")


@warm.command("stats")
@home_and_json
def stats(home: Home, as_json: bool) -> None:
    """Show error rates by tool, position and session length, and whether long sessions fail less."""
    with _open_templates(home) as templates, _progress("judging", "sessions") as progress:
        rates = templates.rates(progress)
    emit_json(rates) if as_json else _print_rates(rates)


@warm.command("label")
@click.option("--again", is_flag=True, help="Judge calls again that have an outcome.")
@home_and_json
def label(home: Home, again: bool, as_json: bool) -> None:
    """Judge the calls of old sessions; the calls of new sessions are judged as they are made."""
    with _open_templates(home) as templates, _progress("judging", "sessions") as progress:
        sessions, calls = templates.label(progress, again=again)
    if as_json:
        return emit_json({"sessions": sessions, "calls": calls})
    judged = f"judged {plural(calls, 'call')} in {plural(sessions, 'session')}"
    click.echo(judged if sessions else "Every call has its outcome.")


@warm.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--name", default="", help="Another name than the file's.")
@click.pass_obj
def import_(home: Home, file: Path, name: str) -> None:
    """Copy a template from FILE, ours or the plain format. Read it first: it will open your sessions."""
    with _open_templates(home) as templates:
        template = templates.import_file(file, name)
    examples = plural(len(template.examples), "example")
    click.echo(f"imported {template.name}: {examples}; look at it with whet warm show {template.name}")


@warm.command("export")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.pass_obj
def export(home: Home, name: str, file: Path | None) -> None:
    """Write a template to FILE, or to standard output."""
    with _open_templates(home) as templates:
        text = templates.export(name, file)
    click.echo(f"wrote {file}" if file else text.rstrip())


@contextmanager
def _open_templates(home: Home) -> Generator[WarmTemplates]:
    home.ensure()
    load_secrets(home, os.environ)  # so that their values are redacted
    with stored.open_database(home) as database:
        yield WarmTemplates(home, database, SystemClock())


@contextmanager
def _progress(label: str, noun: str) -> Generator[Callable[[int, int], None]]:
    line = ProgressLine(label, SystemClock())
    try:
        yield lambda done, total: line.update(f"{done:,} of {total:,} {noun}")
    finally:
        line.finish()


def _read_tools(database: StateDatabase) -> dict[str, ToolSpec] | None:
    """Return the tools of the newest session with tools, which a new session would most likely have, or None
    if no session had any."""
    tools_json = database.read_now(read_latest_tools_json)
    return {spec.name: spec for spec in read_specs(tools_json.encode())} or None


def _as_object(built: Built) -> dict[str, Any]:
    return {
        "name": built.template.name,
        "path": built.path,
        "examples": len(built.template.examples),
        "sessions": built.sessions,
        "messages": built.messages,
        "error_rates": {name: round(rate, 4) for name, rate in built.error_rates.items()},
        "left_out": built.left_out,
    }


def _print_built(built: Built) -> None:
    template = built.template
    click.echo(
        f"{template.name}: {plural(len(template.examples), 'example')} "
        f"from {len(template.source_session_ids)} of "
        f"{plural(built.sessions, 'session')} ({plural(built.messages, 'message')})"
    )
    for name, rate in sorted(built.error_rates.items(), key=lambda row: -row[1]):
        count = sum(example.tool_name == name for example in template.examples)
        click.echo(f"  {name}: fails in {rate:.1%} of its calls, {plural(count, 'example')}")
    if built.left_out:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in sorted(built.left_out.items()))
        click.echo(wrap_text(f"left out: {reasons}", indent=2))
    click.echo(f"see it: whet warm show {template.name} --why")


def _format_uplift(row: Listed) -> str:
    return interval(row.uplift) if row.uplift else ("too few" if row.verdict == "too few" else "")


def _format_state(row: Listed) -> str:
    return row.state if row.verdict in ("", "too few") else f"{row.state}, {row.verdict}"


def interval(difference: Interval) -> str:
    """Format a difference of rates with its interval, in percentage points."""
    return f"{difference.estimate * 100:+.0f} ({difference.low * 100:+.0f} to {difference.high * 100:+.0f})"


def _print_template(template: Template, stale: list[str], effects: list[Effect | None], *, why: bool) -> None:
    click.echo(
        style_text(template.name, "bold")
        + (f": {printable(template.description)}" if template.description else "")
    )
    created = template.imported_at or template.created_at
    click.echo(
        f"{'imported' if template.imported_at else 'built'} {local_day(created)}; at most"
        f" {template.max_examples} examples and {template.budget_tokens:,} tokens in a session"
    )
    rows = zip(template.examples, stale, effects, strict=True)
    for number, (example, reason, effect) in enumerate(rows, 1):
        arguments = msgspec.json.encode(example.arguments).decode()
        click.echo(f"\n{number}. {printable(example.tool_name)} {printable(arguments)}")
        if reason:
            click.echo(style_text(wrap_text(f"stale: {printable(reason)}", indent=3), "yellow"))
        if example.why:
            click.echo(wrap_text(printable(example.why), indent=3))
        if effect is not None:
            click.echo(wrap_text(_describe_effect(effect), indent=3))
        if why:
            origin = f"session {example.session_id}, message {example.message_seq}, {local_day(example.at)}"
            click.echo(wrap_text(f"chosen: {example.chosen_because}", indent=3))
            click.echo(wrap_text(f"from: {origin}; for: {printable(example.context_hint)}", indent=3))
            click.echo(wrap_text(f"result: {printable(example.result_summary[:200])}", indent=3))


def _describe_effect(effect: Effect) -> str:
    with_it, without = effect.shown, effect.compared
    return (
        f"{plural(with_it.sessions, 'session')} began with it, trouble in {with_it.troubled}; "
        f"{without.sessions} compared ({effect.basis}), trouble in {without.troubled}: {effect.finding}"
    )


def _print_rates(rates: Rates) -> None:
    if not rates.calls:
        click.echo("No tool call has an outcome yet. They come with your sessions.")
        return
    judged = f"{plural(rates.calls, 'call')} in {plural(rates.sessions, 'session')}"
    click.echo(f"{judged}; error rate with its 95 % interval\n")
    for title, rows in (
        ("tool", rates.by_tool),
        ("position in the session", rates.by_position),
        ("calls of the session", rates.by_length),
    ):
        columns: list[Column[Rate]] = [
            Column(title, lambda row: printable(row.label), grows=True),
            Column("calls", lambda row: f"{row.calls:,}", right=True, rank=1),
            Column("errors", lambda row: f"{row.failed:,}", right=True, rank=2),
            Column("rate", _format_rate, right=True),
        ]
        click.echo(table(rows, columns) + "\n")
    if rates.compared:
        click.echo(
            f"Later half minus earlier half of the same session and tool: {interval(rates.within)} points"
        )
    click.echo(wrap_text(rates.verdict))


def _format_rate(row: Rate) -> str:
    return f"{row.rate.estimate:.1%} ({row.rate.low:.1%} to {row.rate.high:.1%})"
