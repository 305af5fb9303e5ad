"""The command that adds an extra fits the way in which this program was installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from whet.channels.loading import missing_extra
from whet.extras import install_command

DIRECTORY = '{ name = "whet-agent", directory = "/srv/whet" }'
WITH_EXTRAS = '{ name = "whet-agent", extras = ["team", "acp"], editable = "/srv/whet" }'
GIT = '{ name = "whet-agent", git = "https://git.example/whet" }'


@pytest.mark.parametrize(
    ("requirement", "command"),
    [
        (DIRECTORY, "uv tool install --force '/srv/whet[slack]'"),
        (WITH_EXTRAS, "uv tool install --force '/srv/whet[acp,slack,team]'"),
        (GIT, "uv tool install --force 'whet-agent[slack] @ git+https://git.example/whet'"),
        ('{ name = "whet-agent" }', "uv tool install --force 'whet-agent[slack]'"),
        ('{ name = "other" }', "pip install 'whet-agent[slack]'"),
    ],
)
def test_a_tool_of_uv_is_installed_again_with_all_its_extras(
    requirement: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "uv-receipt.toml").write_text(f"[tool]\nrequirements = [{requirement}]\n")
    assert install_command("slack") == command
    assert command in str(missing_extra("wsproto", "slack"))


def test_another_environment_is_extended_by_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command("acp") == "pip install 'whet-agent[acp]'"
