"""The types of a tool and of its calls: schema, effects, limits, context and output.

The registry derives `ToolSpec.parameters` from a function's signature; the gate reads `effects`; dispatch
applies `timeout_s` and `output_cap_chars`; other code reads `tags` (`tags.py`). No concrete tool is here.
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
from whet.contract.messages import ImagePart, TextOrigin
from whet.contract.tags import Tag as Tag
from whet.contract.tags import declare as declare
from whet.contract.tags import tags_of as tags_of
from whet.late import late_pattern

Effect = Literal["read", "write", "execute", "network", "send"]
TOOL_NAME: re.Pattern[str] = late_pattern(r"[A-Za-z0-9_-]{1,64}")
"""The names of tools that every model server accepts."""


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of a tool for the model. `parameters` is a JSON Schema object. The properties in
    `unsent` are accepted in a call but left out of requests, to save tokens."""

    name: str
    description: str
    parameters: dict[str, Any]
    unsent: tuple[str, ...] = ()


class ToolOutput(msgspec.Struct, frozen=True):
    """The output of a call: `text` for the model, and facts for receipts and statistics.

    - `error_kind`: empty on success, else one word (bad_input, timeout, denied, failed, crashed,
      interrupted, exit, unknown_tool, cancelled)
    - `exit_code`: the exit code of a command that ended, else None
    - `changes`: the call's changes to files
    - `folder`: the current folder of its shell, below the workspace; None if the call has no shell
    - `pipeline`: the exit codes of its command's last pipeline, if they were read
    - `received`: whether it received bytes from the network, as counted by the sandbox; None if not counted
    - `runs_on`: the background process that it started; `over`: the background process whose end it saw
    - `facts`: the call's `CallEffects` as JSON; `agent/record_call.py` sets it
    - `cpu_s`: the CPU time of its command, None if it was not measured
    - `origin`: who wrote an answer; "brought" if it is not the person's or not from this machine
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
    origin: TextOrigin = ""

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return bool(self.error_kind)


def error_output(error: ToolError) -> ToolOutput:
    """Return the output of a call that failed with `error`: its message and hint."""
    text = f"{error.message.rstrip('.')}. {error.hint}" if error.hint else error.message
    return ToolOutput(text, error_kind=error.kind)


class Buffers(Protocol):
    """Files that another program, such as an editor, has open and perhaps not saved. Called on a tool's
    thread, with resolved paths that the tool may access. Never raises."""

    def read(self, path: Path) -> str | None:
        """Return the program's text of a file, or None if the file on disk is to be read."""
        ...

    def write(self, path: Path, text: str) -> bool:
        """Have the program take a new text and save it. Returns False if the program did not confirm it."""
        ...


async def allow_all(_arguments: dict[str, Any], _is_same: bool) -> str:
    """Return "", for calls that no gate decides on."""
    return ""


class ToolContext(msgspec.Struct, frozen=True):
    """The environment of a running call.

    - `output`: shows live text to the person and stores nothing
    - `ask`: asks the person and returns the answer, or None if no person can answer
    - `buffers`: the files open in the person's editor, None if there is no editor
    - `paused`: a context that stops the turn's clock, for a call that runs a turn of its own in which a
      person is asked
    - `shown`: the hash of the file changes that a person allowed; the call may make no others. Empty if no
      person was asked
    - `key`: names the call within its session, also after a crash: turn, step and position
    - `refusal(arguments, is_same)`: returns why the call may not continue with other arguments, such as a
      redirect's address, or an empty string. With `is_same`, changes that only the mode would ask about are
      allowed
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
"""Returns the name and arguments of the call that a call stands for. Raises ToolError."""
PlanCall = Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, tuple[str, dict[str, Any]] | None]]
"""Does the same by asking a program that only reads. Returns None if the call stands for itself."""


class Tool(msgspec.Struct, frozen=True):
    """A tool as the loop sees it.

    - `run`: validates the parsed arguments (BadInput), does the work and returns the output; raises only
      ToolError, CancelledError and bugs
    - `parallel`: a call may run at the same time as others of its step
    - `repeatable`: running a call twice does no harm, so that one interrupted by a crash runs again at
      resume instead of returning "outcome unknown"
    - `timeout_s`: None if the tool keeps its own limit
    - `check`, `preview`: called before a person is asked
    - `names`: returns the files that the arguments name, or raises BadInput; None: the argument `path`
    - `stands_for`: set if each call stands for a call of another tool, `plan` if some calls do
    - `content`: returns the current description by the tool's author, to which a lasting permission is
      tied; None if the author is this program, or code that the person installed
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
        """Whether a call that had begun before a crash may run again. Not if it may have run as another tool
        (`plan`)."""
        return self.repeatable and self.plan is None

    async def preview_changes(
        self, context: ToolContext, arguments: dict[str, Any]
    ) -> tuple[TextChange, ...]:
        """Check a call's arguments and return the file changes that it would make, or () if they are unknown
        before it runs. Raises ToolError."""
        if self.check is not None:
            self.check(arguments)
        return await self.preview(context, arguments) if self.preview is not None else ()


def clip(text: str, cap_chars: int, note: str = "") -> str:
    """Return `text`, with its middle replaced by a line about the cut if it has more than `cap_chars`
    characters. `note` is added to that line, for example how to read the whole text."""
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
    """Return whether a value has a JSON Schema's `type`. Every value has an unknown type, and 2.0 is an
    integer."""
    if kind not in JSON_TYPES or (kind == "integer" and isinstance(value, float) and value.is_integer()):
        return True
    return isinstance(value, JSON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
