"""Replay transcripts in four forms through the check on repeated calls: only loops are stopped."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.repetition import RecordedCall, Transcript, read_folder, replay


def _read(path: str, version: int = 0) -> list[RecordedCall]:
    return [RecordedCall("read_file", json.dumps({"path": path}), f"{path} as of {version}")]


def _run(command: str, result: str) -> list[RecordedCall]:
    return [RecordedCall("terminal", json.dumps({"command": command}), result)]


def _work(seed: int) -> Iterator[list[RecordedCall]]:
    """Yield replies of an agent that reads, edits, tests and polls; some of its calls repeat."""
    chance = random.Random(seed)
    for version in range(chance.randint(8, 20)):
        path = f"src/{chance.choice('abcdef')}.py"
        yield from [_read(path, version)] * chance.randint(1, 2)
        yield _run("grep -rn 'def find' src", "src/a.py:12: def find(key):")
        yield _run(f"sed -i {version}d {path}", "")
        for _ in range(chance.randint(1, 3)):
            yield _run("pytest -q", "1 failed, 12 passed")
        yield _run("git diff --stat", f"{version} files changed")
    yield from (_run("cat build.log", f"{done} % done") for done in range(12))


def _loop(seed: int) -> Iterator[list[RecordedCall]]:
    """Yield replies that end in one to four calls over and over."""
    yield from _work(seed)
    yield from [_read(f"missing/{number % (1 + seed % 4)}") for number in range(40)]


def _write_chat(replies: Transcript) -> Any:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, ((name, arguments, result),) in enumerate(replies):
        function = {"name": name, "arguments": arguments}
        messages.append({"role": "assistant", "tool_calls": [{"id": f"c{number}", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return {"messages": messages}


def _write_commands(replies: Transcript) -> Any:
    messages = [{"role": "user", "content": "go"}]
    for ((name, arguments, result),) in replies:
        messages.append({"role": "assistant", "content": f"Next:\n\n```bash\n{name} {arguments}\n```"})
        messages.append({"role": "user", "content": f"<output>{result}</output>"})
    return {"messages": messages}


def _write_trajectory(replies: Transcript) -> Any:
    return {
        "trajectory": [
            {"action": f"{name} {arguments}", "observation": result}
            for ((name, arguments, result),) in replies
        ]
    }


def _write_events(replies: Transcript) -> Any:
    events: list[dict[str, Any]] = []
    for number, ((name, arguments, result),) in enumerate(replies):
        asked = {"id": "c", "function": {"name": name, "arguments": arguments}}
        answer = {"id": f"m{number}", "choices": [{"message": {"tool_calls": [asked]}}]}
        metadata = {"tool_call_id": "c", "model_response": answer}
        events += [{"action": "run", "tool_call_metadata": metadata}]
        events += [{"observation": "run", "content": result, "tool_call_metadata": metadata}]
    return {"history": events}


@pytest.mark.fast_rows("_write_chat", "_write_commands")
@pytest.mark.parametrize("write", [_write_chat, _write_commands, _write_trajectory, _write_events])
def test_replayed_work_goes_on_and_loops_end(tmp_path: Path, write: Callable[[Transcript], Any]) -> None:
    for seed in range(8):
        (tmp_path / f"work {seed}.json").write_text(json.dumps(write(list(_work(seed)))))
        (tmp_path / f"loop {seed}.traj").write_text(json.dumps(write(list(_loop(seed)))))
    ends = {name: replay(transcript) for name, transcript in read_folder(tmp_path)}
    assert len(ends) == 16
    assert [name for name, end in ends.items() if (end.stopped is None) == name.startswith("loop")] == []
    assert all("missing/" in end.stopped.arguments for end in ends.values() if end.stopped is not None)
