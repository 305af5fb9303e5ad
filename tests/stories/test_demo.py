"""`whet demo` shows what it claims, leaves nothing behind, and says so when something does not hold."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Tty

pytestmark = pytest.mark.slow

_DEMO = [sys.executable, "-m", "whet", "demo"]
_CHECKS = {
    "mended", "error_seen", "file_changed", "tests_pass", "cleaned", "danger_denied", "model_told_the_truth",
    "build_gone_and_nothing_else", "killed_in_mid_step", "went_on", "finished_steps_in_next_request",
    "each_step_once_in_log", "each_chapter_numbered_once", "found_by_search", "no_call_without_result",
    "every_request_valid", "each_request_prefix_of_next",
}  # fmt: skip
_CONFIRM_CHECKS = {
    "deny_accepted", "approve_accepted", "tidied", "wipe_asked_then_narrower", "page_shows_each_request",
    "nothing_ran_while_it_waited", "denial_read_by_the_model", "only_old_carts_gone", "ran_exactly_once",
    "recorded_as_decided", "decided_by_the_script", "consumed_and_executed_once", "one_byte_differs",
    "altered_log_found", "untouched_log_verifies", "five_ways_refused", "still_pending", "forged_vote_found",
    "every_request_valid", "each_request_prefix_of_next",
}  # fmt: skip


_SANDBOX_CHECKS = {
    "server_hears", "answered", "every_deed_tried", "home_and_whet_untouched", "nothing_was_sent",
    "key_in_no_request", "diff_names_the_file", "file_was_spoiled", "file_is_back",
}  # fmt: skip


@pytest.fixture
def place(tmp_path):
    """A folder with everything that the demo could write to: a home, a place for temporary files, a cwd."""
    for name in ("home", "tmp", "cwd"):
        (tmp_path / name).mkdir()
    return tmp_path


def environment(path: Path) -> dict[str, str]:
    values = {name: value for name, value in os.environ.items() if name != "WHET_HOME"}
    values["PYTHONPATH"] = os.pathsep.join(
        str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "src").split(os.pathsep)
    )
    # A variable of the person's that must not reach the demo's processes.
    values |= {"HOME": str(path / "home"), "TMPDIR": str(path / "tmp"), "WHET_MODEL_MODEL": "gpt-none"}
    return values | {"PYTHONDONTWRITEBYTECODE": "1"}


def demo(path: Path, *options: str, timeout: float = 300, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the demo in the place, without a terminal."""
    return subprocess.run(
        [*_DEMO, *options],
        cwd=path / "cwd",
        env=environment(path) | environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Read what the demo checked; each check holds."""
    report = json.loads(done.stdout)
    assert [check for check in report["checks"] if not check["ok"]] == []
    return report


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_every_check_of_the_story_holds_and_nothing_is_left(place):
    done = demo(place, "--json")
    report = report_of(done)
    assert {check["name"] for check in report["checks"]} == _CHECKS
    assert (done.returncode, report["ok"], done.stderr) == (0, True, "")
    measured = report["measured"]
    stored = measured["stored"]
    assert (stored["sessions"], stored["turns"], stored["calls_denied"]) == (3, 3, 1)
    assert stored["calls_interrupted"] == 1 and stored["steps"] <= measured["requests"]
    assert stored["cache_hit_ratio"] > 0.8
    # Of a session's requests each but the first has one before it.
    assert measured["prefixes"]["held"] == measured["requests"] - stored["sessions"]
    assert 0 < measured["overhead"]["cpu_ms_per_call"] < 100
    assert files_below(place) == ["cwd", "home", "tmp"]


@pytest.mark.soak
def test_a_kept_folder_holds_the_mended_project(place):
    done = demo(place, "--speed", "fast", "--keep", COLUMNS="40", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert "scripted stand-in, not a language model" in " ".join(done.stdout.split())
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "/" not in line) <= 40
    folder = Path(done.stdout.strip().splitlines()[-1].removeprefix("Kept: "))
    assert folder.parent == (place / "tmp").resolve()
    assert "+ 50) // 100" in (folder / "orders/orders/price.py").read_text()
    assert (folder / "orders/steps.log").read_text().split() == [str(n) for n in range(1, 21)]
    assert files_below(place / "home") == [] and files_below(place / "cwd") == []


def test_the_confirmation_chapter_denies_approves_and_finds_the_altered_byte(place):
    done = demo(place, "--chapter", "confirm", "--json", "--keep")
    report = report_of(done)
    names = {check["name"] for check in report["checks"]}
    assert names == _CONFIRM_CHECKS
    assert (done.returncode, report["ok"], done.stderr) == (0, True, "")
    rows = report["measured"]["confirmations"]
    decided = [(row["action"], row["status"], row["execution"]) for row in rows]
    assert decided == [
        ("wipe_database", "denied", ""),
        ("delete_data", "approved", "executed"),
        ("wipe_database", "cancelled", ""),  # the one that it tried to approve itself
    ]
    folder = Path(report["folder"])
    with closing(sqlite3.connect(folder / "orders" / "shop.db")) as shop:
        changes = shop.execute("SELECT what, rows FROM changes").fetchall()
    assert changes == [("delete carts older than 90 days", 9)]
    with closing(sqlite3.connect(folder / "service" / "confirmations.db")) as log:
        decisions = log.execute("SELECT principal FROM events WHERE kind = 'decided'").fetchall()
    assert decisions == [("scripted-approver",)] * 2
    assert (folder / "home" / ".env").stat().st_mode & 0o777 == 0o600
    assert files_below(place / "home") == [] and files_below(place / "cwd") == []


def test_the_goals_chapter_catches_a_liar_survives_a_kill_and_holds_a_cap(place):
    done = demo(place, "--chapter", "goals", "--json")
    report = report_of(done)
    names = {check["name"] for check in report["checks"]}
    assert {"edited_check_refused", "no_round_twice", "ended_by_the_cap"} < names


def test_the_sandbox_chapter_runs_a_hostile_makefile_and_nothing_leaves(place):
    done = demo(place, "--chapter", "sandbox", "--json", "--keep")
    report = report_of(done)
    names = {check["name"] for check in report["checks"]}
    if report["measured"]["engine"] == "none":
        assert "refused_where_nothing_holds" in names and "file_is_back" not in names
    else:
        assert names == _SANDBOX_CHECKS
    assert (done.returncode, report["ok"], report["measured"]["heard"], done.stderr) == (0, True, 0, "")
    folder = Path(report["folder"])
    assert "rm -rf" in (folder / "orders" / "Makefile").read_text()
    assert (folder / "orders" / "book" / "chapter_03.md").read_text().startswith("# ")
    assert (folder / "me" / ".ssh" / "id_ed25519").read_text().startswith("-----KEY")
    assert files_below(place / "home") == [] and files_below(place / "cwd") == []


SOAKED = [pytest.param(number, marks=pytest.mark.soak) for number in (signal.SIGINT, signal.SIGHUP)]


@pytest.mark.parametrize("number", [signal.SIGTERM, *SOAKED])
def test_a_signal_ends_the_demo_its_children_and_its_folder(place, number):
    with Tty(["demo", "--speed", "fast"], place / "cwd", environ=environment(place)) as terminal:
        terminal.wait_for("book/chapter_03.md")
        children = descendants(terminal.pid)
        assert children
        os.kill(terminal.pid, number)
        assert terminal.wait_for_end() == 128 + number
    assert files_below(place / "tmp") == []
    # A command of the agent's is killed with it, but its entry stays until somebody has waited for it.
    deadline = time.monotonic() + 30
    while alive := [pid for pid in children if state(pid) not in ("", "Z")]:
        assert time.monotonic() < deadline, alive
        os.sched_yield()


def state(pid: int) -> str:
    """The state of a process, Z for one that is dead and not waited for, empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def descendants(pid: int) -> list[int]:
    """The processes below `pid`; empty where there is no /proc."""
    numbers: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            child = int(stat.parent.name)
            numbers += [child, *descendants(child)]
    return numbers


@pytest.mark.soak
def test_the_context_chapter_answers_every_fact_from_two_thousand_messages(place):
    done = demo(place, "--chapter", "context", "--json", timeout=900)
    data = json.loads(done.stdout)
    assert done.returncode == 0 and data["ok"], done.stderr
    context = data["measured"]["context"]
    assert context["messages"] > 2_000 and context["facts"] == context["answered"] == 20
    assert context["largest_prompt_tokens"] <= 8_000 and context["compactions"] >= 10
