"""Gathers what the status line says from the running program: cheap to ask, at any time, on every redraw."""

from __future__ import annotations

import asyncio
from pathlib import Path

from whet.agent.session import Session
from whet.app.build import App
from whet.cli import jobs, mode
from whet.cli.plan import counted
from whet.cli.status import StatusFacts, branch_of, status_line
from whet.contract.events import Event, StepFinished


class StatusBoard:
    """The facts of one chat. What is slow to find out is looked up by `look`, between turns."""

    def __init__(self, app: App, *, plain: bool) -> None:
        self._app = app
        self._plain = plain
        self._used_tokens = 0
        self._branch = branch_of(app.workspace)
        self._sandbox = "no sandbox" if app.settings.sandbox.mode == "off" else ""
        home, whole = str(Path.home()), str(app.workspace)
        self._folder = "~" + whole[len(home) :] if home != "/" and whole.startswith(home) else whole

    def see(self, event: Event) -> None:
        """Take what a step has spent."""
        if isinstance(event, StepFinished):
            usage = event.usage
            self._used_tokens = usage.prompt_tokens + usage.output_tokens

    async def look(self, session: Session) -> None:
        """Find out what may have changed: branch, context, whether commands are confined."""
        self._branch = branch_of(self._app.workspace)
        self._used_tokens = (await session.context.status()).used_tokens
        if "confinement" in self._app.__dict__ and not self._sandbox:  # made by the first command
            status = await asyncio.to_thread(self._app.confinement.status)
            self._sandbox = "sandbox" if status.holds else "no sandbox"

    def line(self, session: Session, width: int) -> str:
        """Give the line for a width; empty where none is wanted."""
        app = self._app
        window = session.model.window_tokens
        facts = StatusFacts(
            model=session.model.model,
            branch=self._branch,
            folder=self._folder,
            context_used=self._used_tokens / window if window else 0.0,
            tokens=session.usage.total_tokens,
            cost_usd=session.usage.cost_usd,
            mode=mode.mode_of(app.gate, session),
            sandbox=self._sandbox,
            jobs=len(jobs.running(app)),
            plan=counted(app.todo_lists.get(session.id)),
        )
        return status_line(facts, app.settings.ui.status_line, width, plain=self._plain)
