"""The keys of one provider as a pool: one is kept while it works, because caches are per account.

A key that the server rejected, that is out of credit or rate-limited rests for a while and the next one
takes over. Keys are named by their variable wherever a person reads of them; a value never leaves here
except in a request's header.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from whet.contract.errors import AuthRejected, ConfigError, ProviderError, QuotaExhausted, RateLimited

_REJECTED_REST_S = 3600.0
_QUOTA_REST_S = 1800.0
_LIMITED_REST_S = 30.0


class Key(msgspec.Struct, frozen=True):
    """A key and the variable that holds it."""

    name: str
    value: str


def find_keys(names: Sequence[str], secrets: Mapping[str, str]) -> tuple[Key, ...]:
    """Give the keys of `names` and of NAME_2, NAME_3, ... in order; empty and repeated values left out."""
    found: dict[str, Key] = {}
    for name in names:
        number = 1
        while (value := secrets.get(name if number == 1 else f"{name}_{number}", "").strip()) or number == 1:
            if value:
                key = Key(name if number == 1 else f"{name}_{number}", value)
                _check(key)
                found.setdefault(value, key)
            number += 1
    return tuple(found.values())


def _check(key: Key) -> None:
    # Otherwise the HTTP layer would complain later, and quote the whole header with the key in it.
    if not (key.value.isascii() and key.value.isprintable()) or " " in key.value:
        raise ConfigError(
            f"{key.name} holds characters that no key has",
            hint="copy the key again, without spaces around it",
        )


class KeyPool:
    """The keys and which of them rest. Without keys (a local server) `current` gives an empty one."""

    def __init__(self, keys: Sequence[Key], *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._keys = tuple(keys) or (Key("", ""),)
        self._monotonic_s = monotonic_s
        self._rests_until = [0.0] * len(self._keys)
        self._at = 0

    @property
    def current(self) -> Key:
        """The key to use now: the same one while it works."""
        return self._keys[self._at]

    def prefer(self, name: str) -> None:
        """Use the key of this variable until it fails; an unknown name changes nothing."""
        self._at = next((at for at, key in enumerate(self._keys) if key.name == name), self._at)

    def switch(self, used: Key, error: ProviderError) -> str | None:
        """After `error` with `used`, move on to a key that is not resting.

        Gives one line for the person, or None where nothing changed: the error says nothing about the
        key, or no other key is ready.
        """
        rest_s = _rest_s(error)
        if rest_s is None:
            return None
        now = self._monotonic_s()
        self._rests_until[self._keys.index(used)] = now + rest_s
        for step in range(1, len(self._keys)):
            at = (self._keys.index(used) + step) % len(self._keys)
            if self._rests_until[at] <= now:
                self._at = at
                return f"{used.name} {_why(error)}; {self.current.name} is used now"
        return None


def _rest_s(error: ProviderError) -> float | None:
    if isinstance(error, AuthRejected):
        return _REJECTED_REST_S
    if isinstance(error, QuotaExhausted):
        return _QUOTA_REST_S
    if isinstance(error, RateLimited):
        return error.retry_after_s or _LIMITED_REST_S
    return None


def _why(error: ProviderError) -> str:
    if isinstance(error, AuthRejected):
        return "was rejected"
    return "has no credit left" if isinstance(error, QuotaExhausted) else "is rate-limited"
