"""What must hold after a gateway was killed again and again, whatever the platform.

In: everything a platform's people wrote is in the inbox once, in the order in which the platform brought it,
and in the transcript of their session once, in that order.

Turns: with `queue` exactly one for each message. With `steer` a turn may take in several; each message is
read by exactly one, and what is said last is answered.

Out: each turn's answers are in the outbox once, in the transcript's order. What arrived is a part of that,
in order, nothing twice; what did not arrive is marked as unknown, and nothing else is missing. After each
unknown answer the person was told that it may be missing; nobody else was. That notice may come twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from tests.gateway.kills.platforms import Platform
from whet.clock import SystemClock
from whet.config.paths import Home
from whet.contract.messages import Message
from whet.gateway.outbox import NOTICE
from whet.store import live
from whet.store.database import open_store

_T = TypeVar("_T")
FILLER = " and so on and so forth" * 4
"""What makes an answer long enough to be shown while it grows; then it ends with an ellipsis."""


class Kept(msgspec.Struct):
    """What the store has of one person's conversation."""

    inbox: list[str]
    outbox: list[tuple[str, str]]
    messages: list[Message]


class Tally(msgspec.Struct):
    """What came of it. `wrong` says for each offence what and where."""

    kills: int = 0
    accepted: int = 0
    answers: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    unknown: int = 0
    told: int = 0
    moments: dict[str, int] = {}
    wrong: list[str] = []

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled or reordered."""
        return not (self.lost or self.duplicated or self.reordered or self.wrong)

    def __str__(self) -> str:
        counts = f"{self.kills} kills, {self.accepted} accepted, {self.answers} answers, {self.lost} lost"
        odd = f"{self.duplicated} duplicated, {self.reordered} reordered, {self.unknown} unknown"
        return "\n".join([f"{counts}, {odd}, {self.told} told {self.moments}", *self.wrong[:20]])


def _looked(home: Path, look: Callable[[apsw.Connection], _T]) -> _T:
    """Read the store that the gateway uses, also while it runs or right after it was killed."""
    with closing(open_store(Home(home), SystemClock())) as database:
        return database.read_now(look)


def accepted(home: Path) -> Counter[str]:
    """Count the texts in the inbox."""
    sql = "SELECT json_extract(body, '$.text') FROM gateway_inbox"
    return Counter(row[0] for row in _looked(home, lambda db: db.execute(sql).fetchall()))


def left(home: Path) -> dict[str, int]:
    """Count what still waits, in or out."""
    sql = (
        "SELECT state, count(*) FROM (SELECT state FROM gateway_inbox UNION ALL"
        " SELECT state FROM gateway_outbox) AS both_ways"
        " WHERE state IN ('waiting', 'begun', 'queued', 'sending') GROUP BY state"
    )
    return {state: number for state, number in _looked(home, lambda db: db.execute(sql).fetchall())}


def troubles(home: Path) -> list[str]:
    """Say of each conversation what waits to go out: how often it was tried, with what error."""
    sql = (
        "SELECT chat, count(*), max(attempts), max(error) FROM gateway_outbox"
        " WHERE state IN ('queued', 'sending') GROUP BY chat"
    )
    return [
        f"chat {chat}: {count} wait, tried up to {tries} times ({error})"
        for chat, count, tries, error in _looked(home, lambda db: db.execute(sql).fetchall())
    ]


def judge(home: Path, platform: Platform, written: dict[int, list[str]], busy: str) -> Tally:
    """Compare what was written, what the store has, and what arrived."""
    tally = Tally()
    kept = _looked(home, _read)
    for user, texts in written.items():
        mine = kept.get(str(user), Kept([], [], []))
        tally.accepted += len(mine.inbox)
        heard = [message.text for message in mine.messages if message.role == "user"]
        _same(tally, f"{user}: inbox", texts, mine.inbox)
        _same(tally, f"{user}: transcript", mine.inbox, heard)
        finals = _answers(tally, user, mine.messages, busy)
        answers = [(text, state) for text, state in mine.outbox if not is_notice(text)]
        _same(tally, f"{user}: outbox", finals, [text for text, _ in answers])
        said = platform.said(user)
        whole = [text for text in said if not text.endswith("…") and not is_notice(text)]
        _arrived(tally, user, answers, whole)
        _told(tally, user, mine.outbox, any(map(is_notice, said)))
    return tally


def _answers(tally: Tally, user: int, messages: Sequence[Message], busy: str) -> list[str]:
    """Give what answered somebody; each says to which message."""
    finals: list[str] = []
    last, since = "", 0
    for message in messages:
        if message.role == "user":
            last, since = message.text, since + 1
        elif message.role == "assistant" and message.is_final:
            if message.text.removesuffix(FILLER) != f"echo {last}" or since == 0:
                tally.wrong.append(f"{user}: {message.text!r} answers {last!r}")
            if busy == "queue" and since != 1:
                tally.wrong.append(f"{user}: one turn for {since} messages at {last!r}")
            finals.append(message.text)
            since = 0
    if since:
        tally.lost += 1
        tally.wrong.append(f"{user}: {last!r} was never answered")
    return finals


def _arrived(tally: Tally, user: int, outbox: Sequence[tuple[str, str]], texts: Sequence[str]) -> None:
    tally.answers += len(texts)
    tally.unknown += sum(state == "unknown" for _, state in outbox)
    for text, state in outbox:
        if state not in ("sent", "unknown") or (state == "sent" and text not in texts):
            tally.lost += 1
            tally.wrong.append(f"{user}: {text!r} is {state} and did not arrive")
    _same(tally, f"{user}: arrived", [text for text, _ in outbox if text in set(texts)], texts)


def is_notice(text: str) -> bool:
    """Whether a text is the notice that an answer may be missing, as any platform shows it."""
    return text.startswith(NOTICE.partition(".")[0])


def _told(tally: Tally, user: int, outbox: Sequence[tuple[str, str]], arrived: bool) -> None:
    """Count the unknown answers that a notice came after; one that was told of nothing is wrong."""
    waiting = unknown = 0
    for text, state in outbox:
        if is_notice(text):
            if not unknown:
                tally.wrong.append(f"{user}: told that an answer may be missing where none is")
            if state == "sent" and arrived:
                tally.told += waiting
                waiting = 0
        elif state == "unknown":
            waiting, unknown = waiting + 1, unknown + 1
    if waiting:
        tally.wrong.append(f"{user}: not told of {waiting} answers that may be missing")


def _same(tally: Tally, where: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Count what is missing, there twice, or in another order."""
    missing = [text for text in wanted if text not in set(found)]
    twice = [text for text, times in Counter(found).items() if times > 1]
    strange = [text for text in found if text not in set(wanted)]
    there = _once(text for text in wanted if text in set(found))
    came = _once(text for text in found if text in set(wanted))
    is_ordered = there == came
    tally.lost += len(missing)
    tally.duplicated += len(twice) + len(strange)
    tally.reordered += not is_ordered
    for what, texts in (("missing", missing), ("twice", twice), ("not wanted", strange)):
        if texts:
            tally.wrong.append(f"{where}: {what} {texts[:4]}")
    if not is_ordered:
        at = next(n for n, (text, other) in enumerate(zip(there, came, strict=True)) if text != other)
        tally.wrong.append(f"{where}: in another order: {there[at : at + 3]} came as {came[at : at + 3]}")


def _once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _read(connection: apsw.Connection) -> dict[str, Kept]:
    chats = connection.execute("SELECT id, user, session_id FROM gateway_chats").fetchall()
    kept: dict[str, Kept] = {}
    for chat, user, session in chats:
        inbox = connection.execute(
            "SELECT json_extract(body, '$.text') FROM gateway_inbox WHERE chat = ? ORDER BY id", (chat,)
        )
        outbox = connection.execute(
            "SELECT json_extract(body, '$.text'), state FROM gateway_outbox WHERE chat = ? ORDER BY id",
            (chat,),
        )
        messages = live.load(connection, session).messages if session else []
        name = user.lstrip("uU")
        kept[name] = Kept([row[0] for row in inbox], [(r[0], r[1]) for r in outbox], list(messages))
    return kept
