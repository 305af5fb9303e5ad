"""The second model that reads what a review is about to keep: it can only say no, and is asked once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import apsw
import pytest

from tests.review.rig import LESSON, bench, corrected, does, remember, says, talk
from whet.review.judge import read_refused_numbers
from whet.store import sessions
from whet_lab.practice.endpoints import RecordedRequest
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

TWISTED = remember("The tests never run with ./check --fast.", "the tests run with ./check --fast")
REST = "No, the tests run with ./check --fast in this project."


def reviewed(
    tmp_path: Path, judge: PracticeServer, *, more: Mapping[str, object] | None = None
) -> tuple[str, str, list[int]]:
    """Hold a review with this judge; gives its row's state, what is in memory, and what reviews have used."""
    script = corrected(does(TWISTED), says("Saved."))
    settings = {
        "judge.model": "practice",
        "judge.provider": "practice",
        "judge.base_url": judge.base_url,
        **(more or {}),
    }

    def spent(connection: apsw.Connection) -> list[int]:
        session_rows = sessions.list_sessions(connection, 9, kinds=("review",))
        return [session_row.usage.total_tokens for session_row in session_rows]

    async def main() -> tuple[str, str, list[int]]:
        async with bench(tmp_path, script, settings=settings) as b:
            await talk(b)
            [done] = await b.review()
            assert done.state == "saved", done
            [row] = b.rows()
            memory = b.memory()
            if row.state == "inbox":
                assert "never run" in row.reason
                await b.app.learning.owner_service.accept(row.id)
                assert REST in b.memory()
            return row.state, memory, b.app.database.read_now(spent)

    return asyncio.run(main())


def test_what_the_judge_says_no_to_waits_for_the_person(tmp_path: Path) -> None:
    with PracticeServer(script=[says("NO: 1")]) as judge:
        state, memory, spent = reviewed(tmp_path, judge)
        [asked] = judge.requests
    assert state == "inbox" and REST not in memory
    assert len(spent) == 2 and all(spent), "the judge's tokens are a review's"
    system, user = asked.json_body["messages"]
    item = json.loads(user["content"])
    assert system["role"] == "system" and "say no to" in system["content"]
    assert item["number"] == 1
    assert item["claim"] == "The tests never run with ./check --fast." and REST in item["quotes"]
    assert not asked.json_body.get("tools")


@pytest.mark.fast_rows("failure", "no answer", "zero")
@pytest.mark.parametrize(
    "answer",
    [
        says("NO: none"),
        says("NO: 7"),
        says("NO: 0"),
        does(LESSON),
        says("All 1 of them are fine."),
        ScriptedReply(fault=Fault(status=400)),
    ],
    ids=["none", "no such number", "zero", "a call", "no answer", "failure"],
)
def test_without_a_plain_no_everything_is_as_without_a_judge(tmp_path: Path, answer: ScriptedReply) -> None:
    with PracticeServer(script=[answer] * 3) as judge:
        state, memory, _ = reviewed(tmp_path, judge)
        assert len(judge.requests) == 1
    assert state == "active" and REST in memory
    logs = [line for path in tmp_path.rglob("whet.log") for line in path.read_text().splitlines()]
    why_not = [message for line in logs if "judge gave no answer" in (message := json.loads(line)["message"])]
    assert len(why_not) == (answer.text == "") and not any(one.endswith(": ") for one in why_not)


def test_without_its_key_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with PracticeServer(script=[says("NO: 1")]) as judge:
        state, _, _ = reviewed(tmp_path, judge, more={"judge.api_key_env": "NO_SUCH_KEY"})
        assert not judge.requests
    assert state == "active"


def test_a_judge_whose_question_would_pass_the_days_budget_is_not_asked(tmp_path: Path) -> None:
    def asked(folder: Path, daily_tokens: int) -> tuple[list[RecordedRequest], list[int]]:
        folder.mkdir()
        with PracticeServer(script=[says("NO: none")]) as judge:
            _, _, used = reviewed(folder, judge, more={"review.daily_tokens": daily_tokens})
            return judge.requests, used

    [request], used = asked(tmp_path / "free", 0)
    characters = sum(len(message["content"]) for message in json.loads(request.body)["messages"])
    review = max(used)  # the judge's own use is the other one
    assert len(asked(tmp_path / "fits", review + int(characters / 2.5) + 1)[0]) == 1
    assert not asked(tmp_path / "passes", review + int(characters / 2.5) - 1)[0]


async def test_no_second_model_is_asked_where_none_is_set(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected(does(LESSON), says("Saved."))) as b:
        await talk(b)
        await b.review()
        assert len(b.server.requests) == 3


def test_a_review_that_goes_on_after_its_judge_was_asked_asks_no_second_time(tmp_path: Path) -> None:
    settings = {"judge.model": "practice", "judge.provider": "practice"}
    fails = "CREATE TRIGGER full BEFORE UPDATE OF state ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END"

    async def main(judge: PracticeServer) -> tuple[str, str]:
        more = settings | {"judge.base_url": judge.base_url}
        async with bench(tmp_path, corrected(does(TWISTED), says("Saved.")), settings=more) as b:
            await talk(b)
            b.app.database.write_now(lambda db: db.execute(fails))
            [first] = await b.review()
            b.app.database.write_now(lambda db: db.execute("DROP TRIGGER full"))
            b.app.database.write_now(lambda db: db.execute("UPDATE jobs SET run_after = created"))
            await b.review()
            return first.state, b.rows()[0].state

    with PracticeServer(script=[says("NO: 1"), says("NO: none")]) as judge:
        assert asyncio.run(main(judge)) == ("waiting", "inbox")
        assert len(judge.requests) == 1


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("NO: 1, 12", [1, 12]),
        ("I think 3 is odd.\n**NO:** 2", [2]),
        ("NO: 1\nNo, I read it again.\nNO: 2", [2]),
        ("NO: none", []),
        ("", []),
        ("yes", []),
        ("no: 4", [4]),
    ],
)
def test_only_a_line_that_begins_with_no_counts(answer: str, numbers: list[int]) -> None:
    assert read_refused_numbers(answer) == numbers
