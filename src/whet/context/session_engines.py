"""The engines of one session: the chosen one, and the built-in one that replaces it after a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from whet.context.engine_runner import EngineRunner, HostFacts
from whet.contract.context_engine import ChatRow, SessionChange, transition_calls
from whet.contract.events import Emit
from whet.contract.protocols import ModelInfo
from whet.store.transcript import Transcript

if TYPE_CHECKING:
    from whet.context.positions import Positions


class SessionEngines:
    """The engines of one session: the chosen one and, after a failure of it, also the built-in one.

    Informs them about the model that answers and about a change to this session. `make_spare` creates the
    built-in one.
    """

    def __init__(
        self,
        log: Transcript,
        chosen: EngineRunner,
        facts: HostFacts,
        make_spare: Callable[[], Awaitable[EngineRunner | None]] | None,
    ) -> None:
        self.chosen = chosen
        self.facts = facts
        self._log = log
        self._make_spare = make_spare
        self._spare: EngineRunner | None = None
        self._model: ModelInfo | None = None
        self._limit = 0
        self._positions: Positions | None = None
        self._astray: list[EngineRunner] = []  # engines whose list differs from the live one

    @property
    def active(self) -> list[EngineRunner]:
        """The engines that receive all events."""
        return [self.chosen] if self._spare is None else [self.chosen, self._spare]

    @property
    def window(self) -> int:
        """The tokens that a request may have: the model's window, or less if the server named a smaller
        limit."""
        return self._limit or self.facts.info().window_tokens

    @property
    def conversation_id(self) -> str:
        """The conversation's id. A child session has its own, or its engine would take over the parent's
        conversation."""
        session = self._log.session
        return session.id if session.kind != "chat" else session.conversation_id

    async def begin(
        self,
        rows: Sequence[ChatRow],
        left: Transcript | None,
        left_rows: list[ChatRow] | None,
        *,
        carry_over: bool = False,
    ) -> bool:
        """Inform the chosen engine about this session with its `rows`, and about the session that it leaves
        or continues.

        Returns False if the engine failed.
        """
        self._mark(self.chosen)
        self.has_other_model()
        await self.follow_model()
        change = self._change(left, left_rows)
        change = msgspec.structs.replace(change, carry_over=carry_over and left is not None)
        done = await self.chosen.each(transition_calls(self.chosen.engine, change))
        await self._restore(self.chosen, rows, left, left_rows)
        return done

    async def remember(self, rows: Sequence[ChatRow]) -> None:
        """Store how far the engines have processed the session."""
        if self._positions is None:
            return
        for runner in self.active:
            if runner not in self._astray and not runner.lane.stuck:
                await self._positions.remember(runner, rows)

    async def _restore(
        self,
        seat: EngineRunner,
        rows: Sequence[ChatRow],
        left: Transcript | None = None,
        left_rows: Sequence[ChatRow] | None = None,
    ) -> None:
        """Restore an engine's position after it was informed about the session. The built-in one stores
        nothing."""
        if seat.offer.is_quick:
            return
        if self._positions is None:
            from whet.context.positions import Positions  # noqa: PLC0415 - few have another engine

            self._positions = Positions(self._log)
        if left is not None and left_rows:
            await self._positions.of(left).remember(seat, left_rows, ended=True)
        await self._positions.restore(seat, rows)

    def has_other_model(self) -> bool:
        """Return whether the model has changed since the last call. A limit that a server named is then
        dropped."""
        info, last = self.facts.info(), self._model
        if info != last:
            self._model, self._limit = info, 0
        return last not in (None, info)

    async def follow_model(self) -> None:
        """Inform the engines about the model and its window."""
        for runner in self.active:
            await runner.follow(self.facts.info(), self.window, self.facts)

    def narrow(self, limit_tokens: int) -> None:
        """Use the limit that the server named as the window from now on, if it is smaller."""
        if 0 < limit_tokens < self.window:
            self._limit = limit_tokens
            name = self.chosen.name
            self.chosen.note(f"{name}: the server's window is {limit_tokens:,} tokens, less than was set")

    async def stand_in(self) -> EngineRunner | None:
        """Return the built-in engine, created on first use, or None if it is the chosen one."""
        if self._spare is None and self._make_spare is not None:
            self._spare = await self._make_spare()
            if self._spare is not None:
                self._mark(self._spare)
                await self._spare.follow(self.facts.info(), self.window, self.facts)
                await self._spare.each(transition_calls(self._spare.engine, self._change()))
        if self._spare is not None:
            self.chosen.note(f"{self.chosen.name} failed; {self._spare.name} stands in")
        return self._spare

    def stray(self, seat: EngineRunner) -> None:
        """Mark an engine whose list differs from the live one. It is informed about the session again as soon
        as possible."""
        if seat not in self._astray:
            self._astray.append(seat)

    async def rejoin(self, rows: Callable[[], Sequence[ChatRow]]) -> None:
        """Inform marked engines that respond about the session again."""
        for runner in [runner for runner in self._astray if not runner.lane.stuck]:
            self._astray.remove(runner)
            await runner.each(transition_calls(runner.engine, self._change()))
            await self._restore(runner, rows())

    def say_stopped(self, why: str) -> None:
        """Notify the person that automatic compaction is off."""
        self.chosen.note(
            f"{self.chosen.name}: automatic compaction is off, two in a row did not help "
            f"({why}); /compress [focus], /new or a larger model help"
        )

    def flush(self, emit: Emit) -> None:
        """Show the engines' notices."""
        for runner in self.active:
            runner.flush(emit)

    async def hand_over(self, rows: Callable[[], list[ChatRow]]) -> None:
        """End only the spare engine: the chosen one now belongs to another session."""
        if self._spare is not None:
            await self._end(self._spare, rows())
        self._unhook()

    async def aclose(self, rows: Callable[[], list[ChatRow]]) -> None:
        """End the session for all engines and let them close their resources."""
        for runner in self.active:
            await self._end(runner, rows())
            runner.leave()
        self._unhook()

    def _unhook(self) -> None:
        """Drop references to the session and its parts, which would keep each other in memory."""
        info = self.facts.info()
        self.facts: HostFacts = msgspec.structs.replace(self.facts, info=lambda: info)
        self._make_spare = None

    async def _end(self, seat: EngineRunner, rows: list[ChatRow]) -> None:
        end, session = getattr(seat.engine, "on_session_end", None), self._log.session
        if callable(end):
            await seat.run("on_session_end", lambda: end(session.id, rows))
            if self._positions is not None:
                await self._positions.remember(seat, rows)
        # A clone may share resources with the engine that it was cloned from.
        await seat.close(shutdown=session.kind == "chat" or seat.origin == "fresh")

    def _mark(self, seat: EngineRunner) -> None:
        scope, session_id, conversation_id = self.facts.scope, self._log.session.id, self.conversation_id
        seat.scope = lambda: scope(session_id, conversation_id)

    def _change(
        self, left: Transcript | None = None, left_rows: list[ChatRow] | None = None
    ) -> SessionChange:
        facts = {
            "hermes_home": self.facts.home,
            "platform": self.facts.platform,
            "model": self.facts.info().model,
            "context_length": self.window,
            "conversation_id": self.conversation_id,
        }
        return SessionChange(self._log.session.id, left.session.id if left else "", left_rows, facts=facts)
