"""Which rows of a family of tests the quick suite runs. The marks are explained in `pyproject.toml`."""

from __future__ import annotations

import pytest


def mark_rest_slow(items: list[pytest.Item], is_whole: bool) -> None:
    """Mark as slow the rows that `fast_rows` doesn't name and those that `slow_rows` names.

    `is_whole`: all rows of each test are here. Raises UsageError then if a test has no row of a name.
    """
    unmatched: dict[str, set[str]] = {}
    for item in items:
        row = item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
        fast, slow = item.get_closest_marker("fast_rows"), item.get_closest_marker("slow_rows")
        if fast:
            missing = unmatched.setdefault(item.nodeid.partition("[")[0], {*fast.args})
            missing.difference_update([part for part in fast.args if part in row])
            if not any(part in row for part in fast.args):
                item.add_marker(pytest.mark.slow)
        if slow and row and any(part in row for part in slow.args):
            item.add_marker(pytest.mark.slow)
    for test, parts in unmatched.items():
        if parts and is_whole:
            raise pytest.UsageError(f"{test}: no row is named {', '.join(sorted(parts))}")
