"""What a person says yes to at an install was shown whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from whet.cli.learned_items.skills import install, list_, show
from whet.config.paths import Home
from whet.contract.errors import WhetError


def test_an_installed_skill_is_shown_whole_first(tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    (folder / "assets").mkdir(parents=True)
    head = "---\nname: deploy\ndescription: Deploys.\n---\n"
    (folder / "SKILL.md").write_text(head + "Read the notes.\n" * 400 + "Then remove the old release.\n")
    (folder / "assets" / "logo.bin").write_bytes(bytes(5_000))
    done = CliRunner().invoke(install, [str(folder)], input="n\n", obj=Home(tmp_path / "home"))
    assert "remove the old release" in done.output and "not shown" not in done.output
    assert "assets/logo.bin: 5,000 bytes" in done.output


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_skill_that_can_not_be_loaded_is_listed_and_shown_with_the_reason(
    tmp_path: Path, is_indexed: bool
) -> None:
    """Of a home with many skills the index is read."""
    home = Home(tmp_path / "home")
    more = [f"filler-{number}" for number in range(40)] if is_indexed else []
    for name in ("Bad_Name", "linked", "many", "large", "fine", *more):
        (home.skills / name).mkdir(parents=True)
        (home.skills / name / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Deploys.\n---\nDo it.\n"
        )
    (home.skills / "linked" / "a").symlink_to(tmp_path)
    for number in range(200):
        (home.skills / "many" / f"{number}.txt").touch()
    (home.skills / "large" / "a.bin").write_bytes(bytes(5_100_000))
    reasons = {
        "Bad_Name": "'Bad_Name' is not a skill name",
        "linked": "linked/a is a symbolic link",
        "many": "many has more than 200 files",
        "large": "large is larger than 5 MB",
    }
    for _ in range(2):
        listed = CliRunner().invoke(list_, ["--json"], obj=home)
        rows = {row["name"]: row["problem"] for row in json.loads(listed.output)["skills"]}
        assert {name: problem for name, problem in rows.items() if problem} == reasons and rows["fine"] == ""
    for name, reason in reasons.items():
        error = CliRunner().invoke(show, [name], obj=home).exception
        assert isinstance(error, WhetError) and error.message == f"The skill {name} can't be used: {reason}"
