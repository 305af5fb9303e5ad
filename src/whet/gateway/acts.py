"""Join messages that a person sent in one act: an album, a paste that the app split, a forward with its
comment.

Only marks of the platform and the length of a text decide which messages belong together. Without such a
sign, nothing is waited for. Reactions are added to the next message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec

from whet.contract.brought_text import wrap_in_tag
from whet.contract.channels import Incoming, PlatformLimits
from whet.contract.texts import from_json
from whet.store.chats import InRow

_ALBUM_S = 1.2
_FORWARD_S = 1.2
_PASTE_S = 1.5
_FILE_S = 1.0
_MAX_ACT_S = 20.0
_SLACK_S = 1.5
"""Added because platforms report times in whole seconds."""
_CUT_CHARS = (2_000, 4_000, 4_096)
"""The lengths at which apps cut a paste, possibly within a word."""


class WaitingAct(msgspec.Struct, frozen=True):
    """The rows of an act, and the update that joins them. More rows may come for `wait_s`; at 0 it is
    complete."""

    rows: tuple[InRow, ...]
    update: Incoming
    wait_s: float = 0.0


class ActReader:
    """Finds the acts among a conversation's waiting rows."""

    def __init__(
        self, is_command: Callable[[Incoming], bool], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_command = is_command
        self._now_s = now_s
        self._seen_s: dict[int, float] = {}

    def read(self, rows: Sequence[InRow], limits: PlatformLimits) -> WaitingAct:
        """Return the act that begins with the first of the waiting rows."""
        now_s = self._now_s()
        self._seen_s = {row.id: self._seen_s.get(row.id, now_s) for row in rows}
        act_rows, updates = [rows[0]], [from_json(rows[0].body, Incoming)]
        for row in rows[1:]:
            update = from_json(row.body, Incoming)
            gap_s = self._seen_s[row.id] - self._seen_s[act_rows[-1].id]
            if self._is_command(update) or not continues_act(updates[-1], update, limits, gap_s):
                return WaitingAct(tuple(act_rows), join_updates(updates))
            act_rows.append(row)
            updates.append(update)
        began_s, last_s = self._seen_s[act_rows[0].id], self._seen_s[act_rows[-1].id]
        until_s = min(last_s + seconds_for_more(updates[-1], limits), began_s + _MAX_ACT_S)
        return WaitingAct(tuple(act_rows), join_updates(updates), max(0.0, until_s - now_s))


def seconds_for_more(update: Incoming, limits: PlatformLimits) -> float:
    """Return for how long another message of the same act may follow this one, or 0 if none is expected."""
    if update.album:
        return _ALBUM_S
    if update.is_forward:
        return _FORWARD_S
    if limits.pasted_chars and len(update.text) >= limits.pasted_chars:
        return _PASTE_S
    if update.files:
        return 0.0 if update.text else _FILE_S
    return limits.forward_s


def continues_act(earlier: Incoming, later: Incoming, limits: PlatformLimits, gap_s: float = 0.0) -> bool:
    """Return whether a message belongs to the same act as the one before it. `gap_s` is the time between
    their arrivals, which is used if the platform does not report when they were sent."""
    if earlier.place != later.place:
        return False
    max_s = seconds_for_more(earlier, limits)
    if earlier.at_s and later.at_s:
        gap_s, max_s = later.at_s - earlier.at_s, max_s + _SLACK_S
    if max_s <= 0 or gap_s > max_s:
        return False
    if earlier.album or later.album:
        is_comment = bool(earlier.album) and not later.album and not later.files and bool(later.text)
        return earlier.album == later.album or (is_comment and not earlier.text)
    if earlier.is_forward or later.is_forward:
        return True
    is_paste = bool(limits.pasted_chars) and len(earlier.text) >= limits.pasted_chars
    return not later.files and bool(later.text) and (is_paste or (bool(earlier.files) and not earlier.text))


def join_updates(updates: Sequence[Incoming]) -> Incoming:
    """Return the messages of an act as one. Joined messages have no `ref`, so a later edit can't replace
    them."""
    first = updates[0]
    if len(updates) == 1:
        return first
    text = first.text
    for earlier, later in pairwise(updates):
        is_cut = len(earlier.text) in _CUT_CHARS and not later.is_forward
        text = f"{text}{'' if is_cut or not text or not later.text else chr(10)}{later.text}"
    return msgspec.structs.replace(
        first,
        text=text,
        files=tuple(file for update in updates for file in update.files),
        quoted=next((update.quoted for update in updates if update.quoted), ""),
        mentions_us=any(update.mentions_us for update in updates),
        ref="",
        joined=tuple(filter(None, (update.ref for update in updates))),
    )


def take_reactions(rows: Sequence[InRow]) -> tuple[list[InRow], list[InRow]]:
    """Split waiting rows into reactions and the others. Reactions wait for the next message."""
    reactions = [row for row in rows if from_json(row.body, Incoming).verb == "reaction"]
    return reactions, [row for row in rows if row not in reactions] if reactions else list(rows)


def add_reactions(act: WaitingAct, reactions: Sequence[InRow]) -> WaitingAct:
    """Return the act with a line for each reaction."""
    if not reactions:
        return act
    lines = [_describe_reaction(from_json(row.body, Incoming)) for row in reactions]
    update = msgspec.structs.replace(act.update, text="\n".join(filter(None, (*lines, act.update.text))))
    return WaitingAct((*act.rows, *reactions), update, act.wait_s)


def _describe_reaction(update: Incoming) -> str:
    return wrap_in_tag("reaction", f"{update.text} to your message: {update.quoted}")


def describe_change(update: Incoming) -> str:
    """Return the text for the model about an edit or deletion of a message that its turn works on."""
    if not update.text and not update.files:
        return wrap_in_tag("deleted", f"The person has deleted this message: {update.quoted}")
    was = f"The person has changed this message to what follows. It was: {update.quoted}"
    return f"{wrap_in_tag('edited', was)}\n{update.text}"
