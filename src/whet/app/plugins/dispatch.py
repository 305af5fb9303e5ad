"""Let plugins drop or change messages from chat platforms before the sender is looked up.

If a hook fails, the message passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from whet.contract.channels import Incoming
from whet.contract.texts import as_object
from whet.plugins.dispatch import ChatAdapter, ChatEvent, ChatGateway, ChatSource, PlatformName, Post
from whet.plugins.hooks import Hooks

HOOK = "pre_gateway_dispatch"
OBSERVED = "gateway_platform_event"


class IncomingHooks:
    """The `pre_gateway_dispatch` hooks of a program. `post` queues a text for a chat, `session_of` returns a
    chat's session by channel and chat."""

    def __init__(
        self, hooks: Hooks, channels: Iterable[str], post: Post, session_of: Callable[[str, str], str]
    ) -> None:
        self._hooks = hooks
        adapters: dict[str, ChatAdapter] = {PlatformName(name): ChatAdapter(name, post) for name in channels}
        self._gateway = ChatGateway(adapters, session_of)

    async def apply_hooks(self, update: Incoming) -> Incoming | None:
        """Return the message, changed if a hook changes it, or None if a hook drops it."""
        facts = {"event": _make_event(update), "gateway": self._gateway, "session_store": None}
        for reply in await self._hooks.call_all(HOOK, **facts):
            fields = as_object(reply)
            match fields.get("action"):
                case "skip":
                    return None
                case "rewrite" if isinstance(fields.get("text"), str):
                    return msgspec.structs.replace(update, text=fields["text"])
                case "allow":
                    return update
                case _:
                    continue
        return update

    async def notify_edit(self, update: Incoming) -> None:
        """Notify the hooks about an edited or deleted message; they can't change it."""
        location = update.place
        payload = {
            "chat_id": location.chat,
            "thread_id": location.thread or None,
            "message_id": update.ref,
            "user_id": location.user,
            "user_name": update.user_name,
        }
        kind = "message_edited" if update.text or update.files else "message_deleted"
        if kind == "message_edited":
            payload["text"] = update.text
        await self._hooks.call_all(OBSERVED, platform=location.channel, event_type=kind, payload=payload)


def _make_event(update: Incoming) -> ChatEvent:
    location = update.place
    source = ChatSource(
        PlatformName(location.channel),
        location.chat,
        "group" if location.is_group else "dm",
        location.user,
        update.user_name,
        location.thread or None,
    )
    return ChatEvent(update.text, source, update.ref, message_type="document" if update.files else "text")
