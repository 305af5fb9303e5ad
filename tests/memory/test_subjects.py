"""A fact about one numbered thing leaves the facts about the others alone."""

from __future__ import annotations

import asyncio

import pytest
from benchmarks.lessons.world import Run, Say, User, World, add

from tests.memory.evidence import session
from tests.memory.home import learn, review, talk
from whet.memory.gate import judge
from whet.memory.requests import Claim
from whet.review.wording import write_summary
from whet.store import ledger

OTHERS = [
    ("Customer 4711 pays within 14 days.", "Customer 4712 pays within 60 days."),
    ("Customer 4711 pays by card.", "Customer 4712 pays by card."),
    ("Kunde 4711 zahlt binnen 14 Tagen.", "Kunde 4712 zahlt binnen 60 Tagen."),
    ("Le client 4711 paie sous 14 jours.", "Le client 4712 paie sous 60 jours."),
    ("客户4711在14天内付款。", "客户4712在60天内付款。"),
    ("Müşteri 4711 14 gün içinde öder.", "Müşteri 4712 60 gün içinde öder."),
    ("web1.example.com has 4 cores.", "web2.example.com has 8 cores."),
    ("Python 3.11 needs the old linker.", "Python 3.12 needs the new linker."),
    ("The parcel for house 12 goes to house 14.", "The parcel for house 13 goes to house 15."),
    ("For 4711 deliveries go by mail.", "For 4712 deliveries go by mail."),
    ("The key of the hall is in room 7.", "The key of the hall is in room 8."),
    ("Never ship to building 7.", "Never ship to building 71."),
]
WITHIN = [
    ("Port 8080 is for staging.", "Port 8081 is for prod."),
    ("Port 8080 for staging.", "Port 8081 for staging."),
    ("Orders from 12 in Graz get a discount.", "Orders from 14 in Graz get a discount."),
    ("The 9:30 to Graz is full.", "The 10:30 to Graz is full."),
    ("The office at 4711 on Main Street is closed.", "The office at 4712 on Main Street is closed."),
]


@pytest.mark.fast_rows("Customer 4711", "Kunde", "building 7", "Port 8080")
@pytest.mark.parametrize(("first", "second"), [*OTHERS, *WITHIN])
def test_another_number_is_another_thing_across_sessions(world: World, first: str, second: str) -> None:
    learn(world, first, second)
    prompt = asyncio.run(world.prompt())
    assert first in prompt and second in prompt


@pytest.mark.parametrize(("first", "second"), OTHERS[:-2])
def test_another_number_takes_nothing_back_within_a_session(first: str, second: str) -> None:
    transcript = session(User(first), Say("ok"), User(second), Say("ok"))
    for text in (first, second):
        assert text in judge(Claim("memory", text, (text,)), transcript, foreground=False).text


def test_a_sentence_said_again_with_another_number_is_kept_with_the_first(world: World) -> None:
    first, second = OTHERS[-1]
    session_id = talk(world, first, second)
    ((outcome, state),) = review(world, session_id, [add(first, first)])
    assert state == "active", outcome.text
    prompt = asyncio.run(world.prompt())
    assert prompt.index(first) < prompt.index(second)


def test_a_shorter_number_is_not_a_repeat_of_a_longer_one() -> None:
    transcript = session(User("Ship to room 1"), Say("ok"))
    claim = Claim("memory", "Rooms.", ("Ship to room 1",), existing=("“Ship to room 12 first.”",))
    assert judge(claim, transcript, foreground=False).trust == "user"


@pytest.mark.fast_rows("Customer", "standup")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Customer 4711 pays within 14 days.", "Customer 4711 pays within 60 days."),
        ("The standup is at 9:30.", "The standup is at 10:00."),
        ("The rent of flat 3 is 900 euros.", "The rent of flat 3 is 950 euros."),
        ("The report goes out at 9 on Mondays.", "The report goes out at 10 on Mondays."),
        ("The tax is 19% for books.", "The tax is 7% for books."),
    ],
)
def test_another_amount_of_the_same_thing_takes_its_place(world: World, first: str, second: str) -> None:
    learn(world, first, second)
    prompt = asyncio.run(world.prompt())
    assert second in prompt and first not in prompt
    (row, _) = world.database.read_now(lambda db: ledger.select(db))
    assert f"replaced “{first}” (" in write_summary([row]) and f"(whet undo {row.id})" in write_summary([row])


def test_a_setting_read_again_takes_the_old_values_place(world: World) -> None:
    for port in ("8080", "9090"):
        steps = [User("What is the port?"), Run("terminal", "grep PORT .env", f"PORT={port}")]
        session_id = talk(world, *steps)
        review(world, session_id, [add("The port", f"PORT={port}")])
    prompt = asyncio.run(world.prompt())
    assert "PORT=9090" in prompt and "PORT=8080" not in prompt


def test_two_notes_that_may_be_one_are_both_shown(world: World) -> None:
    outcome = learn(world, "Our best client is 4711.", "Our best client is 4712.")
    assert "a similar note stays too: “" in outcome.text and "4711" in outcome.text
    (row, _) = world.database.read_now(lambda db: ledger.select(db))
    summary = write_summary([row])
    assert "a similar note stays too: “Our best client is 4711." in summary
    assert summary.endswith(f"(whet undo {row.id})")
