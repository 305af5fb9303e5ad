"""How a terminal draws a change: line numbers, whole rows in colour, changed words, code, narrow windows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.support import each
from whet.contract.changes import TextChange
from whet.contract.protocols import ApprovalRequest, GrantScope
from whet.question import Row, diff_rows
from whet.terminal.diff_view import PaintedRow, paint_rows
from whet.terminal.pager import find_pager, is_long
from whet.terminal.permission_question import TerminalDecision, shorten_choice
from whet.terminal.themes import find_theme
from whet.terminal.typed_keys import TypedKeys
from whet.terminal.wording import count_columns, cut_middle
from whet.typed_answer import answers_alone, grants_alone, read_line

EXACT = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
MANY = {"TERM": "xterm-256color"}
FEW = {"TERM": "xterm"}
NONE = {"TERM": "xterm", "NO_COLOR": "1"}
OLD = "def add(a, b):\n" + "    # as ever\n" * 9 + "    return a - b\n"


def paint(environ: Mapping[str, str], theme: str = "auto") -> list[PaintedRow]:
    change = TextChange("sums.py", "/w/sums.py", OLD, OLD.replace("a - b", "a + b"), "h")
    return paint_rows(diff_rows(change), find_theme(theme, environ))


def bare(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[mK]", "", line)


@each("environ", [EXACT, MANY, FEW, NONE, {"TERM": "dumb"}])
def test_every_row_has_the_number_of_its_line_and_its_whole_text(environ: dict[str, str]) -> None:
    assert [bare(row.to_line()) for row in paint(environ)] == [
        "     | sums.py  (+1 −1)",
        "   8 |      # as ever",
        "   9 |      # as ever",
        "  10 |      # as ever",
        "  11 | -    return a - b",
        "  11 | +    return a + b",
    ]


@each(
    ("environ", "theme", "row", "word"),
    [
        (EXACT, "dark", "48;2;63;20;26", "48;2;133;38;46"),
        (EXACT, "light", "48;2;255;235;233", "48;2;255;190;186"),
        (EXACT | {"COLORFGBG": "0;15"}, "auto", "48;2;255;235;233", "48;2;255;190;186"),
        (MANY, "auto", "48;5;52", "48;5;88"),
        (MANY, "high-contrast", "48;5;52", "1;4;48;5;88"),
        (EXACT, "16-colours", "31", "7"),
        (FEW, "auto", "31", "7"),
        (NONE, "dark", "", "1;4"),
        (EXACT, "plain", "", "1;4"),
        ({"TERM": "dumb"}, "dark", "", ""),
    ],
)
def test_rows_and_changed_words_have_the_colours_of_theme_and_terminal(
    environ: dict[str, str], theme: str, row: str, word: str
) -> None:
    removed = paint(environ, theme)[4]
    assert removed.base == row
    marked = [removed.text[first:last] for first, last, codes in removed.spans if codes == word]
    assert marked == (["-"] if word else [])
    line = removed.to_line()
    assert line.endswith("\x1b[K\x1b[0m") is ("48;" in row)
    assert ("\x1b[" in line) is bool(row or word)


def test_source_code_is_coloured_by_its_language() -> None:
    rows = paint(EXACT)
    keyword = find_theme("dark", EXACT).syntax["keyword"]
    assert [row.text[a:b] for row in rows for a, b, codes in row.spans if codes == keyword] == ["return"] * 2
    unknown = paint_rows(
        [Row("hunk", "@@ -1,1 +1,1 @@"), Row("added", "+return 1")], find_theme("dark", EXACT)
    )
    assert unknown[-1].spans == ()


@each("width", [20, 33, 60])
def test_a_narrow_terminal_breaks_rows_and_loses_nothing(width: int) -> None:
    row = Row("added", "+" + "word日" * 30)
    [painted] = paint_rows([Row("hunk", "@@ -0,0 +7,1 @@"), row], find_theme("dark", EXACT))
    lines = [bare(line) for line in painted.to_lines(width)]
    assert {count_columns(line) for line in lines} <= {width, width - 1} and len(lines) > 2
    assert [line[:6] for line in lines] == ["  7 | ", *["    | "] * (len(lines) - 1)]
    assert "".join(line[6:] for line in lines).replace(" ", "") == row.text


def request(**more: object) -> ApprovalRequest:
    change = TextChange("a.py", "/w/a.py", "a\n", "b\n", "h")
    scopes = (GrantScope("patch", ("a.py",)), GrantScope("patch", ("src/*",)))
    given = {"changes": (change,), "scopes": scopes, "grant": "patch(a.py)"} | more
    return ApprovalRequest("s", "c", "patch", "patch a.py", ("why",), **given)  # type: ignore[arg-type]


def test_a_digit_answers_and_only_once_is_a_yes_without_enter() -> None:
    decision = TerminalDecision(request(), find_theme("dark", NONE))
    options = decision.options()
    assert [prefix[2] for prefix, _ in decision.choices()] == ["1", "2", "3", "4"]
    assert [answers_alone(key, options) for key in "12345"] == [True, False, False, True, False]
    assert [grants_alone(key, options) for key in "1234"] == [True, False, False, False]
    assert [read_line(line, options).option for line in ("1", "2", "3", "4", "")] == [
        "once",
        "session",
        "session 3",
        "no",
        "no",
    ]
    assert read_line("5", options).words == "5" and read_line("12", options).words == "12"


def test_a_yes_for_the_session_is_for_the_scope_of_its_number() -> None:
    decision = TerminalDecision(request(), find_theme("dark", NONE))
    for line, answer, scope in (("2", "session", 0), ("3", "session", 1), ("always", "always", 0)):
        granted = decision.grant(read_line(line, decision.options()).option)
        assert granted == answer and granted is not None
        assert decision.reply(granted).scope == scope
    assert decision.grant("no") is None and decision.grant("edit") is None


@each(
    ("has_keys", "edit", "later"),
    [(True, "Tab", "reopened or new chats"), (False, "edit", "later runs")],
)
def test_what_else_can_be_typed_takes_one_row_of_80_columns_each(
    has_keys: bool, edit: str, later: str
) -> None:
    decision = TerminalDecision(request(), find_theme("dark", NONE), has_keys=has_keys)
    lines = [prefix + text for prefix, text in decision.other_answers()]
    assert lines == [
        f"  or {edit:8}  edit the proposed file; then it asks again about what you saved",
        f"  or always    like 2, also in {later} of this very folder",
        f"  or always 3  like 3, also in {later} of this very folder",
        "  or else      any other text is a no; the model reads it as the reason",
    ]


def test_a_deletion_offers_nothing_to_edit_and_says_what_tab_does() -> None:
    gone = TextChange("a.py", "/w/a.py", "x\n", None, "h")
    decision = TerminalDecision(request(changes=(gone,)), find_theme("dark", NONE))
    rows = {prefix.split()[1]: text for prefix, text in decision.other_answers()}
    assert rows["Tab"] == "does nothing here: there is no text to edit"
    assert read_line("e", decision.options()).words == "e"
    answers: list[str] = []
    TypedKeys(decision.options(), answers.append).press("\t")
    assert answers == []
    lines = TerminalDecision(request(changes=(gone,)), find_theme("dark", NONE), has_keys=False)
    assert [prefix.split()[1] for prefix, _ in lines.other_answers()] == ["always", "always", "else"]


@each("width", [28, 35, 75, 95])
def test_lasting_answers_of_one_row_differ_at_every_width(width: int) -> None:
    folder = "services/billing/adapters"
    pairs = [
        (GrantScope("write_file", (f"{folder}/stripe.py",)), GrantScope("write_file", (f"{folder}/*",))),
        (GrantScope("terminal", ("npm run build",)), GrantScope("terminal", ("npm run build *",))),
        (GrantScope("terminal", ("git push *",)), GrantScope("terminal", ("git push origin *",))),
        (
            GrantScope("web_fetch", ("docs.python.org",)),
            GrantScope("web_fetch", ("https://docs.python.org/3/",)),
        ),
    ]
    for scopes in pairs:
        decision = TerminalDecision(request(scopes=scopes), find_theme("dark", NONE))
        _, first, second, no = [shorten_choice(text, width) for _, text in decision.choices()]
        assert first != second and max(map(count_columns, (first, second, no))) <= width, (first, second)
        assert first.startswith("Yes, ") and no.startswith("No: ")


@each(
    ("width", "shown"),
    [(30, "edit or delete src/app/main.py"), (20, "edit or d…pp/main.py"), (3, "e…y"), (1, "…")],
)
def test_a_middle_is_cut_to_the_width(width: int, shown: str) -> None:
    assert cut_middle("edit or delete src/app/main.py", width).strip() == shown


def test_always_is_offered_only_if_it_may_last() -> None:
    exact = GrantScope("terminal", ("rm x",), always=False)
    decision = TerminalDecision(request(grant="", scopes=(exact,)), find_theme("dark", NONE))
    assert not any("always" in prefix for prefix, _ in decision.other_answers())
    assert read_line("always", decision.options()).words == "always"


@each(
    ("environ", "words"),
    [({"PAGER": "less -X"}, ["-X"]), ({}, []), ({"PAGER": "cat"}, None), ({"PAGER": "no-such-pager"}, None)],
)
def test_the_pager_is_the_persons(environ: dict[str, str], words: list[str] | None) -> None:
    command = find_pager(environ)
    assert (command[1:] if command else None) == words


def test_a_text_is_long_if_the_screen_has_no_room_for_its_rows() -> None:
    assert not is_long("a\n" * 9, 80, 10) and is_long("a\n" * 10, 80, 10)
    assert is_long("x" * 801, 80, 10) and not is_long("x" * 800, 80, 10)
    assert not is_long("\x1b[31mx\x1b[0m" * 80, 80, 1)
