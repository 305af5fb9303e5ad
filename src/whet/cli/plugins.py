"""`whet plugins`: what is installed, what it brings, switching it on and off, bringing it in.

Plugins are loaded in child processes here, so that one that hangs or dies can be reported. Installing never
runs a plugin's code and never enables it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
import msgspec

from whet.cli.output import Column, emit_json, size, table, wrapped
from whet.cli.wording import printable
from whet.config.edit import set_value
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import PluginSettings
from whet.contract.errors import NotFound, WhetError
from whet.contract.texts import plural
from whet.plugins import install as bringing
from whet.plugins.discover import Discovery, FoundPlugin, discover
from whet.plugins.load import wanted
from whet.plugins.parts import Problem
from whet.plugins.probe import PluginProbe, look

_as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


class _Row(msgspec.Struct, frozen=True):
    """One plugin as `list` shows it."""

    name: str
    version: str
    source: str
    enabled: bool
    loaded: bool
    has: dict[str, list[str]]
    problems: list[str]
    description: str


plugins: click.Group = click.Group("plugins", help="List, install, enable and check plugins.")


def _settings(home: Home) -> PluginSettings:
    return load(home, environ=os.environ).settings.plugins


def _workspace(settings: PluginSettings) -> Path | None:
    return Path.cwd() if settings.project else None


def _there(home: Home, settings: PluginSettings) -> Discovery:
    workspace = _workspace(settings)
    return discover(home.root / "plugins", workspace / ".whet" / "plugins" if workspace else None)


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete an installed plugin's name."""
    home = ctx.find_object(Home)
    return (
        [name for name in _there(home, _settings(home)).found if name.startswith(incomplete)] if home else []
    )


@plugins.command("list")
@_as_json
@click.pass_obj
def list_plugins(home: Home, as_json: bool) -> None:
    """List plugins: version, what each brings, and what is wrong."""
    settings = _settings(home)
    rows, problems = _rows(home, settings, _there(home, settings))
    if as_json:
        emit_json({"plugins": rows, "problems": [{"plugin": p.plugin, "reason": p.reason} for p in problems]})
        return
    if rows:
        shape: list[Column[_Row]] = [
            Column("plugin", lambda row: row.name),
            Column("version", lambda row: printable(row.version) or "-"),
            Column("state", lambda row: "off" if not row.enabled else "on" if row.loaded else "broken"),
            Column("kind", lambda row: printable(_kinds(row.has)) or "-", grows=True),
        ]
        click.echo(table(rows, shape))
    else:
        click.echo(wrapped("no plugins; whet plugins install FOLDER_OR_GIT_URL brings one"))
    for row in rows:
        problems += [Problem(row.name, reason) for reason in row.problems]
    for problem in problems:
        click.echo(wrapped(printable(problem.line)))


def _rows(home: Home, settings: PluginSettings, there: Discovery) -> tuple[list[_Row], list[Problem]]:
    problems: list[Problem] = list(there.problems)
    missing: list[Problem] = []
    on = wanted(there, settings, missing)
    problems += [problem for problem in missing if problem not in problems]
    names = [found.name for found in on]
    looked = {one.name: one for one in look(home, names, workspace=_workspace(settings))} if names else {}
    return [_row(found, looked.get(found.name)) for found in there.found.values()], problems


def _row(found: FoundPlugin, looked: PluginProbe | None) -> _Row:
    claimed = {"tools": list(found.manifest.provides_tools)} if found.manifest.provides_tools else {}
    return _Row(
        name=found.name,
        version=found.manifest.version,
        source=found.source,
        enabled=looked is not None,
        loaded=looked is not None and looked.is_loaded,
        has=looked.has if looked else claimed,
        problems=looked.problems if looked else [],
        description=found.manifest.description,
    )


def _kinds(has: dict[str, list[str]]) -> str:
    return ", ".join(
        f"engine {', '.join(names)}"
        if kind == "engine"
        else f"{len(names)} {kind if len(names) > 1 else kind.removesuffix('s')}"
        for kind, names in has.items()
    )


@plugins.command("enable")
@click.argument("name", shell_complete=complete_name)
@click.pass_obj
def enable(home: Home, name: str) -> None:
    """Load a plugin from the next start on."""
    settings = _settings(home)
    there = _there(home, settings)
    found = there.named(name)
    if found is None:
        broken = next((problem for problem in there.problems if problem.plugin == name), None)
        if broken:
            raise WhetError(broken.line)
        raise NotFound(f"there is no plugin {name}", hint=f"installed: {', '.join(there.found) or 'none'}")
    if {name, found.key, found.name} & set(settings.disabled):
        _write(home, "disabled", [n for n in settings.disabled if n not in (name, found.key, found.name)])
    if not {found.key, found.name} & set(settings.enabled):
        _write(home, "enabled", [*settings.enabled, found.name])
    said = f"{found.name} is on from the next start; whet plugins doctor {found.name} tries it now"
    click.echo(wrapped(said))


@plugins.command("disable")
@click.argument("name", shell_complete=complete_name)
@click.pass_obj
def disable(home: Home, name: str) -> None:
    """Don't load a plugin any more; it stays installed."""
    settings = _settings(home)
    found = _there(home, settings).named(name)
    names = {name, found.key, found.name} if found else {name}
    if not names & set(settings.enabled):
        if found is None:
            raise NotFound(f"there is no plugin {name}", hint="whet plugins list")
        click.echo(f"{name} is off already")
        return
    _write(home, "enabled", [n for n in settings.enabled if n not in names])
    click.echo(f"{name} is off from the next start")


def _write(home: Home, field: str, names: Sequence[str]) -> None:
    set_value(home, f"plugins.{field}", ", ".join(names))


@plugins.command("install")
@click.argument("source", metavar="FOLDER_OR_GIT_URL")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.pass_obj
def install(home: Home, source: str, yes: bool) -> None:
    """Copy a plugin into the home, from a folder or a git repository. It is not enabled."""
    fetched = bringing.fetch(home, source)
    settled = False
    try:
        _describe(fetched)
        if not yes and not click.confirm("Install it?", default=False, err=True):
            raise click.Abort()
        bringing.settle(fetched)
        settled = True
    finally:
        if not settled:
            bringing.discard(fetched)
    name = fetched.manifest.name
    click.echo(f"installed {fetched.target}; it is off: whet plugins enable {name}")


def _describe(fetched: bringing.FetchedPlugin) -> None:
    manifest = fetched.manifest
    by = f" by {manifest.author}" if manifest.author else ""
    click.echo(printable(f"{manifest.name} {manifest.version}{by}".replace(" " * 2, " ")))
    if manifest.description:
        click.echo(wrapped(printable(manifest.description), indent=2))
    at = f" at commit {fetched.commit[:12]}" if fetched.commit else ""
    click.echo(
        printable(f"  from {fetched.source}{at}: {plural(fetched.files, 'file')}, {size(fetched.size_bytes)}")
    )
    if manifest.provides_tools:
        click.echo(printable(f"  says it brings the tools {', '.join(manifest.provides_tools)}"))
    if fetched.is_for_hermes:
        click.echo("  is written for Hermes Agent; Whet provides the modules that it imports")
    click.echo(
        wrapped(
            "Once enabled, each start runs register() in its __init__.py as you, with your files, network "
            f"and keys; {len(fetched.python_files)} Python files can be part of that.",
            indent=2,
        )
    )


@plugins.command("doctor")
@click.argument("names", nargs=-1, shell_complete=complete_name)
@_as_json
@click.pass_obj
def doctor(home: Home, names: tuple[str, ...], as_json: bool) -> None:
    """Load each enabled plugin (or those named, enabled or not) alone in a process of its own."""
    settings = _settings(home)
    there = _there(home, settings)
    problems: list[Problem] = []
    chosen = list(names) or [found.name for found in wanted(there, settings, problems)]
    unknown = [name for name in chosen if there.named(name) is None]
    if unknown:
        raise NotFound(f"there is no plugin {unknown[0]}", hint="whet plugins list")
    looked = [one for name in chosen for one in look(home, [name], workspace=_workspace(settings))]
    looked += [PluginProbe(problem.plugin, False, problems=[problem.reason]) for problem in problems]
    if as_json:
        emit_json(looked)
    else:
        _print_looked(looked)
    if any(not one.is_loaded for one in looked):
        raise click.exceptions.Exit(1)


def _print_looked(looked: Sequence[PluginProbe]) -> None:
    if not looked:
        click.echo("no plugin is enabled")
    for one in looked:
        state = f"ok, loaded in {one.load_s:.2f} s" if one.is_loaded else "does not load"
        click.echo(f"{printable(one.name)}: {state}")
        for kind, names in one.has.items():
            click.echo(wrapped(printable(f"{kind}: {', '.join(names)}"), indent=2))
        for problem in one.problems:
            click.echo(wrapped(printable(f"problem: {problem}"), indent=2))
        if one.tried:
            good = sum(not said for said in one.tried.values())
            click.echo(
                f"  tools run once, on made-up arguments, offline: {good} of {len(one.tried)} answered"
            )
        for name, said in one.tried.items():
            if said:
                click.echo(wrapped(printable(f"{name}: {said}"), indent=4))


@plugins.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def run(home: Home, name: str, arguments: tuple[str, ...]) -> None:
    """Run the command NAME that an enabled plugin brings for the shell."""
    import argparse  # noqa: PLC0415 - for plugins' own commands only

    from whet.plugins.load import PluginHost, load_plugins  # noqa: PLC0415 - as above

    settings = _settings(home)
    with closing(
        load_plugins(home, settings, os.environ, PluginHost(workspace=_workspace(settings)))
    ) as loaded:
        found = next((one for one in loaded.cli_commands if one.name == name), None)
        if found is None:
            there = ", ".join(one.name for one in loaded.cli_commands) or "none"
            raise NotFound(f"no enabled plugin brings the command {name}", hint=f"there are: {there}")
        parser = argparse.ArgumentParser(prog=f"whet plugins run {name}", description=found.help)
        found.setup(parser)
        parsed = parser.parse_args(list(arguments))
        handler = found.handler or getattr(parsed, "func", None)
        code = handler(parsed) if callable(handler) else None
    if isinstance(code, int) and code:
        raise click.exceptions.Exit(code)
