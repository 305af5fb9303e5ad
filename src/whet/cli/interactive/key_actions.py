"""Actions of keys and prefixes at the prompt: Esc, Shift-Tab, Ctrl-O, Ctrl-B, Ctrl-G, `!command`, `# note`.

The screen maps keys to these actions.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from whet.agent.loop import run_turn
from whet.agent.session import InboxEntry
from whet.app import modes, planning
from whet.cli.interactive import full_calls, jobs, mode, selection_lists
from whet.cli.interactive.shell_line import run_here, shell_tool
from whet.contract.errors import NotFound, WhetError
from whet.contract.events import Emit, TurnEnd
from whet.contract.messages import ImagePart, Message
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest
from whet.store.jobs import TransactionWork
from whet.store.parts import typed_text
from whet.terminal import attach
from whet.terminal.output import size
from whet.terminal.pasted_text import dropped_images, remove_pastes
from whet.terminal.screen import PromptSignal, Screen
from whet.typed_answer import read_line

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from whet.cli.interactive.chat_control import ChatControl

_TWICE_S = 0.8


class KeyActions:
    """The actions of keys in one chat.

    The texts in `pending` and the images at the paths in `images` are sent with the next message.
    """

    def __init__(self, chat: ChatControl, screen: Screen) -> None:
        self.pending: list[str] = []
        self.images: list[Path] = []
        self._chat = chat
        self._screen = screen
        self._escaped_s = float("-inf")
        self._unfolded = 0
        self._pictures: TemporaryDirectory[str] | None = None
        self._pasted = 0

    async def take(self, signal: PromptSignal) -> None:
        """Run the action of a key."""
        chat = self._chat
        if signal is PromptSignal.MODE:
            await self._switch_mode()
        elif signal is PromptSignal.UNFOLD:
            await self._unfold()
        elif signal is PromptSignal.BACKGROUND:
            moved = jobs.move_to_background(chat.services.processes)
            message = "it runs on in the background; /jobs shows it" if moved else "no command is running"
            chat.say(message, "dim")
        elif signal is PromptSignal.IMAGE:
            await self._paste_image()
        elif signal is PromptSignal.EDITOR:
            await self._screen.edit_input()
        elif signal is PromptSignal.PLAN:
            await self._decide_plan()
        elif signal is PromptSignal.RESTED and chat.session.inbox:
            self._start_inbox_turn(chat.session.inbox.take())

    async def run_turn(self, message: Message | None, emit: Emit, on_stored: TransactionWork) -> TurnEnd:
        """Run a turn and return its end. If the message can't be stored, because another program uses or has
        deleted the session for example, puts it back into the input and raises WhetError."""
        log = self._chat.session.log
        count = len(log.messages)
        try:
            return await run_turn(self._chat.session, message, emit, on_stored=on_stored)
        except WhetError:
            is_stored = any(later.role == "user" for later in log.messages[count:])
            if message is not None and not is_stored:
                self._chat.put_back(message.text)
            raise

    def _start_inbox_turn(self, entry: InboxEntry) -> None:
        """Start a turn with a message that arrived from a helper while the person was idle."""

        async def run(emit: Emit) -> None:
            await run_turn(self._chat.session, entry.message, emit, on_stored=entry.on_stored)

        self._chat.say(entry.notice)
        self._chat.start_task("", run)

    async def _switch_mode(self) -> None:
        """Switch to the next mode."""
        chat = self._chat
        name = mode.next_mode(modes.read_mode(chat.services, chat.session.id))
        lines = await modes.set_mode(chat.services, chat.session.id, name)
        chat.say("\n".join((f"mode {name}: {modes.ABOUT[name]}", *lines)), "dim")

    def load_images(self, text: str) -> list[ImagePart]:
        """Load the images that go with a message, and list them. Raises WhetError."""
        mentioned, missing = attach.find_images(dropped_images(text), self._chat.services.workspace)
        paths, self.images = [*self.images, *mentioned], []
        services = self._chat.services
        deny = services.settings.approval.deny
        loaded = [attach.load_image(path, services.workspace, deny) for path in paths]
        for path in paths:
            self._chat.say(f"  sent with it: {path.name}, {size(path.stat().st_size)}", "dim")
        for name in missing:
            self._chat.say(f"  there is no image {name}; only its name is sent", "yellow")
        for name in attach.find_missing(remove_pastes(typed_text(text)), self._chat.services.workspace):
            self._chat.say(f"  there is no file {name}; only its name is sent", "yellow")
        if notice := attach.shortening_notice(text, ""):
            self._chat.say(f"  {notice}", "yellow")
        return loaded

    def build_message(self, text: str) -> Message:
        """Return a message with its images and the pending texts. Raises WhetError if an image can't be
        loaded."""
        images = self.load_images(text)
        parts, self.pending = [text, *self.pending], []
        return self._chat.session.user_message(attach.cap_text("\n\n".join(parts)), images, "typed")

    async def _paste_image(self) -> None:
        """Store the clipboard's image in a file, and insert its path into the input. Raises WhetError."""
        from tempfile import TemporaryDirectory  # noqa: PLC0415 - few messages have images

        from whet.terminal import clipboard  # noqa: PLC0415 - as above

        data = await asyncio.to_thread(clipboard.read_image)
        self._pictures = self._pictures or TemporaryDirectory(prefix="whet-")
        self._pasted += 1
        path = Path(self._pictures.name, f"clipboard-{self._pasted}.png")
        path.write_bytes(data)
        self._screen.put_in(f"@{path} ")

    def close(self) -> None:
        """Remove the files of pasted images. Those that were sent are in the store."""
        if self._pictures is not None:
            self._pictures.cleanup()

    async def escape(self, now_s: float) -> None:
        """Open the rewind list at the second Esc in a row. Called only while no turn runs."""
        is_second = now_s - self._escaped_s < _TWICE_S
        self._escaped_s = now_s
        if is_second:
            self._escaped_s = float("-inf")
            await selection_lists.pick_point(self._chat)

    def restart_unfolding(self) -> None:
        """Make the next Ctrl-O show the last call again."""
        self._unfolded = 0

    async def _unfold(self) -> None:
        chat = self._chat
        count = len(await full_calls.session_calls(chat.services.database, chat.session))
        if not count:
            raise NotFound("no call was made in this session")
        self._unfolded = self._unfolded % count + 1
        await full_calls.unfold(chat, count - self._unfolded + 1)

    async def _decide_plan(self) -> None:
        """Ask the person to decide on the plan. Typed words are sent to the model; they never start the
        plan."""
        chat = self._chat
        plan = await planning.read_plan(chat.services, chat.session.id)
        picked = await self._screen.decide(mode.QUESTION, mode.CHOICES)
        if picked == len(mode.CHOICES) - 2:
            chat.put_back("\n".join(["/plan steps", *(step.text for step in plan.steps)]))
            return
        if isinstance(picked, str) or picked == len(mode.CHOICES) - 1:
            chat.say("still planning; /mode ask ends that", "dim")
            if isinstance(picked, str) and picked and not read_line(picked, ()).stops:
                chat.say(picked)
                chat.send(picked)
            return
        name = modes.MODES[0] if picked == 0 else modes.MODES[2]
        message = await planning.approve_plan(chat.services, chat.session.id)
        await modes.set_mode(chat.services, chat.session.id, name)
        chat.say(f"mode {name}: {modes.ABOUT[name]}", "dim")
        chat.send(message)

    async def run_sign(self, sign: str, text: str) -> None:
        """Handle a line after its sign: `#` stores a note, `!` runs a command here. Raises WhetError."""
        if sign == "#":
            await self._remember(text)
        else:
            self._run_here(text)

    def _run_here(self, command: str) -> None:
        """Run the person's own command. The model receives its output with the next message. Raises
        WhetError."""
        if not command:
            raise WhetError("there is no command", hint="!ls runs ls here")
        chat = self._chat
        shell_tool(chat.session)

        async def run(emit: Emit) -> None:
            self.pending.append(await run_here(chat.session, command, emit))

        chat.start_task("running", run)

    async def _remember(self, note: str) -> None:
        """Store a note for later sessions. Raises WhetError if it is refused."""
        if not note:
            raise WhetError("there is nothing to remember", hint="# the tests need ORDERS_DB=memory")
        chat = self._chat
        origin = Origin("user", session_id=chat.session.id, platform=chat.services.source)
        result = await chat.learning.submit(MemoryRequest("add", content=note), origin)
        if not result.ok:
            raise WhetError(result.text)
        chat.say(f"remembered; /learned undo {result.ledger_id} takes it back", "dim")
