"""The notifier: sends notices about events in the audit log to every channel, without delaying any request.

One task queues deliveries, one per channel sends them, and one per channel handles presses, so a channel
that hangs delays only itself. It runs in the service's process and event loop; several processes may each
run one on the same database.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Mapping, Sequence

import apsw
import msgspec

from whet.contract.channels import SendFailed
from whet.contract.errors import StoreError
from whet.vendors.http import CALL_TIMEOUT_S
from whet.web.beat import aligned_delay
from whet_confirm.ledger import Tx
from whet_confirm.notify import deliveries
from whet_confirm.notify.breaker import Breaker, retry_delay_s
from whet_confirm.notify.deliveries import Escalation, NotifyDelivery
from whet_confirm.notify.device_channels import DeviceChannels
from whet_confirm.notify.faults import ChannelFaults, Report
from whet_confirm.notify.notice import NoticeChannel, RequestNotice
from whet_confirm.notify.notices import NoticeReader, UnservedLog
from whet_confirm.notify.presses import Presses
from whet_confirm.notify.settings import ChannelsText, ConfiguredNotifier, People, open_channels
from whet_confirm.notify.user_groups import UserGroups
from whet_confirm.push.settings import PushSettings
from whet_confirm.quorum import groups_in
from whet_confirm.records import ApprovalPlan, ConfirmRequest
from whet_confirm.service import ConfirmService

_LOG = logging.getLogger(__name__)
_BATCH = 100
_POLL_S = 1.0  # finds events of other processes, and events after a lost wake-up
_GATHER_S = 0.05  # events that arrive together are queued together
_GATHER_LOG_S = 0.5  # if the log is the only channel
_MAX_TRIES = 8  # for outcomes; a pending request is retried as long as it is pending


class ChannelState(msgspec.Struct, frozen=True):
    """The state of a channel.

    `problem` is empty while it works. `listen_error` is the error that ended its handling of presses, or "".
    """

    name: str
    is_open: bool
    problem: str
    retry_in_s: float
    listen_error: str


class ConfirmNotifier:
    """All channels of one service. Run `run` next to the server."""

    def __init__(
        self,
        service: ConfirmService,
        channels: ChannelsText,
        secrets: Mapping[str, str],
        page_url: str,
        *,
        report: Report | None = None,
        push: PushSettings | None = None,
    ) -> None:
        # A signature is as secret as its key and deterministic, so it yields a separate key for the buttons.
        key = hashlib.sha256(service.key.sign(b"whet-buttons/1")).digest()
        self._service = service
        self._notices = NoticeReader(service, page_url)
        self._faults = ChannelFaults(report)
        self._notifiers = open_channels(channels, secrets, key)
        people = People(channels.people, {notifier.listener: notifier.kind for notifier in self._notifiers})
        self._presses = Presses(service, people, self._notifiers)
        self.devices: DeviceChannels = DeviceChannels(service, push or PushSettings(), key)
        self._senders: dict[str, tuple[NoticeChannel, asyncio.Task[None]]] = {}
        self._groups = UserGroups(service, channels, secrets, people)
        self._log = UnservedLog(self._notices)
        names = [notifier.channel.name for notifier in self._notifiers]
        self._delayed = {notifier.channel.name for notifier in self._notifiers if notifier.after_s}
        self._breakers = {name: Breaker() for name in (*names, deliveries.LOG)}
        self._listen_errors: dict[str, str] = _report_off(self._notifiers, self._faults)
        self._wakes = {name: asyncio.Event() for name in self._breakers}
        self._queued_to = service.database.read_now(deliveries.last_queued_event)

    async def run(self) -> None:
        """Work until cancelled, then close every connection."""
        # httpx2 logs every URL, and Telegram's contain the bot's token.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        channels: list[NoticeChannel] = [
            *(notifier.channel for notifier in self._notifiers),
            self._log.channel,
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_queueing(group))
                if self._groups.has_client:
                    group.create_task(self._groups.run())
                for channel in channels:
                    group.create_task(self._send(channel))
                for notifier in self._notifiers:
                    if notifier.listener == notifier.channel.name and not notifier.failure:
                        group.create_task(self._listen(notifier.channel))
        finally:
            for channel in channels:
                await channel.aclose()
            await self.devices.aclose()

    def states(self) -> list[ChannelState]:
        """Return the state of each channel."""
        now_s = asyncio.get_running_loop().time()
        states: list[ChannelState] = []
        for notifier in self._notifiers:
            name, error = notifier.channel.name, self._listen_errors.get(notifier.listener, "")
            breaker = self._breakers[name]
            states.append(ChannelState(name, breaker.is_open, breaker.reason, breaker.wait_s(now_s), error))
        return states

    # --- from the audit log to deliveries

    async def _run_queueing(self, group: asyncio.TaskGroup) -> None:
        while True:
            future = self._service.hub.next_event(is_background=True)
            try:
                await self._follow_devices(group)
                if not await self._queue_once():
                    await asyncio.wait((future,), timeout=aligned_delay(_POLL_S))
                    has_channel = self._notifiers or self._senders
                    await asyncio.sleep(_GATHER_S if has_channel else _GATHER_LOG_S)
            except StoreError as error:
                _LOG.error("notices can't be stored: %s", error.message)
                await asyncio.sleep(_POLL_S)
            finally:
                self._service.hub.cancel_wait(future)

    async def _follow_devices(self, group: asyncio.TaskGroup) -> None:
        """Start sending to new and changed devices, and stop sending to those that are gone."""
        await self.devices.refresh()
        channels = self.devices.channels
        for name, (channel, task) in [*self._senders.items()]:
            if channels.get(name) is not channel:
                task.cancel()
                del self._senders[name], self._breakers[name], self._wakes[name]
        for name, channel in channels.items():
            if name not in self._senders:
                self._breakers[name], self._wakes[name] = Breaker(), asyncio.Event()
                self._senders[name] = channel, group.create_task(self._send(channel))

    async def _queue_once(self) -> bool:
        """Queue deliveries for the next events. Returns whether there may be more at once."""
        service = self._service
        newest = service.hub.last_id
        if newest <= self._queued_to or not service.database.read_now(
            lambda db: deliveries.has_news(db, self._queued_to)
        ):
            self._queued_to = max(self._queued_to, newest)
            return False
        result = await service.change(
            lambda tx: deliveries.queue_deliveries(
                tx.connection, tx.now_s, _BATCH, self._channels_of, self._wakes
            )
        )
        self._queued_to = result.queued_to
        if self._notifiers or self._senders:
            for wake in self._wakes.values():
                wake.set()
        await self._log.report(result.unserved)
        return result.queued_to < newest

    def _channels_of(self, plan: ApprovalPlan, escalation: Escalation | None) -> list[tuple[str, float]]:
        groups = groups_in(plan.quorum)
        if escalation is not None:
            groups |= {escalation.group}
        devices = self.devices.choose(plan, escalation)
        served = [notifier for notifier in self._notifiers if not notifier.groups or notifier.groups & groups]
        return devices + [
            (notifier.channel.name, notifier.after_s if devices else 0.0) for notifier in served
        ]

    # --- from deliveries to people

    async def _send(self, channel: NoticeChannel) -> None:
        name = channel.name
        while True:
            try:
                pause_s = self._breakers[name].wait_s(asyncio.get_running_loop().time())
                delivery = None if pause_s else await self._lease_delivery(name)
                if delivery is None:
                    await self._wait_for_work(name, pause_s)
                else:
                    await self._deliver(channel, delivery)
            except StoreError as error:
                _LOG.error("channel %s: %s", name, error.message)
                await asyncio.sleep(_POLL_S)

    async def _lease_delivery(self, name: str) -> NotifyDelivery | None:
        due_s = self._service.database.read_now(lambda db: deliveries.next_due(db, name))
        if due_s is None or due_s > self._service.timeline.now_s():
            return None
        return await self._service.change(lambda tx: deliveries.lease_next(tx.connection, name, tx.now_s))

    async def _wait_for_work(self, name: str, pause_s: float) -> None:
        """Wait for new deliveries, the next retry or the breaker, but at most until the next poll."""
        wake = self._wakes[name]
        if pause_s:
            await asyncio.sleep(min(pause_s, _POLL_S))
            return
        wake.clear()
        due_s = self._service.database.read_now(lambda db: deliveries.next_due(db, name))
        wait_s = aligned_delay(_POLL_S) if due_s is None else due_s - self._service.timeline.now_s()
        try:
            async with asyncio.timeout(min(max(wait_s, 0.001), _POLL_S)):
                await wake.wait()
        except TimeoutError:
            return

    async def _deliver(self, channel: NoticeChannel, delivery: NotifyDelivery) -> None:
        service = self._service
        refs = service.database.read_now(
            lambda db: deliveries.message_refs(db, delivery.request_id, channel.name)
        )
        content = None
        if not self._is_needless(delivery):
            content = await self._notices.read(
                delivery.request_id, delivery.kind, lambda request: _is_news(delivery, request, refs, channel)
            )
        if content is None:
            await service.change(lambda tx: deliveries.close(tx.connection, delivery, "dropped", tx.now_s))
            return
        request, notice = content
        breaker = self._breakers[channel.name]
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S * 2 + 5):
                ref = await _send_or_update(channel, notice, delivery, refs)
        except (SendFailed, TimeoutError) as error:
            failure = error if isinstance(error, SendFailed) else SendFailed("it did not come back in time")
            # A single rejected message does not mean that the channel is broken; a rejected token does.
            breaker.record_failure(asyncio.get_running_loop().time(), failure.reason, failure.retry_after_s)
            await self._record_failure(channel, delivery, failure, request)
            return
        breaker.record_success()
        self._faults.end(channel.name)
        await service.change(lambda tx: _record_sent(tx, delivery, request, ref))

    def _is_needless(self, delivery: NotifyDelivery) -> bool:
        """Return whether a channel waited for a device to acknowledge the request, and one did."""
        is_first = delivery.channel in self._delayed and delivery.kind in deliveries.NEWS
        return is_first and self._service.database.read_now(
            lambda db: deliveries.has_receipt(db, delivery.request_id)
        )

    async def _record_failure(
        self, channel: NoticeChannel, delivery: NotifyDelivery, failure: SendFailed, request: ConfirmRequest
    ) -> None:
        reason = failure.reason
        _LOG.warning("channel %s could not send request %s: %s", channel.name, request.id, reason)
        self._faults.begin(channel.name, reason)
        is_lost = delivery.kind not in deliveries.NEWS and delivery.attempts >= _MAX_TRIES
        wait_s = failure.retry_after_s or retry_delay_s(delivery.attempts, random.random())

        def record(tx: Tx) -> None:
            db = tx.connection
            if failure.is_final or is_lost:
                deliveries.close(db, delivery, "dead", tx.now_s, error=reason)
                data: dict[str, object] = {"channel": channel.name, "kind": delivery.kind, "why": reason}
                tx.record("notify_failed", request.id, "system:notify", request.principal, data)
                deliveries.end_wait(db, request.id, tx.now_s)
            else:
                deliveries.schedule_retry(db, delivery, tx.now_s + wait_s, tx.now_s, reason)
            _fall_back(db, delivery, request, tx.now_s)

        await self._service.change(record)
        for wake in self._wakes.values():
            wake.set()

    # --- from people back

    async def _listen(self, channel: NoticeChannel) -> None:
        try:
            await channel.listen(self._presses)
        except SendFailed as error:
            # The other channels continue; the page shows the error.
            self._listen_errors[channel.name] = error.reason
            _LOG.error("channel %s no longer receives presses: %s", channel.name, error.reason)
            self._faults.begin(f"{channel.name} (button presses)", error.reason)


def _report_off(notifiers: Sequence[ConfiguredNotifier], faults: ChannelFaults) -> dict[str, str]:
    """Report the channels that could not be opened, and return the reasons by name. The others work."""
    reasons = {notifier.channel.name: notifier.failure for notifier in notifiers if notifier.failure}
    for name, reason in reasons.items():
        _LOG.error("channel %s is off: %s", name, reason)
        faults.begin(name, reason)
    return reasons


def _is_news(
    delivery: NotifyDelivery, request: ConfirmRequest, refs: Sequence[str], channel: NoticeChannel
) -> bool:
    if delivery.kind in deliveries.NEWS:
        return request.is_pending
    if delivery.kind in deliveries.PROGRESS and not request.is_pending:
        return False  # the outcome's notice follows
    # Votes and outcomes go to the channels that announced the request.
    return channel.can_update and bool(refs)


async def _send_or_update(
    channel: NoticeChannel, notice: RequestNotice, delivery: NotifyDelivery, refs: Sequence[str]
) -> str:
    if delivery.kind in deliveries.NEWS:
        return await channel.send(notice)
    for message_ref in refs:
        await channel.update(message_ref, notice)
    return ""


def _record_sent(tx: Tx, delivery: NotifyDelivery, request: ConfirmRequest, ref: str) -> None:
    deliveries.close(tx.connection, delivery, "sent", tx.now_s, ref=ref)
    if delivery.kind in deliveries.NEWS and delivery.channel != deliveries.LOG:
        data: dict[str, object] = {
            "channel": delivery.channel,
            "kind": delivery.kind,
            "digest": request.digest,
        }
        tx.record("notified", request.id, "system:notify", request.principal, data)


def _fall_back(db: apsw.Connection, delivery: NotifyDelivery, request: ConfirmRequest, now_s: float) -> None:
    """Queue a request for the log if no channel has delivered it. Repeating the call has no effect."""
    is_news = delivery.channel != deliveries.LOG and delivery.kind in deliveries.NEWS and request.is_pending
    if is_news and deliveries.has_no_delivery(db, delivery.event_id):
        deliveries.add(db, (delivery.event_id, delivery.kind, request.id, deliveries.LOG), now_s)
