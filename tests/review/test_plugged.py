"""Plugins beside the chat: their provider reviews too, their memory hears what workers and commands do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.review.rig import LESSON, SAID, corrected, does, says
from tests.stories.program import Program
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"


def test_a_worker_of_its_own_has_the_homes_plugins(tmp_path: Path) -> None:
    script = corrected(does(LESSON), says("Saved."))
    with PracticeServer(script=script) as server:
        environ = {"COMPANY_MODELS_URL": server.base_url, "COMPANY_MODELS_KEY": "company-key-1"}
        program = Program(tmp_path, environ=environ)
        program.home.mkdir(parents=True, exist_ok=True)
        shutil.copytree(EXAMPLES, program.home / "plugins")
        (program.home / "config.yaml").write_text(
            "model: {provider: company, model: practice}\n"
            "plugins: {enabled: [company-models, memory-mirror]}\n"
        )
        program.run("chat", "-q", "Run the tests", "--yes")
        row = program.run("chat", "-q", SAID, "--continue", "--json", "--yes").row
        (program.home / "memory-mirror.jsonl").unlink()
        done = json.loads(program.run("worker", "--drain", "--json").out)["reviews"]
        keys = [request.headers["authorization"] for request in server.requests]
        program.run("forget", "--session", row["session_id"])
    assert [(one["job_id"], one["state"]) for one in done] == [(row["review"]["queued"][0], "saved")]
    assert set(keys) == {"Bearer company-key-1"} and len(keys) == 3
    heard = [json.loads(line) for line in (program.home / "memory-mirror.jsonl").read_text().splitlines()]
    assert [one["event"] for one in heard] == ["add", "shutdown", "undo", "shutdown"]
    assert heard[2]["content"] == heard[0]["content"] and "./check --fast" in heard[0]["content"]
    assert heard[0]["metadata"]["write_origin"] == "background_review"
    assert heard[0]["metadata"]["parent_session_id"] == row["session_id"]
