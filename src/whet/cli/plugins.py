"""`whet plugins`: list installed plugins and their contents, enable, disable, install and check them.

`list` and `doctor` load plugins in child processes, so that one that hangs or crashes can be reported.
Installing never runs a plugin's code and never enables it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
import msgspec

from whet.config.edit import set_value
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import PluginSettings
from whet.contract.errors import NotFound, WhetError
from whet.contract.texts import plural
from whet.plugins import install as installing
from whet.plugins.discover import Discovery, FoundPlugin, discover
from whet.plugins.load import select_plugins
from whet.plugins.parts import Problem
from whet.plugins.probe import PluginProbe, probe_plugins
from whet.terminal.output import Column, emit_json, size, table, wrap_text
from whet.terminal.wording import printable

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


def _discover(home: Home, settings: PluginSettings) -> Discovery:
    workspace = _workspace(settings)
    return discover(home.root / "plugins", workspace / ".whet" / "plugins" if workspace else None)


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete an installed plugin's name."""
    home = ctx.find_object(Home)
    names = _discover(home, _settings(home)).plugins if home else ()
    return [name for name in names if name.startswith(incomplete)]


@plugins.command("list")
@_as_json
@click.pass_obj
def list_plugins(home: Home, as_json: bool) -> None:
    """List plugins with their versions, contents and problems. Enabled ones are loaded, but not called."""
    settings = _settings(home)
    rows, problems = _list_rows(home, settings, _discover(home, settings))
    if as_json:
        emit_json({"plugins": rows, "problems": [{"plugin": p.plugin, "reason": p.reason} for p in problems]})
        return
    if rows:
        columns: list[Column[_Row]] = [
            Column("plugin", lambda row: row.name),
            Column("version", lambda row: printable(row.version) or "-"),
            Column("state", lambda row: "off" if not row.enabled else "on" if row.loaded else "broken"),
            Column("kind", lambda row: printable(_describe_contents(row.has)) or "-", grows=True),
        ]
        click.echo(table(rows, columns))
    else:
        click.echo(wrap_text("no plugins; whet plugins install FOLDER_OR_GIT_URL brings one"))
    for row in rows:
        problems += [Problem(row.name, reason) for reason in row.problems]
    for problem in problems:
        click.echo(wrap_text(printable(problem.line)))


def _list_rows(
    home: Home, settings: PluginSettings, discovery: Discovery
) -> tuple[list[_Row], list[Problem]]:
    problems: list[Problem] = list(discovery.problems)
    missing: list[Problem] = []
    names = [plugin.name for plugin in select_plugins(discovery, settings, missing)]
    problems += [problem for problem in missing if problem not in problems]
    loaded = probe_plugins(home, names, workspace=_workspace(settings), tries=False) if names else []
    probes = {probe.name: probe for probe in loaded}
    return [_make_row(plugin, probes.get(plugin.name)) for plugin in discovery.plugins.values()], problems


def _make_row(plugin: FoundPlugin, probe: PluginProbe | None) -> _Row:
    claimed = {"tools": list(plugin.manifest.provides_tools)} if plugin.manifest.provides_tools else {}
    return _Row(
        name=plugin.name,
        version=plugin.manifest.version,
        source=plugin.source,
        enabled=probe is not None,
        loaded=probe is not None and probe.is_loaded,
        has=probe.registrations if probe else claimed,
        problems=probe.problems if probe else [],
        description=plugin.manifest.description,
    )


def _describe_contents(contents: dict[str, list[str]]) -> str:
    parts: list[str] = []
    for kind, names in contents.items():
        if kind == "engine":
            parts.append(f"engine {', '.join(names)}")
        else:
            parts.append(f"{len(names)} {kind if len(names) > 1 else kind.removesuffix('s')}")
    return ", ".join(parts)


@plugins.command("enable")
@click.argument("name", shell_complete=complete_name)
@click.pass_obj
def enable(home: Home, name: str) -> None:
    """Load a plugin from the next start on."""
    settings = _settings(home)
    discovery = _discover(home, settings)
    plugin = discovery.find_plugin(name)
    if plugin is None:
        broken = next((problem for problem in discovery.problems if problem.plugin == name), None)
        if broken:
            raise WhetError(broken.line)
        raise NotFound(
            f"there is no plugin {name}", hint=f"installed: {', '.join(discovery.plugins) or 'none'}"
        )
    if {name, plugin.key, plugin.name} & set(settings.disabled):
        _write(home, "disabled", [n for n in settings.disabled if n not in (name, plugin.key, plugin.name)])
    if not {plugin.key, plugin.name} & set(settings.enabled):
        _write(home, "enabled", [*settings.enabled, plugin.name])
    message = f"{plugin.name} is on from the next start; whet plugins doctor {plugin.name} tries it now"
    click.echo(wrap_text(message))


@plugins.command("disable")
@click.argument("name", shell_complete=complete_name)
@click.pass_obj
def disable(home: Home, name: str) -> None:
    """Stop loading a plugin; it stays installed."""
    settings = _settings(home)
    plugin = _discover(home, settings).find_plugin(name)
    names = {name, plugin.key, plugin.name} if plugin else {name}
    if not names & set(settings.enabled):
        if plugin is None:
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
    fetched = installing.fetch(home, source)
    try:
        _describe(fetched)
        if not yes and not click.confirm("Install it?", default=False, err=True):
            raise click.Abort()
        installing.move_into_place(fetched)
    except BaseException:
        installing.discard(fetched)
        raise
    name = fetched.manifest.name
    click.echo(f"installed {fetched.target}; it is off: whet plugins enable {name}")


def _describe(fetched: installing.FetchedPlugin) -> None:
    manifest = fetched.manifest
    by = f" by {manifest.author}" if manifest.author else ""
    click.echo(printable(f"{manifest.name} {manifest.version}{by}".replace(" " * 2, " ")))
    if manifest.description:
        click.echo(wrap_text(printable(manifest.description), indent=2))
    at = f" at commit {fetched.commit[:12]}" if fetched.commit else ""
    click.echo(
        printable(f"  from {fetched.source}{at}: {plural(fetched.files, 'file')}, {size(fetched.size_bytes)}")
    )
    if manifest.provides_tools:
        click.echo(printable(f"  says it brings the tools {', '.join(manifest.provides_tools)}"))
    if fetched.is_for_hermes:
        click.echo("  is written for Hermes Agent; Whet provides the modules that it imports")
    click.echo(
        wrap_text(
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
    discovery = _discover(home, settings)
    problems: list[Problem] = []
    chosen = list(names) or [plugin.name for plugin in select_plugins(discovery, settings, problems)]
    unknown = [name for name in chosen if discovery.find_plugin(name) is None]
    if unknown:
        raise NotFound(f"there is no plugin {unknown[0]}", hint="whet plugins list")
    probes: list[PluginProbe] = []
    for name in chosen:
        probes += probe_plugins(home, [name], workspace=_workspace(settings))
    probes += [PluginProbe(problem.plugin, False, problems=[problem.reason]) for problem in problems]
    if as_json:
        emit_json(probes)
    else:
        _print_probes(probes)
    if any(not probe.is_loaded for probe in probes):
        raise click.exceptions.Exit(1)


def _print_probes(probes: Sequence[PluginProbe]) -> None:
    if not probes:
        click.echo("no plugin is enabled")
    for probe in probes:
        state = f"loaded in {probe.load_s:.2f} s" if probe.is_loaded else "does not load"
        if probe.is_loaded:
            state = f"ok, {state}" if probe.registrations else f"{state}, but brings nothing that Whet knows"
        click.echo(f"{printable(probe.name)}: {state}")
        for kind, names in probe.registrations.items():
            click.echo(wrap_text(printable(f"{kind}: {', '.join(names)}"), indent=2))
        for problem in probe.problems:
            click.echo(wrap_text(printable(f"problem: {problem}"), indent=2))
        if probe.tried:
            good = sum(not error for error in probe.tried.values())
            click.echo(
                f"  tools run once, on made-up arguments, offline: {good} of {len(probe.tried)} answered"
            )
        for name, error in probe.tried.items():
            if error:
                click.echo(wrap_text(printable(f"{name}: {error}"), indent=4))


@plugins.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def run(home: Home, name: str, arguments: tuple[str, ...]) -> None:
    """Run the shell command NAME of an enabled plugin.

    Everything after NAME belongs to the command: `whet plugins run NAME --help` shows its options.
    """
    import argparse  # noqa: PLC0415 - for plugins' own commands only

    from whet.plugins.load import PluginHost, load_plugins  # noqa: PLC0415 - as above

    settings = _settings(home)
    with closing(
        load_plugins(home, settings, os.environ, PluginHost(workspace=_workspace(settings)))
    ) as loaded:
        command = next((entry for entry in loaded.cli_commands if entry.name == name), None)
        if command is None:
            names = ", ".join(entry.name for entry in loaded.cli_commands) or "none"
            raise NotFound(f"no enabled plugin brings the command {name}", hint=f"there are: {names}")
        parser = argparse.ArgumentParser(prog=f"whet plugins run {name}", description=command.help)
        command.setup(parser)
        parsed = parser.parse_args(list(arguments))
        handler = command.handler or getattr(parsed, "func", None)
        code = handler(parsed) if callable(handler) else None
    if isinstance(code, int) and code:
        raise click.exceptions.Exit(code)
