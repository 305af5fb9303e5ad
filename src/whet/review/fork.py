"""A review's session: the exact bytes of the reviewed conversation, one more message, and very few
permissions.

The fork is a child session of kind `review` that stores only its own messages; inherited messages are read
from the parent's rows and never written. So the parent, its context engine, its plugins and its cache are
not touched, and a crash loses nothing: the same child is opened again. A different model, which could not
use the parent's cache, gets a digest of the conversation instead of its messages, and so does a review that
could not pay for them: then of the turns since the last look and the one before them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.agent.session import Session, TurnLimits
from whet.clock import Clock, iso
from whet.context.live_list import RepairedList
from whet.context.rows import list_tokens, text_tokens
from whet.contract.errors import NotFound, ProviderError
from whet.contract.events import Emit
from whet.contract.messages import Message, Usage
from whet.contract.origin import Origin
from whet.contract.protocols import (
    Compacted,
    ContextStatus,
    Decision,
    Gate,
    GateCall,
    ModelInfo,
    ModelLink,
    NobodyPresent,
    Provider,
)
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec, tags_of
from whet.review import wording
from whet.review.budget import WRITES, Budget, MeteredLink
from whet.review.digest import digest, is_complete
from whet.review.jobs import ReviewJob, read_review_job
from whet.review.spending import EXCERPT_HEAD_TOKENS, EXPECTED_CALLS, OTHERS_TOKENS
from whet.store import compactions, reviews, sessions, turns
from whet.store.database import StateDatabase
from whet.store.jobs import Job
from whet.store.sessions import NewSession, SessionRow
from whet.store.transcript import Transcript
from whet.tools.registry import read_specs

if TYPE_CHECKING:
    from whet.context.repair import HistoryRepair

DIGEST = "digest"
"""Stored instead of a view if the review reads a digest."""


class ForkParts(msgspec.Struct, frozen=True):
    """The parts that forks are built from.

    `tools`: every tool of the program by name. `policy`: a gate that asks no one. `bind` marks a session's
    writes as a review's; its last argument is the person whose memory they go to. `reopen` adds the
    examples that a session was started with to its link.
    """

    database: StateDatabase
    clock: Clock
    tools: Mapping[str, Tool]
    policy: Gate
    bind: Callable[[str, Origin, str], None]
    reopen: Callable[[str, ModelLink], Awaitable[ModelLink]]
    budget: Budget
    limits: TurnLimits
    digest_tokens: int


class Fork(msgspec.Struct, frozen=True):
    """An open review: its session, the message that begins it, its metered link to the model, the origin of
    its writes, the person whose memory it writes to (empty: the owner's), the last turn that it sees, and the
    ids of the calls whose results it sees."""

    session: Session
    opening: Message
    link: MeteredLink
    origin: Origin
    profile: str = ""
    last_turn: int = 0
    read_ids: frozenset[str] = frozenset()


async def open_fork(
    parts: ForkParts, job: Job, review_job: ReviewJob, provider: Provider, *, shares_prefix: bool
) -> Fork:
    """Open the review's session; it is created on the first try and found again afterwards.

    Raises NotFound if the reviewed session no longer exists, ConfigError without a model.
    """
    child_id = await parts.database.append(
        lambda db: _open_child(db, job, review_job, provider.info, (shares_prefix, parts))
    )

    most_tokens = review_job.excerpt_tokens or parts.digest_tokens
    read = await parts.database.read(lambda db: _read_reviewed(db, job, review_job, most_tokens))
    parent, inherited, is_digest, others = read.parent, read.inherited, read.is_digest, read.others
    prefix = await parts.database.read(lambda db: sessions.read_prefix(db, child_id))
    specs = read_specs(prefix[1].encode())
    is_brief = is_digest or review_job.is_brief
    allowed = _allowed_names(specs, parts)
    ends_when_taken = is_brief or not review_job.is_by_hand
    read_ids = {message.tool_call_id for message in inherited} | read.other_ids
    opening = wording.review_message(
        review_job.kinds,
        review_job.focus,
        allowed,
        others,
        is_brief=ends_when_taken,
        has_calls=bool(others) or any(message.tool_calls for message in inherited),
    )
    expected = review_job.context_tokens
    if is_digest:
        text = _write_digest(inherited, most_tokens - text_tokens(others))
        opening = f"{wording.TITLE}\n\n{text}\n\n{opening}"
        read_ids = read_ids if is_complete(text, inherited) else read.other_ids
        inherited, expected = [], EXCERPT_HEAD_TOKENS + text_tokens(text + others)
    # A vendor may keep separate caches per session name, so the parent's name is sent.
    link = provider.open(prefix[0], specs, child_id if is_digest else parent.id)
    if not is_digest:
        link = await parts.reopen(parent.id, link)
    metered = MeteredLink(
        link,
        parts.budget,
        expected,
        by_hand=review_job.is_by_hand,
        is_cached=review_job.is_cached and not is_digest,
        allowance=review_job.allowance,
    )
    metered.ends_when_taken = ends_when_taken
    origin = _origin(job, parent, review_job)
    parts.bind(child_id, origin, read.profile)
    log = await Transcript.open(parts.database, child_id, parts.clock)
    if is_brief:
        limits = msgspec.structs.replace(parts.limits, steps=1 + EXPECTED_CALLS)
        parts = msgspec.structs.replace(parts, limits=limits)
    session = _make_session(parts, log, metered, inherited, (specs, parent))
    origin = msgspec.structs.replace(origin, session_id=child_id)
    message = Message(role="user", content=opening)
    return Fork(
        session, message, metered, origin, read.profile, read.last_turn, frozenset(filter(None, read_ids))
    )


class _Reviewed(msgspec.Struct, frozen=True):
    """What a review reads: its session with its list, the other one-shots with their calls' ids, and the last
    turn."""

    parent: SessionRow
    inherited: list[Message]
    is_digest: bool
    others: str
    other_ids: frozenset[str]
    profile: str
    last_turn: int


def _read_reviewed(
    connection: apsw.Connection, job: Job, review_job: ReviewJob, most_tokens: int
) -> _Reviewed:
    parent = sessions.get(connection, review_job.session_id)
    view = reviews.read_view(connection, job.id)[1]
    key = sessions.key_of(connection, parent.id)
    last_turn = _last_turn(connection, key, review_job)
    is_digest = view == DIGEST
    if is_digest:
        first_turn = _last_look(connection, key, review_job) if review_job.excerpt_tokens else 0
        view = compactions.view_after(connection, key, last_turn, first_turn)
    inherited = compactions.read_view(connection, key, view)
    others, other_ids = _write_others(connection, review_job.others, most_tokens)
    profile = sessions.profile_of(connection, parent.id)
    return _Reviewed(parent, inherited, is_digest, others, other_ids, profile, last_turn)


def _open_child(
    connection: apsw.Connection,
    job: Job,
    review_job: ReviewJob,
    info: ModelInfo,
    options: tuple[bool, ForkParts],
) -> str:
    """Return the id of the review's own session; create it with its first list if it does not exist yet."""
    shares_prefix, parts = options
    child_id, view = reviews.read_view(connection, job.id)
    if child_id:
        return child_id
    parent = sessions.get(connection, review_job.session_id)
    prompt, tools_json = sessions.read_prefix(connection, parent.id)
    if view == DIGEST or not shares_prefix:
        offered = [tool.spec for tool in usable_tools(parts.tools.values())]
        prompt, tools_json = wording.read_prompt("digest.md"), msgspec.json.encode(offered).decode()
        view = DIGEST
    else:
        key = sessions.key_of(connection, parent.id)
        view = compactions.view_after(connection, key, _last_turn(connection, key, review_job))
    new = NewSession(
        id=parts.clock.new_id(),
        parent_session_id=parent.id,
        kind="review",
        source=parent.source,
        provider=info.provider,
        model=info.model,
        workspace=parent.workspace,
        title=f"review of {parent.title or parent.id}",
        system_prompt=prompt,
        tools_json=tools_json,
    )
    return reviews.begin_review(connection, job.id, new, view, iso(parts.clock.now())).id


def _last_turn(connection: apsw.Connection, key: int, review_job: ReviewJob) -> int:
    """Return the last turn to review: messages after the job was queued may revoke earlier ones."""
    return max(review_job.turn, turns.find_last_turn(connection, key))


def _last_look(connection: apsw.Connection, key: int, review_job: ReviewJob) -> int:
    """Return the last turn that a review has read of this session, or 0."""
    turns = [read_review_job(payload).turn for payload in reviews.list_done_payloads(connection, key)]
    return max((turn for turn in turns if turn < review_job.turn), default=0)


def _write_digest(messages: Sequence[Message], most_tokens: int) -> str:
    """Write a digest of about so many tokens. In many scripts a token has fewer characters than in Latin."""
    text = digest(messages, most_tokens)
    tokens = text_tokens(text)
    return text if tokens <= most_tokens else digest(messages, most_tokens * most_tokens // tokens)


def _write_others(
    connection: apsw.Connection, ids: Sequence[str], most_tokens: int
) -> tuple[str, frozenset[str]]:
    """Write the other one-shots that are reviewed with this one, oldest first, without those that are private
    or deleted by now; all together in half of `most_tokens`. Returns the ids of their calls, too."""
    texts: list[str] = []
    read_ids: set[str] = set()
    for id_ in reversed(ids):
        try:
            session = sessions.get(connection, id_)
        except NotFound:
            continue
        if not session.private:
            key = sessions.key_of(connection, id_)
            view = compactions.view_after(connection, key, turns.find_last_turn(connection, key))
            messages = [*map(_drop_remote_result, compactions.read_view(connection, key, view))]
            texts.append(_write_digest(messages, min(OTHERS_TOKENS, most_tokens // 2) // len(ids)))
            if is_complete(texts[-1], messages):
                read_ids.update(message.tool_call_id for message in messages if message.role == "tool")
    return wording.write_others(texts), frozenset(read_ids)


def _drop_remote_result(message: Message) -> Message:
    """Drop results that came from outside this machine: no lesson may rest on them, and they would reach
    another conversation."""
    if message.role != "tool" or "local" in tags_of(message.tool_name):
        return message
    return msgspec.structs.replace(message, content="[left out: it came from elsewhere]")


def _origin(job: Job, parent: SessionRow, review_job: ReviewJob) -> Origin:
    return Origin(
        "review",
        parent_session_id=parent.id,
        execution_context="background_review",
        platform=parent.source,
        task_id=job.id,
        others=" ".join(review_job.others),
    )


def _make_session(
    parts: ForkParts,
    log: Transcript,
    link: MeteredLink,
    inherited: Sequence[Message],
    reviewed: tuple[Sequence[ToolSpec], SessionRow],
) -> Session:
    specs, parent = reviewed
    allowed = _allowed_names(specs, parts)
    return Session(
        log=log,
        link=link,
        context=Inherited(inherited, lambda: link),
        tools={
            spec.name: parts.tools[spec.name] if spec.name in allowed else _denied_tool(spec)
            for spec in specs
        },
        gate=ReviewGate(parts.policy, allowed),
        person=NobodyPresent(),
        limits=parts.limits,
        clock=parts.clock,
        workspace=Path(parent.workspace),
    )


def _allowed_names(specs: Sequence[ToolSpec], parts: ForkParts) -> tuple[str, ...]:
    offered = {spec.name for spec in specs}
    return tuple(tool.name for tool in usable_tools(parts.tools.values()) if tool.name in offered)


def usable_tools(tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that a review may call, those that it learns with first."""
    selected = [tool for tool in tools if tool.tags & {"probe", *WRITES}]
    return sorted(selected, key=lambda tool: not tool.tags & WRITES)


def _denied_tool(spec: ToolSpec) -> Tool:
    """Return a placeholder for a tool that a review may not use: its name is known, so that the gate can say
    why it is denied."""

    async def run(ctx: ToolContext, arguments: dict[str, object]) -> ToolOutput:
        raise NotFound(f"{spec.name} is not part of a review")

    return Tool(spec, toolset="", effects=frozenset(), run=run)


class ReviewGate:
    """Allows memory and skill tools, decides probes by the policy for programs without a person, and denies
    everything else."""

    def __init__(self, policy: Gate, allowed: Sequence[str]) -> None:
        self._policy = policy
        self._allowed = allowed

    async def decide(self, call: GateCall, emit: Emit) -> Decision:
        """Decide without asking a person; a denial names the allowed tools."""
        name = call.tool.name
        if call.tool.tags & WRITES and name in self._allowed:
            return Decision("allow", "rule")
        if name in self._allowed:
            return await self._policy.decide(call, emit)
        return Decision(
            "deny",
            "rule",
            f"{name} is denied in a review, so nothing was run. Allowed are: {', '.join(self._allowed)}.",
        )

    async def report(self, call: GateCall, output: ToolOutput, emit: Emit) -> None:
        """Report nothing: a confirmation service never decides on a review's calls."""


class Inherited:
    """The context of a fork: the parent's list, unchanged, followed by the review's own messages.

    No engine is involved, and nothing is compacted: the worker handles a list that is too long.
    """

    def __init__(self, inherited: Sequence[Message], link: Callable[[], ModelLink]) -> None:
        self._inherited = list(inherited)
        self._link = link
        self._wire = RepairedList()
        self._sent: Sequence[Message] = ()
        self._list: list[Message] = []
        self._replaced: dict[int, Message] = {}
        self._repair: HistoryRepair | None = None

    async def view(
        self, transcript: Sequence[Message], emit: Emit, *, overflow_limit_tokens: int | None = None
    ) -> Sequence[Message]:
        """Return the inherited list and the messages since, repaired like the parent's."""
        self._repair, self._list = None, [*self._inherited, *transcript]
        return self._show()

    async def without_refused(
        self, refusal: ProviderError, emit: Emit, *, may_shorten: bool = False
    ) -> Sequence[Message] | None:
        """Leave out an item that the server may have refused, as long as this review is in memory."""
        if self._repair is None:
            from whet.context.repair import HistoryRepair  # noqa: PLC0415 - most requests are not refused

            self._repair = HistoryRepair([self._replaced.get(id(message), message) for message in self._list])
        changed = self._repair.choose_replacements(refusal, emit, may_shorten=may_shorten)
        return self._show(changed) if changed else None

    async def answered(self, emit: Emit) -> None:
        """Keep out what was left out of the list that was answered."""
        if self._repair is not None:
            changed = self._repair.build_replacements()
            for message in self._list:
                if (left := changed.get(id(self._replaced.get(id(message), message)))) is not None:
                    self._replaced[id(message)] = left
            self._repair = None

    def _show(self, changed: Mapping[int, Message] | None = None) -> Sequence[Message]:
        shown = [self._replaced.get(id(message), message) for message in self._list]
        self._sent = self._wire.update(
            [changed.get(id(message), message) for message in shown] if changed else shown
        )
        return self._sent

    def observe(self, usage: Usage) -> None:
        """Do nothing."""

    def sent_tokens(self) -> int:
        """Estimate the list's tokens."""
        return list_tokens(self._sent)

    async def compact(self, focus: str, emit: Emit) -> Compacted:
        """Compact nothing."""
        return "nothing"

    async def status(self) -> ContextStatus:
        """Return the status of the list."""
        window = self._link().info.window_tokens
        return ContextStatus("none", "review", window, 0, 0, counted=False, messages=len(self._inherited))

    async def aclose(self) -> None:
        """Do nothing."""
