"""The owner's clock: the zone of this machine, of the settings, and of a person."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from whet.clock import local_time, local_zone, name_zone_file, read_zone, use_zone

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


@pytest.mark.parametrize(
    ("variable", "zone"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        (":/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "CET-1CEST,M3.5.0,M10.5.0/3"),
        ("CET-1CEST", "CET-1CEST"),
        ("<+03>-3", "<+03>-3"),
        ("UTC-3", "UTC-3"),
        ("GMT+5", "GMT+5"),
        ("NST3:30NDT,M3.2.0,M11.1.0", "NST3:30NDT,M3.2.0,M11.1.0"),
    ],
)
def test_every_form_of_tz_is_the_zone_that_the_system_reads(
    machine_zone: pytest.MonkeyPatch, variable: str, zone: str
) -> None:
    """https://github.com/NousResearch/hermes-agent/issues/119969"""
    machine_zone.setenv("TZ", variable)
    time.tzset()
    assert local_zone() == zone
    for month in (1, 4, 7, 12):
        moment = LATE.replace(month=month)
        assert moment.astimezone(read_zone(zone)).utcoffset() == moment.astimezone().utcoffset()


def test_a_variable_that_names_no_zone_leaves_the_machines(machine_zone: pytest.MonkeyPatch) -> None:
    machine_zone.delenv("TZ", raising=False)
    own = local_zone()
    for variable in ("Nonsense/Zone", "/nonexistent/zone", "CET-1CEST,M3", "Ünsinn-1", ""):
        machine_zone.setenv("TZ", variable)
        assert local_zone() == own


def test_a_zone_file_without_a_name_is_read_by_its_rule(tmp_path: Path) -> None:
    names, copied = tmp_path / "timezone", tmp_path / "localtime"
    copied.write_bytes(Path("/usr/share/zoneinfo/Europe/Berlin").read_bytes())
    assert name_zone_file(copied, names) == "CET-1CEST,M3.5.0,M10.5.0/3"
    names.write_text("Etc/UTC\n")  # a container that was given the machine's localtime alone
    assert name_zone_file(copied, names) == "CET-1CEST,M3.5.0,M10.5.0/3"
    names.write_text("Europe/Berlin\n")
    assert name_zone_file(copied, names) == "Europe/Berlin"
    (tmp_path / "link").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert name_zone_file(tmp_path / "link", names) == "Asia/Tokyo"
    assert name_zone_file(tmp_path / "absent", names) == "Europe/Berlin"
    assert name_zone_file(tmp_path / "absent", tmp_path / "absent") == ""
