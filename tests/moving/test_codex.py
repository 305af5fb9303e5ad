"""Codex's transcripts: turns that were rolled back, pictures in results, archived and compressed files."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import invoke
from tests.moving.test_transcripts import PIXEL, item, lines, text
from whet.contract.messages import NO_IMAGE, ImagePart, Part, TextPart
from whet.moving import codex

_ROLLBACK = {"type": "thread_rolled_back", "num_turns": 1}
_PICTURE = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
_SEEN = {"type": "input_text", "text": "seen"}


def roll_back(turns: object) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {**_ROLLBACK, "num_turns": turns}}


def test_turns_that_were_rolled_back_are_left_out(tmp_path: Path) -> None:
    call = item({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"})
    output = item({"type": "function_call_output", "call_id": "c1", "output": "gone"})
    context = "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"
    turns = [text("user", "second"), call, output, text("assistant", "2"), text("user", context)]
    path = lines(
        tmp_path / "rollout-1.jsonl",
        text("user", "first"),
        text("assistant", "1"),
        *turns,
        roll_back("many"),
        text("user", "third"),
        roll_back(2),
        text("user", "instead"),
    )
    past, _ = codex.read(path)
    assert past is not None
    assert [row.message.text for row in past.messages] == ["first", "1", "instead"]


def test_a_rolled_back_compaction_shows_the_model_the_earlier_messages(tmp_path: Path) -> None:
    compacted = {"type": "compacted", "payload": {"message": "All was done."}}
    before = [text("user", "first"), text("assistant", "1"), text("user", "second")]
    path = lines(tmp_path / "rollout-1.jsonl", *before, compacted, text("user", "third"), roll_back(1))
    past, _ = codex.read(path)
    assert past is not None and past.live == (3,), "the summary is no turn"
    path = lines(tmp_path / "rollout-2.jsonl", *before, compacted, roll_back(1), text("user", "again"))
    past, _ = codex.read(path)
    assert past is not None and past.live is None
    assert [row.message.text for row in past.messages] == ["first", "1", "again"]


@pytest.mark.parametrize(
    ("output", "content", "ending"),
    [
        ([_PICTURE, _SEEN], (TextPart("seen"), ImagePart("image/png", PIXEL)), ""),
        ([{**_PICTURE, "image_url": "https://example.org/a.png"}], NO_IMAGE.text, ""),
        ([_SEEN, _SEEN], "seen\nseen", ""),
        ({"content": "Plan updated", "success": True}, "Plan updated", ""),
        ({"content": "no", "content_items": [_SEEN], "success": False}, "seen", "failed"),
        ([{"type": "unknown"}], '[{"type":"unknown"}]', ""),
        (7, "7", ""),
    ],
)
def test_a_result_is_text_and_pictures(
    tmp_path: Path, output: object, content: str | tuple[Part, ...], ending: str
) -> None:
    call = {"type": "function_call", "name": "view_image", "arguments": "{}", "call_id": "c1"}
    result = {"type": "function_call_output", "call_id": "c1", "output": output}
    path = lines(tmp_path / "rollout-1.jsonl", text("user", "look"), item(call), item(result))
    past, _ = codex.read(path)
    assert past is not None
    assert (past.messages[2].message.content, past.messages[2].error_kind) == (content, ending)


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs zstd")
def test_archived_and_compressed_transcripts_are_read_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "codex"
    day = home / "sessions" / "2026" / "08" / "02"
    plain = lines(day / "rollout-a.jsonl", text("user", "plain"))
    archived = lines(home / "archived_sessions" / "rollout-b.jsonl", text("user", "archived"))
    packed = lines(day / "rollout-c.jsonl", text("user", "packed"))
    damaged = day / "rollout-d.jsonl.zst"
    subprocess.run(["zstd", "-q", "--rm", str(packed)], check=True)
    subprocess.run(["zstd", "-q", str(plain)], check=True)
    damaged.write_bytes((day / "rollout-c.jsonl.zst").read_bytes()[:-5])
    assert codex.files(home) == [archived, plain, day / "rollout-c.jsonl.zst", damaged]
    monkeypatch.setenv("CODEX_HOME", str(home))
    report = json.loads(invoke("import", "codex", "--json").stdout)
    assert report["sessions"]["new"] == 3
    assert report["unreadable_files"] == {str(damaged): "its compressed contents are damaged"}
    monkeypatch.setenv("PATH", str(tmp_path))
    report = json.loads(invoke("import", "codex", "--json").stdout)
    assert report["sessions"]["same"] == 2
    assert set(report["unreadable_files"].values()) == {"it is compressed; install zstd, then import again"}
