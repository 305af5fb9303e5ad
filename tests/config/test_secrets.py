"""Keys in .env: what is understood, who wins, what is never said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.config.paths import Home
from whet.config.secrets import env_warnings, is_secret_name, load_secrets, parse_env, read_env, set_secret
from whet.contract.errors import ConfigError
from whet.log import MASK, AnswerMask, mask

FILE = """\
# keys
OPENAI_API_KEY=sk-plain-0123456789
export GROQ_API_KEY = "gsk with \\"quotes\\" # and hash"
SINGLE='a $b \\n'  # comment
TRAILING=value # comment
HASH=a#b
EMPTY=
COMMENT=#none
ESCAPES="x\\n\\t\\"\\q" #
TWICE=1
TWICE=2
not a line
=novalue
BAD="open
1X=2
NUL=a\0b
"""


def test_the_lines_people_write_are_understood() -> None:
    parsed = parse_env(FILE)
    assert parsed.values == {
        "OPENAI_API_KEY": "sk-plain-0123456789",
        "GROQ_API_KEY": 'gsk with "quotes" # and hash',
        "SINGLE": "a $b \\n",
        "TRAILING": "value",
        "HASH": "a#b",
        "EMPTY": "",
        "COMMENT": "",
        "ESCAPES": 'x\n\t"q',
        "TWICE": "2",
    }
    assert parsed.bad_lines == (12, 13, 14, 15, 16)


def test_windows_line_ends_and_byte_order_mark(home: Path) -> None:
    home.mkdir()
    (home / ".env").write_bytes(b"\xef\xbb\xbfA_KEY=1\r\nB_KEY=2\r\n")
    assert read_env(Home(home)).values == {"A_KEY": "1", "B_KEY": "2"}


def test_the_environment_wins_but_an_empty_variable_does_not(home: Path) -> None:
    home.mkdir()
    (home / ".env").write_text("A_API_KEY=from-file-aaaa\nB_API_KEY=from-file-bbbb\n")
    merged = load_secrets(
        Home(home), {"A_API_KEY": "from-environment", "B_API_KEY": "", "PATH": "/bin/longer"}
    )
    assert merged["A_API_KEY"] == "from-environment"
    assert merged["B_API_KEY"] == "from-file-bbbb"
    assert mask("x from-environment y from-file-bbbb") == "x [REDACTED] y [REDACTED]"
    assert mask("/bin/longer") == "/bin/longer"
    answer = AnswerMask()
    pieces = [answer.feed(piece) for piece in ("x from-envir", "onment y from-fi", "le-bbbb")]
    assert "".join((*pieces, answer.finish())) == f"x {MASK} y from-file-bbbb"  # too short for an answer


def test_names_that_say_secret() -> None:
    secret = (
        "OPENAI_API_KEY GITHUB_TOKEN TOKEN DB_PASSWORD MY_SECRET_2 OPENAI_API_KEY_2 APIKEY api_key_2 KEY1"
    )
    plain = "PATH PWD KEYBOARD MONKEY OPENAI_BASE_URL TOKENIZERS_PARALLELISM TOKENS_USED"
    assert [name for name in secret.split() if not is_secret_name(name)] == []
    assert [name for name in plain.split() if is_secret_name(name)] == []


def test_a_value_is_masked_as_json_writes_it_too(home: Path) -> None:
    value = 'pa"ss\\word\nin two lines'
    load_secrets(Home(home), {"DB_PASSWORD": value})
    once = json.dumps({"message": value})
    twice = json.dumps({"arguments": json.dumps({"command": f"login {value}"})})
    for text in (value, once, twice):
        assert "two lines" not in mask(text)
        assert MASK in mask(text)
    assert json.loads(mask(once)) == {"message": MASK}


def test_setting_a_secret_keeps_other_lines_and_closes_the_file(home: Path) -> None:
    place = Home(home)
    set_secret(place, "A_KEY", "one")
    (home / ".env").write_text("# mine\nA_KEY=one\nB_KEY='two'\nbroken line\n")
    (home / ".env").chmod(0o644)
    set_secret(place, "A_KEY", 'new "value" \\ #')
    wanted = "# mine\nB_KEY='two'\nbroken line\n" + 'A_KEY="new \\"value\\" \\\\ #"\n'
    assert (home / ".env").read_text() == wanted
    assert read_env(place).values["A_KEY"] == 'new "value" \\ #'
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in home.iterdir()) == [".env", ".lock"]


def test_bad_names_and_values_are_refused_without_the_value(home: Path) -> None:
    with pytest.raises(ConfigError, match="not a variable's name"):
        set_secret(Home(home), "A-B", "x")
    with pytest.raises(ConfigError) as caught:
        set_secret(Home(home), "A_KEY", "very-secret\nvalue")
    assert "very-secret" not in caught.value.message + caught.value.hint


def test_warnings_name_lines_and_mode_but_no_value(home: Path) -> None:
    place = Home(home)
    assert env_warnings(place) == []
    home.mkdir()
    (home / ".env").write_text("A_KEY=fine\nhunter2-is-my-password\n")
    (home / ".env").chmod(0o644)
    warnings = env_warnings(place)
    assert len(warnings) == 2
    assert "line 2" in warnings[0]
    assert "0644" in warnings[1] and "chmod 600" in warnings[1]
    assert "hunter2" not in " ".join(warnings)


def test_a_folder_in_its_place_is_an_error(home: Path) -> None:
    (home / ".env").mkdir(parents=True)
    with pytest.raises(ConfigError, match="is a folder"):
        load_secrets(Home(home), {})
