"""The chat at the terminal: what is typed becomes messages, steering or commands; events become text.

It owns the conversation's state at the terminal (which session, which turn runs) and nothing that must
last: that is in the store before it is shown. What the terminal can do is `cli/screen.py`'s business.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.app.slash import Commands, announced, argument_of, parse, unescaped
from whet.cli import attach, jobs
from whet.cli.commands import ChatControl, add_plugin_commands, builtin_commands
from whet.cli.greeting import greet, show_session
from whet.cli.key_actions import KeyActions
from whet.cli.launch import ChatOptions, forget_empty, load_settings, open_session, start_app, workspace_of
from whet.cli.learning_commands import run_skill
from whet.cli.live import Marks, Surface, TerminalTurnView, recall
from whet.cli.main import run_on_loop
from whet.cli.prompting import InputCompleter
from whet.cli.render import Painter
from whet.cli.screen import LineScreen, PromptSignal, Screen, Typed
from whet.cli.status import StatusBoard
from whet.cli.terminal import Terminal
from whet.cli.wording import printable, review_line
from whet.config.schema import Settings
from whet.contract.errors import WhetError
from whet.contract.events import Event, ReviewFinished, ToolFinished
from whet.contract.messages import Message
from whet.log import mask
from whet.memory.desk import LearningService
from whet.store import news
from whet.store.database import StateDatabase
from whet.store.sessions import title_of


def run(options: ChatOptions) -> int:
    """Chat until the person quits; give the exit code."""
    return run_on_loop(_run(options, load_settings(options, input)))


async def _run(options: ChatOptions, settings: Settings) -> int:
    commands: Commands[ChatControl] = Commands()
    for command in builtin_commands():
        commands.add(command)
    desk = _Desk()
    screen = _open_screen(options, settings, commands, desk)
    async with aclosing(await start_app(options, settings, screen.person)) as app:
        plugin_notes = add_plugin_commands(app, commands)
        session = await open_session(app, options)
        chat = TerminalChat(app, session, screen, commands, desk)
        for line in plugin_notes:
            chat.say(line, "dim")
        code = await chat.run(options.images, picks=options.picks)
        await forget_empty(app, chat.session)
        await app.reviews.leave()
        return code


def _open_screen(
    options: ChatOptions, settings: Settings, commands: Commands[ChatControl], desk: _Desk
) -> Screen:
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown") or not sys.stdout.isatty():
        return LineScreen(desk.marks, desk.idle)
    folder = workspace_of(settings)
    from whet.app.own_commands import prompt_commands  # noqa: PLC0415 a terminal that completes needs them

    own = [(one.name, one.description) for one in prompt_commands(options.home.root, folder)]
    names = [*((command.name, command.help) for command in commands), *own]
    completer = InputCompleter(lambda: names, lambda: folder)
    ui = settings.ui
    return Terminal(desk.marks, completer, options.home.history, theme=ui.theme, vi=ui.keys == "vi")


@dataclass(slots=True)
class _Desk:
    """What goes on at the terminal besides the session."""

    turn: asyncio.Task[None] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    wants_out: bool = False
    leaves_jobs: bool = False
    leaving: bool = False
    code: int = 0
    marks: Marks = field(default_factory=lambda: Marks.for_encoding(sys.stdout.encoding))

    def __post_init__(self) -> None:
        self.idle.set()


class _ReviewNews:
    """What came of reviews, told between turns."""

    def __init__(
        self, desk: _Desk, screen: Screen, say: Callable[[str, str], None], database: StateDatabase
    ) -> None:
        self._desk = desk
        self._screen = screen
        self._say = say
        self._database = database
        self._lines: list[tuple[str, str, str]] = []

    def add(self, finished: ReviewFinished) -> None:
        """Keep what came of a review until it can be shown; nothing saved and nothing asked is no news."""
        if finished.state == "saved":
            self._lines.append((review_line(finished), "cyan", finished.job_id))
        elif finished.by_hand or finished.state == "failed":
            self._lines.append((review_line(finished), "dim", finished.job_id))
        self.tell()

    def tell(self, *, at_rest: bool = False) -> None:
        """Say each line once, not while something is half typed (unless `at_rest` says it is not)."""
        if self._desk.turn is None and (at_rest or self._screen.is_quiet()):
            lines, self._lines = self._lines, []
            for line, style, job_id in lines:
                self._say(line, style)
                self._database.submit(partial(news.seen, task_id=job_id))


class TerminalChat:
    """One terminal's conversation; slash commands get it as their context."""

    def __init__(
        self, app: App, session: Session, screen: Screen, commands: Commands[ChatControl], desk: _Desk
    ) -> None:
        self.app = app
        self.session = session
        self.commands = commands
        self._screen = screen
        self._desk = desk
        ui = app.settings.ui
        self._painter = Painter(markdown=ui.markdown)
        surface = Surface(lambda text: screen.write(desk.marks.fit(text)), screen.refresh, screen.width)
        self.recall: Callable[[str, int], None] = partial(recall, surface, self._painter)
        self._view = TerminalTurnView(surface, self._painter, desk.marks, show_reasoning=ui.show_reasoning)
        self._view.plan = lambda: app.todo_lists.get(self.session.id)
        self._board = StatusBoard(app, plain=desk.marks.plain)
        self._key_actions = KeyActions(self, screen.decide)
        self._news = _ReviewNews(desk, screen, self.say, app.database)
        self._waiting: list[Typed] = []
        app.reviews.listeners.append(self._news.add)
        app.sessions.helper_listeners.append(lambda _: screen.wake(PromptSignal.RESTED))

    async def run(self, images: Sequence[Path] = (), *, picks: bool = False) -> int:
        """Take what the person does until they leave."""
        self._key_actions.images = list(images)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        await self._screen.start(self._view.lines, lambda width: self._board.line(self.session, width))
        try:
            greet(self)
            await self._arrive()
            self.app.reviews.start()
            self.app.schedules.start()
            if picks:
                await self._typed(Typed("/resume", "/resume", "/resume"))
            while not self._desk.leaving:
                await self._take(await self._screen.read())
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            await self._stop_turn()
            self._key_actions.close()
            await self._screen.aclose()
        return self._desk.code

    def say(self, text: str, style: str = "") -> None:
        """Show text of ours."""
        self._view.say(text, style)

    def width(self) -> int:
        """The columns of the terminal."""
        return self._screen.width()

    def leave(self) -> None:
        """End the chat; a running turn is cancelled first. Background processes have it asked twice."""
        if not self._desk.leaves_jobs and jobs.tell_of_leaving(self):
            self._desk.leaves_jobs = True
            return
        self._desk.leaving = True

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Have the person pick one of some (line, preview); None where they don't, or can't."""
        return await self._screen.choose(title, choices)

    def put_back(self, text: str) -> None:
        """Put text into the input line again."""
        self._screen.put_back(text)

    def put_in(self, text: str) -> None:
        """Type text for the person, where the cursor stands."""
        self._screen.put_in(text)

    def put_out(self, text: str) -> None:
        """Write to the terminal as it is."""
        self._screen.write(text)

    @property
    def desk(self) -> LearningService:
        """The owner's memory and skills."""
        return self.app.learning.desk

    async def begin(self, title: str = "", *, warm: str = "") -> None:
        """Go on in a new session of the same conversation."""
        await self.switch_to(await self.app.new_session(title=title, warm=warm, leaving=self.session))

    async def switch_model(self, model: str) -> None:
        """Have another model of the same provider answer from now on."""
        await self.app.switch_model(self.session, model)

    async def switch_to(self, session: Session) -> None:
        """Talk in another session from now on; the old one stays stored."""
        await forget_empty(self.app, self.session)
        self.session: Session = session
        await self._arrive()

    async def _arrive(self) -> None:
        if self.session.log.messages:
            await self._board.look(self.session)
        await show_session(self)

    def send(self, text: str | None) -> None:
        """Start a turn with a message, or go on with the unfinished one (None)."""
        self._begin("", partial(self._turn, None if text is None else self._message(text)))

    def work(self, doing: str, work: Callable[[Callable[[Event], None]], Awaitable[None]]) -> None:
        """Do something long beside the input, as a turn is done."""
        self._begin(doing, lambda: work(self._emit))

    def _emit(self, event: Event) -> None:
        if isinstance(event, ToolFinished):
            self._key_actions.called()
        self._board.see(event)
        self._view.emit(event)

    def _begin(self, doing: str, work: Callable[[], Awaitable[None]]) -> None:
        self._view.begin(doing)
        self._desk.idle.clear()
        self._desk.turn = asyncio.create_task(self._guarded(work))

    def _message(self, text: str) -> Message:
        images = self._key_actions.images_of(text)
        told, self._key_actions.pending = [text, *self._key_actions.pending], []
        return self.session.user_message(attach.cap_text("\n\n".join(told)), images)

    async def _take(self, done: Typed | PromptSignal) -> None:
        self._news.tell(at_rest=True)
        try:
            if isinstance(done, Typed):
                if done.text:
                    self._desk.wants_out = False
                    await self._typed(done)
            elif done is PromptSignal.END:
                self.leave()
            elif done is PromptSignal.INTERRUPT or (done is PromptSignal.ESCAPE and self._desk.turn):
                self._interrupt()
            elif done is PromptSignal.RESTED and self._waiting and self._desk.turn is None:
                self._view.queued.remove((typed := self._waiting.pop(0)).shown)
                self._screen.wake(PromptSignal.RESTED)  # the next one runs although this one may fail
                await self._typed(typed)
            elif done is PromptSignal.ESCAPE:
                await self._key_actions.escape(self.app.clock.monotonic_s())
            elif done is not PromptSignal.RESTED or self._desk.turn is None:
                await self._key_actions.take(done)
        except WhetError as error:
            self._complain(error)

    async def _typed(self, typed: Typed) -> None:
        running = self._desk.turn is not None
        command = parse(typed.shown)
        sign = "" if command else typed.shown[:1]
        signed = sign == "!" or (sign == "#" and "\n" not in typed.shown)  # more lines are Markdown
        if running and (not self.commands.is_anytime(command[0]) if command else sign == "!"):
            self._waiting.append(typed)
            self._view.queued.append(typed.shown)
            self._screen.refresh()
            return
        if command or signed:
            self._echo(typed.shown)
        if command:
            if command[0] in self.commands:
                named = await announced(self.app, self.commands.get(command[0]), command, self.session.id)
                await named.run(self, argument_of(typed.text))
            else:
                await run_skill(self, command[0], argument_of(typed.marked))
            return
        if signed:
            await self._key_actions.sign(sign, typed.text[1:].strip())
            return
        text = unescaped(typed.marked)
        if running:
            self.session.steer(text := attach.cap_text(text), self._key_actions.images_of(text))
            self._view.queued.append(text)
            self._screen.refresh()
            return
        self._echo(typed.shown)
        self.send(text)

    def _interrupt(self) -> None:
        if self._desk.turn is not None:
            self._desk.turn.cancel()
        elif self._desk.wants_out:
            self.leave()
        else:
            self._desk.wants_out = True
            self.say("Ctrl-C again or Ctrl-D quits", "dim")

    async def _turn(self, message: Message | None) -> None:
        if message is not None and not self.session.log.session.title:
            await self.session.log.details.set_title(title_of(message.text))
        end = await run_turn(self.session, message, self._emit)
        await self._board.look(self.session)
        if end.reason == "answered" and self.app.gate.plans.has(self.session.id):
            self._screen.wake(PromptSignal.PLAN)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work`; whatever ends it, the chat is usable afterwards."""
        cancelled = False
        try:
            await work()
        except asyncio.CancelledError:
            cancelled = True
            self._view.interrupted()
        except WhetError as error:
            self._view.stop()
            self._complain(error)
        finally:
            self._view.stop()
            self._desk.turn = None
            self._desk.idle.set()
            self._screen.refresh()
            self.app.reviews.kick()
        self._news.tell()
        self._leftovers(cancelled)

    def _leftovers(self, cancelled: bool) -> None:
        """Send what was typed too late for the turn, run the commands that waited for its end; after a cancel
        put both back into the input."""
        left = [message.text for message in self.session.inbox.take_back()]
        self._view.queued.clear()
        if cancelled:
            left += [typed.shown for typed in self._waiting]
            self._waiting.clear()
        text = "\n".join(left)
        if left and cancelled:
            self._screen.put_back(text)
        elif left and not self._desk.leaving:
            self._echo(text)
            self.send(text)
        self._view.queued.extend(typed.shown for typed in self._waiting)
        if self._waiting or (self.session.inbox and not cancelled):
            self._screen.wake(PromptSignal.RESTED)

    def _complain(self, error: WhetError) -> None:
        for line, style in _complaint(error):
            self.say(line, style)

    def _echo(self, text: str) -> None:
        """Leave what was sent in the scroll-back."""
        self._screen.echo(f"\n{self._painter.line(_echoed(self._desk.marks.prompt, text), 'bold')}\n")

    async def _stop_turn(self) -> None:
        if turn := self._desk.turn:
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    def _terminate(self) -> None:
        self._desk.code = 143
        self.leave()
        self._screen.wake(PromptSignal.END)


def _complaint(error: WhetError) -> list[tuple[str, str]]:
    lines = [(f"error: {mask(printable(error.message))}", "red")]
    return [*lines, (mask(printable(error.hint)), "dim")] if error.hint else lines


def _echoed(prompt: str, text: str) -> str:
    lines = printable(text).split("\n")
    return "\n".join([prompt + lines[0], *(f"  {line}" for line in lines[1:])])
