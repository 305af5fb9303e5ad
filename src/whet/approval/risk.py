"""The result of analysing an action: its risk, the reasons, and its pieces.

Plain values that are cheap to import: the shell's parser is not needed to read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from whet.sandbox.policy import Opening

Level = Literal["safe", "normal", "dangerous", "forbidden"]

_RANK: dict[Level, int] = {"safe": 0, "normal": 1, "dangerous": 2, "forbidden": 3}


def worst(levels: Iterable[Level]) -> Level:
    """Return the highest of `levels`, or "safe" if it is empty."""
    ranked: tuple[Level, ...] = ("safe", *levels)
    return max(ranked, key=rank)


def rank(level: Level) -> int:
    """Return a number that grows with the risk."""
    return _RANK[level]


class RiskScope(msgspec.Struct, frozen=True):
    """The surroundings of a command, all paths absolute. Files outside `workspace` and `temp` are out of
    bounds.

    `own_ports` are the ports of Whet's own servers on this machine, `downloads` the files that came from
    the network.
    """

    workspace: str
    home: str
    whet_home: str
    temp: tuple[str, ...] = ("/tmp", "/var/tmp", "/dev/shm")
    own_ports: tuple[int, ...] = ()
    downloads: frozenset[str] = frozenset()


class CommandSetting(msgspec.Struct, frozen=True):
    """The folder that a simple command runs in (None if unknown), and its surroundings."""

    cwd: str | None
    scope: RiskScope


class Lasting(str):
    """A reason that a sandbox does not remove: something would be lost, or shown to the model,
    permanently."""

    __slots__ = ()


class Shown(Lasting):
    """A reason that the model would read something, such as a secret, and keep it."""

    __slots__ = ()


class UnknownProgram(str):
    """A reason that nobody can tell which program runs, so that it may be one that a rule names."""

    __slots__ = ()


class Irreversible(str):
    """A reason that a program may make a change that can't be undone: at another machine, in a database or
    a service."""

    __slots__ = ()


class Diverted(str):
    """A reason that a command does another thing than its program and verb say: it runs another program, or a
    verb that reads writes. A permission covers it only if it spells the whole command out."""

    __slots__ = ()


class UnknownVerb(str):
    """A reason that git may do what another of its commands does, so that it may be one that a rule names."""

    __slots__ = ()


Finding = tuple[Level, str]


class Piece(msgspec.Struct, frozen=True):
    """One effect of an action, and the texts that rules are matched against.

    For a shell command it is a simple command (`git push origin`), a file that a redirection writes (`>
    out.txt`), or a setting that changes how programs behave (`PATH=...`). `program` is empty if the piece
    has no name for a rule, such as the effect of a whole pipeline. `also` are other forms of the text that
    rules may use. `grant` is the pattern that a person's standing permission covers, `wider` a more
    general one. `is_elsewhere`: it runs, or may run, in a folder outside the workspace. `exact` is the text
    with the quotes that keep it apart from others, if it may differ.
    """

    text: str
    program: str
    level: Level
    reasons: tuple[str, ...] = ()
    grant: str = ""
    also: tuple[str, ...] = ()
    wider: str = ""
    is_elsewhere: bool = False
    exact: str = ""

    @property
    def is_diverted(self) -> bool:
        """Whether only a permission for exactly this text covers it."""
        return any(isinstance(reason, Diverted) for reason in self.reasons)


class ShellRisk(msgspec.Struct, frozen=True):
    """The risk of a shell command: the worst of its pieces.

    `reasons` are plain texts for a person; those of its pieces tell their kinds by their classes.
    `network`: one of its programs connects. `downloads` are the files that it fetches. `needs` are the
    openings that a sandbox would require.
    """

    level: Level
    reasons: tuple[str, ...]
    commands: tuple[Piece, ...]
    network: bool = False
    downloads: frozenset[str] = frozenset()
    needs: tuple[Opening, ...] = ()


Analyse = Callable[[str, str, RiskScope, str], ShellRisk]
"""Takes a command's text, its start folder, its surroundings, and its input. Never raises for bad text."""


_MAX_REASONS, _MAX_REASON_CHARS = 12, 200


def list_reasons(pieces: Iterable[Piece]) -> tuple[str, ...]:
    """Return the texts of the reasons of a command's pieces, of the riskiest first, each once and not too
    long."""
    ordered = sorted(pieces, key=lambda piece: -rank(piece.level))
    texts = dict.fromkeys(_cut(reason) for piece in ordered for reason in piece.reasons)
    return tuple(texts)[:_MAX_REASONS]


def _cut(reason: str) -> str:
    return f"{reason[: _MAX_REASON_CHARS - 3]}..." if len(reason) >= _MAX_REASON_CHARS else str(reason)
