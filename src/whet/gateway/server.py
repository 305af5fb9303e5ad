"""Run the gateway: its channels, its conversations, and its shutdown.

On SIGTERM and Ctrl-C it stops listening, and waits a limited time for running turns and for messages that are
being sent. Unfinished turns continue at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import apsw
import msgspec

from whet.app.build import App
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.upkeep import limit_memory
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.channels import Channel, Incoming, Outgoing, SendFailed, Verb
from whet.contract.errors import StoreError
from whet.contract.events import ReviewFinished
from whet.gateway.chat_record import ConversationParts
from whet.gateway.conversations import CommandRunner, Conversations
from whet.gateway.deliveries import Deliveries
from whet.gateway.drafts import Drafts
from whet.gateway.files import ChatFiles, send_file_tool, split_album
from whet.gateway.intake import UpdateFilter, UpdateIntake
from whet.gateway.lock import TokenLock
from whet.gateway.open_questions import ChatQuestions
from whet.gateway.router import Router
from whet.gateway.settings import ConfiguredChannel, GatewayText
from whet.gateway.voice import VoiceNotes
from whet.log import mask
from whet.sandbox.path_rules import read_path_rules
from whet.store import chats, lesson_counts
from whet.store.database import StateDatabase

log: logging.Logger = logging.getLogger("whet.gateway")
_KEEP_S = 14 * 86_400
_MISSED_S = 1.0
_PRUNE_EVERY_S = 3600.0
_SEND_S = 5.0
_WANTS: frozenset[Verb] = frozenset(("message", "press", "edit", "reaction"))
Say = Callable[[str], None]
Beside = Callable[[SessionHost, asyncio.Event], Coroutine[Any, Any, None]]


class StoredMemo:
    """Stores the values that a channel keeps between runs."""

    def __init__(self, database: StateDatabase, channel: str) -> None:
        self._database = database
        self._channel = channel

    async def get(self, name: str = "") -> str:
        """Return a value, or an empty string if it was never set."""
        return await self._database.read(lambda db: chats.read_position(db, self._channel, name))

    async def all(self) -> dict[str, str]:
        """Return all values by name."""
        return await self._database.read(lambda db: chats.read_positions(db, self._channel))

    async def set(self, value: str, name: str = "") -> None:
        """Store a value. Durable on return."""
        await self._database.append(lambda db: chats.set_position(db, self._channel, value, name))


class GatewayServer:
    """A running gateway. `say` shows a line to the person who started it. `secrets` holds the key of the
    server that transcribes voice notes."""

    def __init__(
        self,
        hosted: SessionHost,
        configured_channels: Sequence[ConfiguredChannel],
        text: GatewayText,
        say: Say,
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._services = services = hosted.services
        self._hosted = hosted
        self._channels = configured_channels
        self._say = say
        settings = services.settings.gateway
        channels: dict[str, Channel] = {
            configured.channel.name: configured.channel for configured in configured_channels
        }
        drafts = Drafts()
        router = Router(
            {configured.channel.name: configured.text for configured in configured_channels},
            text.people,
            settings.flood_per_minute,
        )
        voice = VoiceNotes(services.settings.voice, secrets)
        files = ChatFiles(services.home.people, services.workspace, settings.file_bytes, voice)
        self.parts: ConversationParts = ConversationParts(
            services=services,
            hosted=hosted,
            database=services.database,
            clock=services.clock,
            settings=settings,
            channels=channels,
            router=router,
            deliveries=Deliveries(services.database, services.clock, channels, drafts.end_if_shown),
            drafts=drafts,
            asking=ChatQuestions(),
            files=files,
        )

        rules = read_path_rules(services.settings.approval.deny)
        services.tools.registry.add(send_file_tool(self.post, settings.file_bytes, rules))

    async def run(self, commander: CommandRunner, stop: asyncio.Event) -> bool:
        """Serve until `stop` is set or every channel has failed for good, then drain.

        Returns whether everything ended in time. Unfinished work continues at the next start.
        """
        conversations = Conversations(self.parts, commander)
        intake = UpdateIntake(self.parts, conversations, self._plugin_filter())
        await self.parts.deliveries.recover()
        if self.parts.settings.reviews:
            self._services.reviews.get().listeners.append(self.report_review)
        self._services.reviews.get().start()
        self._services.schedules.get().start()
        background = [asyncio.create_task(self.parts.deliveries.serve()), asyncio.create_task(self.prune())]
        listening = {
            asyncio.create_task(self.listen(configured.channel, intake), name=configured.channel.name)
            for configured in self._channels
        }
        stopping = asyncio.create_task(stop.wait())
        try:
            await self._wait_for_missed(intake, stopping)
            await conversations.recover()
            while listening and not stop.is_set():
                done, _ = await asyncio.wait({*listening, stopping}, return_when=asyncio.FIRST_COMPLETED)
                listening -= done
        finally:
            stopping.cancel()
            for task in (*listening, *background):
                task.cancel()
            await asyncio.gather(*listening, *background, return_exceptions=True)
        has_ended = await conversations.drain(self.parts.settings.drain_s)
        await self.parts.deliveries.drain(_SEND_S)
        for configured in self._channels:
            await configured.channel.aclose()
        return has_ended

    async def _wait_for_missed(self, intake: UpdateIntake, stopping: asyncio.Task[bool]) -> None:
        """Wait a moment for messages that arrived while the gateway was off, so that a resumed turn reads
        them before its calls run. Does not wait if there is no such turn, or if messages must wait for its
        end."""
        if self.parts.settings.busy == "queue":
            return
        open_chats = await self._services.database.read(
            lambda db: chats.list_open_chats(db, self.parts.channels)
        )
        if not any(is_begun for _, is_begun in open_chats):
            return
        first_update = asyncio.create_task(intake.heard.wait())
        await asyncio.wait({first_update, stopping}, timeout=_MISSED_S, return_when=asyncio.FIRST_COMPLETED)
        first_update.cancel()

    def _plugin_filter(self) -> UpdateFilter | None:
        plugins = self._services.plugins
        if plugins is None or not plugins.loaded.hooks.has("pre_gateway_dispatch"):
            return None
        from whet.gateway.plugin_dispatch import HookedIntake  # noqa: PLC0415 - few have such a plugin

        return HookedIntake(self.parts, plugins).filter_updates

    async def listen(self, channel: Channel, intake: UpdateIntake) -> None:
        """Listen on a channel until its platform refuses it for good. Announces when the platform has
        accepted it."""
        is_listening = False

        async def take(updates: Sequence[Incoming]) -> None:
            nonlocal is_listening
            if not is_listening:
                is_listening = True
                self._say(f"{channel.name}: listening")
            if updates:
                await intake.take(updates)

        while True:
            try:
                await channel.listen(take, StoredMemo(self._services.database, channel.name), _WANTS)
            except SendFailed as error:
                log.error("channel %s is off: %s", channel.name, error.reason)
                self._say(f"{channel.name}: off, {mask(error.reason)}")
                return
            except StoreError as error:  # nothing was acknowledged, so the updates will come again
                log.warning("channel %s waits for the store: %s", channel.name, error.message)
                await asyncio.sleep(5.0)

    async def prune(self) -> None:
        """Periodically delete rows that were finished long ago."""
        while True:
            before_ms = self._services.clock.unix_ms() - _KEEP_S * 1000
            with suppress(StoreError):
                while await self._services.database.write(
                    lambda db, before=before_ms: chats.prune(db, before)
                ):
                    await asyncio.sleep(0.1)
            await asyncio.sleep(_PRUNE_EVERY_S)

    async def post(self, session_id: str, message: Outgoing) -> bool:
        """Queue a message for a session's conversation. Returns False if it has none."""
        chat_id = await self._services.database.append(self._queue_writer(session_id, message))
        if chat_id:
            self.parts.deliveries.wake(chat_id)
        return bool(chat_id)

    def report_review(self, finished: ReviewFinished) -> None:
        """Post the outcome of a review to its conversation, without a notification sound."""
        if finished.state == "saved" and finished.summary:
            queue = self._queue_writer(finished.session_id, Outgoing(f"_{finished.summary}_", quiet=True))

            def queue_report(connection: apsw.Connection) -> None:
                if queue(connection):
                    lesson_counts.mark_task_read(connection, finished.job_id)

            with suppress(StoreError):
                self._services.database.submit(queue_report)

    def _queue_writer(self, session_id: str, message: Outgoing) -> Callable[[apsw.Connection], int]:
        """Return a function that queues a message for a session's conversation, and returns its id or 0."""
        now_ms = self._services.clock.unix_ms()

        def queue(connection: apsw.Connection) -> int:
            chat = chats.find_chat_of_session(connection, session_id)
            if chat is None:
                return 0
            channel = self.parts.channels.get(chat.place.channel)
            messages = split_album(message, channel.limits) if channel and message.file else [message]
            bodies = [msgspec.json.encode(part).decode() for part in messages]
            chats.queue_messages(connection, chat.id, bodies, now_ms)
            return chat.id

        return queue


class Setup(msgspec.Struct, frozen=True):
    """The configuration of a gateway. `workspace` is the owner's folder."""

    home: Home
    settings: Settings
    secrets: Mapping[str, str]
    text: GatewayText
    channels: Sequence[ConfiguredChannel]
    workspace: Path


async def serve(setup: Setup, commander: CommandRunner, say: Say, beside: Beside | None = None) -> int:
    """Run a gateway in this process until a signal. Returns the exit code. Raises WhetError.

    `beside` runs in the same process, on the same conversations, until the event that it gets is set. Turns
    that do not end in time continue at the next start, as after a crash.
    """
    home, settings, configured_channels = setup.home, setup.settings, setup.channels
    locks = [
        TokenLock.take(home.root / "gateway", configured.channel.name, configured.secrets)
        for configured in configured_channels
        if configured.secrets
    ]
    people = PersonRouter()
    app = await App.start(home, settings, setup.secrets, people, setup.workspace, source="gateway")
    limits = settings.gateway
    hosted = SessionHost(app.sessions, people, idle_after_s=limits.idle_after_s, max_turns=limits.max_turns)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    besides = [asyncio.create_task(beside(hosted, stop))] if beside is not None else []
    try:
        app.services.models.require_model()
        server = GatewayServer(hosted, configured_channels, setup.text, say, setup.secrets)
        async with limit_memory():
            has_ended = await server.run(commander, stop)
        was_stopped = stop.is_set()
        if not has_ended:
            say("turns that still run go on at the next start")
            app.services.processes.close()
            app.database.close()
            os._exit(0)
    finally:
        stop.set()
        await asyncio.gather(*besides, return_exceptions=True)
        await hosted.aclose()
        await app.aclose()
        for lock in locks:
            lock.release()
    return 0 if was_stopped else 1
