"""One `whet acp` for the tests that need none of their own, and a practice server for those that do."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from tests.editors.rig import Desk
from whet_lab.practice.server import PracticeServer


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One process for the tests that need none of their own."""
    root = tmp_path_factory.mktemp("editors")
    with PracticeServer() as server:
        made = Desk(root, server)
        yield made
        made.close()


@pytest.fixture
def desk(shared: Desk) -> Desk:
    shared.clear()
    return shared


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine on the loop of its `desk`, where the editor is connected."""
    desk = pyfuncitem.funcargs.get("desk")
    if not isinstance(desk, Desk) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    desk.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
