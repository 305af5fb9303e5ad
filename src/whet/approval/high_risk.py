"""Select the actions that go to the confirmation service, and the name under which they are submitted.

Uses patterns for shell commands (tables/high_risk.toml) and rules of the same kind from the settings. The
service never lets a rule allow these names (docs/confirm.md). Patterns are matched against the pieces of
the parsed command.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whet.approval.actions import ActionView
from whet.approval.danger_reach import is_rehearsal
from whet.approval.danger_unknown import find_verbs, read_verbs
from whet.approval.patterns import PatternRule, matches, parse_rule
from whet.approval.risk import Irreversible, Piece
from whet.contract.errors import ConfigError
from whet.contract.forms import ACTION_RULE
from whet.contract.tools import tags_of
from whet.shell.programs import Phrases, program, read_table
from whet.shell.spellings import find_operands
from whet.shell.words import literal

if TYPE_CHECKING:
    from whet.shell.reading import ReadPart

# Launchers that may precede the program that really runs.
_LAUNCHER = re.compile(
    r"(?:npx|bunx|uvx|pnpm dlx|yarn dlx|pipx run|uv run|poetry run|python3? -m) (?:-\S+ )*"
)

_VERB = re.compile(r"([\w.-]+) ([a-z]+)(?= |\Z)")
_SQL_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

# Statements that reach a database through its command line, in upper or lower case.
_STATEMENTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("wipe_database", re.compile(r"\bdrop\s+(database|schema)\b|\bdropDatabase\b", re.IGNORECASE)),
    (
        "delete_data",
        re.compile(
            r"\bdrop\s+(table|view|materialized|keyspace)\b|\btruncate\b|\bdelete\s+from\b|\bdelete(Many|One)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "modify_permissions",
        re.compile(r"\b(grant|revoke)\b|\b(alter|create|drop)\s+(user|role)\b", re.IGNORECASE),
    ),
    ("migrate_database", re.compile(r"\balter\s+table\b", re.IGNORECASE)),
)


@cache
def read_high_risk_table() -> Mapping[str, tuple[str, ...]]:
    """Return the patterns of high-risk commands by the name of their action, in the table's order."""
    return {name: phrases for name, phrases in _read_table().items() if name not in ("same", "asked")}


@cache
def _read_table() -> Mapping[str, tuple[str, ...]]:
    return read_table(
        Path(__file__).with_name("tables").joinpath("high_risk.toml").read_text("utf-8"), Phrases
    )


@cache
def _same_programs() -> Mapping[str, str]:
    """Return the program whose commands another program takes too."""
    return dict(phrase.split() for phrase in _read_table()["same"])


@cache
def _riskiest(program_name: str) -> str:
    """Return the first action that has a pattern of a program, or an empty string."""
    names = {program_name, f"*{program_name}"}
    for action, patterns in read_high_risk_table().items():
        if any(pattern.split(maxsplit=1)[0] in names for pattern in patterns):
            return action
    return ""


def _rename(text: str) -> str:
    """Return a command with the program that takes the same commands."""
    name, blank, others = text.partition(" ")
    return f"{_same_programs().get(name, name)}{blank}{others}"


@cache
def _verbs() -> Sequence[tuple[str, str]]:
    """Return the programs of the table with their subcommands."""
    patterns = (pattern for patterns in read_high_risk_table().values() for pattern in patterns)
    return tuple({(match[1], match[2]): None for pattern in patterns if (match := _VERB.match(pattern))})


def _spell_out(text: str) -> list[str]:
    """Return a command with its subcommand in full: some programs take its beginning (`npm publ`)."""
    match = _VERB.match(text)
    if match is None or len(match[2]) < 3:
        return []
    verbs = (verb for name, verb in _verbs() if name == match[1] and verb.startswith(match[2]))
    return [f"{match[1]} {verb}{text[match.end() :]}" for verb in verbs]


class ActionRule(msgspec.Struct, frozen=True):
    """A rule and the name under which matching actions are submitted. An empty name exempts them."""

    rule: PatternRule
    name: str


class HighRisk:
    """The rules of one configuration. Raises ConfigError, naming the rule, if one is malformed.

    `texts` are `tool(pattern) = action`. They come before the defaults; `tool(pattern) = none` removes a
    default.
    """

    def __init__(self, texts: Iterable[str], *, defaults: bool = True) -> None:
        self._rules = tuple(_parse(text) for text in texts)
        self._defaults = defaults

    def name_of(self, action: ActionView) -> str:
        """Return the name under which `action` must be confirmed, or an empty string if it needn't be.

        If an action has several pieces, the first high-risk one names it.
        """
        action_name = self._by_rules(action, (action.full_text, *action.spellings))
        if (
            action_name and action_name != "none"
        ):  # a wildcard may span several commands, but an exemption must not
            return action_name
        for piece in (*action.pieces, *action.typed):
            piece_name = self._by_rules(action, (piece.text, *piece.also)) or self._by_default(action, piece)
            if piece_name and piece_name != "none":
                return piece_name
        if tags_of(action.tool) & {"command", "background"}:
            return self._by_lines(action)
        return ""

    def _by_lines(self, action: ActionView) -> str:
        """Return the name by what a command may run besides its pieces: behind options, or a program that
        nothing is known of."""
        from whet.shell.reading import read  # noqa: PLC0415  50 ms of CPU: tree-sitter

        for part in read(action.full_text).parts:
            if self._by_rules(action, (part.line, part.text)) == "none" or _is_rehearsal(part):
                continue
            for line in part.lines[1:]:
                line_name = self._by_rules(action, (line,)) or self._by_table((line,))
                if line_name and line_name != "none":
                    return line_name
        return ""

    def _by_rules(self, action: ActionView, texts: Sequence[str]) -> str:
        return next((row.name for row in self._rules if row.rule.fits(action.tool, texts)), "")

    def _by_default(self, action: ActionView, piece: Piece) -> str:
        if (
            not self._defaults
            or not tags_of(action.tool) & {"command", "background"}
            or piece.level in ("safe", "forbidden")
        ):
            return ""
        if "sql" in program(piece.program).kinds:
            # The client's statements may come from a pipe or a here-document elsewhere in the command.
            texts = [_SQL_COMMENT.sub(" ", text) for text in (action.full_text, action.subject)]
            statement_action = next(
                (name for name, statement in _STATEMENTS if any(map(statement.search, texts))), ""
            )
            return statement_action or ("delete_data" if _is_irreversible(piece) else "")
        if piece.level == "normal" and program(piece.program).rehearsal:
            from whet.shell.reading import read  # noqa: PLC0415  50 ms of CPU: tree-sitter

            if any(map(_is_rehearsal, read(piece.text).parts[:1])):
                return ""
        text = _LAUNCHER.sub("", piece.text, count=1)
        return self._by_table((piece.text, text, *_without_options(text.split()))) or (
            _by_reason(piece, text) if _is_irreversible(piece) else ""
        )

    def _by_table(self, texts: Sequence[str]) -> str:
        texts = [*map(_rename, texts)]
        texts = [*texts, *(whole for text in texts for whole in _spell_out(text))]
        for name, patterns in read_high_risk_table().items() if self._defaults else ():
            if any(matches(pattern, text) for pattern in patterns for text in texts):
                return name
        return ""


def _is_rehearsal(part: ReadPart) -> bool:
    return not any(part.shapes) and is_rehearsal(part.name, [literal(text) for text in part.words[1:]])


def _is_irreversible(piece: Piece) -> bool:
    return any(isinstance(reason, Irreversible) for reason in piece.reasons)


def _by_reason(piece: Piece, text: str) -> str:
    """Return the riskiest action of a piece's program, for a subcommand that no table lists."""
    text = _rename(text)
    words = text.split()
    if any(matches(pattern, line) for pattern in _read_table()["asked"] for line in _without_options(words)):
        return ""
    parts = (part for verb in find_verbs(words[1:]) for part in re.split("[:=-]", verb.lower().lstrip("-")))
    verbs = (read_verbs().get(part, "") for part in parts)
    unknown = "" if piece.program else "delete_data"  # the statements of a client somewhere in the command
    return _riskiest(words[0].rpartition("/")[2]) or next(filter(None, verbs), unknown)


def _without_options(words: Sequence[str]) -> list[str]:
    """Return a command in each form without the options before its subcommand."""
    starts = find_operands(words[1:]) if words else ()
    return [" ".join((words[0], *words[1 + at :])) for at in starts]


def _parse(text: str) -> ActionRule:
    match = ACTION_RULE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"confirm.actions: {text!r} is not a rule",
            hint="write tool(pattern) = action, e.g. terminal(make release *) = publish_package",
        )
    return ActionRule(parse_rule(text.rpartition("=")[0], "confirm.actions"), match["action"])
