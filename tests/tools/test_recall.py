from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.context.talk import Model, engine
from tests.store.support import USAGE, answer, begin_session, finish, new_log, reply_and_end, result, user
from tests.support import FixedClock
from tests.tools.running import context, find_tool
from whet.context import rows as chat
from whet.contract.errors import BadInput
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, from_dict, to_dict
from whet.contract.tools import ToolOutput
from whet.store import compactions
from whet.store.database import StateDatabase
from whet.store.transcript import Transcript, TurnRecord
from whet.tools.recall import PAGE_CHARS
from whet.tools.toolsets.session import RecallTools


@pytest.fixture
def db(tmp_path: Path, clock: FixedClock) -> Iterator[StateDatabase]:
    database = StateDatabase.open(tmp_path / "state.db", clock)
    yield database
    database.close()


async def recall(db: StateDatabase, **arguments: Any):
    tool = find_tool(RecallTools(db), "recall")
    return await tool.run(context(Path("."), session_id="s1"), arguments)


async def read_pages(db: StateDatabase, ref: str) -> list[str]:
    """Read a reference and what each page says is more, to the end."""
    pages: list[str] = []
    while ref:
        pages.append((await recall(db, ref=ref)).text)
        assert len(pages[-1]) <= PAGE_CHARS
        go_on = re.search(r"\[more: recall ref=(.+)\]$", pages[-1])
        ref = go_on[1] if go_on else ""
    return pages


async def work(log: Transcript, turn: TurnRecord, name: str, result: str, **arguments: Any) -> None:
    """One step with one call."""
    call = ToolCall(f"c{log.session.id}{time.monotonic_ns()}", name, msgspec.json.encode(arguments).decode())
    await log.append_reply(turn, Message("assistant", "", tool_calls=(call,)), USAGE, "m")
    (open_call,) = log.open_calls(turn)
    await log.store_call_start(turn, open_call, "rule")
    await finish(log, turn, open_call, result)
    log.live.fold_results()


async def test_words_find_a_result_with_its_call_and_never_an_earlier_recall(
    db: StateDatabase, clock: FixedClock
):
    log, turn = await begin_session(db, clock, "deploy it")
    await work(log, turn, "terminal", "noise " * 900 + "the deploy port is 8123", command="make deploy")
    await work(log, turn, "recall", "[#3] the deploy port is 8123", query="deploy port")
    await work(log, turn, "recall", "again", query="deploy port")
    other = await new_log(db, clock, "s2")
    second = await other.begin_turn(user("the deploy port is 9999"))
    await other.end_turn(second, "answered", "")
    text = (await recall(db, query="deploy port")).text
    await log.end_turn(turn, "answered", "")
    assert "the deploy port is 8123" in text
    assert '[#3 result of terminal {"command":"make deploy"} (called in #2)]' in text
    assert "recall {" not in text and "9999" not in text


async def test_the_three_best_finds_are_shown_at_length_and_the_others_in_short(
    db: StateDatabase, clock: FixedClock
):
    log, turn = await begin_session(db, clock, "go")
    for number in range(12):
        await log.append_reply(turn, answer(f"zebra {number} " + "stripe " * 400), USAGE, "m")
    await log.end_turn(turn, "answered", "")
    for limit, count in ((2, 2), (1, 1), (0, 1)):
        assert (await recall(db, query="zebra", limit=limit)).text.count("[#") == count
    text = (await recall(db, query="zebra", limit=30)).text
    assert len(text) <= PAGE_CHARS
    sizes = [len(part) for part in text.split("[#") if "zebra" in part]
    assert [size > 1_500 for size in sizes] == [True] * 3 + [False] * 5
    assert all(400 < size < 700 for size in sizes[3:])


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (0, 9, "whole"),
        (0, 1_595, "whole"),
        (0, 1_596, "zebra" + "y" * 1_595 + "…"),
        (534, 2_000, "…" + "x" * 532 + " zebra" + "y" * 1_062 + "…"),
        (2_000, 0, "…" + "x" * 1_594 + " zebra"),
    ],
)
async def test_a_find_is_shown_with_what_surrounds_it(
    db: StateDatabase, clock: FixedClock, before: int, after: int, shown: str
):
    whole = ("x" * before + " " if before else "") + "zebra" + "y" * after
    log = await new_log(db, clock)
    await log.begin_turn(user(whole))
    text = (await recall(db, query="zebra*" if after else "zebra")).text
    log.close()
    shown = whole if shown == "whole" else shown
    assert text == f"[#1 user] {shown}\n[to read one whole: recall ref=#number]"


async def test_a_reference_reads_messages_and_pages_through_long_ones(db: StateDatabase, clock: FixedClock):
    body = "".join(f"<{number}>" for number in range(5_000))
    log, turn = await begin_session(db, clock, "read it")
    await work(log, turn, "read_file", body, path="big.txt")
    await reply_and_end(log, turn, "It counts.")
    pages = await read_pages(db, "#1-4")
    assert len(pages) == 5
    assert pages[0].startswith("[#1 user] read it\n[#2 assistant] \n  calls read_file")
    assert pages[-1].endswith("[#4 assistant] It counts.")
    pieces = [re.sub(r"^\[#3 result[^\n]*\n", "", re.sub(r"\n\[more.*$", "", page)) for page in pages[1:]]
    assert "".join(pieces).split("\n[#4")[0] == body


async def test_an_image_comes_back(db: StateDatabase, clock: FixedClock):
    log = await new_log(db, clock)
    picture = Message("user", (TextPart("look"), ImagePart("image/png", "AAAA")))
    turn = await log.begin_turn(picture)
    await log.end_turn(turn, "answered", "")
    output = await recall(db, ref="#1")
    assert [image.data_base64 for image in output.images] == ["AAAA"]


async def test_no_more_than_thirty_finds_are_given(db: StateDatabase, clock: FixedClock):
    log, turn = await begin_session(db, clock, "go")
    for number in range(31):
        await log.append_reply(turn, answer(f"lion {number}"), USAGE, "m")
    await log.end_turn(turn, "answered", "")
    rows = (await recall(db, query="lion", limit=99)).text.splitlines()
    assert len(rows) == 31, "with the last line, that says how to go on"


async def test_a_page_of_the_trail_ends_with_a_message_that_the_next_one_shows(
    db: StateDatabase, clock: FixedClock
):
    log, turn = await begin_session(db, clock, "go")
    for letters in ("a", "bcdefghijklmnopqrstuvwxyz", "ABC"):
        paths = [letter * (21 if letter == "u" else 400) for letter in letters]
        await work(log, turn, "read_file", "x", paths=paths)
    refs = ("files", "files before #5", "files before #4")
    first, second, third = [(await recall(db, ref=ref)).text for ref in refs]
    await log.end_turn(turn, "answered", "")
    shown = ["".join(re.findall(r"- read (\w)", text)) for text in (first, second)]
    assert shown == ["ABCbcdefghijklmnopq", "bcdefghijklmnopqrst"]
    assert first.endswith("\n[more: recall ref=files before #5]")
    assert second.endswith("\n[more: recall ref=files before #4]")
    assert third == f"- read {'a' * 400} [#2]"


async def test_the_trail_tells_how_commands_ended_in_short(db: StateDatabase, clock: FixedClock):
    log, turn = await begin_session(db, clock, "go")
    call = ToolCall("c1", "terminal", msgspec.json.encode({"command": f"echo  {'x' * 400}\nfalse"}).decode())
    await log.append_reply(turn, Message("assistant", "", tool_calls=(call,)), USAGE, "m")
    (opened,) = log.open_calls(turn)
    await log.store_call_start(turn, opened, "rule")
    failed = msgspec.structs.replace(result(opened, "x"), is_error=True)
    await log.store_call_result(turn, opened, failed, output=ToolOutput("x", "exit", 3), duration_s=0.25)
    log.live.fold_results()
    commands, whole = (await recall(db, ref="commands")).text, (await recall(db, ref="#3")).text
    await log.end_turn(turn, "answered", "")
    assert commands == f"- command echo {'x' * 394}… → exit 3 [#2]"
    assert whole.startswith("[#3 result of terminal {") and whole.endswith("… (called in #2), failed]\nx")


@pytest.mark.slow
async def test_the_trail_lists_everything_newest_first_in_pages(db: StateDatabase, clock: FixedClock):
    log, turn = await begin_session(db, clock, "go")
    for number in range(400):
        await work(log, turn, "read_file", "x", path=f"src/folder/of/the/module/file{number}.py")
    await work(log, turn, "terminal", "done", command="make all")
    await work(log, turn, "web_fetch", "page", url="https://example.org/")
    await log.end_turn(turn, "answered", "")
    numbers = re.findall(r"- read \S+/file(\d+)\.py", "\n".join(await read_pages(db, "files")))
    assert [int(number) for number in numbers] == list(range(399, -1, -1))
    assert "- command make all [#802]" in (await recall(db, ref="commands")).text
    assert "https://example.org/" in (await recall(db, ref="urls")).text


async def test_bad_references_say_how_they_are_written(db: StateDatabase, clock: FixedClock):
    log = await new_log(db, clock)
    await log.begin_turn(user("hello"))
    for ref in ("nonsense", "#9-2", "-"):
        with pytest.raises(BadInput):
            await recall(db, ref=ref)
    with pytest.raises(BadInput):
        await recall(db, query=" ?! ")
    for ref in ("#0", "#77", "#5-99999999999"):
        assert "no messages" in (await recall(db, ref=ref)).text
    assert "No files" in (await recall(db, ref="files before #1")).text
    assert "Nothing found" in (await recall(db, query="absent")).text
    log.close()


def as_rows(log: Transcript) -> list[dict[str, Any]]:
    """The live list as a host hands it to an engine."""
    return [
        {**to_dict(message), **({"_seq": seq} if seq else {})}
        for message, seq in zip(log.messages, log.live.seqs, strict=True)
    ]


@pytest.mark.slow
async def test_after_ten_compactions_every_fact_and_path_comes_back_by_one_call(
    db: StateDatabase, clock: FixedClock
):
    compressor = engine(Model())

    async def compact(log: Transcript, turn: TurnRecord) -> None:
        rows = as_rows(log)
        by_id = {id(row): message for row, message in zip(rows, log.messages, strict=True)}
        compacted = compressor.compress(rows, force=True)
        assert compacted is not rows
        kept = [by_id.get(id(row)) or from_dict(row) for row in compacted]
        await compactions.record(log, turn, kept, "compressor", chat.estimate(rows), chat.estimate(compacted))

    log = await new_log(db, clock)
    for round_ in range(10):
        turn = await log.begin_turn(user(f"Round {round_}: go through the next files of the project."))
        for number in range(round_ * 20, round_ * 20 + 20):
            fact = f"noise {number} " * 40 + f"\nfact{number} is value{number * 7919}\n" + "noise " * 80
            await work(log, turn, "read_file", fact, path=f"src/part{round_}/f{number}.py")
        await log.append_reply(turn, answer(f"Round {round_} is done. " + "It went well. " * 60), USAGE, "m")
        await compact(log, turn)
        await log.end_turn(turn, "answered", "")
    for number in range(200):
        assert f"value{number * 7919}\n" in (await recall(db, query=f"fact{number}")).text
    paths = set(re.findall(r"src/part\d/f\d+\.py", "\n".join(await read_pages(db, "files"))))
    reopened = await Transcript.open(db, "s1", clock)
    assert len(paths) == 200
    assert len(log.messages) < 60
    assert [m.text for m in reopened.messages] == [m.text for m in log.messages]
    assert compressor.compression_count == 10


async def test_what_is_asked_in_this_turn_comes_after_what_answers_it(db: StateDatabase, clock: FixedClock):
    log, turn = await begin_session(db, clock, "the deploy port of the harbour is 8123")
    await reply_and_end(log, turn, "Noted.")
    turn = await log.begin_turn(user("which deploy port of the harbour did we choose?"))
    text = (await recall(db, query="deploy port of the harbour")).text
    await log.end_turn(turn, "answered", "")
    assert text.startswith("[#1 user] the deploy port of the harbour is 8123")
    assert "[#3 user]" in text
