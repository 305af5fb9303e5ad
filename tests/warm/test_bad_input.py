"""What stores, names and hand-edited files may hold, and what comes of it."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from tests.support import FixedClock
from tests.warm.stores import TOOLS, Did, Turn, pitfalls, read, sh, steps, store
from whet.config.paths import Home
from whet.context.live_list import repair
from whet.contract.errors import ConfigError, NotFound
from whet.store import calls, sessions
from whet.store.database import StateDatabase
from whet.warm import template as templates
from whet.warm.aftermath import OutcomeJudge
from whet.warm.compose import BuildOptions
from whet.warm.mine import MiningScope, mine
from whet.warm.prime import make_prime
from whet.warm.select import Situation, pick_examples
from whet.warm.template import Broken, Example, Template
from whet.warm.template_store import WarmTemplates


@pytest.fixture
def desk(tmp_path: Path, database: StateDatabase, clock: FixedClock) -> WarmTemplates:
    return WarmTemplates(Home(tmp_path / "home"), database, clock)


def build(desk: WarmTemplates, name: str = "t") -> Template:
    return desk.build(BuildOptions(name=name), MiningScope(min_messages=1)).template


@pytest.mark.parametrize("name", ["../x", "con", "con.txt", "", "a" * 300, "größe", ".x", "a/b", "x.", "nul"])
def test_names_that_can_name_no_template(desk: WarmTemplates, name: str) -> None:
    with pytest.raises(ConfigError, match="can't name a template"):
        build(desk, name)
    with pytest.raises(ConfigError, match="can't name a template"):
        desk.load(name)
    assert not list(desk.home.root.rglob("*.json"))


@pytest.mark.slow
def test_malformed_arguments_of_every_kind_do_no_harm(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    garbage = [
        "{",
        "[1, 2]",
        '"text"',
        "null",
        "",
        "{'a': 1}",
        '{"path": 5}',
        '{"command": ["ls"]}',
        "\udcff",
        "1e999",
    ]
    for name in ("read_file", "terminal", "search_files"):
        store(database, clock, Turn("go", steps(*(Did(name, text) for text in garbage))))
    pitfalls(database, clock)
    assert [example.tool_name for example in build(desk).examples] == ["read_file"]


def test_huge_binary_and_foreign_results(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    for number in range(3):
        bad = read(f"no{number}", "no", "failed")
        turn = steps(
            bad,
            bad,
            read(f"big/f{number}.txt", "line\n" * 200_000),
            read(f"blob/f{number}.bin", "\0\1\2" * 500),
            read(f"fremd/f{number}.md", "größe 値段 размер " * 20),
        )
        store(database, clock, Turn("lies das für 值", turn))
    shown = build(desk).examples
    assert all(len(example.result_summary) <= 520 for example in shown)
    assert not any("blob" in str(example.arguments) for example in shown)


def test_a_tool_renamed_since_is_left_out(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    pitfalls(database, clock)
    template = build(desk)
    renamed = {"open_file" if name == "read_file" else name: spec for name, spec in TOOLS.items()}
    situation = Situation(text="report", workspace="/", tools=renamed, now=clock.now())
    assert pick_examples(template, situation) == []


def test_an_empty_store_says_what_is_needed(desk: WarmTemplates) -> None:
    with pytest.raises(NotFound, match="no finished session") as caught:
        build(desk)
    assert "--min-messages" in caught.value.hint
    assert not desk.home.warm.exists()


def test_reviews_failed_and_unfinished_sessions_are_not_mined(
    database: StateDatabase, clock: FixedClock
) -> None:
    go = Turn("go", steps(read("a")))
    good = store(database, clock, go, end="user_exit")
    store(database, clock, go, end="error")
    store(database, clock, go, kind="review", parent_session_id=good)
    store(database, clock, go, private=True)
    broken = store(database, clock, go)
    database.write_now(
        lambda db: (
            db.execute("UPDATE turns SET reason = 'failed' WHERE session = ?", (sessions.key_of(db, broken),))
            and None
        )
    )
    mined_sessions = database.read_now(calls.find_finished_sessions)
    assert [session.id for session in mined_sessions] == [good]


_NONSENSE = (
    *("", "{", "[]", "null", "\x00\xff", '{"examples": 5}', '{"examples": [5]}'),
    *('{"examples": [{"arguments": {}}]}', '{"examples": [{"tool_name": "x", "arguments": [1]}]}'),
    *('{"max_examples": 0}', '{"tags": 7}'),
)


@pytest.mark.parametrize("text", _NONSENSE)
def test_a_template_edited_into_nonsense_is_listed_as_broken_and_hides_no_other(
    desk: WarmTemplates, text: str
) -> None:
    templates.save(desk.home, Template(name="good"))
    (desk.home.warm / "bad.json").write_bytes(text.encode("latin-1"))
    fields = {template.name: template for template in templates.iter_templates(desk.home)}
    assert isinstance(fields["bad"], Broken) and isinstance(fields["good"], Template)
    assert [row.state for row in desk.list_rows()] == ["broken", "ready"]
    desk.delete("bad")
    assert [row.name for row in desk.list_rows()] == ["good"]


def test_the_plain_format_loads_and_unknown_fields_are_kept(desk: WarmTemplates, tmp_path: Path) -> None:
    plain = {
        "name": "other",
        "description": "d",
        "examples": [
            {"tool_name": "read_file", "arguments": '{"path": "a"}', "result_summary": "x", "mood": "good"}
        ],
        "system_prompt_addendum": "Mind.",
        "tags": ["a"],
        "source_session_ids": ["elsewhere"],
        "created_at": "2026-01-01T00:00:00Z",
        "version": "1.2",
        "colour": {"deep": 1},
    }
    source = tmp_path / "Plain.json"
    source.write_text(msgspec.json.encode(plain).decode())
    template = desk.import_file(source, "")
    with pytest.raises(ConfigError, match="a template plain already"):
        desk.import_file(source, "")
    assert template.name == "plain" and template.examples[0].arguments == {"path": "a"}
    written = msgspec.json.decode(desk.export("plain", None))
    assert written["colour"] == {"deep": 1} and written["version"] == "1.2"


def test_the_same_store_gives_the_same_template(
    desk: WarmTemplates, database: StateDatabase, clock: FixedClock
) -> None:
    pitfalls(database, clock, 6)
    first = templates.encode(build(desk))
    assert templates.encode(build(desk)) == first


def _generated(database: StateDatabase, clock: FixedClock, seed: int) -> None:
    """Write a session whose rows are pushed around: lost, doubled, reordered, renamed."""
    rng = random.Random(seed)
    made = [
        rng.choice((read(f"a{n}"), read(f"b{n}", "no", "failed"), sh(f"ls {n}")))
        for n in range(rng.randint(1, 7))
    ]
    id_ = store(database, clock, Turn("go", [made[:3], made[3:]] if made[3:] else [made]))

    def push(connection):
        key = sessions.key_of(connection, id_)
        rows = connection.execute(
            "SELECT id, extra FROM messages WHERE id >> 22 = ? AND role = 2", (key,)
        ).fetchall()
        for row_id, _extra in rows:
            fate = rng.random()
            if fate < 0.15:
                connection.execute("DELETE FROM messages WHERE id = ?", (row_id,))
            elif fate < 0.3:
                connection.execute(
                    "UPDATE messages SET extra = ? WHERE id = ?", (rng.choice(rows)[1], row_id)
                )
            elif fate < 0.4:
                connection.execute("UPDATE messages SET extra = '{broken' WHERE id = ?", (row_id,))

    database.write_now(push)


def pairs_are_sound(database: StateDatabase, clock: FixedClock, stores: int) -> None:
    """Every call comes once, with at most one result, and what is primed is valid for every provider."""
    for seed in range(stores):
        _generated(database, clock, seed)
    found = database.read_now(
        lambda db: [row[0] for row in db.execute("SELECT key FROM sessions ORDER BY key")]
    )
    for key in found:
        asked: set[int] = set()
        judge = OutcomeJudge()

        def work(connection, key=key, asked=asked, judge=judge):
            for item in calls.stream_calls(connection, key):
                if isinstance(item, calls.StoredCall):
                    place = (item.asked_seq, item.arguments)
                    assert place not in asked
                    asked.add(place)
                judge.add(item)
            return list(judge.finish())

        judged = database.read_now(work)
        assert len(judged) == len(asked)
        examples = [
            Example(
                tool_name=judged_call.call.name,
                arguments={"n": judged_call.call.seq},
                result_summary=judged_call.call.result or "",
            )
            for judged_call in judged
            if judged_call.outcome == "ok"
        ]
        prime = make_prime("hash", examples)
        assert list(prime.messages) == list(repair([*prime.messages]))[: len(prime.messages)]
        ids = [call.id for message in prime.messages for call in message.tool_calls]
        assert len(ids) == len(set(ids)) == len(examples)


@pytest.mark.slow
def test_generated_stores_give_no_orphan_invalid_or_doubled_pair(
    database: StateDatabase, clock: FixedClock
) -> None:
    pairs_are_sound(database, clock, 60)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_ten_thousand_generated_stores(database: StateDatabase, clock: FixedClock) -> None:
    pairs_are_sound(database, clock, 10_000)


def test_memory_does_not_grow_with_the_store(database: StateDatabase, clock: FixedClock) -> None:
    pitfalls(database, clock, 4)
    mined = database.read_now(lambda db: mine(db, MiningScope(min_messages=1), lambda done, total: None))
    assert all(len(group.candidates) <= 5 for group in mined.groups.values())
