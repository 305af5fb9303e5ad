"""The live list of one session: its messages as rows, what goes out, and how large the next request is.

The server's own count is trusted where there is one; what came since is estimated and scaled by how far the
last estimate was off. It asks no engine anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.context.repair import RepairedList
from whet.context.rows import EngineRows
from whet.contract.context_engine import ChatRow
from whet.contract.messages import Message, Usage
from whet.store.transcript import Transcript


class LiveList:
    """Follows a transcript; `fixed_tokens` stand before its messages in every request."""

    def __init__(self, log: Transcript, fixed_tokens: int) -> None:
        self.rows = EngineRows()
        self._log = log
        self._fixed = fixed_tokens
        self._wire = RepairedList()
        self._counted = 0  # the server's count of the request that had `_sent` rows
        self._sent = 0
        self._scale = 1.0

    @property
    def is_counted(self) -> bool:
        """Whether a server has counted a beginning of this list."""
        return bool(self._counted) and self._sent <= len(self.rows.sizes)

    def follow(self, messages: Sequence[Message] | None = None) -> bool:
        """Take the transcript's messages; True where some that were known are gone."""
        given = self._log.messages if messages is None else messages
        return self.rows.sync(given, self._log.seqs)

    def copy(self) -> list[ChatRow]:
        """Give the rows, the same objects, in a list of its own."""
        return list(self.rows.rows)

    def outgoing(self) -> Sequence[Message]:
        """Give what the next request shows, valid for every server; what went out stays the same objects."""
        self._sent = len(self.rows.rows)
        return self._wire.of(self.rows.sources)

    def tokens(self) -> int:
        """Give the size of the next request."""
        if self.is_counted:
            return self._counted + int(sum(self.rows.sizes[self._sent :]) * self._scale)
        return self.scaled(self.rows.tokens)

    def scaled(self, messages_tokens: int) -> int:
        """Give the size of a request whose messages have that many estimated tokens."""
        return int((self._fixed + messages_tokens) * self._scale)

    def answered(self, usage: Usage) -> int:
        """Take the server's count of the last request; gives it, or the estimate where there is none."""
        rough = self._fixed + sum(self.rows.sizes[: self._sent])
        self._counted = usage.prompt_tokens
        if usage.prompt_tokens and rough:
            self._scale = min(max(usage.prompt_tokens / rough, 0.25), 4.0)
        return usage.prompt_tokens or rough

    def adopt(self, rows: Sequence[ChatRow]) -> None:
        """Go on from a list that an engine gave and that the transcript has recorded."""
        self.rows.adopt(rows, self._log.messages)
        self._counted = self._sent = 0
