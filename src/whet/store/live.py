"""Keep an open session's state in memory and commit its changes.

The state contains the live list: the messages that the model sees, after compactions and undone turns. It is
updated after each commit. When the waiter of a write is cancelled, the write goes on. One process at a time
holds a session's turn (`claims.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import msgspec

from whet.clock import Clock
from whet.contract.errors import ClaimRefused, NotFound, StoreBusy, WhetError
from whet.contract.messages import Message, ToolCall
from whet.contract.texts import shared_decoder
from whet.sqlite.lane import Rows, RowStatement, ScopedWrite
from whet.store import claims, rows, turns
from whet.store.database import CallStart, StateDatabase
from whet.store.jobs import TransactionWork, queue_nothing
from whet.store.sessions import SessionRow

if TYPE_CHECKING:
    from whet.store.facts import ShellFolder

T = TypeVar("T")
LiveList = list[int | Message]
"""A live list as it is stored in JSON. A number refers to the stored message with that number."""
list_decoder: msgspec.json.Decoder[LiveList] = shared_decoder(LiveList)


class StaleTranscript(Exception):
    """The stored session has changed since it was read."""


class OpenStep(msgspec.Struct):
    """The last answer that called tools, with the results that have come. `seq` is the number of the answer's
    message; the result of call i has the number seq + 1 + i. `base` is the index after the answer in the live
    list. `started` and `results` are by i."""

    seq: int
    number: int
    base: int
    calls: tuple[ToolCall, ...]
    started: dict[int, str] = msgspec.field(default_factory=dict[int, str])
    results: dict[int, Message] = msgspec.field(default_factory=dict[int, Message])


class LiveState(msgspec.Struct):
    """The state that an open session holds in memory. `messages` is the live list: all messages, or the list
    of the last compaction and all messages after it. A message stays the same object while the session is
    open. `seqs[i]` is the number of `messages[i]`, 0 for a message that only a compaction created. `epoch`
    counts how often the list was rewritten. `shell` is the last known folder of the session's commands;
    `is_shell_current` tells that no turn has changed it since. `accepted` are the messages that wait for a
    turn. `rewound_turns` are the turns before which files were rewound without a report to the model."""

    session: SessionRow
    key: int
    epoch: int
    messages: list[Message]
    seqs: list[int]
    next_seq: int
    last_turn: int
    step: OpenStep | None
    open_turn: turns.OpenTurn | None
    shell: ShellFolder | None = None
    accepted: Sequence[turns.AcceptedMessage] = ()
    rewound_turns: Sequence[int] = ()
    is_shell_current: bool = False

    @property
    def turn_number(self) -> int:
        """The number of the turn that is open here, or 0 between turns."""
        return self.open_turn.number if self.open_turn is not None else 0

    @property
    def version(self) -> tuple[int, int, int]:
        """Epoch, last turn and next number. If the stored ones differ, another process changed the
        session."""
        return self.epoch, self.last_turn, self.next_seq

    def resume_error(self) -> WhetError:
        """Return the error of a resume for which `Transcript.claim_unfinished_turn` found no turn."""
        if self.open_turn:
            return StoreBusy("another process works on this turn", hint="wait for its end")
        return NotFound("there is no unfinished turn to resume", hint="say what to do next")

    def last_user_text(self) -> str:
        """Return the text of the person's last message, or an empty string if there is none yet."""
        for message in reversed(self.messages):
            if message.role == "user":
                return message.text
        return ""

    def add(self, seq: int, message: Message) -> None:
        """Append a stored message to the list."""
        self.messages.append(message)
        self.seqs.append(seq)
        self.next_seq = seq + 1

    def result_of(self, call_id: str) -> Message | None:
        """Return the last stored result of a call, also one of the step that still runs, or None."""
        running = self.step.results.values() if self.step is not None else ()
        for message in chain(running, reversed(self.messages)):
            if message.tool_call_id == call_id:
                return message
        return None

    def fold_results(self) -> None:
        """Put the last step's results into the live list, in the order of their calls."""
        step = self.step
        if step is None:
            return
        order = sorted(step.results)
        self.messages[step.base :] = [step.results[index] for index in order]
        self.seqs[step.base :] = [step.seq + 1 + index for index in order]

    def messages_by_seq(self) -> dict[int, Message]:
        """Return the stored messages that are in memory, by number."""
        by_seq = {seq: message for seq, message in zip(self.seqs, self.messages, strict=True) if seq}
        if self.step is not None:
            by_seq.update({self.step.seq + 1 + i: message for i, message in self.step.results.items()})
        return by_seq

    def update_from(self, fresh: LiveState) -> None:
        """Take over a fresh state of the session. Messages that only the last compaction created have no
        number. They stay the same objects while that compaction is the last one."""
        if fresh.epoch == self.epoch:
            for index, seq in enumerate(fresh.seqs[: len(self.seqs)]):
                if not seq and not self.seqs[index]:
                    fresh.messages[index] = self.messages[index]
        self.messages[:] = fresh.messages
        fresh.messages = self.messages
        for name in self.__struct_fields__:
            setattr(self, name, getattr(fresh, name))


class SessionWriter:
    """Commits one open session's changes while this process has the claim, and keeps `live` up to date."""

    def __init__(self, db: StateDatabase, clock: Clock, live: LiveState) -> None:
        self.db = db
        self.clock = clock
        self._live = live
        self.coming_turn = ""
        self._holder = claims.Holder(clock.new_id())
        self._in_flight = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._renew_after_s = 0.0

    def next_turn_id(self) -> str:
        """Return the id that the next turn will have."""
        self.coming_turn: str = self.coming_turn or self.clock.new_id()
        return self.coming_turn

    def commit(
        self, work: Callable[[apsw.Connection], T] | Rows, apply: Callable[[T], object]
    ) -> Coroutine[Any, Any, T]:
        """Commit `work`, then `apply` its result to memory, even if the waiter is cancelled."""

        def after(result: T, error: BaseException | None) -> None:
            self._in_flight -= 1
            if error is None:
                apply(result)
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

        self._in_flight += 1
        scoped_work = ScopedWrite(self._live.session.conversation_id, work) if callable(work) else work
        return self.db.append(scoped_work, after, self._live.session.conversation_id)

    async def drain(self) -> None:
        """Wait for writes whose waiters were cancelled."""
        while self._in_flight:
            self._waiting.append(waiter := asyncio.get_running_loop().create_future())
            try:
                await waiter
            finally:
                self._waiting.remove(waiter)

    async def refresh(self) -> None:
        """After the pending writes, read other processes' changes, accepted messages and unreported
        rewinds."""
        await self.drain()
        live = self._live

        def look(connection: apsw.Connection) -> tuple[bool, Sequence[int]]:
            select = turns.select_with_version(connection, live.session.id)
            read_accepted = turns.select_accepted(connection, live.session.id)
            read_rewound = _select_history(connection, live) if live.messages else list[int]
            session, _, stored_version = select()
            is_stale = bool(live.open_turn or live.step) or turns.is_newer(stored_version, live.version)
            live.session = live.session if is_stale else session
            live.accepted = read_accepted()
            return is_stale, read_rewound()

        is_stale, rewound_turns = await self.db.look(look)
        if is_stale:
            await self.reload()
        live.rewound_turns = rewound_turns

    async def reload(self) -> None:
        """Read the session again, keeping the objects that are in memory."""
        session_id, in_memory = self._live.session.id, self._live.messages_by_seq()
        self._live.update_from(await self.db.read(lambda connection: load(connection, session_id, in_memory)))

    def refuse_if_stale(self, connection: apsw.Connection) -> None:
        """Raise StaleTranscript if the stored session has changed."""
        if turns.select_is_newer(connection, self._live.key, self._live.version)():
            raise StaleTranscript

    def require_no_change(self, connection: apsw.Connection) -> None:
        """Raise StoreBusy if another process holds the session or has changed it."""
        self.refuse_if_held(connection, self._holder)
        try:
            self.refuse_if_stale(connection)
        except StaleTranscript:
            raise StoreBusy(
                "another process has changed this session", hint="open it again to see what it did"
            ) from None

    def refuse_if_held(self, connection: apsw.Connection, holder: claims.Holder | None = None) -> None:
        """Raise StoreBusy while a turn of another holder than `holder` runs, in this process too."""
        live = self._live
        claims.refuse_if_held(connection, live.key, live.session.id, holder, self.clock.now())

    async def commit_claimed(
        self, work: Callable[[apsw.Connection], None], apply: Callable[[None], object]
    ) -> None:
        """Claim the session's turn and commit `work` in one transaction. Raises StoreBusy if another holder
        has the session, and StaleTranscript if the session has changed."""

        def work_claimed(
            connection: apsw.Connection, claim: Callable[[apsw.Connection], Callable[[], int] | None]
        ) -> Callable[[], int] | None:
            self.db.keep_claims()
            read_fence = claim(connection)
            work(connection)
            return read_fence

        def apply_claimed(read_fence: Callable[[], int] | None) -> None:
            if read_fence is not None:
                self._holder.fence = read_fence()
            apply(None)

        if self.db.is_team:
            with suppress(ClaimRefused):  # the claim below says why
                await self.commit(lambda c: work_claimed(c, self._claim_unchanged), apply_claimed)
                if not self._holder.fence:  # the commit's answer was lost
                    await self.commit(lambda c: self._begin_claim(c)(), lambda _: None)
                return
        await self.commit(lambda c: work_claimed(c, self._claim), apply_claimed)

    def _claim_unchanged(self, connection: apsw.Connection) -> Callable[[], int]:
        live = self._live
        return claims.claim_unchanged(connection, live.key, self._holder, live.version)

    def _claim(self, connection: apsw.Connection) -> None:
        complete = self._begin_claim(connection)
        is_newer = turns.select_is_newer(connection, self._live.key, self._live.version)
        if not complete() or is_newer():
            self.refuse_if_stale(connection)

    def _begin_claim(self, connection: apsw.Connection) -> Callable[[], bool]:
        live = self._live
        self.db.keep_claims()
        return claims.begin_claim(connection, live.key, live.session.id, self._holder, self.clock.now())

    async def take_over(self) -> bool:
        """Claim the session if its turn is open and has no living holder. Return whether it was claimed. The
        session is read after the claim in the same transaction. So everything that the last holder stored is
        seen, also a call that it started, and its later writes are refused."""
        live, known = self._live, self._live.messages_by_seq()

        def work(connection: apsw.Connection) -> LiveState | None:
            try:
                self._begin_claim(connection)()
            except StoreBusy:
                return None
            fresh = load(connection, live.session.id, known)
            if fresh.open_turn is None:
                self.release(connection)
            return fresh

        def apply(fresh: LiveState | None) -> None:
            if fresh is not None:
                live.update_from(fresh)

        fresh = await self.commit(work, apply)
        return fresh is not None and fresh.open_turn is not None

    def renew(self, connection: apsw.Connection) -> None:
        """Renew the claim now and then, for processes that can't see whether this one lives. In a team, check
        each time that the claim was not lost. Raises StoreBusy if it was."""
        if self.db.is_team or self.clock.monotonic_s() > self._renew_after_s:
            claims.renew(connection, self._live.key, self._holder, self.clock.now())
            self._renew_after_s = self.clock.monotonic_s() + claims.LEASE_S / 4

    def release(self, connection: apsw.Connection) -> None:
        """Release the session. Raises StoreBusy if the claim was lost meanwhile."""
        claims.release(connection, self._live.key, self._holder)

    def append(
        self,
        apply: Callable[[None], object],
        *added: tuple[RowStatement, tuple[Any, ...]],
        also: TransactionWork = queue_nothing,
    ) -> Coroutine[Any, Any, None]:
        """Commit rows, together with the work of `also`, while this process has the claim."""
        if also is queue_nothing and self.db.is_team:
            return self.commit((self.db.fence(self._live.key, self._holder), *added), apply)
        if also is queue_nothing and self.clock.monotonic_s() <= self._renew_after_s:
            return self.commit(added, apply)

        def work(connection: apsw.Connection) -> None:
            self.renew(connection)
            for statement, values in added:
                statement.write(connection, [values])
            also(connection)

        return self.commit(work, apply)

    def start_call(self, call: CallStart, apply: Callable[[None], object]) -> Coroutine[Any, Any, None]:
        """Commit that a call is about to run. Raises StoreBusy if another process holds the session or has
        started the call. Then it must not run."""
        row = self.db.call_start(self._live.key, self._holder, call)
        return self.commit((row,), apply) if self.db.is_team else self.append(apply, row)

    def close(self) -> None:
        """Close the session, so that others can take its claims."""
        claims.drop_holder(self._holder)
        self.db.release_session(self._live.key, self._holder)


def load(
    connection: apsw.Connection, session_id: str, in_memory: dict[int, Message] | None = None
) -> LiveState:
    """Read a session. Messages in `in_memory` (by number) are kept as the same objects. Raises NotFound."""
    read_session = turns.select_with_version(connection, session_id)
    read_hidden = turns.select_undone_parts(connection, session_id)
    compaction = connection.execute(_COMPACTION, (session_id,))
    last_turn = connection.execute(_LAST_TURN, (session_id,))
    records = connection.execute(_MESSAGES_SINCE, (session_id,))
    accepted = turns.select_accepted(connection, session_id)
    session, key, (epoch, newest, _) = read_session()
    hidden = read_hidden()
    messages, seqs, after = _read_compaction(
        connection, rows.fetch_only(compaction), key, hidden, in_memory or {}
    )
    unfinished = turns.sum_open_turn(connection, key, rows.fetch_only(last_turn))
    step: OpenStep | None = None
    next_seq = after + 1
    for id_, turn, role, content, extra in records:
        seq = id_ & (rows.SEQ_LIMIT - 1)
        message = (in_memory or {}).get(seq) or rows.unpack(role, content, extra)
        next_seq = max(next_seq, seq + 1 + len(message.tool_calls))
        if hidden.has(turn, seq):
            continue
        messages.append(message)
        seqs.append(seq)
        if role == rows.ASSISTANT:
            number = unfinished.steps if unfinished is not None else 0
            step = OpenStep(seq, number, len(messages), message.tool_calls) if message.tool_calls else None
        elif role == rows.USER:
            step = None
        elif step is not None:
            step.results[seq - step.seq - 1] = message
    if step is not None:
        _read_starts(connection, key, step)
    parts = (session, key, epoch, messages, seqs, next_seq, newest, step, unfinished, None)
    return LiveState(*parts, accepted())


def _select_history(connection: apsw.Connection, live: LiveState) -> Callable[[], list[int]]:
    """Query the turns of rewinds without a report, and return the function that reads them. In a team the
    next command's folder is queried with them, which saves a round trip later."""
    from whet.store import facts, rewinds  # noqa: PLC0415 - a session without messages needs neither

    read_rewound = rewinds.select_unreported_turns(connection, live.key)
    if not rows.is_team(connection):
        return read_rewound
    values = live.key, live.shell or facts.ShellFolder(), live.next_seq
    read_shell = facts.select_shell_folder(connection, *values)

    def read() -> list[int]:
        live.shell, live.is_shell_current = read_shell(), True
        return read_rewound()

    return read


# These queries use the session's id, so that a team sends them with the query of the session itself.
_KEY = "(SELECT key FROM sessions WHERE id = ?1)"
_COMPACTION = (
    f"SELECT live, after_seq FROM compactions WHERE session = {_KEY} AND undone = '' ORDER BY id DESC LIMIT 1"
)
_LAST_TURN = turns.LAST_TURN_OF.replace("?", _KEY)
_MESSAGES_SINCE = (
    f"SELECT id, turn, role, content, extra FROM messages WHERE id > ({_KEY} << {rows.SEQ_BITS})"
    f" + coalesce((SELECT after_seq FROM compactions WHERE session = {_KEY} AND undone = ''"
    f" ORDER BY id DESC LIMIT 1), 0) AND id < ({_KEY} + 1) << {rows.SEQ_BITS} ORDER BY id"
)


def _read_compaction(
    connection: apsw.Connection,
    row: tuple[Any, ...] | None,
    key: int,
    hidden: turns.UndoneParts,
    in_memory: dict[int, Message],
) -> tuple[list[Message], list[int], int]:
    """Return the messages of the last compaction, their numbers, and the last number it covers."""
    if row is None:
        return [], [], 0
    return *read_list(connection, key, row[0], hidden, in_memory), row[1]


def read_list(
    connection: apsw.Connection, key: int, text: str, hidden: turns.UndoneParts, in_memory: dict[int, Message]
) -> tuple[list[Message], list[int]]:
    """Return the messages of a stored live list, without undone ones, and their numbers."""
    messages: list[Message] = []
    seqs: list[int] = []
    for item in list_decoder.decode(text):
        if isinstance(item, Message):
            messages.append(item)
            seqs.append(0)
            continue
        stored = connection.execute(
            "SELECT turn, role, content, extra FROM messages WHERE id = ?", (rows.row_id(key, item),)
        ).fetchone()
        if stored is not None and not hidden.has(stored[0], item):
            messages.append(in_memory.get(item) or rows.unpack(*stored[1:]))
            seqs.append(item)
    return messages, seqs


def _read_starts(connection: apsw.Connection, key: int, step: OpenStep) -> None:
    cursor = connection.execute(
        "SELECT position FROM tool_calls WHERE session = ? AND seq > ? AND seq <= ? AND started IS NOT NULL",
        (key, step.seq, step.seq + len(step.calls)),
    )
    step.started.update((row[0], "") for row in cursor)
