"""From what was asked on the command line to an open session; the one-shot and the chat share it.

The options that say which model answers stand here for every command that asks one. It does not know how a
turn is shown.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from whet import log
from whet.agent.session import Session
from whet.app.build import App
from whet.cli.output import terminal_width, wrapped
from whet.cli.wording import columns
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError
from whet.contract.protocols import Person
from whet.store import sessions

Output = Literal["text", "json", "stream-json"]
F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = {
    "provider": "model.provider",
    "base_url": "model.base_url",
    "model": "model.model",
    "api_key_env": "model.api_key_env",
    "format": "model.format",
}
_OPTIONS = (
    click.option("--provider", help="The provider's name."),
    click.option("--base-url", help="The API's root."),
    click.option("--model", help="The model's name."),
    click.option("--api-key-env", metavar="NAME", help="The variable that holds the key."),
    click.option("--format", metavar="FORMAT", help="chat_completions, anthropic_messages or responses."),
)
approvals_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--approvals", type=click.Choice(["ask", "auto", "deny"]), help="What runs without a question."
)


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What `whet chat` was called with. `flags` maps settings' keys to values, None where not given."""

    home: Home
    flags: Mapping[str, object] = field(default_factory=dict[str, object])
    question: str | None = None
    output: Output = "text"
    session_id: str = ""
    go_on: bool = False
    images: tuple[Path, ...] = ()
    private: bool = False
    title: str = ""
    warm: str = ""
    picks: bool = False
    plans: bool = False


def workspace_of(settings: Settings) -> Path:
    """Give the folder that the settings name, else the current one."""
    return Path(settings.tools.workspace or os.getcwd()).expanduser().absolute()


async def start_app(options: ChatOptions, settings: Settings, person: Person) -> App:
    """Open the program's resources for the workspace that the settings name. Sends nothing."""
    workspace = workspace_of(settings)
    if not workspace.is_dir():
        raise ConfigError(f"the workspace {workspace} is not a folder", hint="--workspace DIR names one")
    secrets = load_secrets(options.home, os.environ)
    if settings.mcp.servers and sys.stderr.isatty():
        _say_what_takes_long(options.home, settings)
    log.start(options.home.logs)  # or a plugin's stack would go to the terminal
    app = await App.start(options.home, settings, secrets, person, workspace)
    gc.freeze()  # what the imports and the start have made stays to the end, and need not be looked through
    gc.set_threshold(50_000, 20, 50)
    return app


def _say_what_takes_long(home: Home, settings: Settings) -> None:
    """Name the MCP servers that must be asked before the first session."""
    from whet.mcp.kept import read_kept  # noqa: PLC0415 - few homes have servers

    servers = settings.mcp.servers.items()
    unknown = [name for name, server in servers if server.enabled and read_kept(home, name, server) is None]
    if unknown:
        sys.stderr.write(f"asking {', '.join(unknown)} for their tools, once ...\n")


def load_settings(options: ChatOptions, read: Callable[[str], str] | None) -> Settings:
    """Load the settings with the command line's flags on top; find a model first where none is set.

    `read` asks the person a line; None where nobody is there, then that is a ConfigError. Not to be
    called from an event loop.
    """
    loaded = load(options.home, options.flags, environ=os.environ)
    for warning in loaded.warnings:
        sys.stderr.write(f"note: {warning}\n")
    if not (loaded.settings.model.provider or loaded.settings.model.base_url):
        # Found on demand: a first run comes once, and what it needs is not cheap to import.
        from whet.app.discover import choose  # noqa: PLC0415

        choose(options.home, load_secrets(options.home, os.environ), _say, read)
        loaded = load(options.home, options.flags, environ=os.environ)
    return loaded.settings


def _say(line: str) -> None:
    indent = len(line) - len(line.lstrip())
    sys.stderr.write((wrapped(line, indent=indent) if columns(line) > terminal_width() else line) + "\n")


async def open_session(app: App, options: ChatOptions) -> Session:
    """Open the session that was asked for: a named one, the latest of this folder, or a new one."""
    session = await _session_of(app, options)
    if options.plans:
        from whet.app.planning import set_planning  # noqa: PLC0415 - few sessions plan

        await set_planning(app, session.id, True)
    return session


async def _session_of(app: App, options: ChatOptions) -> Session:
    if options.session_id:
        name = options.session_id
        return await app.open_session(await app.database.read(lambda db: sessions.resolve(db, name)))
    if options.go_on:
        return await app.open_session(await app.sessions.latest())
    return await app.new_session(private=options.private, title=options.title, warm=options.warm)


async def forget_empty(app: App, session: Session) -> None:
    """Delete a session in which nothing was ever said; others stay as they are."""
    if session.log.session.turns == 0 and not session.log.messages:
        await app.database.write(lambda db: sessions.delete(db, session.id))


def model_options(command: F) -> F:
    """Add the options to a command, which gets their values by name; None where one was not given."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def model_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """Give the settings that the options stand for."""
    return {key: given[name] for name, key in _SETTINGS.items()}
