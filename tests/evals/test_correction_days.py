"""`whet eval days`: a day with one correction has its review, however short it is."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from whet_lab.commands.eval_days import days

pytestmark = pytest.mark.slow


def test_a_correction_is_reviewed_and_kept_on_the_shortest_day_and_a_longer_one() -> None:
    result = CliRunner().invoke(days, ["--turns", "1", "--turns", "9", "--json"])
    report = json.loads(result.stdout)
    assert (report["days"], report["reviewed"], report["kept"]) == (4, 4, 4), result.output
    assert [(day["turns"], day["kind"]) for day in report["each"]][1:3] == [(1, "rule"), (9, "value")]
