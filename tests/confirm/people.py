"""A service in a temporary folder, its people, and a running notifier: what tests of channels share."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from whet_confirm import tokens
from whet_confirm.decide import DecisionInput
from whet_confirm.ledger import Tx
from whet_confirm.notify import deliveries
from whet_confirm.notify.notifier import ConfirmNotifier
from whet_confirm.notify.settings import read_channels
from whet_confirm.open import ServicePaths, open_service
from whet_confirm.records import Caller, ConfirmRequest, RequestOutcome, Verdict
from whet_confirm.service import CallerLimits, ConfirmService
from whet_confirm.submit import Submission

T = TypeVar("T")
AGENT = Caller("agent", "submit")
PAGE = "https://confirm.example.org"


def channel(kind: str, **fields: object) -> str:
    """A channel of a channels file."""
    rows = {"kind": kind, **fields}.items()
    return "\n".join(["[[channel]]", *(f"{name} = {json.dumps(value)}" for name, value in rows), ""])


class Desk:
    """The service and what tests do with it."""

    def __init__(self, folder: Path, policy: str = "") -> None:
        policy_path = folder / "policy.toml"
        if policy:
            policy_path.write_text(policy)
        where = ServicePaths(folder / "c.db", folder / "confirm")
        self.folder = folder
        self.service: ConfirmService = open_service(
            where, policy=policy_path if policy else None, limits=CallerLimits(rate=10_000)
        )

    def token(self, name: str, role: str = "approve") -> str:
        """Make a token; gives the secret."""

        def make(db: apsw.Connection) -> str:
            tx = Tx(db, self.service.timeline.now_s(), self.service.key)
            return tokens.create(tx, name, role, by="test")[1]

        return self.service.database.write_now(make)

    def who(self, secret: str) -> Caller:
        caller = self.service.authenticate(secret)
        assert caller is not None
        return caller

    async def submit(self, action: str = "deploy_production", **fields: Any) -> ConfirmRequest:
        fields = {"description": "Release 2.4 to all regions", "details": {"version": "2.4"}, **fields}
        request = await self.service.submit(AGENT, Submission(action, **fields))
        assert request.request is not None, request
        return request.request

    async def decide(
        self, request: ConfirmRequest, who: Caller, verdict: Verdict, reason: str = ""
    ) -> RequestOutcome:
        return await self.service.decide(DecisionInput(request.id, verdict, reason, request.digest), who)

    def deliveries(self, request: ConfirmRequest) -> list[deliveries.NotifyDelivery]:
        now_s = self.service.timeline.now_s()
        return self.service.database.read_now(lambda db: deliveries.list_deliveries(db, request.id, now_s))

    def events(self, request: ConfirmRequest) -> list[str]:
        return [event.kind for event in self.service.log.history(request_id=request.id)]

    async def until(self, condition: Callable[[], T], what: str = "it", timeout_s: float = 40.0) -> T:
        """Wait for an event after which `condition` gives something true."""
        async with asyncio.timeout(timeout_s):
            while True:
                future = self.service.hub.next_event()
                try:
                    if found := condition():
                        return found
                    # Not every change of a delivery is an event.
                    await asyncio.wait((future,), timeout=0.05)
                finally:
                    self.service.hub.cancel_wait(future)

    @contextlib.asynccontextmanager
    async def notifying(
        self, channels: str = "", secrets: dict[str, str] | None = None
    ) -> AsyncIterator[ConfirmNotifier]:
        path = self.folder / "channels.toml"
        path.write_text(channels)
        notifier = ConfirmNotifier(self.service, read_channels(path), secrets or {}, PAGE)
        task = asyncio.create_task(notifier.run())
        try:
            yield notifier
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def close(self) -> None:
        self.service.hub.close()
        self.service.database.close()


async def off(function: Callable[..., T], *args: Any) -> T:
    """Call what blocks (a vendor's server, seen by a person) off the event loop."""
    return await asyncio.to_thread(function, *args)
