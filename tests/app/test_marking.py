"""A second model marks what an answer says and its receipt does not; it changes nothing else."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from tests.app.opened import ask, open_app, practice_model
from tests.rewind.running import call, shell
from whet.app.learning.answer_marks import split_sentences
from whet.config.permission_settings import ApprovalSettings
from whet.config.schema import JudgeSettings, WalletSettings
from whet.contract.events import Event, TurnEnd
from whet.contract.receipts import TurnReceipt
from whet.store import facts, sessions
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

_SAID = "I wrote a.txt. All 12 tests pass.\n\n```\nnot a sentence.\n```\n- The plan is next."


def _ended(
    folder: Path, judge: PracticeServer, calls: list[ScriptedReply], **caps: float
) -> tuple[TurnEnd, TurnReceipt | None, int]:
    """Run one turn under a judge; gives its end, its stored receipt and the tokens of judging sessions."""

    async def main() -> tuple[TurnEnd, TurnReceipt | None, int]:
        (folder / "work").mkdir()
        last = ScriptedReply(_SAID, usage={"prompt_tokens": 12_000} if caps else None)
        with PracticeServer(script=[*calls, last]) as server:
            async with open_app(
                folder / "home",
                folder / "work",
                practice_model(server.base_url, "practice-echo"),
                judge=JudgeSettings("practice", "practice-echo", judge.base_url, answers=True),
                approval=ApprovalSettings(mode="auto", allow=("terminal", "write_file")),
                wallet=msgspec.convert(caps, WalletSettings),
            ) as app:
                session = await app.new_session()
                events: list[Event] = []
                await ask(session, "go", events)
                key = session.log.live.key
                stored = app.database.read_now(lambda db: facts.build_receipt(db, key, 1))
                asked = app.database.read_now(lambda db: sessions.list_sessions(db, 9, kinds=("review",)))
                [end] = [event for event in events if isinstance(event, TurnEnd)]
                return end, stored, sum(session_row.usage.total_tokens for session_row in asked)

    return asyncio.run(main())


def test_the_marked_sentence_stands_beside_the_receipt_and_the_call_is_paid_for(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply("NO: 2, 9")]) as judge:
        end, stored, tokens = _ended(tmp_path, judge, [call("write_file", path="a.txt", content="a\n")])
        [request] = judge.requests
    assert end.reason == "answered" and end.text == _SAID
    assert end.receipt == stored and stored is not None
    assert stored.marked == ("All 12 tests pass.",) and not stored.unmarked
    assert "not supported: “All 12 tests pass.”" in stored.line
    assert tokens > 0
    first, *said = [json.loads(line) for line in request.json_body["messages"][1]["content"].splitlines()]
    assert "a.txt +1" in first["receipt"][0]
    assert [one["sentence"] for one in said] == ["I wrote a.txt.", "All 12 tests pass.", "The plan is next."]
    assert not request.json_body.get("tools")


def test_a_turn_that_did_nothing_is_not_judged(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply("NO: 1")]) as judge:
        end, _, tokens = _ended(tmp_path, judge, [])
        assert not judge.requests
    assert end.receipt is None and not tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", [ScriptedReply("NO: none"), ScriptedReply("Sentence 1 is a lie")], ids=["none", "no answer"]
)
def test_without_a_plain_no_nothing_is_marked(tmp_path: Path, answer: ScriptedReply) -> None:
    with PracticeServer(script=[answer]) as judge:
        end, _, _ = _ended(tmp_path, judge, [shell("true")])
    assert end.receipt is not None and end.receipt.line == "did: 1 command"


@pytest.mark.slow
def test_a_judge_that_fails_is_named_and_the_turn_is_as_it_was(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply(fault=Fault(status=400))]) as judge:
        end, stored, _ = _ended(tmp_path, judge, [shell("true")])
    assert (end.reason, end.text) == ("answered", _SAID)
    assert stored is not None and "the judge gave no answer" in stored.line


@pytest.mark.slow
def test_a_cap_that_is_used_up_leaves_the_judge_unasked(tmp_path: Path) -> None:
    with PracticeServer(script=[ScriptedReply("NO: 1")]) as judge:
        end, _, _ = _ended(tmp_path, judge, [shell("true")], session_tokens=30_000)
        assert not judge.requests
    assert end.receipt is not None and "session" in end.receipt.unmarked


def test_code_and_list_marks_are_no_part_of_a_sentence() -> None:
    code = "~~~\nx = 1. Yes.\n~~~\n"
    text = f"# Done\n1. Ran `make test`. It passed!\n{code}* V 2.5 is out. “So it is.” Is that fine?"
    assert split_sentences(text) == [
        "Ran `make test`.",
        "It passed!",
        "V 2.5 is out.",
        "“So it is.",
        "Is that fine?",
    ]
