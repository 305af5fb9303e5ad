"""Every command has a line for its main job, and does that job in a plain installation (`make installed`)."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.installed import test_extras, test_plain
from tests.installed.jobs import ELSEWHERE, JOBS
from tests.installed.program import ROOT, Installed
from whet.cli.command_table import COMMANDS

TASKS = "tasks:\n- name: one\n  task: list files\n"


def without_line(commands: list[str]) -> list[str]:
    return [name for name in commands if name not in JOBS and name not in ELSEWHERE]


def test_every_command_has_a_line_for_its_main_job() -> None:
    assert without_line(list(COMMANDS)) == [], "add its main job to tests/installed/jobs.py"
    assert without_line(["chat", "planted"]) == ["planted"]
    assert {*JOBS, *ELSEWHERE} - {*COMMANDS} == set()
    for test in ELSEWHERE.values():
        assert hasattr(test_plain, test) or hasattr(test_extras, test), test


def write_transcript(path: Path) -> None:
    head = {"sessionId": "5a3a1d60-9a7e-4c61-8a39-6f4e0d9b4f11", "cwd": str(path.parent), "version": "2.1.0"}
    user: dict[str, object] = {
        "type": "user",
        "uuid": "a",
        "parentUuid": None,
        "timestamp": "2026-07-01T10:00:00.000Z",
    }
    reply: dict[str, object] = {
        "type": "assistant",
        "uuid": "b",
        "parentUuid": "a",
        "timestamp": "2026-07-01T10:00:01.000Z",
    }
    user["message"] = {"role": "user", "content": "use tabs here"}
    text = [{"type": "text", "text": "I use tabs."}]
    reply["message"] = {"id": "m", "role": "assistant", "model": "large", "content": text}
    path.write_text("".join(json.dumps({**head, **row}) + "\n" for row in (user, reply)), "utf-8")


@pytest.mark.soak
@pytest.mark.parametrize("command", JOBS)
def test_a_command_does_its_main_job(whet: Installed, command: str) -> None:
    home = whet.home / ".whet"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model:\n  provider: practice\napproval:\n  mode: auto\n", "utf-8")
    (whet.work / "tasks.yaml").write_text(TASKS, "utf-8")
    write_transcript(whet.work / "transcript.jsonl")
    values = {"examples": str(ROOT / "examples")}
    for words, pattern in JOBS[command]:
        done = whet.run(*(word.format(**values) for word in shlex.split(words)))
        match = re.search(pattern.replace("{change}", values.get("change", "")), done.stdout)
        assert done.returncode == 0 and match, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        values |= match.groupdict()


@pytest.mark.soak
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_its_help(whet: Installed, command: str) -> None:
    done = whet.run(command, "--help")
    assert done.returncode == 0 and done.stdout.startswith(f"Usage: whet {command}"), done.stderr
