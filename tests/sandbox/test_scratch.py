"""What a session's private folders leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from whet.sandbox.scratch import Scratch, remove_abandoned

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
