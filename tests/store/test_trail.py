from __future__ import annotations

import pytest
from msgspec.json import encode

from tests.store.support import USAGE, begin_session, finish, new_log, reply_and_end, result, talk, user
from tests.support import FixedClock
from whet.contract.errors import NotFound
from whet.contract.messages import Message, ToolCall
from whet.contract.tools import ToolOutput
from whet.store import rows
from whet.store.database import StateDatabase
from whet.store.search import find_call, read_span
from whet.store.trail import TouchedItem, find_touched_items, list_arguments, read_trail


def test_calls_are_understood_by_their_arguments_names():
    diff = "--- a/src/x.py\n+++ b/src/x.py\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/new file.txt\n"
    assert find_touched_items("patch", f'{{"diff": {diff!r}}}'.replace("'", '"')) == [
        TouchedItem("changed", "src/x.py"),
        TouchedItem("changed", "new file.txt"),
    ]
    assert find_touched_items("edit_file", '{"file_path": "a", "content": "b"}') == [
        TouchedItem("changed", "a")
    ]
    assert find_touched_items("view", '{"paths": ["a", "b"]}') == [
        TouchedItem("read", "a"),
        TouchedItem("read", "b"),
    ]
    moved = "rename from old.py\nrename to new.py\n*** Delete File: gone.py\n*** Move File: no.py\n"
    assert [
        touched_item.value
        for touched_item in find_touched_items("apply_patch", encode({"input": moved}).decode())
    ] == [
        "old.py",
        "new.py",
        "gone.py",
    ]
    assert find_touched_items("show", '{"diff": "--- a/x.py"}') == [], "it changes nothing"
    assert find_touched_items("run", '{"cmd": " ls ", "command": ["a\\nb", ["a\\nb"]], "text": "x"}') == [
        TouchedItem("command", "ls"),
        TouchedItem("command", "a\nb"),
    ]
    assert find_touched_items("get", '{"url": "u", "path": ["a\\nb", "  ", " p "]}') == [
        TouchedItem("url", "u"),
        TouchedItem("read", "p"),
    ]
    assert find_touched_items("any", '{"path": 3, "url": null}') == []
    assert find_touched_items("any", "not json") == []
    assert find_touched_items("any", "[1]") == []
    assert find_touched_items("any", "[" * 5_000) == []


async def test_a_sessions_trail_is_read_newest_first_once_each_and_goes_on_below_a_number(
    db: StateDatabase, clock: FixedClock
):
    log, turn = await begin_session(db, clock, "go")
    for path in ("a", "b", "a", "c"):
        call = ToolCall(f"c{log.live.seqs[-1]}", "read_file", f'{{"path": "{path}"}}')
        await log.append_reply(turn, Message("assistant", "", (call,)), USAGE, "m")
        await finish(log, turn, log.open_calls(turn)[0])
        log.live.fold_results()
    await reply_and_end(log, turn, "done")
    kinds = ("read", "changed")
    steps, rest = db.read_now(lambda c: read_trail(c, "s1", kinds, 0, 100))
    assert [(step.seq, step.item.value) for step in steps] == [(8, "c"), (6, "a"), (4, "b")]
    assert rest == 0
    steps, rest = db.read_now(lambda c: read_trail(c, "s1", kinds, 0, 2))
    assert rest == 5
    steps, _ = db.read_now(lambda c: read_trail(c, "s1", kinds, rest, 2))
    assert [step.seq for step in steps] == [4, 2]
    assert db.read_now(lambda c: read_trail(c, "s1", ("url",), 0, 9)) == ([], 0)
    asked = db.read_now(lambda c: find_call(c, "s1", 5))
    assert asked is not None
    assert (asked[0], asked[1].arguments) == (4, '{"path": "b"}')
    assert db.read_now(lambda c: find_call(c, "s1", 4)) is None
    assert [seq for seq, _ in db.read_now(lambda c: read_span(c, "s1", 2, 4))] == [2, 3, 4]
    assert [seq for seq, _ in db.read_now(lambda c: read_span(c, "s1", -5, 10**12, 2))] == [1, 2]
    assert log.live.seqs == list(range(1, 11))
    with pytest.raises(NotFound):
        db.read_now(lambda c: read_trail(c, "nowhere", kinds, 0, 9))


async def test_a_command_of_a_trail_has_its_exit_code_and_of_a_session_beside_it_nothing_is_read(
    db: StateDatabase, clock: FixedClock
):
    log = await new_log(db, clock)
    await talk(db, clock, "s2", "hello")
    turn = await log.begin_turn(user("go"))
    asked = [ToolCall(name, "run", f'{{"command": "{name}"}}') for name in ("one", "two")]
    await log.append_reply(turn, Message("assistant", "", tuple(asked)), USAGE, "m")
    for call, code in zip(log.open_calls(turn), (3, None), strict=True):
        output = ToolOutput("x", exit_code=code)
        await log.store_call_result(turn, call, result(call), output=output, duration_s=1.0)
    await log.end_turn(turn, "answered", "")
    steps, rest = db.read_now(lambda c: read_trail(c, "s1", ("command",), 2, 9))
    assert (steps, rest) == ([], 0), "below the message that asks"
    for before in (0, 3, rows.SEQ_LIMIT, rows.SEQ_LIMIT + 9):
        steps, rest = db.read_now(lambda c, before=before: read_trail(c, "s1", ("command",), before, 9))
        assert [(step.seq, step.item.value, step.exit_code) for step in steps] == [
            (2, "one", 3),
            (2, "two", None),
        ]
    assert db.read_now(lambda c: list_arguments(c, "s1", "run")) == [
        '{"command": "one"}',
        '{"command": "two"}',
    ]
    assert db.read_now(lambda c: list_arguments(c, "s2", "run")) == []
