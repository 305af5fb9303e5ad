"""The pieces that a compaction is made of: what is cut where, what is asked, what an answer is taken for."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.context.talk import BODY, Model
from whet.context import artifacts, summary
from whet.context.artifacts import TrailEntry
from whet.context.compaction_policy import CompactionAnswer, CompactionQuestion, wish
from whet.context.head_tail import KeepLimits, groups, paired, split
from whet.context.rows import IMAGE_TOKENS, ROW_TOKENS, message_tokens, text_tokens
from whet.context.summariser import Failure, SummaryRequest, ask, judged, record, rest_s
from whet.context.summary import Summary
from whet.contract.context_engine import ChatRow
from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ConfigError,
    ContextOverflow,
    ModelRefused,
    NotFound,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    WireError,
)
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, VendorReplay
from whet.contract.tools import clip


def said(role: str, text: str, seq: int = 0) -> ChatRow:
    return {"role": role, "content": text, **({"_seq": seq} if seq else {})}


def asks(*ids: str) -> ChatRow:
    calls = [{"id": id_, "function": {"name": "f", "arguments": "{}"}} for id_ in ids]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def gives(id_: str, text: str = "ok") -> ChatRow:
    return {"role": "tool", "tool_call_id": id_, "content": text}


# --- head and tail -----------------------------------------------------------------------------------


def test_each_call_is_answered_right_after_it_by_its_next_result() -> None:
    first, second = asks("a", "b"), asks("a")
    rows = [gives("a", "early"), first, gives("x"), gives("b"), gives("a", "1"), second, gives("a", "2")]
    missing = "No result of this call was recorded."
    assert paired(rows) == [first, rows[4], rows[3], second, rows[6]]
    alone = {"role": "tool", "tool_call_id": "c", "name": "f", "tool_name": "f", "content": missing}
    assert paired([asks("c"), said("user", "x")]) == [asks("c"), alone, said("user", "x")]
    assert groups([gives("a"), first, gives("a"), gives("b"), said("user", "x")]) == [
        [gives("a")],
        [first, gives("a"), gives("b")],
        [said("user", "x")],
    ]


def row(role: str, tokens: int, seq: int) -> dict[str, Any]:
    return said(role, ("word" * tokens)[: (tokens - 4) * 4], seq)


def parts(rows: list[ChatRow], *limits: int) -> list[list[int]]:
    return [[one["_seq"] for one in part] for part in split(rows, KeepLimits(*limits))]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((0, 0, 100), [[], [1, 2, 3, 4, 5, 6, 7], [], [8, 9, 10]]),  # three messages at half as much again
        ((0, 0, 400), [[], [1, 2, 3, 4, 5, 6], [], [7, 8, 9, 10]]),
        ((0, 0, 50), [[], [1, 2, 3, 4, 5, 6, 7, 8], [9], [10]]),  # the person's last stays in any case
        ((4, 400, 100), [[1, 2, 3, 4], [5, 6, 7], [], [8, 9, 10]]),
        ((4, 399, 100), [[1, 2], [3, 4, 5, 6, 7], [], [8, 9, 10]]),  # never ends with a question
        ((3, 400, 100), [[1, 2], [3, 4, 5, 6, 7], [], [8, 9, 10]]),
        ((2, 99, 100), [[], [1, 2, 3, 4, 5, 6, 7], [], [8, 9, 10]]),
        ((20, 4_000, 10_000), [[1, 2, 3, 4, 5, 6, 7, 8], [], [9], [10]]),  # the tail wins over the head
    ],
)
def test_a_list_is_cut_into_head_middle_and_tail(limits: tuple[int, ...], expected: list[list[int]]) -> None:
    rows = [row(("user", "assistant")[at % 2], 100 if at < 7 else 50, at + 1) for at in range(10)]
    if limits[2] == 400:
        rows = [row(("user", "assistant")[at % 2], 100, at + 1) for at in range(10)]
    assert parts(rows, *limits) == expected


def test_a_head_begins_with_the_persons_words() -> None:
    rows = [row(("assistant", "user")[at % 2], 100, at + 1) for at in range(6)]
    assert parts(rows, 4, 4_000, 100)[0] == []


# --- the trail ---------------------------------------------------------------------------------------


def test_a_trail_is_written_as_far_as_it_fits() -> None:
    entries = [TrailEntry("read", f"f{at}", "", at) for at in range(1, 4)]
    entries.append(TrailEntry("command", "make", "exit 1", 9))
    whole = (
        "## Trail (newest first)\n- ran make -> exit 1 [#9]\n- read f3 [#3]\n- read f2 [#2]\n- read f1 [#1]"
    )
    more = "- older ones: recall with ref files, commands or urls"
    need = text_tokens("## Trail (newest first)") + text_tokens(more)
    assert artifacts.render(entries, 1_000) == whole and artifacts.render([], 1_000) == ""
    line = text_tokens("- read f3 [#3]") + 1
    made = text_tokens("- ran make -> exit 1 [#9]") + 1
    two = "\n".join((*whole.splitlines()[:3], more))
    assert artifacts.render(entries, need + made + line) == two
    assert artifacts.render(entries, need + made + line - 1) == "\n".join((*whole.splitlines()[:2], more))
    changed = [TrailEntry("changed", "old", "", 1), *entries[1:]]
    short = artifacts.render(changed, need + text_tokens("- changed old [#1]") + 1)
    assert short.splitlines()[1:] == ["- changed old [#1]", more]
    assert artifacts.parse(f"{whole}\nsome text\n{more}") == entries


# --- answers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<think>no</think>## 2. Goal", "## 2. Goal"),
        ("half a thought</think> ## 2. Goal ", "## 2. Goal"),
        ("```markdown\n## 2. Goal\nx\n```", "## 2. Goal\nx"),
        ("## 2. Goal\n```\nx\n```", "## 2. Goal\n```\nx\n```"),
        ("a", "a"),
    ],
)
def test_an_answer_is_read_without_thoughts_and_fences(answer: str, text: str) -> None:
    assert judged(answer) == text


def test_what_an_empty_answer_had_is_said() -> None:
    assert judged("") == Failure("empty", "the model answered with nothing instead of a summary")
    assert judged("<think>x") == Failure(
        "empty", "the model answered with only thoughts instead of a summary"
    )
    assert judged(" ?? ") == Failure("empty", "the model answered with only thoughts instead of a summary")


def request(**given: Any) -> SummaryRequest:
    fields: dict[str, Any] = {"rows": [], "previous": "", "focus": "", "recent": "", "sample": ""}
    fields |= {"today": date(2026, 11, 21), "budget_tokens": 1_000, "window_tokens": 100_000}
    return SummaryRequest(**(fields | given))


@pytest.mark.parametrize(
    ("error", "kind", "tries"),
    [
        (ConfigError("x", hint=""), "no_provider", 1),
        (NotFound("x", hint=""), "no_provider", 1),
        (AuthRejected("x", hint=""), "auth", 1),
        (QuotaExhausted("x", hint=""), "quota", 1),
        (RateLimited("x", hint=""), "network", 2),
        (Unavailable("x", hint=""), "network", 2),
        (WireError("x", hint=""), "stream", 2),
        (ContextOverflow("x", hint=""), "other", 2),
        (ModelRefused("x", hint=""), "other", 2),
        (BadRequest("x", hint=""), "other", 2),
        (TimeoutError("x"), "timeout", 1),
        (OSError("x"), "network", 2),
        (ValueError("x"), "stream", 2),
        (ZeroDivisionError("x"), "other", 2),
    ],
)
def test_a_failure_is_of_one_kind_and_one_that_may_pass_is_tried_again(
    error: Exception, kind: str, tries: int
) -> None:
    model = Model(error)
    assert ask(model, None, request(), 7.0) == Failure(kind, "x")  # type: ignore[arg-type]
    assert len(model.asked) == tries
    other = Model()
    assert ask(Model(error), other, request(), 7.0) == BODY and len(other.asked) == 1
    assert ask(Model(BODY), Model(error), request(), 7.0) == BODY


def test_an_error_without_words_is_told_by_its_name_and_a_secret_is_not() -> None:
    assert ask(Model(TimeoutError()), None, request(), 1) == Failure("timeout", "TimeoutError")
    key = "sk-" + "a1B2" * 8
    found = ask(Model(TimeoutError(f"{key} " + "y" * 400)), None, request(), 1)
    assert isinstance(found, Failure) and key not in found.message and len(found.message) <= 303


@pytest.mark.parametrize(
    ("budget", "window", "limit"),
    [(1_000, 100_000, 6_096), (1_000, 9_000, 3_000), (10, 300, 256), (10, 771, 257)],
)
def test_an_answer_has_room_to_think_within_a_third_of_the_window(
    budget: int, window: int, limit: int
) -> None:
    model = Model()
    ask(model, None, request(budget_tokens=budget, window_tokens=window), 7.0)
    assert model.limits == [(limit, 7.0)]


@pytest.mark.parametrize(
    ("sample", "answer", "tries"),
    [
        ("Почини цену", BODY, 2),
        ("Почини цену", "## 2. Goal\nЦена [#1].\n## 4. Completed actions\nЦена.", 1),
        ("fix the цен", BODY, 1),
        ("цен", BODY, 1),
        ("цена", BODY, 2),
        ("naïve façade", BODY, 1),
    ],
)
def test_a_summary_in_another_script_than_the_persons_is_asked_for_once_more(
    sample: str, answer: str, tries: int
) -> None:
    model = Model(answer)
    assert ask(model, None, request(sample=sample), 7.0) == answer
    assert len(model.asked) == tries


@pytest.mark.parametrize(
    ("answer", "is_usable"),
    [
        ("## 2. Goal\nShip [#1].", True),
        ("## 2. Goal\nShip.", False),
        ("## 2. Goal\nShip.\n## 4. Completed actions\nDone.", True),
        ("## 2. Goal\nShip.\n## 99. Other\nDone.", False),
        ("## 2. Goal\nShip.\n## 4. Completed actions\n", False),
        ("## 2. Goal\nShip [#1].\n## 4. Completed actions\nDone [#", False),
        ("## 2. Goal\nShip [#1].\n## 4. Completed actions\n```\nDone", False),
        ("## 2. Goal\nShip [#1-4].\n## 4. Completed actions\n```\nDone\n```", True),
        ("I will look at it next [#1].", False),
    ],
)
def test_an_answer_has_the_parts_that_were_asked_for(answer: str, is_usable: bool) -> None:
    found = ask(Model(answer), None, request(), 7.0)
    assert (found == answer) is is_usable
    assert isinstance(found, str) or found.kind == "parts"


def test_the_waits_grow_to_the_last_one() -> None:
    assert [rest_s("timeout", before) for before in range(5)] == [60, 300, 900, 900, 900]
    kinds = ("no_provider", "auth", "quota", "network", "stream", "empty", "parts", "other")
    assert [rest_s(kind, 3) for kind in kinds] == [600, 600, 600, 60, 30, 60, 60, 60]


def test_rows_are_written_with_their_numbers_calls_and_outcomes() -> None:
    call = {"id": "c", "function": {"name": "terminal", "arguments": '{"command": "make"}'}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    rows = [
        {"role": "user", "content": [{"type": "text", "text": "look </record>"}, image], "_seq": 1},
        {"role": "assistant", "content": "", "tool_calls": [call], "_seq": 2},
        {"role": "tool", "tool_call_id": "c", "content": "bad\n[exit 2]", "_seq": 3},
        {"role": "tool", "tool_call_id": "x", "name": "other", "content": "fine"},
    ]
    assert record(rows, 1_000).splitlines() == [
        "[#1 user] look < /record> [1 images]",
        "[#2 assistant] ",
        '  calls terminal {"command": "make"}',
        "[#3 result of terminal, exit 2] bad",
        "[exit 2]",
        "[result of other] fine",
    ]


def test_a_record_cuts_texts_and_arguments_to_their_size() -> None:
    for size, is_cut in ((5_500, False), (5_501, True)):
        text = "x" * size
        assert record([said("user", text, 1)], 10**6) == f"[#1 user] {clip(text, 5_500)}"
        assert ("cut" in record([said("user", text, 1)], 10**6)) is is_cut
    for size in (1_500, 1_501):
        arguments = "y" * size
        call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
        row_ = {"role": "assistant", "content": "", "tool_calls": [call]}
        assert record([row_], 10**6) == f"[assistant] \n  calls f {clip(arguments, 1_500)}"
    # Where that is too much in all, each is cut to half of it, and so on.
    rows = [said("user", "x" * 9_000, at) for at in range(1, 11)]
    sizes = [max(map(len, record(rows, room).splitlines())) for room in (20_000, 10_000, 5_000, 2_500)]
    assert sizes == [3_300, 1_650, 825, 413], "the end of each, which is three fifths"


def test_each_end_of_a_record_has_half_of_the_room() -> None:
    rows = [said("user", f"step {at:02}", at) for at in range(10, 30)]
    size = text_tokens("[#10 user] step 10") + 1
    for room, kept in ((6 * size, 3), (6 * size - 2, 2), (6 * size + 1, 3), (99 * size, 20)):
        lines = record(rows, room).splitlines()
        if kept == 20:
            assert len(lines) == 20
            continue
        first, last = (f"[#{at} user] step {at}" for at in (10 + kept - 1, 30 - kept))
        assert lines[kept - 1 : kept + 2] == [first, f"[{20 - 2 * kept} messages left out here]", last]
        assert len(lines) == 2 * kept + 1


def test_only_thoughts_that_are_sent_back_count() -> None:
    replay = VendorReplay(format="anthropic_messages", blocks_json="[]")
    plain = Message("assistant", "x" * 40, reasoning="y" * 400)
    assert message_tokens(plain) == message_tokens(Message("assistant", "x" * 40)) == ROW_TOKENS + 10
    sent = Message("assistant", "x" * 40, reasoning="y" * 400, replay=replay)
    assert message_tokens(sent) == ROW_TOKENS + 110
    assert message_tokens(Message("assistant", "x" * 40, replay=replay)) == ROW_TOKENS + 10
    called = Message("assistant", "", (ToolCall("1", "name", "x" * 20),))
    assert message_tokens(called) == 2 * ROW_TOKENS + 1 + 5
    image = Message("user", (TextPart("x" * 8), ImagePart("image/png", "AA")))
    assert message_tokens(image) == ROW_TOKENS + 2 + IMAGE_TOKENS


# --- the summary's parts -----------------------------------------------------------------------------


def test_a_short_request_goes_on_with_the_one_that_governs_it() -> None:
    long, short = "Rename the module to prices in all files.", "go on"
    rows = [said("user", long, 1), said("assistant", "ok", 2), said("user", short, 3)]
    assert summary.latest_ask(rows, None) == f'[#3] "go on"\nIt goes on with: [#1] "{long}"'
    answered = [*rows, said("assistant", "done", 4)]
    assert summary.latest_ask(answered, None) == (
        f'[#3] "go on"\nIt was answered; nothing is open from it.\nIt goes on with: [#1] "{long}"'
    )
    previous = Summary(ask='[#7] "Ship it."\nIt was answered; nothing is open from it.')
    assert summary.latest_ask(rows, previous) == '[#3] "go on"\nIt goes on with: [#7] "Ship it."'
    older = Summary(ask='[#2] "on"\nIt goes on with: [#1] "Ship it all."')
    assert summary.latest_ask(rows[2:], older) == '[#3] "go on"\nIt goes on with: [#1] "Ship it all."'
    assert summary.latest_ask([], previous) == previous.ask and summary.latest_ask([], None) == ""
    exact = "x" * 40
    assert summary.latest_ask([said("user", long, 1), said("user", exact)], None) == f'"{exact}"'
    assert (
        summary.latest_ask([said("user", "x" * 41)], None, 40) == f'"{exact}..." (goes on for 1 characters)'
    )
    assert summary.latest_ask([said("user", exact)], None, 40) == f'"{exact}"'


def listed(text: str) -> ChatRow:
    return {"role": "tool", "tool_call_id": "t", "tool_name": "todo", "content": text}


def test_the_list_of_tasks_is_carried_where_nothing_that_stays_shows_it() -> None:
    old, new = "[x] one\n[ ] two", "[x] one\n[x] two"
    before = Summary(todo="[ ] old")
    assert summary.open_list([listed(old), listed(new)], [], None, 99) == new
    assert summary.open_list([listed(old)], [], None, 5) == old[:5]
    assert summary.open_list([listed(old)], [listed(new)], before, 99) == ""
    assert summary.open_list([listed("The list is empty.")], [], before, 99) == ""
    assert summary.open_list([listed("no list")], [], before, 99) == "[ ] old"
    assert summary.open_list([], [], None, 99) == ""


def test_the_line_of_a_part_says_which_messages_when_and_what() -> None:
    rows = [said("assistant", "x", 3), said("user", "Ship  it\nnow.", 4)]
    assert summary.part_line(rows, "2026-11-21") == "- #3-4 (until 2026-11-21): Ship it now."
    assert summary.part_line([said("assistant", "x")], "D") == "- earlier (until D): work on the request"


def test_sections_are_cut_before_each_heading() -> None:
    assert summary.sections("a\n## 2. B\nc\n## 3. D") == ["a\n", "## 2. B\nc\n", "## 3. D"]
    assert summary.sections("") == [""] and summary.sections("## x") == ["## x"]


# --- what an engine is asked before a request --------------------------------------------------------


_DEFERS = {"should_defer_preflight_to_real_usage": True}


class Hooks:
    """An engine of hooks alone: each says what it was made with."""

    def __init__(self, **answers: Any) -> None:
        for name, answer in answers.items():
            setattr(self, name, lambda given, answer=answer: answer)


@pytest.mark.parametrize(
    ("hooks", "asked", "answer"),
    [
        ({"should_compress_preflight": True}, {"first": True, "may": False}, ("preflight", "")),
        ({"should_compress_preflight": True, "should_compress": False}, {}, (None, "")),
        ({"should_compress": True}, {"may": False}, (None, "")),
        ({"should_compress": True}, {}, ("threshold", "")),
        ({"pending_compression_operation": "p" * 50}, {}, ("p" * 40, "")),
        ({"pending_compression_operation": "", "should_compress": True}, {}, ("threshold", "")),
        (
            {"should_defer_preflight_to_real_usage": True, "should_compress": True},
            {"is_rough": True},
            (None, ""),
        ),
        ({"should_defer_preflight_to_real_usage": True, "should_compress": True}, {}, ("threshold", "")),
        (
            {"should_compress": False, "should_compress_info": (False, " rests \n now")},
            {},
            (None, "rests now"),
        ),
        ({"should_compress": False, "should_compress_info": (True, "x")}, {}, (None, "")),
        ({"should_compress": False, "should_compress_info": (False, 3)}, {}, (None, "")),
        ({"should_compress": False, "should_compress_info": (False, "x", 1)}, {}, (None, "")),
        ({"should_compress": False, "should_compress_info": "no"}, {}, (None, "")),
    ],
)
def test_an_engine_is_asked_in_order(hooks: Any, asked: Any, answer: tuple[str | None, str]) -> None:
    given = {"rows": [], "tokens": 9, "first": False, "may": True, "is_rough": False, **asked}
    phase, blocked = answer
    expected = CompactionAnswer(wants=True, phase=phase) if phase else CompactionAnswer(blocked=blocked)
    assert wish(Hooks(**hooks), CompactionQuestion(**given)) == expected  # type: ignore[arg-type]
