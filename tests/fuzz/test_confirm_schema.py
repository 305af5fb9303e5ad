"""schemathesis against the described API, for ten minutes: no answer of class 5xx.

It is no dependency: it gets an environment of its own, as the benchmarks' peers do, where pip can install it.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from benchmarks.peers import python_of

from tests.confirm.process import Served

SECONDS = 600


def run_once(python: Path, served: Served, admin: str, seed: int) -> None:
    """One run as an admin, who gets furthest; raises where an answer was of class 5xx."""
    command = [
        str(python), "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{served.port}/openapi.json",
        "--header", f"Authorization: Bearer {admin}", "--checks", "not_a_server_error",
        "--exclude-path", "/events", "--max-examples", "100", "--mode", "all", "--seed", str(seed),
        "--request-timeout", "10", "--suppress-health-check", "all", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_generated_requests_for_ten_minutes_never_break_the_service(tmp_path):
    try:
        python = python_of("schemathesis")
    except subprocess.CalledProcessError:
        pytest.skip("schemathesis can't be installed here")
    ends = time.monotonic() + SECONDS
    with Served(tmp_path, "--rate-limit", "1000000") as served:
        seed, admin = 1, served.make_admin()
        while time.monotonic() < ends:
            run_once(python, served, admin, seed)
            seed += 1
        metrics = served.call("GET", "/metrics")[1]["text"]
    print(f"{seed - 1} runs; {[line for line in metrics.splitlines() if 'responses_total{' in line]}")
    assert 'status="5' not in metrics
