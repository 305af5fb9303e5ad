"""Warm sessions end to end: real runs of the agent on the practice server, in every wire format."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks.warm import run_seeds
from click.testing import CliRunner

from whet.agent.loop import run_turn
from whet.agent.session import Session
from whet.app.build import App
from whet.clock import SystemClock
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import NotFound, StoreError
from whet.contract.events import Event, Notice, TurnEnd
from whet.contract.protocols import NobodyPresent
from whet.contract.tools import ToolContext
from whet.store import export, outcomes, search, sessions, warm
from whet.store.database import StateDatabase
from whet.warm.outline import outline
from whet.warm.prime import decode_prime
from whet.warm.template import Template, save
from whet.warm.template_store import WarmTemplates
from whet_lab.commands.eval_warm import warm as eval_warm
from whet_lab.evals.warm_trials import build_report
from whet_lab.evals.warm_world import NAME, Depot, build_templates, create_history, write_depot
from whet_lab.practice.depot import build_question
from whet_lab.practice.server import PracticeServer

ASK = build_question({"count": 31, "price": 32, "lost": 33})
FORMATS = ("chat_completions", "anthropic_messages", "responses")


@pytest.fixture
def server() -> Iterator[PracticeServer]:
    with PracticeServer() as started:
        yield started


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Depot, Template]:
    folder = tmp_path_factory.mktemp("world")
    with PracticeServer() as server:
        depot = write_depot(folder, 3)
        asyncio.run(create_history(depot, settings(server), 4))
    template = build_templates(depot, SystemClock().now())["warm"]
    return depot, template


def settings(server: PracticeServer, wire: str = "chat_completions", **flags: object):
    base = server.url if wire == "anthropic_messages" else server.base_url
    given = {
        "model.provider": "practice",
        "model.model": "practice",
        "model.base_url": base if wire != "anthropic_messages" else f"{base}/v1",
        "model.format": wire,
        "approval.mode": "auto",
        **{key.replace("__", "."): value for key, value in flags.items()},
    }
    return load(Home(Path("/nonexistent")), given, environ={}).settings


async def opened(depot: Depot, home: Home, chosen) -> App:
    return await App.start(home, chosen, {}, NobodyPresent(), depot.path)


async def say(session: Session, text: str) -> tuple[TurnEnd, list[str]]:
    notices: list[str] = []

    def take(event: Event) -> None:
        if isinstance(event, Notice):
            notices.append(event.text)

    return await run_turn(session, session.user_message(text), take), notices


def bodies(server: PracticeServer) -> list[bytes]:
    return [
        bytes(request.body) if not isinstance(request.body, str) else request.body.encode()
        for request in server.requests
    ]


def is_prefix(first: bytes, second: bytes) -> bool:
    return second.startswith(re.sub(rb"[\]}]+$", b"", first))


def test_a_template_holds_outlines_of_real_results_and_no_failed_call(lived: tuple[Depot, Template]) -> None:
    depot, template = lived
    with closing(StateDatabase.open(depot.home.database, SystemClock())) as database:
        for example in template.examples:
            rows = database.read_now(
                lambda db, e=example: search.read_span(db, e.session_id, e.message_seq, e.message_seq)
            )
            ((_, message),) = rows
            assert example.result_summary == outline(message.text)
            assert not message.is_error
            call = database.read_now(lambda db, e=example: search.find_call(db, e.session_id, e.message_seq))
            assert call is not None and json.loads(call[1].arguments) == example.arguments
        assert sum(bool(example.why) for example in template.examples) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("wire", FORMATS)
def test_the_examples_open_the_conversation_and_stay_the_same_bytes(
    wire: str, lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    depot, template = lived
    home = Home(tmp_path / "home")
    save(home, msgspec.structs.replace(template, imported_at="x"))

    async def first() -> str:
        app = await opened(depot, home, settings(server, wire))
        session = await app.new_session(warm=NAME)
        end, notices = await say(session, ASK)
        assert end.reason == "answered", end.error
        assert notices == [f"started warm with {NAME}: 3 examples"]
        await app.aclose()
        return session.id

    async def again(session_id: str) -> None:
        app = await opened(depot, home, settings(server, wire))
        session = await app.open_session(session_id)
        end, _ = await say(session, build_question({"count": 2}))
        assert end.reason == "answered", end.error
        await app.sessions.models.switch(session, "practice-echo")
        await say(session, "still here?")
        await app.aclose()

    session_id = asyncio.run(first())
    sent = bodies(server)
    asyncio.run(again(session_id))
    later = bodies(server)[len(sent) :]
    assert all(is_prefix(data, two) for data, two in zip(sent, [*sent[1:], later[0]], strict=True))
    text = sent[0].decode()
    assert text.index("Past example 1 of 3") < text.index("shelf count of week 31; ")
    assert text.index("End of past example 3") < text.index("shelf count of week 31; ")
    assert b"warm_" in later[-1] and b"practice-echo" in later[-1]
    if wire == "anthropic_messages":
        assert text.count('"cache_control"') == 3


@pytest.mark.slow
def test_a_second_session_with_the_same_template_reads_it_from_the_cache(
    lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    depot, template = lived
    home = Home(tmp_path / "home")
    save(home, msgspec.structs.replace(template, imported_at="x"))

    async def run(wire: str) -> list[int]:
        app = await opened(depot, home, settings(server, wire))
        read: list[int] = []
        for number in (1, 2):
            session = await app.new_session(warm=NAME)
            await say(session, build_question({}, (number,)))
            read.append(session.usage.cache_read_tokens)
        stored = await app.database.read(
            lambda db: [sessions.read_prime(db, row.id) for row in sessions.list_sessions(db, 9)]
        )
        assert stored[0] == stored[1] != ""
        await app.aclose()
        return read

    for wire in ("chat_completions", "anthropic_messages"):
        first, second = asyncio.run(run(wire))
        # The first request of the second session finds system prompt, tools and all examples.
        assert second - first > 2_000


@pytest.mark.slow
async def test_the_examples_are_nobodys_words(
    lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    depot, template = lived
    home = Home(tmp_path / "home")
    save(home, msgspec.structs.replace(template, imported_at="x"))
    app = await opened(depot, home, settings(server))
    session = await app.new_session(warm=NAME)
    await say(session, ASK)
    prime = decode_prime(await app.database.read(lambda db: sessions.read_prime(db, session.id)))
    assert len(prime) == 12
    assert not any("Past example" in message.text for message in session.log.messages)
    assert await search.find(app.database, '"Past example"') == []
    shown = await app.database.read(lambda db: "".join(export.as_markdown(db, session.id)))
    assert "Past example" not in shown and "shelf count of week 31" in shown
    counted = await session.context.status()
    assert counted.used_tokens > 1_000
    assert await session.log.undo_last_turn() == (1, ASK)
    assert session.log.messages == []
    # A review sends the same prefix; a helper begins cold.
    kinds: tuple[tuple[sessions.SessionKind, bool], ...] = (("review", True), ("child", False))
    for kind, same in kinds:
        new = sessions.NewSession(id=kind, kind=kind, parent_session_id=session.id)
        await app.database.write(lambda db, new=new: sessions.create(db, new, "now"))
        text = await app.database.read(lambda db, kind=kind: sessions.read_prime(db, kind))
        assert bool(text) == same
    await app.aclose()


@pytest.mark.slow
def test_auto_takes_what_fits_or_nothing_and_holds_out_by_lot(
    lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    depot, template = lived
    home = Home(tmp_path / "home")
    save(home, msgspec.structs.replace(template, imported_at="x"))

    async def run(holdout: float, text: str, warm_: str = "") -> tuple[str, list[str]]:
        app = await opened(depot, home, settings(server, warm__default="auto", warm__holdout=str(holdout)))
        session = await app.new_session(warm=warm_)
        _, notices = await say(session, text)
        start = await app.database.read(lambda db: warm.read_start(db, session.id))
        await app.aclose()
        return (start.arm if start else ""), notices

    assert asyncio.run(run(0.0, ASK))[0] == "warm"
    assert asyncio.run(run(0.9, "hello there, how are you"))[0] == ""
    arms = [asyncio.run(run(0.5, ASK))[0] for _ in range(8)]
    assert set(arms) == {"warm", "held_out"}
    assert asyncio.run(run(0.9, ASK, NAME))[0] == "warm"  # a person's choice is not held out
    assert asyncio.run(run(0.0, ASK, "off"))[0] == ""


@pytest.mark.slow
async def test_examples_are_recorded_as_items_of_the_session_given_or_held_out(
    lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    depot, template = lived
    home = Home(tmp_path / "home")
    save(home, msgspec.structs.replace(template, imported_at="x"))
    app = await opened(depot, home, settings(server, warm__default="auto", warm__holdout="0.5"))
    arms: dict[str, str] = {}
    for _ in range(8):
        session = await app.new_session()
        await say(session, ASK)
        start = await app.database.read(lambda db, id_=session.id: warm.read_start(db, id_))
        arms[session.id] = start.arm if start else ""
    uses = await app.database.read(lambda db: outcomes.list_item_uses(db, ("example",)))
    assert {use.session_id: "held_out" if use.held_out else "warm" for use in uses} == arms
    assert all(use.randomised and use.item.name == NAME for use in uses)
    hashes = {example.hash for example in template.examples}
    assert {use.item.hash for use in uses} <= hashes
    seen = WarmTemplates(home, app.database, app.clock).effects(template)
    assert sum(effect.shown.sessions + effect.compared.sessions for effect in seen if effect) >= 8
    await app.aclose()


@pytest.mark.slow
@pytest.mark.unconfined  # the verifiers compare with a file beside the workspace
def test_the_evaluation_by_command(
    lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    """Three arms on a person's own tasks: the person's store is read for the placebo, and not written."""
    depot, _ = lived
    home = Home(tmp_path / "home")
    shutil.copytree(depot.home.root, home.root)
    model = f"{{provider: practice, model: practice, base_url: '{server.base_url}'}}"
    home.config.write_text(f"model: {model}\napproval: {{mode: auto}}\n")
    tasks = tmp_path / "tasks.yaml"
    untouched = "find . -type f | sort | xargs cat | cksum"
    rows = [
        {
            "name": f"q{n}",
            "prompt": build_question({"count": n, "price": n, "lost": n}),
            "files": "depot",
            "setup": f"{untouched} > ../sum",
            "verify": f"{untouched} | cmp - ../sum",
        }
        for n in (31, 32)
    ]
    shutil.copytree(depot.path, tmp_path / "depot")
    tasks.write_text(json.dumps({"tasks": rows}))
    arguments = ["--template", NAME, "--tasks", str(tasks), "--repeats", "1", "--json"]
    before = home.database.read_bytes()
    done = CliRunner().invoke(eval_warm, arguments, obj=home, catch_exceptions=False)
    data = json.loads(done.stdout)
    arms = {arm["arm"]: arm for arm in data["arms"]}
    assert [arm["trials"] for arm in arms.values()] == [2, 2, 2] and len(data["trials"]) == 6
    assert all(arm["succeeded"] == 2 for arm in arms.values())
    assert arms["warm"]["failed"] < arms["cold"]["failed"]
    assert [comparison["verdict"] for comparison in data["comparisons"]] == ["no evidence"] * 2, (
        "two tasks are too few"
    )
    assert home.database.read_bytes() == before


@pytest.mark.slow
async def test_a_template_that_was_switched_off_is_not_given_and_the_person_is_told(
    lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    depot, template = lived
    home = Home(tmp_path / "home")
    named = msgspec.structs.replace(template, imported_at="x")
    save(home, named)
    app = await opened(depot, home, settings(server, warm__default="auto"))
    state = warm.TemplateState("first calls failed more often with it")
    await app.database.write(lambda db: warm.set_state(db, named.hash, NAME, state, "now"))
    session = await app.new_session()
    _, notices = await say(session, ASK)
    assert notices == [f"warm template {NAME} is switched off: first calls failed more often with it"]
    assert await app.database.read(lambda db: sessions.read_prime(db, session.id)) == ""
    await app.aclose()


@pytest.mark.slow
async def test_the_tool_builds_lists_loads_for_the_next_session_and_deletes(
    server: PracticeServer, tmp_path: Path
) -> None:
    depot = write_depot(tmp_path, 5)
    await create_history(depot, settings(server), 6)
    app = await opened(depot, depot.home, settings(server))
    tool = app.services.tools.by_name["warm_session"]
    asked = await app.new_session()
    ctx = ToolContext(asked.id, "t", "c", depot.path, lambda text: None, lambda q, c: None)  # type: ignore[arg-type, return-value]

    async def act(**arguments: Any) -> dict[str, Any]:
        return json.loads((await tool.run(ctx, arguments)).text)

    assert (await act(action="load", name="gone"))["success"] is False
    fields: dict[str, Any] = {"max_sessions": 5, "source_filter": "cli", "tags": ["depot"]}
    assert (await act(action="build", name="odd", min_messages=10_000, **fields))["success"] is False
    few = await act(action="build", name="few", min_messages=1, **fields)
    assert few["success"] and few["tags"] == ["depot"], few
    assert few["description"].startswith(f"{few['examples']} example"), few
    assert (await act(action="delete", name="few"))["success"]
    built = await act(action="build", name="mine", description="depot records")
    assert built["success"] and built["examples"] >= 3, built
    assert built["example_count"] == built["examples"] and built["message_count"] >= 12
    listed = await act(action="list")
    assert [row["name"] for row in listed["templates"]] == ["mine"]
    assert listed["count"] == 1 and listed["templates"][0]["example_count"] >= 3
    loaded = await act(action="load", name="mine", apply=True)
    assert loaded["message_count"] == len(loaded["messages"])
    preview = loaded["conversation_preview"]
    assert [set(row) for row in preview] == [{"role", "content_preview"}] * len(preview) and preview
    assert all(said["message"] for said in (built, listed, loaded))
    assert [row["role"] for row in loaded["messages"][:4]] == ["user", "assistant", "tool", "assistant"]
    following = await app.new_session()
    _, notices = await say(following, ASK)
    assert notices == ["started warm with mine: 3 examples"]
    after = await app.new_session()
    assert (await say(after, ASK))[1] == []  # once only
    assert (await act(action="delete", name="mine"))["success"]
    assert (await act(action="delete", name="mine"))["success"] is False
    await app.aclose()


async def test_a_prefix_that_was_used_can_not_be_changed(
    lived: tuple[Depot, Template], server: PracticeServer, tmp_path: Path
) -> None:
    depot, _ = lived
    app = await opened(depot, Home(tmp_path / "home"), settings(server))
    session = await app.new_session()
    await say(session, "hello")
    with pytest.raises(StoreError, match="can't change"):
        await app.database.write(lambda db: sessions.set_prime(db, session.id, "other", "[]"))
    with pytest.raises(NotFound, match="no warm template"):
        await app.new_session(warm="gone")
    await app.aclose()


def test_calls_are_judged_as_they_go(server: PracticeServer, tmp_path: Path) -> None:
    depot = write_depot(tmp_path, 6)

    async def run() -> str:
        app = await opened(depot, depot.home, settings(server))
        session = await app.new_session()
        await say(session, build_question({"count": 7}))
        await app.aclose()
        return session.id

    asyncio.run(run())
    database = StateDatabase.open(depot.home.database, SystemClock())
    rows = database.read_now(lambda db: db.execute("SELECT outcome FROM tool_calls ORDER BY seq").fetchall())
    database.close()
    assert [row[0] for row in rows] == ["failed", "ok", "ok"]


@pytest.mark.soak
def test_the_world_shows_fewer_errors_where_there_is_something_to_learn(
    server: PracticeServer, tmp_path: Path
) -> None:
    gated = build_report(asyncio.run(run_seeds(tmp_path, settings(server), range(1, 7), sessions=4)))
    for comparison in gated.comparisons:
        assert comparison.verdict == "fewer errors", comparison


def test_service_of_an_empty_home(tmp_path: Path) -> None:
    database = StateDatabase.open(tmp_path / "state.db", SystemClock())
    desk = WarmTemplates(Home(tmp_path / "home"), database, SystemClock())
    assert desk.list_rows() == []
    assert desk.label() == (0, 0)
    assert desk.rates().calls == 0
    database.close()
