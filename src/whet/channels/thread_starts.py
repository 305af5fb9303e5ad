"""Add the first message of a thread to each person's first message there, so that the agent knows the topic.

Only threads since the channel's start are known.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import Incoming

_MAX_THREADS = 2_000
MAX_QUOTED_CHARS = 4_000


class ThreadStarts:
    """The threads of one channel that each person has written in. Each person has an own conversation
    there."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def is_first(self, update: Incoming, thread: str) -> bool:
        """Return whether this is the person's first message for the bot in the thread. Remembers it."""
        place = update.place
        key = (place.chat, thread, place.user)
        if update.verb != "message" or (place.is_group and not update.mentions_us) or key in self._known:
            return False
        self._known[key] = None
        while len(self._known) > _MAX_THREADS:
            self._known.popitem(last=False)
        return True


def add_root(update: Incoming, root: str) -> Incoming:
    """Return a message with `root`, the author and text of its thread's first message, as its quote."""
    root = root[:MAX_QUOTED_CHARS]
    if not root or root == update.quoted:
        return update
    if not update.quoted:
        return msgspec.structs.replace(update, quoted=root)
    text = "\n".join(filter(None, (wrap_in_tag("thread", root), update.text)))
    return msgspec.structs.replace(update, text=text)
