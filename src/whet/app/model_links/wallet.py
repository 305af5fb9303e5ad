"""Check model calls against the spending caps of a home.

A call reserves its maximum cost (the whole prompt and the longest answer) before it is sent; afterwards the
reservation is replaced by the real cost. Imported only if a cap is set or a goal or helper has a budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import cast

import apsw
import msgspec

from whet.clock import Clock, iso, local_time, midnight_before
from whet.config.schema import WalletSettings
from whet.contract.errors import BudgetReached, ProviderError
from whet.contract.events import Retry, StreamRestarted
from whet.contract.messages import Message, Usage, sent_content
from whet.contract.protocols import (
    AnswerGrew,
    AttemptLost,
    ModelInfo,
    ModelLink,
    ModelReply,
    Provider,
    StreamItem,
)
from whet.contract.tools import ToolSpec
from whet.store import wallet
from whet.store.database import StateDatabase
from whet.store.wallet import CallsUnderWay, Cap, Doubt, PlannedCall, Reservation

_CHARS_PER_TOKEN = 2.5
_PREFIX_TOKENS = 12_000
_IMAGE_TOKENS = 3_000
_BYTES_PER_ANSWER_TOKEN = 3
_WIDEN_TOKENS = 4_096
# A server may count this much more than was sent: prompts of its own, pages that it searched.
_DOUBT_TOKENS = 100_000
_MAX_CALL_TIME = timedelta(minutes=15)
_MAX_COUNTED = 1_000
_CHECK_S, _CHECKS, _CHECKS_BEFORE_NOTICE = 0.25, 240, 8


class Wallet:
    """The caps of one home, enforced in its database."""

    def __init__(self, database: StateDatabase, clock: Clock, settings: WalletSettings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._has_noted_unpriced = False
        self._counted: set[tuple[str, str]] = set()

    def cap_link(self, link: ModelLink, session_id: str, purpose: str) -> ModelLink:
        """Return a link whose requests count against the caps."""
        return _WalletLink(link, self, session_id, purpose)

    async def stream(
        self, link: ModelLink, messages: Sequence[Message], session_id: str, purpose: str
    ) -> AsyncIterator[StreamItem]:
        """Stream as the link does. Reserve the cost of each attempt before it is sent, and settle it after.

        Raises BudgetReached before a request for which a cap has no room, and during an answer that grows
        beyond a cap. Raises ProviderError."""
        call = _CappedCall(self, lambda: (self.expect(link.info, messages, session_id, purpose), link.info))
        await call.reserve()
        try:
            stream = cast("AsyncGenerator[StreamItem, None]", link.stream(messages))
            async with aclosing(stream) as items:
                async for item in items:
                    yield await call.take(item)
        except (asyncio.CancelledError, GeneratorExit):
            call.cancel()
            raise
        except (BudgetReached, ProviderError):
            await call.end()
            raise

    async def reserve(self, planned: PlannedCall) -> Reservation:
        """Reserve a call's maximum cost. The reservation's `near` holds notices for the person. Raises
        BudgetReached."""
        reservation = await self._reserve(planned)
        if planned.usd is None and self._has_usd_cap() and not self._has_noted_unpriced:
            self._has_noted_unpriced = True
            notice = (
                f"the price of {planned.model} is not known: it is capped at"
                f" {self._settings.unpriced_tokens:,} tokens a day (wallet.unpriced_tokens, prices.csv)"
            )
            return msgspec.structs.replace(reservation, near=(*reservation.near, notice))
        return reservation

    async def widen(self, reservation: Reservation, more: PlannedCall) -> None:
        """Reserve more for an answer that is longer than expected. Raises BudgetReached."""
        caps = self._caps()
        await self._database.append(lambda db: wallet.widen(db, reservation.id, more, caps))

    async def settle(
        self, reservation: Reservation, usd: float | None, tokens: int, expected: PlannedCall | None = None
    ) -> None:
        """Replace a reservation by the attempt's real cost. `expected` is the planned cost, given only if the
        answer is complete."""
        await self._database.append(lambda db: wallet.settle(db, reservation.id, usd, tokens, expected))

    async def settle_cancelled(self, reservation: Reservation, planned: PlannedCall, chars: int) -> None:
        """Settle an attempt that Whet ended after `chars` characters of its answer."""
        await self._database.append(
            lambda db: wallet.settle_cancelled_call(db, reservation.id, planned, chars)
        )

    async def settle_cut(
        self, reservation: Reservation, planned: PlannedCall, usd: float | None, tokens: int
    ) -> None:
        """Settle an attempt that the server ended before it reported the cost."""
        await self._database.append(
            lambda db: wallet.settle_cut_call(db, reservation.id, planned, usd, tokens)
        )

    def settle_later(self, reservation: Reservation, planned: PlannedCall, chars: int) -> None:
        """Settle a cancelled attempt as `settle_cancelled` does, without waiting for the write."""
        self._database.submit(lambda db: wallet.settle_cancelled_call(db, reservation.id, planned, chars))

    async def _reserve(self, planned: PlannedCall) -> Reservation:
        """Reserve a call's maximum cost; wait while other calls hold the room. Raises BudgetReached."""
        day = self._day()
        caps, near = self._caps(), self._settings.near
        await self._count_stored(planned.session, day, caps)

        def work(connection: apsw.Connection) -> Reservation:
            scopes = wallet.list_scopes(connection, planned.session, day)
            has_budget = any(name in ("goal", "helper") for name, _ in scopes)
            if planned.usd is None and (self._has_usd_cap() or has_budget):
                scopes.append(("unpriced", day))
            return wallet.reserve(connection, planned, scopes, caps, near)

        for check in range(_CHECKS):
            try:
                reservation = await self._database.append(work)
            except CallsUnderWay:
                await asyncio.sleep(_CHECK_S)
                continue
            if check < _CHECKS_BEFORE_NOTICE:
                return reservation
            notice = f"waited {check * _CHECK_S:.0f} s for other calls to end: the cap had no room"
            return msgspec.structs.replace(reservation, near=(*reservation.near, notice))
        try:
            return await self._database.append(work)
        except CallsUnderWay as error:
            text = f"{error.message}; other calls did not end within {_CHECKS * _CHECK_S:.0f} s"
            raise BudgetReached(text, hint=error.hint) from error

    async def _count_stored(self, session_id: str, day: str, caps: dict[str, Cap]) -> None:
        """Count the calls that were made before the cap was set, once for each session and day."""
        if (session_id, day) in self._counted:
            return
        midnight = iso(midnight_before(self._clock.now()))

        def work(connection: apsw.Connection) -> None:
            for scope in wallet.list_scopes(connection, session_id, day):
                cap = caps.get(scope[0], Cap())
                if cap.usd or cap.tokens:
                    wallet.count_stored(connection, scope, midnight)

        await self._database.append(work)
        if len(self._counted) >= _MAX_COUNTED:
            self._counted.clear()
        self._counted.add((session_id, day))

    def expect(
        self, info: ModelInfo, messages: Sequence[Message], session_id: str, purpose: str
    ) -> PlannedCall:
        """Return the planned call with its maximum cost."""
        prompt = _PREFIX_TOKENS + sum(map(_estimate_tokens, messages))
        if info.window_tokens:
            prompt = min(prompt, info.window_tokens)
        output, now = info.max_output_tokens, self._clock.now()
        doubt_usd = _max_usd(info, _DOUBT_TOKENS, output) or 0.0
        return PlannedCall(
            session_id,
            purpose,
            info.model,
            _max_usd(info, prompt, output),
            prompt + output,
            iso(now),
            prompt_tokens=prompt,
            doubt=Doubt(doubt_usd, _DOUBT_TOKENS + output, iso(now - _MAX_CALL_TIME)),
        )

    def _caps(self) -> dict[str, Cap]:
        settings = self._settings
        return {
            "day": Cap(settings.daily_usd, settings.daily_tokens, "wallet.daily_usd, wallet.daily_tokens"),
            "session": Cap(
                settings.session_usd, settings.session_tokens, "wallet.session_usd, wallet.session_tokens"
            ),
            "person": Cap(settings.person_usd, 0, "wallet.person_usd"),
            "schedule": Cap(settings.schedule_usd, 0, "wallet.schedule_usd"),
            "unpriced": Cap(0.0, settings.unpriced_tokens, "wallet.unpriced_tokens"),
        }

    def _has_usd_cap(self) -> bool:
        settings = self._settings
        return bool(
            settings.daily_usd or settings.session_usd or settings.person_usd or settings.schedule_usd
        )

    def _day(self) -> str:
        return local_time(self._clock.now()).strftime("%Y-%m-%d")


class _CappedCall:
    """One request and its attempts, one after another.

    `_expected` is the current attempt with the maximum cost that was reserved for it first, `_planned` the
    same after the answer needed more. `_received_bytes` is the size of its answer so far, `_answer_tokens`
    the tokens reserved for the answer.
    """

    def __init__(self, wallet: Wallet, expect: Callable[[], tuple[PlannedCall, ModelInfo]]) -> None:
        self._wallet = wallet
        self._expect = expect
        self._reservation: Reservation | None = None
        self._planned, self._info = expect()
        self._notices: list[str] = []
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self._expected = self._planned
        self._received_bytes = 0
        self._is_waiting = False
        self._answer_tokens = self._planned.tokens - self._planned.prompt_tokens

    async def reserve(self) -> None:
        """Reserve for the next attempt. Raises BudgetReached."""
        self._planned, self._info = self._expect()
        self._reservation = await self._wallet.reserve(self._planned)
        self._notices += self._reservation.near
        self._begin_attempt()

    async def take(self, item: StreamItem) -> StreamItem:
        """Count an item of the stream and return it. Raises BudgetReached if a cap has no room for more."""
        if isinstance(item, AttemptLost):
            await self._settle(item.usage)
        elif isinstance(item, ModelReply):
            await self._settle(item.usage, is_complete=True)
            return msgspec.structs.replace(item, warnings=(*item.warnings, *self._notices))
        elif isinstance(item, Retry | StreamRestarted):
            if self._reservation is None:
                await self.reserve()
            self._is_waiting = isinstance(item, Retry) and item.wait_s > 0
        else:
            self._is_waiting = False
            await self._add_answer(item.chars if isinstance(item, AnswerGrew) else _size_bytes(item.text))
        return item

    async def _add_answer(self, size_bytes: int) -> None:
        """Count a piece of the answer, and reserve more if the answer is longer than expected."""
        self._received_bytes += size_bytes
        missing_tokens = self._received_bytes // _BYTES_PER_ANSWER_TOKEN - self._answer_tokens
        if missing_tokens <= 0 or self._reservation is None:
            return
        tokens = max(missing_tokens, _WIDEN_TOKENS)
        price = self._info.output_usd_per_mtok
        usd = None if self._planned.usd is None or price is None else tokens * price / 1e6
        more = msgspec.structs.replace(self._planned, tokens=tokens, usd=usd, prompt_tokens=0)
        await self._wallet.widen(self._reservation, more)
        self._answer_tokens += tokens
        total_usd = None if self._planned.usd is None else self._planned.usd + (usd or 0.0)
        self._planned = msgspec.structs.replace(
            self._planned, tokens=self._planned.tokens + tokens, usd=total_usd
        )

    async def _settle(self, usage: Usage, *, is_complete: bool = False) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        usd = usage.cost_usd
        if usd is None:  # the price of some tokens is unknown, so all count at the highest price
            usd = _max_usd(self._info, usage.prompt_tokens, usage.output_tokens)
        if is_complete:
            await self._wallet.settle(reservation, usd, usage.total_tokens, self._expected)
        elif usage.estimated_tokens >= usage.total_tokens:
            await self._wallet.settle_cut(reservation, self._planned, usd, usage.total_tokens)
        else:
            await self._wallet.settle(reservation, usd, usage.total_tokens)

    async def end(self) -> None:
        """Settle an attempt that failed or was cut. It costs nothing if no answer arrived."""
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        if self._received_bytes:
            await self._wallet.settle_cancelled(reservation, self._planned, self._received_bytes)
        else:
            await self._wallet.settle(reservation, 0.0, 0)

    def cancel(self) -> None:
        """Settle an attempt that was cancelled. It costs nothing if it was not sent yet."""
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        planned = self._planned
        if self._is_waiting:
            planned = msgspec.structs.replace(planned, tokens=0, usd=None)
        self._wallet.settle_later(reservation, planned, self._received_bytes)


def _size_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _max_usd(info: ModelInfo, prompt: int, output: int) -> float | None:
    """Return the maximum price of a prompt and an answer of this many tokens, or None if it is unknown."""
    if info.input_usd_per_mtok is None or info.output_usd_per_mtok is None:
        return None
    input_usd_per_mtok = max(info.input_usd_per_mtok, info.cache_write_usd_per_mtok or 0.0)
    return (prompt * input_usd_per_mtok + output * info.output_usd_per_mtok) / 1e6


def _estimate_tokens(message: Message) -> int:
    """Return an upper estimate of a message's tokens."""
    content = sent_content(message)
    if isinstance(content, str):
        chars, images = _size_bytes(content), 0
    else:
        chars, images = _size_bytes(message.text), len(content)
    chars += sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
    return int(chars / _CHARS_PER_TOKEN) + images * _IMAGE_TOKENS + 8


class WalletProvider:
    """A provider whose calls count against the caps: for reviews and plugins, which have no session's
    link."""

    def __init__(self, provider: Provider, wallet: Wallet, purpose: str) -> None:
        self._provider = provider
        self._wallet = wallet
        self._purpose = purpose

    @property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return self._provider.info

    def open(self, system: str, tools: Sequence[ToolSpec], session_id: str) -> ModelLink:
        """Open a link whose calls count against the caps."""
        link = self._provider.open(system, tools, session_id)
        return self._wallet.cap_link(link, session_id, self._purpose)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models."""
        return await self._provider.list_models()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._provider.aclose()


class _WalletLink:
    """A link whose requests count against the caps."""

    def __init__(self, link: ModelLink, wallet: Wallet, session_id: str, purpose: str) -> None:
        self._link = link
        self._wallet = wallet
        self._session_id = session_id
        self._purpose = purpose

    @property
    def info(self) -> ModelInfo:
        """The model that answers now."""
        return self._link.info

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream and count against the caps."""
        return self._wallet.stream(self._link, messages, self._session_id, self._purpose)
