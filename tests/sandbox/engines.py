"""The engines of this machine, for tests that want each; one that does not hold here is skipped."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from whet.sandbox.engine import candidates, find_problem
from whet.sandbox.status import Engine, EngineStatus

_known: dict[str, str] = {}


class EngineCase(NamedTuple):
    """One engine by its name for a person."""

    name: str

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    def engine(self) -> Engine:
        """Give it, or skip the test where it does not hold."""
        for name, engine, problem in candidates():
            if name == self.name:
                if name not in _known:
                    _known[name] = problem or find_problem(engine)
                if _known[name]:
                    pytest.skip(f"{name}: {_known[name]}")
                return engine
        pytest.skip("no engine for this system")

    def status(self) -> EngineStatus:
        """Give what `probe` would say of it."""
        engine = self.engine()
        return EngineStatus(engine.name, self.name, engine)


ENGINES = [EngineCase("bubblewrap"), EngineCase("Landlock with namespaces"), EngineCase("Landlock")]
