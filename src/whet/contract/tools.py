"""What a tool is: its schema, its effect, its limits, and what a call gives back.

The registry derives `ToolSpec.parameters` from a function's signature; the gate reads `effects`; dispatch
applies `timeout_s` and `output_cap_chars`. What else others must know of a tool it says by tags (`tags.py`).
This module does not know about any concrete tool.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from whet.contract.changes import TextChange
from whet.contract.errors import ToolError
from whet.contract.messages import ImagePart
from whet.contract.tags import Tag as Tag
from whet.contract.tags import declare as declare
from whet.contract.tags import tags_of as tags_of
from whet.late import late_pattern

Effect = Literal["read", "write", "execute", "network", "send"]
TOOL_NAME: re.Pattern[str] = late_pattern(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that every model server accepts."""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of a tool for the model. `parameters` is a JSON schema object. The properties in
    `unsent` are accepted in a call, but no request spends tokens on them."""

    name: str
    description: str
    parameters: dict[str, Any]
    unsent: tuple[str, ...] = ()


class ToolOutput(msgspec.Struct, frozen=True):
    """The output of a call: `text` for the model, and the facts that statistics read.

    - `error_kind` is empty on success, else one word (bad_input, timeout, denied, failed, crashed,
      interrupted, exit, unknown_tool, cancelled)
    - `exit_code`: a command's, None otherwise
    - `changes`: its changes to files
    - `folder`: where its shell is now, below the workspace
    - `pipeline`: the exit codes of its command's last pipeline, if they were read
    - `received`: whether it received bytes from the network, as counted by the sandbox; None if not counted
    - `runs_on`: the process that it left in the background; `over`: the process whose end it saw
    - `facts`: what is kept of the call, as JSON; `agent/record_call.py` sets it
    - `cpu_s`: the CPU time of its command, None if it was not measured
    """

    text: str
    error_kind: str = ""
    exit_code: int | None = None
    images: tuple[ImagePart, ...] = ()
    changes: tuple[TextChange, ...] = ()
    folder: str | None = None
    pipeline: tuple[int, ...] = ()
    received: bool | None = None
    runs_on: str = ""
    over: str = ""
    facts: str = ""
    cpu_s: float | None = None

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return bool(self.error_kind)


def error_output(error: ToolError) -> ToolOutput:
    """Return the output of a call that failed with an error."""
    text = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
    return ToolOutput(text, error_kind=error.kind)


class Buffers(Protocol):
    """Files that another program has open, such as an editor's unsaved ones. Called on a tool's thread, with
    paths that were resolved and lie where the tool may go. Nothing raises: a file that can't be asked
    about counts as not open."""

    def read(self, path: Path) -> str | None:
        """Return a file's text as the program has it, or None if the program can't say; then the file on disk
        counts."""
        ...

    def write(self, path: Path, text: str) -> bool:
        """Have the program take a new text and save it. Returns False if the program did not confirm it."""
        ...


async def allow_all(_arguments: dict[str, Any], _is_same: bool) -> str:
    """Refuse nothing: for a call that no gate decides on."""
    return ""


class ToolContext(msgspec.Struct, frozen=True):
    """The environment of a running call. `output` shows live text to the person and stores nothing.

    `ask` puts a question to the person and returns the answer, or None if no person can answer. `buffers`
    are the files open in the person's editor, None if there is no editor. `paused` stops the clock of the
    turn while it is entered, for a call that runs a turn of its own in which a person is asked. `shown` is
    the hash of the changes that a person allowed, and no others may be made; it is empty if no person was
    asked. `key` names the call within its session, also after a crash: turn, step and position. `refusal`
    returns why the call may not go on with other arguments, such as a redirect's address, or an empty
    string; with True, what only the mode would ask about is allowed.
    """

    session_id: str
    turn_id: str
    call_id: str
    workspace: Path
    output: Callable[[str], None]
    ask: Callable[[str, Sequence[str]], Awaitable[str | None]]
    buffers: Buffers | None = None
    paused: Callable[[], AbstractContextManager[None]] = nullcontext
    shown: str = ""
    key: str = ""
    refusal: Callable[[dict[str, Any], bool], Awaitable[str]] = allow_all


Handler = Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, ToolOutput]]
Check = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a call's arguments to the types that the function takes. Raises BadInput for wrong ones."""
Preview = Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, tuple[TextChange, ...]]]
"""Returns the file changes that a call would make, without making them. Raises ToolError if the call would
fail."""

StandsFor = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]
PlanCall = Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, tuple[str, dict[str, Any]] | None]]


class Tool(msgspec.Struct, frozen=True):
    """A tool as the loop sees it. `run` takes parsed arguments, validates them against the signature
    (BadInput) and returns the output; it raises only ToolError, CancelledError and bugs.

    `parallel`: calls of one step may run at the same time as others. `repeatable`: running it twice does
    no harm, so that a call interrupted by a crash runs again at resume instead of "outcome unknown".
    `timeout_s` None: the tool keeps its own limit. `check` and `preview` are called before a person is
    asked. `names` returns the files that its arguments name, as it reads them; raises BadInput. None:
    their `path`. `stands_for`: its calls are calls of other tools; returns the name and arguments of the
    tool that is meant, or raises ToolError. `plan` does the same for some of its calls, by asking a program
    that only reads, and returns None for the others. `content` returns what its author says of it now: a
    lasting permission holds for that text. None: its author is this program, or code that the person
    installed.
    """

    spec: ToolSpec
    toolset: str
    effects: frozenset[Effect]
    run: Handler
    parallel: bool = False
    repeatable: bool = False
    timeout_s: float | None = 120.0
    output_cap_chars: int = 30_000
    tags: frozenset[str] = msgspec.field(default_factory=frozenset[str])
    check: Check | None = None
    preview: Preview | None = None
    names: Callable[[dict[str, Any]], Sequence[str]] | None = None
    stands_for: StandsFor | None = None
    plan: PlanCall | None = None
    content: Callable[[], str] | None = None

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.spec.name

    @property
    def may_run_again(self) -> bool:
        """Whether a call that had begun before a crash may run again. One that was planned as another may
        have been that one."""
        return self.repeatable and self.plan is None

    async def preview_changes(
        self, context: ToolContext, arguments: dict[str, Any]
    ) -> tuple[TextChange, ...]:
        """Check a call's arguments and return the file changes that it would make, none if they are not
        known before it runs. Raises ToolError."""
        if self.check is not None:
            self.check(arguments)
        return await self.preview(context, arguments) if self.preview is not None else ()


def clip(text: str, cap_chars: int, note: str = "") -> str:
    """Cut the middle out of `text` so that at most `cap_chars` characters of it stay, and say how much was
    cut.

    `note` follows that, for example how to get it back.
    """
    if len(text) <= cap_chars:
        return text
    head = cap_chars * 2 // 5
    tail = cap_chars - head
    cut = len(text) - cap_chars
    return (
        f"{text[:head]}\n[... {cut:,} of {len(text):,} characters cut{note} ...]\n{text[len(text) - tail :]}"
    )


JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def is_json_type(kind: str, value: object) -> bool:
    """Return whether a value has a JSON Schema's `type`. An unknown type fits everything, and 2.0 is an
    integer."""
    if kind not in JSON_TYPES or (kind == "integer" and isinstance(value, float) and value.is_integer()):
        return True
    return isinstance(value, JSON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
