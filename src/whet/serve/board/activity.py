"""The page of goals, schedules, background jobs and MCP servers, with the forms that start and remove
them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import quote

import apsw
import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from whet.clock import local_zone
from whet.contract.errors import WhetError
from whet.serve.board import shown
from whet.serve.board.box import parse_folder
from whet.serve.board.frame import Frame
from whet.serve.wire import ApiError
from whet.store import schedules
from whet.store.schedules import Schedule, ScheduleAdder, ScheduleRun, ScheduleWish
from whet.web.sessions import Visit

_MAX_LISTED = 60
_NOTHING_TYPED: Mapping[str, str] = MappingProxyType({})


class ShownSchedule(msgspec.Struct, frozen=True):
    """A schedule or goal, its next time (empty if it never runs again), and its last run."""

    schedule: Schedule
    next: str
    last: ScheduleRun | None


class ShownServer(msgspec.Struct, frozen=True):
    """A configured MCP server, the number of its tools, and why it failed."""

    name: str
    address: str
    is_enabled: bool
    tools: int
    failure: str


class ShownJob(msgspec.Struct, frozen=True):
    """A background command of a session in this process."""

    id: str
    command: str
    runs_for: str


class ActivityPages:
    """Shows goals, schedules, background jobs and MCP servers; adds and removes goals and schedules."""

    def __init__(self, frame: Frame, add_schedule: ScheduleAdder | None = None) -> None:
        self._frame = frame
        self._add_schedule = add_schedule

    async def show(self, request: Request, visit: Visit) -> Response:
        """Show the page."""
        return await self._page(visit)

    async def _page(
        self,
        visit: Visit,
        refused: str = "",
        problem: str = "",
        typed: Mapping[str, str] = _NOTHING_TYPED,
    ) -> Response:
        """Render the page. `refused` names a refused form ("goals" or "schedules"), which is shown open, with
        the typed values and the problem."""
        services = self._frame.services

        def read(db: apsw.Connection) -> list[ShownSchedule]:
            rows = sorted(schedules.list_schedules(db), key=lambda row: row.created, reverse=True)[
                :_MAX_LISTED
            ]
            return [
                ShownSchedule(
                    row,
                    schedules.find_next_due(db, row.id),
                    next(iter(schedules.list_runs(db, row.id, 1)), None),
                )
                for row in rows
            ]

        rows = await services.database.read(read)
        return self._frame.page(
            "activity.html",
            visit,
            400 if refused else 200,
            here="activity",
            goals=[row for row in rows if row.schedule.goal is not None],
            schedules=[row for row in rows if row.schedule.goal is None],
            servers=self._list_servers(),
            jobs=self._list_jobs(),
            folder=str(services.workspace),
            time_zone=services.settings.agent.time_zone or local_zone(),
            adds_schedules=self._add_schedule is not None,
            refused=refused,
            typed=typed,
            problem=problem,
        )

    async def begin_goal(self, request: Request, visit: Visit) -> Response:
        """Queue a goal, which a worker runs."""
        from whet.goals.queue import queue_goal  # noqa: PLC0415 - few pages have goals
        from whet.goals.text import GoalWish, parse_usd  # noqa: PLC0415 - the same

        form, services = request.state.form, self._frame.services
        try:
            wish = GoalWish(
                form.get("text", "").strip(),
                form.get("verify", "").strip(),
                parse_usd(form.get("budget", "")),
            )
            await queue_goal(
                services, wish, workspace=parse_folder(form.get("folder", ""), services.workspace)
            )
        except WhetError as error:
            return await self._page(visit, "goals", _describe(error), form)
        return RedirectResponse("/activity#goals", 303)

    async def add_schedule(self, request: Request, visit: Visit) -> Response:
        """Store a schedule, which a worker runs at its times."""
        form, services, store = request.state.form, self._frame.services, self._add_schedule
        if store is None:
            raise ApiError(404, "Schedules are added by whet cron add here.")
        texts = {
            name: form.get(name, "").strip()
            for name in ("prompt", "expression", "at", "name", "time_zone", "target")
        }
        try:
            folder = parse_folder(form.get("folder", ""), services.workspace)
            wish = ScheduleWish(workspace=str(folder or services.workspace), **texts)
            await services.database.write(lambda db: store(db, services.settings, wish, services.clock))
        except WhetError as error:
            return await self._page(visit, "schedules", _describe(error), form)
        return RedirectResponse("/activity#schedules", 303)

    async def change(self, request: Request, visit: Visit) -> Response:
        """Run a schedule now, stop a goal, or remove either."""
        from whet.goals.queue import stop_goal  # noqa: PLC0415 - few pages have goals

        services, name = self._frame.services, request.path_params["name"]
        action = request.state.form.get("do", "")
        if action not in ("run", "stop", "remove"):
            raise ApiError(400, "Say run, stop or remove.")
        try:
            schedule = await services.database.read(lambda db: schedules.find(db, name))
            if action == "run":
                await services.database.write(lambda db: schedules.run_now(db, schedule.id, services.clock))
            elif action == "stop":
                await stop_goal(services, schedule.id)
            else:
                await services.database.write(lambda db: schedules.remove(db, schedule.id))
        except WhetError as error:
            raise ApiError(409, f"{error.message}.") from error
        return RedirectResponse(f"/activity#s-{quote(schedule.id)}", 303)

    def _list_servers(self) -> list[ShownServer]:
        services = self._frame.services
        running = services.mcp
        servers: list[ShownServer] = []
        for name, settings in services.settings.mcp.servers.items():
            listing = running.listings.get(name) if running is not None else None
            failure = running.failures.get(name, "") if running is not None else ""
            servers.append(
                ShownServer(
                    name,
                    shown.line(settings.url or " ".join((settings.command, *settings.args)), 120),
                    settings.enabled,
                    len(listing.offered) if listing is not None else 0,
                    shown.line(failure, 200),
                )
            )
        return servers

    def _list_jobs(self) -> list[ShownJob]:
        processes = self._frame.services.processes.processes
        now_s = time.monotonic()
        return [
            ShownJob(
                process.id, shown.line(process.command.text, 160), shown.duration(now_s - process.started_s)
            )
            for process in (processes.list_background() if processes is not None else ())
            if process.is_alive()
        ]


def _describe(error: WhetError) -> str:
    return f"{error.message}. {error.hint}".rstrip(". ") + "."
