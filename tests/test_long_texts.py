"""Texts that a model, a server, a repository or a file holds are read in time that grows with their length.

A search that goes back would take hours on these, and the test its time limit.
"""

from __future__ import annotations

import pytest

from whet.config.redact import describe_secret, redact
from whet.memory.alignment import find_aligned
from whet.tools.charsets import guess_charset
from whet.tools.encoding import fit_lines

LENGTH = 100_000


@pytest.mark.fast_rows("token=", "curl", "zip")
@pytest.mark.parametrize(
    "unit", ["-", "a-", "--token", "token=", "curl ", "zip ", "login ", "mysql ", "mongo ", "password "]
)
def test_a_text_is_masked(unit: str) -> None:
    assert redact((unit * LENGTH)[:LENGTH])


@pytest.mark.parametrize("text", ["token" + " " * LENGTH, "pin for a " * LENGTH, "pass is " * LENGTH])
def test_a_described_secret_is_searched_for(text: str) -> None:
    assert describe_secret(text[:LENGTH]) == ""


def test_a_name_with_password_in_it_is_masked_anywhere_in_a_long_name() -> None:
    for name in ("password_token", "db.password-token", "x" * 80 + "_password"):
        assert redact(f"{name}: swordfish") == f"{name}: [REDACTED]"


def test_a_login_after_another_program_is_masked() -> None:
    for command in ("curl x; curl -u ann:s3cret9 y", "zip a zip -P s3cret9 b", "mysql a mysql -ps3cret9"):
        assert "s3cret9" not in redact(command), command
    assert "s3cret9" not in redact("run ---a-b --api-token s3cret9 x")


def test_the_character_set_of_a_minified_file_is_found() -> None:
    assert guess_charset(b"x" * LENGTH * 10 + b"\n// caf\xe9\n", is_whole=True)


def test_line_ends_are_fitted_to_a_file_whose_lines_all_changed() -> None:
    old = "".join(f"line {n}" + ("\r\n" if n % 2 else "\n") for n in range(12_000))
    new = "".join(f"other {n % 7}\n" for n in range(12_000))
    assert fit_lines(new, old).replace("\r\n", "\n") == new
    changed = old.replace("\r\n", "\n") + "more\n"
    assert fit_lines(changed, old) == old + "more\r\n"


def test_a_quote_of_a_line_that_a_log_repeats_points_nowhere() -> None:
    assert find_aligned("abcdef " * 12_000 + "zzzzzz", "abcdef … zzzzzz") == []
    assert find_aligned("all tests are green, again\n" * 4_000, "all tests are green again") == []
    assert len(find_aligned("all tests are green, again\n", "all tests are green again")) == 1
