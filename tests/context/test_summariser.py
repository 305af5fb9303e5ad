"""What a model is asked for a summary, what an answer is taken for, and what a failure means."""

from __future__ import annotations

from bisect import bisect_left
from datetime import date
from typing import Any

import pytest

from tests.context.talk import BODY, Model
from tests.support import each
from whet.context.rows import text_tokens
from whet.context.summariser import (
    Failure,
    SummaryRequest,
    ask_for_summary,
    clean_answer,
    rest_s,
    write_prompt,
    write_record,
)
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
from whet.contract.tools import clip


def said(role: str, text: str, seq: int = 0) -> ChatRow:
    return {"role": role, "content": text, **({"_seq": seq} if seq else {})}


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
    assert clean_answer(answer) == text


def test_what_an_empty_answer_had_is_said() -> None:
    assert clean_answer("") == Failure("empty", "the model answered with nothing instead of a summary")
    assert clean_answer("<think>x") == Failure(
        "empty", "the model answered with only thoughts instead of a summary"
    )
    assert clean_answer(" ?? ") == Failure(
        "empty", "the model answered with only thoughts instead of a summary"
    )
    for page in ("<html>502</html>", "  <!DOCTYPE html>"):
        failure = clean_answer(page)
        assert isinstance(failure, Failure) and failure.kind == "stream"


def request(**given: Any) -> SummaryRequest:
    fields: dict[str, Any] = {"rows": [], "previous": "", "focus": "", "recent": "", "sample": ""}
    fields |= {"today": date(2026, 11, 21), "budget_tokens": 1_000, "window_tokens": 100_000}
    return SummaryRequest(**(fields | given))


@each(
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
def test_a_failure_has_a_kind_and_what_may_pass_is_retried(error: Exception, kind: str, tries: int) -> None:
    model = Model(error)
    assert ask_for_summary(model, None, request(), 7.0) == Failure(kind, "x")  # type: ignore[arg-type]
    assert len(model.asked) == tries
    other = Model()
    assert ask_for_summary(Model(error), other, request(), 7.0) == BODY and len(other.asked) == 1
    assert ask_for_summary(Model(BODY), Model(error), request(), 7.0) == BODY


def test_an_error_without_words_is_told_by_its_name_and_a_secret_is_not() -> None:
    assert ask_for_summary(Model(TimeoutError()), None, request(), 1) == Failure("timeout", "TimeoutError")
    key = "sk-" + "a1B2" * 8
    summary = ask_for_summary(Model(TimeoutError(f"{key} " + "y" * 400)), None, request(), 1)
    assert isinstance(summary, Failure) and key not in summary.message and len(summary.message) <= 303


@pytest.mark.parametrize(
    ("budget", "window", "limit"),
    [(1_000, 100_000, 6_096), (1_000, 9_000, 3_000), (10, 300, 256), (10, 771, 257)],
)
def test_an_answer_may_think_within_a_third_of_the_window(budget: int, window: int, limit: int) -> None:
    model = Model()
    ask_for_summary(model, None, request(budget_tokens=budget, window_tokens=window), 7.0)
    assert model.limits == [(limit, 7.0)]


def test_a_summarys_length_is_asked_for_in_words_two_for_three_tokens() -> None:
    for budget, words in ((900, 600), (93, 62), (60, 60)):
        assert f"At most {words} words." in write_prompt(request(budget_tokens=budget), 500)


@pytest.mark.parametrize("answer", [500, 1_000])
def test_a_record_is_whole_where_it_fits_the_window_beside_the_answer(answer: int) -> None:
    rows = [said("user", "x" * 3_600, 1)]

    def asked(window: int) -> str:
        return write_prompt(
            request(rows=rows, window_tokens=window, previous="## 2. Goal", focus="tests"), answer
        )

    least = bisect_left(range(4_000), True, key=lambda window: "characters cut" not in asked(window))
    assert 64 <= least - answer - text_tokens(asked(least)) <= 100


def test_a_record_has_a_quarter_of_a_window_that_is_too_small_for_the_answer() -> None:
    for size, is_cut in ((1_990, False), (1_991, True)):
        asked = write_prompt(request(rows=[said("user", "x" * size, 1)], window_tokens=2_000), 2_000)
        assert ("characters cut" in asked) is is_cut


@pytest.mark.parametrize(
    ("sample", "answer", "tries"),
    [
        ("Почини цену", BODY, 2),
        ("Почини цену", "## 2. Goal\nЦена [#1].\n## 4. Completed actions\nЦена.", 1),
        ("fix the цен", BODY, 1),
        ("цен", BODY, 1),
        ("цена", BODY, 2),
        ("naïve façade", BODY, 1),
        ("fixцену", BODY, 2),
        ("abцв", BODY, 2),
    ],
)
def test_a_summary_in_a_script_of_its_own_is_asked_for_again(sample: str, answer: str, tries: int) -> None:
    model = Model(answer)
    assert ask_for_summary(model, None, request(sample=sample), 7.0) == answer
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
        ("# Plan\n## 1. Read\nRead the files.\n## 2. Write\nWrite the files.", False),
        ("lorem ipsum " * 200, False),
    ],
)
def test_an_answer_has_the_parts_that_were_asked_for(answer: str, is_usable: bool) -> None:
    summary = ask_for_summary(Model(answer), None, request(), 7.0)
    assert (summary == answer) is is_usable
    assert isinstance(summary, str) or summary.kind == "parts"


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
    assert write_record(rows, 1_000).splitlines() == [
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
        assert write_record([said("user", text, 1)], 10**6) == f"[#1 user] {clip(text, 5_500)}"
        assert ("cut" in write_record([said("user", text, 1)], 10**6)) is is_cut
    for size in (1_500, 1_501):
        arguments = "y" * size
        call = {"id": "c", "function": {"name": "f", "arguments": arguments}}
        row_ = {"role": "assistant", "content": "", "tool_calls": [call]}
        assert write_record([row_], 10**6) == f"[assistant] \n  calls f {clip(arguments, 1_500)}"
    # Where that is too much in all, each is cut to half of it, and so on.
    rows = [said("user", "x" * 9_000, at) for at in range(1, 11)]
    sizes = [max(map(len, write_record(rows, room).splitlines())) for room in (20_000, 10_000, 5_000, 2_500)]
    assert sizes == [3_300, 1_650, 825, 413], "the end of each, which is three fifths"


def test_each_end_of_a_record_has_half_of_the_room() -> None:
    rows = [said("user", f"step {at:02}", at) for at in range(10, 30)]
    size = text_tokens("[#10 user] step 10") + 1
    for room, kept in ((6 * size, 3), (6 * size - 2, 2), (6 * size + 1, 3), (99 * size, 20)):
        lines = write_record(rows, room).splitlines()
        if kept == 20:
            assert len(lines) == 20
            continue
        first, last = (f"[#{at} user] step {at}" for at in (10 + kept - 1, 30 - kept))
        assert lines[kept - 1 : kept + 2] == [first, f"[{20 - 2 * kept} messages left out here]", last]
        assert len(lines) == 2 * kept + 1
