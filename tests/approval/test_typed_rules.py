"""Rules for commands hold for text that is typed into a running process, in pieces too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.approval.test_gate import Bench, Someone


def test_rules_for_commands_hold_for_what_is_typed_into_a_process(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"deny": ["terminal(zap *)"], "ask": ["terminal(git push *)"]}
    bench = Bench(tmp_path, Someone("once"), mode="auto", **rules)
    for text in ("zap x", "cd /tmp && zap x", "z''ap x\n", "z$1ap x"):
        assert bench.decide("process", action="write", id="p1", text=text).verdict == "deny", text
    assert bench.decide("process", action="write", id="p1", text="git push").decided_by == "person"
    for text in ("y", "x = 1", "SELECT 1;"):
        assert bench.decide("process", action="write", id="p1", text=text).verdict == "allow", text


def test_a_piece_that_asks_by_itself_does_not_answer_for_the_line_that_it_ends(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("once"), mode="auto", ask=["terminal(git push *)"])
    pieces = {"gi": "allow", "t push R\n": "deny"}
    for text, verdict in pieces.items():
        done = bench.decide("process", action="write", id="p1", text=text, newline=False)
        assert (done.verdict, bench.person.asked) == (verdict, [])


@pytest.mark.parametrize(
    ("first", "second"), [("za", "p w1\n"), ("rm -", "rf x\n"), ("cat .e", "nv > out.txt\n"), ("ls; z", "ap")]
)
def test_a_line_that_is_typed_in_pieces_is_judged_whole(tmp_path: Path, first: str, second: str) -> None:
    rules: dict[str, Any] = {"deny": ["terminal(zap *)"], "ask": ["terminal(git push *)"]}
    bench = Bench(tmp_path, Someone("once"), mode="auto", **rules)

    def type_text(text: str, process_id: str = "p1", *, newline: bool = False) -> str:
        return bench.decide("process", action="write", id=process_id, text=text, newline=newline).verdict

    assert type_text(first) == "allow"
    assert type_text(second) == "deny" and bench.person.asked == []
    assert type_text(second, "p2") == "allow", "another process has its own line"
    assert [type_text(char) for char in first[1:]] == ["allow"] * len(first[1:])
    assert type_text("\n") == "allow" and type_text(second) == "allow"
    assert type_text(first, newline=True) == "allow" and type_text(second) == "allow"
    assert bench.sh("bash", stdin=first, background=True).verdict == "allow"
    assert bench.sh("cat", stdin="a", background=True).verdict == "allow"
    assert type_text(second, "p3") == "deny"


@pytest.mark.parametrize(
    ("first", "second"),
    [("drop", "table users;"), ("delete from", "users;"), ("begin; update t", "set a = 1;")],
)
def test_a_statement_that_is_typed_in_several_lines_is_judged_whole(
    tmp_path: Path, first: str, second: str
) -> None:
    bench = Bench(tmp_path, Someone("once"), mode="auto")

    def type_text(text: str, process_id: str = "p1") -> str:
        return bench.decide("process", action="write", id=process_id, text=text).verdict

    assert [type_text(text) for text in ("select 1;", first, second)] == ["allow", "allow", "deny"]
    assert type_text(second, "p2") == "allow", "another process has its own statement"
    ended = ("drop", "x;", second)
    assert [type_text(text, "p3") for text in ended] == ["allow"] * 3, "the statement ended"
    assert bench.sh("cat", stdin=f"{first}\n", background=True).verdict == "allow"
    assert type_text(second, "p4") == "deny"
