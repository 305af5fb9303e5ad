"""Run a schedule once: open its session, run its unattended turn, and deliver its answer.

The program is built for each run from the current settings. After a kill the turn resumes at its last step:
calls without a result are not run again, and the model reads "interrupted, outcome unknown". This module does
not know leases.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from whet import log
from whet.agent.session import Session
from whet.app.build import App
from whet.app.conversations.session_parts import SessionExtras
from whet.app.conversations.sessions import SessionOpener
from whet.app.helpers.follow_up_turns import list_unmerged, run_with_followups
from whet.app.plugins import parts as plugin_parts
from whet.app.services import Services
from whet.beneath import explain_failure, replace_file
from whet.channels.pieces import split_message
from whet.config.load import load
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.config.secrets import load_secrets
from whet.contract.channels import Outgoing
from whet.contract.errors import ConfigError, NotFound, StoreBusy, WhetError
from whet.contract.events import TurnEnd, show_nothing
from whet.contract.protocols import NobodyPresent
from whet.schedules import timing
from whet.store import chats, schedules, sessions, turns
from whet.store.jobs import QueuedJob
from whet.store.schedules import RunEnd, Schedule, ScheduleRun

SOURCE = "cron"
NOTIFY = "notify"
_KEPT_CHARS = 2_000
_UNATTENDED = (
    "This message comes from the schedule {name!r}. Nobody is there: a question gets no answer, and what"
    " would need an approval is denied unless a rule allows it."
)


class RunResult(msgspec.Struct, frozen=True):
    """The result of a run: how its turn ended, a line about a problem, and the answer."""

    result: RunEnd
    note: str = ""
    text: str = ""

    @property
    def row(self) -> tuple[RunEnd, str, str]:
        """The values to store: the note is masked, and both texts are cut."""
        return self.result, log.mask(self.note)[:500], self.text[:_KEPT_CHARS]


async def run_schedule(home: Home, schedule: Schedule, run: ScheduleRun) -> RunResult:
    """Run a schedule's run to its end and deliver its answer.

    Raises StoreError, and CancelledError after the turn was ended as cancelled. A missing folder, session or
    setting is returned as a failed result.
    """
    log.start_logging(home.logs)
    try:
        settings = _load_settings(home, schedule)
        workspace = Path(schedule.workspace)
        if not workspace.is_dir():
            raise ConfigError(f"the folder {workspace} is gone")
        secrets = load_secrets(home, os.environ)
        app = await App.start(home, settings, secrets, NobodyPresent(), workspace, source=SOURCE)
    except (ConfigError, NotFound) as error:
        return _make_failure(error)
    try:
        if schedule.goal is not None:
            from whet.schedules import goals  # noqa: PLC0415 - few schedules are goals

            goal_end = await goals.pursue(app.sessions, schedule, schedule.goal, run, _extras(schedule))
            return await _deliver(app.services, schedule, RunResult(*goal_end))
        session = await _open_session(app.sessions, schedule, run)
        outcome = await _run_turn(app.sessions, session, schedule, run)
        lines = [*await _list_denied(app.services, run), *await list_unmerged(app.sessions.helpers, session)]
        if lines:
            note, text = "; ".join(filter(None, (outcome.note, *lines))), "\n\n".join((outcome.text, *lines))
            outcome = RunResult(outcome.result, note, text)
        return await _deliver(app.services, schedule, outcome)
    except (ConfigError, NotFound) as error:
        return _make_failure(error)
    finally:
        await app.aclose()


def _target_path(schedule: Schedule, now: datetime) -> Path | None:
    """Return the file for the answer, with {date} and {time} replaced, or None for other targets."""
    if schedule.target in ("", NOTIFY) or is_chat(schedule.target):
        return None
    local = now.astimezone(timing.find_zone(schedule.time_zone))
    name = schedule.target.replace("{date}", local.strftime("%Y-%m-%d"))
    return Path(schedule.workspace) / Path(name.replace("{time}", local.strftime("%H%M"))).expanduser()


def _load_settings(home: Home, schedule: Schedule) -> Settings:
    settings = load(home, {}, environ=os.environ).settings
    if not schedule.toolsets:
        return settings
    tools = msgspec.structs.replace(settings.tools, toolsets=schedule.toolsets)
    return msgspec.structs.replace(settings, tools=tools)


def _extras(schedule: Schedule) -> SessionExtras:
    return SessionExtras(note=_UNATTENDED.format(name=schedule.name), turn_s=schedule.timeout_s)


async def _open_session(opener: SessionOpener, schedule: Schedule, run: ScheduleRun) -> Session:
    """Open the run's session, or the schedule's, or create one for the run."""
    extras = _extras(schedule)
    if run.session_id:
        return await opener.open_session(run.session_id, extras=extras)
    if schedule.session_id:
        session = await opener.open_session(schedule.session_id, extras=extras)
    else:
        session = await opener.new_session(title=schedule.name, extras=extras)
    await opener.services.database.write(lambda db: schedules.set_run_session(db, run.job_id, session.id))
    return session


async def _run_turn(
    opener: SessionOpener, session: Session, schedule: Schedule, run: ScheduleRun
) -> RunResult:
    if run.begun:  # a worker that died has already sent the prompt
        await opener.services.database.write(lambda db: schedules.count_resume(db, run.job_id))
        return await _finish_turn(opener, session, run)

    def record_prompt(connection: apsw.Connection) -> Sequence[QueuedJob]:
        schedules.record_prompt(connection, run.job_id, sessions.key_of(connection, session.id))
        return ()

    message = session.user_message(schedule.prompt)
    return _make_result(
        await run_with_followups(opener.helpers, session, message, show_nothing, record_prompt)
    )


async def _finish_turn(opener: SessionOpener, session: Session, run: ScheduleRun) -> RunResult:
    """Resume the run's turn. If it has already ended, return its result; later turns of the session do not
    count."""

    def read(connection: apsw.Connection) -> tuple[str, str, str]:
        key = sessions.key_of(connection, session.id)
        return turns.read_outcome(connection, key, run.turns_before + 1)

    reason, error, text = await opener.services.database.read(read)
    match reason:
        case "":
            try:
                return _make_result(await run_with_followups(opener.helpers, session, None, show_nothing))
            except NotFound as error:
                raise StoreBusy(f"somebody goes on with the turn in session {session.id}") from error
        case "answered" | "budget" | "failed" | "refused" | "crashed":
            return RunResult(reason, error, text)
        case _:
            return RunResult("stopped", "its worker was stopped", text)


async def _list_denied(services: Services, run: ScheduleRun) -> list[str]:
    """Return a line that counts the calls of a run that were denied, or an empty list if none was."""
    counts = await services.database.read(lambda db: schedules.count_denied_calls(db, run.job_id))
    if not counts:
        return []
    names = ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts)
    total = sum(count for _, count in counts)
    return [f"{total} {'call was' if total == 1 else 'calls were'} denied: {names}"]


def _make_failure(error: WhetError) -> RunResult:
    return RunResult("failed", f"{error.message}; {error.hint}" if error.hint else error.message)


def _make_result(end: TurnEnd) -> RunResult:
    return RunResult(end.reason if end.reason != "cancelled" else "stopped", end.error, end.text)


async def _deliver(services: Services, schedule: Schedule, outcome: RunResult) -> RunResult:
    """Write the answer to the target's file, or notify the person. Returns the result, with a note if that
    failed. The worker sends answers to chats."""
    if outcome.result == "answered" and (path := _target_path(schedule, services.clock.now())) is not None:
        writable = (schedule.workspace, *services.settings.sandbox.write)
        folders = [Path(folder).expanduser() for folder in writable]
        text = outcome.text if outcome.text.endswith("\n") else outcome.text + "\n"
        try:
            await asyncio.to_thread(replace_file, path, text.encode(), folders)
        except OSError as error:
            note = f"{path} can't be written ({explain_failure(error)})"
            return msgspec.structs.replace(outcome, note=note)
    if schedule.target == NOTIFY:
        loaded = None if services.plugins is None else services.plugins.loaded
        notifiers = plugin_parts.make_notifier_group(loaded, services.settings.notify)
        if notifiers is None:
            return msgspec.structs.replace(outcome, note=outcome.note or "no plugin that notifies is enabled")
        notifiers.notify(f"Whet: {schedule.name} ({outcome.result})", outcome.text or outcome.note)
        await notifiers.aclose()
    return outcome


# The path of a file target is absolute, so it begins with a slash and never matches.
_CHAT = re.compile(r"([a-z0-9][a-z0-9-]{0,31}):(\S+)")
_PIECE_CHARS = 1_900  # every platform accepts this many in one message


def is_chat(target: str) -> bool:
    """Return whether a target is a chat, such as telegram:12345678."""
    return _CHAT.fullmatch(target) is not None


def check_target(connection: apsw.Connection, target: str) -> None:
    """Raise ConfigError if the target is a chat that the gateway does not know."""
    if is_chat(target) and _find_chat(connection, target) is None:
        raise ConfigError(
            f"the gateway knows no conversation {target}",
            hint=f"say something to the bot there first; a file of that name is ./{target}",
        )


def queue_text(connection: apsw.Connection, target: str, text: str, now_ms: int) -> None:
    """Queue a text for a chat, inside the caller's transaction. A long text becomes several messages."""
    chat = _find_chat(connection, target)
    if chat is not None:
        parts = split_message(log.mask(text), _PIECE_CHARS)
        chats.queue_messages(
            connection, chat.id, [msgspec.json.encode(Outgoing(part)).decode() for part in parts], now_ms
        )


def _find_chat(connection: apsw.Connection, target: str) -> chats.ChatRecord | None:
    match = _CHAT.fullmatch(target)
    return chats.find_platform_chat(connection, match[1], match[2]) if match else None
