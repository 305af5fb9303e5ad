"""Many one-shots begin at once on a home that none has used."""

from __future__ import annotations

import pytest

from tests.stories.program import Program
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


@pytest.mark.parametrize(
    "count", [pytest.param(8, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.soak)]
)
def test_one_shots_that_start_at_once_on_a_new_home_all_answer(tmp_path, count):
    with PracticeServer(responder=lambda request: ScriptedReply("here")) as server:
        program = Program(tmp_path, server)
        running = [program.start_asking(f"hello {number}") for number in range(count)]
        ends = [each.done() for each in running]
        assert [(end.code, end.err) for end in ends] == [(0, "")] * count
