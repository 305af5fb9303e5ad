"""Why a person is asked about a command: the table of reasons.py."""

from __future__ import annotations

from tests.approval.reasons import REASONS
from tests.approval.test_faults import judge
from tests.support import each


@each(("command", "level", "reasons"), REASONS)
def test_each_command_has_its_level_and_reasons(command: str, level: str, reasons: tuple[str, ...]) -> None:
    risk = judge(command)
    assert (risk.level, risk.reasons) == (level, reasons)
