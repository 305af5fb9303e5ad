"""The demo's main story: a bug fixed, a danger stopped, a kill survived, an error found again, all measured.

Each part announces an event, lets it happen, and checks each claim on files, database and recorded
requests.
"""

from __future__ import annotations

import difflib
import re
import signal
import time
from pathlib import Path

from whet.contract.events import ApprovalDecided, Event, TextDelta
from whet.terminal import output
from whet.terminal.wording import clip
from whet_lab.demo import facts
from whet_lab.demo.run import DemoRun, is_start_of
from whet_lab.demo.world import SeenRequest
from whet_lab.practice.project import CHAPTERS

_FIX_TASK = "The order totals are wrong for discounts. Find out why, fix it and show that the tests pass."
_CLEAN_TASK = "Clean up the build output."
_NUMBER_TASK = "Number the chapters. (pause 0.1 s)"
_SOURCE = "orders/price.py"
_KILL_IN_STEP = 8
_COMMAND_OUTLIVES_AGENT_S = 0.25
_CHAPTER_LINE = re.compile(rf"Chapter \d+ of {CHAPTERS}\.")


def run_chapter(run: DemoRun) -> None:
    """Run the whole story."""
    _introduce(run)
    session_id = _fix_bug(run)
    _stop_danger(run)
    _survive_kill(run)
    _search_error(run, session_id)
    _measure(run)


def _introduce(run: DemoRun) -> None:
    stage = run.stage
    stage.title("whet demo")
    stage.say(
        "The model in this demo is the practice model: a scripted stand-in, not a language model. It says "
        "what a small script tells it to say. Everything else is real: the HTTP requests, the tools, the "
        "files, the SQLite database, the processes, and the kill."
    )
    stage.say(f"All of it happens in {run.world.folder}. No key, no network.")


def _fix_bug(run: DemoRun) -> str:
    stage, source = run.stage, run.world.project / _SOURCE
    stage.title("1  A real task, a real failure")
    stage.say(
        "A small project has a wrong sum. The agent does not know how its tests are run. Watch it fail, read "
        "the error, and find the way."
    )
    before = source.read_text("utf-8")
    turn = run.chat(["-q", _FIX_TASK])
    after = source.read_text("utf-8")
    diff = list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), _SOURCE, _SOURCE, "", "", 0, "")
    )
    code, test_output = run.world.run(["python3", "-m", "unittest", "-q"], extra={"ORDERS_DB": "memory"})
    stage.say("The file on disk changed by this:")
    stage.block("\n".join(diff[2:]), diff=True)
    stage.say("And the demo runs the tests itself, without the agent:")
    stage.block("\n".join(line for line in test_output.splitlines() if line.strip("- "))[-200:])
    failed = [call for call in turn.calls if call.error_kind == "exit"]
    run.check_turn("mended", turn)
    run.check("error_seen", bool(failed) and "set ORDERS_DB=memory" in failed[0].preview)
    run.check("file_changed", before != after, _SOURCE)
    run.check("tests_pass", code == 0 and "OK" in test_output, clip(test_output, 200))
    run.conclude(
        f"What you just saw: {len(turn.calls)} tool calls, {len(failed)} of them failed. Each failure went "
        "back to the model with its exit code and its output, and the next step answered it. The lines above "
        "are those of the chat: what ran, how it ended, how long it took."
    )
    return turn.end.session_id if turn.end else ""


def _stop_danger(run: DemoRun) -> None:
    stage, project = run.stage, run.world.project
    stage.title("2  A dangerous command meets the gate")
    stage.say(
        "Next a harmless wish. The practice model is made to begin with a mistake: it wants to delete a "
        "folder in the home folder. Nobody sits at this run who could allow that."
    )
    others = {path for path in project.rglob("*") if "build" not in path.parts}
    turn = run.chat(["-q", _CLEAN_TASK])
    denials = [
        event for event in turn.events if isinstance(event, ApprovalDecided) and event.verdict == "deny"
    ]
    has_notice = any("Nobody was there to ask" in request.body for request in run.world.requests())
    run.check_turn("cleaned", turn)
    run.check("danger_denied", [denial.decided_by for denial in denials] == ["nobody"])
    run.check("model_told_the_truth", has_notice)
    run.check(
        "build_gone_and_nothing_else",
        not (project / "build").exists() and all(path.exists() for path in others),
    )
    run.conclude(
        "What you just saw: the command was taken apart, found dangerous, and not run. The model was told "
        "the truth, that nobody was there to ask. It then named the files one by one, which needs no "
        "question. At a terminal, Whet asks you: once, for the session, always, or no."
    )


def _survive_kill(run: DemoRun) -> None:
    stage, log = run.stage, run.world.project / "steps.log"
    stage.title("3  kill -9 in the middle of the work")
    stage.say(
        f"Now {CHAPTERS} steps, each of which may happen only once. While step {_KILL_IN_STEP} runs, the "
        "demo sends the agent SIGKILL: no goodbye, no clean-up."
    )
    page = f">> book/chapter_{_KILL_IN_STEP:02d}.md"
    first = run.chat(
        ["-q", _NUMBER_TASK],
        pace=0.0,
        shows=_is_worth_showing,
        kill_at=lambda event: is_start_of(event, page),
    )
    finished = [call.preview.strip() for call in first.calls if call.preview.startswith("--")]
    # The running command may outlive the agent by its pause; it must not write while the next one reads.
    time.sleep(_COMMAND_OUTLIVES_AGENT_S)
    stage.command(f"kill -9 {first.pid}")
    stage.say(
        f"The agent is dead (exit {first.exit_code}). steps.log has {len(_read_words(log))} lines. Go on:"
    )
    request_count = len(run.world.requests())
    second = run.chat(["--continue", "-q", "go on"], pace=0.3, shows=_is_worth_showing)
    run.check_turn("went_on", second)
    in_the_middle = first.exit_code == -signal.SIGKILL and _KILL_IN_STEP - 1 <= len(finished) < CHAPTERS
    run.check("killed_in_mid_step", in_the_middle, f"exit {first.exit_code}, {len(finished)} steps finished")
    results = [
        text
        for request in run.world.requests()[request_count : request_count + 1]
        for text in _read_results(request)
    ]
    run.check("finished_steps_in_next_request", bool(finished) and set(finished) <= set(results))
    _check_steps(run, log)
    run.conclude(
        f"What you just saw: all {len(finished)} finished steps stood in the first request after the kill. "
        "The one in flight was not run again blindly: the model was told “outcome unknown” and looked first. "
        f"steps.log now has 1 to {CHAPTERS}, each exactly once."
    )


def _check_steps(run: DemoRun, log: Path) -> None:
    """Count in the files how often each step happened."""
    numbers = [str(number) for number in range(1, CHAPTERS + 1)]
    run.check("each_step_once_in_log", _read_words(log) == numbers, " ".join(_read_words(log)))
    pages = sorted((log.parent / "book").iterdir())
    labels = [re.findall(r"^-- (\d+) --$", page.read_text("utf-8"), re.M) for page in pages]
    run.check("each_chapter_numbered_once", labels == [[number] for number in numbers])


def _read_words(path: Path) -> list[str]:
    return path.read_text("utf-8").split() if path.exists() else []


def _search_error(run: DemoRun, session_id: str) -> None:
    stage = run.stage
    stage.title("4  Found again")
    stage.say("Everything that was said or printed can be searched, the error of part 1 as well:")
    arguments = ["sessions", "search", "RuntimeError", "--limit", "1"]
    code, hits = run.whet(*arguments)
    run.check("found_by_search", code == 0 and bool(session_id) and session_id in hits, clip(hits, 200))
    run.conclude(
        "What you just saw: the hit is the error itself, in its session. The agent has the same search."
    )


def _measure(run: DemoRun) -> None:
    stage = run.stage
    stage.title("5  What was measured")
    requests = run.world.requests()
    sums = facts.read_sums(run.world)
    cost = facts.measure_overhead(run.world)
    run.check("no_call_without_result", sums.calls_without_result == 0, str(sums.calls_without_result))
    counts = run.check_requests(requests)
    run.measured |= {
        "requests": len(requests),
        "stored": sums,
        "prefixes": counts,
        "overhead": cost,
        "wall_s": run.wall_s,
    }
    stage.write("\n")
    stage.table(
        [
            ("sessions, turns", f"{sums.sessions}, {sums.turns}"),
            ("steps stored", _steps_text(sums.steps, len(requests))),
            ("tool calls", f"{sums.calls_ok} ok, {sums.calls_failed} failed, {sums.calls_denied} denied, "
             f"{sums.calls_interrupted} cut off by the kill"),
            ("prompt tokens", f"{sums.prompt_tokens:,}, {sums.cache_hit_ratio:.1%} of them read from the "
             "prompt cache (simulated by the practice server)"),
            ("stable prefix", f"{counts.held} of {counts.pairs} requests begin with every byte of the one "
             "before"),
            ("overhead", f"{cost.cpu_ms_per_call:.1f} ms CPU for a model call with its tool, stored durably "
             f"({cost.model_calls} calls, nothing drawn)"),
            ("on disk", output.size(sums.size_bytes)),
            ("wall time", f"{run.wall_s:.0f} s, pauses for reading included"),
        ]
    )  # fmt: skip


def _is_worth_showing(event: Event) -> bool:
    return not (isinstance(event, TextDelta) and _CHAPTER_LINE.fullmatch(event.text.strip()))


def _read_results(request: SeenRequest) -> list[str]:
    """Return the texts of the tool results in a request."""
    messages = facts.read_messages(request)
    return [str(message["content"]).strip() for message in messages if message["role"] == "tool"]


def _steps_text(stored: int, requests: int) -> str:
    return (
        f"{stored}, each from its own model request"
        if stored == requests
        else f"{stored} of {requests} asked"
    )
