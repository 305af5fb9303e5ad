"""A desk or a running service for each test."""

from __future__ import annotations

import pytest

from tests.confirm.people import Desk
from tests.confirm.running import Running


@pytest.fixture
def desk(tmp_path):
    """A service of its own, without a policy file."""
    service_desk = Desk(tmp_path)
    yield service_desk
    service_desk.close()


@pytest.fixture
def server(tmp_path):
    """A service that answers over HTTP, in a folder of its own."""
    with Running(tmp_path / "service", rate=1000) as running:
        yield running
