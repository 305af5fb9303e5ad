"""`whet mcp add-browser`: add Playwright's MCP server, in a sandbox of its own.

The package is installed below ~/.local/lib, without its install scripts. The browser is the machine's own,
or Playwright downloads one. Chromium's own sandbox is off, because it already runs inside ours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import click

from whet.cli.main import run_on_loop
from whet.cli.mcp_servers.report import end_if_failed, reach_all, show_briefly
from whet.config.edit import set_table_entry
from whet.config.paths import Home
from whet.config.permission_settings import McpServerSettings
from whet.contract.errors import ConfigError, WhetError
from whet.contract.texts import from_values
from whet.terminal.output import emit_json, home_and_json, wrap_text

_PACKAGE = "@playwright/mcp"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_INSTALL_S = 600.0


@click.command("add-browser", short_help="Give the agent a browser: Playwright's MCP server, confined.")
@click.option("--name", default="browser", show_default=True, help="The server's name.")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Only these hosts, e.g. *.example.com.")
@click.option("--browser", "program", default="", metavar="PATH", help="The browser to start.")
@click.option("--no-test", is_flag=True, help="Do not start it now.")
@home_and_json
def add_browser(
    home: Home, name: str, hosts: tuple[str, ...], program: str, no_test: bool, as_json: bool
) -> None:
    """Install Playwright's MCP server and add it; its pages are seen as text and as pictures.

    It needs node and npm. The browser keeps no profile: each start is a new one, without logins.
    """
    folder = program_folder()
    command = _install_server(folder)
    browser = program or _find_browser() or _fetch_browser(folder)
    part = server_part(command, browser, hosts)
    server = from_values(part, McpServerSettings)
    replaced = set_table_entry(home, "mcp.servers", name, part)
    reports = [] if no_test else run_on_loop(reach_all(home, {name: server}))
    if as_json:
        test = reports[0] if reports else None
        emit_json({"name": name, "replaced": replaced, "path": str(home.config), "test": test})
    else:
        click.echo(wrap_text(f"{name} is {'replaced' if replaced else 'added'} in {home.config}"))
        for report in reports:
            show_briefly(report)
    end_if_failed(reports, as_json=as_json)


def _find_browser() -> str:
    """Return the path of an installed browser, or an empty string."""
    for name in _BROWSERS:
        if path := shutil.which(name):
            return path
    return ""


def program_folder() -> Path:
    """Return the folder for the server, which every sandbox may read without an opening.

    Chromium needs Unix sockets of its own, which a sandbox with an opened folder does not have.
    """
    return Path("~/.local/lib/whet-browser").expanduser()


def server_part(script: Path, browser: str, hosts: tuple[str, ...]) -> dict[str, object]:
    """Return the server's entry for config.yaml."""
    args = [
        str(script),
        "--headless",
        "--isolated",
        "--no-sandbox",
        "--image-responses",
        "allow",
        "--output-dir",
        "/tmp/browser",
    ]
    openings = [f"reach {host}" for host in hosts or ("*",)]
    return {
        "command": shutil.which("node") or "node",
        "args": [*args, "--executable-path", browser],
        "openings": openings,
        "timeout_s": 120.0,
        "start_timeout_s": 60.0,
    }


def _install_server(folder: Path) -> Path:
    """Install the package if it is missing, and return its program. Raises WhetError."""
    script = folder / "node_modules" / "@playwright" / "mcp" / "cli.js"
    if script.is_file():
        return script
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise ConfigError("the browser needs node and npm", hint="install Node.js 18 or later")
    folder.mkdir(parents=True, exist_ok=True)
    click.echo(f"installing {_PACKAGE} into {folder}", err=True)
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"]
    _run([npm, "install", "--prefix", str(folder), *quiet, _PACKAGE], {})
    if not script.is_file():
        raise WhetError(f"{_PACKAGE} was installed, but {script} is not there")
    return script


def _fetch_browser(folder: Path) -> str:
    """Download a Chromium into our folder with Playwright, and return its program. Raises WhetError."""
    browsers_folder = folder / "browsers"
    click.echo(f"no Chromium on this machine: fetching one into {browsers_folder}", err=True)
    playwright = folder / "node_modules" / "playwright" / "cli.js"
    _run(
        [shutil.which("node") or "node", str(playwright), "install", "chromium"],
        {"PLAYWRIGHT_BROWSERS_PATH": str(browsers_folder), **_npm_network()},
    )
    paths = sorted(browsers_folder.glob("chromium-*/chrome-*/chrome"))
    if not paths:
        raise WhetError("Playwright fetched no Chromium", hint="install one, or name it: --browser PATH")
    return str(paths[-1])


def _npm_network() -> dict[str, str]:
    """Return npm's certificates and proxy as environment variables. Playwright's downloads read only
    those."""
    variables: dict[str, str] = {}
    for setting, variable in (("cafile", "NODE_EXTRA_CA_CERTS"), ("https-proxy", "HTTPS_PROXY")):
        if not os.environ.get(variable):
            value = _run([shutil.which("npm") or "npm", "config", "get", setting], {}).strip()
            if value not in ("", "null", "undefined"):
                variables[variable] = value
    return variables


def _run(command: list[str], variables: dict[str, str]) -> str:
    """Run a program with further variables and return its output. Raises WhetError if it fails."""
    try:
        process = subprocess.run(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_INSTALL_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WhetError(f"{Path(command[0]).name} could not do it: {error}") from error
    if process.returncode:
        output = " ".join((process.stderr or process.stdout).split())[:4_000]
        raise WhetError(f"{Path(command[0]).name} failed: {output}")
    return process.stdout
