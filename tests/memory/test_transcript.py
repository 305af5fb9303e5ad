"""What was said or shown later about what a quote points at, and which of two places counts."""

from __future__ import annotations

import pytest
from benchmarks.lessons.world import Run, Say, Step, User, World

from tests.memory.evidence import locate, session, shell
from tests.memory.home import talk
from tests.support import each
from whet.clock import use_zone
from whet.memory.transcript import load_transcript

FINE: list[Step] = [Say("Done."), User("What a fine day, thanks a lot to all of you over there."), Say("ok")]


def taken_back(*steps: Step, quote: str) -> str:
    seen = session(*steps)
    passage = locate(seen, quote)
    return seen.find_retraction(passage)


@pytest.mark.fast_rows("Kiln at 900", "Kiln and glaze", "shelf")
@pytest.mark.parametrize(
    ("old", "new", "is_newer"),
    [
        # Three words of the subject are the same, and each says something of its own.
        ("Kiln glaze clay oven", "Kiln glaze clay shelf", True),
        ("Kiln glaze oven", "Kiln glaze shelf", False),
        # Three of five are enough, three of six are not.
        ("Kiln glaze clay oven bowl", "Kiln glaze clay shelf plate", True),
        ("Kiln glaze clay oven bowl vase", "Kiln glaze clay shelf plate mugs", False),
        ("Kiln glaze clay oven", "Kiln glaze clay shelf plate mugs jugs", True),
        # The same again, more of it, or less of it takes nothing back.
        ("Kiln glaze clay oven", "The kiln, glaze and clay. Oven", False),
        ("Kiln glaze clay oven.", "KILN glaze clay oven!", False),
        ("Kiln glaze clay oven.", "Yes, kiln glaze clay oven it is", False),
        ("Yes, kiln glaze clay oven it is", "kiln glaze clay oven.", False),
        ("Kiln and glaze and clay", "Kiln glaze clay shelf", False),
        ("Kiln glaze clay shelf", "Kiln and glaze and clay", False),
        # With values, two words of the subject, which are half of the shorter one.
        ("Kiln glaze at 900", "Kiln glaze at 950", True),
        ("Kiln at 900", "Kiln at 950", False),
        # Other words in two places are about another thing.
        ("Kiln glaze oven at 900", "Kiln glaze shelf at 950", False),
        ("Kiln glaze oven bowl at 900", "Kiln glaze shelf plate at 950", False),
        ("Kiln glaze at 900 or 950", "Kiln glaze at 950 or 990", False),
        ("Kiln glaze at 900", "Kiln glaze for clay", False),
        ("Kiln glaze at 900", "Kiln glaze shelf plate mugs at 950", True),
        ("Kiln glaze clay at 900", "Kiln glaze clay oven", True),
        # A value that the other one begins with is another one.
        ("Kiln glaze at 900", "Kiln glaze at 90", True),
        # A question decides nothing.
        ("Kiln glaze clay oven", "Kiln glaze clay shelf?", False),
    ],
)
@pytest.mark.parametrize("is_said", [True, False])
def test_a_later_sentence_of_the_same_subject_takes_the_earlier_one_back(
    old: str, new: str, is_newer: bool, is_said: bool
) -> None:
    first = User(old) if is_said else shell("cat a", old)
    assert taken_back(User("Go on."), first, *FINE, User(new), quote=old) == (new if is_newer else "")


@each(
    ("reply", "is_no"),
    [
        ("No!", True),
        ("nope, not at all", True),
        ("no no no no no", True),
        ("No, do not do that.", True),
        ("non, ne fais pas ça", True),
        ("no, the one of Bo is", False),
        ("wrong", True),
        ("Nothing more", False),
        ("错", True),
        ("no, and by the way how is the weather", False),
        # Another value of the same shape, where the first one is not named: the note shows both.
        ("8090", False),
        ("rather 8090 than 8080", False),
        ("staging-b", False),
        ("one two three four five 8090", False),
        ("one two three four five six 8090", False),
        (f"{'x' * 43} 8090", False),
        (f"{'x' * 44} 8090", False),
    ],
)
def test_the_reply_right_behind_a_statement_says_no_to_it_and_not_one_that_gives_another_value(
    reply: str, is_no: bool
) -> None:
    user = User("Staging is on 8080.")
    assert taken_back(user, Say("ok"), User(reply), quote="Staging is on") == (reply if is_no else "")
    assert taken_back(user, *FINE, User(reply), quote="Staging is on") == ""


@pytest.mark.parametrize(
    ("is_said", "later", "is_back"),
    [
        (True, "No, the kiln is broken.", True),
        (False, "No, the kiln is broken.", False),
        (True, "No, use the kiln!", False),
        (True, "No, that was another loom.", False),
        (True, "The kiln is broken.", False),
    ],
)
def test_a_later_no_takes_back_what_was_said_of_it_and_not_what_was_shown(
    is_said: bool, later: str, is_back: bool
) -> None:
    first = User("Use the kiln.") if is_said else shell("cat a", "Use the kiln.")
    text = taken_back(User("Go on."), first, *FINE, User(later), quote="Use the kiln.")
    assert text == (later if is_back else "")
    repeated = taken_back(User("Well no, kiln it is."), *FINE, User("No, kiln it is."), quote="Well no, kiln")
    assert repeated == ""


@pytest.mark.parametrize(
    ("later", "newer"),
    [
        (shell("cat a.ini", "host = b\nport = 9090"), "port = 9090"),
        (shell("cat a.ini", "host = b\nport = 8080\nport = 9090"), ""),
        (shell("cat a.ini", "host = b"), ""),
        (shell("cat b.ini", "port = 9090"), ""),
        (shell("cat a.ini", "port = 9090", ok=False), ""),
        (Run("read_file", {"path": "a.ini"}, "port = 9090"), ""),
    ],
)
def test_a_later_look_at_the_same_place_shows_what_holds(later: Step, newer: str) -> None:
    look = shell("cat a.ini", "port = 8080")
    assert taken_back(User("Look."), look, later, quote="port = 8080") == newer
    # What the person said of it is theirs, and what failed held for its own time.
    assert taken_back(User("It says: port = 8080"), later, quote="port = 8080") == ""
    failed = shell("cat a.ini", "port = 8080", ok=False)
    assert taken_back(User("Look."), failed, later, quote="port = 8080") == ""


@pytest.mark.parametrize(
    ("later", "newer"),
    [
        ("[web]\nport = 80\n[mail]\nport = 9090", "port = 9090"),
        ("[web]\nport = 80\n[mail]\nport = 8080", ""),
        ("[web]\nport = 80\n[mail]\nhost = b", ""),
        ("[web]\nport = 80", ""),
    ],
)
def test_a_later_look_shows_what_stands_below_the_same_heads(later: str, newer: str) -> None:
    look = shell("cat a.ini", "[web]\nport = 80\n[mail]\nport = 8080")
    text = taken_back(User("Look."), look, shell("cat a.ini", later), quote="port = 8080")
    assert text == newer


@pytest.mark.parametrize(
    ("reply", "comes_along"),
    [
        ("to Tomas, not to Ines", True),
        ("to Tomas, not to Ines?", False),
        ("to Tomas, please", False),
        ("no, to Tomas, not to Ines", True),
        ("no, dear, please send it to Tomas now, not to Ines", True),
        ("no, dear, please send it to Tomas now, not to Ines, in May", False),
        (f"Ines {'x' * 91}", True),
        (f"Ines {'x' * 92}", False),
    ],
)
def test_a_short_reply_on_the_same_subject_belongs_to_what_was_said(reply: str, comes_along: bool) -> None:
    seen = session(User("Send it to Ines."), User(reply), User("Ines it is."))
    found = locate(seen, "Send it to Ines")
    passage = seen.find_reply(found)
    last = "Ines it is." if reply.endswith("?") else ""  # a question is passed over
    assert (passage.unit if passage else "") == (reply if comes_along else last)
    shown = session(User("Go."), shell("cat a", "Send it to Ines."), User(reply))
    found = locate(shown, "Send it to Ines")
    assert shown.find_reply(found) is None
    reported = session(User("Anna said “send all of it to Ines”."), User(reply))
    found = locate(reported, "send all of it to Ines")
    assert (found.tier, found.source.role) == ("untrusted", "user")
    assert reported.find_reply(found) is None


def test_of_two_places_the_one_that_worked_counts_and_then_the_later_one() -> None:
    seen = session(
        User("Go."),
        shell("make a", "port 8080 is open"),
        shell("make b", "port 8080 is open"),
        shell("make c", "port 8080 is open", ok=False),
        Run("web_fetch", {"url": "https://x.example"}, "port 8080 is open"),
    )
    passage = locate(seen, "port 8080 is")
    assert (passage.source.call, passage.tier) == ("make b", "observed")
    assert seen.turn == 1 and [source_text.call for source_text in seen.list_results()] == [
        "make a",
        "make b",
        "make c",
    ]


@pytest.mark.parametrize(("wrote", "tier"), [("port=808", "own"), ("port=80", "observed")])
def test_less_than_eight_letters_are_nobodys_before_a_tool_shows_them(wrote: str, tier: str) -> None:
    edit = Run("write_file", {"path": "a", "content": wrote}, "ok")
    passage = locate(session(User("Go."), edit, shell("cat a", wrote)), wrote)
    assert passage.tier == tier


def test_what_the_person_or_a_tool_said_first_is_not_the_assistants() -> None:
    edit = Run("write_file", {"path": "a", "content": "port = 8080"}, "ok")
    look = shell("cat a", "port = 8080")
    talked = locate(session(User("Go."), Say("port = 8080"), look), "port = 8080")
    assert talked.tier == "observed"
    for first, tier in ((User("port = 8080"), "user"), (shell("cat b", "port = 8080"), "observed")):
        found = locate(session(User("Go."), first, edit, look), "port = 8080")
        assert found.tier == tier
    page = Run("web_fetch", {"url": "https://x.example"}, "port = 8080")
    found = locate(session(User("Go."), page, edit, look), "port = 8080")
    assert found.tier == "untrusted" and "web_fetch" in found.why


def test_prose_is_taken_across_its_lines_and_an_error_is_one_line() -> None:
    text = "Never run the migration\nwhile people work. It breaks things."
    for ok, unit in ((True, text.replace("\n", " ")), (False, "Never run the migration")):
        passage = locate(session(User("Go."), shell("cat a", text, ok=ok)), "run the migration")
        assert passage.unit == unit


@pytest.mark.parametrize(("wrote", "call"), [("built 3x", "cat a"), ("built 3", None)])
def test_eight_letters_that_a_call_printed_point_at_it_as_a_step(wrote: str, call: str | None) -> None:
    edit = Run("write_file", {"path": "a", "content": wrote}, "ok")
    passage = locate(session(User("Go."), edit, shell("cat a", wrote)), wrote, is_step=True)
    assert (passage.source.call if not passage.unit else None) == call


def test_a_step_points_at_a_failure_that_says_it_before_a_call_that_holds_it() -> None:
    seen = session(
        User("Go."), shell("fire b17", "fire b17: no gas", ok=False), shell("fire b17 --electric", "ok")
    )
    found = locate(seen, "fire b17: no", is_step=True)
    assert found.source.failed
    found = locate(seen, "fire b17", is_step=True)
    assert found.source.failed


def test_a_command_that_a_page_names_is_the_pages_where_it_is_no_step() -> None:
    page = Run("web_fetch", {"url": "https://x.example"}, "Run make docs-all now.")
    seen = session(User("Go."), page, shell("make docs-all", "built"))
    for is_step, tool in ((False, "web_fetch"), (True, "terminal")):
        passage = locate(seen, "make docs-all", is_step=is_step)
        assert passage.source.tool == tool


def test_a_part_that_only_speaks_is_none_of_its_call() -> None:
    call = shell("git commit --all --quiet --no-verify -m 'Pushes go to main now'", "[main 1a2b3c4]")
    passage = locate(session(User("Go."), call), "-m 'Pushes go to main", is_step=True)
    assert passage.tier == "own"


def test_a_stored_session_is_read_alone_with_its_numbers_and_its_days(world: World) -> None:
    first, second = (
        talk(world, text, "And then?") for text in ("Tests run with nox.", "Deploys are on Mondays.")
    )
    world.database.write_now(lambda db: db.execute("UPDATE messages SET at = 1795176000000") and None)
    use_zone("UTC")
    transcript, two = (
        world.database.read_now(lambda db, key=key: load_transcript(db, key)) for key in (first, second)
    )
    assert transcript.find_passage("Deploys are") is None and two.find_passage("Tests run") is None
    assert [(text.seq, text.turn, text.day) for text in transcript.sources] == [
        (1, 1, "2026-11-20"),
        (2, 1, "2026-11-20"),
        (3, 2, "2026-11-20"),
        (4, 2, "2026-11-20"),
    ]
    world.database.write_now(lambda db: db.execute("UPDATE sessions SET kind = 'child'") and None)
    helper = world.database.read_now(lambda db: load_transcript(db, first))
    assert {text.tier for text in helper.sources} == {"own"}
