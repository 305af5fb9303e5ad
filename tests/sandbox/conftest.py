from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import made_jail
from whet.sandbox.jail import Jail


@pytest.fixture(params=ENGINES, ids=str)
def jail(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Jail]:
    """A jail of each engine, around a folder of this test's own."""
    case: EngineCase = request.param
    with made_jail(case, tmp_path) as made:
        yield made
