"""A question that is written like a call of a command is refused if there is no such command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import chatting, flags, run
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
    with chatting(tmp_path, None, environ={"TERM": "dumb"}) as (_, tty):
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


@pytest.mark.parametrize("arguments", [["help"], ["help", "sessions"], ["help", "sessions", "list"]])
def test_help_before_a_command_is_the_help_of_that_command(tmp_path: Path, arguments: list[str]) -> None:
    code, out, _ = run(arguments, tmp_path)
    assert (code, out) == run([*arguments[1:], "--help"], tmp_path)[:2] and "Usage: whet" in out
