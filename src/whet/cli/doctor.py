"""`whet doctor`: run every check of the installation, and print how to fix each problem.

The exit code is 1 if a check failed. The checks are in `cli/checks.py` and `cli/database_checks.py`.
"""

from __future__ import annotations

import os
import sys

import click

from whet.cli import checks
from whet.cli.database_checks import check_database
from whet.cli.launch import workspace_of
from whet.cli.main import run_on_loop
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.log import mask
from whet.terminal.output import emit_json, json_option, style_text, wrap_text, wrap_width
from whet.terminal.wording import printable

_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "failed": ("✗", "red")}
_PLAIN_MARKS = {"ok": "ok", "warning": "!!", "failed": "XX"}
_LABEL = 11


@click.command("doctor")
@click.option("--online", is_flag=True, help="Also ask the model's server.")
@click.option("--full", is_flag=True, help="Also read every page of a large database.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, online: bool, full: bool, as_json: bool) -> None:
    """Check that everything works, and say how to fix what does not."""
    findings = [
        checks.DoctorFinding(finding.name, finding.state, mask(finding.text), mask(finding.fix))
        for finding in run_checks(ctx.obj, online=online, full=full)
    ]
    failed = sum(finding.state == "failed" for finding in findings)
    if as_json:
        emit_json({"ok": not failed, "checks": findings})
    else:
        for finding in findings:
            _print(finding)
        warned = sum(finding.state == "warning" for finding in findings)
        click.echo(f"\n{failed} failed, {warned} to look at" if failed or warned else "\nEverything is fine.")
    ctx.exit(1 if failed else 0)


def run_checks(home: Home, *, online: bool, full: bool = False) -> list[checks.DoctorFinding]:
    """Run every check and return the findings. If the settings can't be read, checks that need them are left
    out."""
    config_findings, loaded = checks.check_config(home, os.environ)
    report = [*checks.check_python(), *checks.check_home(home), *checks.check_disk(home), *config_findings]
    report += checks.check_secrets(home)
    if loaded is not None:
        report.append(checks.check_provider(home, loaded.settings, os.environ))
        report += checks.check_accounts(home, loaded.settings, os.environ)
        if online and report[-1].state == "ok":
            check = checks.check_online(home, loaded.settings, os.environ, SystemClock())
            report.append(run_on_loop(check))
        report += checks.check_dialects(home, SystemClock().now().date())
        report += checks.check_prices(home, SystemClock())
        report += checks.check_servers(home, loaded.settings)
        report += checks.check_language_servers(home, loaded.settings, workspace_of(loaded.settings))
        report += checks.check_sandbox(loaded.settings)
        report += checks.check_file_rules(loaded.settings)
        report += checks.check_notes(home, loaded.settings)
    report += [*check_database(home, full=full), *checks.check_confirmations(home)]
    report += checks.check_confirmation_channels(home)
    report += [*checks.check_commands(), *checks.check_terminal(), *checks.check_folders(home)]
    return report


def _print(finding: checks.DoctorFinding) -> None:
    mark, style = _MARKS[finding.state]
    if "utf" not in (sys.stdout.encoding or "").lower():
        mark = _PLAIN_MARKS[finding.state]
    head = f"{style_text(mark, style)} {finding.name:<{_LABEL - 3}} "
    _print_text(head, printable(finding.text))
    if finding.fix and finding.state != "ok":
        _print_text(" " * 2 + "fix:".ljust(_LABEL - 2), printable(finding.fix))


def _print_text(head: str, text: str) -> None:
    # click's wrapping would break paths, which people copy
    click.echo(head + wrap_text(text, indent=_LABEL, width=max(30, wrap_width()))[_LABEL:])
