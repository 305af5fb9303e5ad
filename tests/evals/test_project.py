"""The project of the simulated workplace: a real repository, in which the drawn commands print real text."""

from __future__ import annotations

import random
import subprocess

import pytest

from whet.contract.errors import NotFound
from whet_lab.evals.project import draw_commands, write_project

_ALL = 7


@pytest.mark.slow
def test_every_command_prints_what_a_real_project_says(tmp_path):
    write_project(tmp_path)
    commands = draw_commands(random.Random(1), _ALL)
    assert len(set(commands)) == _ALL
    sizes: list[int] = []
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command
        sizes.append(len(done.stdout))
    assert min(sizes) > 300 and sum(sizes) / _ALL > 1_500
    assert "working tree clean" in subprocess.check_output(["git", "status"], cwd=tmp_path, text=True)


def test_without_git_there_is_no_project_and_the_error_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotFound, match="git is not installed"):
        write_project(tmp_path)
