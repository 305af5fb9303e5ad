"""The replaceable parts of a turn, as the loop sees them.

The composition root (`app/build.py`) provides them; the loop imports nothing else. Each method says when
it is called, whether it may raise, and what is durable.
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

    `stop` is "end" (answered or tool calls) or "length" (the output limit cut it). `warnings` are lines that
    the person reads on every surface, `notices` those that a surface may leave out.
    """

    message: Message
    usage: Usage
    model: str
    stop: Literal["end", "length"] = "end"
    request_id: str = ""
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class AttemptLost(msgspec.Struct, frozen=True, tag="attempt_lost"):
    """A request was sent and no whole answer came: its usage, mostly estimated. Comes before the next try
    or before the error that ends the stream. Counted, never shown."""

    usage: Usage


class AnswerGrew(msgspec.Struct, frozen=True, tag="answer_grew"):
    """Characters of the answer that no delta shows have come: arguments of tool calls. Never shown. 0: the
    wait for another attempt is over, and its request is sent."""

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
        """Send the frozen prefix and `messages`, yield deltas, and one Reply as the last item.

        Retries with back-off (yielding Retry) happen inside, only before the first delta or after a
        StreamRestarted. Raises ProviderError. Cancellation closes the connection.
        Messages that are the same objects as last time at the same index are not encoded again.
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
    """How full the window is. `used_tokens` is the server's own count if `counted`, else an estimate.
    `threshold_tokens` 0 means that nothing is compacted. `stopped` says why automatic compaction is off."""

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
        """Return the list for the next request: valid for every provider (P3), append-only relative to the
        last one unless a compaction was recorded (P4). `overflow_limit_tokens` is set once, after the
        server refused the last view; it is 0 if the server did not name its limit. Never raises for bad
        messages."""
        ...

    async def without_refused(
        self, refusal: ProviderError, emit: Emit, *, may_shorten: bool = False
    ) -> Sequence[Message] | None:
        """Return the list without an item of the history that the server may have refused; None if there is
        nothing (more) to leave out. Called again if that list is refused, too. `may_shorten`: long texts
        count, as no compaction can make the list smaller."""
        ...

    async def answered(self, emit: Emit) -> None:
        """Note that the last list was answered. What was left out of it stays out: durable on return, and
        the person is notified."""
        ...

    def observe(self, usage: Usage) -> None:
        """Record the usage of the request that was just answered."""
        ...

    def sent_tokens(self) -> int:
        """Estimate the tokens of the last view, including everything before it in the request."""
        ...

    async def compact(self, focus: str, emit: Emit) -> Compacted:
        """Make the list smaller by hand, between turns, keeping what concerns `focus` (may be empty)."""
        ...

    async def status(self) -> ContextStatus:
        """Return how full the window is. Sends nothing."""
        ...

    async def aclose(self) -> None:
        """Leave the session and notify its engine, once. A second call does nothing."""
        ...


class Decision(msgspec.Struct, frozen=True):
    """The gate's verdict on a call. After a denial the model reads `reason` and people read `notice`.

    After a question, `digest` is the hash of the request that was shown, `changes` the file changes it
    showed, and `arguments` those that the person wrote in place of the model's. `only_reads`: it is a command
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
    """One call before the gate: the final arguments that will run (parsed), and where.

    `key` identifies the call in its session and is the same after a crash; models use call ids twice.
    `preview` None: its changes to files are not known before it runs. `asks`: why a person must be asked
    even if the policy would allow the call. `content` is what the tool's author said of it before the gate
    decided. `unasked`: a running call leads to this one, and what would need a person's decision is denied;
    with "rules", what only the mode would ask about is allowed.
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
        """Raise ToolDenied if the tool's author says something else of it than before the gate decided."""
        if self.tool.content is not None and self.tool.content() not in ("", self.content):
            raise ToolDenied(
                f"{self.tool.name} was changed by its author after this call was allowed, so nothing was run",
                hint="call it again: it is judged as what it is now",
            )


class ConfirmCase(msgspec.Struct, frozen=True):
    """A high-risk call for the confirmation service: `action` is its name there, `subject` the exact action
    as a person reads it, `reasons` why it is risky, `changes` its changes to files."""

    action: str
    subject: str
    reasons: tuple[str, ...]
    call: GateCall
    changes: tuple[TextChange, ...] = ()


class Confirmer(Protocol):
    """The connection to the humans behind a confirmation service. Any failure is a denial."""

    async def confirm(self, case: ConfirmCase, emit: Emit) -> Decision:
        """Have a human decide on exactly this call, waiting as long as the service allows. An approval is
        consumed on return. If the same call is submitted again after a crash, its existing request is
        found. Cancelling withdraws the request."""
        ...

    async def report(self, case: ConfirmCase, output: ToolOutput, emit: Emit) -> None:
        """Report the end of the allowed call to the service. Never raises: a failure becomes a Notice."""
        ...


class Gate(Protocol):
    """Checks every call of every session, child and job before it runs. Fails closed."""

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Allow or deny the call, asking a person if the policy requires it. Called in the model's order, one
        at a time. An exception is a denial."""
        ...

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Receive the stored result of a call that the service decided on, or whose outcome a crash left
        unknown. Does not raise."""
        ...


Answer = Literal["once", "session", "always", "no"]


class GrantScope(msgspec.Struct, frozen=True):
    """The patterns that a lasting approval would cover, and whether "always" may be chosen for them. `words`
    says it to a person if the patterns are not about calls of the tool. With `call`, the digest of a call,
    it covers only calls with this digest. `also` are other tools that it covers with the same patterns."""

    tool: str
    patterns: tuple[str, ...]
    always: bool = True
    words: str = ""
    call: str = ""
    also: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[tuple[str, str], ...]:
        """Each tool that it covers with each of the patterns."""
        return tuple((tool, pattern) for tool in (self.tool, *self.also) for pattern in self.patterns)

    @property
    def text(self) -> str:
        """The rules as they would appear in a list of allow rules."""
        return ", ".join(f"{tool}({pattern})" for tool, pattern in self.rules)


class ApprovalRequest(msgspec.Struct, frozen=True):
    """The question to a person: `subject` is the exact action, `reasons` why it is risky.

    `grant` is the first scope that "always" would cover, empty if it is not offered; `scopes` are all that
    a lasting approval may cover, the usual one first. `changes` are the changes to files, `arguments` the
    call's own, `folder` the folder it runs in, `opening` what the sandbox would be opened for, in words.
    `digest` ties an approval to all of that. `intent` is what the call does, as the end of "wants to", and
    `undo` whether and how its effects can be taken back.
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
    """A person's whole answer: for which of the request's scopes, in which words ("no, because ..."), and
    with which arguments to ask again in place of those that were shown."""

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
        """Ask about one action. Returns None if no person can answer. May take hours; may be cancelled."""
        ...

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the model's question. Returns None if no person can answer."""
        ...


class NobodyPresent:
    """The Person of a program without a user: no question is answered, and that is a denial."""

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Return None: no person decides."""
        return None

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Return None: no person answers."""
        return None
