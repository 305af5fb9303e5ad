"""The gate's rules one by one, at their bounds: what points, what is witnessed, what worked instead."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from benchmarks.lessons.world import Run, Say, Step, User

from tests.memory.evidence import accepted, session, shell, trust, verdict
from whet.memory.gate import judge, judge_direct
from whet.memory.requests import Claim, GateVerdict, Refused, Repeated
from whet.store.ledger import Kind, Quote

GO = User("Go.")
PROSE = "All glaze goes to the north kiln on the hill."


def written(steps: Sequence[Step], text: str, *quotes: str, kind: Kind = "memory") -> str:
    """Give what is written for a claim, or why it is refused."""
    gate_verdict = verdict(steps, text, *quotes, kind=kind)
    return gate_verdict.text if isinstance(gate_verdict, GateVerdict) else gate_verdict


@pytest.mark.parametrize(
    ("said", "quote", "points"),
    [
        ("Use nox ok.", "use nox", True),
        ("Use nox ok.", "e nox", False),
        ("no", "no", False),
        ("No w!", "no w!", True),
        ("7", "7", False),
        ("部署在星期二", "部署在", True),
        ("部署在星期二", "部署", False),
    ],
)
def test_six_letters_point_or_the_whole_statement_or_three_signs(said: str, quote: str, points: bool) -> None:
    refusal = f"These quotes are too short to point at anything: “{quote}”"
    assert (refusal in written([User(said)], "x", quote)) is not points


@pytest.mark.parametrize(("command", "points"), [("ls", True), ("w", False)])
def test_a_command_of_two_letters_is_pointed_at(command: str, points: bool) -> None:
    assert ("too short" in written([GO, shell(command, "3/3")], "x", command)) is not points


def test_twelve_quotes_are_looked_at_and_each_once() -> None:
    rules = [f"Rule number {number} is good." for number in range(13)]
    gate_verdict = accepted([User(" ".join(rules))], "x", rules[0], *rules)
    assert [quote.quote for quote in gate_verdict.evidence] == rules[:11]


def test_what_is_kept_as_evidence_says_where_it_stands() -> None:
    shown = "port = 8080"
    now = User("Now make everything. Then rest.")
    steps = [User("We glaze on Mondays."), shell("cat a.ini", shown), now, shell("make", "ok")]
    gate_verdict = accepted(steps, "x", "We glaze on Mondays", shown, "`make`")
    assert gate_verdict.evidence == (
        Quote("We glaze on Mondays.", "s", 1, "user", "", "user", False),
        Quote(shown, "s", 3, "tool", "terminal", "observed", False),
        Quote("`make`", "s", 6, "tool", "terminal", "observed", False),
    )
    assert (gate_verdict.trust, gate_verdict.about) == ("user", "")
    skill = accepted(steps, "x", "`make`", kind="skill")
    assert skill.about == "Now make everything."
    long = verdict([User("glaze " * 100)], "x", "glaze " * 100)
    assert isinstance(long, str) and "too long" in long


@pytest.mark.parametrize(("chars", "is_kept"), [(400, True), (401, False)])
def test_a_line_of_four_hundred_characters_is_kept_whole(chars: int, is_kept: bool) -> None:
    line = ("x1y2 " * 100)[: chars - 1] + "z"
    steps: list[Step] = [GO, shell("cat a", line)]
    shown = f"`cat a` → “{line}”"
    assert (shown in written(steps, "x", line[:50])) is is_kept
    # A step that was done is one, whatever it printed.
    assert written(steps, "x", line[:50], kind="skill") == (f"1. {shown}" if is_kept else "1. `cat a`")


@pytest.mark.parametrize(
    ("look", "step"),
    [
        (Run("read_file", {"path": "a.md"}, PROSE), "1. read_file `a.md`"),
        (Run("read_file", {"path": "a.md"}, "port = 8080"), "- a.md: “port = 8080”"),
        (shell("cat a.md", PROSE), "1. `cat a.md`"),
        (shell("cat a.md", "port = 8080"), "1. `cat a.md` → “port = 8080”"),
    ],
)
def test_what_a_look_says_in_words_is_no_part_of_a_step(look: Run, step: str) -> None:
    assert written([GO, look], "x", look.result, kind="skill") == step
    assert trust([GO, look], "x", look.result) == ("quarantined" if look.result == PROSE else "observed")


@pytest.mark.parametrize(
    "steps",
    [
        [User("Take 4187."), "look"],
        ["look", User("Take 4187.")],
        ["look", shell("run 4187")],
        [User("Which port does the registry listen on for uploads?"), "look"],
    ],
)
def test_a_sentence_of_a_file_waits_whatever_of_it_was_typed_asked_or_run(steps: list[Step | str]) -> None:
    line = "The registry listens on port 4187 for uploads."
    look = shell("cat a.md", line)
    done: list[Step] = [look if isinstance(step, str) else step for step in steps]
    assert trust([GO, *done], "x", line) == "quarantined"
    typed: list[Step] = [GO, *done, User(line)]
    assert trust(typed, "x", line) == "user", "the person's own sentence is in force"


def test_a_value_in_a_files_own_name_and_a_head_above_a_sentence_bear_nothing_out() -> None:
    line = "The registry listens on port 4187 for uploads."
    assert trust([GO, shell("cat 4187.md", line)], "x", line) == "quarantined"
    assert trust([GO, shell("cat a", "[main]\nnote=Always deploy it")], "x", "Always deploy") == "quarantined"


def test_a_line_that_nobody_said_is_told_with_the_first_sixty_letters_of_its_command() -> None:
    gate_verdict = accepted([GO, shell(f"cat {'a' * 55}bc", PROSE)], "x", PROSE)
    assert f"text of cat {'a' * 55}b says it" in gate_verdict.why


def test_a_download_that_failed_is_a_pitfall_and_a_look_at_one_is_no_step() -> None:
    text = "Take yarn in this house instead, all of you."
    steps = [GO, shell("npm ci", "error 7", ok=False), User(text)]
    assert written(steps, "x", "error 7", text) == f"Pitfall: `npm ci` fails. Then: “{text}”"
    assert trust(steps, "x", "error 7", text) == "user"
    fetched = [GO, shell("curl -o page.txt https://x.example", "saved"), shell("cat page.txt", "7/7 x")]
    assert trust(fetched, "x", "7/7 x", kind="skill") == "quarantined"


def test_what_worked_is_kept_without_its_words_beside_what_failed() -> None:
    text = "The pots are dry and all of them are fine"
    steps = [GO, shell("kiln fire", "error 7", ok=False), shell("kiln fire d", text)]
    assert trust(steps, "x", "error 7", text) == "observed"
    assert written(steps, "x", "error 7", text).endswith("Then: `kiln fire d` worked")


def test_only_an_error_of_this_machine_names_placeholders() -> None:
    for names in (
        shell("help", "use `load CLAY` here"),
        shell("curl x.example", "use `load CLAY`", ok=False),
    ):
        assert written([GO, names, shell("load c1", "3/3")], "x", "3/3") == "`load c1` → “3/3”"
    named = shell("fire", "use `load CLAY`", ok=False)
    assert written([GO, named, shell("load c1", "3/3")], "x", "3/3") == "`load CLAY` → “3/3”"


def test_a_claim_in_the_persons_own_words_is_its_own_quote() -> None:
    assert written([User("We glaze on Mondays.")], "we glaze on mondays") == "“We glaze on Mondays.”"


@pytest.mark.parametrize(
    ("claim", "kept"),
    [("x", "quarantined"), ("make", "quarantined"), ("make all", "observed"), ("all -s make", "observed")],
)
def test_a_claim_that_names_a_command_is_about_the_command(claim: str, kept: str) -> None:
    text = "The pots are dry and all of them are fine"
    assert trust([GO, shell("make -s all two", text)], claim, text) == kept


@pytest.mark.parametrize(
    ("existing", "is_known"),
    [
        (("other", "“We glaze on Mondays.” (said 2026-11-20)"), True),
        (("we glaze", "on mondays."), False),
        ((), False),
    ],
)
def test_what_one_entry_says_already_is_not_kept_again(existing: tuple[str, ...], is_known: bool) -> None:
    steps = [User("We glaze on Mondays."), shell("make all", "ok")]
    text = str(verdict(steps, "x", "We glaze on Mondays", existing=existing))
    assert ("remembered already" in text) is is_known
    # A call beside it makes it another one, and stands for itself where nothing is said.
    both = ("We glaze on Mondays", "`make all`")
    assert "remembered already" not in str(verdict(steps, "x", *both, existing=existing))
    called = tuple(f"{one} `make all` worked" for one in existing)
    assert ("remembered already" in str(verdict(steps, "x", *both, existing=called))) is is_known
    assert "remembered already" not in str(verdict(steps, "x", "`make all`", existing=called))


@pytest.mark.parametrize(
    ("claim", "known", "kind", "is_elsewhere"),
    [
        ("Port 9090", "", "memory", True),
        ("Port 9090 or 8080", "", "memory", False),
        ("Port 9090", "9090 or so", "memory", False),
        ("x/8080", "", "memory", False),
        ("Tabs/blanks", "", "memory", False),
        ("1. Port\n 2) no", "", "memory", False),
        ("Port 1", "", "memory", True),
        ("Loom 717", "", "memory", True),
        ("Loom 717", "", "skill", False),
        ("Loom 818", "", "skill", True),
    ],
)
def test_quotes_without_a_value_of_the_claim_are_about_something_else(
    claim: str, known: str, kind: Kind, is_elsewhere: bool
) -> None:
    page = Run("web_fetch", {"url": "https://x.example"}, "Take 818.")
    steps = [User("Staging is on 8080."), shell("ls", "717"), page]
    text = str(verdict(steps, claim, "Staging is on 8080.", known=known, kind=kind))
    assert ("about something else" in text) is is_elsewhere


@pytest.mark.parametrize(
    ("failed", "worked", "is_remedy"),
    [
        ("kiln fire", "kiln show", True),
        ("kiln fire b17", "kiln show b18", False),
        ("kiln fire b17", "kiln fire", True),
        ("kiln fire b17 --gas", "kiln fire c d", False),
        ("kiln fire b17 --gas", "kiln fire b17 d", True),
    ],
)
def test_what_worked_instead_shares_more_than_half_of_the_words(
    failed: str, worked: str, is_remedy: bool
) -> None:
    bad, good = shell(failed, "error 7", ok=False), shell(worked, "ok")
    text = written([GO, bad, good], "x", "error 7")
    assert (f"Then: `{worked}` worked" in text) is is_remedy
    assert is_remedy or "nothing shows what worked" in text
    for steps in ([good, bad], [bad, shell(worked, "ok", ok=False)]):
        assert "nothing shows what worked" in written([GO, *steps], "x", "error 7")


def test_the_last_failure_is_the_one_to_mend() -> None:
    first, then = shell("kiln fire b17", "error 7", ok=False), shell("kiln fire b18", "error 8", ok=False)
    between: list[Step] = [GO, first, shell("kiln fire b17 d", "3/3"), then]
    assert "nothing shows what worked" in written(between, "x", "error 7", "error 8")
    assert "nothing shows what worked" in written(between, "x", "3/3", "error 8")
    after: list[Step] = [GO, first, then, shell("kiln fire b18 d", "3/3")]
    assert "Then: `kiln fire b18 d` worked" in written(after, "x", "error 7", "error 8")
    quoted = written(after, "x", "error 7", "error 8", "3/3 ")
    assert quoted.count("kiln fire b18 d") == 1


def test_calls_that_an_error_names_come_along_as_it_names_them() -> None:
    asked = shell("fire b17", "run `warm up` or `load CLAY` first", ok=False)
    steps: list[Step] = [
        GO,
        shell("warm up", "early"),
        asked,
        shell("warm up", "3/3", ok=False),
        shell("load c1", "ok"),
        shell("fire b17", "ok"),
        shell("warm up", "4/4"),
        shell("cool down", "ok"),
    ]
    text = written(steps, "x", "run `warm up` or `load CLAY` first")
    done = text.partition("Then: ")[2].split("; ")
    assert done == ["`load CLAY` worked", "`fire b17` worked", "`warm up` worked"]


def test_calls_that_a_procedure_writes_out_are_steps_too() -> None:
    ran = [shell(f"make {word}", f"{word} 3/3") for word in ("clean", "site")]
    other = [shell("w -f", "3/3"), shell("pwd", "3/3 a"), shell("make all", "3/3", ok=False)]
    steps = [User("Look."), shell("make look", "3/3"), GO, *ran, *other]
    claim = "1. make clean 2. MAKE site 3. pwd 4. w -f 5. make all 6. make look"
    text = written(steps, claim, "clean 3/3", kind="skill")
    assert text.splitlines() == ["1. `make clean` → “clean 3/3”", "2. `make site`", "3. `w -f`"]


@pytest.mark.parametrize(
    ("steps", "text", "quotes"),
    [
        ([User("port = 8080\nhost = b")], "port = 8080\n\nhost = b\n", ["port = 8080\nhost = b"]),
        (
            [User("port = 8080"), shell("cat a", "host = b")],
            "port = 8080\nhost = b",
            ["port = 8080", "host = b"],
        ),
        ([shell("cat a", "host = b", ok=False)], "host = b", None),
        ([Run("web_fetch", {}, "host = b")], "host = b", None),
        ([shell("cat a", PROSE)], PROSE, None),
        ([User("host = b")], "host = b\nport = 8080", None),
    ],
)
def test_a_file_is_kept_where_each_line_was_typed_or_shown(
    steps: list[Step], text: str, quotes: list[str] | None
) -> None:
    claim = Claim("skill", text, (), is_verbatim=True)
    if quotes is None:
        with pytest.raises(Refused, match="Nobody typed this line"):
            judge(claim, session(GO, *steps), foreground=False)
        return
    gate_verdict = judge(claim, session(*steps), foreground=False)
    assert (gate_verdict.trust, [quote.quote for quote in gate_verdict.evidence]) == ("observed", quotes)


def test_of_the_person_only_their_own_words_are_kept() -> None:
    seen = session(User("We glaze on Mondays."), shell("cat a", "port = 8080"))
    claim, shown = (Claim("memory", "x", (quote,), target="user") for quote in ("We glaze", "port = 8080"))
    assert judge(claim, seen, foreground=False).trust == "user"
    with pytest.raises(Refused, match="only their own typed words"):
        judge(shown, seen, foreground=False)
    both = msgspec.structs.replace(claim, quotes=(*claim.quotes, *shown.quotes))
    assert judge(both, seen, foreground=False).trust == "user"


@pytest.mark.parametrize(
    ("said", "claim", "kept"),
    [
        ("We glaze on Mondays. The kiln stays cold all the winter long.", "Glaze", "all"),
        ("We glaze on Mondays. The kiln stays cold all the winter long.", "Zzz", "all"),
        (
            "Do we glaze on Mondays? We glaze on Tuesdays then, all of us.",
            "Glaze",
            "“We glaze on Tuesdays then, all of us.”",
        ),
    ],
)
def test_without_quotes_what_was_typed_in_this_turn_is_pointed_at(said: str, claim: str, kept: str) -> None:
    steps = [User("The glaze of last week was blue."), Say("ok"), User(said), Say("ok")]
    gate_verdict = accepted(steps, claim, foreground=True)
    assert gate_verdict.text == (f"“{said}”" if kept == "all" else kept)
    assert "no evidence" in str(verdict(steps, "We glaze on Sundays", foreground=False))


MAY, IF = "Du kannst Rechnungen selbst freigeben.", "Vorausgesetzt, sie sind unter 50 Euro und geprüft."


@pytest.mark.parametrize(
    ("said", "has_calls", "kept"),
    [
        (f"{MAY} {IF}", False, f"{MAY} {IF}"),
        (f"{MAY} {IF} Jetzt lies bitte alle Dateien in src.", True, f"{MAY} {IF}"),
        (f"{MAY} Jetzt lies bitte alle Dateien in src.", True, MAY),
        (f"{MAY} Hast du alle Dateien in src gelesen?", False, MAY),
        (f"{MAY}\n\n{IF}", False, MAY),
    ],
)
def test_a_condition_stays_with_its_statement(said: str, has_calls: bool, kept: str) -> None:
    steps: list[Step] = [User(said), *([shell("ls src", "a.py")] if has_calls else []), Say("ok")]
    gate_verdict = accepted(steps, MAY, MAY)
    assert gate_verdict.text == f"“{kept}”"


def test_an_item_of_a_list_keeps_the_line_above_the_list() -> None:
    text = "Read this. From the customer:\n- Bo may order\n- Cy may only look"
    gate_verdict = accepted([User(text), Say("ok")], "Cy may look", "Cy may only look")
    assert gate_verdict.text == "“From the customer: - Cy may only look”"


@pytest.mark.parametrize("newer", ["wait no, Thursday", "Pardon, jeudi.", "Doch erst am Donnerstag."])
def test_a_change_of_mind_stays_with_its_statement(newer: str) -> None:
    older = "The demo is on Tuesday."
    gate_verdict = accepted([User(older), Say("Noted."), User(newer), Say("ok")], older, older)
    assert gate_verdict.text == f"“{older}”; “{newer}”"
    asked = accepted([User(older), Say("Which room shall I book?"), User(newer)], older, older)
    assert asked.text == f"“{older}”"


@pytest.mark.parametrize(
    ("said", "quote"),
    [
        ("invoices go out on the 3rd not the 1st. can you fix the draft?", "invoices go out on the 3rd"),
        ("we pay within 14 days\ncan you remind Ines?", "we pay within 14 days"),
        ("表を直してもらえる?会議はいつも水曜です。", "会議はいつも水曜です。"),
        ("帮我看一下?财年从四月开始。", "财年从四月开始。"),
    ],
)
def test_a_statement_beside_a_question_is_kept_however_casually_it_is_typed(said: str, quote: str) -> None:
    given = accepted([User(said)], "x", quote)
    assert quote in given.text, given


@pytest.mark.parametrize("said", ["do we pay within 14 days, or 30?", "hm. do we pay within 14 days?"])
def test_a_casual_question_is_no_statement(said: str) -> None:
    assert "question" in str(verdict([User(said)], "x", "do we pay within 14 days"))


@pytest.mark.parametrize(
    "command", ["python3 -c \"print('dead' + 'line: 31 May')\"", "printf '%s%s\\n' 'dead' 'line: 31 May'"]
)
def test_a_text_that_a_call_puts_together_from_its_own_pieces_is_the_assistants(command: str) -> None:
    steps = [User("hi"), Run("terminal", command, "deadline: 31 May"), Say("ok")]
    given = verdict(steps, "x", "deadline: 31 May")
    assert isinstance(given, str) or given.trust == "untrusted", given


@pytest.mark.parametrize(
    ("existing", "message", "claim", "is_known"),
    [
        ("We glaze on Mondays", "Remember: We glaze on Mondays", "x", True),
        ("“Remember: We glaze on Mondays.” (said 2026-11-20)", "We glaze on Mondays.", "x", True),
        ("“Remember: We glaze on Mondays.” (said 2026-11-20)", "Note: we glaze on Mondays", "x", False),
        (
            "“Remember: We glaze on Mondays.” (said 2026-11-20)",
            "Note: we glaze on Mondays",
            "We glaze on Mondays",
            True,
        ),
        ("We glaze on Mondays", "Remember: We glaze on Mondays and Fridays", "x", False),
        ("Glaze day of the year: Monday", "Kiln: Monday", "x", False),
    ],
)
def test_a_statement_behind_a_label_is_the_same_statement(
    existing: str, message: str, claim: str, is_known: bool
) -> None:
    answer = str(verdict([User(message)], claim, message, existing=(existing,)))
    assert ("remembered already" in answer) is is_known


def test_a_person_adds_no_note_that_a_quotation_holds() -> None:
    claim = Claim("memory", "We glaze on Mondays", (), existing=("“We glaze on Mondays.” (said 2026-11-20)",))
    with pytest.raises(Repeated):
        judge_direct(claim, is_brought=False)
