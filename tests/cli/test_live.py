"""What a turn leaves in the scroll-back is written once; what runs stands in the live area."""

from __future__ import annotations

from whet.contract.events import (
    ApprovalAsked,
    ApprovalDecided,
    Compaction,
    ConfirmationAsked,
    ReasoningDelta,
    Retry,
    Steered,
    StepFinished,
    StreamRestarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnd,
)
from whet.contract.messages import Usage
from whet.terminal.live import Surface, TerminalTurnView
from whet.terminal.render import Painter
from whet.terminal.signs import Marks
from whet.terminal.wording import count_columns
from whet.terminal.wrapping import wrap_lines


class Paper:
    """A terminal of which only the text is kept."""

    def __init__(self, width: int = 60, *, reasoning: bool = False) -> None:
        self.text = ""
        self.now_s = 0.0
        surface = Surface(self.write, lambda: None, lambda: width)
        self.view = TerminalTurnView(
            surface, Painter({"TERM": "dumb"}), Marks(), show_reasoning=reasoning, now_s=lambda: self.now_s
        )
        self.width = width
        self.view.begin()

    def write(self, text: str) -> None:
        self.text += text

    def live(self) -> list[str]:
        return ["".join(text for _, text in row) for row in self.view.lines(self.width, 10)]


def test_a_text_that_the_chat_says_drives_no_terminal() -> None:
    paper = Paper()
    paper.view.say("title \x1b[2J\x1b]0;PWN\x07\x1b]52;c;cHdu\x07end")
    assert paper.text.strip() == "title end"


def test_finished_blocks_are_written_once_and_the_rest_is_live() -> None:
    paper = Paper()
    for delta in ("First ", "para.\n", "\nSecond ", "one"):
        paper.view.emit(TextDelta(delta))
    assert paper.text == "\nFirst para.\n"
    assert paper.live()[0] == "Second one"
    paper.view.emit(StepFinished(1, Usage()))
    assert paper.text == "\nFirst para.\n\nSecond one\n"
    assert paper.live() == ["⠋ thinking 0 s · Esc stops"]


def test_a_tool_runs_in_the_live_area_and_ends_as_one_line() -> None:
    paper = Paper(40)
    paper.view.emit(ToolStarted("1", "terminal", '{"command": "make test"}'))
    paper.view.emit(ToolProgress("1", "one\ntwo\x1b[2J\nthree\nfour\n"))
    paper.now_s = 3.0
    assert paper.live() == [
        "○ terminal  make test  3 s",
        "  │ two",
        "  │ three",
        "  │ four",
        "⠼ running 3 s · Esc stops",
    ]
    paper.view.emit(ToolFinished("1", "terminal", 3.0, "exit", 2, "x\nerror: boom\ny"))
    assert paper.text == "\n✗ terminal  make test  exit 2  3.0 s\n  error: boom\n"
    paper.view.emit(ToolFinished("2", "todo", 0.1))
    assert paper.text.endswith("boom\n● todo  0.1 s\n")


def test_a_denied_call_keeps_its_subject() -> None:
    paper = Paper()
    paper.view.emit(ApprovalAsked("1", "write_file", "a.txt", ("writes",)))
    assert paper.live() == ["waiting for your answer"]
    paper.view.emit(ApprovalDecided("1", "deny", "person", "The person said no."))
    paper.view.emit(ToolFinished("1", "write_file", 0.0, "denied", None, "The person said no."))
    assert paper.text == "\n✗ write_file  a.txt  denied  0.0 s\n  The person said no.\n"


def test_reasoning_is_shown_only_on_wish() -> None:
    for wish in (False, True):
        paper = Paper(reasoning=wish)
        paper.view.emit(ReasoningDelta("let me\nsee"))
        paper.view.emit(TextDelta("Yes.\n\n"))
        assert ("let me\nsee\n" in paper.text) is wish
        assert paper.text.endswith("\nYes.\n")


def test_asides_come_after_the_text_before_them() -> None:
    paper = Paper(50)
    paper.view.emit(TextDelta("half a sen"))
    paper.view.emit(StreamRestarted("connection lost"))
    paper.view.emit(Retry(1, 0.5, "503"))
    paper.view.emit(Compaction("compressor", 40, 12, 120_000, 30_000))
    lines = paper.text.split("\n")
    assert lines[1] == "half a sen"
    assert "stream broke (connection lost)" in lines[2]
    assert all(count_columns(line) <= 50 for line in lines)
    assert "120k to 30.0k tokens" in " ".join(lines)


def test_queued_text_waits_until_it_was_read() -> None:
    paper = Paper()
    paper.view.queued.append("also this")
    assert paper.live()[-1] == "↳ queued: also this"
    paper.view.emit(Steered("also this"))
    assert len(paper.live()) == 1
    assert paper.text == "\n› also this\n"


def test_the_end_says_why_and_what_it_cost() -> None:
    paper = Paper()
    paper.view.emit(TextDelta("Answer"))
    paper.view.emit(TurnEnd("s", "t", "failed", "", 2, Usage(), 1.0, error="no key", hint="set one"))
    assert paper.text == "\nAnswer\n\nno key\nset one\n\n2 steps · 0 tokens · 1.0 s\n"
    assert paper.live() == []


def test_marks_fit_the_encoding() -> None:
    assert Marks.for_encoding("utf-8").ok == "●"
    assert Marks.for_encoding("ascii").prompt.isascii()
    assert Marks.for_encoding(None).spinner.isascii()
    assert Marks.for_encoding("no-such-encoding").failed == "x"


def test_wrapped_breaks_at_blanks_and_counts_wide_characters() -> None:
    assert wrap_lines("one two three", 8) == ["one two", "three"]
    assert wrap_lines("日本語日本語", 5) == ["日本", "語日", "本語"]
    assert wrap_lines("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert wrap_lines("a\n\nb", 4) == ["a", "", "b"]


def test_a_call_that_waits_for_a_human_says_where_and_counts_down() -> None:
    paper = Paper(40)
    page = "http://127.0.0.1:6080/r/Vbd1E7XCGdbA1y0tMJWvdq"
    paper.view.emit(TextDelta("I delete it."))
    paper.view.emit(ConfirmationAsked("1", "delete_data", "kubectl delete ns shop", "Vbd1", page, 300.0))
    assert paper.text == (
        "\nI delete it.\n\ndelete_data waits for a human's\ndecision, 5 m 00 s at most: kubectl\n"
        f"delete ns shop\n{page}\n"
    )
    paper.now_s = 61.0
    assert paper.live() == ["⠇ 3 m 59 s left · Ctrl-C withdraws"]
    paper.width = 60
    assert paper.live() == ["⠇ waiting for a human · 3 m 59 s left · Ctrl-C withdraws"]
    paper.view.emit(ApprovalDecided("1", "allow", "service", "approved by ada"))
    assert paper.text.endswith(f"{page}\napproved by ada\n")
    assert "waiting" not in paper.live()[0]


def test_without_a_page_the_command_that_decides_is_named() -> None:
    paper = Paper(80)
    paper.view.emit(ConfirmationAsked("1", "delete_data", "rm", "Vbd1", "", 30.0))
    assert paper.text.endswith("at most: rm\ndecide with: whet confirm approve Vbd1\n")
