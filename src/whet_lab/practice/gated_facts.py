"""Writes and parses the texts of the knowledge-gated world: facts, commands and tasks.

A fact says which setting a subject needs: "`shipit` needs `flag=--quorum`", or which command comes first:
"run `./ops freeze ITEM` before `./ops shipit ITEM`". The practice model reads statements of these forms
anywhere in its request, and nothing else; the evaluation (`whet_lab.evals`) draws the facts and judges the
commands. This module knows no true value. Source of the design: docs/evaluate.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import msgspec

from whet_lab.practice.ask import CompletedCall

# The values that a newcomer may guess; the evaluation draws the hidden values from the same lists.
GUESSES: dict[str, tuple[str, ...]] = {
    "flag": (
        "--quorum",
        "--in-order",
        "--two-phase",
        "--no-drain",
        "--pinned",
        "--staged",
        "--ack",
        "--solo",
    ),
    "host": ("amber", "basalt", "cedar", "delta-7", "ember", "fjord", "granite", "harbour"),
    "before": ("freeze", "snapshot", "drain", "announce", "verify", "rotate", "quiesce", "tag-it"),
    "format": ("plain",),
}
PROGRAM = "./ops"
PRIVATE_KEYS = frozenset({"format"})
"""Settings that are a person's own preference: never guessed, and known only from that person."""

_STATEMENT = re.compile(
    r"`([\w-]+)`[ \t]+needs?[ \t]+`(\w+)=([^\s`]+)`"
    r"|`(?:\./ops )?([\w-]+)(?: [^`\n]+)?`[ \t]+before[ \t]+`(?:\./ops )?([\w-]+)(?: [^`\n]+)?`"
)
_TASK = re.compile(r"Job (\d+): run `([\w-]+)` on `([\w-]+)`, number (\d+)\. It takes ([a-z, ]+)\.")
_PAGE = re.compile(r"Read (http://\S+) first\.")
_LOOKS = re.compile(r"Look at the output of (`[^`\n]+`(?:, `[^`\n]+`)*) first\.")
# A step of a written procedure, or a call reported to have worked. Calls reported to fail match neither.
_STEP = re.compile(r"(?m)^(\d+)\. `\./ops ([^`\n]+)`|`\./ops ([^`\n]+)` worked")
_DONE = re.compile(r"(?:^|(?<=“))ok: (\S+ \S+ \d+(?: \w+=\S+)*): receipt \d+(?=$|”)", re.M)


class FactStatement(msgspec.Struct, frozen=True):
    """One statement of a fact: the subject, the setting that it needs, and the claimed value."""

    subject: str
    key: str
    value: str

    @property
    def topic(self) -> tuple[str, str]:
        """The subject and the setting, without the value."""
        return self.subject, self.key

    @property
    def text(self) -> str:
        """The statement in the form in which it is always written and read."""
        if self.key == "before":
            return f"run `{PROGRAM} {self.value} ITEM` before `{PROGRAM} {self.subject} ITEM`"
        return f"`{self.subject}` needs `{self.key}={self.value}`"

    @property
    def setting(self) -> str:
        """The setting in the form that a command uses."""
        return f"{self.key}={self.value}"


class Task(msgspec.Struct, frozen=True):
    """One request: a tool, its target and the settings that it takes.

    The `page` is to be read first, and the commands in `looks` are to be run first.
    """

    job: int
    tool: str
    target: str
    number: int
    keys: tuple[str, ...]
    page: str = ""
    looks: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The task in the form in which a person types it."""
        action = f"run `{self.tool}` on `{self.target}`, number {self.number}"
        first = f" Read {self.page} first." if self.page else ""
        if self.looks:
            first += f" Look at the output of {', '.join(f'`{look}`' for look in self.looks)} first."
        return f"Job {self.job}: {action}. It takes {', '.join(self.keys)}.{first}"

    def subject_of(self, key: str) -> str:
        """Return the subject of a setting: the target for a host, otherwise the tool."""
        return self.target if key == "host" else self.tool

    @property
    def needs(self) -> tuple[tuple[str, str], ...]:
        """The facts that the task needs, as (subject, key)."""
        return tuple((self.subject_of(key), key) for key in self.keys)

    def command(self, settings: dict[str, str]) -> str:
        """Return the command with these settings."""
        words = (f"{key}={settings[key]}" for key in self.keys if key != "before")
        return " ".join((self.tool, self.target, str(self.number), *words))


class FactCommand(msgspec.Struct, frozen=True):
    """A parsed command. `step` is the command run before it on the same item, if the order matters."""

    tool: str
    target: str
    number: int
    settings: dict[str, str]
    step: str = ""

    @property
    def is_step(self) -> bool:
        """Whether this command is one that runs before others."""
        return self.tool in GUESSES["before"]

    def is_on_item_of(self, other: FactCommand) -> bool:
        """Return whether both commands are about the same item."""
        return (self.target, self.number) == (other.target, other.number)

    def implied_statements(self) -> Iterator[FactStatement]:
        """Yield the statements that are true if the command is right."""
        for key, value in self.settings.items():
            yield FactStatement(self.target if key == "host" else self.tool, key, value)
        if self.step:
            yield FactStatement(self.tool, "before", self.step)


def find_statements(text: str) -> list[FactStatement]:
    """Return every statement in a text, in order."""
    return [_parse_statement(match) for match in _STATEMENT.finditer(text)]


def _parse_statement(match: re.Match[str]) -> FactStatement:
    subject, key, value, first, then = match.groups()
    return FactStatement(subject, key, value) if subject else FactStatement(then, "before", first)


def find_claims(text: str) -> list[FactStatement]:
    """Return every statement in a text, written or implied by a successful command, in order."""
    positioned = [(match.start(), [_parse_statement(match)]) for match in _STATEMENT.finditer(text)]
    for at, command in (*((at, command) for at, _, command in _iterate_successes(text)), *_find_steps(text)):
        positioned.append(
            (at, [claim for claim in command.implied_statements() if claim.key not in PRIVATE_KEYS])
        )
    return [claim for _, part in sorted(positioned, key=lambda pair: pair[0]) for claim in part]


def _find_steps(text: str) -> Iterator[tuple[int, FactCommand]]:
    """Yield the position and command of each step of a procedure.

    Steps apply to any item; a host belongs to one item, so it is left out. A step follows the previous one
    if its number does, or if both are in the same line.
    """
    last, number, end = "", 0, 0
    for match in _STEP.finditer(text):
        follows = 1 < int(match[1]) == number + 1 if match[1] else "\n" not in text[end : match.start()]
        last, number, end = last if follows else "", int(match[1] or 0), match.end()
        words = (match[2] or match[3]).split()
        settings = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("host="))
        command = FactCommand(words[0], "ITEM", 0, settings)
        if last and not command.is_step:
            command = msgspec.structs.replace(command, step=last)
        last = command.tool if command.is_step else ""
        yield match.start(), command


def parse_task(text: str) -> Task | None:
    """Return the task in a message, or None if there is no task in it."""
    match = _TASK.search(text)
    if match is None:
        return None
    page = _PAGE.search(text)
    keys = tuple(key.strip() for key in match[5].split(","))
    looks = _LOOKS.search(text)
    return Task(
        job=int(match[1]),
        tool=match[2],
        target=match[3],
        number=int(match[4]),
        keys=keys,
        page=page[1] if page else "",
        looks=tuple(looks[1].strip("`").split("`, `")) if looks else (),
    )


def parse_command(text: str) -> FactCommand | None:
    """Parse a command TOOL TARGET NUMBER KEY=VALUE..., or return None if it has another form."""
    words = text.split()
    if len(words) < 3 or not words[2].isdigit() or not all("=" in word for word in words[3:]):
        return None
    pairs = (word.partition("=") for word in words[3:])
    return FactCommand(words[0], words[1], int(words[2]), {key: value for key, _, value in pairs})


def find_successful_commands(text: str) -> list[tuple[str, FactCommand]]:
    """Return the lines of a text that report a successful command, with the command.

    If a command followed a step on the same item, that is its `step`.
    """
    return [(line, command) for _, line, command in _iterate_successes(text)]


def _iterate_successes(text: str) -> Iterator[tuple[int, str, FactCommand]]:
    last: FactCommand | None = None
    for line in _DONE.finditer(text):
        command = parse_command(line[1])
        if command is None:
            continue
        follows = last is not None and last.is_step and not command.is_step and last.is_on_item_of(command)
        if last is not None and follows:
            command = msgspec.structs.replace(command, step=last.tool)
        last = command
        yield line.start(), line[0], command


def program_command(call: CompletedCall) -> str:
    """Return the command line that a call passed to the world's program, or "" for other calls."""
    command = call.command if call.name == "terminal" else ""
    return command.removeprefix(PROGRAM).strip() if command.startswith(PROGRAM) else ""


def draw(*parts: object) -> float:
    """Return a number in [0, 1) that depends only on `parts`."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / (1 << 56)
