"""Find and open the platform that a `[[channel]]` names, and contain its failures.

Our own platforms are modules of this folder. Others come from installed packages, by entry points in the
group `whet.channels`. If a package is missing, can't be loaded or raises, only its channel is off.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import entry_points
from typing import TypeVar

import msgspec

from whet.contract.channels import (
    Channel,
    ChatPlace,
    FileRef,
    Incoming,
    Memo,
    Outgoing,
    Platform,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)
from whet.contract.errors import ConfigError, WhetError
from whet.contract.texts import from_values
from whet.log import mask

T = TypeVar("T")
GROUP = "whet.channels"
_CALL_LIMIT_S = 180.0  # an upload of ours may take 120
_LOG = logging.getLogger(__name__)


# Each is a module of this folder with a `PLATFORM`. Only configured ones are imported: Discord and Slack
# need an extra, and the webhook needs uvicorn.
_OURS = (
    "telegram",
    "discord",
    "slack",
    "webhook",
)


def kinds() -> list[str]:
    """Return the names of all platforms: ours, then those of installed packages. Imports none."""
    return list(dict.fromkeys([*_OURS, *(entry.name for entry in entry_points(group=GROUP))]))


def is_known(kind: str) -> bool:
    """Return whether the platform exists. Installed packages are searched if it is not one of ours."""
    return kind in _OURS or kind in kinds()


def open_channel(
    kind: str, name: str, fields: Mapping[str, object], secrets: Mapping[str, str]
) -> tuple[IsolatedChannel, tuple[str, ...]]:
    """Open a channel with its platform's own fields from the file. Returns the channel and its tokens.

    If a package fails or an extra is not installed, the returned channel is off. Raises ConfigError if the
    platform or a field is unknown, or a token is not set.
    """
    try:
        platform = _load_platform(kind)
    except SendFailed as error:
        return IsolatedChannel(name, error.reason), ()
    settings = _read_settings(name, platform.settings, fields)
    tokens = tuple(
        read_secret(name, str(getattr(settings, field.name) or field.default), secrets)
        for field in msgspec.structs.fields(platform.settings)
        if field.name.endswith("_env")
    )
    try:
        with _contain_errors(name):
            return IsolatedChannel(name, platform.open(name, settings, tokens)), tokens
    except SendFailed as error:
        return IsolatedChannel(name, error.reason), tokens


def platform_secrets(kind: str) -> tuple[str, ...]:
    """Return the variables that hold a platform's tokens unless the file names others.

    Raises ConfigError if the platform is unknown, needs an extra, or its package fails.
    """
    try:
        platform = _load_platform(kind)
    except SendFailed as error:
        raise ConfigError(f"{kind} can't be used: {error.reason}") from error
    fields = msgspec.structs.fields(platform.settings)
    return tuple(str(field.default) for field in fields if field.name.endswith("_env"))


def account_of(kind: str, fields: Mapping[str, object], tokens: Sequence[str]) -> tuple[object, ...]:
    """Return a key that is equal for two channels of the same account on a platform.

    Such channels can't both listen: the platform would send each update to one of them, or to both.
    """
    other_fields = sorted((name, repr(value)) for name, value in fields.items() if not name.endswith("_env"))
    return (kind, *tokens, *other_fields)


def missing_extra(package: str, extra: str) -> SendFailed:
    """Return the failure of a channel whose package is not installed, with the command that installs it."""
    from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

    return SendFailed(f"{package} is not installed: {install_command(extra)}", is_final=True)


def _load_platform(kind: str) -> Platform:
    """Load a platform of ours or of an installed package.

    Raises ConfigError if it is unknown, SendFailed if it needs an extra or its package fails.
    """
    if kind in _OURS:
        try:
            return importlib.import_module(f"whet.channels.{kind}").PLATFORM
        except ImportError as error:
            raise missing_extra(str(error.name), kind) from error
    for entry in entry_points(group=GROUP, name=kind):
        with _contain_errors(kind):
            platform: object = entry.load()
            if isinstance(platform, Platform):
                return platform
            raise TypeError(f"{entry.value} is not a whet.contract.channels.Platform")
    raise missing_package(kind)


def missing_package(kind: str) -> ConfigError:
    """Return the error for a platform that neither Whet nor an installed package has."""
    return ConfigError(
        f"there is no platform {kind!r}: no package with it is installed beside Whet",
        hint=f"kind is {', '.join(kinds())}; or install the package with the entry point {GROUP} {kind!r}",
    )


def _read_settings(
    name: str, settings_type: type[msgspec.Struct], fields: Mapping[str, object]
) -> msgspec.Struct:
    field_names = {field.encode_name for field in msgspec.structs.fields(settings_type)}
    for field in fields:
        if field not in field_names:
            raise ConfigError(
                f"channel {name}: unknown field `{field}`", hint=f"it takes {', '.join(sorted(field_names))}"
            )
    try:
        return from_values(fields, settings_type)
    except msgspec.ValidationError as error:
        raise ConfigError(f"channel {name}: {error}") from error


def read_secret(channel: str, variable: str, secrets: Mapping[str, str]) -> str:
    """Return the value of an environment variable. Raises ConfigError if it is not set or not plain ASCII."""
    secret = secrets.get(variable, "").strip()
    if not secret or not secret.isprintable() or not secret.isascii():
        raise ConfigError(
            f"channel {channel}: {variable} is not set", hint="set it in the environment or in .env"
        )
    return secret


@contextmanager
def _contain_errors(name: str, *, is_final: bool = True, maybe_sent: bool = False) -> Generator[None]:
    """Convert any exception of a platform's code into a SendFailed and log the traceback."""
    try:
        yield
    except (SendFailed, WhetError):  # the contract's error, and our own errors from `take`
        raise
    except Exception as error:
        _LOG.error("channel %s broke", name, exc_info=error)
        reason = mask(f"its code failed ({type(error).__name__}: {' '.join(str(error).split())})")[:300]
        raise SendFailed(reason, is_final=is_final, maybe_sent=maybe_sent) from error


class IsolatedChannel:
    """A channel whose calls have a time limit and raise only SendFailed, or a WhetError from `take`.

    `channel` is the reason if the channel could not be opened. Then every call raises it.
    """

    def __init__(self, name: str, channel: Channel | str) -> None:
        self.name = name
        unknown = PlatformLimits(4_000, 1.0, 1.0, caption_chars=1_000)
        self.limits: PlatformLimits = unknown if isinstance(channel, str) else channel.limits
        self._opened = channel

    @property
    def failure(self) -> str:
        """The reason why the channel is off, or ""."""
        return self._opened if isinstance(self._opened, str) else ""

    @property
    def _channel(self) -> Channel:
        if isinstance(self._opened, str):
            raise SendFailed(self._opened, is_final=True, is_barred=True)
        return self._opened

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Receive until cancelled. `take` gets only the updates that are wanted."""

        async def filter_and_take(updates: Sequence[Incoming]) -> None:
            selected = [update for update in updates if update.verb in wants]
            if selected or not updates:
                await take(selected)

        with _contain_errors(self.name):
            await self._channel.listen(filter_and_take, memo, wants)

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Send a message. If the platform's code fails, the message may have been sent."""
        return await self._call(lambda: self._channel.send(place, message, key), maybe_sent=True)

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Edit a message."""
        await self._call(lambda: self._channel.edit(place, ref, message))

    async def typing(self, place: ChatPlace) -> None:
        """Show that an answer is being written."""
        await self._call(lambda: self._channel.typing(place))

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Download a file that a person sent."""
        return await self._call(lambda: self._channel.fetch(file, max_bytes))

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Reply to the person who pressed a button."""
        await self._call(lambda: self._channel.answer(press, text, is_alert=is_alert))

    async def aclose(self) -> None:
        """Close connections; errors are only logged."""
        with suppress(SendFailed):
            await self._call(lambda: self._channel.aclose())

    async def _call(self, call: Callable[[], Awaitable[T]], *, maybe_sent: bool = False) -> T:
        with _contain_errors(self.name, is_final=False, maybe_sent=maybe_sent):
            async with asyncio.timeout(_CALL_LIMIT_S):
                return await call()
