"""The events of a turn, as one closed union that every interface consumes.

Events are shown, never stored: a change is in the store before its event is emitted. Encoded events have a
`type`, so that readers of `--stream-json` can tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from whet.contract.changes import FileEdit
from whet.contract.messages import Usage
from whet.contract.receipts import TurnReceipt

EndReason = Literal["answered", "budget", "cancelled", "refused", "failed", "crashed"]
Verdict = Literal["allow", "deny"]


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """A piece of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta"):
    """A piece of the model's visible reasoning."""

    text: str


class StepFinished(msgspec.Struct, frozen=True, tag="step_finished"):
    """A model call was stored. `step` is its number in the turn. No more text of it follows."""

    step: int
    usage: Usage


class ToolStarted(msgspec.Struct, frozen=True, tag="tool_started"):
    """The start of a call was stored, and its tool is running. `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


class ToolProgress(msgspec.Struct, frozen=True, tag="tool_output"):
    """Live output of a running tool."""

    call_id: str
    text: str


class ToolFinished(msgspec.Struct, frozen=True, tag="tool_finished"):
    """The result of a call was stored. `error_kind` is empty on success.

    `preview` is the first 400 characters of the result, or the last 400 of a failed command; for a denial,
    the text for the person. `arguments` is set if the call never started (denied, unknown). `edits` are
    the changes that it made.
    """

    call_id: str
    name: str
    duration_s: float
    error_kind: str = ""
    exit_code: int | None = None
    preview: str = ""
    arguments: str = ""
    edits: tuple[FileEdit, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return not self.error_kind


class ApprovalAsked(msgspec.Struct, frozen=True, tag="approval_asked"):
    """A person is asked about a call. `reasons`: why it is risky; `edits`: the changes it would make."""

    call_id: str
    tool: str
    subject: str
    reasons: tuple[str, ...]
    edits: tuple[FileEdit, ...] = ()


class ApprovalDecided(msgspec.Struct, frozen=True, tag="approval_decided"):
    """The gate decided on a call. `decided_by` is rule, person, nobody (no person could be asked) or
    service."""

    call_id: str
    verdict: Verdict
    decided_by: str
    reason: str = ""


class ConfirmationAsked(msgspec.Struct, frozen=True, tag="confirmation_asked"):
    """A call waits for a human at the confirmation service. `page_url` is the page to decide on (may be
    empty) and `expires_in_s` the time left; after that, no answer is a denial."""

    call_id: str
    action: str
    subject: str
    request_id: str
    page_url: str
    expires_in_s: float

    @property
    def text(self) -> str:
        """The action that waits and the page to decide on it, in one line."""
        return f"{self.action} waits for a human's decision at {self.page_url or 'the confirmation service'}"


class Compaction(msgspec.Struct, frozen=True, tag="compaction"):
    """The context engine shortened the list of messages that the model sees. The transcript records it."""

    engine: str
    messages_before: int
    messages_after: int
    tokens_before: int
    tokens_after: int


class Retry(msgspec.Struct, frozen=True, tag="retry"):
    """A model call failed and is tried again after `wait_s`, or sooner if the machine wakes up or its network
    changes. Comes before the first delta or after a StreamRestarted.

    `left_s`: how many more seconds Whet waits for the end of an outage, or 0 if only attempts are counted.
    `hint`: what the person can do meanwhile. `status`: the HTTP status of the failure, 0 if the server did
    not answer or named a time to wait.
    """

    attempt: int
    wait_s: float
    reason: str
    left_s: float = 0.0
    hint: str = ""
    status: int = 0


class StreamRestarted(msgspec.Struct, frozen=True, tag="stream_restarted"):
    """A stream broke after text was shown. The text shown for this step is void and will be sent again."""

    reason: str


class Steered(msgspec.Struct, frozen=True, tag="steered"):
    """Text typed during the turn was stored and is in the next request."""

    text: str


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """One line for the person, for example about a fallback, a disabled plugin or a switched key.
    `must_show`: interfaces that show only the answer show it, too."""

    text: str
    must_show: bool = False


class ReviewQueued(msgspec.Struct, frozen=True, tag="review_queued"):
    """A review job was stored with the turn's end."""

    job_id: str
    kinds: tuple[str, ...]


class ReviewFinished(msgspec.Struct, frozen=True, tag="review_finished"):
    """A review of `session_id` ended or was postponed, and that was stored. Comes outside of a turn.

    `state`: saved (see `summary`), nothing, failed (given up; `note` says why) or waiting (tried again at
    `until`, an ISO time; `note` says why). `review_session_id` is the review's own transcript.
    """

    job_id: str
    session_id: str
    review_session_id: str
    state: Literal["saved", "nothing", "failed", "waiting"]
    summary: str = ""
    note: str = ""
    until: str = ""
    by_hand: bool = False
    ledger_ids: tuple[int, ...] = ()


class TurnEnd(msgspec.Struct, frozen=True, tag="turn_end"):
    """The turn's end was stored. `text` is the final answer, `error` one line if the turn failed. `receipt`
    sums up the effects of the turn's calls, None if they had none. `is_overflow`: the conversation is too
    long for the model."""

    session_id: str
    turn_id: str
    reason: EndReason
    text: str
    steps: int
    usage: Usage
    duration_s: float
    error: str = ""
    hint: str = ""
    receipt: TurnReceipt | None = None
    is_overflow: bool = False


Event = (
    TextDelta
    | ReasoningDelta
    | StepFinished
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalAsked
    | ApprovalDecided
    | ConfirmationAsked
    | Compaction
    | Retry
    | StreamRestarted
    | Steered
    | Notice
    | ReviewQueued
    | ReviewFinished
    | TurnEnd
)
Emit = Callable[[Event], None]


def show_nothing(event: Event) -> None:
    """Ignore an event, for callers that show none."""
