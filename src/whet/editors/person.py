"""The human at the editor: asked for permission by the protocol's own request, before a call runs.

No answer, a closed window and an answer that was not on offer are a no. What mode the session is in decides
whether harmless calls are asked about at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from acp import Client, RequestError
from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate

from whet.contract.protocols import Answer, ApprovalRequest
from whet.editors import tool_calls
from whet.editors.outbox import Outbox
from whet.editors.tool_calls import Content
from whet.editors.view import Shown, TurnView
from whet.visible import visible

Mode: TypeAlias = Literal["ask", "auto", "deny"]
_ANSWERS: dict[str, Answer] = {"once": "once", "session": "session", "always": "always", "no": "no"}

Arguments = Callable[[str, str], Awaitable[str]]
"""Gives the JSON text of a call's arguments by session and call id; empty where it is not known."""


class EditorPerson:
    """Whoever looks at one session in the editor, for one turn."""

    def __init__(
        self,
        client: Client,
        outbox: Outbox,
        session_id: str,
        view: TurnView,
        mode: Callable[[], Mode],
        arguments: Arguments,
    ) -> None:
        self._client = client
        self._outbox = outbox
        self._session_id = session_id
        self._view = view
        self._mode = mode
        self._arguments = arguments

    async def approve(self, request: ApprovalRequest) -> Answer | None:
        """Ask about one call; None where the editor is gone."""
        mode = self._mode()
        if mode == "deny":
            return "no"
        if mode == "auto" and request.grant:  # only what is not dangerous can be granted for good
            return "once"
        arguments = tool_calls.arguments_of(await self._arguments(request.session_id, request.call_id))
        before = await asyncio.to_thread(self._view.files, request.tool, arguments)
        content = [tool_calls.said(request.subject), *map(tool_calls.said, request.reasons)]
        content += tool_calls.proposed(request.tool, arguments, before)
        shown = self._view.show(request.call_id, request.tool, arguments, content)
        answer = await self._ask(shown, content, _options(request))
        if request.session_id != self._session_id:  # a helper's call: its end is not told
            self._view.close(request.call_id, "allowed" if answer not in (None, "no") else "denied", ok=True)
        return answer

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Put the model's question where it has choices; an open one is not asked: None."""
        if not choices:
            return None
        shown = self._view.show(f"question {question}", "clarify", {"question": question}, [])
        options = [
            PermissionOption(option_id=str(number), name=visible(choice), kind="allow_once")
            for number, choice in enumerate(choices)
        ]
        picked = await self._request(shown, [tool_calls.said(question)], options)
        self._view.close(f"question {question}", "answered" if picked else "no answer", ok=bool(picked))
        return choices[int(picked)] if picked else None

    async def _ask(
        self, shown: Shown, content: list[Content], options: list[PermissionOption]
    ) -> Answer | None:
        picked = await self._request(shown, content, options)
        return None if picked is None else _ANSWERS.get(picked, "no")

    async def _request(
        self, shown: Shown, content: list[Content], options: list[PermissionOption]
    ) -> str | None:
        """Give the option that was picked, empty for none; None where the editor is gone."""
        await self._outbox.flush()
        call = ToolCallUpdate(
            tool_call_id=shown.id,
            title=tool_calls.title_of(shown.name, shown.arguments),
            kind=tool_calls.kind_of(shown.name),
            status="pending",
            content=content or None,
            raw_input=shown.arguments or None,
        )
        try:
            answer = await self._client.request_permission(
                session_id=self._session_id, tool_call=call, options=options
            )
        except (RequestError, ConnectionError, ValueError):
            return None
        outcome = answer.outcome
        if isinstance(outcome, AllowedOutcome) and outcome.option_id in {one.option_id for one in options}:
            return outcome.option_id
        return ""


def _options(request: ApprovalRequest) -> list[PermissionOption]:
    """Offer what may be answered: what is dangerous has no answer for good."""
    options = [
        PermissionOption(option_id="once", name="Allow once", kind="allow_once"),
        PermissionOption(option_id="session", name="Allow in this session", kind="allow_always"),
    ]
    if request.grant:
        name = f"Always allow {visible(request.grant)}"
        options.append(PermissionOption(option_id="always", name=name, kind="allow_always"))
    return [*options, PermissionOption(option_id="no", name="Deny", kind="reject_once")]
