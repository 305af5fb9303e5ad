"""Open a channel for each subscribed device, and close it when the device is removed.

The modules that encrypt and send are loaded when the first device is subscribed.
"""

# ruff: noqa: PLC0415 - most services have no device

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import apsw

from whet_confirm.notify.buttons import Buttons
from whet_confirm.notify.deliveries import Escalation, drop_unserved
from whet_confirm.push.settings import PushSettings
from whet_confirm.records import ApprovalPlan
from whet_confirm.service import ConfirmService
from whet_confirm.stand_ins import apply_stand_ins

if TYPE_CHECKING:
    from whet_confirm.push.channel import DeviceChannel, PushSender
    from whet_confirm.push.devices import PushDevice

_HAS_DEVICE = "SELECT 1 FROM devices LIMIT 1"
_REFRESH_S = 60.0  # a login that expires changes no row


class DeviceChannels:
    """The channels of the devices that get messages now. `key` signs the codes of all buttons."""

    def __init__(self, service: ConfirmService, settings: PushSettings, key: bytes) -> None:
        self._service = service
        self.settings = settings
        self._key = key
        self._sender: PushSender | None = None
        self._channels: dict[str, DeviceChannel] = {}
        self._counter: int | None = None
        self._next_refresh_s = 0.0

    @property
    def channels(self) -> Mapping[str, DeviceChannel]:
        """The open channels by name."""
        return self._channels

    @property
    def sender(self) -> PushSender:
        """The sender that all devices share, created when it is first needed."""
        if self._sender is None:
            from whet_confirm.push.channel import PushSender

            self._sender = PushSender(self._service, self.settings)
        return self._sender

    def open(self, device: PushDevice) -> DeviceChannel:
        """Return a channel for a device."""
        from whet_confirm.push.channel import DeviceChannel

        return DeviceChannel(self.sender, device, Buttons(self._key, device.channel, ()))

    def buttons(self, channel: str) -> Buttons:
        """Return the object that verifies the button codes of a device's channel."""
        return Buttons(self._key, channel, ())

    async def refresh(self) -> None:
        """Open channels of new devices and drop those of removed devices.

        Does nothing if the database has not changed since the last call, at most a minute ago.
        """
        service = self._service
        counter, now_s = service.database.change_counter(), service.timeline.now_s()
        if counter == self._counter and now_s < self._next_refresh_s:
            return
        is_first = self._counter is None
        self._counter, self._next_refresh_s = counter, now_s + _REFRESH_S
        usable = self._read_devices(now_s)
        kept = {
            name: channel for name, channel in self._channels.items() if usable.get(name) == channel.device
        }
        opened = {name: self.open(device) for name, device in usable.items() if name not in kept}
        may_have_lost = is_first or len(kept) < len(self._channels)
        self._channels = kept | opened
        if may_have_lost:
            names = frozenset(self._channels)
            if service.database.read_now(lambda db: drop_unserved(db, names, now_s, is_trial=True)):
                await service.change(lambda tx: drop_unserved(tx.connection, names, tx.now_s))

    def choose(self, plan: ApprovalPlan, escalation: Escalation | None) -> list[tuple[str, float]]:
        """Return the channels of the devices that get a request, each with the seconds left of quiet hours.

        The person on call has no quiet hours.
        """
        if not self._channels:
            return []
        from whet_confirm.push.devices import may_receive, quiet_left_s

        service, now_s = self._service, self._service.timeline.now_s()
        base_policy = service.policy_file.policy
        policy = service.database.read_now(lambda db: apply_stand_ins(db, base_policy, now_s))
        is_call = escalation is not None and bool(escalation.person)
        return [
            (name, 0.0 if is_call else quiet_left_s(channel.device, now_s))
            for name, channel in self._channels.items()
            if may_receive(channel.device, plan, policy, escalation)
        ]

    async def aclose(self) -> None:
        """Close connections."""
        if self._sender is not None:
            await self._sender.aclose()

    def _read_devices(self, now_s: float) -> dict[str, PushDevice]:
        def read(db: apsw.Connection) -> Sequence[PushDevice]:
            if db.execute(_HAS_DEVICE).fetchone() is None:
                return ()
            from whet_confirm.push.devices import list_usable

            return list_usable(db, now_s)

        return {device.channel: device for device in self._service.database.read_now(read)}
