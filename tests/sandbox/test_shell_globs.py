"""A glob is expanded as a shell would, so that a rule for a file holds for every spelling of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.sandbox.shell_globs import GlobReader, may_lead_below


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("[^x]ey.pem", ["key.pem"]),
        ("[!x]ey.pem", ["key.pem"]),
        ("[[:alpha:]]ey.pem", ["key.pem"]),
        ("[^[:digit:]]ey.pem", ["key.pem"]),
        ("[[:alpha:]-]ey.[op]em", ["key.pem"]),
        ("[^k]ey.pem", []),
        ("[a-c]ey.pem", []),
    ],
)
def test_brackets_match_as_in_a_shell(tmp_path: Path, pattern: str, names: list[str]) -> None:
    (tmp_path / "key.pem").write_text("")
    matches = [Path(path).name for path in GlobReader().expand(f"{tmp_path}/{pattern}")]
    assert matches == names


@pytest.mark.parametrize(
    ("pattern", "leads"),
    [
        ("/home/*/.whet/con*/key", True),
        ("/home/**/.w*/confirm", True),
        ("/**/**/u/.whet/*/x", True),
        ("/home/u/*", False),
        ("/home/*/*/confirm", False),
        ("/home/u/**", False),
        ("/home/u/.whet/*.md", False),
    ],
)
def test_whether_a_pattern_may_lead_below_a_path_is_known_without_the_disk(pattern: str, leads: bool) -> None:
    assert may_lead_below(pattern, "/home/u/.whet/confirm") is leads
