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
from dataclasses import dataclass, field
from pathlib import Path

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.app.slash import Commands, parse, unescaped
from whet.cli import attach
from whet.cli.commands import ChatControl, add_plugin_commands, builtin_commands
from whet.cli.launch import ChatOptions, forget_empty, load_settings, open_session, start_app, workspace_of
from whet.cli.learning_commands import run_skill
from whet.cli.live import Marks, Surface, TerminalTurnView
from whet.cli.prompting import InputCompleter
from whet.cli.render import Painter
from whet.cli.screen import LineScreen, PromptSignal, Screen, Typed
from whet.cli.terminal import Terminal
from whet.cli.wording import clip, columns, printable, review_line
from whet.config.schema import Settings
from whet.contract.errors import WhetError
from whet.contract.events import Event, ReviewFinished
from whet.contract.messages import Message
from whet.log import mask
from whet.memory.desk import LearningService
from whet.sandbox.known import unheld
from whet.store import news
from whet.store.sessions import title_of


def run(options: ChatOptions) -> int:
    """Chat until the person quits; give the exit code."""
    return asyncio.run(_run(options, load_settings(options, input)))


async def _run(options: ChatOptions, settings: Settings) -> int:
    commands: Commands[ChatControl] = Commands()
    for command in builtin_commands():
        commands.add(command)
    desk = _Desk()
    screen = _open_screen(options, settings, commands, desk)
    app = await start_app(options, settings, screen.person)
    try:
        plugin_notes = add_plugin_commands(app, commands)
        session = await open_session(app, options)
        chat = TerminalChat(app, session, screen, commands, desk)
        for line in plugin_notes:
            chat.say(line, "dim")
        code = await chat.run(options.images)
        await forget_empty(app, chat.session)
        await app.reviews.leave()
        return code
    finally:
        await app.aclose()


def _open_screen(
    options: ChatOptions, settings: Settings, commands: Commands[ChatControl], desk: _Desk
) -> Screen:
    if os.environ.get("TERM", "dumb") in ("dumb", "unknown") or not sys.stdout.isatty():
        return LineScreen(desk.marks, desk.idle)
    folder = workspace_of(settings)
    names = [(command.name, command.help) for command in commands]
    completer = InputCompleter(lambda: names, lambda: folder)
    return Terminal(desk.marks, completer, options.home.history)


@dataclass(slots=True)
class _Desk:
    """What goes on at the terminal besides the session."""

    turn: asyncio.Task[None] | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    wants_out: bool = False
    leaving: bool = False
    code: int = 0
    marks: Marks = field(default_factory=lambda: Marks.for_encoding(sys.stdout.encoding))

    def __post_init__(self) -> None:
        self.idle.set()


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
        self._view = TerminalTurnView(surface, self._painter, desk.marks, show_reasoning=ui.show_reasoning)
        self._images: list[Path] = []
        self._held: list[tuple[str, str]] = []
        app.reviews.listeners.append(self._reviewed)

    async def run(self, images: Sequence[Path] = ()) -> int:
        """Take what the person does until they leave."""
        self._images = list(images)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminate)
        await self._screen.start(self._view.lines)
        try:
            self._greet()
            await self._say_where_we_are()
            self.app.reviews.start()
            self.app.schedules.start()
            while not self._desk.leaving:
                await self._take(await self._screen.read())
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            await self._stop_turn()
            await self._screen.aclose()
        return self._desk.code

    def say(self, text: str, style: str = "") -> None:
        """Show text of ours."""
        self._view.say(text, style)

    def width(self) -> int:
        """The columns of the terminal."""
        return self._screen.width()

    def leave(self) -> None:
        """End the chat; a running turn is cancelled first."""
        self._desk.leaving = True

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
        await self._say_where_we_are()

    def send(self, text: str | None) -> None:
        """Start a turn with a message, or go on with the unfinished one (None)."""
        message = None if text is None else self._message(text)
        self._begin("", lambda: self._turn(message))

    def work(self, doing: str, work: Callable[[Callable[[Event], None]], Awaitable[None]]) -> None:
        """Do something long beside the input, as a turn is done."""
        self._begin(doing, lambda: work(self._view.emit))

    def _begin(self, doing: str, work: Callable[[], Awaitable[None]]) -> None:
        self._view.begin(doing)
        self._desk.idle.clear()
        self._desk.turn = asyncio.create_task(self._guarded(work))

    def _message(self, text: str) -> Message:
        paths = [*self._images, *attach.mentioned_images(text, self.app.workspace)]
        images = [attach.load_image(path) for path in paths]
        self._images = []
        return self.session.user_message(attach.capped(text), images)

    async def _take(self, done: Typed | PromptSignal) -> None:
        self._say_held(at_rest=True)
        if isinstance(done, PromptSignal):
            self.leave() if done is PromptSignal.END else self._interrupt()
        elif done.text:
            self._desk.wants_out = False
            try:
                await self._typed(done)
            except WhetError as error:
                self._complain(error)

    async def _typed(self, typed: Typed) -> None:
        running = self._desk.turn is not None
        if command := parse(typed.shown):
            self._echo(typed.shown)
            if command[0] not in self.commands and not running:
                await run_skill(self, *command)
                return
            found = self.commands.get(command[0])
            if running and not found.anytime:
                self.say(f"/{found.name} waits for the end of this turn; Ctrl-C stops it", "yellow")
            else:
                await found.run(self, command[1])
            return
        text = unescaped(typed.text)
        if running:
            self.session.steer(text := attach.capped(text))
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
        await run_turn(self.session, message, self._view.emit)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do `work`; whatever ends it, the chat is usable afterwards."""
        cancelled = False
        try:
            await work()
        except asyncio.CancelledError:
            cancelled = True
            self._view.stop()
            self.say("\ncancelled", "yellow")
        except WhetError as error:
            self._view.stop()
            self._complain(error)
        finally:
            self._view.stop()
            self._desk.turn = None
            self._desk.idle.set()
            self._screen.refresh()
            self.app.reviews.kick()
        self._say_held()
        self._leftovers(cancelled)

    def _leftovers(self, cancelled: bool) -> None:
        """Send what was typed too late for the turn; after a cancel put it back into the input."""
        left = [message.text for message in self.session.inbox.take_back()]
        self._view.queued.clear()
        text = "\n".join(left)
        if left and cancelled:
            self._screen.put_back(text)
        elif left and not self._desk.leaving:
            self._echo(text)
            self.send(text)

    def _reviewed(self, finished: ReviewFinished) -> None:
        """Keep what came of a review until it can be shown; nothing saved and nothing asked is no news."""
        if finished.state == "saved":
            self._held.append((review_line(finished), "cyan"))
        elif finished.by_hand or finished.state == "failed":
            self._held.append((review_line(finished), "dim"))
        self._say_held()

    def _say_held(self, *, at_rest: bool = False) -> None:
        """Show it between turns, and not while something is half typed (unless `at_rest` says it is not)."""
        if self._desk.turn is None and (at_rest or self._screen.is_quiet()):
            held, self._held = self._held, []
            for line, style in held:
                self.say(line, style)

    async def _stop_turn(self) -> None:
        if turn := self._desk.turn:
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)

    def _terminate(self) -> None:
        self._desk.code = 143
        self.leave()
        self._screen.wake(PromptSignal.END)

    def _complain(self, error: WhetError) -> None:
        self.say(f"error: {mask(printable(error.message))}", "red")
        if error.hint:
            self.say(mask(printable(error.hint)), "dim")

    def _echo(self, text: str) -> None:
        """Leave what was sent in the scroll-back."""
        lines = printable(text).split("\n")
        shown = [self._desk.marks.prompt + lines[0], *(f"  {line}" for line in lines[1:])]
        self._screen.write("\n" + self._painter.line("\n".join(shown), "bold") + "\n")

    def _greet(self) -> None:
        model, mode, width = self.session.model, self.app.settings.approval.mode, self.width()
        head = f"whet · {model.model} · approvals {mode}"
        named = f"whet · {model.model} ({model.provider}) · approvals {mode}"
        self.say(_fitting(width, named, head), "bold")
        self.say(_fitting(width, *_shortened(self.app.workspace, width)), "dim")
        if model.provider == "practice":
            told = "The practice model is a scripted stand-in, not a language model."
            self.say(_fitting(width, told, "a scripted stand-in, no language model"), "yellow")
        if line := unheld(self.app.settings.sandbox.mode, self.app.home.whole):
            self.say(printable(line), "yellow")
        told = "/help shows the commands, Ctrl-C stops a turn, Ctrl-D quits"
        self.say(_fitting(width, told, "/help, Ctrl-C stops, Ctrl-D quits"), "dim")
        found = self.app.database.write_now(news.tell)
        if found.line:
            self.say(_fitting(width, found.line), "dim")

    async def _say_where_we_are(self) -> None:
        """After a session was opened: its title and size, and whether a turn is unfinished."""
        log = self.session.log
        if log.messages:
            title = printable(log.session.title) or self.session.id
            self.say(f"\n{clip(title, self.width() - 16)} · {len(log.messages)} messages", "dim")
        if await log.unfinished_turn() is not None:
            self.say(
                "The last turn was cut off. Enter /resume to go on with it, or say what to do next.", "yellow"
            )


def _fitting(width: int, *variants: str) -> str:
    """Give the first of `variants` that fits, else the last one cut."""
    return next((text for text in variants if columns(text) <= width), clip(variants[-1], width))


def _shortened(path: Path, width: int) -> tuple[str, str]:
    """Give a path in whole, with ~ for the home folder, and its end."""
    whole = printable(str(path))
    home = str(Path.home())
    whole = "~" + whole[len(home) :] if home != "/" and whole.startswith(home) else whole
    return whole, "…" + whole[-(width - 1) :]
