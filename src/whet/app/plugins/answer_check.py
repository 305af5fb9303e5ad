"""Let plugins check an answer before it ends its turn: if the turn changed files, a `pre_verify` hook may
continue the turn with a message.

The message goes into the session's inbox, which is read before an answer is accepted as final.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from whet.agent.session import InboxEntry, Session, receipt_of
from whet.contract.brought_text import wrap_in_tag
from whet.contract.messages import Message
from whet.contract.protocols import ModelReply, StreamItem
from whet.contract.texts import as_object

if TYPE_CHECKING:
    from whet.plugins.hooks import Hooks

MAX_CONTINUATIONS = 3
"""How often the hooks may continue one turn."""


class PreVerify:
    """The `pre_verify` hooks of one session. `session` returns it, or None before its first turn."""

    def __init__(self, hooks: Hooks, facts: Mapping[str, str], session: Callable[[], Session | None]) -> None:
        self._hooks = hooks
        self._facts = facts
        self._session = session
        self._turn = ""
        self._attempts = 0

    async def stream(self, inner: AsyncIterator[StreamItem]) -> AsyncIterator[StreamItem]:
        """Yield the items of a request's stream. If it ends with an answer, call the hooks before the last
        item."""
        async for item in inner:
            if isinstance(item, ModelReply) and item.stop == "end" and not item.message.tool_calls:
                await self._run_hooks(item.message.text)
            yield item

    async def _run_hooks(self, answer: str) -> None:
        session = self._session()
        turn = session.log.live.open_turn if session is not None else None
        if session is None or turn is None:
            return
        if turn.id != self._turn:
            self._turn, self._attempts = turn.id, 0
        receipt = receipt_of(session, turn.number) if self._attempts < MAX_CONTINUATIONS else None
        if receipt is None or not receipt.files:
            return
        facts: dict[str, Any] = {
            **self._facts,
            "task_id": session.id,
            "turn_id": turn.id,
            "model": session.model.model,
            "coding": _is_repository(session),
            "attempt": self._attempts,
            "final_response": answer,
            "changed_paths": sorted(file.path for file in receipt.files),
        }
        for reply in await self._hooks.call_all("pre_verify", **facts):
            if message := _continue_message(reply):
                self._attempts += 1
                notice = f"a plugin continues the turn: {message}"
                # tagged, so that it is not mistaken for the person's own words later
                session.inbox.add(InboxEntry(Message("user", wrap_in_tag("plugin", message)), notice=notice))
                return


def _continue_message(reply: object) -> str:
    """Return the message with which a hook continues the turn, or "" if it lets the turn end."""
    fields = as_object(reply)
    if fields.get("action") != "continue" and fields.get("decision") != "block":
        return ""
    message = fields.get("message") or fields.get("reason")
    return message.strip() if isinstance(message, str) else ""


def _is_repository(session: Session) -> bool:
    folder = session.workspace
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))
