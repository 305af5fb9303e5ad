"""What each reader of foreign transcripts stands on: results paired with calls, endings, lines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support import each
from whet.contract.messages import Message, ToolCall
from whet.moving.lines import JsonLines
from whet.moving.pairing import MISSING, Ending, find_live, pair, parse_ending
from whet.store.bulk import PastMessage


def said(role: str, text: str = "", calls: tuple[str, ...] = (), of: str = "", name: str = "") -> PastMessage:
    wanted = tuple(ToolCall(id_, f"tool_{id_}", "{}") for id_ in calls)
    return PastMessage(Message(role, text, wanted, of, name), 7)  # type: ignore[arg-type]


def shown(found) -> list[str]:
    return [message.message.text or message.message.role for message in found.messages]


def test_results_follow_their_answer_in_the_order_of_its_calls() -> None:
    messages = pair(
        [
            said("tool", "early", of="b"),
            said("user", "go"),
            said("assistant", "", ("a", "b", "a")),
            said("tool", "a1", of="a", name="own"),
            said("tool", "a2", of="a"),
            said("tool", "nobody's", of="x"),
            said("assistant", ""),
            said("assistant", "done"),
        ]
    )
    assert shown(messages) == ["go", "assistant", "a1", "early", "a2", "done"]
    assert messages.sources == (1, 2, 3, 0, 4, 7) and messages.left_out == 2
    assert [message.message.tool_name for message in messages.messages[2:5]] == ["own", "tool_b", "tool_a"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    messages = pair([said("assistant", "", ("a",))])
    message = messages.messages[1]
    assert (message.message.text, message.message.tool_call_id, message.message.is_error) == (
        MISSING,
        "a",
        True,
    )
    assert (message.message.tool_name, message.at_ms, message.error_kind) == ("tool_a", 7, "interrupted")
    assert messages.sources == (0, -1) and messages.left_out == 0


def test_what_a_model_still_saw_never_begins_with_a_result() -> None:
    messages = pair(
        [said("user", "q"), said("assistant", "", ("a",)), said("tool", "r", of="a"), said("user", "p")]
    )
    assert find_live(0, messages) is None
    assert find_live(1, messages) == (1, 2, 3) and find_live(2, messages) == (3,)
    assert find_live(3, messages) == (3,) and find_live(9, messages) == ()


@each(
    ("text", "is_error", "ending"),
    [
        ("fine", False, Ending()),
        ("bad", True, Ending("failed")),
        ("Exit code 0", False, Ending("", 0)),
        ("Exit code: 2\nmore", False, Ending("exit", 2)),
        ("Exit code 0", True, Ending("failed", 0)),
        ("Process exited with code -9", False, Ending("exit", -9)),
        ("it said Exit code 3", False, Ending()),
        ('{"exit_code": 3}', False, Ending("exit", 3)),
        ('{"exit_code": 0, "error": "x"}', False, Ending("failed", 0)),
        ('{"exit_code": true, "error": ""}', False, Ending()),
        ('{"metadata": {"exit_code": 4}}', False, Ending("exit", 4)),
        ('{"metadata": "x", "success": false}', False, Ending("failed")),
        ('{"success": true}', False, Ending()),
        ('{"success": true}', True, Ending("failed")),
        ('{"error": "gone"}', False, Ending("failed")),
        ("{broken", False, Ending()),
        ("{broken", True, Ending("failed")),
    ],
)
def test_how_a_call_ended_is_read_from_fields_not_from_words(
    text: str, is_error: bool, ending: Ending
) -> None:
    assert parse_ending(text, is_error=is_error) == ending


def test_torn_and_overlong_lines_are_counted_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'1\n{torn\n\n2\n"' + b"x" * 30 + b'"\n3')
    lines = JsonLines(path, msgspec.json.Decoder(int), max_bytes=20)
    assert list(lines) == [1, 2, 3] and lines.bad == 2
    with pytest.raises(OSError, match="not a plain file"):
        list(JsonLines(tmp_path, msgspec.json.Decoder(int)))
