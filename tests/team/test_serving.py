"""A process that serves and a worker, in one process here: turns asked for, heard, steered and answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import InLoop
from tests.team.cluster import Cluster, shared
from whet.app.build import App
from whet.app.conversations.hosted import SessionHost, TurnWrites
from whet.app.conversations.people import PersonRouter
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.config.schema import ModelSettings, ReviewSettings, Settings
from whet.contract.errors import NotFound, WhetError
from whet.contract.events import Event, Notice, TextDelta, TurnEnd
from whet.contract.messages import ImagePart, Usage
from whet.contract.protocols import ApprovalRequest, Reply
from whet.postgres.connection import PostgresConnection, connect
from whet.postgres.driver import lock_number
from whet.postgres.lane import WRITE_LOCK
from whet.serve import team_feed, team_turns
from whet.serve.questions import QuestionReply
from whet.serve.team_feed import TeamFeeds
from whet.serve.team_questions import TeamQuestions, WorkerQuestions
from whet.serve.turns import TurnInput
from whet.serve.wire import ApiError
from whet.store.jobs import QueuedJob
from whet.store.team import TeamDatabase
from whet.team import orders
from whet.team.events import EventWriter
from whet.team.queue import DatabaseQueue, TakenTurn, TurnOptions
from whet_lab.practice.server import PracticeServer

WAIT_S, IMAGE = 30.0, ImagePart("image/png", "aGk=")


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """The address of this module's database; its tests have sessions of their own."""
    cluster: Cluster = shared()
    text = cluster.database()
    yield text
    cluster.drop(text)


@pytest.fixture(scope="module")
def model() -> Iterator[PracticeServer]:
    with PracticeServer() as server:
        yield server


class Worker:
    """Takes turns and says what comes of them, without running any."""

    def __init__(self, database: TeamDatabase) -> None:
        self.database = database
        self.queue = DatabaseQueue(database)
        self.writer = EventWriter(database, pace_s=0.0)

    def take(self) -> TakenTurn:
        (taken,) = self.queue.take("w1", 1)
        return taken

    async def tell(self, taken: TakenTurn, *events: Event | None) -> None:
        for event in events:
            self.writer.enqueue(taken.session_id, event, taken.mark)
        await self.writer.drain()

    async def end(self, taken: TakenTurn, reason: str = "answered", text: str = "done") -> TurnEnd:
        end = TurnEnd(taken.session_id, "t1", reason, text, 2, Usage(total_tokens=7), 0.5)  # type: ignore[arg-type]
        await self.database.write(lambda db: self.queue.end(db, taken, reason, ""))
        await self.tell(taken, end)
        return end


class Serving:
    """What serves, its parts, and the worker beside it."""

    def __init__(self, turns: team_turns.TeamTurns) -> None:
        self.turns = turns
        assert isinstance(turns.feeds, TeamFeeds) and isinstance(turns.questions, TeamQuestions)
        self.feeds: TeamFeeds = turns.feeds
        self.questions: TeamQuestions = turns.questions
        database = turns.hosted.services.database
        assert isinstance(database, TeamDatabase)
        self.database = database
        self.worker = Worker(database)

    async def session(self) -> str:
        return await self.turns.hosted.new_session(title="x", source="api")

    def states(self, session_id: str) -> list[str]:
        return self.database.read_now(lambda db: orders.list_states(db, session_id))


@contextmanager
def other_process(url: str) -> Generator[PostgresConnection]:
    """Yield a connection as another process of the team has it."""
    with closing(connect(url)) as raw:
        yield PostgresConnection(raw, {})


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop run until something holds; the test's own limit ends it."""
    while not holds():
        await asyncio.sleep(0.005)


@pytest.fixture
def there(
    place: str, model: PracticeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> InLoop[Serving]:
    monkeypatch.setenv("WHET_STORE_URL", place)
    settings = Settings(
        model=ModelSettings(provider="practice", base_url=model.base_url, model="practice-echo"),
        review=ReviewSettings(worker="off", turns=0, steps=0, on_correction=False, on_recovery=False),
        sandbox=SandboxSettings(mode="off"),
    )

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Serving]:
        people = PersonRouter()
        work = tmp_path / "work"
        work.mkdir()
        app = await App.start(Home(tmp_path / "home"), settings, {}, people, work, source="api")
        turns = team_turns.TeamTurns(SessionHost(app.sessions, people), SystemClock(), 0.05, 45.0)
        turns.start()
        try:
            serving = Serving(turns)
            async with asyncio.timeout(WAIT_S):
                await serving.database.write(lambda db: db.execute("DELETE FROM team_turns"))
                yield serving
        finally:
            await turns.aclose(0.0)
            await app.aclose()

    return InLoop(opened())


async def test_a_turn_that_was_asked_for_waits_runs_and_ends(there: Serving) -> None:
    turns, session_id = there.turns, await there.session()
    assert not turns.is_busy(session_id) and not turns.is_running(session_id) and turns.running == []
    task = await turns.begin(session_id, TurnInput("do it"))
    assert turns.is_busy(session_id) and not turns.is_running(session_id) and turns.running == []
    taken = there.worker.take()
    assert (taken.session_id, taken.text) == (session_id, "do it")
    assert taken.options == TurnOptions((), 45.0, may_clarify=True)
    assert turns.is_busy(session_id) and turns.is_running(session_id) and turns.running == [session_id]
    assert "\nwhet_turns_running 0\n" in (text := await turns.metrics()) and "whet_queue_waiting" in text
    await there.worker.end(taken)
    assert await task is True
    assert not turns.is_busy(session_id) and not turns.is_running(session_id) and turns.running == []


async def test_a_turn_waits_for_no_other_sessions_transaction(there: Serving, place: str) -> None:
    turns, session_id, other_id = there.turns, await there.session(), await there.session()
    with other_process(place) as other:
        other.begin()
        lock_numbers = WRITE_LOCK, lock_number(other_id)
        other.execute("SELECT pg_advisory_xact_lock_shared(?), pg_advisory_xact_lock(?)", lock_numbers)
        other.receive_results()
        task = await turns.begin(session_id, TurnInput("one"))
        assert there.states(session_id) == ["waiting"]
        assert await turns.cancel(session_id) is True and await task is True
        assert there.states(session_id) == []


async def test_what_is_said_meanwhile_is_refused_given_to_the_turn_or_becomes_one(there: Serving) -> None:
    turns, session_id = there.turns, await there.session()
    first = await turns.begin(session_id, TurnInput("one", busy="steer"))
    with pytest.raises(WhetError, match="a turn is running in this session"):
        await turns.begin(session_id, TurnInput("no", busy="refuse"))
    taken = there.worker.take()
    assert taken.text == "one"
    assert await (await turns.begin(session_id, TurnInput("and this", busy="steer"))) is False
    said, _ = there.database.read_now(lambda db: orders.read_orders(db, {taken.id: 0}))[taken.id]
    assert [text for _, text in said] == ["and this"]
    assert await turns.run(session_id, TurnInput("that", busy="steer"), lambda event: None) is None
    await turns.begin(session_id, TurnInput("seen", (IMAGE,), "steer", is_plain=True))
    await turns.begin(session_id, TurnInput("later"))
    assert there.states(session_id) == ["running", "waiting", "waiting"]
    await there.database.write(lambda db: db.execute("DELETE FROM team_said"))
    await there.worker.end(taken)
    assert await first is True
    seen = there.worker.take()
    assert seen.text == "seen" and seen.options == TurnOptions((IMAGE,), 45.0)
    assert await turns.cancel(session_id) is True
    assert there.database.read_now(lambda db: orders.read_orders(db, {seen.id: 0}))[seen.id].is_cancelled
    assert there.states(session_id) == ["running"]
    await there.worker.end(seen, "cancelled")
    assert await turns.cancel(session_id) is False


async def test_a_turn_is_followed_to_its_end_with_what_is_stored_beside_it(there: Serving) -> None:
    session_id, noted = await there.session(), list[Any]()

    def note(what: object) -> Sequence[QueuedJob]:
        noted.append(what)
        return ()

    writes = TurnWrites(
        lambda db: note("stored"),
        lambda record, reason, text: lambda db: note((record, reason, text)),
        lambda: noted.append("begun"),
    )
    heard: list[Event] = []
    news = asyncio.Event()

    def hear(event: Event) -> None:
        heard.append(event)
        news.set()

    following = asyncio.create_task(there.turns.run(session_id, TurnInput("x", writes=writes), hear))
    await until(lambda: bool(there.states(session_id)))
    taken = there.worker.take()
    await there.worker.tell(taken, TextDelta("a"), None, Notice("b"))
    await news.wait()
    end = await there.worker.end(taken)
    assert await following == end
    assert heard == [TextDelta("a"), Notice("b"), end]
    assert noted[:2] == ["stored", "begun"] and len(noted) == 3
    record, reason, text = noted[2]
    assert (record.id, record.session_id, record.number, record.steps, record.usage) == (
        "t1",
        session_id,
        0,
        2,
        Usage(total_tokens=7),
    )
    assert (reason, text) == ("answered", "done")


@pytest.mark.parametrize("is_ending", [False, True])
async def test_to_stop_following_cancels_the_turn_unless_the_process_ends(
    there: Serving, is_ending: bool
) -> None:
    session_id = await there.session()
    following = asyncio.create_task(there.turns.run(session_id, TurnInput("x"), lambda event: None))
    await until(lambda: bool(there.feeds.followers))
    there.turns.keep(following)
    if is_ending:
        await there.turns.aclose(0.0)
    else:
        following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert there.states(session_id) == (["waiting"] if is_ending else [])
    assert there.feeds.followers == {}


async def test_who_waits_for_a_worker_that_is_not_there_is_told_so_once(
    there: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team_turns, "LOOK_S", 0.02)
    monkeypatch.setattr(team_turns, "NO_WORKER_S", 1e9)

    def ask(heard: list[Event], session_id: str) -> asyncio.Task[TurnEnd | None]:
        return asyncio.create_task(there.turns.run(session_id, TurnInput("x"), heard.append))

    ran, kept, late = list[Event](), list[Event](), list[Event]()
    running = ask(ran, first := await there.session())
    await until(lambda: there.states(first) == ["waiting"])
    taken = there.worker.take()
    monkeypatch.setattr(team_turns, "NO_WORKER_S", 0.05)
    waiting = ask(kept, second := await there.session())
    await until(lambda: bool(kept))
    other = there.worker.take()
    await there.database.write(lambda db: there.worker.queue.leave(db, other, "it has no such folder"))
    slow = ask(late, third := await there.session())
    await until(lambda: bool(late))
    hint, line = "start one that can: whet worker --turns 8", "no worker has room for this turn yet"
    notices = [Notice(f"{line} (place {number} of the queue); {hint}", must_show=True) for number in (1, 2)]
    assert (ran, kept, late) == ([], notices[:1], notices[1:])
    given = [taken, there.worker.take(), there.worker.take()]
    assert [turn.session_id for turn in given] == [first, second, third]
    for turn, task in zip(given, (running, waiting, slow), strict=True):
        assert await there.worker.end(turn) == await task
    monkeypatch.setattr(team_turns, "NO_WORKER_S", 1e9)
    fourth = await there.session()
    again = await there.turns.begin(fourth, TurnInput("no request waits for it"))
    await there.turns.begin(fourth, TurnInput("it waits for that"))
    other = there.worker.take()
    await there.database.write(lambda db: there.worker.queue.leave(db, other, "it has no such folder"))
    monkeypatch.setattr(team_turns, "NO_WORKER_S", 0.05)
    await listened(there.feeds, fourth, "team-0", "no such folder")
    words = [*notices, Notice(f"it has no such folder; {hint}")]
    assert await noted(there, first, second, third, fourth) == [Notice(event.text) for event in words]
    await there.worker.end(there.worker.take())
    await again


# What is kept of a session's events in this process.


async def noted(there: Serving, *session_ids: str) -> list[Notice]:
    """Give the notices that the listeners of sessions hear."""
    await there.feeds.aclose()
    rows = there.database.read_now(
        lambda db: db.execute("SELECT session, body FROM team_events ORDER BY id").fetchall()
    )
    events: list[Event] = [
        msgspec.json.decode(body, type=Event) for name, body in rows if name in session_ids
    ]
    return [event for event in events if isinstance(event, Notice)]


async def listened(feeds: TeamFeeds, session_id: str, last_id: str, until: str) -> list[str]:
    """Give what a listener is sent, up to the event with a text: ids, and "gap"."""
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    data = b""
    listening = feeds.listen(session_id, last_id, gone, lambda: True)
    async for piece in listening:
        data += piece
        if until.encode() in data:
            break
    await listening.aclose()
    rows = data.decode().splitlines()
    return [row.removeprefix("id: ") for row in rows if row.startswith("id: ") or row == "event: gap"]


async def written(there: Serving, session_id: str, *texts: str) -> list[int]:
    """Store an event for each text and give their numbers."""
    for text in texts:
        there.worker.writer.enqueue(session_id, Notice(text))
    await there.worker.writer.drain()
    rows = there.database.read_now(
        lambda db: db.execute(
            "SELECT id FROM team_events WHERE session = ? ORDER BY id", (session_id,)
        ).fetchall()
    )
    return [row[0] for row in rows][-len(texts) :]


async def test_a_listener_goes_on_from_any_event_that_is_still_stored(there: Serving) -> None:
    feeds, text, two = there.feeds, await there.session(), await there.session()
    ids = await written(there, text, "a", "b", "c")
    other = await written(there, two, "elsewhere")
    assert await feeds.position(text) == ids[-1] and await feeds.last_id(text) == f"team-{ids[-1]}"
    assert await feeds.position(await there.session()) == other[-1], "after all that there is"
    shown = [f"team-{id_}" for id_ in ids]
    assert await listened(feeds, text, shown[1], '"c"') == shown[2:]
    assert await listened(feeds, text, shown[0], '"c"') == shown[1:], "earlier ones are read too"
    assert await listened(feeds, text, shown[1], '"c"') == shown[2:]
    feed = feeds.by_session[text]
    assert feeds.size_bytes == feed.size_bytes == len(feed.since(0)[0].partition(b"\n\n")[2])
    await there.database.write(lambda db: db.execute("DELETE FROM team_events WHERE id <= ?", (ids[1],)))
    fresh = TeamFeeds(there.database)
    assert await listened(fresh, text, shown[0], '"c"') == ["event: gap", *shown[2:]]
    assert await listened(TeamFeeds(there.database), text, shown[1], '"c"') == shown[2:]
    await there.database.write(lambda db: db.execute("DELETE FROM team_events"))
    emptied = await TeamFeeds(there.database).find_ready(text, shown[2])
    assert emptied.start == other[-1], "of what came before it nothing is known to be whole"


async def test_what_happens_is_told_to_listeners_followers_and_pages_once(there: Serving) -> None:
    feeds, session_id, heard = there.feeds, await there.session(), list[tuple[str, Event]]()
    taken_ids: list[Event | None] = []
    feeds.listeners.append(lambda name, event: heard.append((name, event)))
    start = await feeds.position(session_id)
    hearing = asyncio.create_task(listened(feeds, session_id, "", '"c"'))
    await until(lambda: session_id in feeds.by_session)
    feeds.follow(session_id, "turn", start, taken_ids.append)
    await there.database.write(
        lambda db: db.execute(
            "INSERT INTO team_events (session, turn, body) VALUES (?, ?, ?)",
            (session_id, "turn", '{"type":"notice","text":"b"}'),
        )
    )
    feeds.add(session_id, Notice("a"))
    feeds.handle_notification("")
    await until(lambda: len(heard) == 2)
    feeds.unfollow("turn")
    feeds.pass_on(session_id, Notice("c"))
    assert len(await hearing) == 3
    await until(lambda: len(heard) == 3)
    assert sorted(event.text for _, event in heard if isinstance(event, Notice)) == ["a", "b", "c"]
    assert {name for name, _ in heard} == {session_id} and taken_ids == [Notice("b")]
    feeds.handle_notification(session_id)
    await until(lambda: feeds.reading is None)
    assert len(heard) == 3, "what was read is told once"


async def test_a_process_reads_on_where_more_is_new_than_it_reads_at_once(
    there: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team_feed, "MAX_READ", 2)
    monkeypatch.setattr(team_feed, "MAX_TRACKED", 1)
    feeds, heard = TeamFeeds(there.database), list[Event | None]()
    text, two = await there.session(), await there.session()
    feeds.follow(text, "none", await feeds.position(text), heard.append)
    await until(lambda: feeds.reading is None)
    events: list[Event] = []
    feeds.listeners.append(lambda name, event: events.append(event))
    await written(there, text, *"abcde")
    await written(there, two, "f")
    feeds.handle_notification(f"{text} {two}")
    await until(lambda: feeds.reading is None)
    assert [event.text for event in events if isinstance(event, Notice)] == [*"abcdef"] and heard == []
    assert [*feeds.read_to] == [text], "what nobody follows is forgotten"
    await feeds.aclose()


# Questions of a worker's turns.


def approval(draft: str) -> ApprovalRequest:
    return ApprovalRequest("s", "c", "terminal", draft, (), "rm", arguments={"command": draft}, digest="d")


async def test_an_answer_that_comes_during_a_look_is_found(there: Serving) -> None:
    await there.turns.begin(await there.session(), TurnInput("x"))
    taken, asking = there.worker.take(), WorkerQuestions(there.database, SystemClock())
    person = asking.person_of(taken)
    assert person is not None
    asked = [asyncio.ensure_future(person.clarify(f"{n}?", [])) for n in range(40)]
    await until(lambda: len(there.questions.pending()) == len(asked))
    pending = there.questions.pending()
    (first,) = (question for question in pending if question.subject.startswith("0?"))
    looks = [asyncio.ensure_future(asking.read_answers()) for _ in range(5)]
    assert await there.questions.answer(first.id, "yes") == first
    await asyncio.gather(asking.read_answers(), *looks)
    async with asyncio.timeout(WAIT_S):
        assert await asked[0] == "yes"
    for question in pending:
        if question != first:
            await there.questions.answer(question.id, "no")
    await asking.read_answers()
    assert await asyncio.gather(*asked[1:]) == ["no"] * 39
    await there.worker.end(taken)


async def test_a_question_of_a_worker_is_answered_at_the_process_that_serves(there: Serving) -> None:
    session_id = await there.session()
    await there.turns.begin(session_id, TurnInput("x"))
    taken, asking = there.worker.take(), WorkerQuestions(there.database, SystemClock())
    looks: list[int] = []
    there.questions.listeners.append(lambda: looks.append(1))
    person = asking.person_of(taken)
    assert person is not None

    async def answered(asked: Awaitable[Any], answer: str, more: QuestionReply | None = None) -> Any:
        task = asyncio.ensure_future(asked)
        await until(lambda: bool(there.questions.pending()))
        (question,) = there.questions.pending()
        assert await there.questions.answer(question.id, answer, more) == question
        with pytest.raises(NotFound, match="or it was answered"):
            await there.questions.answer(question.id, answer)
        assert there.questions.pending() == []
        await asking.read_answers()
        return await task

    assert await answered(person.clarify("Which?", ["red"]), "blue") == "blue"
    assert await answered(person.approve(approval("ls")), "once") == "once"
    edited = await answered(person.approve(approval("ls")), "once", QuestionReply(draft="ls -l"))
    assert edited == Reply("once", arguments={"command": "ls -l"})
    assert await answered(person.approve(approval("ls")), "once", QuestionReply(draft="ls")) == "once"
    no = await answered(person.approve(approval("ls")), "no", QuestionReply(reason="so", draft="ls -l"))
    assert no == Reply("no", words="so")
    odd = msgspec.structs.replace(approval("x"), arguments={"n": 1})
    broken = await answered(person.approve(odd), "once", QuestionReply(draft="{"))
    assert isinstance(broken, Reply) and broken.answer == "no" and "not a JSON object" in broken.words
    await until(lambda: len(looks) > 6)
    await there.worker.end(taken)


async def test_a_question_that_nobody_answers_in_time_is_taken_back(there: Serving) -> None:
    session_id = await there.session()
    await there.turns.begin(session_id, TurnInput("x", is_plain=True))
    taken, asking = there.worker.take(), WorkerQuestions(there.database, SystemClock())
    quick = msgspec.structs.replace(taken.options, answer_wait_s=0.05)
    person = asking.person_of(msgspec.structs.replace(taken, options=quick))
    assert person is not None and await person.clarify("Which?", []) is None
    assert await person.approve(approval("ls")) is None
    rows = await there.database.write(lambda db: db.execute("SELECT id FROM team_questions").fetchall())
    assert rows == [] and there.questions.pending() == []
    nobody = msgspec.structs.replace(taken.options, answer_wait_s=0.0)
    assert asking.person_of(msgspec.structs.replace(taken, options=nobody)) is None
    own = there.questions.new_question(session_id, "approval", "ls")
    waiting = asyncio.ensure_future(there.questions.ask(own))
    await asyncio.sleep(0)
    assert there.questions.pending() == [own]
    with pytest.raises(ApiError, match="answer must be one of"):
        await there.questions.answer(own.id, "perhaps")
    await there.questions.answer(own.id, "no")
    assert await waiting == "no"
    with pytest.raises(NotFound, match="no such question"):
        await there.questions.answer("none", "no")
    await there.worker.end(taken)
