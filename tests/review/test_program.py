"""Reviews as a person meets them: after a one-shot, in the chat, and by command; with any vendor's server."""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import Tty, flags
from tests.review.independent import FACT, Vendor
from tests.review.rig import LESSON, SAID, corrected, does, remember, says
from tests.stories.program import Program
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.slow

CORRECTION = "No, builds of this project go through ./ship --dry first."


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    server = Vendor()
    yield server
    server.stop()


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until another process has brought it about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        select.select([], [], [], 0.02)


def test_after_a_one_shot_with_any_vendor_at_real_latency_it_is_applied_exactly_once(
    tmp_path: Path, vendor: Vendor
) -> None:
    """No special case for the practice model: the server is another, and so is the provider's name."""
    vendor.latency_s = 0.5
    acme = [
        "--provider",
        "acme",
        "--base-url",
        vendor.base_url,
        "--model",
        "acme-1",
        "--api-key-env",
        "ACME_API_KEY",
    ]
    environ = {"ACME_API_KEY": "acme-key-one", "ACME_API_KEY_2": "acme-key-two", "WHET_REVIEW_WORKER": "auto"}
    program = Program(tmp_path, environ=environ)
    assert program.run("chat", "-q", "Build it", *acme, "--yes").out == "I ran make.\n"
    assert program.run("worker", "--drain").code == 0, "nothing is queued, and no provider is configured"
    row = program.run("chat", "-q", CORRECTION, "--continue", "--json", *acme, "--yes").row
    assert len(row["review"]["queued"]) == 1
    memory = program.home / "memories" / "MEMORY.md"
    until(memory.exists)  # the job is done before its files are written
    done = json.loads(program.run("review", "list", "--json").out)["reviews"][0]
    assert done["state"] == "done" and done["id"] == row["review"]["queued"][0]
    assert done["summary"] == "Self-improvement review: Memory updated (1 quote)"
    assert (done["reasons"], done["session_id"]) == (["correction"], row["session_id"])
    assert memory.read_text().count(FACT) == 1
    assert json.loads(program.run("worker", "--drain", "--json").out) == {"reviews": [], "runs": []}
    assert len(vendor.seen) == 3, "the review ends once its lesson is taken"
    (parent_headers, parent), (headers, review) = vendor.seen[1:3]
    assert review.startswith(parent.rstrip(b"]}"))
    assert headers["authorization"] == parent_headers["authorization"] == "Bearer acme-key-one"


def test_the_commands_tell_what_happened_and_decide_on_what_waits(tmp_path: Path) -> None:
    two = remember("The host for deploys is stg-2.", "the host for deploys is stg-2")
    script = [*corrected(), says("Noted."), does(LESSON, two), says("Two."), says("Nothing new.")]
    with PracticeServer(script=script) as server:
        program = Program(tmp_path, server, environ={"WHET_REVIEW_WRITES": "ask"})
        assert program.run("review", "list").out.startswith("No reviews yet.")
        assert program.run("review", "inbox").out == "Nothing waits for you.\n"
        program.run("review", "run", "--session", "x").assert_error("no sessions yet")
        session_id = program.ask("Run the tests").row["session_id"]
        program.ask(SAID, "--continue")
        program.ask("Remember that the host for deploys is stg-2.", "--continue")
        run = program.run("review", "run", "--session", session_id[:14], "--focus", "hosts", "--json")
        assert run.code == 0 and json.loads(run.out)["summary"].endswith("2 wait for you: whet review inbox")
        rows = json.loads(program.run("review", "inbox", "--json").out)["inbox"]
        assert [row["state"] for row in rows] == ["inbox", "inbox"]
        ids = sorted(row["id"] for row in rows)
        assert "stg-2" in program.run("review", "inbox").out
        unseen = program.run("review", "accept", str(ids[0]))
        digest = unseen.err.split()[-1]
        accepted = program.run("review", "accept", str(ids[0]), "--digest", digest)
        assert accepted.err == "", accepted.err
        assert accepted.out == f"{ids[0]}  memory memory: in force\n"
        assert "dropped" in program.run("review", "reject", str(ids[1])).out
        memory = (program.home / "memories" / "MEMORY.md").read_text()
        assert "./check --fast" in memory and "stg-2" not in memory
        again = program.run("review", "run", "--session", session_id)
        assert again.out == "Self-improvement review: nothing to save\n"
        listed = json.loads(program.run("review", "list", "--json").out)
        assert [row["state"] for row in listed["reviews"]] == ["done", "done"]
        first = listed["reviews"][1]
        assert first["focus"] == "hosts" and first["reasons"] == ["correction", "asked"]
        assert 0 < first["usage"]["cache_hit_ratio"] <= 1 and listed["today"]["review_tokens"] > 0
        shown = program.run("review", "show", first["id"][:12]).out
        assert "because of: correction, asked" in shown and "The bar:" in shown
        narrow = program.run("review", "list", COLUMNS="40").out
        assert all(len(line) <= 40 for line in narrow.splitlines()[:-1]), narrow
        program.run("review", "show", "nope").assert_error("no review")
        program.run("review", "accept", "999").assert_error("no change 999")


def test_in_the_chat_the_summary_waits_until_nothing_is_half_typed(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHET_REVIEW_WORKER", "auto")
    script = corrected(does(LESSON), says("Saved."), says("Nothing more."))
    memory = home / "memories" / "MEMORY.md"
    with (
        PracticeServer(script=script) as server,
        Tty(["chat", *flags(server, "practice"), "--yes"], tmp_path) as tty,
    ):
        tty.wait_for("Ctrl-D quits")
        tty.type("Run the tests\r", "I ran pytest.")
        tty.type(f"{SAID}\r", "learning from this turn (memory, skill)")
        tty.type("half a wo")
        until(memory.exists)
        with pytest.raises(AssertionError):  # not in the middle of typing
            tty.wait_for("Memory updated", timeout_s=1.0)
        tty.type("\x15/refine the tests\r", "Self-improvement review: Memory updated (1 quote)")
        tty.wait_for("nothing to save")
        assert tty.leave("\x04") == 0


def test_leaving_the_chat_hands_a_running_review_over(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, vendor: Vendor
) -> None:
    monkeypatch.setenv("WHET_REVIEW_WORKER", "auto")
    vendor.latency_s = 0.4
    acme = ["--provider", "acme", "--base-url", vendor.base_url, "--model", "acme-1"]
    with Tty(["chat", *acme, "--yes"], tmp_path) as tty:
        tty.wait_for("Ctrl-D quits")
        tty.type("Build it\r", "I ran make.")
        tty.type(f"{CORRECTION}\r", "learning from this turn")
        assert tty.leave("\x04") == 0
    memory = home / "memories" / "MEMORY.md"
    until(lambda: memory.exists() and FACT in memory.read_text())
    assert memory.read_text().count(FACT) == 1
