"""The gateway's two boxes and who was let in, as rows: nothing twice, nothing overtaken, nothing lost."""

from __future__ import annotations

import pytest

from whet.contract.channels import ChatPlace
from whet.contract.errors import NotFound
from whet.store import chats, paired
from whet.store.chats import SENDING, ChannelCounts
from whet.store.paired import MOST_WAITING, PairedPerson, PairingRequest

HOME = ChatPlace("telegram", "100", user="7")
GROUP = ChatPlace("telegram", "-5", "topic", "7", is_group=True)


def on(db, work, *args, **more):
    return db.write_now(lambda c: work(c, *args, **more))


def test_a_place_is_one_conversation(db):
    first = on(db, chats.chat_at, HOME)
    assert (first.place, first.session_id, first.draft) == (HOME, "", "")
    assert on(db, chats.chat_at, HOME) == first
    group = on(db, chats.chat_at, GROUP)
    assert group.id != first.id and on(db, chats.chat, group.id).place == GROUP
    on(db, chats.set_session, first.id, "s1")
    on(db, chats.set_draft, first.id, "m5")
    found = on(db, chats.chat_of_session, "s1")
    assert (found.id, found.draft, found.session_id) == (first.id, "m5", "s1")
    assert on(db, chats.chat_of_session, "s2") is None
    assert on(db, chats.at, "telegram", "-5").id == group.id and on(db, chats.at, "slack", "-5") is None
    assert on(db, chats.of_user, "telegram", "7").id == first.id
    assert on(db, chats.of_user, "telegram", "7", "-5").id == group.id
    assert on(db, chats.of_user, "telegram", "8") is None


def test_an_update_is_received_once_and_crossed_off_with_its_turn(db):
    one = on(db, chats.receive, HOME, "u1", '{"ref": "r1"}', 1)
    assert one == 1 and on(db, chats.receive, HOME, "u1", "{}", 1) is None
    assert on(db, chats.is_received, "telegram", "u1") and not on(db, chats.is_received, "slack", "u1")
    two = on(db, chats.receive, HOME, "u2", '{"ref": "r2"}', 2)
    three = on(db, chats.receive, HOME, "u3", '{"ref": "r3"}', 3)
    chat = on(db, chats.chat_at, HOME).id
    assert [row.id for row in on(db, chats.waiting, chat)] == [one, two, three]
    assert [row.id for row in on(db, chats.waiting, chat, 1)] == [one]
    assert on(db, chats.open_chats, ["telegram"]) == [(chat, False)] and on(db, chats.open_chats, []) == []
    assert not on(db, chats.finish_begun, chat)
    on(db, chats.mark, one, "begun")
    assert on(db, chats.open_chats, ["telegram"]) == [(chat, True)] and on(db, chats.is_begun, chat)
    assert not on(db, chats.is_waiting, one) and on(db, chats.is_waiting, two)
    assert not on(db, chats.replace_waiting, chat, "r1", "{}"), "a turn has it"
    assert on(db, chats.replace_waiting, chat, "r2", '{"ref": "r2", "text": "new"}')
    assert "new" in on(db, chats.waiting, chat)[0].body
    assert on(db, chats.replace_waiting, chat, "r2", "")
    assert [row.id for row in on(db, chats.waiting, chat)] == [three]
    assert on(db, chats.finish_begun, chat)
    assert on(db, chats.drop_waiting, chat, three) == 0 and on(db, chats.drop_waiting, chat, three + 1) == 1
    assert on(db, chats.open_chats, ["telegram"]) == [] and not on(db, chats.is_begun, chat)


def test_a_later_message_never_overtakes_one_that_waits(db):
    chat, other = on(db, chats.chat_at, HOME).id, on(db, chats.chat_at, GROUP).id
    assert not on(db, chats.has_out, chat)
    on(db, chats.post, chat, ["a", "b"], 5)
    on(db, chats.post, other, ["c"], 5)
    a, c = on(db, chats.due, "telegram")
    assert (a.body, a.state, a.attempts, a.at_ms, c.body) == ("a", "queued", 0, 5, "c")
    assert [row.body for row in on(db, chats.due, "telegram", 1)] == ["a"]
    assert on(db, chats.next_out, "telegram", chat) == a
    on(db, chats.begin_sending, a.id, 9)
    assert on(db, chats.next_out, "telegram", chat) is None, "one is under way"
    assert on(db, chats.next_out, "slack", chat) is None
    assert [row.body for row in on(db, chats.due, "telegram")] == ["c"]
    [sending] = on(db, chats.sort_out, "telegram")
    assert (sending.id, sending.attempts, sending.run_after_ms) == (a.id, 1, 9)
    on(db, chats.forget_try, a.id)
    on(db, chats.end_sending, a.id, "queued", error="e" * 400, again_ms=50)
    again = on(db, chats.out, a.id)
    assert (again.attempts, again.run_after_ms, again.state) == (0, 50, "queued")
    assert on(db, chats.counts)[0].last_error == "e" * 300
    on(db, chats.rewrite_out, a.id, "A")
    assert on(db, chats.out, a.id).body == "A" and on(db, chats.has_out, chat)
    on(db, chats.end_sending, a.id, "sent", ref="m1")
    assert on(db, chats.next_out, "telegram", chat).body == "b"


def test_what_a_channel_holds_is_counted_and_what_is_done_is_pruned(db):
    chat = on(db, chats.chat_at, HOME).id
    rows = [on(db, chats.receive, HOME, f"u{n}", "{}", n) for n in range(4)]
    for row, state in zip(rows, ("done", "dropped", "begun", "waiting"), strict=True):
        on(db, chats.mark, row, state)
    on(db, chats.post, chat, list("abcde"), 0)
    for number, state in enumerate(("sent", "sending", "unknown", "failed"), 1):
        on(db, chats.end_sending, number, state)
    on(db, chats.set_draft, chat, SENDING)
    assert on(db, chats.counts) == [ChannelCounts("telegram", 1, 1, 1, 1, 1, 1, 1, 1)]
    assert on(db, chats.prune, 0) == 0
    assert on(db, chats.prune, 1) == 2, "the one that was done and the one that was sent"
    assert on(db, chats.prune, 10, limit=0) == 0
    assert on(db, chats.prune, 10) == 1
    assert on(db, chats.counts) == [ChannelCounts("telegram", 1, 1, 1, 1, 1, 0, 1, 1)]
    assert on(db, chats.unknown_drafts, "telegram") == 1 and on(db, chats.unknown_drafts, "telegram") == 0


def test_a_channel_keeps_how_far_it_was_read(db):
    assert on(db, chats.cursor, "telegram") == ""
    on(db, chats.set_cursor, "telegram", "7")
    on(db, chats.set_cursor, "telegram", "8")
    on(db, chats.set_cursor, "telegram", "x", "other")
    assert on(db, chats.cursor, "telegram") == "8" and on(db, chats.cursor, "telegram", "other") == "x"
    assert on(db, chats.cursors, "telegram") == {"": "8", "other": "x"} and on(db, chats.cursors, "y") == {}


def test_a_pairing_code_lets_one_person_in_once(db):
    def offer(user, code, made_ms=0, channel="telegram"):
        return on(db, paired.offer, PairingRequest(channel, user, "Ann", made_ms, made_ms + 100), 3, code)

    assert offer("u1", "AB-CD") and not offer("u1", "EF-GH"), "they have one already"
    assert [row.user for row in on(db, paired.all_waiting, 99)] == ["u1"]
    assert on(db, paired.all_waiting, 100) == []
    for code, now_ms in (("XX-XX", 0), ("AB-CD", 100)):
        with pytest.raises(NotFound, match="pairing code"):
            on(db, paired.accept, code, now_ms, "now")
    person, chat_id = on(db, paired.accept, " ab cd", 99, "now")
    assert (person, chat_id) == (PairedPerson("telegram", "u1", "Ann", "now"), 3)
    assert on(db, paired.is_paired, "telegram", "u1") and not on(db, paired.is_paired, "slack", "u1")
    with pytest.raises(NotFound):
        on(db, paired.accept, "AB-CD", 99, "now")
    assert not on(db, paired.let_in, person) and on(
        db, paired.let_in, PairedPerson("slack", "u2", "", "later")
    )
    assert [row.user for row in on(db, paired.everybody)] == ["u2", "u1"], "in order of since"
    on(db, paired.remove, "slack", "u2")
    with pytest.raises(NotFound, match="u2"):
        on(db, paired.remove, "slack", "u2")


def test_only_so_many_wait_on_a_channel_and_old_codes_make_room(db):
    def offer(number, made_ms=0, channel="telegram"):
        waiting = PairingRequest(channel, f"u{number}", "", made_ms, made_ms + 100)
        return on(db, paired.offer, waiting, 1, f"code{number}")

    assert all(offer(number) for number in range(MOST_WAITING))
    assert not offer(99) and offer(99, channel="slack")
    assert offer(99, made_ms=100)


def test_a_channel_of_which_nothing_is_stored_counts_nothing():
    assert ChannelCounts("slack") == ChannelCounts("slack", 0, 0, 0, 0, 0, 0, 0, 0, "")
