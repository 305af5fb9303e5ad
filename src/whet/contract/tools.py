"""What a tool is: its schema, its effect, its limits, and what a call gives back.

The registry derives `ToolSpec.parameters` from a function's signature; the gate reads `effects`; dispatch
applies `timeout_s` and `output_cap_chars`. This module does not know about any concrete tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from whet.contract.messages import ImagePart

Effect = Literal["read", "write", "execute", "network", "send"]


class ToolSpec(msgspec.Struct, frozen=True):
    """What the model is told of a tool: `parameters` is a JSON schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolOutput(msgspec.Struct, frozen=True):
    """What a call gave back: `text` for the model, and the facts that statistics read.

    `error_kind` is empty on success, else one word (bad_input, timeout, denied, failed, crashed,
    interrupted, exit, unknown_tool, cancelled). `exit_code` is a command's, None otherwise.
    """

    text: str
    error_kind: str = ""
    exit_code: int | None = None
    images: tuple[ImagePart, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether the call failed."""
        return bool(self.error_kind)


class Buffers(Protocol):
    """Files that another program holds open, an editor's unsaved ones. Called on a tool's thread, with paths
    that were resolved and lie where the tool may go. Nothing is raised: what can't be asked is not held."""

    def read(self, path: Path) -> str | None:
        """Give a file's text as the program has it; None where it can't say, and the disk counts."""
        ...

    def write(self, path: Path, text: str) -> bool:
        """Have the program take a new text and save it; False where it did not say that it did."""
        ...


class ToolContext(msgspec.Struct, frozen=True):
    """What a running call may use. `output` shows live text to the person and stores nothing.

    `ask` puts a question to the person and gives the answer, or None where nobody can answer. `buffers` are
    the files that the person's editor holds, None where there is no such program.
    """

    session_id: str
    turn_id: str
    call_id: str
    workspace: Path
    output: Callable[[str], None]
    ask: Callable[[str, Sequence[str]], Awaitable[str | None]]
    buffers: Buffers | None = None


Handler = Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, ToolOutput]]


class Tool(msgspec.Struct, frozen=True):
    """A tool as the loop sees it. `run` takes parsed arguments, validates them against the signature
    (BadInput) and gives the output; it raises only ToolError, CancelledError and bugs.

    `parallel`: calls of one step may run at the same time as others. `repeatable`: running it twice does
    no harm, so that a call interrupted by a crash runs again at resume instead of "outcome unknown".
    `timeout_s` None: the tool keeps its own limit.
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

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.spec.name


def clip(text: str, cap_chars: int, note: str = "") -> str:
    """Cut the middle out of `text` so that at most `cap_chars` of it stay, and name what was cut.

    `note` stands behind that, for example how to get it back.
    """
    if len(text) <= cap_chars:
        return text
    head = cap_chars * 2 // 5
    tail = cap_chars - head
    cut = len(text) - cap_chars
    return (
        f"{text[:head]}\n[... {cut:,} of {len(text):,} characters cut{note} ...]\n{text[len(text) - tail :]}"
    )
