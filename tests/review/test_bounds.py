"""The texts of a review: the excerpt that another model reads, the message, and the summary for a person."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from whet.contract.messages import Message, ToolCall
from whet.contract.origin import Origin
from whet.contract.tools import clip
from whet.review import wording
from whet.review.digest import digest
from whet.review.jobs import reviewable_kinds
from whet.store.ledger import Kind, LedgerRow, Quote, State

TALK = [
    Message("user", "please look at it"),
    Message("assistant", "I look.", tool_calls=(ToolCall("c", "terminal", '{"command": "make"}'),)),
    Message("tool", "12 passed", tool_name="terminal", tool_call_id="c"),
    Message("tool", "broken", tool_name="terminal", tool_call_id="d", is_error=True),
    Message("assistant", "", tool_calls=(ToolCall("e", "todo", "{}"),)),
]


def test_a_conversation_is_written_row_by_row() -> None:
    assert digest(TALK, 1_000) == (
        "<conversation>\nPERSON:\nplease look at it\n\nAGENT:\nI look.\n"
        'CALL terminal {"command": "make"}\n\nRESULT of terminal:\n12 passed\n\n'
        "FAILED RESULT of terminal:\nbroken\n\nCALL todo {}\n</conversation>"
    )


def test_what_the_person_typed_early_outlasts_the_work_in_the_middle_of_a_long_day() -> None:
    day: list[Message] = []
    for number in range(60):
        call = ToolCall(f"c{number}", "terminal", f'{{"command": "make {"x" * 90} {number}"}}')
        day += [Message("user", f"Do task {number} next."), Message("assistant", "", tool_calls=(call,))]
        day += [Message("tool", "r" * 400, tool_name="terminal", tool_call_id=call.id)]
    text = digest(day, 1_000)
    assert len(text) <= 4_040 and all(f"Do task {number} next." in text for number in range(60))
    assert "x 59" in text and "x 30" not in text


def test_long_results_are_cut_before_anything_else_and_only_as_far_as_needed() -> None:
    result = Message("tool", "r" * 3_900, tool_name="terminal", tool_call_id="c")
    message = Message("user", "s" * 3_900)
    whole = digest([message, result], 2_000)
    assert "s" * 3_900 in whole and "r" * 3_900 in whole
    less = digest([message, result], 1_700)
    assert "s" * 3_900 in less and "r" * 1_200 in less and "r" * 1_300 not in less
    even = Message("user", "s" * 3_902)
    size = len(digest([even, result], 9_000)) - len("<conversation>\n\n</conversation>")
    assert size % 4 == 0 and "r" * 3_900 in digest([even, result], size // 4)
    exact = digest([Message("user", "s" * 72)], 20)
    assert "s" * 72 in exact and "s" * 73 not in digest([Message("user", "s" * 73)], 20)


@pytest.mark.parametrize("cap", [4_000, 2_000, 1_000, 500, 240, 120])
def test_a_result_is_cut_to_the_next_size_that_fits(cap: int) -> None:
    result = Message("tool", "r" * 9_000, tool_name="terminal", tool_call_id="c")
    assert f"RESULT of terminal:\n{clip('r' * 9_000, cap)}\n<" in digest([result], (cap + 72) // 4)
    assert clip("r" * 9_000, 4_000) in digest([result], 99_000)


def test_a_digest_keeps_to_its_size() -> None:
    many = [Message("user", f"{n} " + "word " * 900) for n in range(40)]
    text = digest(many, 500)
    assert len(text) <= 500 * 4 + 100 and "characters cut" in text


def test_a_session_is_reviewed_for_what_it_has_tools_for() -> None:
    assert reviewable_kinds(["memory", "terminal"]) == ("memory",)
    assert reviewable_kinds(["skill_manage", "memory"]) == ("memory", "skill")
    assert reviewable_kinds(["skill_view"]) == ()


def row(kind: Kind, item: str, action: str, state: State = "active", quotes: Sequence[str] = ()) -> LedgerRow:
    evidence = tuple(Quote(text, "s", 1) for text in quotes)
    nothing = ("", "", (), "", "", evidence, "user", "", 0, 0, Origin())
    return LedgerRow(1, "", "", kind, item, action, state, *nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], ""),
        ([row("memory", "memory", "add", "refused")], "nothing saved, 1 refused: whet review inbox"),
        ([row("memory", "memory", "add")], "Memory updated"),
        (
            [row("memory", "memory", "add", quotes=["a"]), row("memory", "memory", "add", quotes=["a", "b"])],
            "Memory updated (2 quotes)",
        ),
        ([row("memory", "user", "add", quotes=["a"])], "User profile updated (1 quote)"),
        (
            [row("skill", "d", "patch"), row("skill", "d", "remove_file"), row("skill", "e", "move")],
            "Skill 'd' patched · Skill 'd' trimmed · Skill 'e' changed",
        ),
        ([row("skill", "d", "patch", "inbox")], "1 waits for you: whet review inbox"),
        (
            [row("memory", "memory", "add"), *[row("skill", "d", "edit", "quarantined")] * 2],
            "Memory updated · 2 wait for you: whet review inbox",
        ),
    ],
)
def test_what_a_person_is_told_of_a_review(rows: list[LedgerRow], said: str) -> None:
    assert wording.write_summary(rows) == (f"Self-improvement review: {said}" if said else "")


def test_the_message_names_the_tasks_the_tools_and_the_focus() -> None:
    text = wording.review_message(("memory",), " the tests ", ("memory", "read_file"))
    assert text.startswith(wording.TITLE) and "memory, read_file" in text
    assert "look above all at: the tests\n" in text
    assert wording.read_prompt("memory.md").strip() in text
    assert wording.read_prompt("skill.md").strip() not in text
    assert "above all" not in wording.review_message(("skill",), " ", ())
    assert "{" not in wording.review_message(("memory", "skill"), "", ("memory",))
    assert '"outcome": "failed"' in wording.review_message(("memory",), "", ("memory",), has_calls=True)
