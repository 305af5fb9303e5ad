"""Ask the person at the editor: for permission before a call runs, and the model's questions.

Without an answer a call is denied, as after a closed window or an unknown answer. The session's mode decides
whether harmless calls are asked about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from acp import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)

from whet.amending import apply_edit, find_editable
from whet.contract.errors import ConfigError
from whet.contract.protocols import Answer, ApprovalRequest, Reply
from whet.contract.texts import parse_arguments
from whet.editors import tool_calls
from whet.editors.editor import Editor
from whet.editors.options import Mode
from whet.editors.view import EditorTurnView, ShownCall
from whet.question import TAKE_BACK, describe_scope
from whet.visible import WHOLE, visible

_ANSWER = "answer"
_NO_SUCH_METHOD = -32601
_FORM_QUESTIONS = {"change": "What runs instead?", "because": "Why not? The model reads it."}
_ANSWERS: dict[str, Answer] = {"once": "once", "session": "session", "always": "always", "no": "no"}

Arguments = Callable[[str, str], Awaitable[str]]
"""Returns the JSON text of a call's arguments for a session id and a call id, or "" if unknown."""


class EditorPerson:
    """The person who uses a session in the editor, during one turn."""

    def __init__(
        self,
        editor: Editor,
        session_id: str,
        view: EditorTurnView,
        mode: Callable[[], Mode],
        arguments: Arguments,
    ) -> None:
        self._editor = editor
        self._session_id = session_id
        self._view = view
        self._mode = mode
        self._arguments = arguments

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        """Ask about one call. Returns None if the editor can't ask."""
        mode = self._mode()
        if mode == "deny":
            return "no"
        if mode == "auto" and request.grant:  # only harmless calls can be granted permanently
            return "once"
        arguments = parse_arguments(await self._arguments(request.session_id, request.call_id))
        content = tool_calls.question_content(request)
        shown_call = self._view.show(request.call_id, request.tool, arguments, content)
        reply = await self._ask(shown_call, content, request)
        answer = reply.answer if reply is not None else None
        if request.session_id != self._session_id:  # a helper's call: its end is not reported
            self._view.close(request.call_id, "allowed" if answer not in (None, "no") else "denied", ok=True)
        return reply

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        """Ask the model's question, in a form if the editor has forms. Returns None without an answer.

        A question without choices can't be asked without forms.
        """
        if not choices and not self._editor.forms:
            return None
        shown_call, new_call_id = self._view.question_call(question)
        answer = None
        try:
            if self._editor.forms:
                answer = await self._fill_in(shown_call, question, choices)
            if choices and not self._editor.forms:
                answer = await self._pick(shown_call, question, choices)
        finally:
            line = "no answer" if answer is None else "answered"
            self._view.close(new_call_id, line, ok=answer is not None)
        return answer

    async def _fill_in(self, shown_call: ShownCall, question: str, choices: Sequence[str]) -> str | None:
        """Ask with a form of one field. Returns the choice or the text, or None without an answer."""
        names = {visible(choice, WHOLE): choice for choice in choices}
        text = await self._ask_for_text(
            shown_call, visible(question, WHOLE), enum=list(names) if choices else None
        )
        return names.get(text) if choices and text is not None else text

    async def _ask_for_text(
        self, shown_call: ShownCall, question: str, *, enum: list[str] | None = None, default: str = ""
    ) -> str | None:
        """Return the text entered in a form of one field, or None.

        An editor that has no forms in spite of its capabilities is remembered as such.
        """
        field = ElicitationStringPropertySchema(
            type="string", title="Answer", enum=enum, default=default or None
        )
        schema = ElicitationSchema(type="object", properties={_ANSWER: field}, required=[_ANSWER])
        form = ElicitationFormSessionMode(
            session_id=self._session_id, tool_call_id=shown_call.id, requested_schema=schema
        )
        await self._editor.outbox.flush()
        try:
            response = await self._editor.client.create_elicitation(message=question, mode=form)
        except RequestError as error:
            self._editor.forms = error.code != _NO_SUCH_METHOD
            return None
        except ValueError:
            return None
        except ConnectionError:
            return await _wait_forever()
        if not isinstance(response, AcceptElicitationResponse):
            return None
        text = (response.content or {}).get(_ANSWER)
        return text if isinstance(text, str) else None

    async def _pick(self, shown_call: ShownCall, question: str, choices: Sequence[str]) -> str | None:
        """Ask with a permission request whose options are the choices."""
        options = [
            PermissionOption(option_id=str(number), name=visible(choice, WHOLE), kind="allow_once")
            for number, choice in enumerate(choices)
        ]
        picked = await self._request(shown_call, [tool_calls.text_content(question, WHOLE)], options)
        return choices[int(picked)] if picked else None

    async def _ask(
        self, shown_call: ShownCall, content: list[tool_calls.Content], request: ApprovalRequest
    ) -> Reply | None:
        """Ask about a call until there is an answer that can be used. Returns None if the editor can't
        ask."""
        problem = ""
        while True:
            draft = find_editable(request).text
            forms: list[str] = []
            if self._editor.forms:
                # A field of one line can't hold a longer draft.
                forms = ["because"] if "\n" in draft else ["change", "because"]
            picked = await self._request(shown_call, content, _list_options(request, forms))
            if picked is None:
                return None
            answer, _, scope = picked.partition(":")
            if answer not in _FORM_QUESTIONS:
                return Reply(_ANSWERS.get(answer, "no"), int(scope or 0))
            is_change = answer == "change"
            question = f"{problem}{_FORM_QUESTIONS[answer]}"
            text = await self._ask_for_text(shown_call, question, default=draft if is_change else "")
            if text is None:
                continue  # an empty form is not an answer
            if not is_change:
                return Reply("no", words=text)
            try:
                return Reply("once", arguments=apply_edit(request, text))
            except ConfigError as error:
                problem = f"That can't run: {error.message}. "

    async def _request(
        self, shown_call: ShownCall, content: list[tool_calls.Content], options: list[PermissionOption]
    ) -> str | None:
        """Return the option that was picked, "" if none was, or None if the editor can't ask.

        If the editor has disconnected, wait for the turn's cancellation: nobody has denied the call.
        """
        await self._editor.outbox.flush()
        call = ToolCallUpdate(
            tool_call_id=shown_call.id,
            title=tool_calls.title_of(shown_call.name, shown_call.arguments),
            kind=tool_calls.kind_of(shown_call.name),
            status="pending",
            content=content or None,
            raw_input=shown_call.arguments or None,
        )
        try:
            answer = await self._editor.client.request_permission(
                session_id=self._session_id, tool_call=call, options=options
            )
        except (RequestError, ValueError):
            return None
        except ConnectionError:
            return await _wait_forever()
        outcome = answer.outcome
        if isinstance(outcome, AllowedOutcome) and outcome.option_id in {
            option.option_id for option in options
        }:
            return outcome.option_id
        return ""


async def _wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


def _list_options(request: ApprovalRequest, forms: Sequence[str]) -> list[PermissionOption]:
    """Return the possible answers. `forms` are those that open a form."""
    options = [PermissionOption(option_id="once", name="Allow once", kind="allow_once")]
    for number, scope in enumerate(request.scopes):
        mark = f":{number}" if number else ""
        name = f"Allow, and don't ask again in this session to {describe_scope(scope)}"
        options.append(PermissionOption(option_id=f"session{mark}", name=name, kind="allow_always"))
        if scope.always:
            name = f"Allow, and never ask again in this folder to {describe_scope(scope)} ({TAKE_BACK})"
            options.append(PermissionOption(option_id=f"always{mark}", name=name, kind="allow_always"))
    if "change" in forms:
        options.append(PermissionOption(option_id="change", name="Change it first …", kind="allow_once"))
    options.append(PermissionOption(option_id="no", name="Deny", kind="reject_once"))
    if "because" in forms:
        options.append(PermissionOption(option_id="because", name="Deny, because …", kind="reject_once"))
    return options
