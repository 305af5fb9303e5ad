"""What `whet confirm serve` and `policy check` print when something is not as expected."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.confirm.test_clients import whet


@pytest.mark.slow
def test_a_service_with_a_token_from_before_says_that_it_makes_no_first_ones(tmp_path):
    assert whet(tmp_path, "token", "create", "--role", "audit", "--name", "ci").code == 0
    command = [sys.executable, "-m", "whet", "confirm", "serve", "--port", "0", "--web-port", "-1"]
    environ = {**os.environ, "WHET_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environ, text=True, stdout=-1, stderr=-1) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline().startswith("confirmation service: ")
        line = program.stderr.readline()
        program.terminate()
        program.communicate(timeout=30)
    assert line == "no submit.token and approve.token: tokens exist already; whet confirm token list\n"


def test_a_broken_policy_does_not_hint_at_the_check_itself(tmp_path):
    (tmp_path / "bad.toml").write_text('[[rules]]\neffect="perhaps"\n')
    broken = whet(tmp_path, "policy", "check", str(tmp_path / "bad.toml"))
    assert broken.code == 1 and "policy check" not in broken.err and "hint: change that rule" in broken.err
