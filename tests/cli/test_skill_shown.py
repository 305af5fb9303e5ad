"""What a person says yes to at an install was shown whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import invoke
from whet.contract.errors import WhetError


def test_an_installed_skill_is_shown_whole_first(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    (folder / "assets").mkdir(parents=True)
    head = "---\nname: deploy\ndescription: Deploys.\n---\n"
    (folder / "SKILL.md").write_text(head + "Read the notes.\n" * 400 + "Then remove the old release.\n")
    (folder / "assets" / "logo.bin").write_bytes(bytes(5_000))
    done = invoke("skills", "install", str(folder), input="n\n")
    assert "remove the old release" in done.output and "not shown" not in done.output
    assert "assets/logo.bin: 5,000 bytes" in done.output and "Install 1 skill?" in done.output
    assert not (home / "skills/deploy").exists()


@pytest.mark.fast_rows("True")
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_skill_that_can_not_be_loaded_is_listed_and_shown_with_the_reason(
    home: Path, tmp_path: Path, is_indexed: bool
) -> None:
    """Of a home with many skills the index is read."""
    skills = home / "skills"
    more = [f"filler-{number}" for number in range(40)] if is_indexed else []
    for name in ("Bad_Name", "linked", "many", "large", "fine", *more):
        (skills / name).mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: Deploys.\n---\nDo it.\n"
        (skills / name / "SKILL.md").write_text(text)
    (skills / "linked" / "a").symlink_to(tmp_path)
    for number in range(200):
        (skills / "many" / f"{number}.txt").touch()
    (skills / "large" / "a.bin").write_bytes(bytes(5_100_000))
    reasons = {
        "Bad_Name": "'Bad_Name' is not a skill name",
        "linked": "linked/a is a symbolic link",
        "many": "many has more than 200 files",
        "large": "large is larger than 5 MB",
    }
    for _ in range(2):
        listed = invoke("skills", "list", "--json")
        rows = {row["name"]: row["problem"] for row in json.loads(listed.output)["skills"]}
        assert {name: problem for name, problem in rows.items() if problem} == reasons and rows["fine"] == ""
    for name, reason in reasons.items():
        error = invoke("skills", "show", name).exception
        assert isinstance(error, WhetError) and error.message == f"The skill {name} can't be used: {reason}"
