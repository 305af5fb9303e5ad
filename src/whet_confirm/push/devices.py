"""Store people's devices with their push subscriptions, and when each device acknowledged a request.

A device belongs to the account that subscribed it and gets messages only while that account may decide. Every
change is in the audit log. In the table `deliveries` a device is the channel `channel_of(id)`.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import apsw
import msgspec

from whet.contract.errors import NotFound
from whet_confirm import people
from whet_confirm.ledger import Tx
from whet_confirm.notify.deliveries import DEVICE_PREFIX, Escalation, end_wait
from whet_confirm.people import PREFIX as PERSON_PREFIX
from whet_confirm.policy import ConfirmPolicy
from whet_confirm.quorum import counts_for
from whet_confirm.records import ApprovalPlan, Caller
from whet_confirm.tokens import TOKENS, as_principal

MAX_DEVICES = 20
_QUIET = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_COLUMNS = "id, name, account_key, label, endpoint, public_key, secret, quiet, timezone, created_at"
_RESCHEDULE = "UPDATE deliveries SET run_after = ? WHERE channel = ? AND status = 'queued' AND attempts = 0"
Receipt = Literal["delivered", "seen"]


class PushDevice(msgspec.Struct, frozen=True):
    """A subscribed device. `quiet` is empty, or hours like 22:00-07:00 in `timezone`."""

    id: str
    name: str
    account_key: str
    label: str
    endpoint: str
    public_key: str
    secret: str
    quiet: str
    timezone: str
    created_at: float

    @property
    def channel(self) -> str:
        """The name of its channel."""
        return channel_of(self.id)


def channel_of(device_id: str) -> str:
    """Return the name of a device's channel."""
    return DEVICE_PREFIX + device_id


def add(tx: Tx, caller: Caller, device: PushDevice) -> str:
    """Store a device of the caller and return its id.

    Replaces a device with the same subscription, so that a browser has one device. Raises ValueError if
    the caller has too many.
    """
    db = tx.connection
    row = db.execute("SELECT id, name FROM devices WHERE endpoint = ?", (device.endpoint,)).fetchone()
    if row is not None:
        remove(tx, str(row[0]), by=caller.name, why="subscribed again")
    if len(list_devices(db, caller.name)) >= MAX_DEVICES:
        raise ValueError(f"you have {MAX_DEVICES} devices: remove one first")
    device_id = secrets.token_hex(6)
    values = (
        device_id, caller.name, caller.token_id, device.label, device.endpoint, device.public_key,
        device.secret, device.quiet, device.timezone, tx.now_s,
    )  # fmt: skip
    db.execute(f"INSERT INTO devices ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)", values)
    tx.record("device_added", principal=caller.name, data={"device": device_id, "label": device.label})
    return device_id


def remove(tx: Tx, device_id: str, *, by: str, why: str = "removed", owner: str = "") -> None:
    """Delete a device and drop the messages that wait for it.

    Raises NotFound if there is no such device, or if it is not `owner`'s (empty: anybody's).
    """
    device = find(tx.connection, device_id)
    if device is None or owner not in ("", device.name):
        raise NotFound(f"there is no device {device_id}", hint="whet confirm devices")
    db = tx.connection
    db.execute("DELETE FROM devices WHERE id = ?", (device_id,))
    is_open = "channel = ? AND status IN ('queued', 'failed')"
    rows = db.execute(f"SELECT DISTINCT request_id FROM deliveries WHERE {is_open}", (device.channel,))
    request_ids = [str(row[0]) for row in rows]
    values = (f"the device was removed: {why}"[:300], tx.now_s, device.channel)
    db.execute(f"UPDATE deliveries SET status = 'dropped', error = ?, updated_at = ? WHERE {is_open}", values)
    for request_id in request_ids:
        end_wait(db, request_id, tx.now_s)
    data: dict[str, object] = {"device": device_id, "label": device.label, "of": device.name, "why": why}
    tx.record("device_removed", principal=by, data=data)


def set_quiet(tx: Tx, device_id: str, owner: str, hours: tuple[str, str]) -> None:
    """Set the quiet hours (like 22:00-07:00, or empty) and time zone of a person's device.

    Messages that wait for the end of the old hours wait for the end of the new ones. Raises ValueError or
    NotFound.
    """
    device = find(tx.connection, device_id)
    if device is None or device.name != owner:
        raise NotFound(f"there is no device {device_id}")
    check_quiet(*hours)
    tx.connection.execute("UPDATE devices SET quiet = ?, timezone = ? WHERE id = ?", (*hours, device_id))
    changed = msgspec.structs.replace(device, quiet=hours[0], timezone=hours[1])
    due_s = tx.now_s + quiet_left_s(changed, tx.now_s)
    tx.connection.execute(_RESCHEDULE, (due_s, device.channel))
    tx.record("device_changed", principal=owner, data={"device": device_id, "quiet": hours[0]})


def renew(tx: Tx, owner: str, old_endpoint: str, subscription: tuple[str, str, str]) -> None:
    """Replace the subscription of a person's device by a new endpoint, public key and secret.

    Raises NotFound, or ValueError if another device has the new subscription.
    """
    db = tx.connection
    sql = "SELECT id FROM devices WHERE endpoint = ? AND name = ?"
    row = db.execute(sql, (old_endpoint, owner)).fetchone()
    if row is None:
        raise NotFound("there is no such device")
    if db.execute("SELECT 1 FROM devices WHERE endpoint = ?", subscription[:1]).fetchone() is not None:
        raise ValueError("another device has this subscription")
    sql = "UPDATE devices SET endpoint = ?, public_key = ?, secret = ? WHERE id = ?"
    db.execute(sql, (*subscription, row[0]))
    tx.record("device_changed", principal=owner, data={"device": row[0], "why": "the browser renewed it"})


def find(db: apsw.Connection, device_id: str) -> PushDevice | None:
    """Return a device, or None."""
    row = db.execute(f"SELECT {_COLUMNS} FROM devices WHERE id = ?", (device_id,)).fetchone()
    return PushDevice(*row) if row else None


def list_devices(db: apsw.Connection, name: str = "") -> list[PushDevice]:
    """Return a person's devices, or everybody's, oldest first."""
    where, values = ("WHERE name = ?", (name,)) if name else ("", ())
    rows = db.execute(f"SELECT {_COLUMNS} FROM devices {where} ORDER BY created_at, id", values)
    return [PushDevice(*row) for row in rows]


def owner_of(db: apsw.Connection, device: PushDevice, now_s: float) -> Caller | None:
    """Return the caller that a device belongs to, or None if its account may not decide."""
    if device.account_key.startswith(PERSON_PREFIX):
        caller = people.find(db, device.account_key.removeprefix(PERSON_PREFIX), now_s)
    else:
        row = db.execute(TOKENS.by_id, (device.account_key,)).fetchone()
        caller = as_principal(row, now_s)
    return caller if caller is not None and caller.may("approve") and caller.name == device.name else None


def list_usable(db: apsw.Connection, now_s: float) -> list[PushDevice]:
    """Return the devices whose people may decide now."""
    return [device for device in list_devices(db) if owner_of(db, device, now_s)]


def may_receive(
    device: PushDevice, plan: ApprovalPlan, policy: ConfirmPolicy, escalation: Escalation | None
) -> bool:
    """Return whether a device may get a request.

    Its person must be able to decide it, or be in the group to which it was escalated. If it was escalated
    to one person, only that person's devices get it.
    """
    if escalation is not None and escalation.person:
        return device.name == escalation.person
    if escalation is not None and device.name in policy.groups.get(escalation.group, ()):
        return True
    return policy.may_approve(plan, device.name) and counts_for(plan.quorum, device.name, policy.groups)


def check_quiet(quiet: str, timezone: str) -> None:
    """Raise ValueError if these are not quiet hours in a time zone."""
    if quiet and (not _QUIET.fullmatch(quiet) or quiet[:5] == quiet[6:]):
        raise ValueError("quiet hours look like 22:00-07:00")
    try:
        ZoneInfo(timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{timezone[:40]!r} is not a time zone like Europe/Berlin") from error


def quiet_left_s(device: PushDevice, now_s: float) -> float:
    """Return the seconds until the device's quiet hours end, or 0 outside of them."""
    if not device.quiet:
        return 0.0
    now = datetime.fromtimestamp(now_s, ZoneInfo(device.timezone or "UTC"))
    begin, end = (int(text[:2]) * 60 + int(text[3:]) for text in device.quiet.split("-"))
    minute = now.hour * 60 + now.minute
    is_quiet = begin <= minute < end if begin < end else minute >= begin or minute < end
    if not is_quiet:
        return 0.0
    end_time = now.replace(hour=end // 60, minute=end % 60, second=0, microsecond=0)
    end_time += timedelta(days=end_time <= now)
    return end_time.timestamp() - now_s


def last_receipt(db: apsw.Connection, device: PushDevice) -> float | None:
    """Return when a device last acknowledged a request, or None."""
    sql = "SELECT max(delivered_at) FROM receipts WHERE channel = ?"
    row = db.execute(sql, (device.channel,)).fetchone()
    return row[0] if row else None


def acknowledge(tx: Tx, request_id: str, device: PushDevice, receipt: Receipt) -> bool:
    """Record that a device showed a request, or that its person saw it. Returns False if already recorded."""
    db, channel = tx.connection, device.channel
    key = (request_id, channel)
    row = db.execute(
        "SELECT delivered_at, seen_at FROM receipts WHERE request_id = ? AND channel = ?", key
    ).fetchone()
    if row is not None and (receipt == "delivered" or row[1] is not None):
        return False
    seen_at = tx.now_s if receipt == "seen" else None
    if row is None:
        db.execute("INSERT INTO receipts VALUES (?, ?, ?, ?)", (*key, tx.now_s, seen_at))
    else:
        db.execute("UPDATE receipts SET seen_at = ? WHERE request_id = ? AND channel = ?", (seen_at, *key))
    owner = db.execute("SELECT principal FROM requests WHERE id = ?", (request_id,)).fetchone()
    data: dict[str, object] = {"channel": channel, "label": device.label}
    tx.record(receipt, request_id, device.name, str(owner[0]) if owner else "", data)
    return True
