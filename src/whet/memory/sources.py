"""The speaker of each text in a session, and how far the text can be trusted.

user: typed by the person. observed: results of local tools. untrusted: the web, MCP, plugins, bytes from
elsewhere (`provenance.py`), other sessions, a helper's answer, text that the person pasted or attached.
own: the assistant's words, its arguments, and tools that only return those. Reads stored messages only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatch
from typing import Any, Literal, TypeAlias

import msgspec

from whet.contract.delegation import HELPER
from whet.contract.messages import Message, ToolCall
from whet.contract.texts import collect_texts, parse_arguments, subject_of
from whet.contract.tools import tags_of
from whet.memory import provenance, typed
from whet.memory.folding import decode_values, fold, join_words
from whet.memory.provenance import FileOrigins
from whet.memory.unnamed_files import find_object_paths, reads_unnamed_files
from whet.shell.fetches import find_left_names
from whet.shell.reading import read

Tier: TypeAlias = Literal["user", "observed", "untrusted", "own"]
# Text behind a # outside of quotes has no effect: it is the assistant's talk.
_COMMENT = re.compile(r"(?m)^[ \t]*#[^\n]*|(?<=\s)#(?=[^\n'\"]*$)[^\n]*")
# Lines of a file that was read begin with numbers, and so do search hits, which follow their file's name.
_LINE_NUMBER = re.compile(r"(?m)^ *\d+\|")
# The names in what a fetching command prints: of a summary of changes, or in quotation marks.
_PRINTED_NAME = re.compile(r"(?m)^ (\S+)\s+\|\s+\d+|['‘\"]([\w.~/-]*\w[\w./-]*)['’\"]")


class StoredText(msgspec.Struct, frozen=True):
    """One stored message with its number, its turn and its day (ISO).

    For a result, `received` is whether bytes came to the call from the network (None: not counted), and
    `folder` is where the next command begins (None: as before).
    """

    seq: int
    turn: int
    message: Message
    day: str = ""
    received: bool | None = None
    folder: str | None = None


class SourceText(msgspec.Struct, frozen=True):
    """One text of a session, original and `folded`, with its speaker.

    For a result, `call` is the command, the file that was read, or the question that was answered, and
    `about` is the same including the search terms. A call's arguments and its result have the same
    `call_id`. `letters` are those of the arguments, with encoded values decoded, without spaces.
    """

    seq: int
    turn: int
    role: str
    tier: Tier
    text: str
    folded: str
    tool: str = ""
    failed: bool = False
    call: str = ""
    day: str = ""
    why: str = ""
    received: bool | None = None
    call_id: str = ""
    about: str = ""
    letters: str = ""

    @property
    def is_command(self) -> bool:
        """Whether it is the output of a command."""
        return self.role == "tool" and "command" in tags_of(self.tool)

    @property
    def ran_well(self) -> bool:
        """Whether it is the output of a local command that succeeded."""
        return self.is_command and self.tier == "observed" and not self.failed

    @property
    def is_done(self) -> bool:
        """Whether it is the result of a successful call that may be a step: a command, a look, an edit, a
        loaded skill."""
        if self.role != "tool" or self.failed:
            return False
        tags = tags_of(self.tool)
        return ("local" in tags and "aside" not in tags) or "loads-skills" in tags

    @property
    def has_effect(self) -> bool:
        """Whether it is an assistant's call with an effect, such as a command or a file, and not a look."""
        return self.tier == "own" and self.tool != "" and "looks" not in tags_of(self.tool)


def read_sources(
    stored: Sequence[StoredText],
    *,
    has_person: bool = True,
    trusted: Collection[str] = (),
    origins: FileOrigins | None = None,
) -> list[SourceText]:
    """Return the texts of a session in order.

    `trusted` names tools without tags whose results count as observed. `origins` knows the bytes of
    existing files. Without a person (a helper's session) no text counts as the person's, because another
    model wrote the task.
    """
    reader = _Reader(has_person, trusted, origins)
    for row in stored:
        reader.read(row)
    return reader.texts


class _Reader:
    """Reads a session once and tracks the names under which foreign bytes were stored so far."""

    def __init__(self, has_person: bool, trusted: Collection[str], origins: FileOrigins | None) -> None:
        self._trusted = trusted
        self._origins = origins
        self.texts: list[SourceText] = []
        self._has_person = has_person
        self._calls: dict[str, ToolCall] = {}
        self._foreign: dict[str, str] = {}
        self._background = ""
        self._folder = ""
        self._typed: dict[str, str] = {}
        self._unnamed = (0, "")

    def read(self, row: StoredText) -> None:
        message = row.message
        if message.role == "user":
            self._add_typed(row)
        elif message.role == "assistant":
            self._add(row, "own", message.text)
            for call in message.tool_calls:
                self._calls[call.id] = call
                arguments = parse_arguments(call.arguments)
                texts = "\n".join(collect_texts(arguments))
                parts = read(str(arguments["command"])).parts if arguments.get("command") else ()
                words = join_words("\n".join([texts, decode_values(texts), *(part.line for part in parts)]))
                letters = words.replace(" ", "")  # a program may put a text together from pieces
                self._add(row, "own", texts, tool=call.name, call_id=call.id, letters=letters)
        else:
            self._add_result(row)

    def _add(self, row: StoredText, tier: Tier, text: str, **more: Any) -> None:
        if text.strip():
            speaker = (row.message.role, tier)
            self.texts.append(SourceText(row.seq, row.turn, *speaker, text, fold(text), day=row.day, **more))

    def _add_typed(self, row: StoredText) -> None:
        if not self._has_person:
            self._add(row, "own", row.message.text, why="another model wrote it")
            return
        own_text, foreign = typed.split(row.message.text, row.message.origin)
        self._add(row, "user", own_text)
        self._add(row, "untrusted", foreign, why="you pasted or attached it")

    def _add_result(self, row: StoredText) -> None:
        message = row.message
        call = self._calls.get(message.tool_call_id)
        name = message.tool_name or (call.name if call else "")
        arguments = parse_arguments(call.arguments if call else "")
        tier, why = self._judge(name, arguments, row)
        text, foreign, tags = message.text, "", tags_of(name)
        if tier == "user":
            text, foreign = typed.split(text, message.origin)
        if "local" in tags and "looks" in tags:
            text = strip_line_numbers(text, "  " if "search" in tags else "")
        keys = ("command", "path", "file_path", "question")
        label = next((str(arguments[key]) for key in keys if arguments.get(key)), name)
        self._add(row, "untrusted", foreign, tool=name, why="you pasted or forwarded it")
        self._add(
            row,
            tier,
            text or ("" if foreign else "(no output)"),
            tool=name,
            failed=message.is_error,
            call=_COMMENT.sub("", label).strip() if "command" in tags else label,
            why=why,
            received=row.received,
            call_id=message.tool_call_id,
            about=subject_of(arguments),
        )

    def _judge(self, name: str, arguments: dict[str, Any], row: StoredText) -> tuple[Tier, str]:
        tags, message = tags_of(name), row.message
        if "own" in tags or "edits" in tags:
            return "own", f"{name} gives back what was written before"
        if "asks" in tags:
            return _judge_answer(message, arguments)
        if message.origin == "brought" or not ("local" in tags if tags else name in self._trusted):
            return "untrusted", f"it comes from {name or 'an unknown tool'}"
        if row.received and "command" not in tags:
            return "untrusted", f"{name} gives what came from the network"
        if "background" in tags:
            return self._judge_process(arguments, row)
        if "search" in tags and message.text.startswith("[no matches"):
            return "own", ""
        why = self._judge_content(arguments, row, is_command="command" in tags)
        return ("untrusted", why) if why else ("observed", "")

    def _judge_process(self, arguments: dict[str, Any], row: StoredText) -> tuple[Tier, str]:
        if str(arguments.get("id", "")).startswith(HELPER):
            return "untrusted", "a helper says it"
        self._read_input(arguments, row)
        return ("untrusted", self._background) if self._background else ("observed", "")

    def _judge_content(self, arguments: dict[str, Any], row: StoredText, *, is_command: bool) -> str:
        """Return why a result is not this machine's own, or an empty string. Remembers what a command
        leaves."""
        texts = (str(arguments[key]) for key in ("command", "stdin") if arguments.get(key))
        words = "\n".join(texts) if is_command else ""
        why = self._why_foreign(words, arguments, row)
        if why and words:
            self._mark(words, why)
        if why and arguments.get("background"):
            self._background = why
        if is_command and row.folder is not None:
            self._folder = row.folder
        return why

    def _read_input(self, arguments: dict[str, Any], row: StoredText) -> None:
        """Judge the text that was written into a process like a command: a shell runs it."""
        if not (text := str(arguments.get("text") or "")):
            return
        process = str(arguments.get("id", ""))
        self._typed[process] = typed_text = f"{self._typed.get(process, '')}{text}"
        for command in (text, typed_text):
            if why := self._why_foreign(command, {}, row):
                self._background = why
                self._mark(command, why)

    def _why_foreign(self, command: str, arguments: dict[str, Any], row: StoredText) -> str:
        """Return why a result is not this machine's own, or an empty string."""
        message = row.message
        if command and provenance.may_have_received(command, row.received):
            why = f"`{command[:80]}` reaches out to the network"
            if "$" in command:
                self._unnamed = (len(self.texts), why)
            for match in _PRINTED_NAME.finditer(message.text):
                path = match[1] or match[2].rstrip("/")
                self._foreign.setdefault(path, f"{path} came with `{command[:60]}`")
            return why
        keys = ("path", "file_path", "workdir", "glob")
        paths = [str(arguments[key]) for key in keys if arguments.get(key)]
        folder = str(arguments.get("workdir") or self._folder) if command else ""
        words = [*paths, *read(command).files, *find_object_paths(command)]
        inside = [f"{folder}/{word}" for word in words] if folder else []
        if any(map(provenance.is_installed, [*paths, folder])) or provenance.names_installed_path(command):
            return f"{(paths or [command])[0][:80]} is installed or downloaded, not written here"
        if self._origins is not None and (why := self._origins.why_any_foreign([*words, *inside])):
            return why
        if self._foreign and reads_unnamed_files(command):
            return next(iter(self._foreign.values()))
        is_search = "search" in tags_of(message.tool_name)
        return self._why_among([*([folder] if folder else []), *words], message.text if is_search else "")

    def _why_among(self, paths: Sequence[str], hits: str) -> str:
        parts = {part for word in paths for part in (word, *word.strip("./").split("/"))}
        takes_all = not {".", "./"}.isdisjoint(paths)
        for path, why in self._foreign.items():
            if takes_all or path in hits or any(path == part or fnmatch(path, part) for part in parts):
                return why
        since, why = self._unnamed
        before = [text.folded for text in self.texts[:since]]
        if not why or not paths or any(word and fold(word) in text for word in paths for text in before):
            return ""
        return f"{paths[-1][:60]} may have come with {why}"

    def _mark(self, command: str, why: str) -> None:
        """Record the names under which a command may have stored foreign bytes."""
        heads = read(command).programs
        for word in find_left_names(command):
            name = re.sub(r"^\w+://|(?:\.git)?/*$", "", word.partition("?")[0]).rpartition("/")[2]
            if word not in heads and re.match(r"[\w.~/-]", word) and name.strip("."):
                reason = f"{name} came with `{command[:60]}`" if "network" in why else why
                self._foreign.setdefault(name, reason)


def _judge_answer(message: Message, arguments: dict[str, Any]) -> tuple[Tier, str]:
    """Return whose words an answer holds: those of a choice are the assistant's, whoever picked it."""
    if message.is_error:
        return "own", ""
    if message.origin == "brought":
        return "own", "the assistant or a program wrote that answer"
    # Answers of earlier versions have no origin.
    offered = {fold(choice) for choice in collect_texts(arguments.get("choices"))}
    return ("own", "the assistant wrote that choice") if fold(message.text) in offered else ("user", "")


def strip_line_numbers(text: str, instead: str = "") -> str:
    """Return the output of a file tool without the line numbers."""
    return _LINE_NUMBER.sub(instead, text)
