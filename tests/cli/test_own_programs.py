"""Commands of the shell run in the chat, too, and its texts name them as they are typed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.running import bare, chatting, run
from tests.cli.test_oneshot import is_alive
from tests.support import each
from whet.app.conversations.slash import Commands
from whet.app.conversations.slash_output import remote_commands
from whet.cli.command_table import COMMANDS
from whet.cli.interactive.chat_control import ChatControl
from whet.cli.interactive.chat_words import CHAT_FORMS, name_chat_commands
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.contract.errors import NotFound
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

pytestmark = pytest.mark.unconfined


@each(
    ("text", "shown"),
    [
        ("no MCP servers; whet mcp add brings one", "no MCP servers; /mcp add brings one"),
        ("`whet config set a.b 1`, then whet doctor.", "`/config set a.b 1`, then /doctor."),
        ("2 wait for you: whet review inbox", "2 wait for you: /inbox"),
        ("(whet undo 7) and whet memory log 7", "(/learned undo 7) and /learned 7"),
        ("whet model login openrouter", "/login openrouter"),
        ("echo  ready  whet mcp serve", "echo  ready  whet mcp serve"),
        ("whet model set NAME; whet configure; /usr/bin/whet mcp", ""),
        ("/rewind (in a shell: whet rewind)", ""),
    ],
)
def test_a_shell_s_command_is_named_as_it_is_typed_in_the_chat(text: str, shown: str) -> None:
    assert name_chat_commands(text) == (shown or text)


def test_every_form_is_a_command_on_both_sides() -> None:
    commands: Commands[ChatControl] = Commands()
    for row in SLASH_COMMANDS:
        commands.add(row)
    for shell, chat in CHAT_FORMS.items():
        assert shell.split()[0] in COMMANDS
        assert chat[1:].split()[0] in commands


def test_a_command_that_only_the_terminal_has_says_why_elsewhere() -> None:
    assert [row.name for row in SLASH_COMMANDS if row.remote == bool(row.local)] == []
    remote = remote_commands(SLASH_COMMANDS)
    for name, reason in (
        ("config", "there is no /config here: it is about the machine that Whet runs on"),
        ("settings", "there is no /config here: it is about the machine that Whet runs on"),
        ("exit", "there is no /exit here: it works on the terminal itself"),
        ("sessions", "there is no /sessions here: it reaches other sessions than this one"),
    ):
        with pytest.raises(NotFound, match=re.escape(reason)) as caught:
            remote.get(name)
        assert caught.value.hint == "type it in the chat at the terminal: whet"


@pytest.mark.slow
def test_a_server_is_added_listed_and_removed_in_the_chat(folder: Path) -> None:
    with chatting(folder, None, columns=120) as (_, tty):
        tty.type("/mcp\r", "no MCP servers; /mcp add NAME")
        tty.type("/mcp add echo -- cat\r", "echo is added", "/mcp test echo tries again, /mcp remove echo")
        tty.type("/mcp list\r", "failed")
        tty.type("/mcp remove echo\r", "echo is removed")
        tty.type("/mcp test\r", "no MCP servers; /mcp add brings one")
        tty.type("/config nonsense.key 3\r", "nonsense.key")
        tty.type("/plugins\r", "no plugins; /plugins install")
        assert tty.leave("/quit\r") == 0
    assert "from the next start" not in bare(tty.drawn)  # nothing was set


@pytest.mark.slow
def test_a_secret_is_asked_for_unseen_and_kept_out_of_the_history(folder: Path) -> None:
    secret = "sk-" + "a1B2" * 8
    with chatting(folder, None) as (_, tty):
        tty.type("/config OPENAI_API_KEY x\r", "was not stored", "/config OPENAI_API_KEY asks for it unseen")
        tty.type("/config OPENAI_API_KEY\r", "OPENAI_API_KEY: ")
        tty.type(f"{secret}\r", "is stored in", "from the next start")
        tty.type("/config get OPENAI_API_KEY\r", "OPENAI_API_KEY is set in")
        assert tty.leave("/quit\r") == 0
    assert secret not in tty.drawn
    home = Path(run(["config", "path"], folder)[1].strip()).parent
    assert secret in (home / ".env").read_text()
    assert not [path for path in home.rglob("*history*") if path.is_file() and secret in path.read_text()]


@pytest.mark.slow
def test_what_was_allowed_for_good_is_seen_and_taken_back_in_the_chat(folder: Path) -> None:
    call = PracticeCall("write_file", '{"path": "a.txt", "content": "x"}')
    with chatting(folder, [ScriptedReply("", tool_calls=(call,)), ScriptedReply("Done.")], columns=120) as (
        _,
        tty,
    ):
        tty.type("write\r", "Take back: /approvals ends 2 and always", "is no:")
        tty.type("always\r", "Done.", "2 steps")
        tty.type("/approvals\r", "approvals: ask", "write_file", "a.txt", "/approvals revoke NUMBER")
        tty.type("/approvals revoke 9\r", "there is no grant '9'")
        tty.type("/approvals revoke 1\r", "grant 1 no longer holds")
        tty.type("/approvals revoke 2\r", "grant 2 no longer holds")
        assert tty.leave("/quit\r") == 0
    assert "Nothing was allowed for good" in run(["approvals"], folder)[1]


@pytest.mark.slow
def test_what_was_allowed_for_a_chat_is_seen_and_taken_back_in_it(folder: Path) -> None:
    first, second = (
        PracticeCall("write_file", f'{{"path": "a.txt", "content": "{text}"}}') for text in ("x", "y")
    )
    script = [
        ScriptedReply("", tool_calls=(first,)),
        ScriptedReply("Done."),
        ScriptedReply("", tool_calls=(second,)),
        ScriptedReply("Changed."),
    ]
    with chatting(folder, script, columns=120) as (_, tty):
        tty.type("write\r", "is no:")
        tty.type("2\r", "Done.", "2 steps")
        tty.type("/approvals\r", "chat  write_file  a.txt  until you quit", "/approvals revoke chat")
        tty.type("/approvals revoke chat\r", "nothing is allowed for this chat any more")
        tty.type("again\r", "Whet wants to change", "is no:")
        tty.type("1\r", "Changed.")
        assert tty.leave("/quit\r") == 0


@pytest.mark.slow
def test_a_stopped_command_leaves_no_program_and_no_traceback(folder: Path) -> None:
    """A program that the command started ignores its end and holds the output, as an editor does."""
    holder = (
        "import os, pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f" pathlib.Path({str(folder / 'pid')!r}).write_text(str(os.getpid())); print('it waits', flush=True);"
        " time.sleep(600)"
    )
    (folder / "sitecustomize.py").write_text(
        "import subprocess, sys\n"
        f"if 'doctor' in sys.orig_argv: subprocess.Popen([sys.executable, '-c', {holder!r}])\n"
    )
    environ = {"PYTHONPATH": str(folder)}
    with chatting(folder, None, environ=environ) as (_, tty):
        tty.type("/doctor\r", "it waits")
        tty.type("\x1b", "cancelled")
        assert tty.leave("/quit\r") == 0
    assert "Traceback" not in tty.drawn
    assert not is_alive(int((folder / "pid").read_text()))


@pytest.mark.slow
def test_a_learned_change_is_taken_back_in_the_chat(folder: Path) -> None:
    with chatting(folder, None) as (_, tty):
        tty.type("# the tests need a database\r", "remembered; /learned undo 1 takes it back")
        tty.type("/learned undo x\r", "/learned knows no 'undo x'")
        tty.type("/learned undo 1\r", "change 1 is taken back; /learned undo 2 brings it back")
        tty.type("/memory\r", "nothing is remembered")
        tty.type("/learned undo 2\r", "change 2 is taken back")
        tty.type("/memory\r", "the tests need a database", "/learned NUMBER says who wrote what")
        assert tty.leave("/quit\r") == 0
