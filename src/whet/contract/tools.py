"""What a tool is: its schema, its effect, its limits, and what a call gives back.

The registry derives `ToolSpec.parameters` from a function's signature; the gate reads `effects`; dispatch
applies `timeout_s` and `output_cap_chars`. What else others must know of a tool it says by tags; where only a
stored call's name is left, `tags_of` gives them. This module does not know about any concrete tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import msgspec

from whet.contract.changes import TextChange
from whet.contract.messages import ImagePart

Effect = Literal["read", "write", "execute", "network", "send"]
Tag = Literal[
    # What its arguments are.
    "path",  # `path` names the file that it is about, `diff` several
    "edits",  # it changes those files
    "whole",  # `content` becomes the whole file
    "command",  # `command` is text for a shell that begins in `workdir`
    "background",  # `action` and `id` say what is done with a process that runs on
    "url",  # `url` says where it goes
    "looks",  # they are questions: nothing of them goes into the world
    # What its result is.
    "local",  # observed on this machine, so it is evidence
    "search",  # hits, or that there are none
    "own",  # what the assistant, its notes or its skills held before
    "asks",  # the person's own word
    "untrusted",  # text that others wrote
    # What it is for.
    "tasks",  # keeps the list of tasks
    "notes",  # writes what is remembered
    "skills",  # writes skills
    "loads-skills",
    "delegates",  # has a helper do something
    "templates",  # makes and picks what sessions are begun with
    # Who has it.
    "probe",  # a review may call it
    "owner",  # it reads the owner's sessions: nobody else's session has it
    "aside",  # its calls are no work that an example could show
    "mcp",
    "destructive",  # its server says that it may destroy something
    "deferred",  # the model is not told of it at the start: it is found by words
]
_TAGS: dict[str, frozenset[str]] = {}


def declare(name: str, *tags: Tag) -> frozenset[str]:
    """Say once for the process what holds for the tool `name`; gives the tags, for its `Tool`.

    Raises ValueError for a tag that there isn't, and where the name was declared otherwise.
    """
    given = frozenset[str](tags)
    if unknown := sorted(given - frozenset[str](get_args(Tag))):
        raise ValueError(f"{name}: {unknown} are no tags")
    if _TAGS.setdefault(name, given) != given:
        raise ValueError(f"{name} is declared twice")
    return given


def declared() -> list[str]:
    """Give the names of the tools that this process declared."""
    return list(_TAGS)


def tags_of(name: str) -> frozenset[str]:
    """Give the tags of a tool that this process declared; none of another program's, or one that is gone."""
    return _TAGS.get(name, frozenset())


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model is told of a tool: `parameters` is a JSON schema object. The properties in `unsent` are
    taken where a call gives them, but no request spends tokens on them."""

    name: str
    description: str
    parameters: dict[str, Any]
    unsent: tuple[str, ...] = ()


class ToolOutput(msgspec.Struct, frozen=True):
    """What a call gave back: `text` for the model, and the facts that statistics read.

    `error_kind` is empty on success, else one word (bad_input, timeout, denied, failed, crashed,
    interrupted, exit, unknown_tool, cancelled). `exit_code` is a command's, None otherwise. `changes` is
    what it made of files, `folder` where its shell has gone, below the workspace, `received` whether bytes
    came to it from the network, as the sandbox counted them (None: nothing did), `runs_on` the process that
    it left in the background, `over` the one that it saw ended, `facts` what is kept of the call, as JSON;
    dispatch writes that.
    """

    text: str
    error_kind: str = ""
    exit_code: int | None = None
    images: tuple[ImagePart, ...] = ()
    changes: tuple[TextChange, ...] = ()
    folder: str | None = None
    received: bool | None = None
    runs_on: str = ""
    over: str = ""
    facts: str = ""

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
    the files that the person's editor holds, None where there is no such program. `paused` stops the clock
    of the turn while it is entered, for a call that has a turn of its own in which a person is asked. `shown`
    is the hash of the changes that a person allowed, empty where nobody was asked: others may not be made.
    `key` names the call within its session, also after a crash: turn, step and place.
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


Handler = Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, ToolOutput]]
Check = Callable[[dict[str, Any]], dict[str, Any]]
"""Reads a call's arguments as the function takes them; raises BadInput for wrong ones."""
Preview = Callable[[ToolContext, dict[str, Any]], Coroutine[Any, Any, tuple[TextChange, ...]]]
"""Gives what a call would make of files, and changes nothing; raises ToolError where it would fail."""

StandsFor = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]


class Tool(msgspec.Struct, frozen=True):
    """A tool as the loop sees it. `run` takes parsed arguments, validates them against the signature
    (BadInput) and gives the output; it raises only ToolError, CancelledError and bugs.

    `parallel`: calls of one step may run at the same time as others. `repeatable`: running it twice does
    no harm, so that a call interrupted by a crash runs again at resume instead of "outcome unknown".
    `timeout_s` None: the tool keeps its own limit. `check` and `preview` are asked before a person is.
    `names` gives the files that its arguments name, as it reads them; raises BadInput. None: their `path`.
    `stands_for`: its calls are calls of other tools; gives the name and arguments of the one meant, or raises
    ToolError.
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
    """Whether a value is of a JSON Schema's `type`; an unknown type fits all, and 2.0 is an integer."""
    if kind not in JSON_TYPES or (kind == "integer" and isinstance(value, float) and value.is_integer()):
        return True
    return isinstance(value, JSON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
