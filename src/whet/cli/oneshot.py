"""Run `whet chat -q`: one question, one turn, one answer.

Standard output carries only the answer. Everything else goes to standard error if that is a terminal. The
module imports neither rich nor prompt_toolkit, because its start-up time is limited by a test. Ctrl-C and
SIGTERM cancel the turn, durably, and then end the program.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whet.agent.loop import run_turn
from whet.agent.session import Session, receipt_of
from whet.app.conversations.sessions import SessionOpener
from whet.cli.launch import ChatOptions, Output, load_settings, open_session, start_app, workspace_of
from whet.cli.main import ENDING_SIGNALS, run_on_loop, write_output
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.errors import ConfigError, WhetError
from whet.contract.events import (
    ApprovalAsked,
    ApprovalDecided,
    ConfirmationAsked,
    Event,
    Notice,
    Retry,
    ReviewQueued,
    StepFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEnd,
)
from whet.contract.messages import ImagePart, Message, Usage
from whet.contract.protocols import NobodyPresent, Person
from whet.contract.texts import call_subject, encode_output
from whet.log import mask, mask_keys
from whet.store.sessions import make_title
from whet.terminal import wording

if TYPE_CHECKING:
    from whet.terminal.person import LinePerson

_DIFF_ROWS = 16
_SHORT_CHARS = 10_000  # a question of this length is never cut
_EMPTY_HINT = 'whet chat --continue -q "go on"'


def run(options: ChatOptions) -> int:
    """Answer `options.question` and return the exit code.

    The code is 0 if the question was answered, 1 if the turn failed or ran out of steps or time, and 128 +
    the signal's number if a signal ended it. An error before the turn is raised, and with --json also printed
    as an object, as is a signal before the turn.
    """
    progress = _Progress()
    try:
        return _run_question(options, progress)
    except WhetError as error:
        if not progress.has_turn:
            _write_early_end(options.output, "failed", mask(error.message), mask(error.hint))
        raise
    except (KeyboardInterrupt, SystemExit):
        if not progress.has_turn:
            _write_early_end(options.output, "cancelled", "a signal ended the program before the turn", "")
        raise


class _Progress(msgspec.Struct):
    """How far a run has come. `home` is set if a worker should run its reviews afterwards."""

    has_turn: bool = False
    home: Home | None = None

    def note_home(self, home: Home) -> None:
        """Note the home whose reviews a worker should run."""
        self.home = home


def _write_early_end(output: Output, end_reason: str, error: str, hint: str) -> None:
    """Write the object of a run that ended before its turn, unless its output is text."""
    if output == "text":
        return
    row = {"type": "result"} if output == "stream-json" else {}
    row |= {"session_id": "", "text": "", "end_reason": end_reason, "error": error, "hint": hint}
    with suppress(WhetError):
        write_output(msgspec.json.encode(row).decode() + "\n")


def _run_question(options: ChatOptions, progress: _Progress) -> int:
    is_interactive = options.output == "text" and sys.stdin.isatty() and sys.stderr.isatty()
    settings = load_settings(options, _ask if is_interactive else None)
    folder = workspace_of(settings)
    typed_question = options.question or ""
    mentioned: Sequence[Path] = ()
    notices: list[str] = []
    if "@" in typed_question:
        from whet.cli.question_input import find_mentioned  # noqa: PLC0415 - few questions name files

        mentioned, notices = find_mentioned(typed_question, folder)
    paths = (*options.images, *mentioned)
    question = _read_question(options, folder, notices)
    images: list[ImagePart] = []
    if paths:
        from whet.cli.question_input import load_images  # noqa: PLC0415 - few questions have images

        images = load_images(paths, folder, settings.approval.deny)
    try:
        return run_on_loop(_run(options, settings, question, images, notices, progress))
    finally:
        if progress.home:
            from whet.cli.successor import continue_as_worker  # noqa: PLC0415 - few questions are reviewed

            continue_as_worker(progress.home)


def _read_question(options: ChatOptions, workspace: Path, notices: list[str]) -> str:
    """Return the message, which includes standard input. Adds a line to `notices` for each omitted part."""
    question = options.question or ""
    if question.startswith("/"):
        from whet.cli.question_input import expand_command  # noqa: PLC0415 - few questions are commands

        question = expand_command(question, options.home.root, workspace)
    only_stdin, has_pipe = question in ("", "-"), is_piped()
    if only_stdin or len(question) > _SHORT_CHARS or has_pipe:
        from whet.cli.question_input import add_standard_input  # noqa: PLC0415 - as above

        question = add_standard_input("" if only_stdin else question, has_pipe, notices)
    if not question.strip():
        raise ConfigError("there is no question", hint='whet chat -q "..." or text on standard input')
    return question


def is_piped(fd: int = 0) -> bool:
    """Return whether `fd` is a pipe, a socket or a file, so that it may hold input."""
    with suppress(OSError):
        mode = os.fstat(fd).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)
    return False


async def _run(
    options: ChatOptions,
    settings: Settings,
    question: str,
    images: list[ImagePart],
    notices: Sequence[str],
    progress: _Progress,
) -> int:
    is_interactive = options.output == "text" and sys.stdin.isatty() and sys.stderr.isatty()
    line_person = _make_line_person(settings.ui.theme) if is_interactive else None
    person = _add_bell(line_person, settings) if line_person is not None else NobodyPresent()
    async with aclosing(await start_app(options, settings, person)) as app:
        if options.output == "text" and (settings.sandbox.mode == "off" or options.home.no_sandbox.exists()):
            from whet.sandbox.engine_cache import read_status  # noqa: PLC0415 - most starts have nothing to say

            if line := read_status(settings.sandbox.mode, options.home.main_root):
                _say(line)
        session = await open_session(app, options)
        if not session.log.session.title:
            await session.log.details.set_title(make_title(question))
        report = OneShotReport(session, options.output, app.sessions, settings.ui.theme)
        for notice in notices:
            report.emit(Notice(notice, must_show=True))
        progress.has_turn = True
        message = session.user_message(question, images, options.read_origin())
        code = await _answer(report, message, line_person)
        await app.leave_reviews(progress.note_home)
        return code


def _make_line_person(theme: str) -> LinePerson:
    from whet.terminal.person import LinePerson  # noqa: PLC0415 - only a terminal has a person

    return LinePerson(theme=theme)


def _add_bell(person: LinePerson, settings: Settings) -> Person:
    from whet.terminal.bell import ring_for  # noqa: PLC0415 - only a terminal has a bell

    return ring_for(person, settings.notify)


def _ask(prompt: str) -> str:
    _write_stderr(prompt)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


async def _run_turns(report: OneShotReport, message: Message) -> None:
    """Run the turn, then the turns in which the results of background helpers are reported."""
    end = await run_turn(report.session, message, report.emit)
    if report.opener.helpers.created is not None:
        # imported here because few turns have helpers
        from whet.app.helpers.follow_up_turns import report_unmerged, run_followups  # noqa: PLC0415

        await run_followups(report.opener.helpers, report.session, report.emit, end)
        await report_unmerged(report.opener.helpers, report.session, report.emit)


async def _answer(report: OneShotReport, message: Message, person: LinePerson | None) -> int:
    """Run the turn and return the exit code. Ctrl-C and `ENDING_SIGNALS` cancel the turn; a second one exits
    at once."""
    loop = asyncio.get_running_loop()
    turn = asyncio.ensure_future(_run_turns(report, message))
    stopped_by: list[int] = []

    def stop(number: int) -> None:
        if stopped_by:
            os._exit(128 + number)
        stopped_by.append(number)
        turn.cancel()

    if person is not None:
        person.stop = partial(stop, signal.SIGINT)
    report.stop = lambda: None if stopped_by else stop(signal.SIGPIPE)
    if report.output == "stream-json":
        from whet.cli.pipes import watch_reader  # noqa: PLC0415 - no other output needs it

        watch_reader(report.stop)
    # The handlers stay until the loop closes: a signal after the answer must not leave processes behind.
    for number in (signal.SIGINT, *ENDING_SIGNALS):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup ignores that
            loop.add_signal_handler(number, stop, number)
    try:
        await turn
    except asyncio.CancelledError:
        if not stopped_by:
            raise
    code = report.finish(128 + stopped_by[0] if stopped_by else 0)
    return 128 + stopped_by[0] if stopped_by else code


class OneShotReport(msgspec.Struct):
    """Prints a turn's events in the format `output`, and collects the final object. `stop` is called when the
    reader of standard output has closed it."""

    session: Session
    output: Output
    opener: SessionOpener
    theme: str = "auto"
    stop: Callable[[], object] = bool
    _calls: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    _unanswered: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    _subjects: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    _notices: list[str] = msgspec.field(default_factory=list[str])
    _reviews: list[str] = msgspec.field(default_factory=list[str])
    _usage: Usage = msgspec.field(default_factory=Usage)
    _steps: int = 0
    _end: TurnEnd | None = None
    _began_s: float = 0.0
    _streams: bool = False
    _shows_calls: bool = False
    _open_line: bool = False
    _has_retried: bool = False

    def __post_init__(self) -> None:
        self._began_s = self.session.clock.monotonic_s()
        self._streams = self.output == "text" and sys.stdout.isatty()
        self._shows_calls = self.output != "stream-json" and sys.stderr.isatty()

    def emit(self, event: Event) -> None:
        """Handle one event."""
        if self.output == "stream-json":
            self._write(mask_keys(encode_output(event).decode()) + "\n")
        match event:
            case TextDelta():
                self._print_text(event.text)
            case StepFinished():
                self._steps = event.step
                self._usage += event.usage
                self._close_line()
            case ToolStarted():
                self._subjects[event.call_id] = call_subject(event.arguments)
            case ApprovalAsked():
                self._subjects[event.call_id] = event.subject
            case ApprovalDecided(verdict="deny", decided_by="nobody"):
                self._unanswered[event.call_id] = ""
            case ToolFinished():
                self._add_call(event)
            case ReviewQueued():
                self._reviews.append(event.job_id)
            case TurnEnd():
                self._end = event
            case _:
                self._print_aside(event)

    def finish(self, code: int) -> int:
        """Write the remaining output and return the exit code, which is `code` if that is not 0."""
        end = self._complete_end()
        self._close_line()
        if self._unanswered:
            line = wording.unanswered(self._unanswered.values())
            self._notices.append(mask(line))
            _say(mask(line))
        if self.output == "text":
            if not self._streams and end.text:
                self._write(end.text if end.text.endswith("\n") else end.text + "\n")
        else:
            self._write(mask_keys(encode_output(self._build_object(end)).decode()) + "\n")
        _say_end(end)
        if self._shows_calls:
            if end.receipt is not None:
                _say(wording.receipt(end.receipt, _count_columns()))
            _say(wording.footer(end))
        return code or int(end.reason != "answered" or not end.text.strip())

    def _complete_end(self) -> TurnEnd:
        """Return the turn's end, with an error if the answer is empty or nothing could be stored."""
        end = self._end or self._build_cancelled_end()
        if self.session.log.writer.db.is_file_lost:
            lost = "the home's state.db was deleted or replaced during the run, so nothing of it is stored"
            return msgspec.structs.replace(end, reason="failed", error=lost, hint="")
        if end.reason == "answered" and not end.text.strip():
            return msgspec.structs.replace(end, error="the model gave no answer", hint=_EMPTY_HINT)
        return end

    def _build_object(self, end: TurnEnd) -> dict[str, Any]:
        usage = msgspec.to_builtins(end.usage) | {"cache_hit_ratio": round(end.usage.cache_hit_ratio, 4)}
        row: dict[str, Any] = {"type": "result"} if self.output == "stream-json" else {}
        row |= {
            "session_id": end.session_id,
            "conversation_id": self.session.log.session.conversation_id,
            "text": end.text,
            "end_reason": end.reason,
            "steps": end.steps,
            "tool_calls": self._calls,
            "usage": usage,
            "notices": self._notices,
            "review": {"queued": self._reviews, "news": self._take_review_news()},
            "duration_s": round(end.duration_s, 3),
            "receipt": msgspec.to_builtins(end.receipt),
        }
        return row | ({"error": end.error, "hint": end.hint} if end.error else {})

    def _take_review_news(self) -> dict[str, int]:
        """Count the changes of reviews since the last report: learned, refused and waiting. Marks them as
        reported."""
        from whet.store import lesson_counts  # noqa: PLC0415 - only the object has it

        counts = self.opener.services.database.write_now(lesson_counts.take_unread)
        return {"learned": counts.learned, "refused": counts.refused, "waiting": counts.waiting}

    def _build_cancelled_end(self) -> TurnEnd:
        """Build the end of a cancelled turn from its events so far."""
        duration_s = self.session.clock.monotonic_s() - self._began_s
        receipt = receipt_of(self.session, self.session.log.live.turn_number) if self._calls else None
        return TurnEnd(
            self.session.id, "", "cancelled", "", self._steps, self._usage, duration_s, receipt=receipt
        )

    def _write(self, text: str) -> None:
        if not write_output(text, self.session.id):
            self.stop()

    def _print_text(self, text: str) -> None:
        if self._streams:
            self._write(wording.printable(text))
            self._open_line = not text.endswith("\n") if text else self._open_line

    def _close_line(self) -> None:
        if self._open_line:
            self._write("\n")
            self._open_line = False

    def _add_call(self, event: ToolFinished) -> None:
        self._calls.append({"name": event.name, "ok": event.ok, "duration_s": round(event.duration_s, 3)})
        subject = self._subjects.pop(event.call_id, "") or call_subject(event.arguments)
        if event.call_id in self._unanswered:
            self._unanswered[event.call_id] = subject or event.name
        if self._shows_calls:
            mark = "+" if event.ok else "x"
            width = _count_columns()
            _say(wording.call_line(event.name, subject, width, mark=mark, tail=wording.outcome(event)))
            if reason := wording.failure(event):
                _say("  " + wording.clip(reason, width - 2))
            if event.edits:
                _say_edits(event, width, self.theme)

    def _print_aside(self, event: Event) -> None:
        line = wording.aside(event)
        if isinstance(event, Notice) and line:
            self._notices.append(mask(line))
        # A confirmation and an outage may last for minutes. The person must know why nothing happens.
        must_show = isinstance(event, ConfirmationAsked) or (isinstance(event, Notice) and event.must_show)
        if isinstance(event, Retry) and not self._has_retried:
            self._has_retried = must_show = True
        if line and (self._shows_calls or must_show):
            self._close_line()
            _say(mask(line))


def _say_edits(event: ToolFinished, width: int, theme_name: str) -> None:
    from whet.terminal.diff_view import paint_edit  # noqa: PLC0415 - only after an edit
    from whet.terminal.themes import find_theme  # noqa: PLC0415 - as above

    theme = find_theme(theme_name, os.environ)
    for edit in event.edits:
        if len(event.edits) > 1:
            _say(f"  +{edit.added:,} −{edit.removed:,} {wording.printable(edit.path)}")
        for row in paint_edit(edit, theme, _DIFF_ROWS, width):
            _say(row.to_line())


def _say_end(end: TurnEnd) -> None:
    """Write why a turn ended, unless it ended with an answer."""
    if end.reason == "answered":
        line = f"error: {mask(end.error)}" if end.error else ""
    elif end.reason in ("failed", "refused", "crashed"):
        line = f"error: {mask(wording.ending(end))}"
    else:
        line = wording.ending(end)
    if line:
        _say(line)
    if end.hint:
        _say(f"hint: {mask(wording.printable(end.hint))}")


def _count_columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _say(line: str) -> None:
    _write_stderr(line + "\n")


def _write_stderr(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError as error:
        if error.errno != errno.EIO:  # a terminal that was closed
            raise
