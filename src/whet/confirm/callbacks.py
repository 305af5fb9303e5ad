"""Webhooks to the address that a submission named, signed as Standard Webhooks says, tried for a day.

The row is written with the decision, so none is forgotten. The id stays the same over retries, the timestamp
is new; whoever still does not answer with 2xx after 24 hours is a dead letter, kept and listed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import os
from pathlib import Path

import apsw
import msgspec

from whet.config.paths import mode_of, read_small, replace
from whet.confirm.addresses import AddressRefused, resolve
from whet.confirm.keys import SigningKey
from whet.confirm.requests import outcome_of
from whet.confirm.service import ConfirmService
from whet.contract.errors import ConfigError, StoreCorrupt, WhetError
from whet.http1.client import HttpClient, Limits, Request
from whet.http1.failure import HttpFailed
from whet.web.beat import in_step

SECRET_PREFIX = "whsec_"
_GIVE_UP_S = 24 * 3600.0
_FIRST_RETRY_S, _LONGEST_RETRY_S = 5.0, 3600.0
_TIMEOUT_S = 15.0
_WHOLE_S = 60.0
_AT_ONCE = 16
_IDLE_S = 3.0  # servers hang up after five
_MOST_BYTES = 100_000
_LOOK_S = 0.5
_logger = logging.getLogger("whet.confirm.callbacks")


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
    """Give the secret that receivers check webhooks with; made (0600) at first. Raises ConfigError."""
    text = read_small(path)
    if text is None:
        text = SECRET_PREFIX + base64.b64encode(os.urandom(32)).decode()
        replace(path, text + "\n", mode=0o600)
    if (mode_of(path) or 0) & 0o077:
        raise ConfigError(f"{path} can be read by others", hint=f"chmod 600 {path}")
    return text.strip()


def signatures(secret: str, key: SigningKey, message_id: str, timestamp: int, body: str) -> str:
    """Give the webhook-signature header: `v1` by the shared secret and `v1a` by the service's key."""
    signed = f"{message_id}.{timestamp}.{body}".encode()
    shared = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    mac = base64.b64encode(hmac.new(shared, signed, hashlib.sha256).digest()).decode()
    return f"v1,{mac} v1a,{base64.b64encode(key.sign(signed)).decode()}"


class Callbacks:
    """Sends what is due, many at once, each host in its own time."""

    def __init__(self, service: ConfirmService, secret: str, *, allow_private: bool) -> None:
        self._service = service
        self._secret = secret
        self._allow_private = allow_private
        self._busy: set[int] = set()

    async def run(self) -> None:
        """Send until cancelled."""
        limits = Limits(_TIMEOUT_S, silence_s=_TIMEOUT_S, idle_s=_IDLE_S, most_idle=_AT_ONCE)
        client = HttpClient(limits, uses_proxy=False)
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for item in self._due():
                        self._busy.add(item.id)
                        group.create_task(self._send(client, item))
                    await asyncio.sleep(in_step(_LOOK_S))
        finally:
            await client.aclose()

    def _due(self) -> list[DueCallback]:
        room = _AT_ONCE - len(self._busy)
        if room <= 0:
            return []
        sql = (
            "SELECT id, message_id, request_id, url, body, created_at, attempts FROM callbacks"
            " WHERE status = 'waiting' AND run_after <= ? ORDER BY run_after LIMIT ?"
        )
        now_s = self._service.timeline.now_s()
        rows = self._service.database.read_now(lambda db: db.execute(sql, (now_s, _AT_ONCE)).fetchall())
        return [item for row in rows if (item := DueCallback(*row)).id not in self._busy][:room]

    async def _send(self, client: HttpClient, item: DueCallback) -> None:
        try:
            problem, is_final = await self._post(client, item)
            await self._service.change(
                lambda tx: self._note(tx.connection, tx.now_s, item, (problem, is_final))
            )
        except WhetError as error:
            _logger.warning("webhook %d: %s", item.id, error.message)
        finally:
            self._busy.discard(item.id)

    async def _post(self, client: HttpClient, item: DueCallback) -> tuple[str, bool]:
        """Send one; gives what went wrong ("" for nothing) and whether trying again is pointless."""
        if not self._is_ours(item):
            return "it is not what became of the request", True
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
            async with asyncio.timeout(_WHOLE_S), client.exchange(request) as answer:
                await answer.read(_MOST_BYTES)  # or the connection could not be used again
        except AddressRefused as error:
            return error.message, True
        except ConfigError as error:
            return error.message, False
        except (HttpFailed, OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"[:300], False
        if 200 <= answer.status < 300:
            return "", True
        return f"answered {answer.status}", answer.status == 410

    def _is_ours(self, item: DueCallback) -> bool:
        """Whether it says what became of its request; a row that somebody else wrote gets no signature."""
        try:
            request = self._service.get(item.request_id)
            data: object = msgspec.json.decode(item.body)["data"]
        except (StoreCorrupt, msgspec.DecodeError, KeyError, TypeError):
            return False
        if request is None:
            return False
        said = (item.message_id, item.url, data)
        return said == (f"msg_{request.id}", request.callback_url, outcome_of(request))

    def _note(self, db: apsw.Connection, now_s: float, item: DueCallback, result: tuple[str, bool]) -> None:
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


def revive(db: apsw.Connection, callback_id: int, now_s: float) -> bool:
    """Try a dead letter again for another day; False where there is none of that id."""
    db.execute(
        "UPDATE callbacks SET status = 'waiting', run_after = ?, created_at = ?, attempts = 0"
        " WHERE id = ? AND status = 'dead'",
        (now_s, now_s, callback_id),
    )
    return db.changes() == 1
