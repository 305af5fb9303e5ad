"""`whet import`: import from Hermes Agent, other coding agents or a folder of skills.

The source is only read. A second run adds only new data. `--dry-run` reports the changes and writes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import msgspec

from whet.cli import stored
from whet.cli.imports.home import PARTS as HOME_PARTS
from whet.cli.imports.home import take_parts
from whet.cli.imports.learned import PROGRAM, take_memory, take_notes, take_skills
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError, NotFound
from whet.contract.texts import plural
from whet.moving import claude_code, codex, gemini, hermes_sessions, openclaw, opencode, pi
from whet.moving.copies import check_tables, open_copy
from whet.moving.hermes_home import HermesHome
from whet.moving.importing import Consent, ImportCounts, ImportOutcome, import_sessions, preview_sessions
from whet.store.bulk import PastSession
from whet.store.database import has_store
from whet.terminal.output import ProgressLine, emit_json, home_and_json, style_text, wrap_text
from whet.terminal.wording import printable
from whet.visible import WHOLE, visible

_PARTS = (*HOME_PARTS, "memory", "skills", "sessions")
_NOUNS = {
    "settings": "setting",
    "keys": "key",
    "plugins": "plugin",
    "persona": "persona",
    "mcp": "MCP server",
    "chats": "chat",
    "schedules": "schedule",
    "memory": "memory",
    "skills": "skill",
}
_COLOURS = {"left": "dim", "quarantined": "yellow"}
_DONE = ("set", "copied", "saved", "installed", "let in", "added, paused", "quarantined")


def _locate(variable: str, default: str, below: str = "") -> Callable[[], Path]:
    """Return a function that returns a program's folder: `below` the one that its variable names, or the
    default."""
    return lambda: Path(os.environ[variable]) / below if os.environ.get(variable) else Path(default)


_dry = click.option("--dry-run", "dry", is_flag=True, help="Say what would be done; write nothing.")


importing: click.Group = click.Group(
    "import", help="Move in from Hermes Agent, OpenClaw, Claude Code, Codex, Gemini CLI, opencode or pi."
)


@importing.command(
    "hermes", epilog="Examples: whet import hermes --dry-run  ·  whet import hermes ~/.hermes --only sessions"
)
@click.argument("path", type=click.Path(path_type=Path), default=_locate("HERMES_HOME", "~/.hermes"))
@click.option("--only", type=click.Choice(_PARTS), multiple=True, help="Take this part; may be repeated.")
@click.option("--yes", is_flag=True, help="Take its plugins' code, persona and notes without asking.")
@_dry
@home_and_json
def hermes(home: Home, path: Path, only: tuple[str, ...], dry: bool, as_json: bool, yes: bool) -> None:
    """Take over a Hermes Agent home: settings, keys, plugins, persona, MCP servers, chat platforms, schedules
    (paused), memory, skills and every session.

    Shows plugins that were on, the persona and the notes, and asks before they count; without a terminal
    they wait.

    Settings that you have already made here stay. Items without a counterpart are listed. A damaged
    database is refused before anything is imported.
    """
    theirs = HermesHome(path.expanduser())
    parts = only or _PARTS
    with ExitStack() as stack:
        source: hermes_sessions.HermesSessions | None = None
        if "sessions" in parts and theirs.database.exists():
            connection = stack.enter_context(open_copy(theirs.database))
            source = hermes_sessions.HermesSessions(connection)
            check_tables(connection, ("sessions", "messages"))
        consent = _make_consent(may_ask=not (dry or as_json), default=yes)
        report = _import_parts(home, theirs, parts, consent, dry)
        if source is not None:
            report |= _import_hermes_sessions(home, source, dry)
    _show(report, as_json)


def _make_consent(*, may_ask: bool, default: bool) -> Consent:
    """Return a function that shows a text at the terminal and asks the person to accept it. It returns
    `default` if that is True or there is no terminal."""

    def ask(question: str, text: str) -> bool:
        if default or not may_ask or not sys.stdin.isatty():
            return default
        click.echo("\n".join(f"  {visible(line, WHOLE)}" for line in text.splitlines()), err=True)
        return click.confirm(printable(question), default=False, err=True)

    return ask


def _import_parts(
    home: Home, theirs: HermesHome, parts: Sequence[str], consent: Consent, dry: bool
) -> dict[str, Any]:
    """Import every part except the sessions, one part after the other."""
    report: dict[str, Any] = {"source": str(theirs.root), "dry_run": dry}
    report |= take_parts(home, theirs, parts, consent, dry=dry)
    if "memory" in parts:
        report["memory"] = take_memory(home, theirs, consent, dry=dry)
    if "skills" in parts and theirs.is_outside(theirs.skills):
        report["skills"] = [ImportOutcome("skills", "left", "it is a link that leads out of the folder")]
    elif "skills" in parts:
        report["skills"] = _import_skills(home, theirs.skills, PROGRAM, dry)
    return report


def _import_hermes_sessions(home: Home, source: hermes_sessions.HermesSessions, dry: bool) -> dict[str, Any]:
    load_secrets(home, {})  # so that their values are masked
    report: dict[str, Any] = {}
    sessions, messages = source.count()
    if source.schema > hermes_sessions.KNOWN_SCHEMA:
        report["notice"] = f"its database is newer (schema {source.schema}); what is known was read"
    report["sessions"] = _import_sessions(home, hermes_sessions.ORIGIN, source.sessions(), sessions, dry)
    report["held"] = {"sessions": sessions, "messages": messages}
    return report


@importing.command("skills", epilog="Example: whet import skills ~/.agents/skills --dry-run")
@click.argument("path", type=click.Path(path_type=Path))
@_dry
@home_and_json
def from_skills(home: Home, path: Path, dry: bool, as_json: bool) -> None:
    """Take over a folder of skills (agentskills: folders with a SKILL.md), at any depth.

    Nothing of them is run. What looks dangerous is quarantined until you accept it.
    """
    root = path.expanduser()
    if not root.is_dir():
        raise NotFound(f"there is no folder {root}", hint="name the folder that holds the skills")
    skills = _import_skills(home, root, str(root), dry)
    if not skills:
        raise NotFound(f"there are no skills in {root}", hint="name a folder of folders with a SKILL.md each")
    _show({"source": str(root), "dry_run": dry, "skills": skills}, as_json)


def _import_skills(home: Home, root: Path, source: str, dry: bool) -> list[ImportOutcome]:
    line = ProgressLine("looking", SystemClock())
    try:
        return take_skills(
            home, root, source, dry=dry, progress=lambda done, of: line.update(f"{done:,} of {of:,} skills")
        )
    finally:
        line.finish()


@importing.command("opencode")
@click.argument(
    "path",
    type=click.Path(path_type=Path),
    default=_locate("XDG_DATA_HOME", "~/.local/share/opencode", "opencode"),
)
@_dry
@home_and_json
def from_opencode(home: Home, path: Path, dry: bool, as_json: bool) -> None:
    """Take over opencode's sessions: the folder of its database, or that file."""
    folder = path.expanduser()
    with open_copy(opencode.database(folder)) as theirs:
        source = opencode.OpencodeDatabase(theirs)
        check_tables(theirs, ("session", "message", "part"))
        counts = _import_sessions(home, opencode.ORIGIN, source.sessions(), source.count(), dry)
    report: dict[str, Any] = {"source": str(folder), "dry_run": dry, "sessions": counts}
    if notice := source.notice():
        report["notice"] = notice
    _show(report, as_json)


@importing.command("openclaw")
@click.argument("path", type=click.Path(path_type=Path), default=_locate("OPENCLAW_STATE_DIR", "~/.openclaw"))
@click.option("--only", type=click.Choice(("memory", "sessions")), help="Take only this part.")
@click.option("--yes", is_flag=True, help="Take its notes without asking.")
@_dry
@home_and_json
def from_openclaw(home: Home, path: Path, only: str | None, dry: bool, as_json: bool, yes: bool) -> None:
    """Take over OpenClaw's sessions, and the notes in its agents' workspaces (MEMORY.md, USER.md).

    Shows the notes and asks before they count; without a terminal they wait.
    """
    theirs = openclaw.OpenClawHome(path.expanduser())
    report: dict[str, Any] = {"source": str(theirs.root), "dry_run": dry}
    total = theirs.count()
    if only != "sessions":
        consent = _make_consent(may_ask=not (dry or as_json), default=yes)
        report["memory"] = take_notes(home, theirs.notes(), "OpenClaw", consent, dry=dry)
    if only != "memory":
        report["sessions"] = _import_sessions(home, openclaw.ORIGIN, theirs.sessions(), total, dry)
        if notice := theirs.unread.notice():
            report["notice"] = notice
    _show(report, as_json)


class _Format(msgspec.Struct, frozen=True):
    """A program's transcripts: the origin of its sessions, a function that lists the files of a folder, and
    one that reads a file's session and counts its unreadable lines."""

    origin: str
    list_files: Callable[[Path], list[Path]]
    read_file: Callable[[Path], tuple[PastSession | None, int]]


def _import_transcripts(home: Home, path: Path, form: _Format, dry: bool, as_json: bool) -> None:
    folder = path.expanduser()
    if not folder.exists():
        raise NotFound(f"there is no {folder}", hint="name the folder that holds the transcripts")
    files = form.list_files(folder)
    if not files:
        raise NotFound(f"there are no transcripts of {form.origin} in {folder}")
    unreadable_lines: dict[str, int] = {}
    unreadable_files: dict[str, str] = {}
    without_person = 0

    def sessions() -> Iterator[PastSession]:
        nonlocal without_person
        for file in files:
            try:
                past, lines = form.read_file(file)
            except OSError as error:
                if file == folder:
                    raise ConfigError(f"{file} can't be read ({error.strerror})") from error
                unreadable_files[str(file)] = error.strerror or type(error).__name__
                continue
            if lines:
                unreadable_lines[str(file)] = lines
            if past is not None:
                yield past
            else:
                without_person += 1

    counts = _import_sessions(home, form.origin, sessions(), len(files), dry)
    report: dict[str, Any] = {"source": str(folder), "dry_run": dry, "sessions": counts}
    if without_person:
        report["notice"] = f"left out: {plural(without_person, 'file')} without a message of a person"
    problems = {"unreadable_lines": unreadable_lines, "unreadable_files": unreadable_files}
    _show(report | {name: paths for name, paths in problems.items() if paths}, as_json)


def _add_transcripts(name: str, program: str, locate: Callable[[], Path], form: _Format) -> None:
    """Add the command that imports a program's transcripts."""

    @importing.command(name, help=f"Take over {program}'s transcripts: a folder of them, or one file.")
    @click.argument("path", type=click.Path(path_type=Path), default=locate)
    @_dry
    @home_and_json
    def take(home: Home, path: Path, dry: bool, as_json: bool) -> None:
        _import_transcripts(home, path, form, dry, as_json)


_add_transcripts(
    "claude-code",
    "Claude Code",
    _locate("CLAUDE_CONFIG_DIR", "~/.claude"),
    _Format(claude_code.ORIGIN, claude_code.files, claude_code.read),
)
_add_transcripts(
    "codex", "Codex", _locate("CODEX_HOME", "~/.codex"), _Format(codex.ORIGIN, codex.files, codex.read)
)
_add_transcripts(
    "gemini",
    "Gemini CLI",
    _locate("GEMINI_CLI_HOME", "~/.gemini", ".gemini"),
    _Format(gemini.ORIGIN, gemini.files, gemini.read),
)
_add_transcripts("pi", "pi", _locate("PI_CODING_AGENT_DIR", "~/.pi"), _Format(pi.ORIGIN, pi.files, pi.read))


def _import_sessions(
    home: Home, origin: str, sessions: Iterable[PastSession], total: int, dry: bool
) -> ImportCounts:
    line = ProgressLine("reading", SystemClock())

    def show_progress(done: int, messages: int) -> None:
        line.update(f"{done:,} of {total:,} sessions, {messages:,} messages")

    try:
        if dry and not has_store(home):
            return preview_sessions(None, origin, sessions, show_progress)
        if not dry:
            home.ensure()
        with stored.open_database(home) as database:
            if dry:
                return preview_sessions(database, origin, sessions, show_progress)
            return import_sessions(database, origin, sessions, SystemClock(), show_progress)
    finally:
        line.finish()


def _show(report: dict[str, Any], as_json: bool) -> None:
    """Print the report. Raises NotFound if the source held nothing to import."""
    if as_json:
        emit_json(report)
    else:
        _print_report(report)
    counts: ImportCounts | None = report.get("sessions")
    if not (counts and counts.sessions) and not any(report.get(part) for part in _NOUNS):
        raise NotFound(
            f"nothing to import was found in {printable(report['source'])}",
            hint="name a file or folder of that program; whet import --help lists the programs",
        )


def _print_report(report: dict[str, Any]) -> None:
    would = "would be " if report["dry_run"] else ""
    click.echo(f"{'Looked at' if report['dry_run'] else 'Moved in from'} {report['source']}")
    for part, noun in _NOUNS.items():
        for row in report.get(part, ()):
            click.echo(_describe_outcome(noun, row, would))
    counts: ImportCounts | None = report.get("sessions")
    if counts is not None:
        click.echo(_describe_counts(counts, would))
    for file, lines in report.get("unreadable_lines", {}).items():
        click.echo(
            style_text(f"  {lines} unreadable line{'s' if lines > 1 else ''} in {printable(file)}", "yellow")
        )
    for file, why in report.get("unreadable_files", {}).items():
        click.echo(style_text(f"  {printable(file)} can't be read ({why})", "yellow"))
    if notice := report.get("notice"):
        click.echo(style_text(f"  {notice}", "yellow"))
    if report["dry_run"]:
        click.echo("Nothing was written. Without --dry-run it is done.")
    elif counts is not None and counts.messages:
        go_on = "--continue" if "held" in report else "--session ID"
        click.echo(f'Next: whet sessions list  ·  whet sessions search "..."  ·  whet chat {go_on}')


def _describe_outcome(noun: str, row: ImportOutcome, would: str) -> str:
    why = f": {printable(row.detail)}" if row.detail else ""
    result = f"{would}{row.result}" if row.result in _DONE else row.result
    text = f"  {noun} {printable(row.item)} {result}{why}"
    if sys.stdout.isatty():  # a file gets one line per item
        text = wrap_text(text, indent=4)[2:]
    return style_text(text, _COLOURS[row.result]) if row.result in _COLOURS else text


def _describe_counts(counts: ImportCounts, would: str) -> str:
    parts = [f"{counts.new:,} {would}new"]
    if counts.grown:
        parts.append(f"{counts.grown:,} grown")
    if counts.same:
        parts.append(f"{counts.same:,} here already")
    if counts.changed:
        parts.append(f"{counts.changed:,} changed on both sides and left")
    return f"  sessions: {', '.join(parts)} ({plural(counts.messages, 'message')})"
