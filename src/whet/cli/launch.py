"""From what was asked on the command line to an open session; the one-shot and the chat share it.

It does not know how a turn is shown.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from whet.agent.session import Session
from whet.app.build import App
from whet.config.load import Loaded, load
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.config.secrets import load_secrets
from whet.contract.errors import ConfigError
from whet.contract.protocols import Person

Output = Literal["text", "json", "stream-json"]


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


def workspace_of(settings: Settings) -> Path:
    """Give the folder that the settings name, else the current one."""
    return Path(settings.tools.workspace or os.getcwd()).expanduser().absolute()


async def start_app(options: ChatOptions, settings: Settings, person: Person) -> App:
    """Open the program's resources for the workspace that the settings name. Sends nothing."""
    workspace = workspace_of(settings)
    if not workspace.is_dir():
        raise ConfigError(f"the workspace {workspace} is not a folder", hint="--workspace DIR names one")
    secrets = load_secrets(options.home, os.environ)
    return await App.start(options.home, settings, secrets, person, workspace)


def load_settings(options: ChatOptions) -> Loaded:
    """Load the settings with the command line's flags on top."""
    return load(options.home, options.flags, environ=os.environ)


async def open_session(app: App, options: ChatOptions) -> Session:
    """Open the session that was asked for: a named one, the latest of this folder, or a new one."""
    if options.session_id:
        return await app.open_session(options.session_id)
    if options.go_on:
        return await app.continue_session()
    return await app.new_session(private=options.private, title=options.title)


def title_of(text: str) -> str:
    """Make a session's title from its first message: the first line, at most 60 characters."""
    line = " ".join(next((row for row in text.splitlines() if row.strip()), "").split())
    return line if len(line) <= 60 else line[:59].rstrip() + "…"
