"""Who is let in, whose memory they have, who decides, what is a flood, and what in a group is for the bot."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import FixedClock
from whet.contract.channels import ChatPlace, Incoming
from whet.contract.errors import ConfigError
from whet.gateway.router import ChatUser, Router, new_code
from whet.gateway.settings import GatewayChannelText, GatewayPersonText
from whet.store import paired
from whet.store.database import StateDatabase

ANN, BEN, CAT = (
    GatewayPersonText({"board": 7, "irc": "ann"}, owner=True),
    GatewayPersonText({"board": "8"}, approves=True),
    GatewayPersonText({"board": "9"}),
)


def router(flood: int = 2, **channel: Any) -> Router:
    channels = {"one": GatewayChannelText("board", **channel), "two": GatewayChannelText("irc", **channel)}
    return Router(channels, {"ann": ANN, "ben": BEN, "cat": CAT}, flood)


def place(user: str, *, channel: str = "one", group: bool = False) -> ChatPlace:
    return ChatPlace(channel, "c1", "", user, is_group=group)


def test_people_are_known_by_their_ids_on_each_platform() -> None:
    found = router()
    assert found.find_in_file(place("7")) == ChatUser("ann", "", approves=True)
    assert found.find_in_file(place("8")) == ChatUser("ben", "ben", approves=True)
    assert found.find_in_file(place("9")) == ChatUser("cat", "cat")
    assert found.find_in_file(place("ann", channel="two")) == ChatUser("ann", "", approves=True)
    assert found.find_in_file(place("7", channel="two")) is None and found.find_in_file(place("1")) is None
    assert found.approvers("one") == [("one", "7"), ("one", "8"), ("two", "ann")]
    assert found.approvers("two") == [("two", "ann"), ("one", "7"), ("one", "8")]


def test_a_slack_id_counts_in_one_workspace() -> None:
    channels = {name: GatewayChannelText("slack") for name in ("work", "club")}
    ann = GatewayPersonText({"slack": "work:U7"}, owner=True)
    found = Router(channels, {"ann": ann}, 2)
    assert found.find_in_file(place("U7", channel="work")) == ChatUser("ann", "", approves=True)
    assert found.find_in_file(place("U7", channel="club")) is None
    assert found.find_in_file(place("T0OTHER:U7", channel="work")) is None
    assert found.approvers("club") == [("work", "U7")]
    bare = {"ann": GatewayPersonText({"slack": "U7"}, owner=True)}
    with pytest.raises(ConfigError, match="does not say in which workspace"):
        Router(channels, bare, 2)
    alone = Router({"work": GatewayChannelText("slack")}, bare, 2)
    assert alone.find_in_file(place("U7", channel="work")) and alone.approvers("work") == [("work", "U7")]
    assert alone.find_in_file(place("T0OTHER:U7", channel="work")) is None


def test_a_conversation_has_its_persons_memory_and_a_group_one_of_its_own() -> None:
    found = router()
    ann, ben = ChatUser("ann", ""), ChatUser("ben", "ben")
    assert found.profile(ann, place("7")) == "" and found.profile(ben, place("8")) == "ben"
    names = [found.profile(user, place("7", group=True)) for user in (ann, ben)]
    assert names == ["owner.onec1-a7cb6ad8", "ben.onec1-ead6665e"]
    long = ChatUser("x", "X" * 60 + "/..")
    assert found.profile(long, place("7", group=True)).startswith("x" * 40 + "-")


def test_a_minute_takes_so_many_messages_of_a_person() -> None:
    found = router(flood=2)
    times = [0.0, 0.0, 1.0, 59.9, 60.0, 60.5, 61.0]
    assert [found.over_rate_limit(place("7"), at) for at in times] == [0, 0, 1, 2, 1, 2, 2]
    assert (
        found.over_rate_limit(place("8"), 61.0) == 0 == found.over_rate_limit(place("7", channel="two"), 61.0)
    )
    assert [found.over_rate_limit(place("9"), 0.0) for _ in range(60)][-12:] == [*range(47, 51), *[50] * 8][
        -12:
    ]
    assert found.over_rate_limit(place("9"), -60.0) == 0, "a clock was set back"


def test_of_five_thousand_people_those_who_spoke_last_are_counted() -> None:
    found = router(flood=1)
    for user in range(1, 5_001):
        found.over_rate_limit(place(str(user)), 0.0)
    assert found.over_rate_limit(place("1"), 0.0) == 1
    found.over_rate_limit(place("5001"), 0.0)
    assert found.over_rate_limit(place("1"), 0.0) == 2 and found.over_rate_limit(place("2"), 0.0) == 0


@pytest.mark.parametrize(
    ("groups", "group", "named", "ours"),
    [
        ("mention", False, False, True),
        ("mention", True, True, True),
        ("mention", True, False, False),
        ("off", True, True, False),
        ("off", False, False, True),
    ],
)
def test_a_group_is_heard_where_it_names_the_bot(groups: str, group: bool, named: bool, ours: bool) -> None:
    update = Incoming(place("7", group=group), "u1", "message", mentions_us=named)
    assert router(groups=groups).is_for_us(update) is ours


def test_a_stranger_gets_a_code_alone_with_the_bot_and_a_memory_once_it_is_accepted(tmp_path: Path) -> None:
    stranger = Incoming(place("44"), "u1", "message", user_name="Z" * 200)
    with closing(StateDatabase.open(tmp_path / "state.db", FixedClock())) as database:

        def offered(found: Router, update: Incoming) -> bool:
            return database.write_now(lambda db: found.offer(db, update, "ABCD-EFGH", 1_000))

        grouped = Incoming(place("44", group=True), "u1", "message")
        assert not offered(router(), grouped) and not offered(router(pairing=False), stranger)
        assert database.read_now(lambda db: paired.list_requests(db, 2_000)) == []
        assert offered(router(), stranger)
        (waiting,) = database.read_now(lambda db: paired.list_requests(db, 2_000))
        assert (waiting.channel, waiting.user, waiting.name) == ("one", "44", "Z" * 100)
        assert (waiting.made_ms, waiting.expires_ms) == (1_000, 601_000)
        found = router()
        assert database.read_now(lambda db: found.person(db, stranger.place)) is None
        database.write_now(lambda db: paired.accept(db, "ABCD-EFGH", 2_000, "2026-11-21T09:00:00.000Z"))
        person = database.read_now(lambda db: found.person(db, stranger.place))
        assert person is not None and (person.name, person.approves) == ("44", False)
        assert person.profile.startswith("one-44-")
        assert database.read_now(lambda db: found.person(db, place("7"))) == found.find_in_file(place("7"))


def test_a_code_is_two_groups_of_letters_that_are_read_out_without_doubt() -> None:
    codes = {new_code() for _ in range(20)}
    assert len(codes) == 20
    for code in codes:
        left, _, right = code.partition("-")
        assert len(left) == len(right) == 4 and not set(left + right) & set("IO01")
