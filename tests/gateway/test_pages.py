"""The conversations on the gateway's pages are what the gateway says today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_recorded_conversations_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "conversations.py"), "--check"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
