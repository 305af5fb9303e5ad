"""The chat at the terminal: handle typed lines as messages, steering or commands, and show events.

It holds the current session and turn. Lasting data is in the store before it is shown.
`terminal/screen.py` handles the terminal itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from whet.agent.session import Session
from whet.app.conversations.sessions import SessionOpener
from whet.app.conversations.slash import Commands, announce, argument_of, parse, unescape
from whet.app.services import Services
from whet.cli.interactive import jobs
from whet.cli.interactive.chat_control import ChatControl
from whet.cli.interactive.chat_words import name_chat_commands
from whet.cli.interactive.commands import add_plugin_commands
from whet.cli.interactive.greeting import greet, show_session
from whet.cli.interactive.key_actions import KeyActions
from whet.cli.interactive.learning_commands import run_skill, run_with_argument
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.cli.interactive.status import StatusBoard
from whet.cli.launch import ChatOptions, forget_empty, open_session, start_app, workspace_of
from whet.cli.main import run_on_loop, run_until_signal
from whet.config.schema import Settings
from whet.contract.errors import WhetError
from whet.contract.events import Event, ReviewFinished, ToolFinished, TurnEnd
from whet.contract.messages import Message
from whet.log import mask
from whet.store import lesson_counts, turns
from whet.store.database import StateDatabase
from whet.store.jobs import TransactionWork, queue_nothing
from whet.store.sessions import make_title
from whet.terminal import attach
from whet.terminal.bell import TerminalBell, ring_at_end, ring_for
from whet.terminal.first_frame import FirstFrame
from whet.terminal.live import Surface, TerminalTurnView, person_text
from whet.terminal.pasted_text import fold_pastes
from whet.terminal.prompt import InputCompleter
from whet.terminal.render import Painter
from whet.terminal.screen import LineScreen, PromptSignal, Screen, Typed
from whet.terminal.signs import Marks
from whet.terminal.terminal import Terminal
from whet.terminal.wording import printable, review_line

if TYPE_CHECKING:
    from whet.memory.service import LearningService

T = TypeVar("T")
_PREPARE_S = 0.5  # after the first prompt was drawn


def run(options: ChatOptions, settings: Settings, frame: FirstFrame) -> int:
    """Chat until the person quits, and return the exit code. The input line is drawn over `frame`."""
    return run_on_loop(_run(options, settings, frame))


async def _run(options: ChatOptions, settings: Settings, frame: FirstFrame) -> int:
    commands: Commands[ChatControl] = Commands()
    for command in SLASH_COMMANDS:
        commands.add(command)
    state = _TerminalState(Painter(markdown=settings.ui.markdown, theme=settings.ui.theme), frame)
    screen = _open_screen(options, settings, commands, state)
    screen.stop_turn = state.stop_turn
    person = ring_for(screen.person, settings.notify)
    async with aclosing(await start_app(options, settings, person, screen.write)) as app:
        plugin_notes = add_plugin_commands(app.services.plugins, commands)
        session = await open_session(app, options)
        chat = TerminalChat(app.sessions, session, screen, commands, state)
        for line in plugin_notes:
            chat.say(line, "dim")
        loop = asyncio.get_running_loop()
        loop.call_later(_PREPARE_S, loop.run_in_executor, None, chat.painter.prepare)
        code = await chat.run(options.images, picks=options.picks_session)
        await forget_empty(app.database, chat.session)
        await app.leave_reviews()
        return code


def _open_screen(
    options: ChatOptions, settings: Settings, commands: Commands[ChatControl], state: _TerminalState
) -> Screen:
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown") or not sys.stdout.isatty():
        return LineScreen(state.marks, state.idle, settings.ui.theme)
    folder = workspace_of(settings)
    from whet.app.conversations.own_commands import list_prompt_commands  # noqa: PLC0415 - for completion only

    def list_names() -> list[tuple[str, str]]:
        prompts = list_prompt_commands(options.home.root, folder)  # read anew, as files may be added
        built_in = [(command.name, command.help) for command in commands]
        return [*built_in, *((prompt.name, prompt.description) for prompt in prompts)]

    completer = InputCompleter(list_names, lambda: folder)
    ui = settings.ui
    history, is_vi = options.home.history, ui.keys == "vi"
    return Terminal(state.marks, completer, history, state.painter, state.frame, vi=is_vi)


@dataclass(slots=True)
class _TerminalState:
    """The state of the terminal besides the session."""

    painter: Painter
    frame: FirstFrame
    turn: asyncio.Task[None] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    was_interrupted: bool = False
    was_warned_of_jobs: bool = False
    is_leaving: bool = False
    exit_code: int = 0
    marks: Marks = field(default_factory=lambda: Marks.for_encoding(sys.stdout.encoding))

    def __post_init__(self) -> None:
        self.idle.set()

    def stop_turn(self) -> None:
        """Cancel the running turn, if there is one."""
        if self.turn is not None:
            self.turn.cancel()

    async def end_turn(self) -> None:
        """Cancel the running turn, if there is one, and wait for its end."""
        if turn := self.turn:
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)


class _ReviewNews:
    """Shows the results of reviews between turns."""

    def __init__(
        self, state: _TerminalState, screen: Screen, say: Callable[[str, str], None], database: StateDatabase
    ) -> None:
        self._state = state
        self._screen = screen
        self._say = say
        self._database = database
        self._lines: list[tuple[str, str, str]] = []

    def add(self, finished: ReviewFinished) -> None:
        """Show a review's result as soon as possible. The result is ignored if nothing was saved, unless the
        review failed or the person had asked for it."""
        if finished.state == "saved":
            self._lines.append((name_chat_commands(review_line(finished)), "cyan", finished.job_id))
        elif finished.by_hand or finished.state == "failed":
            self._lines.append((name_chat_commands(review_line(finished)), "dim", finished.job_id))
        self.show()

    def show(self, *, at_rest: bool = False) -> None:
        """Show each new line once, unless a turn runs or the input holds text. `at_rest`: it holds none."""
        if self._state.turn is None and (at_rest or self._screen.is_quiet()):
            lines, self._lines = self._lines, []
            for line, style, job_id in lines:
                self._say(line, style)
                self._database.submit(partial(lesson_counts.mark_task_read, task_id=job_id))


class TerminalChat:
    """The conversation at a terminal. It is the `ChatControl` of slash commands."""

    def __init__(
        self,
        opener: SessionOpener,
        session: Session,
        screen: Screen,
        commands: Commands[ChatControl],
        state: _TerminalState,
    ) -> None:
        self.opener = opener
        services = opener.services
        self.services: Services = services
        self.session = session
        self.commands = commands
        self._screen, self._state = screen, state
        self.painter: Painter = state.painter
        self.marks: Marks = state.marks
        surface = Surface(lambda text: screen.write(state.marks.fit(text)), screen.refresh, screen.width)
        self._view = TerminalTurnView(surface, self.painter, state.marks)
        self._view.show_reasoning = services.settings.ui.show_reasoning
        self._view.plan = lambda: services.todo_lists.get(self.session.id)
        self._board = StatusBoard(services, plain=state.marks.plain)
        self._key_actions = KeyActions(self, screen)
        self._news = _ReviewNews(state, screen, self.say, services.database)
        self._waiting: list[Typed] = []
        services.reviews.get().listeners += [self._board.record_event, self._news.add]
        opener.helper_listeners.append(lambda _: screen.wake(PromptSignal.RESTED))

    async def run(self, images: Sequence[Path] = (), *, picks: bool = False) -> int:
        """Handle inputs until the person leaves. Returns the exit code. `picks` lists the sessions first."""
        self._key_actions.images = list(images)
        try:
            await run_until_signal(self._talk(picks=picks), self._end_at_signal)
        finally:
            await self._state.end_turn()
            self._key_actions.close()
            await self._screen.aclose()
        return self._state.exit_code

    async def _talk(self, *, picks: bool) -> None:
        await self._screen.start(self._view.lines, lambda width: self._board.line(self.session, width))
        greet(self)
        await self._show_session()
        self.services.reviews.get().start()
        self.services.schedules.get().start()
        if picks:
            await self._handle_line(Typed("/resume", "/resume", "/resume"))
        while not self._state.is_leaving:
            await self._handle_input(await self._screen.read())

    def say(self, text: str, style: str = "") -> None:
        """Show text of our own."""
        self._view.say(text, style)

    async def page(self, text: str) -> None:
        """Show a text of any length: in a pager if it is longer than the screen."""
        await self._screen.page(self._state.marks.fit(text))

    def width(self) -> int:
        """Return the terminal's width in columns."""
        return self._screen.width()

    def leave(self) -> None:
        """End the chat and cancel its turn. If background processes run, the first call only warns."""
        if not self._state.was_warned_of_jobs and jobs.warn_before_leaving(self):
            self._state.was_warned_of_jobs = True
            return
        self._state.is_leaving = True

    async def lend_terminal(self, function: Callable[[], T]) -> T:
        """Release the terminal to another program while `function` runs on a thread."""
        return await self._screen.lend_terminal(function)

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Let the person pick one of `choices` (line, preview). Returns None if they pick none, or can't."""
        return await self._screen.choose(title, choices)

    def put_back(self, text: str) -> None:
        """Put text back into the input line."""
        self._screen.put_in(text, is_sent=True)

    def put_out(self, text: str) -> None:
        """Write raw text to the terminal."""
        self._screen.write(text)

    @property
    def learning(self) -> LearningService:
        """The owner's memory and skills."""
        return self.services.learning.owner_service

    async def begin(self, title: str = "", *, warm: str = "") -> None:
        """Continue in a new session of the same conversation."""
        await self.switch_to(await self.opener.new_session(title=title, warm=warm, leaving=self.session))

    async def switch_model(self, model: str) -> None:
        """Use another model of the same provider from now on."""
        await self.opener.models.switch(self.session, model)

    async def switch_to(self, session: Session) -> None:
        """Continue in another session. The old one stays stored."""
        await forget_empty(self.services.database, self.session)
        self.session: Session = session
        await self._show_session()

    async def _show_session(self) -> None:
        if self.session.log.messages:
            await self._board.refresh(self.session)
        await show_session(self)

    def send(self, text: str | None, on_stored: TransactionWork = queue_nothing) -> None:
        """Start a turn, or resume it if `text` is None. `on_stored` runs in the message's transaction."""
        message = None if text is None else self._key_actions.build_message(text)
        self._begin("", partial(self._run_turn, message, on_stored))

    def start_task(self, label: str, task: Callable[[Callable[[Event], None]], Awaitable[None]]) -> None:
        """Run a long task like a turn, while the person can type."""
        self._begin(label, lambda: task(self._emit))

    def _emit(self, event: Event) -> None:
        if isinstance(event, ToolFinished):
            self._key_actions.restart_unfolding()
        self._board.record_event(event)
        self._view.emit(event)
        if isinstance(event, TurnEnd):
            ring_at_end(event, self.services.settings.notify)

    def _begin(self, label: str, task: Callable[[], Awaitable[None]]) -> None:
        self._view.begin(label)
        self._state.idle.clear()
        self._state.turn = asyncio.create_task(self._guard(task))

    async def _handle_input(self, entry: Typed | PromptSignal) -> None:
        self._news.show(at_rest=True)
        try:
            if isinstance(entry, Typed):
                if entry.text:
                    self._state.was_interrupted = False
                    await self._handle_line(entry)
            elif entry is PromptSignal.END:
                self.leave()
            elif entry is PromptSignal.INTERRUPT or (entry is PromptSignal.ESCAPE and self._state.turn):
                _interrupt(self, self._state)
            elif entry is PromptSignal.RESTED and self._waiting and self._state.turn is None:
                typed = self._waiting.pop(0)
                self._view.queued.remove(typed.line)
                self._screen.wake(PromptSignal.RESTED)  # the next one runs even if this one fails
                await self._handle_line(typed)
            elif entry is PromptSignal.ESCAPE:
                await self._key_actions.escape(self.services.clock.monotonic_s())
            elif entry is not PromptSignal.RESTED or self._state.turn is None:
                await self._key_actions.take(entry)
        except WhetError as error:
            self._show_error(error)

    async def _handle_line(self, typed: Typed) -> None:
        is_running = self._state.turn is not None
        is_script = typed.is_pasted and "\n" in typed.line
        command = None if is_script else parse(typed.line)
        sign = typed.sign
        if is_running and (not self.commands.is_anytime(command[0]) if command else sign == "!"):
            self._waiting.append(typed)
            self._view.queued.append(typed.line)
            self._screen.refresh()
            return
        if command or sign:
            self._echo(typed.line)
        if command and command[0] in self.commands:
            await _run_command(self, command, argument_of(typed.text))
        elif command:
            await run_skill(self, command[0], argument_of(typed.marked))
        elif sign:
            await self._key_actions.run_sign(sign, typed.text[1:].strip())
        elif is_running:
            text = attach.cap_text(unescape(typed.marked))
            self.session.steer(text, self._key_actions.load_images(text))
            self._view.queued.append(text)
            self._screen.refresh()
        else:
            self._echo(typed.line)
            self.send(unescape(typed.marked))

    async def _run_turn(self, message: Message | None, on_stored: TransactionWork) -> None:
        if message is not None and not self.session.log.session.title:
            await self.session.log.details.set_title(make_title(message.text))
        end = await self._key_actions.run_turn(message, self._emit, on_stored)
        await self._board.refresh(self.session)
        if end.reason == "answered" and self.services.gate.get().plans.has(self.session.id):
            if self.services.settings.notify.questions:
                TerminalBell().notify("Whet asks", "Carry this plan out?")
            self._screen.wake(PromptSignal.PLAN)

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task. However it ends, the chat is usable afterwards."""
        is_cancelled = False
        try:
            await task()
        except asyncio.CancelledError:
            is_cancelled = True
            self._view.report_interruption()
        except WhetError as error:
            self._view.stop()
            self._show_error(error)
        finally:
            self._view.stop()
            self._state.turn = None
            self._state.idle.set()
            self._screen.refresh()
            self.services.reviews.get().wake()
        self._news.show()
        self._take_leftovers(is_cancelled)

    def _take_leftovers(self, is_cancelled: bool) -> None:
        """Send text that came too late, then run the waiting commands. A cancel puts both back."""
        entries = self.session.inbox.take_back()
        texts = [entry.message.text for entry in entries]
        on_stored = turns.remove_at_end([entry.row for entry in entries], queue_nothing)
        self._view.queued.clear()
        if is_cancelled:
            texts += [typed.line for typed in self._waiting]
            self._waiting.clear()
        text = "\n".join(texts)
        if texts and is_cancelled:
            self.services.database.submit(on_stored)
            self.put_back(text)
        elif texts and not self._state.is_leaving:
            self._echo(fold_pastes(text))
            self.send(text, on_stored)
        self._view.queued.extend(typed.line for typed in self._waiting)
        if self._waiting or (self.session.inbox and not is_cancelled):
            self._screen.wake(PromptSignal.RESTED)

    def _show_error(self, error: WhetError) -> None:
        for line, style in _error_lines(error):
            self.say(line, style)

    def _echo(self, text: str) -> None:
        """Show the sent line in the scroll-back."""
        self._screen.echo(person_text(self.painter, self._state.marks, text))

    def _end_at_signal(self, number: int) -> None:
        self._state.exit_code, self._state.is_leaving = 128 + number, True


def _interrupt(chat: TerminalChat, state: _TerminalState) -> None:
    """Cancel the running turn. If none runs, leave the chat at the second interrupt."""
    if state.turn is not None:
        state.turn.cancel()
    elif state.was_interrupted:
        chat.leave()
    else:
        state.was_interrupted = True
        chat.say("Ctrl-C again or Ctrl-D quits", "dim")


async def _run_command(chat: TerminalChat, command: tuple[str, str], argument: str) -> None:
    """Run a slash command by its name and argument, after notifying the plugins."""
    slash_command = await announce(
        chat.services.plugins, chat.commands.get(command[0]), command, chat.session.id
    )
    if argument and not slash_command.argument and await run_with_argument(chat, command[0], argument):
        return
    await slash_command.run(chat, argument)


def _error_lines(error: WhetError) -> list[tuple[str, str]]:
    lines = [(f"error: {mask(printable(error.message))}", "red")]
    return [*lines, (name_chat_commands(mask(printable(error.hint))), "dim")] if error.hint else lines
