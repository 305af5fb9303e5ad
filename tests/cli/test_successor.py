"""The reviews of a question run in a fork of the process that answered it, or in `whet worker`."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.review.independent import Vendor, answer

pytestmark = pytest.mark.slow

CORRECTION = "No, builds of this project go through ./ship --dry first."


def ask(
    vendor: Vendor, root: Path, question: str, *arguments: str, inherited: int = -1
) -> subprocess.CompletedProcess[str]:
    server = ["--provider", "acme", "--base-url", vendor.base_url, "--model", "acme-1"]
    keys = ["--api-key-env", "ACME_API_KEY"]
    environment = {
        **os.environ,
        "ACME_API_KEY": "acme-key-one",
        "WHET_HOME": str(root / "home"),
        "WHET_REVIEW_WORKER": "auto",
    }
    command = [sys.executable, "-m", "whet", "chat", "-q", question, *arguments, *server, *keys, "--yes"]
    more = [inherited] if inherited >= 0 else []
    return subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False, pass_fds=more
    )


def workers_of(home: Path) -> list[tuple[str, str]]:
    """Return the command lines and outputs of the processes of a home that have left their session."""
    rows: list[tuple[str, str]] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            if os.fsencode(f"WHET_HOME={home}") in variables and os.getsid(int(process.name)) == int(
                process.name
            ):
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                rows.append((words, os.readlink(process / "fd" / "1")))
        except OSError:
            continue
    return rows


def test_a_review_runs_in_a_fork_that_outlives_the_answer_and_keeps_none_of_its_descriptors(
    tmp_path: Path,
) -> None:
    has_answer, has_ended = threading.Event(), threading.Event()
    workers: list[tuple[str, str]] = []

    def mind(body: dict[str, Any]) -> dict[str, Any]:
        users = [row["content"] for row in body["messages"] if row["role"] == "user"]
        if users[-1].startswith("Self-improvement review") and not workers:
            has_answer.wait(60)
            workers.extend(workers_of(tmp_path / "home"))
            has_ended.set()
        return answer(body)

    vendor = Vendor(mind=mind)
    try:
        assert ask(vendor, tmp_path, "Build it").stdout == "I ran make.\n"
        reader, writer = os.pipe()
        done = ask(vendor, tmp_path, CORRECTION, "--continue", inherited=writer)
        os.close(writer)
        assert select.select([reader], [], [], 0)[0] and not os.read(reader, 1), "no writer is left"
        os.close(reader)
        has_answer.set()  # the process has ended and closed its pipes while the review waits for its model
        assert (done.returncode, done.stdout) == (0, "Noted.\n")
        assert has_ended.wait(60)
        log = tmp_path / "home" / "logs" / "worker.log"
        assert [(f"chat -q {CORRECTION}" in words, output) for words, output in workers] == [(True, str(log))]
        environment = {**os.environ, "WHET_HOME": str(tmp_path / "home"), "ACME_API_KEY": "acme-key-one"}
        drain = [sys.executable, "-m", "whet", "worker", "--drain", "--patience", "60"]
        subprocess.run(drain, cwd=tmp_path, env=environment, check=True, capture_output=True)
    finally:
        vendor.stop()


@pytest.mark.parametrize("busy_with", ["nothing", "a thread", "a file"])
def test_a_process_with_a_thread_or_an_open_file_starts_a_worker_instead_of_forking(
    tmp_path: Path, busy_with: str
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/started\n')
    program.chmod(0o755)
    code = f"""
import sys, threading
from pathlib import Path
from whet.cli.successor import continue_as_worker
from whet.config.paths import Home
sys.executable, end = {str(program)!r}, threading.Event()
if {busy_with!r} == "a thread":
    threading.Thread(target=end.wait).start()
file = open("/dev/null") if {busy_with!r} == "a file" else None
print("written before")
continue_as_worker(Home(Path({str(tmp_path / "home")!r})))
end.set()
print("and after")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "written before\nand after\n"
    starts = busy_with != "nothing"
    deadline = time.monotonic() + 60
    while starts and not (tmp_path / "started").exists() and time.monotonic() < deadline:
        os.sched_yield()
    assert (tmp_path / "started").exists() == starts
