"""Separate the words, the thoughts and the calls of an answer whose server sends them all as text.

Local servers pass on what a model writes: thoughts between tags (`<think>`, `[THINK]`, `<seed:think>`,
`<|channel|>analysis`), only their closing tag because the prompt held the opening one, and calls such as
`<tool_call>{"name": ...}</tool_call>`. Tags inside code are words. Thoughts count at the start of an answer,
or on a line of their own if they are closed. Calls count at the end of an answer, if nothing but calls
follows and tools were offered. Everything else stays the text that it was.

Works while the answer arrives: a piece that may become a tag is held back, at most some characters; what
may become a call is held back to the end.
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
# A channel's name and the next one's, from a server that drops the marks around them.
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
    """Return the pattern of what may become a mark once more of it arrives."""
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
        self._held: str = ""
        self._is_channel = False
        self._middle = ("", 0)
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
        """The thoughts that came as text."""
        return "".join(self._thoughts)

    def feed(self, deltas: Sequence[TextDelta | ReasoningDelta]) -> list[Piece]:
        """Return what is known of these pieces and was held back before."""
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
        """Return what was held back until the end."""
        thought = self._joiners[ReasoningDelta].finish()
        pieces: list[Piece] = [ReasoningDelta(thought)] if thought else []
        pieces += self._read(self._joiners[TextDelta].finish(), is_last=True)
        if self._mode == "calls":
            self.calls = _read_calls(self._held) if self._has_tools else []
            if self.calls:
                self.is_changed = True
                self._words = [self.words.rstrip()]
            else:
                pieces += self._say(self._held)
        elif self._mode == "thought" and self._middle[0]:  # a tag that was only mentioned
            mark, count = self._middle
            pieces += self._say("".join([mark, *self._thoughts[count:]]))
            del self._thoughts[count:]
        return pieces

    def calls_in_thoughts(self, thoughts: str) -> tuple[str, list[tuple[str, str]]]:
        """Return the thoughts of an answer of nothing else, and the calls that they end with, which its
        server took for thoughts as well."""
        for match in _mark().finditer(thoughts) if self._has_tools else ():
            if match["call"] and (calls := _read_calls(thoughts[match.start() :])):
                return thoughts[: match.start()].rstrip(), calls
        return thoughts, []

    def _read(self, piece: str, *, is_last: bool) -> list[Piece]:
        is_plain = self._mode == "words" and not self._held and not self._may_be_bare
        if is_plain and not any(mark in piece for mark in _STARTS):
            return self._say(piece)
        self._held += piece
        pieces: list[Piece] = []
        while self._held and self._mode != "calls":
            size = len(self._held)
            step = {"start": self._start, "words": self._go_on, "thought": self._think}[self._mode]
            pieces += step(is_last)
            if len(self._held) == size:
                break
        return pieces

    def _start(self, is_last: bool) -> list[Piece]:
        """Read what comes before the first word."""
        text = self._held.lstrip()
        has_mark = text[:1] in _STARTS
        match = _mark().match(text) if has_mark else None
        if match and (match["open"] or match["channel"] or (match["end"] and self._is_channel)):
            self._held = text[match.end() :]
            self._enter(match)
            return []
        if not is_last and (not text or (has_mark and _begun_mark().match(text)) or _BARE.startswith(text)):
            return []
        self._may_be_bare = text.startswith(_BARE)
        if self.is_changed:
            self._held = text
        self._mode = "words"
        return self._go_on(is_last)

    def _enter(self, match: re.Match[str]) -> None:
        """Enter what a mark opens."""
        self.is_changed = True
        channel = match["channel"]
        self._is_channel = self._is_channel or bool(channel)
        if channel and "to=" in match["to"]:
            self._mode, self._held = "calls", match[0] + self._held
        elif match["open"] or (channel and channel != "final"):
            self._mode = "thought"
        else:
            self._mode = "start"

    def _think(self, is_last: bool) -> list[Piece]:
        match = _closing_mark().search(self._held)
        if match is None:
            end = len(self._held)
            if not is_last and (begun := _begun_mark().search(self._held)):
                end = begun.start()
            return self._keep_thought(end, end)
        pieces = self._keep_thought(match.start(), match.end())
        self._mode, self._middle = "start", ("", 0)
        return pieces

    def _keep_thought(self, end: int, after: int) -> list[Piece]:
        text, self._held = self._held[:end], self._held[after:]
        self._thoughts += [text] if text else []
        return [ReasoningDelta(text)] if text else []

    def _go_on(self, is_last: bool) -> list[Piece]:
        """Read words until the next mark."""
        if not any(mark in self._held for mark in _STARTS):
            return self._strip_final(len(self._held))
        pieces: list[Piece] = []
        at = 0
        while match := _mark().search(self._held, at):
            if self._counts(match, is_last) is None:
                return [*pieces, *self._take_words(match.start())]
            if self._counts(match, is_last):
                return [*pieces, *self._cross(match)]
            at = match.end()
        end = len(self._held)
        if not is_last and (begun := _begun_mark().search(self._held)) and begun.start() >= at:
            end = begun.start()
        return [*pieces, *self._strip_final(end)]

    def _counts(self, match: re.Match[str], is_last: bool) -> bool | None:
        """Return whether a mark among words is more than a word; None if the next character decides."""
        before = self.words + self._held[: match.start()]
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
        if match.end() == len(self._held) and not is_last:
            return None
        return not line.strip() or self._held[match.end() : match.end() + 1] in ("", "\n")

    def _cross(self, match: re.Match[str]) -> list[Piece]:
        """Go on behind a mark among words."""
        if match["close"]:
            text = self.words + self._held[: match.start()]
            return self._turn_into_thoughts(text, self._held[match.end() :])
        pieces = self._take_words(match.start())
        if match["call"]:
            self._mode = "calls"
            return pieces
        self._held = self._held[len(match[0]) :]
        self._enter(match)
        if match["open"]:
            self._middle = (match[0], len(self._thoughts))
        return pieces

    def _turn_into_thoughts(self, text: str, rest: str) -> list[Piece]:
        """Take all words so far for thoughts, as their closing mark has come."""
        restart: list[Piece] = [StreamRestarted(_RESTARTED)] if self._words else []
        self._words, self._held, self._mode, self.is_changed = [], rest, "start", True
        self._may_be_bare = False
        self._thoughts += [text]
        return [*restart, ReasoningDelta(text)] if text else restart

    def _strip_final(self, end: int) -> list[Piece]:
        """Take the words up to `end`, unless they show that all before was a channel without its marks."""
        text = self.words + self._held if self._may_be_bare else ""
        if (at := text.find(_BARE_FINAL)) >= 0:
            return self._turn_into_thoughts(text[len(_BARE) : at], text[at + len(_BARE_FINAL) :])
        return self._take_words(end)

    def _take_words(self, end: int) -> list[Piece]:
        text, self._held = self._held[:end], self._held[end:]
        return self._say(text)

    def _say(self, text: str) -> list[Piece]:
        self._words += [text] if text else []
        return [TextDelta(text)] if text else []


def separate(message: Message, parts: AnswerParts, used_ids: Iterable[str]) -> Message:
    """Return an answer with its words, thoughts and calls in their places."""
    thoughts = [text for text in (message.reasoning, parts.thoughts.strip()) if text]
    reasoning = "\n\n".join(thoughts)
    written = parts.calls
    if not (message.tool_calls or written or parts.words.strip()):
        reasoning, written = parts.calls_in_thoughts(reasoning)
    if not parts.is_changed and not written:
        return message
    ids = unique_ids([""] * len(written), used_ids)
    calls = tuple(ToolCall(call_id, *call) for call_id, call in zip(ids, written, strict=True))
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
    """Return whether what follows is inside a block or a span of code."""
    fences = sum(row.lstrip().startswith(("```", "~~~")) for row in before.split("\n"))
    return bool(fences % 2) or bool(line.count("`") % 2)
