"""What a turn comes to in a chat, in words; what of the outbox is told and sent again; whose a token is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.contract.errors import ConfigError, WhetError
from whet.contract.events import EndReason
from whet.contract.messages import Usage
from whet.gateway.chat import is_table
from whet.gateway.chat_turn import BROKE, answer_text, error_line
from whet.gateway.lock import TokenLock, holder
from whet.gateway.settings import read_gateway
from whet.store.turns import TurnRecord

SECRET = "sk-proj-" + "a1B2" * 8


@pytest.mark.parametrize(
    ("text", "aligned"),
    [("a  b", False), ("a  b\nc  d", False), ("a  b\nc  d\ne  f", True), ("a b\nc d\ne f", False)],
)
def test_three_lines_in_columns_are_a_table(text: str, aligned: bool) -> None:
    assert is_table(text) is aligned


@pytest.mark.parametrize(
    ("reason", "text", "error", "said"),
    [
        ("answered", "Done.", "", "Done."),
        ("answered", "", "", "(no answer)"),
        ("answered", "Done.", "a problem", "Done."),
        ("cancelled", "Half", "", "Stopped."),
        ("budget", "Half", "", "Half\n\n⚠️ the turn reached its limit"),
        ("budget", "", "", "⚠️ the turn reached its limit"),
        ("failed", "Half", "it\n broke", "Half\n\n⚠️ it broke"),
        ("failed", "", "", f"⚠️ {BROKE}"),
        ("failed", "", "x" * 401, f"⚠️ {'x' * 400}"),
        ("failed", "", f"the key {SECRET}", "⚠️ the key [REDACTED]"),
    ],
)
def test_what_a_turn_comes_to_is_written(reason: EndReason, text: str, error: str, said: str) -> None:
    turn = TurnRecord("t", "s", 1, "", 1, Usage(), error=error)
    assert answer_text(turn, reason, text) == said


def test_an_error_is_a_line_with_what_to_do() -> None:
    assert error_line(WhetError("no")) == "no" and error_line(WhetError("no", hint="wait")) == "no (wait)"
    assert error_line(WhetError(SECRET)) == "[REDACTED]"


# The outbox.


# Tokens and the file.


def test_a_token_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder, secrets = tmp_path / "gateway", ["one", "two"]
    assert holder(folder, secrets) is None
    held = TokenLock.take(folder, "chat", secrets)
    assert folder.stat().st_mode & 0o777 == 0o700 and holder(folder, secrets) == os.getpid()
    assert holder(folder, ["one"]) is None and holder(folder, ["two", "one"]) is None
    with pytest.raises(WhetError) as caught:
        TokenLock.take(folder, "chat", secrets)
    assert caught.value.message == f"channel chat: another gateway (process {os.getpid()}) uses this token"
    (lock,) = folder.iterdir()
    assert lock.read_text() == f"{os.getpid()}\n" and len(lock.name) == 32 + len(".lock")
    lock.write_text("")
    assert holder(folder, secrets) == 0
    with pytest.raises(WhetError, match="process unknown"):
        TokenLock.take(folder, "chat", secrets)
    held.release()
    assert holder(folder, secrets) is None
    lock.write_text("a number that is longer than what is written now")
    TokenLock.take(folder, "chat", secrets).release()
    assert lock.read_text() == f"{os.getpid()}\n"


CHANNEL = '[[channel]]\nkind = "telegram"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no gateway file "),
        ("", " has no channel"),
        ("[people.ann]\ntelegram = 7\n", " has no channel"),
        ("x = [", ": "),
        (f"{CHANNEL}[people.ann]\nfax = 7\n", "people.ann: `fax` is neither a platform nor a setting"),
        (f"{CHANNEL}[people.Ann]\ntelegram = 7\n", "'Ann' can't be a person's name"),
        (f"{CHANNEL}[people.-ann]\ntelegram = 7\n", "'-ann' can't be a person's name"),
        (f"{CHANNEL}[people.{'a' * 33}]\ntelegram = 7\n", "can't be a person's name"),
        (f"{CHANNEL}[people.api-x]\ntelegram = 7\n", "'api-x' can't be a person's name"),
        (f"{CHANNEL}[people.stranger-x]\ntelegram = 7\n", "'stranger-x' can't be a person's name"),
    ],
)
def test_a_file_of_no_use_is_said_with_its_path(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "gateway.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_gateway(path)
    assert said in caught.value.message and str(path) in caught.value.message and caught.value.hint
