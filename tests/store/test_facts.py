"""What a turn's calls did, and where a session's next command begins, as its calls left it."""

from __future__ import annotations

import apsw
import msgspec
import pytest

from whet.contract.receipts import CallEffects, CommandRun, FileLines, SentOut, TestCounts
from whet.store import facts, sessions
from whet.store.database import StateDatabase
from whet.store.facts import ShellFolder

_CALL = (
    "INSERT INTO tool_calls (session, seq, position, turn, step, call_id, name, facts)"
    " VALUES (?, ?, 0, 1, 1, ?, 'terminal', ?)"
)


def test_the_folder_is_that_of_the_last_call_that_moved_whatever_is_known(db: StateDatabase) -> None:
    def key_of(connection: apsw.Connection) -> int:
        sessions.create(connection, sessions.NewSession(id="s"), "2026")
        return sessions.key_of(connection, "s")

    key = db.write_now(key_of)

    def left(seq: int, text: str) -> None:
        db.write_now(lambda connection: connection.execute(_CALL, (key, seq, f"c{seq}", text)))

    def folder(shell_folder: ShellFolder, through: int) -> ShellFolder:
        return db.read_now(
            lambda connection: facts.select_shell_folder(connection, key, shell_folder, through)()
        )

    nowhere = folder(ShellFolder(), 0)
    assert nowhere == ShellFolder("", 0, 0)
    left(1, '{"command":"cd a","folder":"a"}')
    left(2, '{"command":"make"}')
    at_two = folder(nowhere, 2)
    assert at_two == ShellFolder("a", 0, 2)
    assert folder(at_two, 3).folder == "a"
    left(4, '{"command":"cd ..","folder":""}')
    assert folder(at_two, 4) == ShellFolder("", 0, 4)

    def rewrite(connection: apsw.Connection) -> None:
        connection.execute("UPDATE sessions SET epoch = epoch + 1 WHERE key = ?", (key,))
        connection.execute("DELETE FROM tool_calls WHERE session = ?", (key,))

    assert db.read_now(lambda c: facts.select_shell_folder(c, key + 1, at_two, 5)()) == ShellFolder(), (
        "a session that is gone"
    )
    db.write_now(rewrite)  # calls that were taken back left nothing
    assert folder(at_two, 5) == ShellFolder("", 1, 5)


_TESTS = TestCounts("pytest", 3, direct=True)
_RAN = CallEffects(command="pytest", tests=_TESTS)
_EDITED = CallEffects(edits=(FileLines("a.py", 2, 1),))
_TOUCHED = CallEffects(command="make", touched=(FileLines("b.c", 1, 0),))
_SAID = CallEffects(command="ls")


def _turn(db: StateDatabase, *did: CallEffects | None, turn: int = 1, error: str = "") -> int:
    """Store calls of a turn, the first as call 10 of turn 1, 20 of turn 2; None did nothing."""

    def put(connection: apsw.Connection) -> int:
        if turn == 1:  # a session before it, so that its key is no turn's number
            for id_ in ("other", "s"):
                sessions.create(connection, sessions.NewSession(id=id_), "2026")
        key = sessions.key_of(connection, "s")
        for seq, effects in enumerate(did, 10 * turn):
            text = "" if effects is None else msgspec.json.encode(effects).decode()
            connection.execute(
                "INSERT INTO tool_calls (session, seq, position, turn, step, call_id, name, error_kind,"
                " exit_code, facts) VALUES (?, ?, 0, ?, 1, ?, 'terminal', ?, 0, ?)",
                (key, seq, turn, f"c{seq}", error, text),
            )
        return key

    return db.write_now(put)


@pytest.mark.fast_rows("sqlite")
@pytest.mark.parametrize(
    ("did", "last"),
    [
        ([], None),
        ([_SAID], None),
        ([_RAN], 10),
        ([_RAN, _SAID, None], 10),
        ([_RAN, _RAN], 11),
        ([_EDITED, _RAN, _SAID], 11),
        ([_RAN, _EDITED], None),
        ([_RAN, _TOUCHED], None),
        ([_RAN, _EDITED, _SAID, _RAN], 13),
        ([_RAN, _EDITED, _SAID], None),
    ],
)
def test_the_last_tests_of_a_turn_count_until_a_call_changes_files(
    db: StateDatabase, did: list[CallEffects | None], last: int | None
) -> None:
    key = _turn(db, *did)
    fact_row = db.read_now(lambda c: facts.find_last_tests(c, key, 1))
    assert (fact_row and fact_row.seq) == last


@pytest.mark.fast_rows("sqlite")
@pytest.mark.parametrize(
    ("did", "state"),
    [
        ([_SAID], "none"),
        ([_RAN], "fresh"),
        ([_EDITED], "never"),
        ([_TOUCHED], "never"),
        ([_RAN, _EDITED], "stale"),
        ([_RAN, _TOUCHED], "stale"),
        ([_EDITED, _RAN, _SAID], "fresh"),
        ([msgspec.structs.replace(_RAN, later=("c.py",))], "stale"),
        ([msgspec.structs.replace(_RAN, touched=_TOUCHED.touched)], "fresh"),
        ([CallEffects(command="make", tests=TestCounts("pytest", 3), touched=_TOUCHED.touched)], "mixed"),
        ([CallEffects(command="make", tests=TestCounts("pytest", 3))], "fresh"),
    ],
)
def test_a_receipt_says_how_tests_stand(db: StateDatabase, did: list[CallEffects | None], state: str) -> None:
    key = _turn(db, *did)
    receipt = db.read_now(lambda c: facts.build_receipt(c, key, 1))
    assert receipt is not None and receipt.state == state


def test_edits_of_a_turn_without_tests_are_stale_where_an_earlier_turn_ran_some(db: StateDatabase) -> None:
    key = _turn(db, _RAN)
    _turn(db, _EDITED, turn=2)
    _turn(db, _SAID, turn=3)
    _turn(db, None, turn=4)
    receipts = [
        db.read_now(lambda c, turn=turn: facts.build_receipt(c, key, turn)) for turn in (1, 2, 3, 4, 5)
    ]
    assert [receipt and receipt.state for receipt in receipts] == ["fresh", "stale", "none", None, None]


def test_edits_before_the_first_tests_of_a_session_were_never_tested(db: StateDatabase) -> None:
    key = _turn(db, _EDITED)
    _turn(db, _RAN, turn=2)
    receipt = db.read_now(lambda c: facts.build_receipt(c, key, 1))
    assert receipt is not None and receipt.state == "never"


def test_a_receipt_sums_the_lines_of_a_file_and_names_what_ran_and_what_was_sent(db: StateDatabase) -> None:
    more = CallEffects(edits=(FileLines("a.py", 5, 3), FileLines("n.py", 1, 0)), marked=("It works.",))
    key = _turn(db, _EDITED, more, _SAID, _RAN, CallEffects(sent="to bob", unmarked="no model"))
    receipt = db.read_now(lambda c: facts.build_receipt(c, key, 1))
    assert receipt is not None
    assert receipt.files == (FileLines("a.py", 7, 4), FileLines("n.py", 1, 0))
    assert receipt.commands == (CommandRun("ls", 0), CommandRun("pytest", 0, "", _TESTS))
    assert receipt.sent == (SentOut("terminal", "to bob", True),) and receipt.tests == _TESTS
    assert (receipt.marked, receipt.unmarked) == (("It works.",), "no model")


@pytest.mark.parametrize(
    ("error", "how", "ok"), [("", "", True), ("exit", "", False), ("timeout", "timeout", False)]
)
def test_a_command_that_was_stopped_says_how_and_one_that_failed_its_exit_code(
    db: StateDatabase, error: str, how: str, ok: bool
) -> None:
    key = _turn(db, CallEffects(command="make", sent="a file"), error=error)
    receipt = db.read_now(lambda c: facts.build_receipt(c, key, 1))
    assert receipt is not None
    assert (receipt.commands[0].how, receipt.sent[0].ok) == (how, ok)


def _effects(db: StateDatabase, key: int) -> list[CallEffects]:
    return [row.facts for row in db.read_now(lambda c: facts.list_turn_facts(c, key, 1))]


def test_a_steps_other_changes_are_kept_with_its_last_command_without_its_edits(db: StateDatabase) -> None:
    key = _turn(db, _EDITED, _SAID, _SAID)
    changed = [FileLines("a.py", 2, 1), FileLines("b.c", 1, 0)]

    def keep(tools: list[str], changed: list[FileLines], step: int = 1) -> None:
        db.write_now(lambda c: facts.store_changed_files(c, (key, 1, step), tools, changed))

    keep(["patch"], changed)
    keep(["terminal"], changed, step=2)
    keep(["terminal"], changed[:1])
    assert _effects(db, key) == [_EDITED, _SAID, _SAID]
    touched = msgspec.structs.replace(_SAID, touched=(FileLines("b.c", 1, 0),))
    keep(["terminal"], changed)
    assert _effects(db, key) == [_EDITED, _SAID, touched]
    keep(["terminal"], [])
    assert _effects(db, key) == [_EDITED, _SAID, _SAID], "what is there no more after a resumed step"


def test_a_denied_call_is_not_taken_for_the_one_that_changed_files(db: StateDatabase) -> None:
    key = _turn(db, _SAID, error="denied")
    db.write_now(lambda c: facts.store_changed_files(c, (key, 1, 1), ["terminal"], [FileLines("b.c", 1, 0)]))
    assert _effects(db, key) == [_SAID]


def test_what_a_judge_marked_and_what_changed_later_are_kept_with_one_call(db: StateDatabase) -> None:
    key = _turn(db, _RAN, _SAID, _SAID)
    row = db.read_now(lambda c: facts.find_last_tests(c, key, 1))
    assert row is not None
    db.write_now(lambda c: facts.store_later_changes(c, key, row, ["c.py"]))
    db.write_now(lambda c: facts.store_marks(c, (key, 1), ["It works."], ""))
    assert _effects(db, key) == [
        msgspec.structs.replace(_RAN, later=("c.py",)),
        _SAID,
        msgspec.structs.replace(_SAID, marked=("It works.",)),
    ]


def test_a_sessions_calls_come_from_a_turn_on_without_turns_taken_back(db: StateDatabase) -> None:
    key = _turn(db, _SAID)
    for turn in (2, 3):
        _turn(db, _RAN, turn=turn)
    db.write_now(
        lambda c: c.execute(
            "INSERT INTO turns (session, number, id, started, undone) VALUES (?, 2, 't', 'x', 'x')", (key,)
        )
    )

    def seqs(since: int) -> list[int]:
        return [row.seq for row in db.read_now(lambda c: facts.list_session_facts(c, key, since_turn=since))]

    assert (seqs(0), seqs(2), seqs(4)) == ([10, 30], [30], [])
