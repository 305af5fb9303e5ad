"""What is known of programs and of git's verbs: the tables in `tables/*.toml`, typed.

A line of the tables of programs and verbs is read when one of its names is asked for: all of them take 20 ms
of CPU, and a session runs few. What is wrong raises ValueError, which a test over all lines shows; the gate
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
    "reads",  # no option and no operand of it writes, runs or connects
    "versioned",  # `--version` and kin only read
    "shows-files",  # shows or copies the contents of the files that it names
    "pattern-then-files",  # the same, but for the first operand
    "writes",  # writes files, which is what it is for
    "destroys",  # deletes or overwrites what it is given, by `find -exec` too
    "wipes-disks",
    "shell",  # runs text as sh does
    "run-verbs",  # runs another command after the verb run, exec, x or --
    "subscripts",  # takes names whose subscript bash runs, even if it is quoted
    "network",
    "brings",  # shows or leaves what is elsewhere: on the network, in the clipboard
    "database",  # a client whose words are queries
    "sql",  # a client whose statements may be high-risk
    "names-only",  # looks at files, or changes them, and shows nothing of what is in them
    "outside",  # is of no use in a jail: it works through a service, or with other rights
    "makes-text",  # makes other text of what it is given, which may be a name that was hidden in it
    "verb-tells",  # its first operand says what is done, so a grant names it
]
_KINDS = frozenset[str](get_args(Kind))
_TABLES = Path(__file__).with_name("tables")
Entry = TypeVar("Entry")


class ProgramWords(frozenset[str]):
    """The words of a text, parted by blanks."""

    def __new__(cls, text: str = "") -> Self:
        """Take `text` apart."""
        return super().__new__(cls, text.split())


class Kinds(ProgramWords):
    """Words each of which is a kind. Raises ValueError for another."""

    def __new__(cls, text: str = "") -> Self:
        """Take `text` apart."""
        found = super().__new__(cls, text)
        if unknown := sorted(found - _KINDS):
            raise ValueError(f"{unknown} are no kinds")
        return found


class Phrases(tuple[str, ...]):
    """The phrases of a text, parted by commas."""

    __slots__ = ()

    def __new__(cls, text: str = "") -> Self:
        """Take `text` apart."""
        return super().__new__(cls, filter(None, map(str.strip, text.split(","))))


class ProgramOptions:
    """The options of a text such as `-oc --option`: letters of the short ones, and names of the long ones.

    Raises ValueError for a word that is no option.
    """

    def __init__(self, text: str = "") -> None:
        words = text.split()
        if strange := [word for word in words if not word.startswith("-")]:
            raise ValueError(f"{strange} are no options")
        self.long: tuple[str, ...] = tuple(word[2:] for word in words if word.startswith("--"))
        self.short: str = "".join(word[1:] for word in words if not word.startswith("--"))


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry in which every key must be known."""


class Reading(_Strict, frozen=True):
    """With which words a program or verb only reads; what is left out does not count."""

    verbs: ProgramWords | None = None
    bare: bool = False
    only: ProgramWords | None = None
    without: ProgramOptions = ProgramOptions()
    line: str = ""
    most: int | None = None
    values: str = ""


class Wrapping(_Strict, frozen=True):
    """How a command stands in another one: after options, of which `values` take one and `flags` do not, and
    operands."""

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
    """What is known of a program; the head of programs.toml says what each field means."""

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
    values: str = ""
    output: str = ""


class GitVerb(_Strict, frozen=True):
    """What is known of one of git's verbs; the head of git.toml says what each field means."""

    reads: bool = False
    reads_if: Reading | None = None
    risky: ProgramOptions | None = None
    told: Mapping[str, str] = {}
    why: str = ""
    lasts: bool = False
    shows_from: int | None = None
    shows_if: str = ""


def program(name: str) -> ProgramFacts:
    """Give what is known of a program; nothing of one that is in no table."""
    return _programs().get(name, UNKNOWN)


def git_verb(name: str) -> GitVerb:
    """Give what is known of one of git's verbs; nothing of one that is in no table."""
    return _git_verbs().get(name, _UNKNOWN_VERB)


@cache
def _programs() -> Mapping[str, ProgramFacts]:
    return FactTable(_text("programs"), ProgramFacts, _of_kinds)


@cache
def _git_verbs() -> Mapping[str, GitVerb]:
    return FactTable(_text("git"), GitVerb)


UNKNOWN = ProgramFacts()
_UNKNOWN_VERB = GitVerb()


def read_table(text: str, entry: type[Entry]) -> dict[str, Entry]:
    """Read a table in which each key has an `entry`. Raises ValueError for anything else."""
    import tomllib  # noqa: PLC0415  2 ms of CPU, for a process that judges a command

    try:
        return from_values(tomllib.loads(text), dict[str, entry], dec_hook=_made)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def by_name(table: Mapping[str, Entry]) -> dict[str, Entry]:
    """Give the entry of each name of a key such as "cp ln". Raises ValueError for a name that comes twice."""
    found: dict[str, Entry] = {}
    for names, entry in table.items():
        for name in names.split():
            if name in found:
                raise ValueError(f"{name} comes twice")
            found[name] = entry
    return found


class FactTable(Mapping[str, Entry]):
    """A table of entries, a line each: `"cp ln" = { ... }` holds for both names. `quickly` reads a line that
    it can without TOML. Raises ValueError for a name that comes twice; for a wrong line, when it is read."""

    def __init__(
        self, text: str, entry: type[Entry], quickly: Callable[[str], Entry | None] = lambda line: None
    ) -> None:
        self._entry = entry
        self._quickly = quickly
        self._lines = by_name(_lines(text))
        self._read: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        """Give the entry of a name."""
        line = self._lines[name]
        found = self._read.get(line) or self._quickly(line)
        if found is None:
            (found,) = read_table(line, self._entry).values()
        self._read[line] = found
        return found

    def __iter__(self) -> Iterator[str]:
        """Give all names."""
        return iter(self._lines)

    def __len__(self) -> int:
        """Count the names."""
        return len(self._lines)


def _lines(text: str) -> dict[str, str]:
    """Give the lines of entries by the names in them."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        names, is_entry, _ = line[1:].partition('" = ')
        if not (line.startswith('"') and is_entry) or names in found:
            raise ValueError(f"{line[:40]!r} is no entry, or comes twice")
        found[names] = line
    return found


def _of_kinds(line: str) -> ProgramFacts | None:
    """Read an entry of nothing but kinds, such as that of `ls`; None for another. Loading TOML takes 5 ms."""
    before, is_one, rest = line.partition('" = { is = "')
    kinds = rest.removesuffix('" }')
    if not is_one or kinds == rest or not set('"\\').isdisjoint(before[1:] + kinds):
        return None
    return ProgramFacts(kinds=Kinds(kinds))


def _made(wanted: type[Any], text: object) -> Any:
    """Make one of the types above of its text."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is no text")
    return wanted(text)


def _text(name: str) -> str:
    return (_TABLES / f"{name}.toml").read_text("utf-8")
