"""What the demo's chapter on learning measures: the ledger's rows, the notes, what a review's request shared.

Nothing here is taken from what the demo showed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from whet.cli import stored
from whet.cli.demo_facts import messages_of
from whet.cli.demo_world import DemoWorld, SeenRequest
from whet.contract.texts import flat
from whet.memory import notes as note_files
from whet.practice.review import OPENING
from whet.store import learned as receipts
from whet.store import ledger, live, outcomes, sessions, starts
from whet.store.ledger import LedgerRow

T = TypeVar("T")
_KINDS: tuple[starts.ItemKind, ...] = ("memory", "user", "skill")
_ALL = 10_000


class Learned(msgspec.Struct, frozen=True):
    """Sums over the chapter, as the database has them."""

    reviews: int
    review_tokens: int
    tokens: int
    changes: int
    by_state: dict[str, int]
    quotes: int
    skill_loads: int
    sessions_with_items: int


class PrefixShare(msgspec.Struct, frozen=True):
    """A review's first request: whether it began with every byte of the conversation's last one, and what
    share of its own bytes those were."""

    shared: bool
    share: float


def changes(world: DemoWorld) -> list[LedgerRow]:
    """Give every change, the oldest first."""
    return stored.read(world.home, lambda db: ledger.select(db))[::-1]


def notes(world: DemoWorld) -> str:
    """Give what the note files hold."""
    paths = [world.home.root / path for path in note_files.FILES.values()]
    return "\n".join(path.read_text("utf-8") for path in paths if path.exists())


def quotes_stand(world: DemoWorld, session_id: str, rows: Sequence[LedgerRow]) -> bool:
    """Whether every quote of every change stands in that session, word for word but for white space."""
    quotes = [quote.quote for row in rows for quote in row.evidence]
    session = stored.read(world.home, lambda db: live.load(db, session_id))
    said = [flat(message.text) for message in session.messages]
    return bool(quotes) and all(any(flat(quote) in text for text in said) for quote in quotes)


def review_prefix(requests: Sequence[SeenRequest]) -> PrefixShare:
    """Hold the first review's first request against the request before it, byte by byte."""
    for before, request in pairwise(requests):
        if str(messages_of(request)[-1].get("content")).startswith(OPENING):
            head = re.sub(r"[\]}]+$", "", before.body)
            shared = request.body.startswith(head)
            return PrefixShare(shared, len(head) / len(request.body) if shared else 0.0)
    return PrefixShare(False, 0.0)


def learned(world: DemoWorld) -> Learned:
    """Read the sums."""
    rows = changes(world)
    total = stored.read(world.home, sessions.stats).usage
    reviews = stored.read(world.home, lambda db: sessions.list_sessions(db, _ALL, kinds=("review",)))
    uses = stored.read(world.home, lambda db: outcomes.item_uses(db, _KINDS))
    states = [row.state for row in rows]
    return Learned(
        reviews=len(reviews),
        review_tokens=sum(row.usage.total_tokens for row in reviews),
        tokens=total.total_tokens,
        changes=len(rows),
        by_state={state: states.count(state) for state in dict.fromkeys(states)},
        quotes=sum(len(row.evidence) for row in rows),
        skill_loads=len(stored.read(world.home, lambda db: receipts.uses(db))),
        sessions_with_items=len({use.session_id for use in uses}),
    )
