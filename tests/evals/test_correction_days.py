"""`whet eval days`: what a person says on a day has its review, however short the day is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from whet.config.schema import ReviewSettings
from whet_lab.commands.eval_days import days

pytestmark = pytest.mark.slow


def run_days(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(days, [*options, "--json"])
    return json.loads(result.stdout)


def test_a_correction_is_reviewed_and_kept_on_the_shortest_day_and_a_longer_one():
    report = run_days("--turns", "1", "--turns", "9")
    each = report["each"]
    corrected = [day for day in each if day["kind"] != "fact"]
    assert all(day["is_reviewed"] and day["is_kept"] for day in corrected), corrected
    assert [(day["turns"], day["kind"]) for day in each] == [
        (turns, kind) for turns in (1, 9) for kind in ("value", "rule", "fact")
    ]
    assert report["reviewed"] == 5, "a day of one turn without a correction has no review"


@pytest.mark.parametrize("server", ["caching", "silent", "unpriced"])
@pytest.mark.parametrize("talk", [(), ("--talk",)])
def test_a_day_of_three_turns_or_more_is_reviewed_within_its_share_whatever_the_server_reports(server, talk):
    report = run_days("--server", server, *talk, "--turns", "3", "--turns", "9")
    facts = [day for day in report["each"] if day["kind"] == "fact"]
    assert [(day["is_reviewed"], day["is_kept"]) for day in facts] == [(True, True)] * 2, facts
    settings = ReviewSettings()
    floor = settings.share * settings.free_tokens
    # What the last request writes is known only afterwards.
    assert all(day["weight"] <= 1.05 * floor or day["share"] <= settings.share for day in facts), facts
