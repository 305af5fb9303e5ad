"""Measures the demo's chapter on learning: ledger rows, notes, the cached bytes of a review's request.

Nothing here is taken from the demo's own output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

import msgspec

from whet.cli import stored
from whet.contract.texts import flat
from whet.memory import notes as note_files
from whet.store import learned, ledger, live, outcomes, sessions
from whet.store import learned as receipts
from whet_lab.demo.facts import read_messages
from whet_lab.demo.world import DemoWorld, SeenRequest
from whet_lab.practice.review import OPENING

T = TypeVar("T")
_KINDS: tuple[learned.ItemKind, ...] = ("memory", "user", "skill")
_MAX_SESSIONS = 10_000


class LearningSums(msgspec.Struct, frozen=True):
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
    """Whether a review's first request began with the conversation's last one, and what share that was."""

    shared: bool
    share: float


def list_changes(world: DemoWorld) -> list[ledger.LedgerRow]:
    """Return every change, oldest first."""
    return stored.read(world.home, lambda db: ledger.select(db))[::-1]


def read_notes(world: DemoWorld) -> str:
    """Return the text of the note files."""
    paths = [world.home.root / path for path in note_files.FILES.values()]
    return "\n".join(path.read_text("utf-8") for path in paths if path.exists())


def has_all_quotes(world: DemoWorld, session_id: str, rows: Sequence[ledger.LedgerRow]) -> bool:
    """Return whether every quote of every change occurs in that session, white space aside."""
    quotes = [quote.quote for row in rows for quote in row.evidence]
    session = stored.read(world.home, lambda db: live.load(db, session_id))
    texts = [flat(message.text) for message in session.messages]
    return bool(quotes) and all(any(flat(quote) in text for text in texts) for quote in quotes)


def measure_review_prefix(requests: Sequence[SeenRequest]) -> PrefixShare:
    """Compare the first review's first request with the request before it, byte by byte."""
    for before, request in pairwise(requests):
        if str(read_messages(request)[-1].get("content")).startswith(OPENING):
            head = re.sub(r"[\]}]+$", "", before.body)
            shared = request.body.startswith(head)
            return PrefixShare(shared, len(head) / len(request.body) if shared else 0.0)
    return PrefixShare(False, 0.0)


def read_sums(world: DemoWorld) -> LearningSums:
    """Read the sums from the database."""
    rows = list_changes(world)
    total = stored.read(world.home, sessions.read_stats).usage
    reviews = stored.read(world.home, lambda db: sessions.list_sessions(db, _MAX_SESSIONS, kinds=("review",)))
    uses = stored.read(world.home, lambda db: outcomes.list_item_uses(db, _KINDS))
    states = [row.state for row in rows]
    return LearningSums(
        reviews=len(reviews),
        review_tokens=sum(row.usage.total_tokens for row in reviews),
        tokens=total.total_tokens,
        changes=len(rows),
        by_state={state: states.count(state) for state in dict.fromkeys(states)},
        quotes=sum(len(row.evidence) for row in rows),
        skill_loads=len(stored.read(world.home, lambda db: receipts.list_uses(db))),
        sessions_with_items=len({use.session_id for use in uses}),
    )
