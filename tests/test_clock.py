"""The owner's clock: the zone of this machine, of the settings, and of a person."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from whet.clock import local_time, local_zone, use_zone

LATE = datetime(2026, 11, 28, 18, 29, tzinfo=UTC)


@pytest.fixture(autouse=True)
def machine_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        yield patch
    use_zone("")
    time.tzset()


def test_the_zone_is_the_machines_unless_one_is_set(machine_zone: pytest.MonkeyPatch) -> None:
    machine_zone.setenv("TZ", "Pacific/Kiritimati")
    time.tzset()
    assert (local_zone(), f"{local_time(LATE):%a %H:%M}") == ("Pacific/Kiritimati", "Sun 08:29")
    use_zone("America/New_York")
    assert (local_zone(), f"{local_time(LATE):%a %H:%M}") == ("America/New_York", "Sat 13:29")
    assert f"{local_time(LATE, 'Europe/Berlin'):%a %H:%M}" == "Sat 19:29"


def test_a_rule_in_tz_that_has_no_name_counts_by_its_offset(machine_zone: pytest.MonkeyPatch) -> None:
    machine_zone.setenv("TZ", "XXX-9:30")
    time.tzset()
    assert f"{local_time(LATE):%a %H:%M}" == "Sun 03:59"
