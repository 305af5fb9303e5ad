"""What is read at its bounds: the home's small files, values at the edge of what is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet.config.fields import Field, format_value, read_text
from whet.config.paths import Home, find_home, read_mode, read_small, replace_file
from whet.contract.errors import ConfigError, StoreUnwritable


def test_a_file_is_read_up_to_256_kb(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    assert read_small(file) is None
    file.write_bytes(b"x" * 262_144)
    assert read_small(file) == "x" * 262_144
    file.write_bytes(b"x" * 262_145)
    with pytest.raises(ConfigError, match="262,145 bytes, more than the 262,144"):
        read_small(file)
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_small(file) == "a: 1\n"
    file.write_bytes(b"a\nb\n\xff")
    with pytest.raises(ConfigError, match="line 3 is not UTF-8"):
        read_small(file)


def test_a_link_to_a_file_that_is_gone_is_an_error_and_not_an_empty_file(tmp_path: Path) -> None:
    link = tmp_path / "config.yaml"
    link.symlink_to(tmp_path / "dotfiles" / "whet.yaml")
    with pytest.raises(ConfigError, match=r"is a link to .*whet.yaml, which is not there"):
        read_small(link)


def test_what_is_no_plain_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        read_small(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a plain file"):
        read_small(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="file is not a folder"):
        read_small(tmp_path / "file" / "below")
    with pytest.raises(ConfigError, match="can't write"):
        replace_file(tmp_path / "file" / "below", "x", mode=0o600)


def test_a_file_is_replaced_whole_with_its_mode_and_nothing_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / ".env"
    assert read_mode(file) is None
    replace_file(file, "A=1\n", mode=0o600)
    assert (file.read_text(), read_mode(file)) == ("A=1\n", 0o600)
    assert read_mode(file.parent) == 0o700
    replace_file(file, "B=2\n", mode=0o640)
    assert (file.read_text(), read_mode(file)) == ("B=2\n", 0o640)
    assert [path.name for path in file.parent.iterdir()] == [".env"]


def test_a_home_is_found_made_for_its_owner_only_and_profiles_lie_below(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_home()
    assert found.root == home and find_home("my-work_2").root == home / "profiles" / "my-work_2"
    for name in ("../x", "a b", "-", "."):
        with pytest.raises(ConfigError):
            find_home(name)
    found.ensure()
    found.ensure()
    assert read_mode(home) == 0o700
    (home / "file").write_text("x")
    with pytest.raises(StoreUnwritable):
        Home(home / "file" / "below").ensure()
    monkeypatch.setenv("WHET_HOME", "")
    assert find_home().root == Path("~/.whet").expanduser()


WHOLE = Field("a.b", "whole number", 3, (), 1)
SHARE = Field("a.b", "number", 0.5, (), 1e-9)
FREE = Field("a.b", "number", 0.5)
SWITCH = Field("a.b", "yes or no", True)
CHOICE = Field("a.b", "choice", "", ("", "ask"))


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (WHOLE, "1", 1),
        (FREE, "0", 0.0),
        (SHARE, "0.25", 0.25),
        (SWITCH, " YES ", True),
        (SWITCH, "on", True),
        (SWITCH, "1", True),
        (SWITCH, "No", False),
        (SWITCH, "off", False),
        (SWITCH, "0", False),
        (CHOICE, "", ""),
        (Field("a.b", "list", ()), " terminal(a, b), , c", ("terminal(a, b)", "c")),
        (Field("a.b", "list", ()), "", ()),
        (Field("a.b", "list", ()), "a), b", ("a)", "b")),
    ],
)
def test_what_is_allowed_is_read(field: Field, text: str, value: object) -> None:
    read = read_text(field, text)
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("field", "text", "allowed"),
    [
        (WHOLE, "0", "a whole number, at least 1"),
        (WHOLE, "1.5", "a whole number"),
        (Field("a.b", "whole number", 3), "-1", "a whole number, at least 0"),
        (SHARE, "0", "a number, more than 0"),
        (FREE, "-0.1", "a number, at least 0"),
        (FREE, "nan", "a number"),
        (FREE, "inf", "a number"),
        (Field("a.b", "number", 2, (), 1.0), "0.9", "a number, at least 1"),
        (SWITCH, "maybe", "true or false"),
        (CHOICE, "Ask", r"\(empty\), ask"),
    ],
)
def test_what_is_not_says_what_is(field: Field, text: str, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"allowed: {allowed}"):
        read_text(field, text)


def test_a_value_is_shown_as_it_is_set() -> None:
    values = (True, False, 3, 3.0, 0.5, 123456789.5, "x", ("a", "b"))
    texts = ["true", "false", "3", "3", "0.5", "123456789.5", "x", "a, b"]
    assert [format_value(value) for value in values] == texts
