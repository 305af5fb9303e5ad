"""`whet sandbox`: show the sandbox of this machine and what commands can reach, and run a command in it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import click
import msgspec

from whet.app.confining import confine
from whet.approval.confined import missing_openings
from whet.approval.path_denials import list_file_rules
from whet.approval.risk import RiskScope
from whet.approval.shell_risk import analyse
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import WhetError
from whet.sandbox.confinement import Confinement
from whet.sandbox.denial import needed_openings
from whet.sandbox.jail import JailedCommand
from whet.sandbox.path_rules import PathRules, read_path_rules
from whet.sandbox.policy import Opening, SandboxPolicy, is_below, shorten
from whet.searchpath import find_shell
from whet.terminal.output import emit, home_and_json
from whet.terminal.wording import printable
from whet.tools.shell import command_environment


class _StatusReport(msgspec.Struct, frozen=True):
    """The JSON document of `whet sandbox status`."""

    mode: str
    engine: str
    line: str
    tried: dict[str, str]
    workspace: str
    write: list[str]
    read: list[str]
    protected: list[str]
    hosts: list[str]


sandbox: click.Group = click.Group("sandbox", help="See what commands may reach, and try one.")


@sandbox.command("status")
@home_and_json
def status(home: Home, as_json: bool) -> None:
    """Show the engine in use, why better ones are not, and what commands may reach in this folder."""
    confinement, workspace = _confinement(home)
    engine = confinement.command_status()
    policy = confinement.policy(workspace)
    report = _StatusReport(
        mode=confinement.mode,
        engine=engine.name,
        line=engine.line,
        tried=dict(engine.tried),
        workspace=str(policy.workspace),
        write=[str(path) for path in policy.write],
        read=[str(path) for path in policy.read],
        protected=list(policy.protected),
        hosts=list(policy.hosts),
    )
    lines = _describe_policy(policy) if confinement.is_local else [f"workspace: {shorten(str(workspace))}"]
    emit(report, "\n".join([engine.line, *lines]), as_json=as_json)


@sandbox.command("explain", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@home_and_json
def explain_(home: Home, command: Sequence[str], as_json: bool) -> None:
    """List the paths and hosts that a command names but could not reach, and the deny rules for its files.
    Nothing is run."""
    confinement, workspace = _confinement(home)
    text = _command_line(command)
    policy = confinement.policy(workspace)
    rules = read_path_rules(load(home, environ=os.environ).settings.approval.deny)
    scope = RiskScope(str(workspace), os.path.realpath(os.path.expanduser("~")), str(home.main_root))
    risk = analyse(text, str(workspace), scope)
    denied = list_file_rules(text, risk.commands, str(workspace), rules) if rules.rules else {}
    missing = missing_openings(policy, risk.needs, confinement.private_folders(""))
    openings = list(dict.fromkeys((*missing, *needed_openings(policy, text, workspace))))
    openings = [opening for opening in openings if not _is_denied(opening, workspace, rules)]
    lines = [f"{word}: the rule deny: {rule} forbids it" for word, rule in denied.items()]
    lines += [f"{word}: the sandbox hides it" for word in _list_hidden(policy, text)]
    lines += [_describe_need(policy, opening) for opening in openings]
    lines = lines or [
        "It names no file or host that is out of reach. The sandbox checks the rest when it runs."
    ]
    engine_line = confinement.command_status().line
    facts = {
        "command": text,
        "denied": denied,
        "openings": [_as_object(opening) for opening in openings],
        "line": engine_line,
    }
    emit(facts, "\n".join([engine_line, *map(printable, lines)]), as_json=as_json)


@sandbox.command("try", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--timeout", "timeout_s", type=float, default=120.0, show_default=True, help="Seconds.")
@home_and_json
def try_(home: Home, command: Sequence[str], timeout_s: float, as_json: bool) -> None:
    """Run a command as the model's commands are run here, and show what stopped it."""
    confinement, workspace = _confinement(home)
    with closing(confinement):
        jail = confinement.shell_jail(workspace)
        if jail is None:
            raise WhetError(confinement.command_status().line, hint="whet sandbox status")
        text = _command_line(command)
        passed = load(home, environ=os.environ).settings.sandbox.variables
        environment = jail.environment(command_environment(os.environ, passed))
        shell = [find_shell(workspace), "-c", text]
        code, output = jail.run(JailedCommand(shell, environment, workspace), timeout_s)
        denial = confinement.explain("", jail, (text, output, workspace)) if code else None
    openings = [_as_object(opening) for opening in denial.openings] if denial else []
    facts = {"exit": code, "output": output, "stopped": denial.what if denial else "", "openings": openings}
    parts = [output.rstrip("\n"), *([denial.line] if denial else []), f"[exit {code}]"]
    emit(facts, "\n".join(part for part in parts if part), as_json=as_json)
    click.get_current_context().exit(code)


def _confinement(home: Home) -> tuple[Confinement, Path]:
    settings = load(home, environ=os.environ).settings
    workspace = Path(settings.tools.workspace or ".").expanduser().resolve()
    return confine(home, settings.sandbox, deny=settings.approval.deny), workspace


def _is_denied(opening: Opening, workspace: Path, rules: PathRules) -> bool:
    """Return whether a deny rule forbids the path of an opening, so that the opening has no effect."""
    is_path = opening.kind in ("read", "write")
    return is_path and rules.find(opening.target, workspace, writes=opening.kind == "write") != ""


def _command_line(command: Sequence[str]) -> str:
    """Return the words as a command line for a shell. A single word is taken as a whole line."""
    return command[0] if len(command) == 1 else shlex.join(command)


def _as_object(opening: Opening) -> dict[str, str]:
    return {"kind": opening.kind, "target": opening.target, "words": opening.words}


def _describe_policy(policy: SandboxPolicy) -> list[str]:
    home = [path for path in policy.read if shorten(str(path)).startswith("~")]
    others = [path for path in policy.read if path not in home]
    hidden = [
        path
        for path in policy.hidden_inside()
        if is_below(path, policy.workspace) and path not in policy.closed
    ]
    lines = [
        f"write: {_join_paths([policy.workspace, *policy.write])}, /tmp (private)",
        f"read: {_join_paths(others)}" + (f"; toolchains {_join_paths(home)}" if home else ""),
        f"read-only in the workspace: {', '.join(_list_protected(policy))}",
    ]
    if policy.fixed:
        lines.append(f"read-only by a rule: {_join_paths(policy.fixed)}")
    if hidden:
        lines.append(f"hidden in the workspace: {_join_paths(hidden)}")
    if policy.closed:
        lines.append(f"closed by a rule: {_join_paths(policy.closed)}")
    lines.append(f"network: {', '.join(policy.hosts) or 'none'}")
    lines.append(f"not there: the rest of your home, and {shorten(str(policy.home))}")
    return lines


def _list_hidden(policy: SandboxPolicy, text: str) -> list[str]:
    """Return the words of a command that name hidden files of the workspace."""
    from whet.shell.reading import read  # noqa: PLC0415 - 50 ms of CPU: tree-sitter

    paths = {word: policy.workspace / os.path.expanduser(word) for word in read(text).files}
    real = {word: Path(os.path.realpath(path)) for word, path in paths.items() if "\0" not in word}
    return [
        word for word, path in real.items() if is_below(path, policy.workspace) and not policy.may_read(path)
    ]


def _describe_need(policy: SandboxPolicy, opening: Opening) -> str:
    """Return a line about an opening that a command would need. If it can't be given, the line says why."""
    if opening.kind != "run":
        try:
            policy.with_openings([opening])
        except WhetError as error:
            return f"it would need: {opening.words}; {error.message}"
    return f"it would need: {opening.words}"


def _list_protected(policy: SandboxPolicy) -> list[str]:
    """Return the protected names that exist in the workspace."""
    paths = frozenset(policy.protected_paths())
    return [name for name in policy.protected if policy.workspace / name in paths]


def _join_paths(paths: Sequence[Path]) -> str:
    return ", ".join(printable(shorten(str(path))) for path in paths)
