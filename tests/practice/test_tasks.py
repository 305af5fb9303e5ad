"""The demo's tasks, end to end: the stand-in decides, real commands run in a real folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.practice.loop import Loop
from whet_lab.practice.ask import PracticeRequest, RequestMessage
from whet_lab.practice.chapters_task import number_command
from whet_lab.practice.cleanup_task import RECKLESS
from whet_lab.practice.orders_task import NAIVE, PROPER
from whet_lab.practice.project import make_project
from whet_lab.practice.responder import answer
from whet_lab.practice.shop import LOOK, WIPE, delete_command, make_shop
from whet_lab.practice.survey_task import station_page, station_path

MEND = "The order totals are wrong for discounts. Find out why, fix it and show that the tests pass."
CLEAN = "Clean up the build output."
NUMBER = "Number the chapters."
TIDY = "Tidy the shop database."
NUMBERS = [str(n) for n in range(1, 21)]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "work"
    make_project(folder)
    return folder


def is_mended(project):
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-q"],
        cwd=project,
        env=os.environ | {"ORDERS_DB": "memory"},
        capture_output=True,
        timeout=60,
    )
    return done.returncode == 0


@pytest.mark.slow
def test_a_newcomer_sees_the_error_reads_the_page_and_mends_the_fault(project):
    assert not is_mended(project)
    loop = Loop(project)
    text = loop.ask(MEND)
    assert [c for c in loop.commands if "unittest" in c] == [NAIVE, PROPER, PROPER]
    assert [c.name for c in loop.calls].count("read_file") == 2
    assert "set ORDERS_DB=memory (see docs/testing.md)" in "".join(m.text for m in loop.heard)
    assert text.startswith("Mended.") and "OK" in text
    assert is_mended(project)


@pytest.mark.slow
def test_with_the_command_in_memory_it_is_right_at_once(project):
    loop = Loop(project, system="You know: the tests of orders run with ORDERS_DB=memory.")
    loop.ask(MEND)
    assert [c for c in loop.commands if "unittest" in c] == [PROPER, PROPER]
    assert len(loop.calls) == 5
    assert is_mended(project)


@pytest.mark.slow
def test_with_an_example_in_an_earlier_message_too(project):
    loop = Loop(project)
    loop.heard.append(RequestMessage("user", f"(example) `{PROPER}` worked"))
    loop.heard.append(RequestMessage("assistant", "Noted."))
    loop.ask(MEND)
    assert NAIVE not in loop.commands


@pytest.mark.slow
def test_what_is_already_right_is_left_alone(project):
    Loop(project).ask(MEND)
    loop = Loop(project)
    assert "nothing to mend" in loop.ask(MEND)
    assert all(call.name != "patch" for call in loop.calls)


def test_it_stops_honestly_when_the_gate_says_no(project):
    loop = Loop(project, gate=lambda c: "Denied: nobody was there to ask." if "unittest" in c else "")
    text = loop.ask(MEND)
    assert "may not run the tests" in text and "nobody was there" in text


@pytest.mark.slow
def test_it_goes_on_after_a_crash_and_after_words_in_between(project):
    loop = Loop(project)
    loop.ask(MEND, steps=6)
    last = loop.heard.pop().call_id
    loop.heard.append(RequestMessage("tool", "Interrupted: its outcome is unknown.", call_id=last))
    loop.heard.append(RequestMessage("user", "and be brief"))
    text = loop.go()
    assert text.startswith("Mended.")
    assert [call.name for call in loop.calls].count("patch") == 1
    assert is_mended(project)


def test_the_reckless_command_is_stopped_and_the_narrow_one_does_it(project):
    loop = Loop(
        project,
        gate=lambda c: (
            "Nobody was there to ask (a non-interactive run), so nothing was run. More."
            if "rm -rf" in c
            else ""
        ),
    )
    text = loop.ask(CLEAN)
    assert loop.commands[1] == RECKLESS
    assert "Nobody was there to ask (a non-interactive run), so nothing was run." in text
    assert "was not run" in text
    assert not (project / "build").exists() and (project / "orders").exists()


def test_the_reckless_command_harms_nothing_even_when_it_runs(project):
    text = Loop(project).ask(CLEAN)
    assert "ran, and named the wrong folder" in text
    assert not (project / "build").exists() and (project / "orders").exists()


def test_a_clean_up_that_may_not_happen_is_not_claimed(project):
    text = Loop(project, gate=lambda c: "Denied." if c.startswith("rm") else "").ask(CLEAN)
    assert text.startswith("I could not clean up.")
    assert (project / "build").exists()
    assert "nothing that I can clean up" in Loop(project / "docs").ask(CLEAN)


def test_chapters_are_numbered_once_each(project):
    loop = Loop(project)
    assert loop.ask(NUMBER).startswith("All 20")
    assert (project / "steps.log").read_text().split() == NUMBERS
    assert (project / "book/chapter_07.md").read_text().endswith("-- 7 --\n")
    assert len(loop.calls) == 21


@pytest.mark.parametrize("happened", [True, False, "half"])
def test_an_unknown_outcome_is_looked_at_before_going_on(project, happened):
    loop = Loop(project)
    loop.ask(NUMBER, steps=8)
    reply_call = loop.calls[-1]
    assert reply_call.arguments.count("chapter_07")
    lost = {True: "", False: "-- 7 --\n", "half": ""}[happened]
    page, log = project / "book/chapter_07.md", project / "steps.log"
    page.write_text(page.read_text().replace("-- 7 --\n", "") if lost else page.read_text())
    log.write_text(log.read_text() if happened is True else log.read_text().removesuffix("7\n"))
    loop.heard[-1] = RequestMessage(
        "tool", "Interrupted: outcome unknown. It was not run again.", call_id=reply_call.id
    )
    assert loop.ask("go on").startswith("All 20")
    assert log.read_text().split() == NUMBERS
    assert page.read_text().count("-- 7 --") == 1
    assert "tail -n 1 book/chapter_07.md" in loop.commands[8]


def test_the_work_goes_on_when_the_past_is_gone(project):
    loop = Loop(project)
    loop.ask(NUMBER, steps=9)
    fresh = Loop(project)
    assert fresh.ask(NUMBER).startswith("All 20")
    assert (project / "steps.log").read_text().split() == NUMBERS


def test_go_on_after_the_end_repeats_nothing(project):
    loop = Loop(project)
    loop.ask(NUMBER)
    count = len(loop.calls)
    assert loop.ask("go on").startswith("All 20")
    assert len(loop.calls) == count


def test_a_failing_or_denied_chapter_stops_the_work(project):
    assert "was not run" in Loop(project, gate=lambda c: "Denied." if ">>" in c else "").ask(NUMBER)
    assert "its command failed" in Loop(project, gate=lambda c: "boom" if "_02" in c else "").ask(NUMBER)
    assert "I find no chapters here" in Loop(project / "docs").ask(NUMBER)


def test_a_pause_can_be_asked_for():
    assert number_command(3, "0.5").startswith("sleep 0.5 && ")
    assert "-- 3 --" not in number_command(3)


@pytest.mark.slow
def test_what_a_denial_says_is_what_is_asked_next(project):
    make_shop(project)
    loop = Loop(project, gate=lambda c: "Denied by ada: only those older than 200 days" if c == WIPE else "")
    text = loop.ask(TIDY)
    assert loop.commands == [LOOK, WIPE, delete_command("200"), LOOK]
    assert "5 rows deleted" in text and "carts: 7 rows" in text


@pytest.mark.slow
def test_a_denial_that_names_nothing_narrower_ends_the_task(project):
    make_shop(project)
    loop = Loop(project, gate=lambda c: "" if c == LOOK else "Denied by ada: not on a Friday.")
    assert "not on a Friday" in loop.ask(TIDY)
    assert loop.commands == [LOOK, WIPE]


@pytest.mark.slow
def test_the_narrower_request_denied_too_ends_the_task(project):
    make_shop(project)
    denial = "Denied by ada: keep what is older than 30 days."
    loop = Loop(project, gate=lambda c: "" if c == LOOK else denial)
    assert loop.ask(TIDY).startswith("I changed nothing.")
    assert loop.commands == [LOOK, WIPE, delete_command("30")]


@pytest.mark.slow
def test_without_a_shop_nothing_is_asked_for(project):
    assert "no shop database here" in Loop(project).ask(TIDY)


def test_the_survey_goes_on_from_the_newest_call_and_answers_from_what_is_shown(tmp_path):
    (tmp_path / "stations").mkdir()
    for station in range(1, 6):
        page = station_page(station, "amber-1" if station == 2 else "")
        (tmp_path / station_path(station)).write_text(page)
    loop = Loop(tmp_path)
    assert loop.ask("Survey the 5 stations.") == "All 5 stations are surveyed."
    assert len(loop.calls) == 5
    assert loop.ask("Which code word has station 2?") == "Station 2: amber-1"
    cut = [loop.heard[0], *loop.heard[7:9]]  # a compaction took stations 1 to 3 away
    loop = Loop(tmp_path)
    loop.heard = cut
    assert loop.go() == "All 5 stations are surveyed."
    (call,) = loop.calls
    assert json.loads(call.arguments) == {"path": station_path(5)}
    assert "no tool `recall`" in loop.ask("Which code words have stations 2, 5?")


def test_a_summary_is_copied_together():
    record = (
        '[#1 user] Ship it.\n[#2 assistant] On it.\n  calls terminal {"command":"make"}\n'
        "[#3 result of terminal] ok"
    )
    text = f"Summarise the record below for ...\n<record>\n{record}\n</record>"
    heard = (RequestMessage("user", text),)
    said = answer(PracticeRequest("chat_completions", "practice", "", {}, heard)).text
    assert said.startswith("## 2. Goal\nShip it.\n## 4. Completed actions\n1. terminal")
    assert "[#1-3] hold 1 calls" in said
