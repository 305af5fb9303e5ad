"""Separate the words, the thoughts and the calls of an answer whose server sends them all as text.

Local servers pass on a model's text unread. Thoughts are between tags (`<think>`, `[THINK]`, `<seed:think>`,
`<|channel|>analysis`), or have only the closing tag, because the prompt contained the opening one. Calls look
like `<tool_call>{"name": ...}</tool_call>`. Such a tag is called a mark here. Which marks count:

- none inside code
- of thoughts: those at the start of the answer, and later ones on a line of their own that are closed
- of calls: those at the end of the answer, if only calls follow and tools were offered

Works while the answer arrives. The beginning of a possible mark, which is short, is held back until the next
piece, and a possible call until the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec

from whet.contract.events import ReasoningDelta, StreamRestarted, TextDelta
from whet.contract.messages import Message, ToolCall
from whet.providers.wire import PieceJoiner, unique_ids

_TAG = r"(?i:(?:\w+:)?(?:think(?:ing)?|thoughts?|reasoning))"
_SQUARE = r"(?:THINK(?:ING)?|THOUGHTS?|REASONING)"
_CHANNEL = (
    r"(?:<\|start\|>assistant)?<\|channel\|>(?P<channel>\w+)(?P<to>[^<>\n]{0,80}(?:<\|constrain\|>\w+)?)"
    r"<\|message\|>"
)
_OPEN = rf"(?P<open><{_TAG}>|\[{_SQUARE}\]|◁{_TAG}▷|<\|START_THINKING\|>|<\|begin_of_thought\|>)"
_CLOSE = rf"(?P<close></{_TAG}>|\[/{_SQUARE}\]|◁/{_TAG}▷|<\|END_THINKING\|>|<\|end_of_thought\|>)"
_KIND = r"(?:tool|function)[_▁]?(?:call|use|request)s?(?:_section)?(?:[_▁](?:begin|start))?"
_BARS = r"(?:[|｜‖]{1,2})"
_SPACE = rf"(?:\w+:|{_BARS}\w+{_BARS}|{_BARS})"
_CALL = (
    rf"(?P<call><{_SPACE}?(?i:{_KIND}){_BARS}?>|\[TOOL_(?:CALLS?|REQUEST)\]|<function=[\w.-]+>|<\|python_tag\|>"
    rf"|<{_SPACE}?invoke name=\"[\w.:-]+\"[^<>\n]{{0,40}}>)"
)
_END = r"(?P<end><\|(?:end|return|call)\|>)"
_STARTS = ("<", "[", "◁")
_TOKENS = ("<|", "<｜", "<‖", "[TOOL_")
# The names of two channels as they are left by a server that drops the marks around them.
_BARE, _BARE_FINAL = "analysis", "assistantfinal"
_RESTARTED = "the text so far was the model's reasoning"

Piece = TextDelta | ReasoningDelta | StreamRestarted


@cache
def _mark() -> re.Pattern[str]:
    """Return the pattern of a mark. It takes 1.5 ms to compile, and few answers have one."""
    return re.compile(f"{_CHANNEL}|{_OPEN}|{_CLOSE}|{_CALL}|{_END}")


@cache
def _closing_mark() -> re.Pattern[str]:
    return re.compile(f"{_CLOSE}|{_END}")


@cache
def _begun_mark() -> re.Pattern[str]:
    """Return the pattern of the beginning of a mark at the end of the received text."""
    return re.compile(
        r"(?:<\|(?:start|channel)\|>[^\n]{0,120}"
        r"|[<\[◁][|｜‖/]{0,2}[\w:.▁=|｜‖-]{0,40}(?<=invoke) [\w.:=\" -]{0,80}"
        r"|[<\[◁][|｜‖/]{0,2}[\w:.▁=-]{0,40}[|｜‖]{0,2}\w{0,40}[|｜‖]?)\Z"
    )


class AnswerParts:
    """One answer's text while it arrives. `words`, `thoughts` and `calls` are complete after `finish`."""

    def __init__(self, *, has_tools: bool) -> None:
        self._has_tools = has_tools
        self._joiners: dict[type, PieceJoiner] = {TextDelta: PieceJoiner(), ReasoningDelta: PieceJoiner()}
        self._words: list[str] = []
        self._thoughts: list[str] = []
        self._mode = "start"
        self._pending: str = ""
        self._is_channel = False
        self._open_thought = ("", 0)
        self._may_be_bare: bool = False
        self.has_text: bool = False
        self.is_changed: bool = False
        self.calls: list[tuple[str, str]] = []

    @property
    def words(self) -> str:
        """The text of the answer."""
        return "".join(self._words)

    @property
    def thoughts(self) -> str:
        """The thoughts that the server sent as text."""
        return "".join(self._thoughts)

    def feed(self, deltas: Sequence[TextDelta | ReasoningDelta]) -> list[Piece]:
        """Take pieces of the answer; return the words and thoughts that are certain now."""
        pieces: list[Piece] = []
        for delta in deltas:
            text = self._joiners[type(delta)].feed(delta.text)
            if isinstance(delta, ReasoningDelta):
                pieces += [ReasoningDelta(text)] if text else []
            else:
                self.has_text = True
                pieces += self._read(text, is_last=False)
        return pieces

    def finish(self) -> list[Piece]:
        """Handle the end of the answer; return the words and thoughts that were held back."""
        thought = self._joiners[ReasoningDelta].finish()
        pieces: list[Piece] = [ReasoningDelta(thought)] if thought else []
        pieces += self._read(self._joiners[TextDelta].finish(), is_last=True)
        if self._mode == "calls":
            self.calls = _read_calls(self._pending) if self._has_tools else []
            if self.calls:
                self.is_changed = True
                self._words = [self.words.rstrip()]
            else:
                pieces += self._emit_words(self._pending)
        elif self._mode == "thought" and self._open_thought[0]:  # a tag that was only mentioned
            mark, count = self._open_thought
            pieces += self._emit_words("".join([mark, *self._thoughts[count:]]))
            del self._thoughts[count:]
        return pieces

    def calls_in_thoughts(self, thoughts: str) -> tuple[str, list[tuple[str, str]]]:
        """Split the thoughts of an answer without words into the thoughts and the calls at their end, which
        the server took for thoughts, too."""
        if self._has_tools:
            for match in _mark().finditer(thoughts):
                if match["call"] and (calls := _read_calls(thoughts[match.start() :])):
                    return thoughts[: match.start()].rstrip(), calls
        return thoughts, []

    def _read(self, piece: str, *, is_last: bool) -> list[Piece]:
        is_plain = self._mode == "words" and not self._pending and not self._may_be_bare
        if is_plain and not any(mark in piece for mark in _STARTS):
            return self._emit_words(piece)
        self._pending += piece
        readers = {"start": self._read_start, "words": self._read_words, "thought": self._read_thought}
        pieces: list[Piece] = []
        while self._pending and self._mode != "calls":
            size = len(self._pending)
            pieces += readers[self._mode](is_last)
            if len(self._pending) == size:
                break
        return pieces

    def _read_start(self, is_last: bool) -> list[Piece]:
        """Read the text before the first word."""
        text = self._pending.lstrip()
        has_mark = text[:1] in _STARTS
        match = _mark().match(text) if has_mark else None
        if match and (match["open"] or match["channel"] or (match["end"] and self._is_channel)):
            self._pending = text[match.end() :]
            self._open_mark(match)
            return []
        if not is_last and (not text or (has_mark and _begun_mark().match(text)) or _BARE.startswith(text)):
            return []
        self._may_be_bare = text.startswith(_BARE)
        if self.is_changed:
            self._pending = text
        self._mode = "words"
        return self._read_words(is_last)

    def _open_mark(self, match: re.Match[str]) -> None:
        """Handle an opening mark: set the mode of the text after it."""
        self.is_changed = True
        channel = match["channel"]
        self._is_channel = self._is_channel or bool(channel)
        if channel and "to=" in match["to"]:
            self._mode, self._pending = "calls", match[0] + self._pending
        elif match["open"] or (channel and channel != "final"):
            self._mode = "thought"
        else:
            self._mode = "start"

    def _read_thought(self, is_last: bool) -> list[Piece]:
        match = _closing_mark().search(self._pending)
        if match is None:
            end = len(self._pending)
            if not is_last and (begun := _begun_mark().search(self._pending)):
                end = begun.start()
            return self._keep_thought(end, end)
        pieces = self._keep_thought(match.start(), match.end())
        self._mode, self._open_thought = "start", ("", 0)
        return pieces

    def _keep_thought(self, end: int, after: int) -> list[Piece]:
        text, self._pending = self._pending[:end], self._pending[after:]
        self._thoughts += [text] if text else []
        return [ReasoningDelta(text)] if text else []

    def _read_words(self, is_last: bool) -> list[Piece]:
        """Read words until the next mark."""
        if not any(mark in self._pending for mark in _STARTS):
            return self._strip_final(len(self._pending))
        at = 0
        while match := _mark().search(self._pending, at):
            is_mark = self._is_mark(match, is_last)
            if is_mark is None:
                return self._take_words(match.start())
            if is_mark:
                return self._handle_mark(match)
            at = match.end()
        end = len(self._pending)
        if not is_last and (begun := _begun_mark().search(self._pending)) and begun.start() >= at:
            end = begun.start()
        return self._strip_final(end)

    def _is_mark(self, match: re.Match[str], is_last: bool) -> bool | None:
        """Return whether a match among words is a mark and not just text, or None if the next character
        decides."""
        before = self.words + self._pending[: match.start()]
        line = before.rpartition("\n")[2]
        if _is_in_code(before, line):
            return False
        if match["end"] or match["channel"]:
            return self._is_channel or bool(match["channel"])
        if not match["close"]:
            is_token = bool(match["call"]) and match[0].startswith(_TOKENS)  # never a word of an answer
            return is_token or not line.strip()
        if self._thoughts:
            return False
        if match.end() == len(self._pending) and not is_last:
            return None
        return not line.strip() or self._pending[match.end() : match.end() + 1] in ("", "\n")

    def _handle_mark(self, match: re.Match[str]) -> list[Piece]:
        """Take the words before a mark and set the mode of the text after it."""
        if match["close"]:
            text = self.words + self._pending[: match.start()]
            return self._turn_into_thoughts(text, self._pending[match.end() :])
        pieces = self._take_words(match.start())
        if match["call"]:
            self._mode = "calls"
            return pieces
        self._pending = self._pending[len(match[0]) :]
        self._open_mark(match)
        if match["open"]:
            self._open_thought = (match[0], len(self._thoughts))
        return pieces

    def _turn_into_thoughts(self, text: str, following: str) -> list[Piece]:
        """Treat all words so far as the thoughts `text`, because their closing mark came, and go on with the
        text after it."""
        restart: list[Piece] = [StreamRestarted(_RESTARTED)] if self._words else []
        self._words, self._pending, self._mode, self.is_changed = [], following, "start", True
        self._may_be_bare = False
        self._thoughts += [text]
        return [*restart, ReasoningDelta(text)] if text else restart

    def _strip_final(self, end: int) -> list[Piece]:
        """Take the words up to `end`. If they contain the name of the final channel without its mark, all
        text before it was thoughts."""
        text = self.words + self._pending if self._may_be_bare else ""
        if (at := text.find(_BARE_FINAL)) >= 0:
            return self._turn_into_thoughts(text[len(_BARE) : at], text[at + len(_BARE_FINAL) :])
        return self._take_words(end)

    def _take_words(self, end: int) -> list[Piece]:
        text, self._pending = self._pending[:end], self._pending[end:]
        return self._emit_words(text)

    def _emit_words(self, text: str) -> list[Piece]:
        self._words += [text] if text else []
        return [TextDelta(text)] if text else []


def separate(message: Message, parts: AnswerParts, used_ids: Iterable[str]) -> Message:
    """Return the answer with the words, thoughts and calls of its text in the fields for them."""
    thoughts = [text for text in (message.reasoning, parts.thoughts.strip()) if text]
    reasoning = "\n\n".join(thoughts)
    written_calls = parts.calls
    if not (message.tool_calls or written_calls or parts.words.strip()):
        reasoning, written_calls = parts.calls_in_thoughts(reasoning)
    if not parts.is_changed and not written_calls:
        return message
    ids = unique_ids([""] * len(written_calls), used_ids)
    calls = tuple(ToolCall(call_id, *call) for call_id, call in zip(ids, written_calls, strict=True))
    return msgspec.structs.replace(
        message,
        content=parts.words,
        reasoning=reasoning,
        tool_calls=message.tool_calls or calls,
        replay=None if calls else message.replay,
    )


def _read_calls(text: str) -> list[tuple[str, str]]:
    from whet.providers.written_calls import calls_in  # noqa: PLC0415 few servers leave calls as text

    return calls_in(text)


def _is_in_code(before: str, line: str) -> bool:
    """Return whether the text after `before` is inside a block or a span of code. `line` is its last line."""
    fences = sum(row.lstrip().startswith(("```", "~~~")) for row in before.split("\n"))
    return bool(fences % 2) or bool(line.count("`") % 2)
