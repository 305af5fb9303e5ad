"""Who said what in a session, and how far each text can be trusted.

user: the person's own words. observed: results of local tools. untrusted: the web, MCP, plugins, what a
shell command fetched, files that it left and what came of them, other sessions, a helper's answer, pasted
text. own: the assistant's words, its arguments, and tools that only give those back. Taint follows files and
outputs through the session. Reads stored messages; asks nobody.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from whet.contract.messages import Message, ToolCall
from whet.contract.texts import NOT_JSON
from whet.memory import network, pasted
from whet.memory.claim import LOCAL
from whet.memory.folding import fold

Tier: TypeAlias = Literal["user", "observed", "untrusted", "own"]

_OUTSIDE = frozenset({"web_fetch", "session_search", "delegate_task"})
_OWN = frozenset({"todo", "memory", "skill_manage", "skill_view", "skills_list", "recall", "warm_session"})
_LOOKING = frozenset(
    {"read_file", "search_files", "web_fetch", "session_search", "recall", "skill_view", "skills_list"}
)
_PLANTED = re.compile(
    r"\b(?:remember (?:that|this|to|:)|(?:note|message|instructions?|attention|memo)\s*(?:to"
    r"|for)\s*(?:the\s+|all\s+|any\s+)?"
    r"(?:ai|assistants?|agents?|models?|llms?|bots?|whet|claude|gpt|chatgpt|copilot)\b|(?:add|save"
    r"|store|write|commit|keep|put)"
    r" (?:this|that|the following|it|these)?[^.\n]{0,40}\b(?:in|to|into) (?:your |the |long-term "
    r"|its )*(?:memory|memories|skills?|notes)"
    r"|ignore (?:all |any |the |your )*(?:previous|prior|above|earlier)|from now on,? (?:you|always"
    r"|never|the (?:ai|assistant|agent))"
    r"|(?:ai|assistants?|agents?|llms?|language models?|bots?)\s+(?:must|should|shall|are (?:required"
    r"|instructed)|need to|have to)\b"
    r"|(?:system|developer) (?:prompt|message|instruction|note)|you (?:must|are required to"
    r"|are instructed to) (?:always |now )?(?:remember|save|store|use|trust)"
    r"|(?:lasting|permanent|long-term) (?:memory|lesson|instruction)|(?:update|change) (?:your"
    r"|the agent's) (?:memory|behaviou?r|instructions))",
    re.IGNORECASE,
)
_AROUND = 240
_YES = re.compile(
    r"(?:yes|yep|yeah|ok(?:ay)?|sure|right|correct|exactly|please|do)\b.*\b(?:remember|save|keep|note"
    r"|memori[sz]e|store)\b"
    r"|(?:please )?(?:remember|save|keep|note|memori[sz]e|store) (?:that|this|it)(?: (?:please|down"
    r"|for (?:later|next time)))?",
    re.IGNORECASE,
)


class StoredText(msgspec.Struct, frozen=True):
    """One stored message: its number, its turn, and itself."""

    seq: int
    turn: int
    message: Message


class SourceText(msgspec.Struct, frozen=True):
    """One text of a session: what stands in it (`folded`, and as it was), and whose it is. `called` is what
    the call behind a successful result really did, folded: it shows as much as the result. `fresh` is what an
    observed text has that neither a command or file of the assistant's nor an untrusted text had before."""

    seq: int
    turn: int
    role: str
    tier: Tier
    text: str
    folded: str
    tool: str = ""
    failed: bool = False
    called: str = ""
    fresh: str = ""
    why: str = ""

    def tier_at(self, start: int, end: int) -> Tier:
        """Give the tier of a stretch of the folded text: text that is written at an assistant is planted,
        wherever it was found."""
        if self.tier != "observed":
            return self.tier
        around = self.folded[max(0, start - _AROUND) : end + _AROUND]
        return "untrusted" if _PLANTED.search(around) else "observed"


def puts(source: SourceText) -> bool:
    """Whether the assistant's words went into the world: into a command or a file, not into a question."""
    return source.tier == "own" and source.tool not in _LOOKING and source.tool != ""


def sources(
    stored: Sequence[StoredText], *, has_person: bool = True, local: Collection[str] = LOCAL
) -> list[SourceText]:
    """Give the texts of a session in order. `local` names the tools whose results are observed. Without a
    person (a helper's session) nothing in it is one's word: the task was written by another model."""
    reader = _Reader(has_person, local)
    for row in stored:
        reader.read(row)
    return reader.found


class _Reader:
    """Reads a session once, keeping what is tainted so far."""

    def __init__(self, has_person: bool, local: Collection[str]) -> None:
        self._local = local
        self.found: list[SourceText] = []
        self._has_person = has_person
        self._calls: dict[str, ToolCall] = {}
        self._tainted: dict[str, str] = {}
        self._background = ""
        self._last_said = ""

    def read(self, row: StoredText) -> None:
        message = row.message
        if message.role == "user":
            self._user(row)
        elif message.role == "assistant":
            self._assistant(row)
        else:
            self._result(row)

    def _add(self, row: StoredText, tier: Tier, text: str, **more: Any) -> None:
        if not text.strip():
            return
        folded = fold(text)
        fresh = self._fresh(text) if tier == "observed" else folded
        self.found.append(
            SourceText(row.seq, row.turn, row.message.role, tier, text, folded, fresh=fresh, **more)
        )

    def _fresh(self, text: str) -> str:
        """Give the lines that nobody put there, without what is written at an assistant."""
        there = [one.folded for one in self.found if one.tier == "untrusted" or puts(one)]
        lines = (folded for line in text.splitlines() if (folded := fold(line)))
        kept = " ".join(line for line in lines if len(line) < 8 or not any(line in one for one in there))
        spans = [match.span() for match in _PLANTED.finditer(kept)]
        for start, end in reversed(spans):
            kept = kept[: max(0, start - _AROUND)] + " " + kept[end + _AROUND :]
        return kept

    def _user(self, row: StoredText) -> None:
        if not self._has_person:
            self._add(row, "own", row.message.text, why="written by another model")
            return
        own, foreign = pasted.split(row.message.text)
        self._add(row, "user", own)
        self._add(row, "untrusted", foreign, why="pasted by the person from elsewhere")
        if len(own.split()) <= 12 and _YES.match(own.strip()):
            self._add(row, "user", self._last_said, why="the person said to remember it")

    def _assistant(self, row: StoredText) -> None:
        self._last_said = row.message.text
        self._add(row, "own", row.message.text)
        for call in row.message.tool_calls:
            self._calls[call.id] = call
            self._add(row, "own", _argument_text(call), tool=call.name)

    def _result(self, row: StoredText) -> None:
        message = row.message
        call = self._calls.get(message.tool_call_id)
        name = message.tool_name or (call.name if call else "")
        arguments = _arguments(call)
        tier, why = self._tier(name, arguments, message)
        called = "" if message.is_error else fold(_done(name, arguments))
        self._add(row, tier, message.text, tool=name, failed=message.is_error, called=called, why=why)

    def _tier(self, name: str, arguments: dict[str, Any], message: Message) -> tuple[Tier, str]:
        if name in _OWN:
            return "own", f"{name} gives back what was written before"
        if name == "clarify":
            return ("user", "") if not message.is_error else ("own", "")
        if name in _OUTSIDE or name not in self._local:
            return "untrusted", f"it comes from {name or 'an unknown tool'}"
        if name in ("terminal", "process"):
            return self._shell(name, arguments, message)
        if name == "search_files" and message.text.startswith("[no matches"):
            return "own", ""
        if why := self._tainted_in(_paths(arguments)) or self._named_in(name, message.text):
            if name in ("write_file", "patch"):
                return "own", ""
            return "untrusted", why
        return "observed", ""

    def _shell(self, name: str, arguments: dict[str, Any], message: Message) -> tuple[Tier, str]:
        command = str(arguments.get("command") or arguments.get("text") or "")
        where = str(arguments.get("workdir") or "")
        if name == "process" and self._background and arguments.get("action") != "list":
            return "untrusted", self._background
        why = ""
        if network.is_network(command):
            why = f"`{command[:80]}` fetches from the network"
            if arguments.get("background"):
                self._background = why
            if re.search(r"\bgit\b.*\b(?:pull|merge|fetch)\b", command):
                for path in re.findall(r"(?m)^ (\S+)\s+\|\s+\d+", message.text):
                    self._tainted[path] = f"{path} came with `{command[:60]}`"
        else:
            why = self._tainted_in((where, command)) or self._globbed(command)
        if not why:
            return ("own", "") if network.only_repeats(command) else ("observed", "")
        for path in network.outputs(command):
            self._tainted[path] = f"{path} came from `{command[:60]}`"
        return "untrusted", why

    def _tainted_in(self, texts: Sequence[str]) -> str:
        for path, why in self._tainted.items():
            if any(text and network.mentions(text, path) for text in texts):
                return why
        return ""

    def _named_in(self, name: str, text: str) -> str:
        """Whether a search's hits are in a tainted file."""
        if name != "search_files" or not self._tainted:
            return ""
        return self._tainted_in((text,))

    def _globbed(self, command: str) -> str:
        """Whether a pattern, or a search through a whole folder, takes a tainted file in."""
        if not self._tainted:
            return ""
        patterns = [word for word in command.split() if any(c in word for c in "*?[")]
        for path, why in self._tainted.items():
            name = path.rstrip("/").rpartition("/")[2]
            if any(fnmatch.fnmatch(name, pattern.rpartition("/")[2].strip("\"'")) for pattern in patterns):
                return why
        if re.search(
            r"\b(?:grep|rg|ag|ack)\b.*(?:-\w*[rR]|\s\.(?:\s|$))|\brg\b|\bfind\b.*-exec"
            r"|\bgit\s+(?:show|diff|log)\b",
            command,
        ):
            return next(iter(self._tainted.values()))
        return ""


def _arguments(call: ToolCall | None) -> dict[str, Any]:
    if call is None:
        return {}
    try:
        values = msgspec.json.decode(call.arguments or "{}")
    except NOT_JSON:
        return {}
    return values if isinstance(values, dict) else {}  # pyright: ignore[reportUnknownVariableType] JSON of a model


def _argument_text(call: ToolCall) -> str:
    return "\n".join(_texts(_arguments(call)))


def _texts(value: Any) -> Iterator[str]:
    """Give every text in a JSON value, in its order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():  # pyright: ignore[reportUnknownVariableType] JSON of a model
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType] JSON of a model
            yield from _texts(item)


def _paths(arguments: dict[str, Any]) -> list[str]:
    return [str(arguments[key]) for key in ("path", "file_path", "workdir", "glob") if arguments.get(key)]


def _done(name: str, arguments: dict[str, Any]) -> str:
    """Give what a call that succeeded really did: the command that ran, the file that is there."""
    if name == "terminal":
        return "\n".join(
            (network.meant(str(arguments.get("command") or "")), str(arguments.get("workdir") or ""))
        )
    if name == "clarify":
        return str(arguments.get("question") or "")
    return "\n".join(_paths(arguments))
