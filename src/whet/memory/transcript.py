"""A session's messages as evidence."""

from __future__ import annotations

import apsw

from whet.contract.messages import Message
from whet.store import rows, sessions
from whet.store.ledger import Quote


class Transcript:
    """The messages of one session, in order."""

    def __init__(self, session_id: str, messages: list[tuple[int, Message]]) -> None:
        self.session_id = session_id
        self.messages = messages

    def locate(self, quote: str) -> Quote | None:
        """Find a quote."""
        wanted = " ".join(quote.split()).lower()
        for seq, message in self.messages:
            if message.role != "assistant" and wanted and wanted in " ".join(message.text.split()).lower():
                trust = "user" if message.role == "user" else "observed"
                return Quote(quote, self.session_id, seq, message.role, message.tool_name, trust)
        return None

    def own_words(self) -> tuple[str, ...]:
        """Give what the person said last."""
        said = [message.text for _, message in self.messages if message.role == "user"]
        return tuple(said[-1:])


def load(connection: apsw.Connection, session_id: str) -> Transcript:
    """Read a session's messages, also those that a compaction took out of sight. Raises NotFound."""
    key = sessions.key_of(connection, session_id)
    found = connection.execute(
        "SELECT id, role, content, extra FROM messages WHERE id >= ? AND id < ? ORDER BY id",
        (key << rows.SEQ_BITS, (key + 1) << rows.SEQ_BITS),
    )
    return Transcript(
        session_id, [(r[0] & (rows.SEQ_LIMIT - 1), rows.unpack(r[1], r[2], r[3])) for r in found]
    )
