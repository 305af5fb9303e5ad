"""What commands show of stored sessions: in the owner's time zone and theme, and without secrets."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from tests.cli.running import Tty, bare, chatting, flags
from tests.cli.running import run as run_program
from tests.cli.stored import Said, store
from tests.support import FixedClock
from whet.cli.group import run
from whet.memory.skill_changes import hash_files
from whet.store.ledger import hash_text
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

SHAPED, KNOWN = "sk-ant-abcdefghij0123456789ABCD", "correct-horse-battery"
ENCODED = base64.b64encode(f"KEY={KNOWN}".encode()).decode()
INNER = base64.b64encode(KNOWN.encode()).decode()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([*arguments]) == 0, arguments
    return capsys.readouterr().out


@pytest.fixture
def session(home: Path, clock: FixedClock) -> str:
    texts = f"{SHAPED} {KNOWN} {INNER} {ENCODED} deploy"
    session_id = store(home, clock, f"Deploy {SHAPED} {KNOWN}", Said(f"Keys: {texts}", texts, "env", texts))
    (home / ".env").write_text(f"SHOP_TOKEN={KNOWN}\n")
    (home / ".env").chmod(0o600)
    return session_id


@pytest.mark.fast_rows("agents show", "html", "search deploy", "show ID")
@pytest.mark.parametrize(
    "arguments",
    [
        ["sessions", "list"],
        ["sessions", "show", "ID"],
        ["sessions", "show", "ID", "--full"],
        ["sessions", "search", "deploy"],
        ["sessions", "search", KNOWN],
        ["sessions", "pin", "ID"],
        ["sessions", "fork", "ID"],
        ["sessions", "export", "ID"],
        ["sessions", "export", "ID", "--format", "html"],
        ["sessions", "export", "ID", "--format", "jsonl"],
        ["agents"],
        ["agents", "show", "ID"],
    ],
    ids=" ".join,
)
def test_no_command_shows_a_sessions_secrets(
    session: str, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    arguments = [session if text == "ID" else text for text in arguments]
    outputs = [shown(capsys, *arguments)]
    if "export" not in arguments and "--full" not in arguments:
        outputs.append(shown(capsys, *arguments, "--json"))
        json.loads(outputs[-1])
    for text in outputs:
        assert not any(secret in text for secret in (SHAPED, KNOWN, INNER)), text
    assert arguments == ["agents"] or all("[REDACTED]" in text for text in outputs[-1:])


def test_days_are_those_of_the_owners_time_zone(
    home: Path, clock: FixedClock, capsys: pytest.CaptureFixture[str]
) -> None:
    session = store(home, clock, "Lunch", Said("Where is the lunch list?", "In menu.txt."))
    moment = clock.now()
    for zone, hours in (("Etc/GMT+12", -12), ("Etc/GMT-14", 14)):
        (home / "config.yaml").write_text(f"agent:\n  time_zone: {zone}\n")
        day = f"{moment:%Y-%m-}{moment.day + (moment.hour + hours) // 24:02}"
        text = shown(capsys, "sessions", "search", "lunch")
        assert f"{session}  {day}  user" in text
        assert f"{day} {(moment.hour + hours) % 24:02}:" in shown(capsys, "sessions", "show", session)
        assert "Lunch" in shown(capsys, "sessions", "search", "lunch", "--since", day)
        later = f"{moment:%Y-%m-}{moment.day + (moment.hour + hours) // 24 + 1:02}"
        assert "Lunch" not in shown(capsys, "sessions", "search", "lunch", "--since", later)


def test_settings_that_cannot_be_read_hide_no_session(
    home: Path, clock: FixedClock, capsys: pytest.CaptureFixture[str]
) -> None:
    session = store(home, clock, "Lunch", Said("Where is the lunch list?", "In menu.txt."))
    (home / "config.yaml").write_text("agent: [\n")
    assert "In menu.txt." in shown(capsys, "sessions", "show", session)
    assert session in shown(capsys, "sessions", "search", "lunch")


@pytest.mark.slow
def test_a_session_is_shown_in_the_persons_theme(home: Path, folder: Path, clock: FixedClock) -> None:
    session = store(home, clock, "Lunch", Said("Where?", "In `menu.txt`.", "cat menu.txt", "soup"))
    drawn: dict[str, str] = {}
    for theme in ("dark", "light", "plain"):
        (home / "config.yaml").write_text(f"ui:\n  theme: {theme}\n")
        environ = {"WHET_HOME": str(home), "PAGER": "cat", "COLORTERM": "truecolor"}
        with Tty(["sessions", "show", session], folder, environ=environ) as tty:
            tty.wait_for("menu.txt")
            assert tty.wait_for_end() == 0
            drawn[theme] = tty.drawn
    assert len(set(drawn.values())) == 3


@pytest.mark.slow
@pytest.mark.parametrize("is_shown", [True, False])
def test_a_resumed_chat_shows_reasoning_as_it_was_shown(home: Path, folder: Path, is_shown: bool) -> None:
    environ = {"WHET_UI_SHOW_REASONING": str(is_shown).lower()}
    script = [ScriptedReply("Red.", reasoning="I should think of a colour")]
    with chatting(folder, script, environ=environ) as (_, tty):
        tty.type("Which colour?\r")
        assert ("I should think" in bare(tty.wait_for("Red."))) == is_shown
        tty.wait_for("1 step")
        assert tty.leave("\x04") == 0
    with chatting(folder, [], "--continue", environ=environ) as (_, tty):
        assert ("I should think" in bare(tty.wait_for("Red."))) == is_shown
        assert tty.leave("\x04") == 0


@pytest.mark.slow
def test_a_file_with_a_built_in_commands_name_is_not_called_in_a_one_shot(home: Path, folder: Path) -> None:
    (home / "commands").mkdir(parents=True)
    for name in ("help", "h", "tidy"):
        (home / "commands" / f"{name}.md").write_text(f"Do what {name} says.\n")
    with PracticeServer(script=[ScriptedReply("Done.")]) as server:
        for name in ("help", "h"):
            code, _, err = run_program(["chat", *flags(server), "-q", f"/{name}"], folder)
            assert code == 1 and f"/{name} is a command of the chat" in err and "rename the file" in err
        assert server.requests == []
        code, out, _ = run_program(["chat", *flags(server), "-q", "/tidy"], folder)
        assert (code, out) == (0, "Done.\n") and "Do what tidy says." in str(server.requests[0].body)


def test_a_skills_hash_is_that_of_all_its_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skill = home / "skills" / "ship"
    skill.mkdir(parents=True)
    text = "---\nname: ship\ndescription: How we ship.\n---\n\n1. `make ship`\n"
    (skill / "SKILL.md").write_text(text)
    before = json.loads(shown(capsys, "skills", "show", "ship", "--json"))
    assert before["hash"] == hash_files({"SKILL.md": text.encode()}) and before["hash"] in before["text"]
    (skill / "references").mkdir()
    (skill / "references/a.md").write_text("more\n")
    after = json.loads(shown(capsys, "skills", "show", "ship", "--json"))
    assert after["file_hash"] == before["file_hash"] and after["hash"] != before["hash"]
    part = json.loads(shown(capsys, "skills", "show", "ship", "references/a.md", "--json"))
    assert part["hash"] == after["hash"] and part["file_hash"] == hash_text("more\n")[:12]
