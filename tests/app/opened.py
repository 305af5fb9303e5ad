"""An App with the settings of a chat, and turns in its sessions."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.config.load import load
from whet.config.paths import find_home
from whet.contract.events import Event, TurnEnd
from whet.contract.protocols import NobodyPresent


@asynccontextmanager
async def opened(settings: Mapping[str, object], workspace: Path) -> AsyncGenerator[App]:
    """Start an App in the test's home, and close it."""
    home = find_home()
    loaded = load(home, settings, environ=os.environ).settings
    async with aclosing(await App.start(home, loaded, {}, NobodyPresent(), workspace, source="api")) as app:
        yield app


async def ask(session: Session, text: str, events: list[Event] | None = None) -> TurnEnd:
    """Run one turn; its events are added to `events`."""
    kept: list[Event] = [] if events is None else events
    return await run_turn(session, session.user_message(text), kept.append)
