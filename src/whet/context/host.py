"""What of the transcript the model sees: all of it, repaired.

Implements `contract.protocols.Context`. Each row is repaired once and the rows that went out stay the same
objects while the transcript grows, so that a request's cost hardly depends on its length.
"""

from __future__ import annotations

from collections.abc import Sequence

from whet.context.repair import Repairer, finished
from whet.contract.events import Emit
from whet.contract.messages import Message, Usage


class TranscriptContext:
    """The whole transcript as the view; a list that was replaced (undo, compaction) is repaired anew."""

    def __init__(self) -> None:
        self._repairer = Repairer()
        self._source: list[Message] = []
        self.last_prompt_tokens = 0

    async def view(
        self, transcript: Sequence[Message], emit: Emit, *, overflow_limit_tokens: int | None = None
    ) -> Sequence[Message]:
        """Give the repaired transcript. There is nothing smaller to give after an overflow."""
        known = len(self._source)
        grown = known <= len(transcript) and (not known or transcript[known - 1] is self._source[-1])
        if not grown:
            self._repairer, self._source = Repairer(), []
        for message in transcript[len(self._source) :]:
            self._repairer.feed(message)
            self._source.append(message)
        self._repairer.close()
        return finished(self._repairer.rows)

    def observe(self, usage: Usage) -> None:
        """Keep the size of the last request."""
        self.last_prompt_tokens = usage.prompt_tokens
