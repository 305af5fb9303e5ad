"""The gateway's two boxes and who was let in, as rows: nothing twice, nothing overtaken, nothing lost."""

from __future__ import annotations

import msgspec
import pytest

from tests.store.support import on
from whet.contract.channels import ChatPlace
from whet.contract.errors import NotFound
from whet.store import chat_changes, chats, paired
from whet.store.chats import SENDING, ChannelCounts
from whet.store.paired import MAX_WAITING, PairedPerson, PairingRequest

pytestmark = pytest.mark.slow_rows("postgres")

HOME = ChatPlace("telegram", "100", user="7")
GROUP = ChatPlace("telegram", "-5", "topic", "7", is_group=True)


def test_a_place_is_one_conversation(db):
    first = on(db, chats.get_or_create_chat, HOME)
    assert (first.place, first.session_id, first.draft) == (HOME, "", "")
    assert on(db, chats.get_or_create_chat, HOME) == first
    group = on(db, chats.get_or_create_chat, GROUP)
    assert group.id != first.id and on(db, chats.get_chat, group.id).place == GROUP
    on(db, chats.set_session, first.id, "s1")
    on(db, chats.set_draft, first.id, "m5")
    record = on(db, chats.find_chat_of_session, "s1")
    assert (record.id, record.draft, record.session_id) == (first.id, "m5", "s1")
    assert on(db, chats.find_chat_of_session, "s2") is None
    assert on(db, chats.find_platform_chat, "telegram", "-5").id == group.id
    assert on(db, chats.find_platform_chat, "slack", "-5") is None
    assert on(db, chats.find_user_chat, "telegram", "7").id == first.id
    assert on(db, chats.find_user_chat, "telegram", "7", "-5").id == group.id
    assert on(db, chats.find_user_chat, "telegram", "8") is None


def test_an_update_is_received_once_and_crossed_off_with_its_turn(db):
    update = on(db, chats.add_update, HOME, "u1", '{"ref": "r1"}', 1)
    assert update == 1 and on(db, chats.add_update, HOME, "u1", "{}", 1) is None
    assert on(db, chats.is_received, "telegram", "u1") and not on(db, chats.is_received, "slack", "u1")
    two = on(db, chats.add_update, HOME, "u2", '{"ref": "r2"}', 2)
    three = on(db, chats.add_update, HOME, "u3", '{"ref": "r3"}', 3)
    chat = on(db, chats.get_or_create_chat, HOME).id
    assert [row.id for row in on(db, chats.list_waiting, chat)] == [update, two, three]
    assert [row.id for row in on(db, chats.list_waiting, chat, 1)] == [update]
    assert on(db, chats.list_open_chats, ["telegram"]) == [(chat, False)]
    assert on(db, chats.list_open_chats, []) == []
    assert not on(db, chats.finish_taken_updates, chat)
    on(db, chats.set_update_state, update, "begun")
    assert on(db, chats.list_open_chats, ["telegram"]) == [(chat, True)] and on(
        db, chats.has_begun_turn, chat
    )
    assert not on(db, chats.is_waiting, update) and on(db, chats.is_waiting, two)
    assert not on(db, chat_changes.replace_waiting_update, chat, "r1", "{}"), "a turn has it"
    assert on(db, chat_changes.replace_waiting_update, chat, "r2", '{"ref": "r2", "text": "new"}')
    assert "new" in on(db, chats.list_waiting, chat)[0].body
    assert on(db, chat_changes.replace_waiting_update, chat, "r2", "")
    assert [row.id for row in on(db, chats.list_waiting, chat)] == [three]
    assert on(db, chats.finish_taken_updates, chat)
    assert on(db, chats.drop_waiting_updates, chat, three) == 0
    assert on(db, chats.drop_waiting_updates, chat, three + 1) == 1
    assert on(db, chats.list_open_chats, ["telegram"]) == [] and not on(db, chats.has_begun_turn, chat)


def test_a_change_finds_the_act_of_the_running_turn_and_a_reaction_the_message_of_its_person(db):
    row = on(db, chats.add_update, HOME, "u1", '{"joined": ["r1", "r2"], "text": "both"}', 1)
    chat = on(db, chats.get_or_create_chat, HOME).id
    assert on(db, chat_changes.read_begun_update, chat, "r2") == ""
    assert "both" in on(db, chat_changes.read_waiting_body, row)
    on(db, chats.set_update_state, row, "begun")
    assert on(db, chat_changes.read_waiting_body, row) == ""
    assert "both" in on(db, chat_changes.read_begun_update, chat, "r2")
    assert on(db, chat_changes.read_begun_update, chat, "r3") == ""
    change = on(db, chats.add_update, HOME, "u2", '{"verb": "edit", "ref": "r1"}', 2)
    assert not on(db, chat_changes.replace_waiting_update, chat, "r1", "{}"), "a change is not a message"
    on(db, chats.set_update_state, change, "done")

    (sent,) = on(db, chats.queue_messages, chat, ['{"text": "ours"}'], 3)
    on(db, chats.end_sending, sent, "sent", ref="m1")
    where = msgspec.structs.replace(HOME, thread="")
    found = on(db, chat_changes.find_sent, where, "m1")
    assert found is not None and found[0].id == chat and "ours" in found[1]
    assert on(db, chat_changes.find_sent, where, "m2") is None
    assert on(db, chat_changes.find_sent, msgspec.structs.replace(HOME, user="other"), "m1") is None
    for number in range(25):
        body = f'{{"verb": "reaction", "ref": "m1", "text": "{number}"}}'
        on(db, chat_changes.add_reaction, HOME, f"x{number}", body, 4)
    on(db, chat_changes.drop_reaction, chat, "m1", "24")
    texts = [msgspec.json.decode(row.body)["text"] for row in on(db, chats.list_waiting, chat, 50)]
    assert texts == [str(number) for number in range(5, 24)]


def test_a_later_message_never_overtakes_one_that_waits(db):
    chat, other = on(db, chats.get_or_create_chat, HOME).id, on(db, chats.get_or_create_chat, GROUP).id
    assert not on(db, chats.has_unsent, chat)
    on(db, chats.queue_messages, chat, ["a", "b"], 5)
    on(db, chats.queue_messages, other, ["c"], 5)
    a, c = on(db, chats.list_due, "telegram")
    assert (a.body, a.state, a.attempts, a.at_ms, c.body) == ("a", "queued", 0, 5, "c")
    assert [row.body for row in on(db, chats.list_due, "telegram", 1)] == ["a"]
    assert on(db, chats.next_message, "telegram", chat) == a
    on(db, chats.begin_sending, a.id, 9)
    assert on(db, chats.next_message, "telegram", chat) is None, "one is under way"
    assert on(db, chats.next_message, "slack", chat) is None
    assert [row.body for row in on(db, chats.list_due, "telegram")] == ["c"]
    [sending] = on(db, chats.list_unfinished_sends, "telegram")
    assert (sending.id, sending.attempts, sending.run_after_ms) == (a.id, 1, 9)
    on(db, chats.uncount_attempt, a.id)
    on(db, chats.end_sending, a.id, "queued", error="e" * 400, again_ms=50)
    again = on(db, chats.get_message, a.id)
    assert (again.attempts, again.run_after_ms, again.state) == (0, 50, "queued")
    assert on(db, chats.count_channels)[0].last_error == "e" * 300
    on(db, chats.replace_message_body, a.id, "A")
    assert on(db, chats.get_message, a.id).body == "A" and on(db, chats.has_unsent, chat)
    on(db, chats.end_sending, a.id, "sent", ref="m1")
    assert on(db, chats.next_message, "telegram", chat).body == "b"


def test_what_a_channel_holds_is_counted_and_what_is_done_is_pruned(db):
    chat = on(db, chats.get_or_create_chat, HOME).id
    rows = [on(db, chats.add_update, HOME, f"u{n}", "{}", n) for n in range(4)]
    for row, state in zip(rows, ("done", "dropped", "begun", "waiting"), strict=True):
        on(db, chats.set_update_state, row, state)
    on(db, chats.queue_messages, chat, list("abcde"), 0)
    for number, state in enumerate(("sent", "sending", "unknown", "failed"), 1):
        on(db, chats.end_sending, number, state)
    on(db, chats.set_draft, chat, SENDING)
    assert on(db, chats.count_channels) == [ChannelCounts("telegram", 1, 1, 1, 1, 1, 1, 1, 1)]
    assert on(db, chats.prune, 0) == 0
    assert on(db, chats.prune, 1) == 2, "the one that was done and the one that was sent"
    assert on(db, chats.prune, 10, limit=0) == 0
    assert on(db, chats.prune, 10) == 1
    assert on(db, chats.count_channels) == [ChannelCounts("telegram", 1, 1, 1, 1, 1, 0, 1, 1)]
    assert on(db, chats.clear_unknown_drafts, "telegram") == 1
    assert on(db, chats.clear_unknown_drafts, "telegram") == 0


def test_a_channel_keeps_how_far_it_was_read(db):
    assert on(db, chats.read_position, "telegram") == ""
    on(db, chats.set_position, "telegram", "7")
    on(db, chats.set_position, "telegram", "8")
    on(db, chats.set_position, "telegram", "x", "other")
    assert on(db, chats.read_position, "telegram") == "8"
    assert on(db, chats.read_position, "telegram", "other") == "x"
    assert on(db, chats.read_positions, "telegram") == {"": "8", "other": "x"}
    assert on(db, chats.read_positions, "y") == {}


def test_a_pairing_code_lets_one_person_in_once(db):
    def offer(user, code, made_ms=0, channel="telegram"):
        return on(
            db, paired.store_code, PairingRequest(channel, user, "Ann", made_ms, made_ms + 100), 3, code
        )

    assert offer("u1", "AB-CD") and not offer("u1", "EF-GH"), "they have one already"
    assert [row.user for row in on(db, paired.list_requests, 99)] == ["u1"]
    assert on(db, paired.list_requests, 100) == []
    for code, now_ms in (("XX-XX", 0), ("AB-CD", 100)):
        with pytest.raises(NotFound, match="pairing code"):
            on(db, paired.accept, code, now_ms, "now")
    person, chat_id = on(db, paired.accept, " ab cd", 99, "now")
    assert (person, chat_id) == (PairedPerson("telegram", "u1", "Ann", "now"), 3)
    assert on(db, paired.is_paired, "telegram", "u1") and not on(db, paired.is_paired, "slack", "u1")
    with pytest.raises(NotFound):
        on(db, paired.accept, "AB-CD", 99, "now")
    assert not on(db, paired.add_person, person) and on(
        db, paired.add_person, PairedPerson("slack", "u2", "", "later")
    )
    assert [row.user for row in on(db, paired.list_people)] == ["u2", "u1"], "in order of since"
    on(db, paired.remove, "slack", "u2")
    with pytest.raises(NotFound, match="u2"):
        on(db, paired.remove, "slack", "u2")


def test_only_so_many_wait_on_a_channel_and_old_codes_make_room(db):
    def offer(number, made_ms=0, channel="telegram"):
        waiting = PairingRequest(channel, f"u{number}", "", made_ms, made_ms + 100)
        return on(db, paired.store_code, waiting, 1, f"code{number}")

    assert all(offer(number) for number in range(MAX_WAITING))
    assert not offer(99) and offer(99, channel="slack")
    assert offer(99, made_ms=100)


def test_a_channel_of_which_nothing_is_stored_counts_nothing():
    assert ChannelCounts("slack") == ChannelCounts("slack", 0, 0, 0, 0, 0, 0, 0, 0, "")
