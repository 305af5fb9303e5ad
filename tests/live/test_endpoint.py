"""The same program against a real model: `pytest -m live` with WHET_LIVE_BASE_URL and WHET_LIVE_MODEL set.

WHET_LIVE_FORMAT names the wire format, WHET_LIVE_KEY the key, if the server wants one. It spends a few
thousand tokens. Nothing is asserted on wording beyond what any model that calls tools can do.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stories.program import Program

# Read here, because the tests' own guard takes such variables out of the environment.
BASE_URL = os.environ.get("WHET_LIVE_BASE_URL", "")
MODEL = os.environ.get("WHET_LIVE_MODEL", "")
FORMAT = os.environ.get("WHET_LIVE_FORMAT", "auto")
KEY = os.environ.get("WHET_LIVE_KEY", "")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not (BASE_URL and MODEL), reason="WHET_LIVE_BASE_URL and WHET_LIVE_MODEL are not set"),
]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    environ = {
        "WHET_MODEL_PROVIDER": "live",
        "WHET_MODEL_BASE_URL": BASE_URL,
        "WHET_MODEL_MODEL": MODEL,
        "WHET_MODEL_FORMAT": FORMAT,
        "WHET_MODEL_MAX_RETRIES": "2",
        "NO_PROXY": os.environ.get("NO_PROXY", "").removesuffix("*"),
    }
    if KEY:
        environ |= {"LIVE_KEY": KEY, "WHET_MODEL_API_KEY_ENV": "LIVE_KEY"}
    return Program(tmp_path, environ=environ)


def test_it_answers_and_counts_its_tokens(program: Program) -> None:
    done = program.ask("Answer with the single word: heron")
    assert (done.code, done.err) == (0, ""), done
    assert "heron" in done.row["text"].lower()
    assert done.row["usage"]["prompt_tokens"] > 0


def test_it_reads_and_writes_files_with_tools(program: Program) -> None:
    (program.work / "in.txt").write_text("The code word is kumquat.\n")
    done = program.ask("Read in.txt and write only its code word, in upper case, to out.txt.")
    assert done.code == 0, done
    assert (program.work / "out.txt").read_text().strip() == "KUMQUAT"
    assert all(call["ok"] for call in done.row["tool_calls"][-1:])


def test_a_session_goes_on_and_its_prefix_is_accepted(program: Program) -> None:
    first = program.ask("Remember the number 417. Run `echo ready` and then answer: ok")
    second = program.ask("Which number? Only the number.", "--continue")
    assert (first.code, second.code) == (0, 0), (first, second)
    assert second.row["session_id"] == first.row["session_id"]
    assert "417" in second.row["text"]
