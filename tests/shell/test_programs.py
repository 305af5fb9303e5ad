"""The tables of what is known of programs: their schema, and that a slip in one of them is found."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import get_args

import msgspec
import pytest

from whet.shell import programs as facts
from whet.shell.programs import FactTable, GitVerb, Kind, Phrases, ProgramFacts, ProgramOptions, read_table


def programs(text: str) -> dict[str, ProgramFacts]:
    return dict(FactTable(text, ProgramFacts))


def test_every_table_is_as_it_should_be() -> None:
    assert len(facts.read_programs()) >= 490 and len(facts.read_git_verbs()) >= 50
    assert facts.program("no such program") == ProgramFacts() and facts.git_verb("no such verb") == GitVerb()


def test_a_line_by_itself_says_what_it_says_in_its_table() -> None:
    for table, known in (("programs", facts.read_programs()), ("git", facts.read_git_verbs())):
        entries = read_table(facts.read_table_text(table), GitVerb if table == "git" else ProgramFacts)
        whole = {name: entry for names, entry in entries.items() for name in names.split()}
        assert {name: _shown(one) for name, one in known.items()} == {
            name: _shown(one) for name, one in whole.items()
        }


def _shown(value: object) -> object:
    if isinstance(value, msgspec.Struct | ProgramOptions):
        fields = vars(value) if isinstance(value, ProgramOptions) else msgspec.structs.asdict(value)
        return {name: _shown(field) for name, field in fields.items()}
    return value


def test_every_kind_is_one_of_some_program_and_every_pattern_compiles() -> None:
    known = facts.read_programs().values()
    assert set().union(*(program_facts.kinds for program_facts in known)) == set(get_args(Kind))
    for program_facts in known:
        reading = (program_facts.reads_if.line,) if program_facts.reads_if else ()
        code = (program_facts.code.flags, program_facts.code.hanging) if program_facts.code else ()
        for pattern in (program_facts.spared, program_facts.launch, *program_facts.told, *reading, *code):
            re.compile(pattern or "")
    for verb in facts.read_git_verbs().values():
        for pattern in (verb.shows_if, *verb.told, verb.reads_if.line if verb.reads_if else ""):
            re.compile(pattern)


def test_every_verb_that_is_dangerous_says_why() -> None:
    for name, program_facts in facts.read_programs().items():
        judged_by_verbs = bool(program_facts.verbs) or program_facts.alone or program_facts.spared is not None
        assert judged_by_verbs == bool(program_facts.why), name
    assert all(verb.why for verb in facts.read_git_verbs().values() if verb.risky is not None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('"ls" = { is = "reads", danger = 1 }', "Expected `str`, got `int`"),
        ('"ls" = { is = "reeds" }', r"\['reeds'\] are not kinds"),
        ('"ls" = { reeds = true }', "unknown field `reeds`"),
        ('"ls" = { reads_if = { withuot = "-a" } }', "unknown field `withuot`"),
        ('"ls" = { reads_if = { without = "a --b" } }', r"\['a'\] are not options"),
        ('"ls" = { is = 3 }', "3 is not text"),
        ('"ls cat" = { is = "reads" }\n"du ls" = {}', "ls comes twice"),
        ('"ls ls" = {}', "ls comes twice"),
        ('"ls" = {}\n"ls" = {}', "comes twice"),
        ('ls = { is = "reads" }', "is not an entry"),
        ('"ls" = { is = "reads" } x', "Expected newline"),
        ('"ls" = "reads"', "Expected `object`"),
    ],
)
def test_a_slip_is_an_error(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        programs(text)


def test_texts_are_taken_apart() -> None:
    table = """
"a b" = { is = "reads network", verbs = "up, state rm,\\n down", reads_if = { without = "-oC --out --in" } }
"""
    program_facts = programs(table.replace("'", '"'))
    assert program_facts["a"] is program_facts["b"]
    assert program_facts["a"].kinds == {"reads", "network"} and program_facts["a"].verbs == (
        "up",
        "state rm",
        "down",
    )
    reading = program_facts["a"].reads_if
    assert reading and (reading.without.short, reading.without.long) == ("oC", ("out", "in"))
    assert reading.verbs is None and reading.only is None and not reading.bare
    assert programs('"umask" = { reads_if = { only = "" } }')["umask"].reads_if.only == frozenset()  # type: ignore[union-attr]
    assert Phrases("") == () and (ProgramOptions("").short, ProgramOptions("").long) == ("", ())


def test_no_table_is_read_before_a_command_is_judged() -> None:
    script = (
        "import sys; import whet.approval.shell_risk as risk; from whet.shell import programs as facts\n"
        "assert 'tomllib' not in sys.modules\n"
        "from whet.approval.risk import RiskScope\n"
        "risk.analyse('ls', '/p', RiskScope('/p', '/home/u', '/home/u/.whet'))\n"
        "assert facts.read_programs.cache_info().currsize == 1\n"
        "assert facts.read_git_verbs.cache_info().currsize == 0\n"
        "assert 'tomllib' not in sys.modules\n"
        "risk.analyse('git log', '/p', RiskScope('/p', '/home/u', '/home/u/.whet'))\n"
        "assert 'tomllib' in sys.modules and facts.read_git_verbs.cache_info().currsize == 1\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
