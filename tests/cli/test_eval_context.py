"""`whet eval context`: engines side by side on a made-up and on a stored conversation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.running import flags, run
from whet.contract.messages import Message, ToolCall
from whet_lab.evals.context_story import build_story, make_synthetic
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"


@pytest.mark.slow
def test_engines_side_by_side_as_a_table_a_chart_and_json(home: Path, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "last-words", home / "plugins" / "last-words")
    assert run(["config", "set", "plugins.enabled", "last-words"], tmp_path)[0] == 0
    arguments = ["eval", "context", "--messages", "60", "--window", "6000"]
    code, out, err = run([*arguments, "--chart", str(tmp_path / "chart.svg")], tmp_path)
    assert code == 0, err
    assert out.splitlines()[2].split() == ["compressor", "last-words"]
    svg = (tmp_path / "chart.svg").read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg") and "last-words" in svg
    code, out, err = run([*arguments, "--engine", "compressor", "--json"], tmp_path)
    (engine,) = json.loads(out)["engines"]
    assert code == 0 and engine["compactions"] >= 3 and engine["saving_least"] > 0.2
    assert engine["recoverable"] == engine["facts"] and engine["paths_found"] == engine["paths"]
    assert engine["in_context"] < engine["facts"] and engine["cache_hit"] > 0.8
    assert engine["summary_tokens"] > 0 and engine["judged"] is None
    code, _, err = run([*arguments, "--engine", "nobody"], tmp_path)
    assert code == 1 and "there is no engine 'nobody'" in err
    assert "--judge asks a real model" in run([*arguments, "--judge", "3"], tmp_path)[2]


@pytest.mark.slow
def test_a_stored_session_is_replayed_with_its_own_facts_and_judged(tmp_path: Path) -> None:
    text = "The gateway of the harbour listens on port 48213 and its report is reports/harbour/latest.txt."
    with PracticeServer(script=[ScriptedReply(text), *[ScriptedReply("5")] * 9]) as server:
        for key, value in zip(("provider", "base_url", "model"), flags(server)[1::2], strict=False):
            assert run(["config", "set", f"model.{key}", value], tmp_path)[0] == 0
        assert run(["chat", *flags(server), "-q", "Where does the gateway listen?"], tmp_path)[0] == 0
        listed = json.loads(run(["sessions", "list", "--json"], tmp_path)[1])
        session_id = (listed["sessions"] if isinstance(listed, dict) else listed)[0]["id"]
        arguments = ["eval", "context", "--session", session_id, "--window", "8000", "--json"]
        code, out, err = run([*arguments, "--live", "--judge", "2", "--engine", "compressor"], tmp_path)
        assert code == 0, err
        (engine,) = json.loads(out)["engines"]
        assert engine["facts"] == engine["recoverable"] == engine["in_context"] == 2
        assert engine["judged"] == 1.0


def test_facts_of_a_story_stand_in_it_once() -> None:
    story = make_synthetic(100)
    whole = "\n".join(message.text for message in story.messages)
    assert len(story.facts) > 40 and all(whole.count(fact.value) == 1 for fact in story.facts)
    assert len(set(story.paths)) == len(story.paths)
    call = ToolCall("a", "read_file", '{"path": "src/a.py"}')
    rows = [
        Message("user", "the invoice number is 20419"),
        Message("assistant", "", (call,)),
        Message("tool", "twice 777123 and again 777123", tool_call_id="a", tool_name="read_file"),
    ]
    story = build_story("s", rows)
    assert [(fact.value, fact.place) for fact in story.facts] == [("20419", "person")]
    assert story.paths == ["src/a.py"]
