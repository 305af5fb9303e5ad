"""The keys of one server: which is used, and which of them rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from whet.contract.errors import AuthRejected, ProviderError, QuotaExhausted, RateLimited

_REJECTED_REST_S = 3600.0
_QUOTA_REST_S = 1800.0
_LIMITED_REST_S = 30.0


class Key(msgspec.Struct, frozen=True):
    """A key and the variable that holds it."""

    name: str
    value: str


class KeyPool:
    """The keys, and which of them rest. Without keys (a local server) `current` is an empty key."""

    def __init__(self, keys: Sequence[Key], *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.keys: tuple[Key, ...] = tuple(keys) or (Key("", ""),)
        self._monotonic_s = monotonic_s
        self._rests_until = [0.0] * len(self.keys)
        self._at = 0

    @property
    def current(self) -> Key:
        """The key to use now: the same one while it works."""
        return self.keys[self._at]

    def prefer(self, name: str) -> None:
        """Use the key of this variable until it fails. An unknown name changes nothing."""
        self._at = next((at for at, key in enumerate(self.keys) if key.name == name), self._at)

    def rotate(self, used: Key, error: ProviderError) -> str | None:
        """Switch to a key that is not resting after `error` with `used`.

        Returns one line for the person, or None if nothing changed: the error is not about the key, or no
        other key is ready.
        """
        rest_s = _rest_s(error)
        if rest_s is None:
            return None
        now = self._monotonic_s()
        self._rests_until[self.keys.index(used)] = now + rest_s
        for step in range(len(self.keys)):
            at = (self.keys.index(used) + step) % len(self.keys)
            if self._rests_until[at] <= now:
                self._at = at
                return f"{used.name} {_describe_rest(error)}; {self.current.name} is used now"
        return None


def _rest_s(error: ProviderError) -> float | None:
    if isinstance(error, AuthRejected):
        return _REJECTED_REST_S
    if isinstance(error, QuotaExhausted):
        return _QUOTA_REST_S
    if isinstance(error, RateLimited):
        return error.retry_after_s or _LIMITED_REST_S
    return None


def _describe_rest(error: ProviderError) -> str:
    if isinstance(error, AuthRejected):
        return "was rejected"
    return "has no credit left" if isinstance(error, QuotaExhausted) else "is rate-limited"


def explain_missing_key(error: ProviderError, key: Key, where: str) -> ProviderError:
    """Set the error's hint if it was refused because no key was sent: how to send one."""
    if isinstance(error, AuthRejected) and not key.value:
        error.hint = (
            f"no key was sent to {where}: set model.base_url and model.api_key_env, both in config.yaml,"
            " or name a variable of its own with --api-key-env NAME"
        )
    return error
