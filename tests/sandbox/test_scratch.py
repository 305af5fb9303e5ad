"""What a session's private folders take, and leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.sandbox.engines import ENGINES, EngineCase
from tests.sandbox.jails import run
from whet.sandbox.jail import Jail
from whet.sandbox.scratch import Scratch, remove_abandoned
from whet.sandbox.setup import JailPlan
from whet.sandbox.system_folders import default_policy

pytestmark = pytest.mark.slow_rows("Landlock-with-namespaces")

KILLED = """
import os
from whet.sandbox.scratch import Scratch
scratch = Scratch()
(scratch.tmp / "large").write_text("x")
print(scratch.root, flush=True)
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_program_left_goes_when_the_next_one_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = subprocess.run([sys.executable, "-c", KILLED], env=environ, capture_output=True, text=True)
    left, other = Path(killed.stdout.strip()), Scratch()
    assert (left / "tmp" / "large").exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "whet-jail-link").symlink_to(elsewhere)
    (tmp_path / "whet-jail-file").touch()
    remove_abandoned()
    assert left.exists(), "it could be one that was made this moment"
    long_ago = time.time() - 120
    for path in tmp_path.iterdir():
        os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    fresh = Scratch()
    fresh.close()
    fresh.close()
    assert left.exists(), "a session's end looks at nothing but its own"
    remove_abandoned()
    names = {"elsewhere", "whet-jail-link", "whet-jail-file", other.root.name}
    assert {path.name for path in tmp_path.iterdir()} == names
    other.close()


@pytest.mark.parametrize("case", ENGINES, ids=str)
def test_a_command_may_create_files_in_the_private_home(
    case: EngineCase, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # below no temporary folder, which is private as a whole
    folder = tempfile.TemporaryDirectory(prefix=".h-", dir=Path(__file__).parent)
    request.addfinalizer(folder.cleanup)
    home = Path(folder.name)
    workspace, whet = home / "proj", home / ".whet"
    workspace.mkdir()
    whet.mkdir()
    (whet / "state.db").write_text("kept back")
    (home / "notes").write_text("kept back")
    monkeypatch.setenv("HOME", str(home))
    scratch = Scratch()
    jail = Jail(JailPlan(case.engine(), default_policy(workspace, whet, os.environ), scratch, home))
    try:
        code, printed = run(jail, "mkdir -p ~/.cache/x && touch ~/.cache/x/y ~/f && ls -A ~/.cache/x")
        assert (code, printed) == (0, "y\n")
        hidden = f"cat {whet}/state.db {home}/notes; echo x > {home}/notes; echo x > {whet}/state.db"
        assert "kept back" not in run(jail, hidden)[1]
    finally:
        jail.close()
        scratch.close()
    assert sorted(path.name for path in home.iterdir()) == [".whet", "notes", "proj"]
    assert (home / "notes").read_text() == (whet / "state.db").read_text() == "kept back"
