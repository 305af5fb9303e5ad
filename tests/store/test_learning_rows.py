"""The ledger, the files that follow it, and a purge, as rows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.store.support import on
from whet.contract.errors import NotFound, StoreCorrupt
from whet.contract.origin import Origin
from whet.store import learned, ledger, purge, sessions
from whet.store.learned import ContextItem, FileState, Mark, Use
from whet.store.ledger import FileChange, NewRow, Quote, hash_text

pytestmark = pytest.mark.slow_rows("postgres")


def new(**more):
    origin: dict[str, Any] = {
        "session_id": "s1",
        "turn_id": "t1",
        "tool_call_id": "",
        "parent_session_id": "",
    }
    origin |= {name: more.pop(name) for name in list(more) if name in Origin.__struct_fields__}
    fields: dict[str, Any] = {"kind": "memory", "item": "user", "action": "add", "state": "active", **more}
    return NewRow(origin=Origin(**origin), **fields)


def test_a_change_is_kept_whole_and_found(db):
    quote = Quote("say so", "s1", 4, "user", trust="user", failed=True)
    change = FileChange("SKILL.md", "h1", "h2")
    whole = new(before="a", after="b", changes=(change,), base_hash="x", hash="y", evidence=(quote,))
    whole = msgspec.structs.replace(whole, trust="user", reason="why", undoes=9, profile="ann")
    row = on(db, ledger.insert_row, whole, "now")
    for name in NewRow.__struct_fields__:
        assert getattr(row, name) == getattr(whole, name)
    assert (row.id, row.at, row.undone_by) == (1, "now", 0)
    assert on(db, ledger.get, 1) == on(db, ledger.get, 1, "ann") == row
    for missing in ((2,), (1, "bob"), (10**30,)):
        with pytest.raises(NotFound, match="no change"):
            on(db, ledger.get, *missing)


def test_changes_are_listed_by_what_they_are_of(db):
    on(db, ledger.insert_row, new(tool_call_id="c1", after="one"), "1")
    on(db, ledger.insert_row, new(kind="skill", item="deploy", state="staged", task_id="j1"), "2")
    on(db, ledger.insert_row, new(session_id="s2", parent_session_id="s1", task_id="j1", profile="ann"), "3")

    def ids(*args, **filters):
        return [row.id for row in on(db, ledger.select, *args, **filters)]

    assert ids() == [3, 2, 1] and ids(2) == [3, 2] and ids(session_id="s1") == [3, 2, 1]
    assert ids(session_id="s2") == [3] and ids(kind="skill") == [2] and ids(item="user") == [3, 1]
    assert ids(states=("staged",)) == [2] and ids(states=("staged", "active")) == [3, 2, 1]
    assert ids(profile="") == [2, 1] and ids(profile="ann") == [3]
    assert [row.id for row in on(db, ledger.list_task_rows, "j1")] == [2, 3]
    assert [row.id for row in on(db, ledger.list_task_rows, "j1", ("staged",))] == [2]
    assert on(db, ledger.list_task_rows, "") == []
    assert on(db, ledger.find_by_call, "s1", "c1").id == 1
    assert on(db, ledger.find_by_call, "s1", "") is None and on(db, ledger.find_by_call, "s2", "c1") is None
    assert on(db, ledger.count_by_state) == {"active": 1, "staged": 1} and on(
        db, ledger.count_by_state, "ann"
    ) == {"active": 1}
    on(db, ledger.set_state, 2, "undone", undone_by=3)
    on(db, ledger.set_state, 1, "refused", reason="no proof")
    on(db, ledger.set_state, 1, "rejected")
    one, two = on(db, ledger.get, 1), on(db, ledger.get, 2)
    assert (two.state, two.undone_by, two.reason) == ("undone", 3, "")
    assert (one.state, one.reason) == ("rejected", "no proof")


def test_a_hash_is_of_bytes_and_short():
    assert hash_text("é") == hash_text("é".encode()) and len(hash_text("")) == 32
    assert hash_text("a") != hash_text("b")
    assert hash_text("\ud800")


def test_files_follow_what_they_should_hold(db):
    key = on(db, learned.store_text, b"hello")
    assert on(db, learned.store_text, b"hello") == key and on(db, learned.read_text, key) == b"hello"
    assert on(db, learned.read_text, "") == b""
    with pytest.raises(StoreCorrupt, match="missing"):
        on(db, learned.read_text, "0" * 32)
    assert on(db, learned.get_file_state, "", "a.md") == FileState("a.md", "", "")
    on(db, learned.set_expected_hash, "", "skills/a.md", "k0")
    on(db, learned.set_expected_hash, "", "skills/a.md", key)
    on(db, learned.set_expected_hash, "", "b.md", key)
    on(db, learned.set_expected_hash, "ann", "b.md", "k1")
    wanted = FileState("skills/a.md", key, "")
    assert on(db, learned.get_file_state, "", "skills/a.md") == wanted
    assert on(db, learned.list_file_states, "", "skills/") == [wanted]
    assert [file_state.path for file_state in on(db, learned.list_file_states, "")] == ["b.md", "skills/a.md"]
    assert {file_state.path for file_state in on(db, learned.list_pending_files, "")} == {
        "b.md",
        "skills/a.md",
    }
    on(db, learned.set_written_hash, "", "b.md", "other")
    on(db, learned.set_written_hash, "", "b.md", key)
    assert on(db, learned.list_pending_files, "") == [wanted]
    on(db, learned.set_expected_hash, "", "b.md", "")
    assert on(db, learned.get_file_state, "", "b.md") == FileState("b.md", "", key)
    on(db, learned.set_written_hash, "", "b.md", "")
    assert [file_state.path for file_state in on(db, learned.list_file_states, "")] == ["skills/a.md"]
    assert on(db, learned.list_file_states, "ann") == [FileState("b.md", "k1", "")]


def test_a_skill_without_a_mark_is_a_persons(db):
    assert on(db, learned.get_mark, "", "deploy") == Mark("deploy", "person", False, "")
    mark = Mark("deploy", "agent", True, "git")
    on(db, learned.set_mark, "", Mark("deploy"))
    on(db, learned.set_mark, "", mark)
    assert on(db, learned.get_mark, "", "deploy") == mark and on(db, learned.list_marks, "") == {
        "deploy": mark
    }
    assert on(db, learned.list_marks, "ann") == {}


def test_each_load_of_a_skill_leaves_a_receipt(db):
    uses = [Use(f"s{n}", "t", "c", name, "SKILL.md", "h", "view") for n, name in enumerate(("a", "b", "a"))]
    for use in uses:
        on(db, learned.add_use, "", use, "now")
    on(db, learned.add_use, "ann", uses[0], "now")
    stored = [msgspec.structs.replace(use, at="now") for use in uses]
    assert on(db, learned.list_uses)[1:] == stored[::-1] and len(on(db, learned.list_uses, limit=1)) == 1
    assert on(db, learned.list_uses, name="b") == [stored[1]]
    assert on(db, learned.count_uses, "") == {"a": 2, "b": 1} and on(db, learned.count_uses, "ann") == {
        "a": 1
    }


def test_a_purge_takes_the_words_and_leaves_the_row(db):
    on(db, ledger.insert_row, new(before="b", after="a", evidence=(Quote("q"),), reason="r"), "now")
    on(db, purge.blank_row, 1)
    assert (on(db, ledger.get, 1).before, on(db, ledger.get, 1).after) == ("b", "a")
    on(db, purge.blank_row, 1, before=True)
    row = on(db, ledger.get, 1)
    assert (row.before, row.after, row.reason, len(row.evidence)) == (purge.PURGED, "a", "r", 1)
    on(db, purge.blank_row, 1, after=True, proof=True)
    row = on(db, ledger.get, 1)
    assert (row.after, row.reason, row.evidence, row.at) == (purge.PURGED, "", (), "now")
    held, free = on(db, learned.store_text, b"one two"), on(db, learned.store_text, b"two three")
    last = on(db, learned.store_text, b"seen three")
    on(db, learned.set_expected_hash, "", "a", held)
    on(db, learned.set_written_hash, "", "b", last)
    assert set(on(db, purge.find_texts, [("two",)])) == {held, free}
    assert on(db, purge.find_texts, [("two", "one")]) == [held]
    assert on(db, purge.find_texts, [("four",), ("three", "two")]) == [free]
    assert on(db, purge.drop_texts, [held, free, last]) == 1
    assert [on(db, purge.has_text, key) for key in (held, free, last, "")] == [True, False, True, True]
    for name, label in (("x", "secret"), ("y", "open")):
        on(db, sessions.create, sessions.NewSession(id=name, system_prompt=f"it is {label}"), "now")
        on(db, learned.record_items, name, [ContextItem("memory", name, "h", label)])
    on(db, purge.drop_labels, ["secret"])
    labels = db.read_now(lambda c: c.execute("SELECT label FROM context_items ORDER BY name").fetchall())
    assert labels == [("",), ("open",)]
    assert on(db, purge.find_prompts, ["open", "is secret", "it"]) == ["y", "x"]
