from __future__ import annotations

import asyncio
import json

import pytest

from tests.store.support import USAGE, asking, begin_session, finish, new_log, reply_and_end, user
from whet.contract.errors import NotFound
from whet.store import export

pytestmark = pytest.mark.slow_rows("postgres")

KEY = "sk-abcdefghijklmnopqrstuvwx"


def lines(db, function):
    return db.read_now(lambda c: list(function(c, "s1")))


@pytest.fixture
def session(db, clock):
    async def main():
        log = await new_log(db, clock, title="A title", system_prompt="Be brief", model="m")
        turn = await log.begin_turn(user(f"use {KEY} please"))
        await log.append_reply(turn, asking("terminal"), USAGE, "m")
        await finish(log, turn, log.open_calls(turn)[0], f"ok\n```\n{KEY}\n```\n")
        await reply_and_end(log, turn, "Done.")
        undone = await log.begin_turn(user("never mind"))
        await log.end_turn(undone, "answered", "")
        await log.undo_last_turn()

    asyncio.run(main())


def test_json_lines_are_chat_dicts_after_the_meta(db, session):
    meta, *messages = [json.loads(line) for line in lines(db, export.as_jsonl)]
    assert meta["meta"]["id"] == "s1" and meta["meta"]["system_prompt"] == "Be brief"
    assert [m["role"] for m in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["tool_calls"][0]["function"] == {"name": "terminal", "arguments": '{"x": 1}'}
    assert messages[2]["tool_call_id"] == "call_0"
    assert KEY not in json.dumps(messages) and "[REDACTED]" in messages[0]["content"]


def test_markdown_reads_like_a_conversation(db, session):
    text = "".join(lines(db, export.as_markdown))
    assert text.startswith("# A title\n") and "- Model: m" in text
    assert text.index("## You") < text.index("Call of `terminal`") < text.index("## Assistant\n\nDone.")
    assert "````\nok\n```\n[REDACTED]\n```\n\n````" in text
    assert KEY not in text and "never mind" not in text


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("look:\n```py\nx", "look:\n```py\nx\n```"),
        ("~~~~\n~~~\n```", "~~~~\n~~~\n```\n~~~~"),
        ("- a\n  ```\n  x\n", "- a\n  ```\n  x\n  ```"),
        ("```\nx\n```", "```\nx\n```"),
        ("``` `a` is inline", "``` `a` is inline"),
    ],
)
async def test_a_code_fence_of_a_message_ends_with_it(db, clock, text, closed):
    log, _ = await begin_session(db, clock, text)
    log.close()
    assert lines(db, export.as_markdown)[-1] == f"## You\n\n{closed}\n\n"


@pytest.mark.parametrize(
    ("text", "fence"),
    [("plain", "```"), ("`a` ``b``", "```"), ("```\nx\n```", "````"), ("a ````` ``", "``````")],
)
async def test_a_result_stands_in_a_fence_that_nothing_in_it_closes(db, clock, text, fence):
    log, turn = await begin_session(db, clock, "go")
    await log.append_reply(turn, asking("terminal"), USAGE, "m")
    await finish(log, turn, log.open_calls(turn)[0], text)
    log.close()
    assert lines(db, export.as_markdown)[-1] == f"Result of `terminal`:\n\n{fence}\n{text}\n{fence}\n\n"


@pytest.mark.parametrize("function", [export.as_jsonl, export.as_markdown])
def test_an_unknown_session_is_not_found(db, function):
    with pytest.raises(NotFound):
        lines(db, function)
