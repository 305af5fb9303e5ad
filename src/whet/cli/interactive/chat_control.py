"""The interface of a chat for slash commands and keys. The terminal, chat platforms and editors implement
it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from whet.agent.session import Session
from whet.app.conversations.sessions import SessionOpener
from whet.app.conversations.slash import Commands
from whet.app.services import Services
from whet.contract.events import Event

if TYPE_CHECKING:
    from whet.memory.service import LearningService
    from whet.terminal.render import Painter
    from whet.terminal.signs import Marks


T = TypeVar("T")


class ChatControl(Protocol):
    """The operations of the chat that commands may use."""

    services: Services
    opener: SessionOpener
    session: Session
    painter: Painter
    marks: Marks

    @property
    def commands(self) -> Commands[ChatControl]:
        """Every command, including those of plugins."""
        ...

    def say(self, text: str, style: str = "") -> None:
        """Show a line or text of Whet itself, not of the model."""
        ...

    async def page(self, text: str) -> None:
        """Show a text of any length: at the terminal in a pager if it is longer than the screen."""
        ...

    def width(self) -> int:
        """Return the number of columns of the terminal."""
        ...

    def send(self, text: str | None) -> None:
        """Start a turn with a message, or continue the unfinished turn if `text` is None."""
        ...

    def start_task(self, label: str, task: Callable[[Callable[[Event], None]], Awaitable[None]]) -> None:
        """Run a long task like a turn: shown as `label`, and cancelled by Ctrl-C. Typed text is kept until it
        ends. `task` gets a function that shows events."""
        ...

    @property
    def learning(self) -> LearningService:
        """The memory and skills of the person who is talking."""
        ...

    async def begin(self, title: str = "", *, warm: str = "") -> None:
        """Continue the conversation in a new session. `warm` names a template."""
        ...

    async def switch_model(self, model: str) -> None:
        """Switch to another model from the next request on. Raises WhetError."""
        ...

    async def switch_to(self, session: Session) -> None:
        """Switch to another session. The old session stays stored."""
        ...

    def leave(self) -> None:
        """End the chat."""
        ...

    async def lend_terminal(self, function: Callable[[], T]) -> T:
        """Release the terminal to another program while `function` runs on a thread. Returns its result."""
        ...

    async def choose(self, title: str, choices: Sequence[tuple[str, str]]) -> int | None:
        """Ask the person to pick one of several (line, preview) choices. Returns its index, or None if they
        cancel or the chat has no menus."""
        ...

    def put_out(self, text: str) -> None:
        """Write text to the terminal unchanged."""
        ...

    def put_back(self, text: str) -> None:
        """Put text back into the input line."""
        ...
