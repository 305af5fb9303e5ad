"""Engines that store what they see: each message once, over resumes, kills, cuts and compactions."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import FixedClock
from whet.context.engine_runner import Deadlines, EngineRunner, HostFacts
from whet.context.engines import list_engine_tools
from whet.context.host import EngineHost
from whet.contract.context_engine import ChatRows, ContextEngine
from whet.contract.errors import NotFound
from whet.contract.events import TurnEnd
from whet.contract.messages import Message, Usage
from whet.contract.protocols import ModelInfo
from whet.store.database import StateDatabase
from whet.store.sessions import NewSession
from whet.store.transcript import Transcript

INFO = ModelInfo("p", "m", 8_000, 1_000)


class Ledger:
    """A connection of its own to the engine's file."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, timeout=0.2, check_same_thread=False)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS rows (session TEXT, seq INTEGER, text TEXT, UNIQUE (session, seq))"
        )
        self.connection.commit()


class StoringEngine(ContextEngine):
    """Stores each row once, by the number that the host gives every stored message."""

    def __init__(self, path: Path) -> None:
        self.store = Ledger(path)
        self.moves = Ledger(path)
        self.wants = False
        self.row_cursor = 0  # only the engine sets it
        self._session = ""

    @property
    def name(self) -> str:
        return "storing"

    def on_session_start(self, session_id: str, **_given: Any) -> None:
        self._session = session_id

    def carry_over_new_session_context(self, old_id: str, new_id: str) -> None:
        # As a published engine does it: with nothing to move, the transaction stays open.
        self.moves.connection.execute(
            "UPDATE rows SET session = ? WHERE session = ? || 'x'", (new_id, old_id)
        )

    def on_session_end(self, session_id: str, messages: ChatRows) -> None:
        self._take(messages)

    def should_compress_preflight(self, messages: ChatRows) -> bool:
        self._take(messages)
        return False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return self.wants

    def compress(self, messages: ChatRows, current_tokens: int | None = None) -> ChatRows:
        self._take(messages)
        self.wants = False
        return [{"role": "user", "content": "Summary."}, *messages[-2:]]

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]

    def _take(self, messages: ChatRows) -> None:
        new = [(self._session, row["_seq"], str(row["content"])) for row in messages if "_seq" in row]
        self.store.connection.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?)", new)
        self.store.connection.commit()


class House:
    """A state database and an engine's file, used by one program after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FixedClock()

    def stored(self, session: str = "s") -> list[str]:
        with closing(sqlite3.connect(self.folder / "engine.db")) as db:
            return [row[0] for row in db.execute("SELECT text FROM rows WHERE session = ?", (session,))]

    async def program(
        self,
        turns: Sequence[str],
        *,
        ends: bool = True,
        compacts: bool = False,
        undoes: bool = False,
        by_hand: bool = False,
        makes: type[StoringEngine] = StoringEngine,
    ) -> None:
        """Open the session, take turns, and leave it well or as a kill does."""
        database = StateDatabase.open(self.folder / "state.db", self.clock)
        try:
            log = await Transcript.open(database, "s", self.clock)
        except NotFound:
            log = await Transcript.create(database, NewSession(id="s", conversation_id="c"), self.clock)
        engine = makes(self.folder / "engine.db")
        host = EngineHost(log, EngineRunner.wrap(engine, Deadlines()), HostFacts(lambda: INFO))
        await host.begin()
        await list_engine_tools(host.runner, ())
        for text in turns:
            turn = await log.begin_turn(Message("user", text))
            engine.wants = compacts
            await host.view(log.messages, lambda _event: None)
            await log.append_reply(turn, Message("assistant", f"re {text}"), Usage(), "m")
            await log.end_turn(turn, "answered", "")
            end = TurnEnd(log.session.id, turn.id, "answered", "", 1, Usage(), 0.0)
            await host.turn_ended(end)
        if undoes:
            await log.undo_last_turn()
            await host.view(log.messages, lambda _event: None)
        if by_hand:
            assert await host.compact("", lambda _event: None) == "compacted"
        if ends:
            await host.aclose()
        else:
            host.runner.lane.close()
        database.close()


def said(*texts: str) -> list[str]:
    """Messages of these turns."""
    return [one for text in texts for one in (text, f"re {text}")]


@pytest.mark.slow
async def test_thirteen_programs_two_of_them_killed_store_each_message_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    for number in range(13):
        await house.program([f"t{number}"], ends=number not in (4, 9), compacts=number in (6, 7))
    assert house.stored() == said(*(f"t{number}" for number in range(13)))


async def test_what_a_compaction_by_hand_took_in_is_not_taken_again_after_a_kill(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.program(["a", "b", "c"], ends=False, by_hand=True)
    await house.program(["d"])
    assert house.stored() == said("a", "b", "c", "d")


class AtTurnsEnd(StoringEngine):
    """Takes in what a turn has brought when it is over."""

    def on_turn_complete(self, messages: ChatRows) -> None:
        self._take(messages)


async def test_what_was_taken_in_at_a_turns_end_is_not_taken_in_again_after_a_kill(tmp_path: Path) -> None:
    house = House(tmp_path)
    for text in ("a", "b"):
        await house.program([text], ends=False, makes=AtTurnsEnd)
    assert house.stored() == said("a", "b")


class Counting(StoringEngine):
    """Counts the rows of its list that it has. A session that it has is found again only if the list begins
    with all of it, as hermes-lcm does it."""

    _session, _has, _must_find, _finds_nothing = "", 0, False, False

    def on_session_start(self, session_id: str, **_given: Any) -> None:
        self._session, self._has, self._must_find = session_id, 0, True

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{"name": "grep_rows", "description": "d", "parameters": {"type": "object", "properties": {}}}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **given: Any) -> str:
        self._take(given.get("messages") or [])
        return super().handle_tool_call(name, args, **given)

    def compress(self, messages: ChatRows, current_tokens: int | None = None) -> ChatRows:
        self._take(messages)
        self.wants = False
        short = [{"role": "user", "content": "Summary."}, *messages[-2:]]
        self._has = len(messages if self._finds_nothing else short)
        return messages if self._finds_nothing else short

    def _take(self, messages: ChatRows) -> None:
        texts, connection = [str(row["content"]) for row in messages], self.store.connection
        if self._must_find:
            rows = connection.execute(
                "SELECT text FROM rows WHERE session = ? ORDER BY rowid", (self._session,)
            )
            known = [row[0] for row in rows]
            self._has = len(known) if texts[: len(known)] == known else 0
            self._must_find = False
        new = [(self._session, None, text) for text in texts[self._has :]]
        connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", new)
        connection.commit()
        self._has = len(texts) if new else self._has


class FindsNothing(Counting):
    """Has nothing to compact when it is asked to."""

    _finds_nothing = True


@pytest.mark.parametrize("engine", [Counting, FindsNothing])
async def test_an_engine_that_counts_finds_its_place_again(tmp_path: Path, engine: type[Counting]) -> None:
    house = House(tmp_path)

    long = ["a " * 300, "b " * 300, "c " * 300]
    await house.program(long, makes=Counting, compacts=True)
    for number in range(4):
        await house.program([f"t{number}", f"u{number}"], makes=engine, ends=number != 2)
    await house.program(["x"], makes=engine, compacts=True)
    await house.program(["y"], makes=engine, undoes=True)
    await house.program(["z"], makes=engine)
    story = said(*long, *(f"{letter}{number}" for number in range(4) for letter in "tu"), "x")
    stored = house.stored()
    assert stored[: len(story)] == story and stored[-2:] == said("z")


async def test_the_host_sets_no_count_of_an_engine(tmp_path: Path) -> None:
    """An engine that keeps its rows in memory would find nothing if its count were set after a restart."""
    seen: list[int] = []

    class InMemory(StoringEngine):
        def _take(self, messages: ChatRows) -> None:
            seen.append(self.row_cursor)
            self.row_cursor = len(messages)

    await House(tmp_path).program(["a", "b"], makes=InMemory)
    seen.clear()
    await House(tmp_path).program(["c"], makes=InMemory)
    assert seen[0] == 0


async def test_a_turn_that_was_taken_back_is_not_followed_by_all_before_it_again(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.program(["a", "b", "c"], undoes=True)
    await house.program(["d"])
    stored = house.stored()
    assert stored.count("a") == stored.count("b") == stored.count("d") == stored.count("re d") == 1


def test_an_engine_that_left_a_transaction_open_does_not_lock_itself_out(tmp_path: Path) -> None:
    async def test() -> None:
        clock = FixedClock()
        database = StateDatabase.open(tmp_path / "state.db", clock)
        engine = StoringEngine(tmp_path / "engine.db")
        seat = EngineRunner.wrap(engine, Deadlines())
        hosts: list[EngineHost] = []
        for name in ("s", "t"):
            log = await Transcript.create(database, NewSession(id=name, conversation_id="c"), clock)
            host = EngineHost(log, seat, HostFacts(lambda: INFO))
            await host.begin(hosts[-1] if hosts else None, carry_over=bool(hosts))
            turn = await log.begin_turn(Message("user", f"in {name}"))
            await host.view(log.messages, lambda _event: None)
            await log.append_reply(turn, Message("assistant", f"re in {name}"), Usage(), "m")
            await log.end_turn(turn, "answered", "")
            hosts.append(host)
        assert seat.notices == []
        await hosts[-1].aclose()
        database.close()

    asyncio.run(test())
    house = House(tmp_path)
    assert house.stored("s") == said("in s") and house.stored("t") == said("in t")
    asyncio.run(house.program(["again"]))
    assert house.stored("s") == said("in s", "again"), "it was taken in as far as it was left"


async def test_an_engine_is_told_nothing_of_the_list_of_a_session_ended_before(tmp_path: Path) -> None:
    clock = FixedClock()
    database = StateDatabase.open(tmp_path / "state.db", clock)
    hosts: list[EngineHost] = []
    for name in ("s", "t"):
        log = await Transcript.create(database, NewSession(id=name, conversation_id="c"), clock)
        engine = StoringEngine(tmp_path / "engine.db")
        host = EngineHost(log, EngineRunner.wrap(engine, Deadlines()), HostFacts(lambda: INFO))
        assert await host.begin(hosts[-1] if hosts else None, carry_over=bool(hosts))
        turn = await log.begin_turn(Message("user", f"in {name}"))
        await host.view(log.messages, lambda _event: None)
        await log.end_turn(turn, "answered", "")
        await host.aclose()
        hosts.append(host)
    database.close()
    house = House(tmp_path)
    assert house.stored("s") == ["in s"] and house.stored("t") == ["in t"]
