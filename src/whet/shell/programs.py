"""Facts about programs and git's verbs: the typed tables in `tables/*.toml`.

A table line is parsed when one of its names is first used: parsing all takes 20 ms of CPU, and a session
runs few programs. A malformed line raises ValueError, which a test over all lines would find; the gate
then denies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import msgspec

from whet.contract.texts import from_values

Kind = Literal[
    "reads",  # none of its options and operands writes, runs or connects
    "versioned",  # `--version` reads no settings of the folder and runs nothing that is in it
    "verbless",  # its operands are files, patterns and names of tests, never verbs
    "shows-files",  # shows or copies the contents of the named files
    "pattern-then-files",  # the same, except for the first operand
    "writes",  # its purpose is to write files
    "destroys",  # deletes or overwrites its operands, also through `find -exec`
    "wipes-disks",
    "shell",  # runs text like sh
    "run-verbs",  # runs another command after the verb run, exec, x or --
    "runs-words",  # runs a command among its words, at a position that is not known
    "subscripts",  # takes names whose subscript bash runs, even if quoted
    "renames",  # determines what the name of a later command runs
    "network",
    "brings",  # shows or stores content from elsewhere: the network, the clipboard
    "database",  # a client whose words are queries
    "sql",  # a client whose statements may be high-risk
    "names-only",  # examines or changes files without showing their contents
    "outside",  # useless in a sandbox: it works through a service, or with other rights
    "walks",  # searches a whole folder unless it names files
    "script-then-files",  # transforms files or its input by its first operand
    "words-only",  # prints its words, or changes its input by them, and reads no file
    "makes-text",  # transforms text, which may reveal a hidden file name
    "keys",  # its input is keys, which can run programs
    "verb-tells",  # its first operand names the action, so a grant includes it
]
_KINDS = frozenset[str](get_args(Kind))
_TABLES = Path(__file__).with_name("tables")
Entry = TypeVar("Entry")


class ProgramWords(frozenset[str]):
    """The words of a text, separated by blanks."""

    def __new__(cls, text: str = "") -> Self:
        """Split `text`."""
        return super().__new__(cls, text.split())


class Kinds(ProgramWords):
    """Words each of which is a kind. Raises ValueError for an unknown kind."""

    def __new__(cls, text: str = "") -> Self:
        """Split `text`."""
        kinds = super().__new__(cls, text)
        if unknown := sorted(kinds - _KINDS):
            raise ValueError(f"{unknown} are not kinds")
        return kinds


class Phrases(tuple[str, ...]):
    """The phrases of a text, separated by commas."""

    __slots__ = ()

    def __new__(cls, text: str = "") -> Self:
        """Split `text`."""
        return super().__new__(cls, filter(None, map(str.strip, text.split(","))))


class ProgramOptions:
    """The options in a text such as `-oc --option`: letters of the short ones, and names of the long ones.

    Raises ValueError if a word is not an option.
    """

    def __init__(self, text: str = "") -> None:
        words = text.split()
        if strange := [word for word in words if not word.startswith("-")]:
            raise ValueError(f"{strange} are not options")
        self.long: tuple[str, ...] = tuple(word[2:] for word in words if word.startswith("--"))
        self.short: str = "".join(word[1:] for word in words if not word.startswith("--"))


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry in which unknown keys are errors."""


class Reading(_Strict, frozen=True):
    """The words with which a program or verb only reads. Fields that are not set don't matter."""

    verbs: ProgramWords | None = None
    bare: bool = False
    only: ProgramWords | None = None
    without: ProgramOptions = ProgramOptions()
    line: str = ""
    most: int | None = None
    values: str = ""


class Wrapping(_Strict, frozen=True):
    """The position of a command inside another one: after options and operands.

    `values` are options that take a value, `flags` those that don't.
    """

    values: str = ""
    operands: int = 0
    stays: bool = False
    flags: ProgramOptions = ProgramOptions()


class Code(_Strict, frozen=True):
    """Where an interpreter's command line holds code: patterns of options, and options with a value."""

    flags: str
    hanging: str = ""
    values: ProgramWords = ProgramWords()


class ProgramFacts(_Strict, frozen=True):
    """Facts about a program. The head of programs.toml explains each field."""

    kinds: Kinds = msgspec.field(default=Kinds(), name="is")
    reads_if: Reading | None = None
    wraps: Wrapping | None = None
    code: Code | None = None
    launch: str = ""
    told: Mapping[str, str] = {}
    danger: str = ""
    verbs: Phrases | None = None
    alone: bool = False
    spared: str | None = msgspec.field(default=None, name="except")
    why: str = ""
    rehearsal: str = ""
    values: str = ""
    valued: ProgramWords = ProgramWords()
    output: str = ""


class GitVerb(_Strict, frozen=True):
    """Facts about one of git's verbs. The head of git.toml explains each field."""

    reads: bool = False
    silent: bool = False
    reads_if: Reading | None = None
    risky: ProgramOptions | None = None
    told: Mapping[str, str] = {}
    why: str = ""
    lasts: bool = False
    shows_from: int = 1
    shows_if: str = ""


def program(name: str) -> ProgramFacts:
    """Return the facts about a program, or empty facts if no table lists it."""
    return read_programs().get(name, UNKNOWN)


def git_verb(name: str) -> GitVerb:
    """Return the facts about one of git's verbs, or empty facts if no table lists it."""
    return read_git_verbs().get(name, _UNKNOWN_VERB)


@cache
def read_programs() -> Mapping[str, ProgramFacts]:
    return FactTable(read_table_text("programs"), ProgramFacts, _read_kinds)


@cache
def read_git_verbs() -> Mapping[str, GitVerb]:
    return FactTable(read_table_text("git"), GitVerb)


UNKNOWN = ProgramFacts()
_UNKNOWN_VERB = GitVerb()


def read_table(text: str, entry: type[Entry]) -> dict[str, Entry]:
    """Parse a table in which each key has an `entry`. Raises ValueError for anything else."""
    import tomllib  # noqa: PLC0415  2 ms of CPU, for a process that judges a command

    try:
        return from_values(tomllib.loads(text), dict[str, entry], dec_hook=_build_value)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def by_name(table: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return each entry by the names in its key, such as "cp ln". Raises ValueError if a name occurs
    twice."""
    entries: dict[str, Entry] = {}
    for names, entry in table.items():
        for name in names.split():
            if name in entries:
                raise ValueError(f"{name} comes twice")
            entries[name] = entry
    return entries


class FactTable(Mapping[str, Entry]):
    """A table with one entry per line: `"cp ln" = { ... }` applies to both names.

    `quickly` parses lines that don't need TOML. Raises ValueError if a name occurs twice; a malformed line
    raises when it is first used.
    """

    def __init__(
        self, text: str, entry: type[Entry], quickly: Callable[[str], Entry | None] = lambda line: None
    ) -> None:
        self._entry = entry
        self._quickly = quickly
        self._lines = by_name(_lines(text))
        self._read: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        """Return the entry of a name."""
        line = self._lines[name]
        entry = self._read.get(line) or self._quickly(line)
        if entry is None:
            (entry,) = read_table(line, self._entry).values()
        self._read[line] = entry
        return entry

    def __iter__(self) -> Iterator[str]:
        """Iterate over all names."""
        return iter(self._lines)

    def __len__(self) -> int:
        """Return the number of names."""
        return len(self._lines)


def _lines(text: str) -> dict[str, str]:
    """Return the lines by the names in their key."""
    lines_by_names: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        names, is_entry, _ = line[1:].partition('" = ')
        if not (line.startswith('"') and is_entry) or names in lines_by_names:
            raise ValueError(f"{line[:40]!r} is not an entry, or comes twice")
        lines_by_names[names] = line
    return lines_by_names


def _read_kinds(line: str) -> ProgramFacts | None:
    """Parse an entry that holds only kinds, such as that of `ls`, or return None. Loading TOML takes 5 ms."""
    before, has_kinds, remainder = line.partition('" = { is = "')
    kinds = remainder.removesuffix('" }')
    if not has_kinds or kinds == remainder or not set('"\\').isdisjoint(before[1:] + kinds):
        return None
    return ProgramFacts(kinds=Kinds(kinds))


def _build_value(value_type: type[Any], text: object) -> Any:
    """Build one of the types above from its text."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not text")
    return value_type(text)


def read_table_text(name: str) -> str:
    return (_TABLES / f"{name}.toml").read_text("utf-8")
