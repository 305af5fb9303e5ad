"""What an analysis of an action says: how risky it is, why, and what it is made of.

Plain values, cheap to import: the shell's parser is not needed to read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from whet.sandbox.policy import Opening

Level = Literal["safe", "normal", "dangerous", "forbidden"]

_RANK: dict[Level, int] = {"safe": 0, "normal": 1, "dangerous": 2, "forbidden": 3}


def worst(levels: Iterable[Level]) -> Level:
    """Give the highest of `levels`; safe where there is none."""
    ranked: tuple[Level, ...] = ("safe", *levels)
    return max(ranked, key=rank)


def rank(level: Level) -> int:
    """Give a number that grows with the risk."""
    return _RANK[level]


class RiskScope(msgspec.Struct, frozen=True):
    """Where a command would run: all absolute. Files outside `workspace` and `temp` are out of bounds.

    `own_ports`: where Whet's own servers listen on this machine. `downloads`: files that came from the
    network.
    """

    workspace: str
    home: str
    whet_home: str
    temp: tuple[str, ...] = ("/tmp", "/var/tmp", "/dev/shm")
    own_ports: tuple[int, ...] = ()
    downloads: frozenset[str] = frozenset()


class CommandPlace(msgspec.Struct, frozen=True):
    """Where a simple command runs: its folder (None where unknown) and the place's borders."""

    cwd: str | None
    place: RiskScope


class Lasting(str):
    """A reason that holds in a jail too: what is lost, or shown to the model, is so for good."""

    __slots__ = ()


Finding = tuple[Level, str]


class Piece(msgspec.Struct, frozen=True):
    """One thing that an action does, and what rules are matched against.

    For a shell command: a simple command (`git push origin`), a file that a redirection writes
    (`> out.txt`), or a setting that changes what programs do (`PATH=...`). `program` is empty where the
    piece has no name to give a rule, as with what a whole pipeline adds up to. `also`: other ways to write it
    that rules may use. `grant`: the pattern that a person's standing "yes" covers, `wider` one that it may be
    widened to.
    """

    text: str
    program: str
    level: Level
    reasons: tuple[str, ...] = ()
    grant: str = ""
    also: tuple[str, ...] = ()
    wider: str = ""


class ShellRisk(msgspec.Struct, frozen=True):
    """The risk of a shell command: the worst of its pieces. `network`: some program of it uses one, and
    `downloads` are the files that it writes from there. `needs`: what a jail would have to be opened for.
    """

    level: Level
    reasons: tuple[str, ...]
    commands: tuple[Piece, ...]
    network: bool = False
    downloads: frozenset[str] = frozenset()
    needs: tuple[Opening, ...] = ()


Analyse = Callable[[str, str, RiskScope, str], ShellRisk]
"""Takes a command's text, the folder it starts in, the place, and its input. Never raises for bad text."""
