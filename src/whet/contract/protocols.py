"""The replaceable parts of a turn, as the loop sees them.

`app/build.py` provides them, so that the loop imports no implementation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from whet.contract.changes import TextChange
from whet.contract.errors import ProviderError, ToolDenied
from whet.contract.events import Emit, ReasoningDelta, Retry, StreamRestarted, TextDelta, Verdict
from whet.contract.messages import Message, ToolCall, Usage
from whet.contract.tools import Tool, ToolOutput, ToolSpec


class ModelInfo(msgspec.Struct, frozen=True):
    """A model as a provider serves it. Prices are USD per million tokens, None if unknown."""

    provider: str
    model: str
    window_tokens: int
    max_output_tokens: int
    input_usd_per_mtok: float | None = None
    output_usd_per_mtok: float | None = None
    cache_read_usd_per_mtok: float | None = None
    cache_write_usd_per_mtok: float | None = None

    def usage(
        self, *, prompt: int, output: int, cache_read: int = 0, cache_write: int = 0, reasoning: int = 0
    ) -> Usage:
        """Return the Usage of one call. `prompt` counts all prompt tokens, including the cached ones."""
        plain = max(prompt - cache_read - cache_write, 0)
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=output,
            total_tokens=prompt + output,
            input_tokens=plain,
            output_tokens=output,
            cache_read_tokens=cache_read,
            cache_write_tokens=cache_write,
            reasoning_tokens=reasoning,
            cost_usd=self.cost_usd(plain, cache_read, cache_write, output),
        )

    def cost_usd(self, plain: int, cache_read: int, cache_write: int, output: int) -> float | None:
        """Return the price of that many tokens, or None if a price that is needed is unknown."""
        counts = (plain, cache_read, cache_write, output)
        prices = (
            self.input_usd_per_mtok,
            self.cache_read_usd_per_mtok,
            self.cache_write_usd_per_mtok,
            self.output_usd_per_mtok,
        )
        total = 0.0
        for tokens, price in zip(counts, prices, strict=True):
            if not tokens:
                continue
            if price is None:
                return None
            total += tokens * price / 1_000_000
        # No counts at all means that the server reported none, not that the call was free.
        return total if any(counts) or self.input_usd_per_mtok == 0 else None


class ModelReply(msgspec.Struct, frozen=True, tag="reply"):
    """The last item of a stream: the whole assistant message, its usage, and the model that really answered.

    `stop` is "end" (answered or tool calls) or "length" (the output limit cut it). Every interface shows
    `warnings` to the person; it may leave out `notices`.
    """

    message: Message
    usage: Usage
    model: str
    stop: Literal["end", "length"] = "end"
    request_id: str = ""
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class AttemptLost(msgspec.Struct, frozen=True, tag="attempt_lost"):
    """The usage of a request that got no complete answer, mostly estimated. Comes before the next attempt or
    before the error that ends the stream. Counted, never shown."""

    usage: Usage


class AnswerGrew(msgspec.Struct, frozen=True, tag="answer_grew"):
    """Characters of the answer that no delta contains were received: arguments of tool calls. Never shown.
    `chars` is 0 if a wait is over and the request is sent again."""

    chars: int


StreamItem = TextDelta | ReasoningDelta | Retry | StreamRestarted | AttemptLost | AnswerGrew | ModelReply


class ModelLink(Protocol):
    """One session's connection to its model: frozen system prompt and tools, cached wire bytes.

    Not shared between sessions; used by one task at a time.
    """

    @property
    def info(self) -> ModelInfo:
        """The model that answers now (the fallback's after it took over)."""
        ...

    def stream(self, messages: Sequence[Message]) -> AsyncIterator[StreamItem]:
        """Send the frozen prefix and `messages`, yield deltas, and one ModelReply as the last item.

        Retries with back-off and yields a Retry for each, but only before the first delta or after a
        StreamRestarted. Raises ProviderError. Cancellation closes the connection. A message that is the same
        object as last time at the same index is not encoded again.
        """
        ...


FailureJudge = Callable[[ModelInfo, ProviderError, Sequence[Message]], Awaitable[ProviderError]]
"""Classifies a failed request: returns the error itself or a replacement."""


class Provider(Protocol):
    """A model server with its keys and connection pool; lives as long as the process."""

    @property
    def info(self) -> ModelInfo:
        """The configured model."""
        ...

    def open(self, system: str, tools: Sequence[ToolSpec], session_id: str) -> ModelLink:
        """Freeze a session's prefix and return its link. No I/O."""
        ...

    async def list_models(self) -> list[str]:
        """Ask the server which models it serves. Raises ProviderError."""
        ...

    async def aclose(self) -> None:
        """Close the connection pool."""
        ...


Compacted = Literal["compacted", "unchanged", "nothing"]
"""The result of a compaction by hand. "nothing": there was nothing to compact, and no model was called."""


class ContextStatus(msgspec.Struct, frozen=True):
    """How full the model's window is. `used_tokens` is the server's own count if `counted`, else an estimate.
    `threshold_tokens` 0 means that nothing is compacted. `stopped`: why automatic compaction is off."""

    engine: str
    source: str
    window_tokens: int
    threshold_tokens: int
    used_tokens: int
    counted: bool
    messages: int
    stopped: str = ""


class Context(Protocol):
    """The part of the transcript that the model sees. Called from the loop's task only."""

    async def view(
        self, transcript: Sequence[Message], emit: Emit, *, overflow_limit_tokens: int | None = None
    ) -> Sequence[Message]:
        """Return the messages for the next request. They are valid for every provider and begin with the last
        view, unless a compaction was recorded.

        `overflow_limit_tokens` is set once, after the server refused the last view as too long; it is 0 if
        the server did not name its limit. Never raises for bad messages.
        """
        ...

    async def without_refused(
        self, refusal: ProviderError, emit: Emit, *, may_shorten: bool = False
    ) -> Sequence[Message] | None:
        """Return the last view without an item that the server may have refused, or None if there is nothing
        more to leave out. Called again if that list is refused, too. `may_shorten`: long texts may also be
        left out, because no compaction can make the view smaller."""
        ...

    async def answered(self, emit: Emit) -> None:
        """Handle the answer to the last view. Items that `without_refused` left out stay out: this is durable
        on return, and the person is notified."""
        ...

    def observe(self, usage: Usage) -> None:
        """Record the usage of the request that was just answered."""
        ...

    def sent_tokens(self) -> int:
        """Estimate the tokens of the last request: the frozen prefix and the last view."""
        ...

    async def compact(self, focus: str, emit: Emit) -> Compacted:
        """Compact the view on the person's request, between turns. Text about `focus` (may be empty) is kept
        in preference."""
        ...

    async def status(self) -> ContextStatus:
        """Return how full the window is, without a request."""
        ...

    async def aclose(self) -> None:
        """Leave the session and notify its engine, once. A second call does nothing."""
        ...


class Decision(msgspec.Struct, frozen=True):
    """The gate's verdict on a call. After a denial the model reads `reason` and people read `notice`.

    If a person was asked, `digest` is the hash of the request that they saw, `changes` the file changes in
    it, and `arguments` those that they wrote in place of the model's. `only_reads`: the call is a command
    whose sandbox lets it change no file.
    """

    verdict: Verdict
    decided_by: Literal["rule", "person", "nobody", "service"]
    reason: str = ""
    notice: str = ""
    digest: str = ""
    changes: tuple[TextChange, ...] = ()
    arguments: dict[str, object] | None = None
    only_reads: bool = False


CallPreview = Callable[[dict[str, object]], Awaitable[tuple[TextChange, ...]]]
"""Checks a call's arguments and returns the file changes it would make. Raises ToolError if the call would
fail."""


class GateCall(msgspec.Struct, frozen=True):
    """A call that the gate decides on, with the parsed arguments that will run.

    - `key`: identifies the call in its session, also after a crash; models use call ids twice
    - `preview`: None if the call's changes to files are not known before it runs
    - `asks`: why a person must be asked even if the policy would allow the call
    - `content`: the tool's description by its author before the gate decided
    - `unasked`: set if a running call leads to this one; a call that would need a person's decision is then
      denied. With "rules", calls that only the mode would ask about are allowed
    """

    session_id: str
    call: ToolCall
    tool: Tool
    arguments: dict[str, object]
    workspace: str
    key: str = ""
    preview: CallPreview | None = None
    turn_id: str = ""
    asks: str = ""
    content: str = ""
    unasked: Literal["", "rules", "all"] = ""

    def refuse_changed_tool(self) -> None:
        """Raise ToolDenied if the tool's author changed its description since the gate was asked."""
        if self.tool.content is not None and self.tool.content() not in ("", self.content):
            raise ToolDenied(
                f"{self.tool.name} was changed by its author after this call was allowed, so nothing was run",
                hint="call it again: it is judged as what it is now",
            )


class ConfirmCase(msgspec.Struct, frozen=True):
    """A high-risk call for the confirmation service. `action` is the kind of action in the service's policy,
    `subject` the exact action as a person reads it, `reasons` why it is risky, `changes` its file changes."""

    action: str
    subject: str
    reasons: tuple[str, ...]
    call: GateCall
    changes: tuple[TextChange, ...] = ()


class Confirmer(Protocol):
    """The connection to the humans behind a confirmation service. Any failure is a denial."""

    async def confirm(self, case: ConfirmCase, emit: Emit) -> Decision:
        """Have a human decide on exactly this call, waiting as long as the service allows. An approval is
        consumed on return. If the same call is submitted again after a crash, its existing request is used.
        Cancelling withdraws the request."""
        ...

    async def report(self, case: ConfirmCase, output: ToolOutput, emit: Emit) -> None:
        """Report the result of an allowed call to the service. Never raises: a failure becomes a Notice."""
        ...


class Gate(Protocol):
    """Checks every call of every session, child and job before it runs. Fails closed."""

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Allow or deny the call, asking a person if the policy requires it. Called in the model's order, one
        at a time. An exception is a denial."""
        ...

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Report the stored result of a call that the service decided on, or whose outcome a crash left
        unknown. Never raises."""
        ...


Answer = Literal["once", "session", "always", "no"]


class GrantScope(msgspec.Struct, frozen=True):
    """The calls that a lasting approval would cover: those of `tool`, and of the tools in `also`, that match
    one of `patterns`.

    `always`: whether the person may choose "always". `words` describes the scope to a person if the patterns
    don't. `call`: if set, only calls with this digest are covered.
    """

    tool: str
    patterns: tuple[str, ...]
    always: bool = True
    words: str = ""
    call: str = ""
    also: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[tuple[str, str], ...]:
        """Every pair of a covered tool and a pattern."""
        return tuple((tool, pattern) for tool in (self.tool, *self.also) for pattern in self.patterns)

    @property
    def text(self) -> str:
        """The rules as they would appear in a list of allow rules."""
        return ", ".join(f"{tool}({pattern})" for tool, pattern in self.rules)


class ApprovalRequest(msgspec.Struct, frozen=True):
    """The question to a person.

    - `subject`: the exact action; `reasons`: why it is risky
    - `intent`: the call's effect, as the end of "wants to"; `undo`: whether and how it can be undone
    - `scopes`: the scopes that a lasting approval may have, the usual one first
    - `grant`: the text of the first scope that "always" may cover, empty if there is none
    - `changes`: the changes to files; `arguments`: the call's arguments; `folder`: where it runs
    - `opening`: the hosts or folders that the sandbox would be opened for, in words
    - `digest`: ties an approval to everything that was shown
    """

    session_id: str
    call_id: str
    tool: str
    subject: str
    reasons: tuple[str, ...]
    grant: str = ""
    changes: tuple[TextChange, ...] = ()
    scopes: tuple[GrantScope, ...] = ()
    arguments: dict[str, object] = {}
    folder: str = ""
    opening: str = ""
    digest: str = ""
    intent: str = ""
    undo: str = ""


class Reply(msgspec.Struct, frozen=True):
    """A person's whole answer. `scope` is the index of one of the request's scopes, `words` are the person's
    own ("no, because ..."), and `arguments`, if set, replace the shown ones, which asks again."""

    answer: Answer
    scope: int = 0
    words: str = ""
    arguments: dict[str, object] | None = None

    @property
    def short(self) -> Answer | Reply:
        """The bare answer if it has no scope, words or arguments."""
        return self if self.scope or self.words or self.arguments is not None else self.answer


class Person(Protocol):
    """The human at an interface. An interface without one returns None, which is a denial."""

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask about one action. Returns None if no person can answer. May take hours and may be cancelled."""
        ...

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the model's question. Returns None if no person can answer."""
        ...


class NobodyPresent:
    """The Person of a program without a user: it answers no question, so calls that need one are denied."""

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Return None."""
        return None

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Return None."""
        return None
