"""Which model answers a session that is opened again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Tty, run
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

CONFIG = (
    'model:\n  provider: practice\n  base_url: "{url}"\n  model: practice-echo\nsandbox:\n  mode: "off"\n'
)


def configure(home: Path, server: PracticeServer) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(CONFIG.format(url=server.base_url))


def models(server: PracticeServer) -> list[str]:
    """The models that were asked for the answers, in order."""
    return [json.loads(request.body)["model"] for request in server.requests]


def ask(folder: Path, *options: str) -> dict[str, object]:
    code, out, err = run(["chat", "-q", "go", "--json", *options], folder)
    assert code == 0, err
    return json.loads(out)


def test_a_session_keeps_the_model_that_it_was_started_with(folder: Path, home: Path) -> None:
    with PracticeServer(responder=lambda _: ScriptedReply("Here.")) as server:
        configure(home, server)
        session = str(ask(folder, "--model", "practice-steps-3")["session_id"])
        assert ask(folder, "--session", session)["notices"] == []
        ask(folder, "--continue")
        ask(folder, "--session", session, "--model", "practice-steps-20")
        ask(folder, "--session", session)
        ask(folder)
    assert models(server) == [
        "practice-steps-3",
        "practice-steps-3",
        "practice-steps-3",
        "practice-steps-20",
        "practice-steps-20",
        "practice-echo",
    ]


def test_a_session_whose_model_is_of_another_provider_says_so(folder: Path, home: Path) -> None:
    with PracticeServer(responder=lambda _: ScriptedReply("Here.")) as server:
        configure(home, server)
        chosen = ["--provider", "openai", "--base-url", server.base_url, "--model", "practice-steps-3"]
        session = str(ask(folder, *chosen)["session_id"])
        (notice,) = ask(folder, "--session", session)["notices"]  # type: ignore[misc]
        assert notice == (
            "practice-echo of practice answers: practice-steps-3, this session's model, is of openai"
            " (--provider openai --model practice-steps-3)"
        )
        assert ask(folder, "--session", session, *chosen)["notices"] == []
    assert models(server) == ["practice-steps-3", "practice-echo", "practice-steps-3"]


@pytest.mark.slow
def test_the_model_that_a_chat_switched_to_is_kept_and_inherited(folder: Path, home: Path) -> None:
    with PracticeServer(responder=lambda _: ScriptedReply("Here.")) as server:
        configure(home, server)
        for keys in (("/model practice-steps-3\r", "chosen for this"), ("/new\r", "new session")):
            tty = Tty(["chat", "--continue"] if server.requests else ["chat"], folder)
            tty.wait_for("practice-echo" if not server.requests else "practice-steps-3")
            tty.type(*keys)
            tty.type("go\r", "1 step")
            assert tty.leave("\x04") == 0
        tty = Tty(["chat", "--continue"], folder)
        tty.wait_for("practice-steps-3")
        tty.type("/model default\r", "practice-echo")
        assert tty.leave("\x04") == 0
        ask(folder, "--continue")
    assert models(server) == ["practice-steps-3", "practice-steps-3", "practice-echo"]


@pytest.mark.slow
def test_the_list_of_models_marks_the_chat_s(folder: Path, home: Path) -> None:
    with PracticeServer() as server:
        configure(home, server)
        with Tty(["chat"], folder) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("/model practice-steps-3\r", "chosen for this conversation")
            tty.type("/model list\r", "* practice-steps-3")
            assert tty.leave("\x04") == 0
