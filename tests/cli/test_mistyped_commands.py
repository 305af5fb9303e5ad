"""A question that is written like a call of a command is refused if there is no such command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Tty, flags, run
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("question", "hint"),
    [
        ("/git:prr x", "did you mean /git:pr?"),
        ("/hepl", "//hepl sends it as text"),
        ("/git:push", "//git:push sends it as text"),
        ("//git:prr x", ""),
        ("/api returns 500, why?", ""),
        ("/usr is full", ""),
    ],
)
def test_a_mistyped_command_is_no_question(tmp_path: Path, question: str, hint: str) -> None:
    path = tmp_path / ".whet" / "commands" / "git" / "pr.md"
    path.parent.mkdir(parents=True)
    path.write_text("Open a pull request.\n")
    with PracticeServer(script=[ScriptedReply("asked")]) as server:
        code, out, err = run(["chat", "-q", question, *flags(server)], tmp_path)
        assert (code, out, len(server.requests)) == ((1, "", 0) if hint else (0, "asked\n", 1)), err
        assert hint in err


def test_a_peer_s_word_means_the_same_in_the_chat_if_it_is_a_command_of_the_shell(tmp_path: Path) -> None:
    with PracticeServer() as server, Tty(["chat", *flags(server)], tmp_path, environ={"TERM": "dumb"}) as tty:
        tty.wait_for("Ctrl-D")
        for typed, hint in (
            ("/review", "ask for it: review the changes"),
            ("/run make test", "!command runs a command here"),
            ("/serve", "run `whet serve` in a terminal of its own"),
            ("/version", "whet 0."),
            ("/memory add We deploy on Tuesdays", "new sessions see it (change 1)"),
            ("/memory", "We deploy on Tuesdays"),
        ):
            tty.type(f"{typed}\r", hint)
        assert tty.leave("/quit\r") == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run", "fix the tests"], '`whet "fix the tests"` does one task'),
        (["undo"], "`whet rewind` takes files and turns back"),
        (["sandbox", "docker"], "whet sandbox has: "),
        (["mcp", "install"], "`whet mcp add`; whet mcp has: "),
        (["sessions", "rm", "x"], "`whet sessions delete`; whet sessions has: "),
        (["skills", "uninstall", "x"], "`whet skills retire`; "),
        (["agents", "kill", "x"], "`whet agents stop`; "),
        (["model", "use", "x"], "`whet model set`; "),
        (["goal", "fix the tests"], '`whet goal start "fix the tests"`; '),
        (["sessions", "help"], "`whet sessions --help`; "),
        (["sandbox", "ls"], "hint: whet sandbox has: "),
    ],
)
def test_a_call_that_lacks_a_part_names_what_was_meant(
    tmp_path: Path, arguments: list[str], hint: str
) -> None:
    code, _, err = run(arguments, tmp_path)
    assert code == 2 and hint in err, err


@pytest.mark.parametrize("arguments", [["help"], ["help", "sessions"], ["help", "sessions", "list"]])
def test_help_before_a_command_is_the_help_of_that_command(tmp_path: Path, arguments: list[str]) -> None:
    code, out, _ = run(arguments, tmp_path)
    assert (code, out) == run([*arguments[1:], "--help"], tmp_path)[:2] and "Usage: whet" in out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["hlep"], "`whet --help`"),
        (["versoin"], "did you mean `whet version`?"),
        (["resmue"], "`whet --resume` picks a session"),
        (["explain", "a.py"], '`whet "explain a.py"`'),
        (["remove", "deploy"], "`whet skills retire`"),
        (["hello"], 'to ask it: whet chat -q "hello"'),
        (["why"], 'to ask it: whet chat -q "why"'),
    ],
)
def test_a_slip_in_a_word_of_a_peer_is_met_by_its_meaning(
    tmp_path: Path, arguments: list[str], hint: str
) -> None:
    code, _, err = run(arguments, tmp_path)
    assert code == 2 and hint in err, err


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--print", '`whet "fix the tests"`'),
        ("--yolo", "`whet chat --yes`"),
        ("--permission-mode", "--approvals ask, plan, auto or deny"),
        ("--fork-session", "/fork"),
        ("--no-session", "`whet chat --private`"),
        ("-C", "`whet chat --workspace DIR`"),
        ("--thinking", "model.reasoning_effort"),
        ("--agent", "AGENTS.md"),
        ("-i", "`whet chat --image FILE`"),
        ("--mode", '`whet "fix the tests" --json`'),
        ("--search", "search.provider"),
        ("--sandbox", "--approvals plan"),
        ("-v", "`whet --version`"),
    ],
)
def test_an_option_of_a_peer_is_met_by_its_meaning_and_not_by_its_letters(
    tmp_path: Path, option: str, hint: str
) -> None:
    code, _, err = run([option, "x", "fix the tests"], tmp_path)
    assert code == 2 and hint in err and "Did you mean" not in err, err
