"""`whet skills`: list, read, install, validate, accept and pin skills, and show their history."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import apsw
import click
from msgspec.structs import replace

from whet.cli.learned_items.changes import (
    accept_shown,
    as_object,
    change_lines,
    changes_table,
    digest_option,
    with_learning,
)
from whet.cli.learned_items.skill_cases import skills_check
from whet.cli.learned_items.skill_improve import skills_improve
from whet.cli.learned_items.stats import skills_retire, skills_stats
from whet.clock import local_minute
from whet.config.paths import Home
from whet.contract.errors import NotFound, WhetError
from whet.contract.texts import parse_typed_number, plural
from whet.memory import intake, skill_format, skill_store
from whet.memory.library import SkillInfo
from whet.memory.service import LearningService
from whet.memory.settling import select_newest
from whet.memory.skill_changes import hash_files
from whet.plugins.install import clone, is_git
from whet.store import learned, ledger
from whet.store.learned import Mark, Use
from whet.store.ledger import LedgerRow
from whet.terminal.output import Column, emit, emit_json, home_and_json, print_long, table, wrap_text
from whet.terminal.wording import printable
from whet.visible import WHOLE, visible

_MAX_SKILLS = 200
skills: click.Group = click.Group("skills", help="List, read, install, check and pin skills.")


for _command in (skills_stats, skills_retire, skills_check, skills_improve):
    skills.add_command(_command)


@skills.command("list")
@click.argument("words", nargs=-1)
@home_and_json
def list_(home: Home, words: tuple[str, ...], as_json: bool) -> None:
    """List skills, or those that fit WORDS."""

    async def read(learning: LearningService) -> tuple[list[SkillInfo], dict[str, Mark], dict[str, int]]:
        marks = await learning.database.read(lambda db: learned.list_marks(db, learning.profile))
        uses = await learning.database.read(lambda db: learned.count_uses(db, learning.profile))
        return learning.library.all(), marks, uses

    infos, marks, uses = with_learning(home, read)
    query = " ".join(words)
    matches = skill_store.search(infos, query) if query else infos
    matches = [replace(info, problem=skill_store.find_problem(info)) for info in matches]
    if as_json:
        rows = [
            {
                "name": info.name,
                "description": info.description,
                "source": marks.get(info.name, Mark(info.name)).source or info.source,
                "pinned": marks.get(info.name, Mark(info.name)).pinned,
                "uses": uses.get(info.name, 0),
                "problem": info.problem,
            }
            for info in matches
        ]
        return emit_json({"skills": rows})
    if not matches:
        return click.echo(
            "No skill fits. All of them: whet skills list" if query else "There are no skills yet."
        )
    columns: list[Column[SkillInfo]] = [
        Column("name", lambda info: info.name),
        Column("from", lambda info: _describe_source(info, marks.get(info.name)), rank=2),
        Column("uses", lambda info: str(uses.get(info.name, 0)), right=True, rank=3),
        Column("description", _describe_skill, grows=True, least=20),
    ]
    click.echo(table(matches, columns))


def _describe_source(info: SkillInfo, mark: Mark | None) -> str:
    pinned = " (pinned)" if mark is not None and mark.pinned else ""
    return ("installed" if mark is not None and mark.source else info.source) + pinned


def _describe_skill(info: SkillInfo) -> str:
    return printable(f"can't be used: {info.problem}" if info.problem else info.description)


@skills.command("show")
@click.argument("name")
@click.argument("file", default="")
@home_and_json
def show(home: Home, name: str, file: str, as_json: bool) -> None:
    """Show a skill as the agent reads it, or one of its files."""

    async def read(learning: LearningService) -> tuple[skill_store.Load, str]:
        load = skill_store.load(learning.library, name, file)
        info = learning.library.find(name)
        tree = hash_files(skill_format.read(info.folder)) if info is not None else ""
        return load, tree

    load, tree_hash = with_learning(home, read)
    if as_json:
        facts = {"name": name, "hash": tree_hash, "file": load.file, "file_hash": load.hash}
        return emit_json({**facts, "text": load.text})
    print_long(printable(load.text))


@skills.command("log")
@click.argument("name", required=False)
@click.option("--waiting", is_flag=True, help="Only changes that wait for you.")
@click.option("--limit", type=click.IntRange(1), default=30, show_default=True, help="How many.")
@home_and_json
def log(home: Home, name: str | None, waiting: bool, limit: int, as_json: bool) -> None:
    """List changes to skills, or to the skill NAME; with a change's number, show its details."""
    if name is not None and (number := parse_typed_number(name)) is not None:
        row = with_learning(home, lambda learning: learning.get_change(number))
        return emit(as_object(row), "\n".join(change_lines(row)), as_json=as_json)

    async def read(learning: LearningService) -> tuple[list[LedgerRow], list[Use]]:
        def select(db: apsw.Connection) -> tuple[list[LedgerRow], list[Use]]:
            states = ("quarantined", "inbox") if waiting else ()
            rows = ledger.select(
                db, limit, profile=learning.profile, kind="skill", item=name or "", states=states
            )
            return rows, learned.list_uses(db, name=name or "", limit=limit) if name else []

        return await learning.database.read(select)

    rows, uses = with_learning(home, read)
    if as_json:
        return emit_json({"changes": [as_object(row) for row in rows], "uses": uses})
    click.echo(changes_table(rows) if rows else "No change of a skill is stored.")
    for use in uses:
        click.echo(f"loaded {local_minute(use.at)} in session {use.session_id}: {use.file} {use.hash}")


@skills.command("validate")
@click.argument("path", type=click.Path(path_type=Path))
@home_and_json
def validate(home: Home, path: Path, as_json: bool) -> None:
    """Check a skill's folder: front matter, size, paths, and what its text might do."""
    problem, skill = "", None
    try:
        skill = intake.read_folder(path.expanduser())
    except WhetError as error:
        problem = f"{error.message}; {error.hint}" if error.hint else error.message
    findings = list(skill.findings) if skill else []
    if as_json:
        emit_json({"path": str(path), "valid": not problem, "problem": problem, "findings": findings})
    elif problem:
        click.echo(wrap_text(printable(f"not valid: {problem}")))
    else:
        click.echo(f"valid: {skill.name if skill else ''}")
        for finding in findings:
            click.echo(wrap_text(printable(f"look at {finding}"), indent=2))
    if problem:
        raise click.exceptions.Exit(1)


@skills.command("install")
@click.argument("source")
@click.option("--yes", is_flag=True, help="Don't ask.")
@home_and_json
def install(home: Home, source: str, yes: bool, as_json: bool) -> None:
    """Install the skills of a folder or of a git repository: their text is shown, nothing is run.

    A skill that hides text or names a path outside its folder is kept in quarantine: whet skills accept
    NAME
    """
    temporary = Path(tempfile.mkdtemp(prefix="whet-skill-"))
    try:
        intakes, skipped = _read_skills(source, temporary)
        if not as_json:
            _describe(intakes, skipped)
            if not yes and not click.confirm(
                f"Install {plural(len(intakes), 'skill')}?", default=False, err=True
            ):
                raise click.Abort()

        async def add_skills(learning: LearningService) -> list[LedgerRow]:
            return [await learning.skills.install(skill, source) for skill in intakes]

        rows = with_learning(home, add_skills)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if as_json:
        return emit_json({"installed": [as_object(row) for row in rows], "skipped": skipped})
    for row in rows:
        is_held = row.state == "quarantined"
        state = "in quarantine; to use it: whet skills accept" if is_held else "installed:"
        click.echo(f"{state} {row.item} (change {row.id})")


def _read_skills(source: str, temporary: Path) -> tuple[list[intake.SkillIntake], list[str]]:
    """Return the skills of a folder or a git repository, and a line for each one that is invalid. A
    repository is cloned into `temporary`. Raises NotFound if there is no valid skill."""
    root = Path(source).expanduser()
    if is_git(source):
        root = temporary / "clone"
        clone(source, root)
        shutil.rmtree(root / ".git", ignore_errors=True)
    elif not root.is_dir():
        raise NotFound(f"there is no folder {source}", hint="give a folder, or the URL of a git repository")
    if (root / "SKILL.md").is_file():
        return [intake.read_folder(root)], []
    intakes: list[intake.SkillIntake] = []
    skipped: list[str] = []
    patterns = ("*/SKILL.md", "skills/*/SKILL.md", ".agents/skills/*/SKILL.md")
    paths = sorted(path for pattern in patterns for path in root.glob(pattern))
    for path in paths[:_MAX_SKILLS]:
        try:
            intakes.append(intake.read_folder(path.parent))
        except WhetError as error:
            skipped.append(f"{path.parent.name}: {error.message}")
    if not intakes:
        raise NotFound(
            f"no valid skill in {source}", hint="; ".join(skipped[:3]) or "a skill is a folder with SKILL.md"
        )
    return intakes, skipped


def _describe(intakes: Sequence[intake.SkillIntake], skipped: Sequence[str]) -> None:
    for skill in intakes:
        click.echo(printable(f"{skill.name}: {plural(len(skill.files), 'file')}"))
        for path in skill.readable_paths:
            click.echo(printable(f"--- {path}"))
            click.echo(visible(skill.files[path].decode("utf-8", "replace"), WHOLE, masking=None))
        for path in sorted(skill.files.keys() - {*skill.readable_paths}):
            click.echo(printable(f"--- {path}: {len(skill.files[path]):,} bytes, not read as text"))
        for finding in skill.findings:
            click.echo(wrap_text(printable(f"look at {finding}"), indent=2))
    for line in skipped:
        click.echo(wrap_text(printable(f"left out: {line}")))


@skills.command("accept")
@click.argument("name")
@digest_option
@click.pass_obj
def accept(home: Home, name: str, digest: str) -> None:
    """Show a waiting skill (quarantine, inbox) whole and bring it into force if you say so, by its NAME or a
    change's number."""

    async def select(learning: LearningService) -> list[LedgerRow]:
        if (number := parse_typed_number(name)) is not None:
            return [await learning.get_change(number)]
        rows = await learning.database.read(
            lambda db: ledger.select(
                db, profile=learning.profile, kind="skill", item=name, states=("quarantined", "inbox")
            )
        )
        if not rows:
            raise NotFound(f"nothing of {name} waits", hint="whet skills log --waiting")
        return select_newest(rows)

    for row in accept_shown(home, select, digest):
        click.echo(f"in force: {row.item} (change {row.id}); to take it back: whet undo {row.id}")


@skills.command("pin")
@click.argument("name")
@click.option("--off", is_flag=True, help="Let it be changed again.")
@click.pass_obj
def pin(home: Home, name: str, off: bool) -> None:
    """Pin a skill: the agent may load it but never change it."""
    with_learning(home, lambda learning: learning.skills.pin(name, not off))
    click.echo(f"{name} is {'no longer pinned' if off else 'pinned'}")
