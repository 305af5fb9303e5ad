"""Small parts of the service as tables: arguments shown, buttons, quorums, exported lines, names."""

from __future__ import annotations

import json
import os
import pwd
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.confirm.test_words import asked, notice
from tests.support import each
from whet.contract.errors import ConfigError
from whet_confirm import shown
from whet_confirm.export import SyslogDatagrams, SyslogStream, otlp_logs, parse_destination, syslog_line
from whet_confirm.http.guard import retry_after
from whet_confirm.names import (
    REQUEST_ID,
    action_key,
    is_high_risk,
    is_same_person,
    new_request_id,
    person_key,
)
from whet_confirm.notify.breaker import Breaker, retry_delay_s
from whet_confirm.notify.buttons import ButtonPress, Buttons, PressMeaning
from whet_confirm.peers import find_peers, listen_at
from whet_confirm.quorum import counts_for, describe, find_missing, groups_in, parse_quorum
from whet_confirm.records import ANYBODY, ApprovalNeed, ApprovalPlan, AuditEvent, Caller
from whet_confirm.web.arguments import (
    ArgumentDiffLine,
    ArgumentRow,
    Disclosure,
    build_rows,
    diff_lines,
    format_document,
)
from whet_confirm.witnesses import Witnesses

# What a call is given.


def block(name: str, text: str, **more: Any) -> ArgumentRow:
    return ArgumentRow(name, text, is_block=True, **more)


@each(
    ("details", "found"),
    [
        ({}, []),
        (
            {"b": 1, "path": "x", "command": "ls"},
            [block("command", "ls"), ArgumentRow("path", "x"), ArgumentRow("b", "1")],
        ),
        ({"note": "x" * 70}, [ArgumentRow("note", "x" * 70)]),
        ({"note": "x" * 71}, [block("note", "x" * 71)]),
        ({"note": "a\nb"}, [block("note", "a\nb")]),
        ({"note": "x" * 600}, [block("note", "x" * 600)]),
        ({"note": "x" * 601}, [block("note", "x" * 601, is_folded=True, size="1 line, 601 characters")]),
        ({"note": "x\n" * 13}, [block("note", "x\n" * 13)]),
        ({"note": "x\n" * 14}, [block("note", "x\n" * 14, is_folded=True, size="15 lines, 28 characters")]),
        ({"list": [1, 2]}, [ArgumentRow("list", "[1, 2]")]),
        ({"list": ["x" * 66]}, [ArgumentRow("list", f'["{"x" * 66}"]')]),
        ({"list": ["x" * 67]}, [block("list", f'[\n  "{"x" * 67}"\n]')]),
        ({"patch": "no lines"}, [ArgumentRow("patch", "no lines")]),
        ({"old": "same", "new": 7}, [ArgumentRow("old", "same"), ArgumentRow("new", "7")]),
        ({"old": "same", "new": "same"}, [ArgumentRow("old", "same"), ArgumentRow("new", "same")]),
        ({"a\u202e": "\u202e"}, [ArgumentRow("a<U+202E>", "<U+202E>")]),
    ],
)
def test_arguments_are_rows_with_what_matters_first(details, found):
    assert build_rows(details, Disclosure()) == found


def line(kind: Any, text: str) -> ArgumentDiffLine:
    return ArgumentDiffLine(kind, {"added": "+", "removed": "-"}.get(kind, " "), text)


def test_changes_and_patches_are_diffs_above_the_rest():
    argument_rows = build_rows(
        {"z": 1, "old": "a\nb", "new": "a\nc", "patch": "--- x\n+++ x\n@@ 1 @@\n-b\n+c\n d\ne"}, Disclosure()
    )
    assert [row.name for row in argument_rows] == ["old → new", "patch", "z"]
    assert argument_rows[0].diff[1:] == (line("same", "a"), line("removed", "b"), line("added", "c"))
    assert (
        argument_rows[0].added,
        argument_rows[0].removed,
        argument_rows[0].size,
        argument_rows[0].is_folded,
    ) == (1, 1, "4 lines", False)
    assert argument_rows[1].diff == (
        line("place", "--- x"),
        line("place", "+++ x"),
        line("place", "@@ 1 @@"),
        line("removed", "b"),
        line("added", "c"),
        line("same", "d"),
        line("same", "e"),
    )
    long = build_rows({"diff": "x" + "\n+y" * 60}, Disclosure())[0]
    assert (long.is_folded, long.size, long.added) == (True, "61 lines", 60)
    assert not build_rows({"diff": "x" + "\n+y" * 59}, Disclosure())[0].is_folded


def test_a_change_has_some_lines_around_and_a_very_long_one_is_shown_whole():
    before = "\n".join(str(number) for number in range(20))
    argument_diff_lines = diff_lines(before, before.replace("10", "ten"), Disclosure(), around=2)
    assert [item.text for item in argument_diff_lines[1:]] == ["8", "9", "10", "ten", "11", "12"]
    lines = ["x"] * 2_000
    assert len(diff_lines("\n".join(lines), "\n".join([*lines[1:], "y"]), Disclosure())) < 20
    assert diff_lines("\n".join(lines), "\n".join([*lines, "y"]), Disclosure())[-1] == line("added", "y")
    assert len(diff_lines("\n".join(lines), "\n".join([*lines, "y"]), Disclosure())) == 4_001


def test_a_sight_shows_all_or_all_but_secrets():
    details = {"token": "abc", "mine": 1, "path": "a"}
    part, whole = Disclosure(("mi*",)), Disclosure(("mi*",), is_whole=True)
    hidden = {"token": "[REDACTED]", "mine": "[REDACTED]"}
    assert json.loads(format_document(details, part)) == details | hidden
    assert json.loads(format_document(details, whole)) == details
    assert part.show_line("a\nb") == "a⏎b" and len(part.show("x" * 300, 200)) < 300
    assert whole.show("x" * 300, 200) == "x" * 300


# Texts.


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("x" * 300, 300, ("x" * 300, False)),
        ("x" * 301, 300, (f"{'x' * 256}\n[... cut, 301 characters in all]", True)),
        ("😀" * 150, 300, ("😀" * 150, False)),
        ("😀" * 151, 300, (f"{'😀' * 128}\n[... cut, 151 characters in all]", True)),
    ],
)
def test_a_text_is_cut_at_what_vendors_count(text, limit, kept):
    assert shown.fit_text(text, limit) == kept
    assert shown.one_line("a\nb", 300) == ("a⏎b", False) and shown.count_units("a😀") == 3


@each("text", ["😀" * 900, "x" * 1_001, "x" * 300_000, "\u202e" * 900])
def test_a_text_that_was_cut_fits_with_what_is_said_of_it(text):
    kept, was_cut = shown.fit_text(text, 1_000)
    assert was_cut and shown.count_units(kept) <= 1_000


def test_secrets_are_redacted_by_name_and_what_is_hidden_is_named():
    details = {"api-key": "x", "inner": [{"Password": "y", "n": {"odd": 1}}], "token": "", "key": 7}
    assert shown.redact(details, ("O?D",)) == {
        "api-key": "[REDACTED]",
        "inner": [{"Password": "[REDACTED]", "n": {"odd": "[REDACTED]"}}],
        "token": "",
        "key": 7,
    }
    names = [f"the value of {name}" for name in ("api-key", "Password", "odd")]
    assert shown.hidden_parts(details, (), ("odd",)) == names
    assert shown.hidden_parts({"a": "b"}, ("plain",)) == []
    key = "ghp_" + "a1" * 18
    assert (
        shown.hidden_parts({"a": key}, ())
        == ["a part that has the shape of a key"]
        == shown.hidden_parts({}, (key,))
    )
    long = ["a text that is too long to be shown at once"]
    assert shown.hidden_parts({}, ("x y " * 5_000,)) == []
    assert shown.hidden_parts({}, ("x y " * 5_000 + "z",)) == long
    size = 200_000 - len(shown.format_json({"a": ""}))
    words = ("x y " * (size // 4 + 1))[:size]
    assert shown.hidden_parts({"a": words}, ()) == [] and shown.hidden_parts({"a": words + "z"}, ()) == long


def test_characters_that_hide_or_look_like_others_are_named():
    assert shown.describe_unclear(asked()) == [] and shown.unclear_warning(asked()) == ""
    signs = "\u200b\u200c\u200d\u200e\u200f\u202a\u202b"
    unclears = shown.describe_unclear(asked(description=signs, action="\u200b"))
    assert len(unclears) == 7, "each once"
    head = "Look closely: it holds characters that hide or look like others: "
    assert shown.unclear_warning(asked(description=signs)) == f"{head}{', '.join(unclears[:5])}, and 2 more"
    assert shown.unclear_warning(asked(description=signs[:5])) == f"{head}{', '.join(unclears[:5])}"
    turned = asked(action="\u05d0/1")
    assert shown.describe_unclear(turned)[-1].startswith("letters from right to left around digits or signs")
    assert shown.unclear_warning(turned).endswith("the JSON shows the stored order")
    assert shown.format_editable({"a": "b"}) == '{\n  "a": "b"\n}' and "\\u202e" in shown.format_editable(
        {"a": "\u202e"}
    )


# Buttons.


def test_a_button_carries_what_it_decides_and_is_taken_from_nobody_else():
    buttons = Buttons(b"k" * 32, "chat", ("too broad", "w" * 60, "not now", "fourth"))
    row = buttons.make_buttons(notice(asked(id="r" * 22)))
    labels = ["✓ Approve", "✗ Deny", "✗ too broad", f"✗ {'w' * 38}", "✗ not now"]
    assert [button.label for button in row] == labels
    assert [button.style for button in row] == ["good", "bad", "bad", "bad", "bad"]
    assert all(len(button.data) <= 64 for button in row)
    pressed = [buttons.parse_press(button.data) for button in row]
    meanings = [buttons.meaning_of(press) for press in pressed if press is not None]
    assert meanings == [
        PressMeaning("approve"),
        PressMeaning("deny"),
        PressMeaning("deny", "too broad"),
        PressMeaning("deny", "w" * 60),
        PressMeaning("deny", "not now"),
    ]
    first = pressed[0]
    assert first is not None and (first.verb, first.request_id, len(first.mac)) == ("a", "r" * 22, 22)
    assert all(press is not None and buttons.is_ours(press, "d1") for press in pressed)
    assert not buttons.is_ours(first, "d2")
    for other in (Buttons(b"l" * 32, "chat"), Buttons(b"k" * 32, "other")):
        assert not other.is_ours(first, "d1")
    assert not buttons.is_ours(ButtonPress("d", "r" * 22, first.mac), "d1")
    hidden = buttons.make_buttons(notice(asked(plan=ApprovalPlan(needs_web=True))))
    assert [button.label for button in hidden][:1] == ["✗ Deny"] and len(hidden) == 4
    assert buttons.make_buttons(notice(asked(status="denied"))) == []


@each(
    "data",
    [
        "", "a", "a:b", "a:b:c:d", "a::c", ":b:c", "a:b:", "x:b:c", "d3:b:c", "d-:b:c", "e0:b:c", "d00:b:c",
        f"a:b:{'c' * 61}",
    ],
)  # fmt: skip
def test_what_no_button_of_ours_looks_like_is_no_press(data):
    assert Buttons(b"k" * 32, "chat").parse_press(data) is None


def test_the_longest_press_is_read_and_a_reason_that_is_gone_is_not():
    assert Buttons(b"k", "chat").parse_press(f"a:b:{'c' * 60}") == ButtonPress("a", "b", "c" * 60)
    assert Buttons(b"k", "chat", ("one",)).parse_press("d0:b:c") == ButtonPress("d0", "b", "c")
    assert Buttons(b"k", "chat", ("one",)).parse_press("d1:b:c") is None


# A channel that fails.


def test_a_channel_is_left_alone_after_four_failures_for_longer_each_time():
    breaker, now_s = Breaker(), 100.0
    for _ in range(3):
        breaker.record_failure(now_s, "down")
    assert not breaker.is_open and breaker.wait_s(now_s) == 0.0 and breaker.reason == "down"
    waits: list[float] = []
    for _ in range(7):
        breaker.record_failure(now_s, "still")
        waits.append(breaker.wait_s(now_s))
        now_s += waits[-1]
        assert breaker.wait_s(now_s) == 0.0
    assert waits == [15.0, 30.0, 60.0, 120.0, 240.0, 300.0, 300.0] and breaker.is_open
    breaker.record_success()
    assert (breaker.is_open, breaker.reason, breaker.wait_s(0.0)) == (False, "", 0.0)
    breaker.record_failure(100.0, "slowly", 40.0)
    assert breaker.wait_s(110.0) == 30.0 and not breaker.is_open
    breaker.record_failure(100.0, "slowly", 10.0)
    assert breaker.wait_s(110.0) == 30.0, "the longer wish holds"
    for _ in range(2):
        breaker.record_failure(100.0, "slowly")
    assert breaker.wait_s(100.0) == 40.0 and breaker.is_open


def test_a_message_is_tried_again_after_longer_each_time():
    assert [retry_delay_s(tries, 0.0) for tries in (0, 1, 2, 3, 7, 50)] == [1, 1, 2, 4, 60, 60]
    assert retry_delay_s(2, 1.0) == 1.5


# Quorums and names.


def test_a_quorum_is_read_and_written():
    needs = parse_quorum(" 2 of ops AND 1 of anyone or 1 of Admins ")
    assert needs == ((ApprovalNeed(2, "ops"), ApprovalNeed(1)), (ApprovalNeed(1, "Admins"),))
    assert describe(needs) == "2 of ops and 1 of anyone or 1 of Admins"
    assert groups_in(needs) == {"ops", "Admins"}
    assert parse_quorum(3) == ((ApprovalNeed(3),),) == parse_quorum("3 of ANY")
    for wrong in ("0", "x", "1 of", "1000", "", "1 of a b", "1 and"):
        with pytest.raises(ValueError, match="is not `N of GROUP`"):
            parse_quorum(wrong)


@each(
    ("quorum", "people", "met"),
    [
        ("1", "", False),
        ("1", "x", True),
        ("2", "x", False),
        ("2", "xy", True),
        ("1 of ops", "x", False),
        ("1 of ops", "a", True),
        ("2 of ops", "ax", False),
        ("2 of ops", "ab", True),
        ("1 of ops and 1 of sec", "b", False),
        ("1 of ops and 1 of sec", "ab", True),
        ("1 of ops and 1 of sec", "ba", True),
        ("1 of ops and 1 of sec", "ax", False),
        ("1 of sec and 1 of ops", "ab", True),
        ("2 of ops or 1 of sec", "c", True),
        ("1 of ops and 1", "xa", True),
        ("1 of none", "ab", False),
        ("2 of ops and 1 of sec", "abc", True),
        ("2 of ops and 1 of sec or 1 of none", "ac", False),
    ],
)
def test_each_person_sits_once(quorum, people, met):
    groups = {"ops": ("a", "b"), "sec": ("b", "c")}
    assert (not find_missing(parse_quorum(quorum), [*people], groups)) is met


def test_who_could_count_for_a_need():
    groups = {"ops": ("a",)}
    assert not find_missing(ANYBODY, ["x"], {}) and find_missing(ANYBODY, [], {})
    assert counts_for(ANYBODY, "x", {})
    assert counts_for(parse_quorum("1 of ops"), "a", groups)
    assert not counts_for(parse_quorum("1 of ops"), "x", groups)
    assert counts_for(parse_quorum("1 of ops or 1"), "x", groups)


def test_names_are_compared_as_people_read_them():
    assert [action_key(name) for name in ("deploy", "De\u200bploy", " a  B ", "ｄｅｐｌｏｙ")] == [
        "deploy",
        "deploy",
        "a b",
        "deploy",
    ]
    assert person_key("An N") == "ann" and is_same_person("Ann", "a nn") and not is_same_person("ann", "ben")
    assert is_high_risk(action_key("Migrate - Database")) and not is_high_risk("migrate")
    first, second = new_request_id(1_795_680_000.0), new_request_id(1_795_680_000.001)
    assert REQUEST_ID.fullmatch(first) and first[:7] < second[:7] and first[7:] != second[7:]


def test_users_of_the_machine_are_callers_by_their_number():
    root = pwd.getpwuid(0).pw_name
    assert find_peers([root, "0"], ["54321"]) == {
        0: Caller(root, "approve", "uid:0"),
        54321: Caller("uid-54321", "submit", "uid:54321"),
    }
    with pytest.raises(ConfigError, match=f"{root} would ask and decide"):
        find_peers(["0"], ["54321", root])
    with pytest.raises(ConfigError, match="there is no user 'no such user' on this machine"):
        find_peers(["no such user"], [])


def test_everybody_of_the_machine_may_connect_to_the_socket(tmp_path):
    path = tmp_path / "api.sock"
    for _ in range(2):  # one that was left behind is taken away
        with listen_at(path) as sock:
            assert not sock.getblocking() and path.stat().st_mode & 0o777 == 0o666
    path.unlink()
    path.write_text("not ours")
    with pytest.raises(ConfigError, match="can't listen at"):
        listen_at(path)
    assert path.read_text() == "not ours"


def test_a_witness_is_a_file_or_an_address():
    witnesses = Witnesses.parse(["a/b", "https://x.example/", "/c", "http://y.example"])
    assert witnesses == Witnesses((Path("a/b"), Path("/c")), ("https://x.example/", "http://y.example"))
    with pytest.raises(ConfigError, match="ftp://x is not a witness"):
        Witnesses.parse(["a", "ftp://x"])


# The log as others read it.


def event(kind: str = "decided", **more: Any) -> AuditEvent:
    given = {"request_id": "r1", "principal": 'a"n\\n]', "owner": "bot", "data": '{"a":1}', **more}
    return AuditEvent(7, 1_795_680_000.25, kind, **given, hash=b"\x01\xff")


def test_an_event_as_a_record_of_opentelemetry():
    def record(given: AuditEvent) -> Any:
        body: Any = otlp_logs([given])
        (resource,) = body["resourceLogs"]
        (name,) = resource["resource"]["attributes"]
        assert name == {"key": "service.name", "value": {"stringValue": "whet-confirm"}}
        (scope,) = resource["scopeLogs"]
        assert scope["scope"] == {"name": "whet.confirm.audit"}
        return scope["logRecords"][0]

    found = record(event())
    values = {one["key"]: one["value"] for one in found.pop("attributes")}
    assert found == {
        "timeUnixNano": "1795680000250000000",
        "observedTimeUnixNano": "1795680000250000000",
        "severityNumber": 9,
        "severityText": "INFO",
        "body": {"stringValue": '{"a":1}'},
    }
    assert values == {
        "event.name": {"stringValue": "whet.confirm.decided"},
        "whet.confirm.event_id": {"intValue": "7"},
        "whet.confirm.request_id": {"stringValue": "r1"},
        "whet.confirm.owner": {"stringValue": "bot"},
        "whet.confirm.hash": {"stringValue": "01ff"},
        "enduser.id": {"stringValue": 'a"n\\n]'},
    }
    alarming = record(event("tampering", owner="", request_id=""))
    assert (alarming["severityNumber"], alarming["severityText"]) == (13, "WARN")
    assert [attribute["key"] for attribute in alarming["attributes"]] == [
        "event.name",
        "whet.confirm.event_id",
        "whet.confirm.hash",
        "enduser.id",
    ]


def test_an_event_as_a_line_of_syslog():
    host = "".join(sign for sign in socket.gethostname() if "!" <= sign <= "~")[:255] or "-"
    head = f"1 2026-11-26T08:00:00.250Z {host} whet-confirm {os.getpid()}"
    named = 'id="7" request="r1" principal="a\\"n\\\\n\\]" owner="bot" hash="01ff"'
    assert syslog_line(event()).decode() == f'<110>{head} decided [whet@32473 {named}] \ufeff{{"a":1}}'
    bare = event("refused" * 6, owner="", request_id="", principal="a\nb")
    assert syslog_line(bare).decode() == (
        f'<110>{head} {("refused" * 6)[:32]} [whet@32473 id="7" principal="a?b" hash="01ff"] \ufeff{{"a":1}}'
    )
    assert syslog_line(event("refused")).startswith(b"<108>1 ")


@pytest.mark.parametrize(
    ("address", "kind", "where"),
    [
        ("syslog+tcp://h", SyslogStream, ("h", 601)),
        ("syslog+tcp://h:7", SyslogStream, ("h", 7)),
        ("syslog+udp://h", SyslogDatagrams, ("h", 514)),
        ("syslog+udp://h:7", SyslogDatagrams, ("h", 7)),
        ("syslog+unix:/dev/log", SyslogDatagrams, "/dev/log"),
        ("syslog+unix://dev/log", SyslogDatagrams, "/dev/log"),
    ],
)
def test_where_the_log_goes(address, kind, where):
    destination = parse_destination(address, {})
    assert isinstance(destination, kind) and vars(destination)["_address"] == where


@pytest.mark.parametrize(
    ("wait_s", "said"), [(0.0, b"1"), (0.001, b"1"), (1.0, b"1"), (1.1, b"2"), (59.9, b"60")]
)
def test_when_to_come_again_is_said_in_whole_seconds_none_too_early(wait_s, said):
    assert retry_after(wait_s) == (b"retry-after", said)
