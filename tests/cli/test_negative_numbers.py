"""A negative number on the command line is a value; other words behind a dash are options."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.cli.group import run


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("config set agent.max_steps -3", 1, "agent.max_steps can't be '-3'; allowed: a whole number"),
        ("config set --json agent.max_steps -3", 1, "agent.max_steps can't be '-3'"),
        ("config set model.model -0.5 --json", 0, '"-0.5"'),
        ("config set model.model -.5e3", 0, "model.model = -.5e3"),
        ("config get -1", 1, "-1 is not a setting"),
        ("config set agent.max_steps -x", 2, "No such option '-x'"),
        ("config set agent.max_steps --3", 2, "No such option '--3'"),
    ],
)
def test_a_negative_number_is_a_value(
    line: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WHET_HOME", str(tmp_path))
    assert run(line.split()) == code
    printed = capfd.readouterr()
    assert message in printed.out + printed.err
