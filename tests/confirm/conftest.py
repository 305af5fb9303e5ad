"""A desk or a running service for each test, and who calls it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.confirm.people import Desk
from tests.confirm.running import ManualClock, Running


@pytest.fixture
def desk(tmp_path):
    """A service of its own, without a policy file."""
    service_desk = Desk(tmp_path)
    yield service_desk
    service_desk.close()


@pytest.fixture
def clock():
    """A clock that moves only when told to; the service of a test that asks for it goes by it."""
    return ManualClock()


@pytest.fixture
def server(tmp_path, request):
    """A service that answers over HTTP, with the settings of the test's marks `service`."""
    settings: dict[str, Any] = {"rate": 1000}
    for mark in reversed([*request.node.iter_markers("service")]):
        settings |= mark.kwargs
    if "clock" in request.fixturenames:
        settings["clock"] = request.getfixturevalue("clock")
    with Running(tmp_path / "service", **settings) as running:
        yield running


@pytest.fixture
def agent(server):
    return server.client("submit", "agent")


@pytest.fixture
def alice(server):
    return server.client("approve", "alice")


@pytest.fixture
def bob(server):
    return server.client("approve", "bob")


@pytest.fixture
def admin(server):
    return server.client("admin", "root")
