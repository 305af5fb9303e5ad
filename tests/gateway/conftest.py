"""No test of the gateway may leave an error in the log, unless it is about one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


class _Errors(logging.Handler):
    """Keeps the lines of errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage()
        self.lines.append(text)


@pytest.fixture(autouse=True)
def errors_logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which the gateway or its loop logged an error that `logs_errors` does not name."""
    marker = request.node.get_closest_marker("logs_errors")
    expected = marker.args if marker else ()
    handler = _Errors()
    loggers = [logging.getLogger(name) for name in ("whet.gateway", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
    assert [line for line in handler.lines if not any(words in line for words in expected)] == []
