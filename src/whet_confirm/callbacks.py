"""Send webhooks to the address that a submission named, signed as Standard Webhooks, retried for a day.

The row is written in the same transaction as the decision, so no webhook is lost. The id stays the same
over retries; the timestamp is new. A webhook without a 2xx answer after 24 hours becomes a dead letter,
which is kept and listed. A slow receiver doesn't delay the others: each receiver has few concurrent
webhooks, and no principal takes more than half of the free slots.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import logging
import os
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import msgspec

from whet.config.paths import read_mode, read_small, replace_file
from whet.contract.errors import ConfigError, StoreCorrupt, StoreError, WhetError
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.web.beat import aligned_delay
from whet_confirm.addresses import AddressRefused, resolve
from whet_confirm.keys import SigningKey
from whet_confirm.requests import log_unreadable, select_rows, webhook_data
from whet_confirm.service import ConfirmService

SECRET_PREFIX = "whsec_"
_GIVE_UP_S = 24 * 3600.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 5.0, 3600.0
_TIMEOUT_S = 15.0
_DEADLINE_S = 60.0
_MAX_CONCURRENT, _MAX_PER_RECEIVER = 128, 2
_PAGE, _MAX_PAGES = 200, 20
_MAX_IDLE = 16
_IDLE_S = 3.0  # servers close idle connections after five
_MAX_BYTES = 100_000
POLL_S = 0.5
_logger = logging.getLogger("whet_confirm.callbacks")


_WAITING_CELLS = "c.run_after, c.id, c.url, r.principal"
_WAITING_FROM = ("callbacks c LEFT JOIN requests r ON r.id = c.request_id", "c.id")
_WAITING = (
    "c.status = 'waiting' AND c.run_after <= ? AND (c.run_after, c.id) > (?, ?)"
    f" ORDER BY c.run_after, c.id LIMIT {_PAGE}"
)
_BY_ID = "SELECT id, message_id, request_id, url, body, created_at, attempts FROM callbacks WHERE id = ?"
_START = (-1.0, 0)


class DueCallback(msgspec.Struct, frozen=True):
    """A webhook that is due."""

    id: int
    message_id: str
    request_id: str
    url: str
    body: str
    created_at: float
    attempts: int


def load_secret(path: Path) -> str:
    """Read the secret that receivers verify webhooks with, creating the file (0600) if needed.

    Raises ConfigError if others can read the file.
    """
    text = read_small(path)
    if text is None:
        text = SECRET_PREFIX + base64.b64encode(os.urandom(32)).decode()
        replace_file(path, text + "\n", mode=0o600)
    if (read_mode(path) or 0) & 0o077:
        raise ConfigError(f"{path} can be read by others", hint=f"chmod 600 {path}")
    return text.strip()


def signatures(secret: str, key: SigningKey, message_id: str, timestamp: int, body: str) -> str:
    """Return the webhook-signature header: `v1` with the shared secret and `v1a` with the service's key."""
    signed = f"{message_id}.{timestamp}.{body}".encode()
    shared = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    mac = base64.b64encode(hmac.new(shared, signed, hashlib.sha256).digest()).decode()
    return f"v1,{mac} v1a,{base64.b64encode(key.sign(signed)).decode()}"


def receiver_of(url: str) -> str:
    """Return the host and port of a webhook address, or an empty string if the address is invalid."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


class CallbackSlots:
    """The webhooks that are being sent, with their receivers and principals."""

    def __init__(self) -> None:
        self._busy: dict[int, tuple[str, str]] = {}
        self._receivers: Counter[str] = Counter()
        self._principals: Counter[str] = Counter()
        self._freed = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no more webhooks may start."""
        return len(self._busy) >= _MAX_CONCURRENT

    def take(self, number: int, parties: tuple[str, str]) -> bool:
        """Take a slot for a webhook of (receiver, principal).

        Returns False if it has to wait or is already being sent.
        """
        receiver, principal = parties
        free = _MAX_CONCURRENT - len(self._busy)
        if number in self._busy or self._receivers[receiver] >= _MAX_PER_RECEIVER:
            return False
        if self._principals[principal] >= free:
            return False
        self._busy[number] = parties
        self._receivers[receiver] += 1
        self._principals[principal] += 1
        return True

    def free(self, number: int) -> None:
        """Release a slot."""
        for counter, name in zip((self._receivers, self._principals), self._busy.pop(number), strict=True):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]
        self._freed.set()

    async def wait(self, has_waiting: bool) -> None:
        """Wait until the next poll. If a webhook waits for a slot, wait at most until one is free."""
        self._freed.clear()
        if not has_waiting:
            await asyncio.sleep(aligned_delay(POLL_S))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._freed.wait()


class Callbacks:
    """Sends due webhooks, many at once, without one receiver delaying another."""

    def __init__(self, service: ConfirmService, secret: str, *, allow_private: bool) -> None:
        self._service = service
        self._secret = secret
        self._allow_private = allow_private
        self._slots = CallbackSlots()
        self._position: tuple[float, int] = _START

    async def run(self) -> None:
        """Send until cancelled."""
        limits = Limits(_TIMEOUT_S, silence_s=_TIMEOUT_S, idle_s=_IDLE_S, max_idle=_MAX_IDLE)
        client = HttpClient(limits, uses_proxy=False)
        async with aclosing(client), asyncio.TaskGroup() as group:
            while True:
                try:
                    has_waiting = self.start_due(lambda item: group.create_task(self._send(client, item)))
                except StoreError as error:
                    _logger.warning("the due webhooks can't be read, trying again: %s", error.message)
                    has_waiting = False
                await self._slots.wait(has_waiting)

    def start_due(self, send: Callable[[DueCallback], object]) -> bool:
        """Start the due webhooks that have a slot. Returns whether a due webhook must wait for a slot.

        A long queue is read over several polls, so that one receiver's many webhooks don't hide another's.
        """
        now_s, has_waiting = self._service.timeline.now_s(), False
        for _ in range(_MAX_PAGES):
            bound = (now_s, *self._position)
            rows = self._service.database.read_now(
                lambda db, bound=bound: select_rows(db, _WAITING_CELLS, _WAITING_FROM, _WAITING, bound)
            )
            for row in rows:
                if self._slots.is_full:
                    return True
                if len(row) == 1:
                    log_unreadable(f"of webhook {row[0]}", "a text of it can't be read")
                    continue
                run_after, number, url, principal = row
                self._position = (run_after, number)
                has_slot = self._slots.take(number, (receiver_of(url), principal or ""))
                has_waiting = has_waiting or not has_slot
                if has_slot and (item := self._service.database.read_one(_BY_ID, (number,))):
                    send(DueCallback(*item))  # type: ignore[arg-type]
            if len(rows) < _PAGE:
                self._position = _START
                return has_waiting
        return True

    async def _send(self, client: HttpClient, item: DueCallback) -> None:
        try:
            problem, is_final = await self.post(client, item)
            await self._service.change(
                lambda tx: self.record_result(tx.connection, tx.now_s, item, (problem, is_final))
            )
        except WhetError as error:
            _logger.warning("webhook %d: %s", item.id, error.message)
        finally:
            self._slots.free(item.id)

    async def post(self, client: HttpClient, item: DueCallback) -> tuple[str, bool]:
        """Send a webhook. Returns the problem (empty on success) and whether a retry is pointless."""
        if not self.is_ours(item):
            return "it does not match the request's outcome", True
        timestamp = int(self._service.timeline.now_s())
        try:
            target = await resolve(item.url, allow_private=self._allow_private)
            request = Request(
                "POST",
                target.url,
                {
                    "accept": "*/*",
                    "accept-encoding": "identity",
                    "user-agent": "whet",
                    "content-type": "application/json",
                    "webhook-id": item.message_id,
                    "webhook-timestamp": str(timestamp),
                    "webhook-signature": signatures(
                        self._secret, self._service.key, item.message_id, timestamp, item.body
                    ),
                },
                item.body.encode(),
                host=target.host_header,
                server_name=target.server_name,
            )
            async with asyncio.timeout(_DEADLINE_S), client.exchange(request) as answer:
                await answer.read(_MAX_BYTES)  # otherwise the connection can't be reused
        except AddressRefused as error:
            return error.message, True
        except ConfigError as error:
            return error.message, False
        except (HttpFailed, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:300], False
        if 200 <= answer.status < 300:
            return "", True
        return f"answered {answer.status}", answer.status == 410

    def is_ours(self, item: DueCallback) -> bool:
        """Return whether the row matches its request's outcome. If not, another program wrote it."""
        try:
            request = self._service.get(item.request_id)
            data: object = msgspec.json.decode(item.body)["data"]
        except (StoreCorrupt, msgspec.DecodeError, KeyError, TypeError):
            return False
        if request is None:
            return False
        content = (item.message_id, item.url, data)
        return content == (f"msg_{request.id}", request.callback_url, webhook_data(request))

    def record_result(
        self, db: apsw.Connection, now_s: float, item: DueCallback, result: tuple[str, bool]
    ) -> None:
        """Store the `result` that `post` returned, and the time of the next try."""
        problem, is_final = result
        if not problem:
            status, run_after = "delivered", now_s
        elif is_final or now_s - item.created_at > _GIVE_UP_S:
            status, run_after = "dead", now_s
        else:
            status = "waiting"
            run_after = now_s + min(_FIRST_RETRY_S * 2**item.attempts, _LONGEST_RETRY_S)
        db.execute(
            "UPDATE callbacks SET status = ?, attempts = attempts + 1, run_after = ?, error = ? WHERE id = ?",
            (status, run_after, problem, item.id),
        )


def retry_dead_letter(db: apsw.Connection, callback_id: int, now_s: float) -> bool:
    """Retry a dead letter for another day. Returns False if there is no dead letter with that id."""
    db.execute(
        "UPDATE callbacks SET status = 'waiting', run_after = ?, created_at = ?, attempts = 0"
        " WHERE id = ? AND status = 'dead'",
        (now_s, now_s, callback_id),
    )
    return db.changes() == 1
