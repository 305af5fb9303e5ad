"""The effects of a turn: files, commands, tests, data sent. They come from its calls, never from the model's
own account of its work.

`CallEffects` is stored with each call; a `TurnReceipt` sums up those of one turn.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from whet.contract.texts import plural

ReceiptState = Literal["fresh", "stale", "mixed", "never", "none"]
_MAX_PATH_CHARS = 40
HASH_CHARS = 12
"""How many characters of a changed file's hash are stored."""


class FileLines(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that changed, with the numbers of lines added and removed. `diff` is set if the call's arguments
    don't contain it. `before` and `after` are the first characters of the hashes of its contents, empty if
    there was no file or the hash is unknown."""

    path: str
    added: int
    removed: int
    diff: str = ""
    before: str = ""
    after: str = ""


class TestCounts(msgspec.Struct, frozen=True):
    """The counts that a test runner printed. `unit` names the counted things if they are not tests.
    `direct`: the command ran only the runner, or ran it last. So nothing else printed the counts, and the
    exit code is the runner's own."""

    __test__ = False

    runner: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    direct: bool = False
    unit: str = "tests"

    @property
    def text(self) -> str:
        """The counts in words."""
        parts = [f"{self.passed:,} passed"] if self.passed or not self.failed else []
        parts += [f"{self.failed:,} failed"] if self.failed else []
        parts += [f"{self.skipped:,} skipped"] if self.skipped else []
        return f"{self.unit} {', '.join(parts)}"


class CallEffects(msgspec.Struct, frozen=True, omit_defaults=True):
    """The effects of a call.

    - `edits`: its own changes; `touched`: changes that the step's commands made to other files
    - `command`: the command it ran; `sent`: the data it sent out
    - `later`: files that changed between its tests and the end of its turn, other than by a call
    - `marked`: sentences of the answer that the receipt does not support; `unmarked`: why that is unknown
    - `folder`: where the next command begins, below the workspace; None if the call did not change it
    - `pipeline`: the exit codes of its command's last pipeline, if they were read
    - `received`: whether it received bytes from the network; None if they were not counted
    - `runs_on`: the background process that it started; `received` is then whether bytes can reach it
    - `over`: the background process whose end it saw
    """

    edits: tuple[FileLines, ...] = ()
    touched: tuple[FileLines, ...] = ()
    command: str = ""
    tests: TestCounts | None = None
    sent: str = ""
    later: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    unmarked: str = ""
    folder: str | None = None
    pipeline: tuple[int, ...] = ()
    received: bool | None = None
    runs_on: str = ""
    over: str = ""


class CommandRun(msgspec.Struct, frozen=True):
    """A command and its exit code, or None if it still runs or was stopped. `how` describes a stop."""

    command: str
    exit_code: int | None
    how: str = ""
    tests: TestCounts | None = None

    @property
    def is_failed(self) -> bool:
        """Whether the command is known to have failed."""
        return bool(self.how) or self.exit_code not in (None, 0)


class SentOut(msgspec.Struct, frozen=True):
    """Data that a tool sent out. `ok`: the call succeeded. `how` is set if a failed call may have sent it all
    the same: the call was cut off, or its answer came too late."""

    tool: str
    about: str
    ok: bool
    how: str = ""


class TurnReceipt(msgspec.Struct, frozen=True):
    """The effects of a turn. `later` names files that changed, but by no call of the turn. `marked` are
    sentences of the answer that a judging model finds unsupported; `unmarked` is why there is no verdict.

    `state` compares tests and edits: fresh (nothing changed since the tests ran), stale (files changed after
    the last run), mixed (the command that ran the tests also changed files), never (files changed and no
    tests ran), none.
    """

    files: tuple[FileLines, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    sent: tuple[SentOut, ...] = ()
    tests: TestCounts | None = None
    state: ReceiptState = "none"
    later: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    unmarked: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The summary in short pieces, the most important first."""
        pieces: list[str] = []
        if self.files:
            added, removed = sum(f.added for f in self.files), sum(f.removed for f in self.files)
            label = self.files[0].path if len(self.files) == 1 else f"{len(self.files)} files"
            pieces.append(f"{_short(label)} +{added:,} −{removed:,}")
        if self.commands:
            failed = sum(command.is_failed for command in self.commands)
            text = plural(len(self.commands), "command")
            pieces.append(f"{text}, {failed} failed" if failed else text)
        if self.tests is not None:
            pieces.append(self.tests.text)
        if self.sent:
            failed = sum(not command.ok and not command.how for command in self.sent)
            unknown = sum(bool(command.how) for command in self.sent)
            text = f"sent {len(self.sent) - failed - unknown}" + (f", {failed} failed" if failed else "")
            pieces.append(text + (f", {unknown} not known" if unknown else ""))
        if self.state == "stale":
            pieces.append("stale: files changed after the last test run")
        elif self.state == "mixed":
            pieces.append("unclear: the command that ran the tests changed files, too")
        elif self.state == "never":
            pieces.append("no tests ran")
        if self.marked:
            more = len(self.marked) - 1
            pieces.append(f"not supported: “{self.marked[0]}”" + (f" and {more} more" if more else ""))
        if self.unmarked:
            pieces.append(f"the judge gave no answer: {self.unmarked}")
        return tuple(pieces)

    @property
    def line(self) -> str:
        """The receipt in one line."""
        return "did: " + " · ".join(self.parts)

    @property
    def rows(self) -> tuple[str, ...]:
        """The receipt in full: one row for each file, command and message sent."""
        lines = [f"{file.path}  +{file.added:,} −{file.removed:,}" for file in self.files]
        for run in self.commands:
            end = run.how or ("runs on" if run.exit_code is None else f"exit {run.exit_code}")
            lines.append(f"$ {run.command}  [{end}]" + (f"  {run.tests.text}" if run.tests else ""))
        for item in self.sent:
            end = "sent" if item.ok else f"{item.how}: it may have been sent" if item.how else "failed"
            lines.append(f"{item.tool}: {item.about}  [{end}]")
        lines += [f"{path}  [changed after the tests, by no call of this turn]" for path in self.later]
        lines += [f"“{sentence}”  [said, but no call supports it]" for sentence in self.marked]
        return tuple(lines)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_PATH_CHARS else "…" + text[-_MAX_PATH_CHARS + 1 :]
