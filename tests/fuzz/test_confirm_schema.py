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


def run(python: Path, served: Served, seconds: int) -> str:
    """Generate calls for so long, as an admin, who gets furthest; gives what was printed."""
    settings = served.folder / "schemathesis.toml"
    settings.write_text('[parameters]\n"query.wait" = 0.05\n')  # or it would wait for minutes, as it should
    command = [
        str(python), "-m", "schemathesis.cli", "--config-file", str(settings), "run", f"http://127.0.0.1:{served.port}/openapi.json",
        "--header", f"Authorization: Bearer {served.make_admin()}", "--checks", "not_a_server_error",
        "--exclude-path", "/events", "--mode", "all", "--max-time", str(seconds), "--request-timeout", "10",
        "--suppress-health-check", "all", "--continue-on-failure", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=served.folder, capture_output=True, text=True, timeout=seconds + 300, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_generated_requests_for_ten_minutes_never_break_the_service(tmp_path):
    try:
        python = python_of("schemathesis")
    except subprocess.CalledProcessError:
        pytest.skip("schemathesis can't be installed here")
    with Served(tmp_path, "--rate-limit", "1000000") as served:
        began = time.monotonic()
        text = run(python, served, SECONDS)
        metrics = served.call("GET", "/metrics")[1]["text"]
    answers = [line for line in metrics.splitlines() if "http_responses_total{" in line]
    print(text[-1500:], *answers, f"{time.monotonic() - began:.0f} s", sep="\n")
    assert not [line for line in answers if 'status="5' in line]
