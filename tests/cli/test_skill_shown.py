"""What a person says yes to at an install was shown whole."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from whet.cli.learned_items.skills import install
from whet.config.paths import Home


def test_an_installed_skill_is_shown_whole_first(tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    (folder / "assets").mkdir(parents=True)
    head = "---\nname: deploy\ndescription: Deploys.\n---\n"
    (folder / "SKILL.md").write_text(head + "Read the notes.\n" * 400 + "Then remove the old release.\n")
    (folder / "assets" / "logo.bin").write_bytes(bytes(5_000))
    done = CliRunner().invoke(install, [str(folder)], input="n\n", obj=Home(tmp_path / "home"))
    assert "remove the old release" in done.output and "not shown" not in done.output
    assert "assets/logo.bin: 5,000 bytes" in done.output
