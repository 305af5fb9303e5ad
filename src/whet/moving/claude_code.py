"""Read Claude Code's transcripts, `~/.claude/projects/<folder>/<session>.jsonl`.

Each line is a JSON object. `user` and `assistant` lines contain the vendor's content blocks; tool results are
in user lines. Lines with the same message id are one answer, and are joined. Helpers' sidechains are skipped,
and all that the program added: lines (`isMeta`, failures of the API, notes of an interruption, local commands
and their output), and its reminders in a person's text or at a result's end. A slash command counts as the
person's words if the model answered it. All messages are imported once, although after a compaction
(`isCompactSummary`) the model saw only the summary and later ones. Source: transcripts of version 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from whet.contract.messages import NO_IMAGE, ImagePart, Message, Part, TextPart, ToolCall, Usage, image_in
from whet.contract.texts import from_values, shared_decoder
from whet.moving.lines import JsonLines
from whet.moving.pairing import TranscriptBuilder, build_result, build_usage, dicts_in, parse_ms, text_in
from whet.store.bulk import PastMessage, PastSession
from whet.store.sessions import NewSession

ORIGIN = "claude-code"


_LOCAL_TAGS = (
    *("<local-command-stdout>", "<local-command-stderr>", "<local-command-caveat>"),
    *("<bash-input>", "<bash-stdout>", "<bash-stderr>"),
)
_INTERRUPTED = re.compile(r"\s*\[Request interrupted by user[^\]\n]*\]\s*")
_COMMAND = re.compile(r"\s*(?:<command-(?:name|message|args|contents)>.*?</command-\w+>\s*)+", re.DOTALL)
_COMMAND_FIELD = re.compile(r"<command-(name|args)>(.*?)</command-\1>", re.DOTALL)
_REMINDER, _REMINDER_END = "<system-reminder>", "</system-reminder>"


_Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**12)]


class _Usage(msgspec.Struct):
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cache_read_input_tokens: _Tokens = 0
    cache_creation_input_tokens: _Tokens = 0


class _Body(msgspec.Struct):
    id: Any = None
    content: Any = ""
    model: Any = None
    usage: Any = None


class _Line(msgspec.Struct):
    """The fields of a line that are read. Types are loose, so that one odd value does not lose the
    message."""

    type: str = ""
    message: _Body | None = None
    timestamp: Any = None
    cwd: Any = None
    is_sidechain: Any = msgspec.field(default=False, name="isSidechain")
    is_meta: Any = msgspec.field(default=False, name="isMeta")
    is_compact_summary: Any = msgspec.field(default=False, name="isCompactSummary")
    is_api_error: Any = msgspec.field(default=False, name="isApiErrorMessage")
    summary: Any = None
    ai_title: Any = msgspec.field(default=None, name="aiTitle")
    custom_title: Any = msgspec.field(default=None, name="customTitle")
    uuid: Any = None
    parent: Any = msgspec.field(default=None, name="parentUuid")


_lines = shared_decoder(_Line, strict=False)


def files(folder: Path) -> list[Path]:
    """Return the transcripts below `folder` (of one project or all), or the file itself; sorted."""
    if folder.is_file():
        return [folder]
    root = folder / "projects" if (folder / "projects").is_dir() else folder
    return sorted(path for path in root.rglob("*.jsonl") if not path.name.startswith("agent-"))


def read(path: Path) -> tuple[PastSession | None, int]:
    """Read a transcript and count its unreadable lines. The session is None if it has no user message."""
    abandoned = _find_abandoned(path)
    transcript, lines = _Transcript(), JsonLines(path, _lines)
    for line in _skip_copies(lines):
        if line.uuid not in abandoned:
            transcript.add(line)
    return transcript.session(path.stem), lines.bad


def _skip_copies(lines: Iterable[_Line]) -> Iterator[_Line]:
    """Yield each line once. A second compaction or a fork writes earlier lines again, with their uuids."""
    uuids = set[str]()
    for line in lines:
        if isinstance(line.uuid, str):
            if line.uuid in uuids:
                continue
            uuids.add(line.uuid)
        yield line


def _find_abandoned(path: Path) -> set[str]:
    """Return the uuids of the lines in abandoned branches.

    A branch is abandoned when the person edits an earlier prompt, with the old prompt and all that followed
    it, and when a request is sent again, with the earlier answer.
    """
    abandoned: set[str] = set()
    newest_prompts: dict[object, str] = {}
    newest_answers: dict[str, _Line] = {}
    children: dict[object, list[str]] = {}
    for line in _skip_copies(JsonLines(path, _lines)):
        if not isinstance(line.uuid, str) or line.is_sidechain:
            continue
        children.setdefault(line.parent, []).append(line.uuid)
        if _is_prompt(line):
            before = newest_prompts.get(line.parent)
            # Without a parent it is an edit of the first prompt, unless these lines name no parents at all.
            if before is not None and (isinstance(line.parent, str) or before in children):
                abandoned.add(before)
            newest_prompts[line.parent] = line.uuid
        elif line.type == "assistant" and not line.is_api_error and isinstance(line.parent, str):
            earlier = newest_answers.get(line.parent)
            if earlier is not None and _message_id(earlier) != _message_id(line):
                abandoned.add(str(earlier.uuid))
            newest_answers[line.parent] = line
    pending = list(abandoned)
    while pending:
        children_left = [uuid for uuid in children.get(pending.pop(), ()) if uuid not in abandoned]
        abandoned.update(children_left)
        pending += children_left
    return abandoned


def _message_id(line: _Line) -> str:
    return "" if line.message is None else text_in(line.message.id)


def _is_prompt(line: _Line) -> bool:
    """Return whether a line is a prompt that the person wrote."""
    if line.type != "user" or line.message is None or line.is_meta or line.is_compact_summary:
        return False
    content = line.message.content
    if isinstance(content, str):
        return bool(_find_typed(content))
    blocks = dicts_in(content)
    return any(map(_typed_part, blocks)) and all(block.get("type") != "tool_result" for block in blocks)


class _Transcript(TranscriptBuilder):
    def __init__(self) -> None:
        super().__init__()
        self._title = self._own_title = ""
        self._command: PastMessage | None = None
        self._workspace = ""
        self._last_id = ""

    def add(self, line: _Line) -> None:
        if line.type == "summary":
            self._title = self._title or text_in(line.summary)
        self._title = text_in(line.ai_title) or self._title
        self._own_title = text_in(line.custom_title) or self._own_title
        if line.message is None or line.is_sidechain or line.is_meta or line.is_api_error:
            return
        if line.type == "assistant":
            if self._command is not None:
                self.messages.append(self._command)
                self._command = None
            joined = bool(line.message.id) and text_in(line.message.id) == self._last_id
            _add_answer(self.messages, line, line.message, joined=joined)
            self._last_id = text_in(line.message.id)
        elif line.type == "user":
            if line.is_compact_summary:
                self.mark_summary()
            at_ms = parse_ms(line.timestamp)
            self.messages.extend(_read_user(line.message, at_ms))
            command = _find_command(line.message.content)
            self._command = PastMessage(Message(role="user", content=command), at_ms) if command else None
            self._last_id = ""
        else:
            return
        self._workspace = self._workspace or text_in(line.cwd)

    def session(self, session_id: str) -> PastSession | None:
        """Return the session, or None if it has no user message."""
        new_session = NewSession(
            id=session_id,
            source=ORIGIN,
            provider="anthropic",
            model=next((row.model for row in self.messages if row.model), ""),
            workspace=self._workspace,
            title=self._own_title or self._title,
        )
        return self.build_session(new_session)


def _add_answer(messages: list[PastMessage], line: _Line, body: _Body, *, joined: bool) -> None:
    """Add an answer's line; if it continues the previous answer, join the two."""
    text, calls, reasoning = _read_answer(body.content)
    usage = _read_usage(body.usage)
    if joined and messages and messages[-1].message.role == "assistant":
        before = messages[-1].message
        text = "\n\n".join(filter(None, (before.text, text)))
        calls = (*before.tool_calls, *calls)
        reasoning = "\n\n".join(filter(None, (before.reasoning, reasoning)))
        messages.pop()
    message = Message(role="assistant", content=text, tool_calls=calls, reasoning=reasoning)
    messages.append(PastMessage(message, parse_ms(line.timestamp), usage, text_in(body.model)))


def _read_answer(content: Any) -> tuple[str, tuple[ToolCall, ...], str]:
    """Return an answer's text, calls and reasoning."""
    if isinstance(content, str):
        return content, (), ""
    texts: list[str] = []
    calls: list[ToolCall] = []
    thoughts: list[str] = []
    for block in dicts_in(content):
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text", "")))
            case "thinking":
                thoughts.append(str(block.get("thinking", "")))
            case "tool_use":
                arguments = msgspec.json.encode(block.get("input") or {}).decode()
                calls.append(ToolCall(str(block.get("id", "")), str(block.get("name", "")), arguments))
            case _:
                pass
    return "\n\n".join(filter(None, texts)), tuple(calls), "\n\n".join(filter(None, thoughts))


def _read_user(body: _Body, at_ms: int) -> Iterator[PastMessage]:
    """Yield the tool results in a user line, then the person's message in it."""
    if isinstance(body.content, str):
        if typed := _find_typed(body.content):
            yield PastMessage(Message(role="user", content=typed), at_ms)
        return
    parts: list[Part] = []
    for block in dicts_in(body.content):
        if block.get("type") == "tool_result":
            yield _read_result(block, at_ms)
        elif part := _typed_part(block):
            parts.append(part)
    if parts:
        first = parts[0]
        content = first.text if len(parts) == 1 and isinstance(first, TextPart) else tuple(parts)
        yield PastMessage(Message(role="user", content=content), at_ms)


def _find_typed(text: str) -> str:
    """Return the part of a user text that the person wrote, or ""."""
    first, *others = text.split(_REMINDER)
    pieces = [first]
    for piece in others:
        _, end, after = piece.partition(_REMINDER_END)
        pieces.append(after if end else _REMINDER + piece)
    typed = "".join(pieces).strip() if others else text
    if not typed.strip() or typed.lstrip().startswith(_LOCAL_TAGS):
        return ""
    return "" if _INTERRUPTED.fullmatch(typed) or _COMMAND.fullmatch(typed) else typed


def _find_command(content: Any) -> str:
    """Return the slash command in a user line as the person typed it, or ""."""
    blocks = [text_in(block.get("text")) for block in dicts_in(content)]
    text = "\n".join([content] if isinstance(content, str) else blocks)
    if not _COMMAND.fullmatch(text):
        return ""
    fields = {name: value.strip() for name, value in _COMMAND_FIELD.findall(text)}
    return f"{fields.get('name', '')} {fields.get('args', '')}".strip()


def _drop_last_reminders(text: str) -> str:
    """Return a result without the reminders at its end. Elsewhere they may be part of a file."""
    while (body := text.rstrip()).endswith(_REMINDER_END) and (start := body.rfind(_REMINDER)) >= 0:
        text = body[:start].rstrip()
    return text


def _read_result(block: dict[str, Any], at_ms: int) -> PastMessage:
    inner = block.get("content")
    parts = [part for piece in dicts_in(inner) if (part := _read_part(piece))]
    texts = [inner] if isinstance(inner, str) else [p.text for p in parts if isinstance(p, TextPart)]
    text = "\n".join(filter(None, map(_drop_last_reminders, texts)))
    images = [part for part in parts if isinstance(part, ImagePart)]
    message = Message(
        role="tool",
        content=(TextPart(text), *images) if images else text,
        tool_call_id=str(block.get("tool_use_id", "")),
    )
    return build_result(message, at_ms, is_error=block.get("is_error") is True)


def _typed_part(block: dict[str, Any]) -> Part | None:
    """Return the text that the person wrote in a block, or its image, or None if it has neither."""
    part = _read_part(block)
    if not isinstance(part, TextPart):
        return part
    typed = _find_typed(part.text)
    return TextPart(typed) if typed else None


def _read_part(block: dict[str, Any]) -> Part | None:
    if block.get("type") == "text":
        return TextPart(str(block.get("text", "")))
    source = block.get("source")
    if block.get("type") == "image" and isinstance(source, dict):
        data: object = source.get("data")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] foreign JSON
        if isinstance(data, str):
            return image_in(data) or NO_IMAGE
    return None


def _read_usage(values: Any) -> Usage | None:
    try:
        used = from_values(values, _Usage, strict=False)
    except msgspec.ValidationError:
        return None
    cache_read, cache_write = used.cache_read_input_tokens, used.cache_creation_input_tokens
    return build_usage(
        used.input_tokens, used.output_tokens, read_tokens=cache_read, written_tokens=cache_write
    )
