"""The one wallet: every model call of this process goes past the caps, whoever makes it.

Imported where a cap is set or a goal has a budget. What a call may cost is reserved at its most: all that is
sent, and the longest answer the model can give.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.config.schema import WalletSettings
from whet.contract.errors import ProviderError
from whet.contract.events import ReasoningDelta, TextDelta
from whet.contract.messages import Message, sent_content
from whet.contract.protocols import ModelInfo, ModelLink, ModelReply, Provider, StreamItem
from whet.contract.tools import ToolSpec
from whet.store import wallet
from whet.store.database import StateDatabase
from whet.store.wallet import Asked, Cap, Reserved

_CHARS_PER_TOKEN = 2.5
_PREFIX_TOKENS = 12_000
_IMAGE_TOKENS = 3_000


class Wallet:
    """The caps of one home, kept by its database."""

    def __init__(self, database: StateDatabase, clock: Clock, settings: WalletSettings) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._unpriced_told = False

    def capped(self, link: ModelLink, session_id: str, what: str) -> ModelLink:
        """Give the link as one whose requests count against the caps."""
        return _WalletLink(link, self, session_id, what)

    async def stream(
        self, link: ModelLink, messages: Sequence[Message], session_id: str, what: str
    ) -> AsyncIterator[StreamItem]:
        """Stream as the link does. Raises BudgetReached before anything is sent, ProviderError."""
        asked = self._asked(link.info, messages, session_id, what)
        reserved = await self._reserve(asked)
        said = list(reserved.near)
        if asked.usd is None and self._has_usd_cap() and not self._unpriced_told:
            self._unpriced_told = True
            said.append(
                f"the price of {asked.model} is not known: it is capped at"
                f" {self._settings.unpriced_tokens:,} tokens a day (wallet.unpriced_tokens, prices.csv)"
            )
        began, shown = False, 0
        try:
            stream = cast("AsyncGenerator[StreamItem, None]", link.stream(messages))
            async with aclosing(stream) as items:
                async for item in items:
                    if isinstance(item, ModelReply):
                        await self._settle(reserved, item.usage.cost_usd, item.usage.total_tokens)
                        item = msgspec.structs.replace(item, notices=(*item.notices, *said))
                    elif isinstance(item, TextDelta | ReasoningDelta):
                        shown += len(item.text)
                    began = True
                    yield item
        except (asyncio.CancelledError, GeneratorExit):
            self._database.submit(lambda db: wallet.settle_cancelled(db, reserved.id, asked, shown))
            raise
        except ProviderError:
            if not began:  # refused before it began: nothing is charged
                await self._settle(reserved, 0.0, 0)
            raise

    async def _reserve(self, asked: Asked) -> Reserved:
        day = self._day()
        caps, near = self._caps(), self._settings.near
        is_unpriced = asked.usd is None and self._has_usd_cap()

        def work(connection: apsw.Connection) -> Reserved:
            scopes = wallet.scopes_of(connection, asked.session, day)
            if is_unpriced or (asked.usd is None and any(name in ("goal", "helper") for name, _ in scopes)):
                scopes.append(("unpriced", day))
            return wallet.reserve(connection, asked, scopes, caps, near)

        return await self._database.append(work)

    async def _settle(self, reserved: Reserved, usd: float | None, tokens: int) -> None:
        await self._database.append(lambda db: wallet.settle(db, reserved.id, usd, tokens))

    def _asked(self, info: ModelInfo, messages: Sequence[Message], session_id: str, what: str) -> Asked:
        prompt = _PREFIX_TOKENS + sum(map(_tokens, messages))
        if info.window_tokens:
            prompt = min(prompt, info.window_tokens)
        output = info.max_output_tokens
        usd = None
        if info.input_usd_per_mtok is not None and info.output_usd_per_mtok is not None:
            dearest = max(info.input_usd_per_mtok, info.cache_write_usd_per_mtok or 0.0)
            usd = (prompt * dearest + output * info.output_usd_per_mtok) / 1e6
        return Asked(session_id, what, info.model, usd, prompt + output, iso(self._clock.now()), prompt)

    def _caps(self) -> dict[str, Cap]:
        own = self._settings
        return {
            "day": Cap(own.daily_usd, own.daily_tokens, "wallet.daily_usd, wallet.daily_tokens"),
            "session": Cap(own.session_usd, own.session_tokens, "wallet.session_usd, wallet.session_tokens"),
            "person": Cap(own.person_usd, 0, "wallet.person_usd"),
            "schedule": Cap(own.schedule_usd, 0, "wallet.schedule_usd"),
            "unpriced": Cap(0.0, own.unpriced_tokens, "wallet.unpriced_tokens"),
        }

    def _has_usd_cap(self) -> bool:
        own = self._settings
        return bool(own.daily_usd or own.session_usd or own.person_usd or own.schedule_usd)

    def _day(self) -> str:
        return self._clock.now().astimezone().strftime("%Y-%m-%d")


def _tokens(message: Message) -> int:
    content = sent_content(message)
    if isinstance(content, str):
        chars, images = len(content.encode("utf-8", "surrogatepass")), 0
    else:
        chars, images = len(message.text.encode("utf-8", "surrogatepass")), len(content)
    chars += sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
    return int(chars / _CHARS_PER_TOKEN) + images * _IMAGE_TOKENS + 8


class WalletProvider:
    """A provider whose links all go past the caps, for programs without sessions of their own: reviews."""

    def __init__(self, provider: Provider, wallet: Wallet, what: str) -> None:
        self._provider = provider
        self._wallet = wallet
        self._what = what

    @property
    def info(self) -> ModelInfo:
        """The model that answers."""
        return self._provider.info

    def open(self, system: str, tools: Sequence[ToolSpec], session_id: str) -> ModelLink:
        """Open a link that reserves before each call."""
        link = self._provider.open(system, tools, session_id)
        return self._wallet.capped(link, session_id, self._what)

    async def list_models(self) -> list[str]:
        """Give the models that the server names."""
        return await self._provider.list_models()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._provider.aclose()


class _WalletLink:
    """A link past the caps."""

    def __init__(self, link: ModelLink, wallet: Wallet, session_id: str, what: str) -> None:
        self._link = link
        self._wallet = wallet
        self._whose = session_id, what

    @property
    def info(self) -> ModelInfo:
        """The model that answers now."""
        return self._link.info

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Stream past the caps."""
        return self._wallet.stream(self._link, messages, *self._whose)
