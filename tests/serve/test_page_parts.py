"""The parts that a session's page is made of: an answer's blocks, text that grows, spans of time, costs."""

from __future__ import annotations

import random

from whet.contract.events import (
    Notice,
    ReasoningDelta,
    Retry,
    StepFinished,
    StreamRestarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnd,
)
from whet.contract.messages import Usage
from whet.log import mask
from whet.serve.board.live_turn import LiveText, LiveTurns
from whet.serve.board.prose import TextRun, split_blocks
from whet.serve.board.timing import WIDTH, waterfall, window_chart
from whet.store.spans import TurnSpan, TurnSpans, WindowMark
from whet.visible import visible

MARKDOWN = """# A **head**
Some `code` and **bold**
on two lines
- one
  goes on
  1. deep
> said
> so

```py
<b>not markup</b>
```
| a | b |
|---|:-:|
| 1 | `2` |

---
[a link](javascript:alert(1)) <i>x</i>"""


def test_markdown_becomes_blocks_and_no_text_is_lost() -> None:
    blocks = split_blocks(MARKDOWN)
    kinds = [block.kind for block in blocks]
    assert kinds == ["heading", "text", "item", "item", "quote", "code", "table", "rule", "text"]
    assert blocks[1].runs == (
        TextRun("Some "),
        TextRun("code", "code"),
        TextRun(" and "),
        TextRun("bold", "strong"),
        TextRun("\non two lines"),
    )
    assert [(block.mark, block.level) for block in blocks[2:4]] == [("•", 0), ("1.", 1)]
    assert blocks[5].text == "<b>not markup</b>" and blocks[5].mark == "py"
    assert blocks[6].rows[1][1] == (TextRun("2", "code"),)
    assert blocks[8].runs == (TextRun("[a link](javascript:alert(1)) <i>x</i>"),)


def test_any_text_is_cut_into_blocks_in_time_and_keeps_its_letters() -> None:
    rng = random.Random(5)
    for _ in range(300):
        text = "".join(rng.choice("`*#->|\n 1.~ab:_") for _ in range(rng.randrange(120)))
        made = "".join(
            block.text
            + "".join(run.text for run in block.runs)
            + "".join(run.text for row in block.rows for cell in row for run in cell)
            for block in split_blocks(text)
        )
        letters = [c for c in text if c in "ab"]
        assert [c for c in made if c in "ab"] == letters or "```" in text or "~~~" in text
    for hostile in ("`" * 30_000, "**" * 20_000, "- " * 20_000, "|" * 50_000, "> " * 20_000):
        assert split_blocks(hostile)


def test_text_that_grows_ends_as_the_whole_and_shows_no_part_of_a_key() -> None:
    secret = "ghp_" + "a1" * 14
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\ndef\n-----END RSA PRIVATE KEY-----"
    text = f"one\u200b line\n{secret} then Bearer {'x' * 30}\n{pem}\nafter 字 \U0001f600\nend "
    for seed in range(40):
        rng, live, got, known = random.Random(seed), LiveText(), "", 0
        left = text
        while left:
            cut = rng.randrange(1, 9)
            live.add(left[:cut])
            left = left[cut:]
            whole, after = live.since(known)
            got, known = got + whole, known + len(whole)
            assert known == live.size
            for key in (secret[:12], "MIIab", "x" * 12):
                assert key not in got + after
        assert got + after == visible(text, masking=mask)


def test_what_runs_is_forgotten_at_its_end_and_news_after_it_begin_nothing() -> None:
    live = LiveTurns()
    for event in (
        TextDelta("a"),
        ToolStarted("c1", "terminal", '{"command": "make\\u202e"}'),
        ToolProgress("c1", "x" * 5_000),
    ):
        live.handle_event("s", event)
    turn = live.turn_of("s")
    assert turn is not None and turn.calls["c1"].about == "make<U+202E>"
    assert len(turn.calls["c1"].tail) < 2_000
    version = turn.version
    live.handle_event("s", StepFinished(1, Usage()))
    assert turn.version > version and turn.step == 1 and turn.text.since(0) == ("", "")
    end = TurnEnd("s", "", "failed", "", 0, Usage(), 0.0, "it is open in a terminal", "close it")
    live.handle_event("s", end)
    assert live.turn_of("s") is None and live.problem("s") == "it is open in a terminal (close it)"
    live.handle_event("s", TextDelta("b"))
    live.handle_event("s", TurnEnd("s", "t", "answered", "b", 1, Usage(), 0.0))
    assert live.turn_of("s") is None and live.problem("s") == ""


def test_what_a_running_turn_says_is_cut_for_its_page() -> None:
    live = LiveTurns()
    for event in (
        ToolStarted("c1", "n" * 61, '{"command": "a\\n' + "b" * 200 + '"}'),
        ToolStarted("c2", "t", "no json"),
        ToolStarted("c3", "t", ""),
        ToolProgress("c2", "x" * 1_000),
        ToolProgress("c2", "y" * 300),
        ToolProgress("gone", "z"),
        Notice("w" * 301),
    ):
        live.handle_event("s", event)
    turn = live.turn_of("s")
    assert turn is not None
    assert turn.calls["c1"].name == visible("n" * 61, 60) and turn.calls["c1"].about == "a " + "b" * 158
    assert [turn.calls[name].about for name in ("c2", "c3")] == ["", ""]
    assert turn.calls["c2"].tail == "x" * 900 + "y" * 300 and turn.note == visible("w" * 301, 300)
    version = turn.version
    for words in ("hm", "so"):
        live.handle_event("s", ReasoningDelta(words))
        assert (turn.version, turn.is_thinking) == (version + 1, True)
    live.handle_event("s", Retry(1, 1.6, "v" * 301))
    assert turn.note == visible("v" * 301 + "; tried again in 2 s", 300)
    live.handle_event("s", TextDelta("a"))
    assert (turn.note, turn.is_thinking, turn.version) == ("", False, version + 3)
    live.handle_event("s", TextDelta("b"))
    live.handle_event("s", ToolFinished("c2", "t", 0.1))
    assert turn.version == version + 4 and [*turn.calls] == ["c1", "c3"]
    live.handle_event("s", StreamRestarted("it broke"))
    assert (turn.step, turn.text.since(0)) == (1, ("", ""))
    for number in range(501):
        live.handle_event(f"s{number}", TurnEnd("s", "", "failed", "", 0, Usage(), 0.0, "e" * 501))
    assert live.problem("s0") == "" and live.problem("s1") == visible("e" * 501, 500)
    live.handle_event("r", TurnEnd("r", "t1", "failed", "", 0, Usage(), 0.0, "it began"))
    live.handle_event("q", TurnEnd("q", "", "refused", "", 0, Usage(), 0.0, "no"))
    assert live.problem("r") == "" and live.problem("q") == "no"


def test_a_turn_is_laid_out_within_its_width_and_overlaps_count_once() -> None:
    usage = Usage(prompt_tokens=100, cache_read_tokens=75)
    spans = (
        TurnSpan("model", "model", 1_000, 3_000, 2, usage),
        TurnSpan("wait", "terminal", 3_000, 9_000, 3),
        TurnSpan("tool", "terminal", 9_000, 10_000, 3, error_kind="failed"),
        TurnSpan("tool", "read_file", 9_500, 10_999, 4),
        TurnSpan("model", "model", 11_000, 11_000, 5),
    )
    turn = TurnSpans(1, 1_000, 11_000, "answered", False, spans)
    made = waterfall(turn)
    assert made.took == "10.0 s" and made.rows[0].cached == 75 and made.rows[0].width == WIDTH / 5
    assert all(row.x >= 0 and row.x + row.width <= WIDTH and row.width > 0 for row in made.rows)
    assert turn.spent_s("tool") == 1.999 and dict(made.sums)["waiting for you"] == "6.0 s"
    chart = window_chart([WindowMark(2, 900, 100), WindowMark(4, 1_000, after=200)], 4_000)
    assert chart is not None and chart.title == "Context window, of 4k tokens"
    assert [(bar.series, bar.height) for bar in chart.bars] == [
        ("cached", 16),
        ("fresh", 128),
        ("output", 32),
    ]
    assert [spot.title for spot in chart.spots] == [
        "message 2: 900 tokens, 100 cached",
        "message 4: compacted from 1k to 200 tokens",
    ]
    plain = window_chart([WindowMark(2, 900, 100)], 0)
    assert plain is not None and plain.title == "Context window" and window_chart([], 0) is None


def test_the_rows_of_a_turn_say_where_they_begin_and_how_long_they_took() -> None:
    spans = (
        TurnSpan("model", "model", 1_000, 2_000, 2),
        TurnSpan("tool", "terminal", 2_500, 2_501, 3),
        TurnSpan("tool", "terminal", 3_999, 4_000, 4),
        TurnSpan("tool", "early", 900, 1_000, 5),
    )
    made = waterfall(TurnSpans(1, 1_000, 4_000, "answered", False, spans))
    assert [(row.x, row.width) for row in made.rows] == [(0, 333.33), (500, 4), (996, 4), (0, 33.33)]
    assert [row.begins for row in made.rows] == ["0 ms", "1.5 s", "3.0 s", "0 ms"]
    assert [row.took for row in made.rows] == ["1.0 s", "1 ms", "1 ms", "100 ms"]
    assert (made.took, made.left_out, [row.cached for row in made.rows]) == ("3.0 s", 0, [0] * 4)
    many = waterfall(TurnSpans(1, 1_000, 4_000, "answered", False, spans[:1] * 123))
    assert (len(many.rows), many.left_out) == (120, 3)
    at_once = waterfall(
        TurnSpans(1, 1_000, 1_000, "answered", False, (TurnSpan("model", "m", 1_000, 1_000, 2),))
    )
    assert (at_once.took, at_once.rows[0].x, at_once.rows[0].width) == ("1 ms", 0, 4)
