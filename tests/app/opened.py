"""An App on a practice model, with the settings that a test names, and turns in its sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import Home, find_home
from whet.config.schema import ModelSettings, Settings
from whet.contract.events import Event, TurnEnd
from whet.contract.protocols import NobodyPresent, Person


def practice_model(base_url: str, model: str = "practice", **options: Any) -> ModelSettings:
    """Return the settings of a model of a practice server."""
    return ModelSettings(provider="practice", base_url=base_url, model=model, **options)


@asynccontextmanager
async def open_app(
    home: Path, workspace: Path, model: ModelSettings, person: Person | None = None, **sections: Any
) -> AsyncGenerator[App]:
    """Start an App whose other settings are `sections`, and close it. Without a person, nobody is present."""
    settings = Settings(model=model, **sections)
    async with aclosing(
        await App.start(Home(home), settings, {}, person or NobodyPresent(), workspace)
    ) as app:
        yield app


@asynccontextmanager
async def opened(settings: Mapping[str, object], workspace: Path) -> AsyncGenerator[App]:
    """Start an App in the test's home with settings as flags give them, and close it."""
    home = find_home()
    loaded = load(home, settings, environ=os.environ).settings
    async with aclosing(await App.start(home, loaded, {}, NobodyPresent(), workspace, source="api")) as app:
        yield app


async def ask(session: Session, text: str, events: list[Event] | None = None) -> TurnEnd:
    """Run one turn; its events are added to `events`."""
    kept: list[Event] = [] if events is None else events
    return await run_turn(session, session.user_message(text), kept.append)
