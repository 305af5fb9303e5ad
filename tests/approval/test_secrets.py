"""Which paths, words and pieces of code name what holds keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import each
from whet.approval.risk import CommandSetting, RiskScope
from whet.approval.secrets import (
    find_secret_in_code,
    find_secret_in_word,
    holds_secrets,
    is_secret,
    opens_secrets,
)
from whet.shell.words import Word, literal, unknown

PLACE = RiskScope("/code/proj", "/home/u", "/home/u/.whet")
HERE = CommandSetting("/code/proj", PLACE)


@each(
    ("text", "names"),
    [
        (".env", True),
        ("-f.env", True),
        ("--file=.env", True),
        ("a:.env", True),
        ("--.env", True),
        ("a.env", False),
        ("--x=~/.whet/state.db", True),
        ("x=~/.whet/skills/a", False),
        ("sub/.e?v", True),
        (".env*", True),
        (".ssh/*", True),
        ("*", False),
        ("*.py", False),
        ("id_*", True),
        ("conf/id_*", True),
        ("conf*/a", False),
        ("/home/u", True),
        ("/home", True),
        ("..", False),
        ("../..", True),
        ("/home/u/.config", True),
        ("/home/u/.config/x", False),
        ("/etc", True),
        ("/etc/hosts", False),
        ("x=/etc", False),
        ("-/etc", False),
        ("", False),
    ],
)
def test_a_word_names_secrets_by_itself_or_by_a_part_of_it(text: str, names: bool) -> None:
    glob = any(mark in text for mark in "*?[")
    word = Word(text, text, glob=glob, prefix=text)
    assert find_secret_in_word(word, HERE) == (text if names else "")


def test_where_the_folder_or_the_word_is_not_known_only_its_text_counts() -> None:
    nowhere, above = CommandSetting(None, PLACE), CommandSetting("/home", PLACE)
    assert find_secret_in_word(literal(".env"), nowhere) and find_secret_in_word(
        literal("~/.whet/x"), nowhere
    )
    assert not find_secret_in_word(literal("u"), nowhere) and find_secret_in_word(literal("u"), above)
    assert not find_secret_in_word(unknown("u"), above) and find_secret_in_word(
        unknown("x", "~/.ssh/"), nowhere
    )
    at_home = CommandSetting("/home/u", RiskScope("/home/u", "/home/u", "/home/u/.whet"))
    assert not find_secret_in_word(literal("."), at_home), "a person chose it for the workspace"


def test_a_pattern_is_tried_on_what_is_there(tmp_path: Path) -> None:
    here = CommandSetting(str(tmp_path), PLACE)
    for name in ("server.pem", ".env", "plain"):
        (tmp_path / name).touch()
    (tmp_path / "way").symlink_to(".env")

    def matched(pattern: str, glob: bool = True) -> bool:
        return bool(find_secret_in_word(Word(pattern, pattern, glob=glob, prefix=pattern), here))

    assert matched("s*r.pem") and matched("w*") and matched("./[.]env")
    assert not matched("p*") and not matched("w*", glob=False), "in quotes it is a name"
    (tmp_path / "way").unlink()
    (tmp_path / "server.pem").unlink()
    assert not matched("*"), "no star is a dot"
    assert find_secret_in_word(literal("way"), here) == ""
    (tmp_path / "way").symlink_to(".env")
    assert find_secret_in_word(literal("way"), here) == "way"


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("open('.env')", ".env"),
        ("open('~/.whet/state.db')", "~/.whet/state.db"),
        ("open('~/.whet/skills/a')", ""),
        ("open('~/notes')", ""),
        ("open('./a.txt')", ""),
        ("open('./.e?v')", "./.e?v"),
        ("open('/x/id_*')", "/x/id_*"),
        ("a.id_*b", ""),
        ("credentials", "credentials"),
        ("x - y", ""),
        (" " * 100_000 + ".env", ""),
        (" " * 99_996 + ".env", ".env"),
    ],
)
def test_code_names_secrets_by_one_of_its_parts(code: str, part: str) -> None:
    assert find_secret_in_code(code, HERE) == part


def test_folders_hold_secrets_and_so_does_whets_home(tmp_path: Path) -> None:
    for folder in ("/", "/home", "/home/u", "/home/u/.config", "/home/u/.local/share", "/etc", "/proc"):
        assert holds_secrets(folder, PLACE), folder
    for folder in ("/home/u/x", "/home/v", "/etc/x", "/code/proj"):
        assert not holds_secrets(folder, PLACE), folder
    for path, secret in (
        ("/state.db", True),
        ("/logs/a", False),
        ("/config.yaml", False),
        ("/skillsx", True),
        ("", True),
    ):
        assert is_secret("/home/u/.whet" + path, PLACE) is secret, path
    assert not is_secret("/home/u/.whet/state.db")
    assert opens_secrets("/home", PLACE) and opens_secrets("/x/.env", PLACE)
    assert not opens_secrets(str(tmp_path), PLACE) and not opens_secrets(str(tmp_path / "absent"), PLACE)
    (tmp_path / "a.key").touch()
    assert opens_secrets(str(tmp_path), PLACE)
