"""What goes wrong between a gateway and its platform: calls that are cut, and kills at chosen moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Moment = Literal["before a send", "after a send", "before an acknowledgement", "at the model", "any time"]


class Troubles:
    """Cuts connections on demand, and calls `strike` once when an armed moment comes."""

    def __init__(self) -> None:
        self._cuts: list[str] = []
        self._armed: tuple[Moment, Callable[[], None]] | None = None

    def cut_sends(self, *when: Literal["before", "after"]) -> None:
        """Cut the connection of the next sends, before they count or after."""
        self._cuts += when

    def arm(self, moment: Moment, strike: Callable[[], None]) -> None:
        """Call `strike` when this moment comes next."""
        self._armed = (moment, strike)

    def disarm(self) -> None:
        """Let nothing happen any more."""
        self._armed = None

    def strikes(self, moment: Moment) -> bool:
        """Whether the armed moment is this; then it has happened."""
        armed = self._armed
        if armed is None or armed[0] != moment:
            return False
        self._armed = None
        armed[1]()
        return True

    def around(self, app: ASGIApp, is_send: Callable[[Scope], bool]) -> ASGIApp:
        async def troubled(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not is_send(scope):
                await app(scope, receive, send)
                return
            cut = self._cuts.pop(0) if self._cuts else ""
            if self.strikes("before a send") or cut == "before":
                await _hang_up(send)
                return
            answer: list[Message] = []

            async def keep(message: Message) -> None:
                answer.append(message)

            await app(scope, receive, keep)
            if self.strikes("after a send") or cut == "after":
                await _hang_up(send)
                return
            for message in answer:
                await send(message)

        return troubled


async def _hang_up(send: Any) -> None:
    """Begin an answer and never end it: the server then closes the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"10")]})
