"""The key pool: sticky while a key works, moving on when it does not, never showing a value."""

from __future__ import annotations

import pytest

from whet.contract.errors import AuthRejected, ConfigError, QuotaExhausted, RateLimited, Unavailable
from whet.providers.connect import find_keys
from whet.providers.http import Key, KeyPool, explain_rejected_key

A, B, C = Key("A", "aaa"), Key("B", "bbb"), Key("C", "ccc")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_found_under_several_names_and_numbers():
    secrets = {"K": "1", "K_2": "2", "K_4": "no", "L": "3", "L_2": "1", "M": " "}
    assert find_keys(("K", "L", "M"), secrets) == (Key("K", "1"), Key("K_2", "2"), Key("L", "3"))
    assert find_keys(("N",), secrets) == ()


def test_a_key_that_no_header_can_hold_is_named_and_not_shown():
    with pytest.raises(ConfigError) as caught:
        find_keys(("K",), {"K": "sk-abc\u2026def"})
    assert "K holds" in caught.value.message and "abc" not in caught.value.message


def test_the_same_key_is_kept_while_it_works():
    pool = KeyPool([A, B])
    assert pool.rotate(A, Unavailable("down")) is None
    assert pool.current is A


def test_a_failing_key_rests_and_the_next_takes_over():
    time = Time()
    pool = KeyPool([A, B, C], monotonic_s=time)
    assert pool.rotate(A, AuthRejected("no")) == "A was rejected; B is used now"
    assert pool.rotate(B, QuotaExhausted("no")) == "B has no credit left; C is used now"
    assert pool.rotate(C, RateLimited("no")) is None
    time.now = 1801
    assert pool.rotate(C, RateLimited("no")) == "C is rate-limited; B is used now"
    assert pool.current is B


def test_the_wait_that_the_server_asks_for_is_the_rest():
    time = Time()
    pool = KeyPool([A, B], monotonic_s=time)
    limited = RateLimited("no")
    limited.retry_after_s = 5
    pool.rotate(A, limited)
    time.now = 4
    assert pool.rotate(B, limited) is None
    time.now = 6
    assert pool.rotate(B, limited) == "B is rate-limited; A is used now"


def test_no_key_is_one_empty_key():
    pool = KeyPool([])
    assert pool.current == Key("", "")
    assert pool.rotate(pool.current, AuthRejected("no")) is None


def test_a_key_can_be_chosen_by_its_variable():
    pool = KeyPool([A, B, C])
    for name, current in (("B", B), ("unknown", B), ("A", A)):
        pool.prefer(name)
        assert pool.current is current


@pytest.mark.parametrize(
    ("kind", "key", "hint"),
    [
        (AuthRejected, Key("", ""), "no key was sent to box.local: set"),
        (AuthRejected, A, "check the key in A;"),
        (Unavailable, Key("", ""), "check it"),
    ],
)
def test_a_rejection_names_the_variable_or_says_that_no_key_was_sent(kind, key, hint):
    assert explain_rejected_key(kind("no", hint="check it"), key, "box.local").hint.startswith(hint)


@pytest.mark.parametrize(
    ("error", "rest_s"),
    [(AuthRejected("no"), 3600.0), (QuotaExhausted("no"), 1800.0), (RateLimited("slowly"), 30.0)],
)
def test_a_key_rests_from_the_failure_on_however_long_the_machine_has_run(error, rest_s):
    time = Time()
    time.now = 1_000_000.0
    pool = KeyPool([A, B], monotonic_s=time)
    assert pool.rotate(A, error) is not None and pool.current is B
    time.now += rest_s - 0.5
    assert pool.rotate(B, error) is None and pool.current is B  # neither may be used: the call itself waits
    time.now += 0.5
    assert pool.rotate(B, error) is not None and pool.current is A
