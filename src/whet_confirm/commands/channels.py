"""`whet confirm try-channels`: send a trial message to every configured channel and show what arrived."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import TYPE_CHECKING

import click
import msgspec

from whet.cli.main import run_on_loop
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.channels import SendFailed
from whet.contract.errors import NotFound
from whet.terminal.output import Column, emit_rows, json_option
from whet.visible import escape_characters
from whet_confirm.commands.files import actor_name

if TYPE_CHECKING:
    from whet_confirm.notify.settings import ChannelsText, ConfiguredNotifier

_MAX_WAIT_S = 45.0


class ChannelTrial(msgspec.Struct, frozen=True):
    """The result of one channel's trial message. `message` is the platform's own reference, if any."""

    channel: str
    kind: str
    sent: bool
    message: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """The result for a person."""
        if not self.sent:
            return f"failed: {self.problem}"
        return f"arrived, message {self.message}" if self.message else "arrived"


@click.command("try-channels")
@click.option(
    "--channels", "path", type=click.Path(path_type=Path, dir_okay=False), help="Else confirm/channels.toml."
)
@json_option
@click.pass_obj
def try_channels(home: Home, path: Path | None, as_json: bool) -> None:
    """Send a trial message to each channel; exits with 1 if one did not arrive.

    \b
    whet confirm try-channels
    """
    # The channels' modules take longer to import than all other commands together.
    from whet_confirm.notify.settings import CHANNELS_HINT, read_channels  # noqa: PLC0415
    from whet_confirm.open import service_paths  # noqa: PLC0415

    file = path or service_paths(home).folder / "channels.toml"
    text = read_channels(file, path is not None)
    if not text.channel:
        raise NotFound(f"there is no channel in {file}", hint=CHANNELS_HINT)
    trials = send_trials(text, load_secrets(home, os.environ))
    columns: list[Column[ChannelTrial]] = [
        Column("channel", lambda trial: trial.channel),
        Column("kind", lambda trial: trial.kind, rank=1),
        Column("trial message", lambda trial: escape_characters(trial.text), grows=True),
    ]
    facts = {"channels": [msgspec.to_builtins(trial) for trial in trials]}
    emit_rows(trials, columns, facts, none="", as_json=as_json)
    if not all(trial.sent for trial in trials):
        sys.exit(1)


def send_trials(channels: ChannelsText, secrets: Mapping[str, str]) -> list[ChannelTrial]:
    """Send a trial message to each channel and return the results. Raises ConfigError."""
    from whet_confirm.notify.settings import open_channels  # noqa: PLC0415 - see above

    # A button of this message would never be pressed, so its key may be any.
    notifiers = open_channels(channels, secrets, token_bytes(32))

    async def try_all() -> list[ChannelTrial]:
        try:
            return [*await asyncio.gather(*map(_try_channel, notifiers))]
        finally:
            for notifier in notifiers:  # at the end, because the chats of one bot share its connections
                await notifier.channel.aclose()

    return run_on_loop(try_all())


async def _try_channel(notifier: ConfiguredNotifier) -> ChannelTrial:
    from whet_confirm.notify.notice_text import build_trial  # noqa: PLC0415 - see above

    channel = notifier.channel
    notice = build_trial(f"trial-{token_hex(8)}", actor_name(), time.time())
    try:
        async with asyncio.timeout(_MAX_WAIT_S):
            message = await channel.send(notice)
    except (SendFailed, TimeoutError) as error:
        reason = error.reason if isinstance(error, SendFailed) else "it did not answer in time"
        return ChannelTrial(channel.name, notifier.kind, sent=False, problem=reason)
    return ChannelTrial(channel.name, notifier.kind, sent=True, message=message)
