"""A part of the demo whose claim does not hold says that, and not what it wanted to show."""

from __future__ import annotations

import pytest

from whet_lab.demo.facts import count_prefixes
from whet_lab.demo.run import DemoRun
from whet_lab.demo.stage import DemoStage
from whet_lab.demo.world import DemoWorld, SeenRequest


def test_a_conclusion_is_drawn_only_when_its_checks_hold(capsys: pytest.CaptureFixture[str]) -> None:
    world = DemoWorld()
    play = DemoRun(DemoStage("fast"), world)
    play.check("first", ok=True)
    play.conclude("All is well.")
    play.check("second", ok=False, detail="3 of 4")
    play.conclude("All is well again.")
    world.close()
    text = capsys.readouterr().out
    assert "All is well." in text and "again" not in text
    assert "second (3 of 4)" in text
    assert not world.folder.exists()


def test_a_changed_past_breaks_the_prefix() -> None:
    def request(*messages: str) -> SeenRequest:
        rows = ",".join(f'{{"role":"{name.split()[0]}","content":"{name}"}}' for name in messages)
        return SeenRequest(f'{{"model":"m","messages":[{rows}]}}')

    grows = [request("user 1"), request("user 1", "assistant 1", "user 2"), request("user 9")]
    assert (count_prefixes(grows).pairs, count_prefixes(grows).held) == (1, 1)
    changed = [request("user 1"), request("user one", "assistant 1")]
    assert (count_prefixes(changed).pairs, count_prefixes(changed).held) == (1, 0)
