"""Ask the confirmation service about the gate's calls: submit a request, wait, consume the approval, report
the result.

After a crash the call's request is found by its idempotency key, so a restart of either side never asks a
human twice or runs an action twice. A failure denies the call, and the reason says what failed. Other modules
classify actions (`approval/high_risk.py`) and speak HTTP (`whet_confirm/client.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from whet.approval.gate import ServiceRoute
from whet.approval.high_risk import HighRisk
from whet.clock import Clock
from whet.config.paths import Home
from whet.config.permission_settings import ConfirmSettings
from whet.contract.errors import WhetError
from whet.contract.events import ConfirmationAsked, Emit, Notice
from whet.contract.protocols import ConfirmCase, Decision
from whet.contract.tools import ToolOutput
from whet.question import diff_rows
from whet.visible import visible
from whet_confirm.client import ConfirmClient
from whet_confirm.tickets import ConfirmationRefused, ConfirmOptions, Failed, Ticket, Unreachable

_SHOWN_CHARS = 20_000
_LINE_CHARS = 200
_GRACE_S = 10.0
_CANCEL_S = 3.0
_SUBMIT_TRIES = 3
_RESTART_TRIES = 20
_RETRY_S = 1.0

T = TypeVar("T")


class Confirmations:
    """Lets the humans behind a confirmation service decide. One object serves all sessions of a process;
    close it with `aclose`."""

    def __init__(
        self, settings: ConfirmSettings, secrets: Mapping[str, str], home: Home, clock: Clock
    ) -> None:
        self._settings = settings
        self._clock = clock
        path = home.root / "confirm" / "submit.token"
        self._client = ConfirmClient(settings.url, secrets.get(settings.token_env, ""), token_path=path)
        self._refused: set[str] = set()

    @property
    def route(self) -> ServiceRoute:
        """The gate's route to this service. Raises ConfigError if the settings' actions are invalid."""
        high_risk = HighRisk(self._settings.actions, defaults=self._settings.default_actions)
        return ServiceRoute(high_risk, self)

    async def confirm(self, case: ConfirmCase, emit: Emit) -> Decision:
        """Decide, as the Confirmer contract requires."""
        key = _key(case)
        self._refused.add(key)
        ticket: Ticket | None = None
        try:
            try:
                ticket = await self._submit(case)
                record = await self._wait(case, ticket, emit)
            except asyncio.CancelledError:
                await asyncio.shield(self._withdraw(case, ticket, emit))
                raise
            if record["status"] not in ("approved", "auto_approved"):
                return Decision("deny", "service", _refusal(record))
            self._refused.discard(key)  # from here on the result must be reported, even if the call fails
            await _retry_unreachable(
                lambda: self._client.consume(ticket.id, ticket.digest, idempotency_key=key), _RESTART_TRIES
            )
        except (Failed, Unreachable, ConfirmationRefused) as error:
            return Decision("deny", "service", _failure(error))
        return Decision("allow", "service", f"approved by {record.get('resolved_by') or 'a rule'}")

    async def report(self, case: ConfirmCase, output: ToolOutput, emit: Emit) -> None:
        """Report to the service how an approved call ended. Other calls are not reported."""
        if _key(case) in self._refused:
            self._refused.discard(_key(case))
            return
        result = "failed" if output.is_error else "executed"
        note = f"{output.error_kind}: {visible(output.text, _LINE_CHARS)}" if output.is_error else ""
        # the person is waiting for the turn to end
        limit_s = _CANCEL_S if output.error_kind == "interrupted" else None
        try:
            async with asyncio.timeout(limit_s):
                ticket = await self._submit(case)  # the key finds the existing request
                record = await self._client.status(ticket.id)
                if record["status"] == "pending":  # the service had lost the key: this is a new request
                    await self._client.cancel(ticket.id, "the action is over")
                elif record.get("consumed_at"):
                    await self._client.report(ticket.id, result, note)
        except (Failed, Unreachable, ConfirmationRefused, TimeoutError) as error:
            why = error.message if isinstance(error, WhetError) else f"no answer within {_CANCEL_S:g} s"
            text = f"the confirmation service was not told how the action ended: {why}"
            emit(Notice(text, must_show=True))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _submit(self, case: ConfirmCase) -> Ticket:
        ask = ConfirmOptions(
            requester="whet",
            session_key=case.call.session_id,
            timeout_s=self._settings.timeout_s,
            idempotency_key=_key(case),
        )
        subject = case.subject.splitlines()[0] if case.subject else case.call.tool.name
        text = f"{case.call.tool.name}: {subject[:_LINE_CHARS]}"
        return await _retry_unreachable(
            lambda: self._client.submit(case.action, text, _details(case), ask), _SUBMIT_TRIES
        )

    async def _wait(self, case: ConfirmCase, ticket: Ticket, emit: Emit) -> dict[str, Any]:
        """Point the person to the decision page and wait for the decision, also while the service
        restarts."""
        record = await _retry_unreachable(lambda: self._client.status(ticket.id), _RESTART_TRIES)
        if record["status"] != "pending":
            return record
        expires_at = record.get("expires_at")
        left_s = float(self._settings.timeout_s)
        if isinstance(expires_at, int | float):
            left_s = max(0.0, expires_at - self._clock.now().timestamp())
        details = (case.call.call.id, case.action, case.subject, ticket.id, ticket.page_url, left_s)
        emit(ConfirmationAsked(*details))
        return await self._client.wait(ticket.id, left_s + _GRACE_S)

    async def _withdraw(self, case: ConfirmCase, ticket: Ticket | None, emit: Emit) -> None:
        """Withdraw a request. If its ticket has not arrived yet, find it by its key."""
        try:
            async with asyncio.timeout(_CANCEL_S):
                withdrawn = ticket or await self._submit(case)
                await self._client.cancel(withdrawn.id, "the person at the agent stopped it")
        except (Failed, Unreachable, ConfirmationRefused, TimeoutError):
            # No one is left to use an approval, and the request expires by itself.
            emit(Notice("the request could not be withdrawn from the confirmation service; it runs out"))
        else:
            emit(Notice("the request was withdrawn from the confirmation service"))


async def _retry_unreachable(call: Callable[[], Awaitable[T]], tries: int) -> T:
    """Make an idempotent call, and repeat it while the service is unreachable. Raises Unreachable after the
    last try."""
    for _ in range(tries - 1):
        try:
            return await call()
        except Unreachable:
            await asyncio.sleep(_RETRY_S)
    return await call()


def _key(case: ConfirmCase) -> str:
    return f"whet:{case.call.session_id}:{case.call.key}"


def _details(case: ConfirmCase) -> dict[str, Any]:
    """Return the details that the human reads, with secrets masked. The hash binds the approval to the
    arguments."""
    raw = json.dumps(case.call.arguments, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    arguments = {name: _display_value(value) for name, value in case.call.arguments.items()}
    written = "\n".join(row.text for change in case.changes for row in diff_rows(change))
    return {
        "tool": case.call.tool.name,
        **({"writes": visible(written, _SHOWN_CHARS)} if written else {}),
        "arguments": arguments,
        "workspace": case.call.workspace,
        "reasons": list(case.reasons),
        "arguments_sha256": hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest(),
    }


def _display_value(value: object) -> object:
    if isinstance(value, str):
        return visible(value, _SHOWN_CHARS)
    if isinstance(value, bool | int | float) or value is None:
        return value
    return visible(json.dumps(value, ensure_ascii=False), _SHOWN_CHARS)


def _refusal(record: Mapping[str, Any]) -> str:
    status, by = record["status"], record.get("resolved_by") or "somebody"
    reason = f": {record['reason']}" if record.get("reason") else ""
    if status == "denied":
        text = f"Denied by {by} at the confirmation service{reason.rstrip('.')}. Nothing was run. "
        return visible(text + "Don't try to reach the same in another way; ask what they want instead.")
    if status == "pending":
        return "The confirmation service gave no decision in time, so nothing was run."
    if status == "expired":
        limit = f"within {record['timeout_seconds']} s" if "timeout_seconds" in record else "in time"
        return f"Nobody decided at the confirmation service {limit}, which is a denial. Nothing was run."
    return visible(f"The request at the confirmation service was {status} by {by}{reason}. Nothing was run.")


def _failure(error: Failed | Unreachable | ConfirmationRefused) -> str:
    message = error.message.rstrip(".")
    if isinstance(error, Unreachable):
        return visible(f"This needs a human's decision, and {message}, so nothing was run.")
    return visible(f"The confirmation service refused this ({message}), so nothing was run.")
