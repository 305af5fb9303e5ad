"""`whet sessions` over real databases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.running import invoke
from tests.cli.stored import Said, store
from tests.support import FixedClock
from whet.contract.brought_text import wrap_in_tag
from whet.contract.errors import ConfigError, NotFound
from whet.terminal.wording import count_columns

LUNCH = Said("Where is the lunch list?", "It is in menu.txt.", "cat menu.txt", "soup\nbread\nfish")
BROKEN = Said("Run it", "It failed.", "make", "make: *** no rule", "exit")


def run(home: Path, *arguments: str, width: int = 80, **more: Any) -> Result:
    return invoke("sessions", *arguments, width=width, **more)


def as_json(home: Path, *arguments: str) -> Any:
    result = run(home, *arguments, "--json")
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def test_an_empty_home_says_how_to_begin_and_stays_empty(home: Path) -> None:
    assert "No sessions yet. Begin one: whet" in run(home, "list").output
    assert as_json(home, "list") == {"sessions": [], "forks": [], "total": 0}
    assert as_json(home, "search", "x") == {"query": "x", "hits": []}
    assert "No sessions yet" in run(home, "stats").output
    for command in ("show x", "delete x --yes", "rename x y", "private x", "export x"):
        error = run(home, *command.split()).exception
        assert isinstance(error, NotFound) and error.hint, command
    assert not home.exists()


@pytest.mark.parametrize(
    "arguments", [["show", "--full"], ["export", "--format", "md"], ["export", "--format", "html"]]
)
def test_a_paste_is_shown_without_its_tag(home: Path, clock: FixedClock, arguments: list[str]) -> None:
    pasted = wrap_in_tag("pasted", "one two\nthree")
    session = store(home, clock, "Log", Said(f"see {pasted} please", "Seen."))
    command, *options = arguments
    shown = run(home, command, session, *options).output
    assert "see one two three please" in " ".join(shown.split()) and "pasted" not in shown
    assert "<pasted-" in run(home, "export", session, "--format", "jsonl").output


def test_show_ends_each_turn_as_the_chat_does(home: Path, clock: FixedClock) -> None:
    session = store(home, clock, "Lunch", LUNCH, Said("and now?", "The same.", "tail -2 menu.txt", "b\nf"))
    shown = run(home, "show", session).output
    assert shown.count("2 steps · 2.0k tokens") == 2 and "soup" in shown
    assert "    | soup" not in shown and "    | soup" in run(home, "show", session, "--full").output


def test_a_fork_is_listed_below_the_session_that_it_goes_on_from(home: Path, clock: FixedClock) -> None:
    lunch = store(home, clock, "Lunch", LUNCH, LUNCH)
    store(home, clock, "Dinner", LUNCH)
    fork = as_json(home, "fork", lunch, "1")["session"]["id"]
    further = as_json(home, "fork", fork)["session"]["id"]
    shown = [line.rpartition("  ")[2] for line in run(home, "list").output.splitlines()]
    assert shown[1:] == ["Lunch", "└ Lunch (from turn 1)", "└── Lunch (from turn 1)", "Dinner"]
    assert as_json(home, "list")["forks"] == [
        {"session": fork, "origin": lunch, "turn": 1},
        {"session": further, "origin": fork, "turn": 1},
    ]


def test_the_list_has_the_latest_first_and_fits_the_terminal(home: Path, clock: FixedClock) -> None:
    store(home, clock, "Lunch and a title that is far too long for any terminal of eighty columns", LUNCH)
    store(home, clock, "日本語のタイトルはとても長いので切られます", LUNCH)
    hidden = store(home, clock, "\x1b[31mevil", LUNCH, private=True)
    for width in (40, 80):
        output = run(home, "list", width=width).output
        lines = output.splitlines()
        assert lines[1].startswith(hidden)
        assert "[private] evil" in lines[1]
        assert all(count_columns(line) <= width for line in lines), output
        assert "\x1b" not in output
        assert "Lunch" in lines[3]
    assert "last active" in run(home, "list").output
    assert [row["title"] for row in as_json(home, "list", "-n", "1")["sessions"]] == ["\x1b[31mevil"]
    assert as_json(home, "list", "-n", "1")["total"] == 3
    assert "1 of 3; more with --limit 5" in run(home, "list", "-n", "1").output


def test_the_list_can_be_narrowed(home: Path, clock: FixedClock) -> None:
    store(home, clock, "Lunch", LUNCH, workspace=str(Path.cwd()))
    store(home, clock, "Dinner", LUNCH, workspace="/elsewhere")
    assert [row["title"] for row in as_json(home, "list", "dinn")["sessions"]] == ["Dinner"]
    assert [row["title"] for row in as_json(home, "list", "--here")["sessions"]] == ["Lunch"]
    assert "No session fits" in run(home, "list", "breakfast").output


def test_show_has_what_was_said_and_a_line_per_call(home: Path, clock: FixedClock) -> None:
    session = store(home, clock, "Lunch", LUNCH, BROKEN)
    output = run(home, "show", session).output
    assert "Where is the lunch list?" in output
    assert "● terminal  cat menu.txt  0.5 s\n  │ soup\n" in output
    assert "✗ terminal  make  exit  0.5 s" in output
    assert output.index("Where is") < output.index("cat menu.txt") < output.index("It is in menu.txt.")
    assert "bread" in run(home, "show", "lunch", "--full").output
    facts = as_json(home, "show", session)
    assert facts["session"]["title"] == "Lunch"
    assert [row["role"] for row in facts["messages"]] == ["user", "assistant", "tool", "assistant"] * 2
    arguments = facts["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"command": "cat menu.txt"}


def test_escapes_in_a_transcript_do_not_reach_the_terminal(home: Path, clock: FixedClock) -> None:
    turn = Said("\x1b]0;title\x07hello\x1b[2J", "\x9b31mred", "ls", "\x1b[1;1Hboo")
    output = run(home, "show", store(home, clock, "x", turn), "--full").output
    assert "hello" in output and "boo" in output
    assert not any(char in output for char in "\x1b\x07\x9b")


def test_search_finds_words_and_leaves_private_sessions_out(home: Path, clock: FixedClock) -> None:
    lunch = store(home, clock, "Lunch", LUNCH)
    hidden = store(home, clock, "Secret", Said("the lunch nobody knows", "ok"), private=True)
    output = run(home, "search", "lunch", "list").output
    assert lunch in output and hidden not in output
    assert "Where is the «lunch» list?" in output
    hits = as_json(home, "search", "lunch", "--private")["hits"]
    assert {hit["session_id"] for hit in hits} == {lunch, hidden}
    hits = as_json(home, "search", "menu.txt", "--role", "assistant")["hits"]
    assert {hit["role"] for hit in hits} == {"assistant"}
    assert as_json(home, "search", "lunch", "--session", "Lunch")["hits"]
    assert as_json(home, "search", "lunch", "--since", "2027-01-01")["hits"] == []
    assert "Nothing found for" in run(home, "search", 'no" (such* OR -word').output


def test_rename_and_private(home: Path, clock: FixedClock) -> None:
    session = store(home, clock, "Lunch", LUNCH)
    assert "'Long dinner'" in run(home, "rename", session, "Long", " dinner").output
    assert as_json(home, "private", "long dinner")["session"]["private"] is True
    assert as_json(home, "search", "lunch")["hits"] == []
    assert as_json(home, "private", session, "--off")["session"]["private"] is False


def test_delete_asks_first_and_then_nothing_is_left(home: Path, clock: FixedClock) -> None:
    session = store(home, clock, "Lunch", LUNCH)
    store(home, clock, "Dinner", LUNCH)
    refused = run(home, "delete", session)
    assert isinstance(refused.exception, ConfigError)
    assert "--yes" in refused.exception.hint
    assert as_json(home, "list")["total"] == 2
    assert as_json(home, "delete", session, "--yes") == {"deleted": [session], "sessions": 1}
    assert "Deleted 1 session." in run(home, "delete", "dinner", "--yes").output
    assert as_json(home, "list") == {"sessions": [], "forks": [], "total": 0}
    assert isinstance(run(home, "delete", "dinner", "--yes").exception, NotFound)


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "code", "left"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0)])
def test_delete_at_a_terminal_does_what_the_person_says(
    home: Path, clock: FixedClock, typed: str, code: int, left: int
) -> None:
    session = store(home, clock, "Lunch", LUNCH)
    ours, theirs = os.openpty()
    os.write(ours, f"{typed}\n".encode())
    command = [sys.executable, "-m", "whet", "sessions", "delete", session]
    result = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert result.returncode == code, result.stderr
    assert "Lunch" in result.stderr and "Delete for good?" in result.stderr
    assert as_json(home, "list")["total"] == left


def test_stats_add_up(home: Path, clock: FixedClock) -> None:
    store(home, clock, "Lunch", LUNCH, BROKEN)
    store(home, clock, "Dinner", Said("a", "b"), private=True)
    facts = as_json(home, "stats")
    assert (facts["sessions"], facts["private"], facts["turns"]) == (2, 1, 3)
    assert (facts["tool_calls"], facts["failed_calls"]) == (2, 1)
    assert facts["usage"]["total_tokens"] == 5000
    output = run(home, "stats", width=40).output
    assert "2, 1 failed (50.0%)" in output
    assert all(len(line) <= 60 for line in output.splitlines())


def test_a_name_that_fits_several_lists_them(home: Path, clock: FixedClock) -> None:
    store(home, clock, "Lunch", LUNCH)
    store(home, clock, "Dinner", LUNCH)
    error = run(home, "show", "id0").exception
    assert isinstance(error, NotFound)
    assert "Lunch" in error.message and "Dinner" in error.message


def test_export_writes_whole_private_files(home: Path, clock: FixedClock, tmp_path: Path) -> None:
    lunch = store(home, clock, "Lunch", Said("my key is sk-abcdefghijklmnopqrst", "noted"))
    store(home, clock, "Hidden", LUNCH, private=True)
    text = run(home, "export", lunch).stdout
    assert text.startswith("# Lunch\n") and "noted" in text
    assert "abcdefghij" not in text
    target = tmp_path / "all.jsonl"
    facts = as_json(home, "export", "--all", "--format", "jsonl", "-o", str(target))
    assert facts == {"path": str(target), "format": "jsonl", "sessions": [lunch]}
    lines = [json.loads(line) for line in target.read_text().splitlines()]
    again = run(home, "export", "--all", "-o", str(target), "--force")
    assert "Left out: 1 private session; name one to export it." in again.stderr
    assert lines[0]["meta"]["id"] == lunch
    assert [line["role"] for line in lines[1:]] == ["user", "assistant"]
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.glob("all*")] == ["all.jsonl"]


def test_export_replaces_nothing_unasked_and_leaves_no_halves(
    home: Path, clock: FixedClock, tmp_path: Path
) -> None:
    store(home, clock, "Lunch", LUNCH)
    target = tmp_path / "out.md"
    target.write_text("mine")
    error = run(home, "export", "lunch", "-o", str(target)).exception
    assert isinstance(error, ConfigError) and "--force" in error.hint
    assert isinstance(run(home, "export", "lunch", "nope", "--force", "-o", str(target)).exception, NotFound)
    nowhere = run(home, "export", "lunch", "-o", str(tmp_path / "no" / "x.md"))
    assert isinstance(nowhere.exception, ConfigError)
    assert target.read_text() == "mine"
    assert run(home, "export", "lunch", "--force", "-o", str(target)).exit_code == 0
    assert target.read_text().startswith("# Lunch")
    assert not list(tmp_path.glob("*.part"))
    assert run(home, "export").exit_code == 2
    assert run(home, "export", "lunch", "--json").exit_code == 2
