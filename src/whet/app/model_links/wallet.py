"""Check every model call of this process against the spending caps, whoever makes it.

Imported only if a cap is set or a goal has a budget. A call reserves its maximum cost: the whole prompt
and the longest answer of the model.
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
        beyond what is left of a cap. Raises ProviderError."""
        call = _Call(self, lambda: (self.expect(link.info, messages, session_id, purpose), link.info))
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
        """Reserve a call's maximum cost. `near` has the notices for the person. Raises BudgetReached."""
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
        """Replace a reservation by the attempt's real cost. `expected` is the planned cost if the answer
        came whole."""
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
        """Settle a cancelled attempt, without waiting for the write."""
        self._database.submit(lambda db: wallet.settle_cancelled_call(db, reservation.id, planned, chars))

    async def _reserve(self, request: PlannedCall) -> Reservation:
        day = self._day()
        caps, near = self._caps(), self._settings.near
        await self._count_stored(request.session, day, caps)
        is_unpriced = request.usd is None and self._has_usd_cap()

        def work(connection: apsw.Connection) -> Reservation:
            scopes = wallet.list_scopes(connection, request.session, day)
            if is_unpriced or (request.usd is None and any(name in ("goal", "helper") for name, _ in scopes)):
                scopes.append(("unpriced", day))
            return wallet.reserve(connection, request, scopes, caps, near)

        for check in range(_CHECKS):
            try:
                reservation = await self._database.append(work)
            except CallsUnderWay:  # their answers show what the server bills
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
        """Count what ran before its cap was set, once for a session and day."""
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

    def expect(self, info: ModelInfo, messages: Sequence[Message], session_id: str, what: str) -> PlannedCall:
        """Return a call with its maximum cost."""
        prompt = _PREFIX_TOKENS + sum(map(_tokens, messages))
        if info.window_tokens:
            prompt = min(prompt, info.window_tokens)
        output, now = info.max_output_tokens, self._clock.now()
        doubt = Doubt(
            _max_usd(info, _DOUBT_TOKENS, output) or 0.0, _DOUBT_TOKENS + output, iso(now - _MAX_CALL_TIME)
        )
        usd = _max_usd(info, prompt, output)
        return PlannedCall(
            session_id, what, info.model, usd, prompt + output, iso(now), prompt_tokens=prompt, doubt=doubt
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


class _Call:
    """One request and its attempts, one after another.

    `_planned` is the present attempt with its maximum cost, `_expected` the same before its answer grew
    beyond it. `_received` counts the bytes of its answer, `_answer_tokens` the tokens reserved for it.
    """

    def __init__(self, wallet: Wallet, expect: Callable[[], tuple[PlannedCall, ModelInfo]]) -> None:
        self._wallet = wallet
        self._expect = expect
        self._reservation: Reservation | None = None
        self._planned, self._info = expect()
        self._notices: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._expected = self._planned
        self._received = 0
        self._is_waiting = False
        self._answer_tokens = self._planned.tokens - self._planned.prompt_tokens

    async def reserve(self) -> None:
        """Reserve for the next attempt. Raises BudgetReached."""
        self._planned, self._info = self._expect()
        self._reservation = await self._wallet.reserve(self._planned)
        self._notices += self._reservation.near
        self._begin()

    async def take(self, item: StreamItem) -> StreamItem:
        """Count an item of the stream and return it. Raises BudgetReached if a cap has no room for more."""
        if isinstance(item, AttemptLost):
            await self._settle(item.usage)
        elif isinstance(item, ModelReply):
            await self._settle(item.usage, is_whole=True)
            return msgspec.structs.replace(item, warnings=(*item.warnings, *self._notices))
        elif isinstance(item, Retry | StreamRestarted):
            if self._reservation is None:
                await self.reserve()
            self._is_waiting = isinstance(item, Retry) and item.wait_s > 0
        else:
            self._is_waiting = False
            await self._grow(item.chars if isinstance(item, AnswerGrew) else _bytes(item.text))
        return item

    async def _grow(self, size: int) -> None:
        self._received += size
        missing = self._received // _BYTES_PER_ANSWER_TOKEN - self._answer_tokens
        if missing <= 0 or self._reservation is None:
            return
        tokens = max(missing, _WIDEN_TOKENS)
        price = self._info.output_usd_per_mtok
        usd = None if self._planned.usd is None or price is None else tokens * price / 1e6
        more = msgspec.structs.replace(self._planned, tokens=tokens, usd=usd, prompt_tokens=0)
        await self._wallet.widen(self._reservation, more)
        self._answer_tokens += tokens
        whole = None if self._planned.usd is None else self._planned.usd + (usd or 0.0)
        self._planned = msgspec.structs.replace(
            self._planned, tokens=self._planned.tokens + tokens, usd=whole
        )

    async def _settle(self, usage: Usage, *, is_whole: bool = False) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            usd = usage.cost_usd
            if usd is None:  # no price is known for a part of it, so each part counts at the highest
                usd = _max_usd(self._info, usage.prompt_tokens, usage.output_tokens)
            if usage.estimated_tokens >= usage.total_tokens and not is_whole:
                await self._wallet.settle_cut(reservation, self._planned, usd, usage.total_tokens)
                return
            expected = self._expected if is_whole else None
            await self._wallet.settle(reservation, usd, usage.total_tokens, expected)

    async def end(self) -> None:
        """Settle an attempt that failed or was cut. Without any answer it costs nothing."""
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        if self._received:
            await self._wallet.settle_cancelled(reservation, self._planned, self._received)
        else:
            await self._wallet.settle(reservation, 0.0, 0)

    def cancel(self) -> None:
        """Settle an attempt that was cancelled: nothing if it was not sent yet."""
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        unsent = msgspec.structs.replace(self._planned, tokens=0, usd=None, prompt_tokens=0)
        self._wallet.settle_later(reservation, unsent if self._is_waiting else self._planned, self._received)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _max_usd(info: ModelInfo, prompt: int, output: int) -> float | None:
    """Return the maximum price of a prompt and an answer of this many tokens, or None if it is unknown."""
    if info.input_usd_per_mtok is None or info.output_usd_per_mtok is None:
        return None
    input_usd_per_mtok = max(info.input_usd_per_mtok, info.cache_write_usd_per_mtok or 0.0)
    return (prompt * input_usd_per_mtok + output * info.output_usd_per_mtok) / 1e6


def _tokens(message: Message) -> int:
    content = sent_content(message)
    if isinstance(content, str):
        chars, images = len(content.encode("utf-8", "surrogatepass")), 0
    else:
        chars, images = len(message.text.encode("utf-8", "surrogatepass")), len(content)
    chars += sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
    return int(chars / _CHARS_PER_TOKEN) + images * _IMAGE_TOKENS + 8


class WalletProvider:
    """A provider whose links all count against the caps, for programs without sessions: reviews."""

    def __init__(self, provider: Provider, wallet: Wallet, purpose: str) -> None:
        self._provider = provider
        self._wallet = wallet
        self._purpose = purpose

    @property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return self._provider.info

    def open(self, system: str, tools: Sequence[ToolSpec], session_id: str) -> ModelLink:
        """Open a link that reserves before each call."""
        link = self._provider.open(system, tools, session_id)
        return self._wallet.cap_link(link, session_id, self._purpose)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models."""
        return await self._provider.list_models()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._provider.aclose()


class _WalletLink:
    """A link that counts against the caps."""

    def __init__(self, link: ModelLink, wallet: Wallet, session_id: str, purpose: str) -> None:
        self._link = link
        self._wallet = wallet
        self._whose = session_id, purpose

    @property
    def info(self) -> ModelInfo:
        """The model that answers now."""
        return self._link.info

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream and count against the caps."""
        return self._wallet.stream(self._link, messages, *self._whose)
