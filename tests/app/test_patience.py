"""How long each way in waits out an outage: a person who watches can stop it, where nobody does more."""

from __future__ import annotations

import pytest

from whet.app.parts import patience_s
from whet.config.schema import Settings
from whet.contract.protocols import NobodyPresent, Person
from whet.editors.sessions import SOURCE as EDITOR
from whet.schedules.execution import SOURCE as SCHEDULE
from whet.terminal.person import LinePerson


@pytest.mark.parametrize(
    ("source", "person", "expected"),
    [
        ("cli", LinePerson(), 300.0),
        (EDITOR, LinePerson(), 300.0),
        ("cli", NobodyPresent(), 900.0),
        (SCHEDULE, NobodyPresent(), 900.0),
        ("gateway", LinePerson(), 900.0),
        ("api", LinePerson(), 900.0),
        ("team", LinePerson(), 900.0),
    ],
)
def test_where_nobody_watches_an_outage_is_waited_out_for_longer(
    source: str, person: Person, expected: float
) -> None:
    assert patience_s(Settings(), source, person) == expected
