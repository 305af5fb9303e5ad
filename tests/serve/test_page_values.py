"""What pages are filled with: how far they go, what they lead on to, and what of a message they show."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import apsw
import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tests.store.support import answer, new_log, user
from tests.support import FixedClock, InLoop
from whet.app.build import App
from whet.app.conversations.hosted import SessionHost
from whet.app.conversations.people import PersonRouter
from whet.app.conversations.sessions import SessionOpener
from whet.app.received_files import MAX_IMAGE_BYTES
from whet.config.paths import Home
from whet.config.permission_settings import SandboxSettings
from whet.config.schema import ModelSettings, ReviewSettings, Settings
from whet.contract.brought_text import drop_marks
from whet.contract.events import Notice, Retry, StepFinished, TextDelta, ToolProgress, ToolStarted
from whet.contract.messages import ImagePart, Message, TextPart, ToolCall, Usage
from whet.contract.origin import Origin
from whet.question import Row
from whet.serve.board import history_pages, page_messages
from whet.serve.board.frame import Frame
from whet.serve.board.history_pages import HistoryPages, ShownSpan
from whet.serve.board.home import HomePages, sum_spending
from whet.serve.board.learning import LearningPages
from whet.serve.board.live_turn import LiveTurns
from whet.serve.board.page_messages import PageCall
from whet.serve.board.session_chat import Follower, compose_message, count_units, read_form_text
from whet.serve.site import Site, SiteTimings
from whet.serve.wire import ApiError
from whet.store import ledger, search, sessions
from whet.store.costs import Spending
from whet.store.replay import ReplayedTurn, ReplayEntry
from whet.web.pages import SiteTemplates
from whet.web.sessions import Visit
from whet.web.uploads import Upload
from whet_lab.practice.server import PracticeServer

VISIT = cast("Visit", None)


class Told(Frame):
    """Keeps what a page was to be filled with."""

    template: str
    status: int
    values: dict[str, Any]

    def page(self, template: str, visit: Visit, /, status: int = 200, **values: object) -> HTMLResponse:
        self.template, self.status, self.values = template, status, values
        return HTMLResponse(template, status)


def asked(query: str = "", **path: str) -> Request:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "path_params": path}
    return Request({**scope, "query_string": query.encode()})


@pytest.fixture(scope="module")
def model() -> Any:
    with PracticeServer() as server:
        yield server


@pytest.fixture
def frame(tmp_path: Path, model: PracticeServer) -> InLoop[Told]:
    settings = Settings(
        model=ModelSettings(provider="practice", base_url=model.base_url, model="practice-echo"),
        review=ReviewSettings(worker="off", turns=0, steps=0, on_correction=False, on_recovery=False),
        sandbox=SandboxSettings(mode="off"),
    )

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Told]:
        people, work = PersonRouter(), tmp_path / "work"
        work.mkdir()
        app = await App.start(Home(tmp_path / "home"), settings, {}, people, work, source="api")
        services = msgspec.structs.replace(app.services, clock=FixedClock())
        hosted = SessionHost(SessionOpener(services, app.sessions.helpers), people)
        site = Site(hosted, services.clock, SiteTimings(60, 0.05, 30))
        try:
            async with asyncio.timeout(30):
                yield Told(services, site.turns, cast("SiteTemplates", None))
        finally:
            await hosted.aclose()
            await app.aclose()

    return InLoop(opened())


def sessions_of(frame: Told, count: int) -> None:
    """Store sessions, a minute apart."""
    for number in range(count):
        at = f"2026-11-21T{number // 60:02d}:{number % 60:02d}:00.000Z"
        new = sessions.NewSession(f"s{number:015d}", title=f"thing {number}")
        frame.services.database.write_now(lambda db, new=new, at=at: sessions.create(db, new, at))


async def test_sessions_are_listed_by_forty_and_the_last_one_leads_on(frame: Told) -> None:
    pages = HistoryPages(frame, LiveTurns())

    async def listed(query: str = "") -> list[str]:
        await pages.sessions(asked(query), VISIT)
        return [row.row.title for row in frame.values["rows"]]

    sessions_of(frame, 40)
    assert await listed() == [f"thing {number}" for number in range(39, -1, -1)]
    assert (frame.template, frame.values["here"], frame.values["more"]) == ("sessions.html", "sessions", "")
    sessions_of_more = sessions.NewSession("s" * 16, title="thing 40")
    frame.services.database.write_now(
        lambda db: sessions.create(db, sessions_of_more, "2026-11-21T00:40:00.000Z")
    )
    assert len(await listed()) == 40 and frame.values["more"] == "2026-11-21T00:01:00.000Z"
    assert await listed(f"before={frame.values['more']}") == ["thing 0"] and frame.values["more"] == ""
    assert await listed("q=+%22thing+7%22+") == ["thing 7"] and frame.values["q"] == '"thing 7"'
    assert await listed("q=" + "x" * 300) == [] and frame.values["q"] == "x" * 200
    assert frame.values["running"] == set() and frame.values["hits"] == []


async def talked(frame: Told, turns: int, id_: str = "s1") -> None:
    """Store a session with so many turns of two messages."""
    log = await new_log(frame.services.database, frame.services.clock, id_)
    for number in range(turns):
        turn = await log.begin_turn(user(f"question {number}"))
        await log.append_reply(turn, answer(f"answer {number}"), Usage(), "m")
        await log.end_turn(turn, "answered", "")
    log.close()


async def test_a_session_is_shown_from_anywhere_with_what_is_older_and_newer(frame: Told) -> None:
    pages = HistoryPages(frame, LiveTurns())
    await talked(frame, 5)

    async def shown(query: str = "") -> tuple[list[int], int, int, int]:
        await pages.session(asked(query, id="s1"), VISIT)
        values = frame.values
        seqs = [one.entry.seq for one in values["entries"]]
        return seqs, values["older"], values["newer"], values["at"]

    assert await shown() == ([*range(1, 11)], 0, 0, 0)
    assert frame.status == 200 and frame.values["shown_to"] == 10 == frame.values["last"]
    assert [one.starts_turn is not None for one in frame.values["entries"]] == [True, False] * 5
    assert await shown("n=4") == ([7, 8, 9, 10], 3, 0, 0)
    assert await shown("n=4&from=3") == ([3, 4, 5, 6], 1, 7, 0)
    assert await shown("n=4&from=1") == ([1, 2, 3, 4], 0, 5, 0)
    assert await shown("n=4&from=2") == ([2, 3, 4, 5], 1, 6, 0)
    assert await shown("from=11") == ([], 1, 0, 0) and frame.values["shown_to"] == 10
    assert await shown("n=4&at=6") == ([3, 4, 5, 6], 0, 0, 6)
    assert await shown("n=4&at=2") == ([1, 2], 0, 0, 2)
    values = frame.values
    assert (values["is_running"], values["is_elsewhere"], values["live"]) == (False, False, None)
    assert (values["most"], values["told"], values["asks"], values["problem"]) == (1_000, "", None, "")
    await pages.session(asked(id="s1"), VISIT, problem=ApiError(409, "no\u202e"), notice="so\u202e", asks=2)
    values = frame.values
    assert (frame.status, values["problem"], values["told"], values["asks"]) == (
        409,
        "no<U+202E>",
        "so<U+202E>",
        2,
    )
    log = await new_log(frame.services.database, frame.services.clock, "s2")
    await log.begin_turn(user("on and on"))
    await pages.session(asked(id="s2"), VISIT)
    assert frame.values["is_elsewhere"] and not frame.values["is_running"]
    log.close()


@pytest.mark.parametrize(
    ("query", "last", "span"),
    [
        ("", 500, ShownSpan(301, 200)),
        ("", 150, ShownSpan(1, 200)),
        ("n=1001", 5_000, ShownSpan(4_001, 1_000)),
        ("n=0&from=7", 50, ShownSpan(7, 200)),
        ("at=300", 500, ShownSpan(101, 200, 300)),
        ("at=5", 500, ShownSpan(1, 5, 5)),
        ("at=99999999999", 5, ShownSpan((1 << 21) - 199, 200, 1 << 21)),
        ("from=x&at=-1", 5, ShownSpan(1, 200)),
    ],
)
def test_which_messages_are_asked_for(query: str, last: int, span: ShownSpan) -> None:
    assert history_pages.read_span(asked(query).query_params, last) == span


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ("no json", PageCall("t", "", "no json")),
        ('{"path": "a.txt"}', PageCall("t", "a.txt", "")),
        ('{"path": "a.txt", "limit": 5}', PageCall("t", "a.txt", "limit: 5")),
        (
            '{"path": "a.txt", "content": "x\\ny\\n"}',
            PageCall("t", "a.txt", "", (Row("added", "+x"), Row("added", "+y"))),
        ),
        (
            '{"path": "a", "old_string": "x", "new_string": "y"}',
            PageCall("t", "a", "", (Row("removed", "-x"), Row("added", "+y"))),
        ),
        (
            '{"path": "a", "diff": "--- a\\n+++ b\\n-x\\n+y\\n"}',
            PageCall(
                "t",
                "a",
                "",
                (Row("file", "--- a"), Row("file", "+++ b"), Row("removed", "-x"), Row("added", "+y")),
            ),
        ),
        ('{"path": "a", "diff": "one line"}', PageCall("t", "a", "diff: one line")),
        ('{"path": "a", "content": 7}', PageCall("t", "a", "content: 7")),
        ('{"command": "a\\nb"}', PageCall("t", "a b", "command: \na\nb")),
    ],
)
def test_a_call_is_read_by_what_it_is_about_and_what_it_writes(arguments: str, call: PageCall) -> None:
    assert page_messages.build_page_call(ToolCall("c", "t", arguments)) == call


def test_a_subject_that_is_longer_than_its_line_stands_with_the_arguments() -> None:
    for size, whole in ((160, ""), (161, f"command: {'x' * 161}")):
        page_call = page_messages.build_page_call(ToolCall("c", "t", json.dumps({"command": "x" * size})))
        assert page_call.arguments == whole and len(page_call.about) == 160


def entry(seq: int, turn: int, message: Message) -> ReplayEntry:
    return ReplayEntry(seq, turn, 0, message, None, None)


def test_messages_are_shown_with_their_turns_images_and_the_calls_that_they_answer() -> None:
    calls = (ToolCall("c1", "look", "{}"), ToolCall("c2", "look", "{}"))
    picture = (TextPart("see"), ImagePart("image/png", "aGk="), ImagePart("image/png", "aGk="))
    turn = ReplayedTurn(1, "", "", "answered", "", 1, Usage(), is_undone=False)
    messages = page_messages.build_page_messages(
        [
            entry(1, 1, Message("user", picture)),
            entry(2, 1, Message("assistant", "I **look**.", calls)),
            entry(3, 1, Message("tool", "found", tool_call_id="c1", tool_name="look")),
            entry(4, 1, Message("tool", "lost", tool_call_id="c9", tool_name="look")),
            entry(5, 1, Message("assistant", "Done.")),
            entry(6, 2, Message("user", "next")),
        ],
        {1: turn},
        {1: cast("Any", "did")},
    )
    assert [message.text for message in messages] == ["see", "I **look**.", "found", "lost", "Done.", "next"]
    assert [len(message.images) + 10 * len(message.blocks) for message in messages] == [2, 10, 0, 0, 10, 0]
    assert [message.starts_turn for message in messages] == [turn, None, None, None, None, None]
    assert [message.did for message in messages] == [None, None, None, None, "did", None]
    look = PageCall("look", "", "")
    assert [message.answers for message in messages] == [None, None, look, None, None, None]
    assert messages[1].calls == [look], "the one that has no result yet"


def test_what_was_found_is_marked_in_its_snippet() -> None:
    text = f"a {search.MARK_OPEN}b\u202e{search.MARK_CLOSE} c {search.MARK_OPEN}d{search.MARK_CLOSE}"
    assert history_pages.split_snippet(text) == [
        (False, "a "),
        (True, "b<U+202E>"),
        (False, " c "),
        (True, "d"),
    ]
    assert history_pages.split_snippet("plain") == [(False, "plain")]
    assert history_pages.split_snippet(f"{search.MARK_OPEN}b{search.MARK_CLOSE}") == [(True, "b")]


def spending(label: str, usd: float = 0.0, prompt: int = 100) -> Spending:
    return Spending(label, 2, prompt, 25, 10, usd, 1)


async def test_two_weeks_are_drawn_and_money_only_where_some_was_spent(frame: Told) -> None:
    home = HomePages(frame)
    days = [spending("2026-11-20"), spending("2026-11-21", prompt=0), spending("2026-01-01", 9.0)]
    tokens, cache, cost = home.make_charts(days, 2)
    assert [chart.title for chart in (tokens, cache, cost)] == ["Tokens", "Prompt cache", "Cost"]
    assert [spot.title for spot in tokens.spots] == [
        "2026-11-20: 25 cached, 75 new, 10 written",
        "2026-11-21: 25 cached, -25 new, 10 written",
    ]
    assert [spot.title for spot in cache.spots] == [
        "2026-11-20: 25% of the prompts from the cache",
        "2026-11-21: no requests",
    ]
    assert len(home.make_charts(days[:2], 2)) == 2, "no day cost anything"
    mixed = home.make_charts([spending("2026-11-20"), spending("2026-11-21", 0.5)], 3)
    assert [spot.title for spot in mixed[2].spots] == [
        "2026-11-19: $0.00 spent",
        "2026-11-20: $0.00 spent",
        "2026-11-21: $0.50 spent",
    ]
    assert home.first_day(1) == "2026-11-21" and home.first_day(14) == "2026-11-08"
    assert sum_spending([spending("a", 0.5), spending("b", 1.0)]) == Spending("all", 4, 200, 50, 20, 1.5, 2)


async def test_the_first_page_lists_eight_sessions_and_the_costs_those_of_a_month(frame: Told) -> None:
    home = HomePages(frame)
    sessions_of(frame, 9)
    await home.home(asked(), VISIT)
    assert [row.row.title for row in frame.values["latest"]] == [f"thing {n}" for n in range(8, 0, -1)]
    assert (frame.template, frame.status, frame.values["problem"]) == ("home.html", 200, "")
    assert frame.values["today"] is None and frame.values["running"] == set()
    assert [len(group.rows) for group in frame.values["side"].groups] == [9]
    assert frame.values["active"] == frame.values["elsewhere"] == []
    await home.costs(asked(), VISIT)
    assert frame.values["days"] == 30 and len(frame.values["charts"][0].spots) == 30
    assert [what for what, _ in frame.values["groups"]] == ["model", "source", "kind"]
    await home.confirmations(asked(), VISIT)
    assert (frame.values["days"], frame.values["decided"], frame.values["service"]) == (30, [], "")


async def test_what_was_learned_is_listed_by_forty_filtered_and_goes_on(frame: Told) -> None:
    pages = LearningPages(frame)

    def learn(first: int, last: int) -> None:
        frame.services.database.write_now(lambda db: [learned(db, number) for number in range(first, last)])

    def learned(db: apsw.Connection, number: int) -> None:
        change = ledger.NewRow("memory", "memory", "add", "active", Origin("user"), after=f"fact {number}")
        ledger.insert_row(db, change, "2026-11-21T09:00:00.000Z")

    learn(0, 41)

    async def listed(query: str = "") -> tuple[int, int]:
        await pages.ledger(asked(query), VISIT)
        return len(frame.values["rows"]), frame.values["more"]

    assert await listed() == (40, 80) and await listed("n=41") == (41, 0) == await listed("n=2000")
    assert await listed("kind=memory&n=50") == (41, 0) and frame.values["kind"] == "memory"
    assert await listed("kind=skill") == (0, 0) and await listed("kind=odd") == (40, 80)
    assert frame.values["kind"] == ""
    assert await listed("state=undone") == (0, 0) and frame.values["state"] == "undone"
    assert await listed("state=odd") == (40, 80) and frame.values["state"] == ""
    learn(41, 1_001)
    assert await listed("n=2000") == (1_000, 1_040)
    assert "staged" not in frame.values["states"] and "active" in frame.values["states"]


# Saying something.


def test_what_was_written_is_taken_with_its_own_line_ends_and_no_longer_than_a_message() -> None:
    assert read_form_text("a\r\nb\n") == "a\nb" and read_form_text(" \n ") == ""
    assert len(read_form_text("x" * 400_000)) == 400_000
    with pytest.raises(ApiError, match="400,000 characters") as caught:
        read_form_text("x" * 400_001)
    assert caught.value.status == 413
    assert [count_units(text) for text in ("abc", "ä", "😀", "\ud800")] == [3, 1, 2, 1]


def test_files_are_kept_or_shown_as_images_and_too_many_are_counted(tmp_path: Path) -> None:
    largest, work = b"GIF89a".ljust(MAX_IMAGE_BYTES, b"."), tmp_path / "work"
    work.mkdir()

    def compose(text: str, *files: Upload) -> list[str]:
        message = asyncio.run(compose_message(text, files, work))
        assert message.images == tuple(
            ImagePart("image/gif", base64.b64encode(file.data).decode())
            for file in files
            if file.data == largest
        )
        return drop_marks(message.text).splitlines()

    assert compose("Look.", Upload("a.gif", largest), Upload("b.gif", largest + b".")) == [
        "Look.",
        "<file>[file received: received/b.gif, 5,000,001 bytes]</file>",
    ]
    texts = [Upload(f"{number}.txt", b"x") for number in range(12)]
    assert len(compose("", *texts[:10])) == 10
    lines = compose("", *texts)
    assert len(lines) == 11 and lines[-1] == "[2 more files were left out]"
    (work / "received").rename(work / "kept")
    (work / "received").write_text("in the way")
    why = "was sent and could not be kept: received in the workspace is not a folder"
    assert compose("", Upload("a\u202e.txt", b"x")) == [f"<file>['a<U+202E>.txt' {why}]</file>"]


# Following a session.


def told(news: bytes) -> list[tuple[str, Any]]:
    """Give the events of a piece of a stream."""
    found: list[tuple[str, Any]] = []
    for piece in news.decode().removesuffix("\n\n").split("\n\n"):
        if piece:
            name, _, data = piece.partition("\ndata: ")
            found.append((name.removeprefix("event: "), json.loads(data)))
    return found


async def test_a_page_is_told_what_is_new_to_it_once(frame: Told) -> None:
    live = LiveTurns()
    await talked(frame, 1)
    follower = Follower(frame, live, "s1")
    feeds = frame.turns.feeds
    feeds.listeners.append(live.handle_event)
    assert told(follower.take_events()) == [("stored", {})] and follower.take_events() == b""
    feeds.add("s1", TextDelta("Hello 😀 "))
    quiet = {"calls": [], "note": "", "thinking": False}
    first = [("text", {"step": 0, "at": 0, "text": "Hello 😀 "}), ("calls", quiet)]
    assert told(follower.take_events()) == first and follower.take_events() == b""
    feeds.add("s1", TextDelta("and\nmore "))
    assert told(follower.take_events()) == [("text", {"step": 0, "at": 9, "text": "and\nmore "})]
    feeds.add("s1", TextDelta("of it "))
    assert told(follower.take_events()) == [("text", {"step": 0, "at": 18, "text": "of it "})]
    feeds.add("s1", ToolStarted("c1", "terminal", '{"command": "make"}'))
    feeds.add("s1", ToolProgress("c1", "built"))
    call = {"name": "terminal", "about": "make", "tail": "built"}
    assert told(follower.take_events()) == [("calls", {**quiet, "calls": [call]})]
    feeds.add("s1", Notice("wait\u202e"))
    assert told(follower.take_events())[-1] == ("calls", {**quiet, "calls": [call], "note": "wait<U+202E>"})
    feeds.add("s1", Retry(1, 2.0, "slow"))
    assert told(follower.take_events())[-1][1]["note"] == "slow; tried again in 2 s"
    feeds.add("s1", StepFinished(1, Usage()))
    assert [name for name, _ in told(follower.take_events())] == ["calls"]
    feeds.add("s1", TextDelta("Next "))
    assert told(follower.take_events())[0] == ("text", {"step": 1, "at": 0, "text": "Next "})
    feeds.add("s2", TextDelta("elsewhere "))
    assert follower.take_events() == b""
    frame.turns.questions.new_question("s1", "question", "Which?")
    late = Follower(frame, live, "s1")
    assert [name for name, _ in told(late.take_events())] == ["stored", "text", "calls"]
    late.close()
    follower.close()
    assert feeds.listeners == [live.handle_event] and frame.turns.questions.listeners == []


async def test_a_follower_wakes_for_events_and_beats_where_there_are_none(frame: Told) -> None:
    await talked(frame, 1)
    follower = Follower(frame, LiveTurns(), "s1")
    follower.take_events()
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert await follower.wait(gone, 0.02) is False
    waiting = asyncio.create_task(follower.wait(gone, 60))
    await asyncio.sleep(0)
    frame.turns.feeds.add("s1", TextDelta("x"))
    assert await waiting is True
    follower.take_events()
    gone.set_result(None)
    assert await follower.wait(gone, 60) is True
    follower.close()
