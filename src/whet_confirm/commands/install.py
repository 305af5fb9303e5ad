"""`whet confirm install`: run the service as an OS user of its own, so that no agent can reach its files."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

import whet
from whet.config.paths import replace_file
from whet.contract.errors import ConfigError
from whet.terminal.output import emit_json, json_option
from whet_confirm.boundary import INSTALLED, SOCKET

USER = "whet-confirm"
UNIT = Path("/etc/systemd/system/whet-confirm.service")


class InstallPlan(msgspec.Struct, frozen=True):
    """The steps of an installation: the commands in order, and the systemd unit."""

    commands: tuple[tuple[str, ...], ...]
    unit_path: str
    unit: str


def plan_for(
    program: tuple[str, ...], approvers: tuple[str, ...], submitters: tuple[str, ...], has_user: bool
) -> InstallPlan:
    """Return the installation plan. Its unit lets the service write its own folder and nothing else."""
    arguments = [*program, "confirm", "serve", "--socket", str(SOCKET), "--no-first-tokens"]
    for option, names in (("--approver", approvers), ("--submitter", submitters)):
        for name in names:
            arguments += [option, name]
    unit = _UNIT.format(user=USER, command=shlex.join(arguments), home=INSTALLED, run=SOCKET.parent.name)
    create_user = (
        ("useradd", "--system", "--home-dir", str(INSTALLED), "--no-create-home", "--shell", _NO_SHELL, USER),
    )
    commands = (
        *(() if has_user else create_user),
        ("install", "-d", "-m", "0700", "-o", USER, "-g", USER, str(INSTALLED)),
        ("systemctl", "daemon-reload"),
        ("systemctl", "enable", "--now", UNIT.name),
    )
    return InstallPlan(commands, str(UNIT), unit)


# ProtectHome and PrivateTmp hide these from the service.
_HIDDEN_FOLDERS = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
_MAX_LINKS = 40
_NO_SHELL = "/usr/sbin/nologin"
_UNIT = """[Unit]
Description=Whet confirmation service
After=network.target

[Service]
User={user}
Group={user}
Environment=WHET_HOME={home}
ExecStart={command}
Restart=on-failure
RuntimeDirectory={run}
RuntimeDirectoryMode=0755
StateDirectory={user}
StateDirectoryMode=0700
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectProc=invisible
ProcSubset=pid
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources

[Install]
WantedBy=multi-user.target
"""


@click.command()
@click.option(
    "--approver", "approvers", multiple=True, metavar="USER", help="Who may decide, over the socket."
)
@click.option("--submitter", "submitters", multiple=True, metavar="USER", help="As whom agents run.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
def install(approvers: tuple[str, ...], submitters: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Run the service as a user of its own, under systemd. Takes root; --dry-run does not.

    Agents can't read its files then, and nobody holds an approve token that they could take: the kernel says
    who is at the socket.

    \b
    whet confirm install --approver alice --submitter agent --dry-run
    """
    if same := sorted({*approvers} & {*submitters}):
        raise ConfigError(f"{same[0]} would ask and decide", hint="let agents run as a user of their own")
    script = Path(sys.executable).with_name("whet")
    program = (str(script),) if script.exists() else (sys.executable, "-m", "whet")
    hidden = find_hidden_path((program[0], sys.executable, sys.base_prefix, whet.__file__))
    if hidden and not dry_run:
        raise ConfigError(
            f"the service can't read {hidden}: its unit hides home folders and /tmp",
            hint="install python and whet for the whole machine, for example in /opt/whet",
        )
    plan = plan_for(program, approvers, submitters, _has_user())
    if as_json:
        emit_json(msgspec.to_builtins(plan))
    else:
        click.echo(f"# {plan.unit_path}\n{plan.unit}")
        click.echo("\n".join(f"# {shlex.join(command)}" for command in plan.commands))
    if dry_run:
        if hidden:
            click.echo(f"warning: the service can't read {hidden}: its unit hides home folders", err=True)
        return
    if os.geteuid() != 0:
        raise ConfigError("installing takes root", hint="sudo whet confirm install, or look first: --dry-run")
    _run_plan(plan)


def find_hidden_path(paths: Iterable[str | None]) -> str:
    """Return the first of the paths, or of the links on the way to it, that the unit hides from the service.

    Returns an empty string if it hides none.
    """
    for path in filter(None, paths):
        for step in _follow(path):
            if any(Path(step).is_relative_to(folder) for folder in _HIDDEN_FOLDERS):
                return step
    return ""


def _follow(path: str) -> Iterator[str]:
    """Yield a path, the target of each link that its last part leads through, and its real path."""
    step = os.path.abspath(path)
    yield step
    for _ in range(_MAX_LINKS):
        if not os.path.islink(step):
            break
        step = os.path.normpath(os.path.join(os.path.dirname(step), os.readlink(step)))
        yield step
    yield os.path.realpath(step)


def _run_plan(plan: InstallPlan) -> None:
    for command in plan.commands:
        if command[0] == "systemctl" and command[1] == "daemon-reload":
            replace_file(Path(plan.unit_path), plan.unit, mode=0o644)
        try:
            process = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise ConfigError(f"{shlex.join(command)}: {error.strerror}") from error
        if process.returncode:
            raise ConfigError(f"{shlex.join(command)} failed: {process.stderr.strip()[:300]}")


def _has_user() -> bool:
    try:
        pwd.getpwnam(USER)
    except KeyError:
        return False
    return True
