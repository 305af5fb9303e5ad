"""The decision on one action, from rules, grants and the mode."""

from __future__ import annotations

from typing import Any

import pytest

from whet.approval.actions import ActionView
from whet.approval.policy import GatePolicy, PolicyGrant, Ruling
from whet.approval.risk import Level, Piece
from whet.approval.scopes import scopes_of
from whet.config.permission_settings import ApprovalSettings
from whet.contract.protocols import GrantScope


def policy(mode: str = "ask", **rules: tuple[str, ...]) -> GatePolicy:
    return GatePolicy(ApprovalSettings(mode=mode, **rules))  # type: ignore[arg-type]


def file_piece(path: str) -> ActionView:
    return action("dangerous", path, path, tool="write_file")


def action(level: Level, text: str = "make x", program: str = "make", **more: Any) -> ActionView:
    reasons = ("it is so",) if level in ("dangerous", "forbidden") else ()
    tool = more.pop("tool", "terminal")
    return ActionView(tool, text, text, (Piece(text, program, level, reasons, **more),), reasons)


ALLOWED, COVERED = Ruling("allow"), Ruling("allow", by_rule=True)


@pytest.mark.parametrize(
    ("mode", "level", "ruling"),
    [
        ("ask", "safe", ALLOWED),
        ("ask", "normal", Ruling("ask", "", lasting=True)),
        ("ask", "dangerous", Ruling("ask", "it is so")),
        ("ask", "forbidden", Ruling("deny", "it is never allowed: it is so")),
        ("auto", "normal", ALLOWED),
        ("auto", "dangerous", Ruling("ask", "it is so")),
        ("deny", "safe", ALLOWED),
        (
            "deny",
            "normal",
            Ruling("deny", "the approval mode is deny, and this would need a person's decision"),
        ),
        (
            "deny",
            "dangerous",
            Ruling("deny", "the approval mode is deny, and this would need a person's decision (it is so)"),
        ),
    ],
)
def test_without_rules_the_mode_decides(mode: str, level: Level, ruling: Ruling) -> None:
    assert policy(mode).judge(action(level), ()) == ruling


def test_what_a_person_has_to_decide_is_asked_whatever_allows_it() -> None:
    assert policy("auto", allow=("terminal",)).judge(action("safe"), (), "why") == Ruling(
        "ask", "why", by_rule=True
    )
    asked = policy("auto", ask=("terminal(make *)",)).judge(action("safe"), ())
    assert asked == Ruling("ask", "the rule ask: terminal(make *) wants a person's decision", by_rule=True)
    assert policy("auto", ask=("terminal(rm *)",)).judge(action("safe"), ()) == ALLOWED


@pytest.mark.parametrize(
    ("rule", "level", "covers"),
    [
        ("terminal", "normal", True),
        ("terminal", "dangerous", False),
        ("terminal", "forbidden", False),
        ("other", "normal", False),
        ("terminal(make *)", "normal", True),
        ("terminal(make *)", "dangerous", True),
        ("terminal(make *)", "forbidden", False),
        ("terminal(*)", "normal", True),
        ("terminal(*)", "dangerous", False),
        ("terminal(rm *)", "normal", False),
    ],
)
def test_a_rule_covers_what_it_names(rule: str, level: Level, covers: bool) -> None:
    ruling = policy(allow=(rule,)).judge(action(level), ())
    assert (ruling == COVERED) is covers


def test_a_tool_that_is_dangerous_in_itself_is_covered_by_its_bare_name() -> None:
    send = action("dangerous", "{}", "send_message", tool="send_message")
    assert policy(allow=("send_message",)).judge(send, ()) == COVERED


def test_what_a_whole_text_adds_up_to_is_covered_by_that_text_alone() -> None:
    whole = action("dangerous", "curl a | sh", "")
    assert policy(allow=("terminal(curl a | sh)",)).judge(whole, ()) == COVERED
    assert policy(allow=("terminal(curl *)",)).judge(whole, ()).verdict == "ask"
    for grant in (PolicyGrant("terminal", "curl a | sh"), PolicyGrant("terminal", "curl *")):
        assert policy().judge(whole, (grant,)).verdict == "ask"


@pytest.mark.parametrize(
    ("grant", "level", "covers"),
    [
        (PolicyGrant("terminal", "make *"), "normal", True),
        (PolicyGrant("other", "make *"), "normal", False),
        (PolicyGrant("terminal", "rm *"), "normal", False),
        (PolicyGrant("terminal", "make *"), "dangerous", False),
        (PolicyGrant("terminal", "make x"), "dangerous", False),
        (PolicyGrant("terminal", "make x", call="a digest"), "dangerous", True),
        (PolicyGrant("terminal", "make x", call="another"), "dangerous", False),
        (PolicyGrant("other", "make x", call="a digest"), "dangerous", False),
        (PolicyGrant("terminal", "make x", call="another"), "normal", False),
        (PolicyGrant("terminal", "make x"), "forbidden", False),
    ],
)
def test_a_grant_covers_what_is_dangerous_as_it_stands_only(
    grant: PolicyGrant, level: Level, covers: bool
) -> None:
    assert (policy().judge(action(level), (grant,), digest="a digest") == COVERED) is covers


def test_through_a_link_a_permission_must_hold_for_where_the_path_leads() -> None:
    also = ("link/a", "/w/link/a", "real/a", "/w/real/a")
    written = action("normal", "real/a", "real/a", tool="write_file", also=also)
    for name, covers in (("real/a", True), ("/w/real/a", True), ("link/a", False), ("/w/link/a", False)):
        assert (policy(allow=(f"write_file({name})",)).judge(written, ()) == COVERED) is covers, name
        assert (policy().judge(written, (PolicyGrant("write_file", name),)) == COVERED) is covers, name
        assert policy(deny=(f"write_file({name})",)).judge(written, ()).verdict == "deny", name


def test_what_is_forbidden_says_each_reason_once_and_only_its_own() -> None:
    pieces = (
        Piece("a", "a", "forbidden", ("one", "two")),
        Piece("b", "b", "forbidden", ("two",)),
        Piece("c", "c", "dangerous", ("three",)),
    )
    ruling = policy().judge(ActionView("terminal", "a;b;c", "a;b;c", pieces), ())
    assert ruling == Ruling("deny", "it is never allowed: one; two")


def test_a_yes_may_last_for_the_usual_the_wider_and_the_very_same_text() -> None:
    safe = Piece("ls", "ls", "safe")
    piece, two = Piece("a*", "a", "normal", (), "a *", (), "b/*"), Piece("c", "c", "normal", (), "c *")
    assert scopes_of("t", (safe, piece, two), lasting=True) == (
        GrantScope("t", ("a *", "c *")),
        GrantScope("t", ("b/*", "c *")),
        GrantScope("t", ("a\\*", "c")),
    )
    assert scopes_of("t", (piece, piece), lasting=False) == (GrantScope("t", ("a\\*",), always=False),)
    bare = Piece("x", "x", "normal")
    assert scopes_of("t", (piece, bare), lasting=True) == (GrantScope("t", ("a\\*", "x"), always=False),)


@pytest.mark.parametrize(
    ("rule", "path", "covers"),
    [
        ("docs/*", "docs/.envrc", False),
        ("docs/*", "docs/.git/hooks/x", False),
        ("docs/*", "docs/sub/.vscode/tasks.json", False),
        ("docs/.envrc", "docs/.envrc", True),
        ("docs/.vscode/*", "docs/.vscode/tasks.json", True),
        ("docs/.env*", "docs/.env.local", True),
        ("docs/*.envrc", "docs/.envrc", True),
        ("docs/*", "docs/id_rsa", True),
    ],
)
def test_an_allow_rule_for_a_folder_does_not_mean_the_hidden_files_that_others_run(
    rule: str, path: str, covers: bool
) -> None:
    ruling = policy(allow=(f"write_file({rule})",)).judge(file_piece(path), ())
    assert (ruling == COVERED) is covers
