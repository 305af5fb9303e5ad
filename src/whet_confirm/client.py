"""Ask a person before doing something: the client of the confirmation service.

    async with ConfirmClient() as client:
        approved = await client.confirm("deploy_production", "Deploy 1.4.2", {"version": "1.4.2"})
        ...                      # approved for exactly that, and used up: run it once
        await client.report(approved.id, "executed")

`@requires_confirmation` does all of that around a function. Everything fails closed: ConfirmationRefused is
raised if the service can't be reached, nobody decides in time, the service recorded another digest, or the
approval was already used. `BlockingClient` has the same calls for programs without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar, Unpack, cast

import httpx2
import msgspec

from whet.config.key_hosts import is_loopback
from whet.contract.texts import from_json
from whet.trust import context_for_url, create_trusted_context
from whet_confirm.canonical import request_digest
from whet_confirm.client_answers import (
    URL_HINT,
    find_token_path,
    not_the_service,
    read_content,
    read_stored_token,
    take_rotated_token,
)
from whet_confirm.tickets import ConfirmationRefused as ConfirmationRefused
from whet_confirm.tickets import ConfirmOptions as ConfirmOptions
from whet_confirm.tickets import DecisionFields, find_problem
from whet_confirm.tickets import Failed as Failed
from whet_confirm.tickets import Ticket as Ticket
from whet_confirm.tickets import Unreachable as Unreachable

P = ParamSpec("P")
T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:6000"
_WAIT_S = 60.0
_TIMEOUT_S = 15.0
_RETRY_S = 2.0
_TOO_MANY = 429
_BEAT_S = 60.0  # the service sends a heartbeat every 45 s
_DEFAULT_OPTIONS = ConfirmOptions()


class ConfirmClient:
    """A client with the service's calls.

    Without `token`, CONFIRMATION_TOKEN or the token in `token_path`, by default the home's first of `role`,
    is used; without `url`, WHET_CONFIRM_URL or port 6000 on this machine. At a socket such as
    `unix:/run/whet-confirm/api.sock` the service identifies its callers without a token.
    """

    def __init__(
        self, url: str = "", token: str = "", *, role: str = "submit", token_path: Path | None = None
    ) -> None:
        self.url: str = (url or os.environ.get("WHET_CONFIRM_URL") or DEFAULT_URL).strip().rstrip("/")
        token = (token or os.environ.get("CONFIRMATION_TOKEN", "")).strip()
        local = not self.url.startswith("unix:") and is_loopback(self.url)
        self._token_path: Path | None = None
        if local and not token:  # valid only for the service on this machine that created it
            self._token_path = token_path or find_token_path(role)
            token = read_stored_token(self._token_path)
        self._problem = find_problem(self.url, token)
        headers = {"authorization": f"Bearer {token}"} if token and not self._problem else {}
        path = self.url.removeprefix("unix:") if self.url.startswith("unix:") else ""
        # a proxy may use https
        trust = context_for_url(self.url) if local or path else create_trusted_context()
        self._http = httpx2.AsyncClient(
            base_url="" if self._problem else "http://localhost" if path else self.url,
            headers=headers,
            timeout=_TIMEOUT_S,
            trust_env=not local and not path,
            verify=trust,
            transport=httpx2.AsyncHTTPTransport(uds=path, verify=trust) if path else None,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # --- asking

    async def confirm(
        self,
        action: str,
        description: str,
        details: dict[str, Any] | None = None,
        ask: ConfirmOptions = _DEFAULT_OPTIONS,
    ) -> Ticket:
        """Ask, wait for the decision and consume it. Returns only if the action may run now, once.

        Raises ConfirmationRefused in every other case. A request that is still open when the wait ends is
        cancelled, so that nobody approves what will not run.
        """
        try:
            submission = asyncio.create_task(self.submit(action, description, details, ask))
            is_open = True
            try:
                ticket = await asyncio.shield(submission)
                record = await self.wait(ticket.id, ask.timeout_s + 10.0, is_attended=ask.is_attended)
                is_open = record["status"] == "pending"
            finally:
                if is_open:
                    await asyncio.shield(self._withdraw(submission))
            if is_open:
                record = await self.status(ticket.id)  # cancelled, or decided in the last moment
            return await self.consume_approval(ticket, record)
        except (Failed, Unreachable) as error:
            status = "unavailable" if isinstance(error, Unreachable) or error.status >= 500 else "refused"
            raise ConfirmationRefused(error.message, status=status, hint=error.hint) from error

    async def submit(
        self,
        action: str,
        description: str,
        details: dict[str, Any] | None = None,
        ask: ConfirmOptions = _DEFAULT_OPTIONS,
    ) -> Ticket:
        """Submit a request and return at once.

        Raises Failed, Unreachable, or ConfirmationRefused if the returned digest does not match the
        request.
        """
        body: dict[str, Any] = {
            "action": action,
            "description": description,
            "details": details or {},
            "requester": ask.requester,
            "session_key": ask.session_key,
            "timeout_seconds": ask.timeout_s,
        }
        if ask.callback_url:
            body["callback_url"] = ask.callback_url
        headers = {"idempotency-key": ask.idempotency_key} if ask.idempotency_key else {}
        answer = await self.call("POST", "/confirm", body, headers=headers)
        if not {"id", "status", "digest"} <= answer.keys():
            raise not_the_service(self.url)
        ticket = Ticket(
            answer["id"], answer["status"], answer["digest"], page_url=str(answer.get("page_url", ""))
        )
        if "expires_at" in answer:
            expected = request_digest(
                ticket.id,
                action.strip(),
                details or {},
                ask.requester,
                ask.session_key,
                answer["expires_at"],
            )
            if expected != ticket.digest:
                raise ConfirmationRefused("the service recorded something else", status="refused")
        return ticket

    async def status(self, request_id: str) -> dict[str, Any]:
        """Return the request's record."""
        return await self.call("GET", f"/confirm/{request_id}")

    async def wait(self, request_id: str, timeout_s: float, *, is_attended: bool = False) -> dict[str, Any]:
        """Return the record once the request has ended, or its current state after `timeout_s`.

        Retries while the service restarts or has too many waiting callers. Raises Unreachable or Failed if
        the time is up without an answer.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            left_s = deadline - loop.time()
            wait_s = max(0.0, min(_WAIT_S, left_s))
            try:
                record = await self.call(
                    "GET",
                    f"/confirm/{request_id}?wait={wait_s:.1f}{'&attended=1' if is_attended else ''}",
                    timeout_s=wait_s + _TIMEOUT_S,
                )
                if record["status"] != "pending" or left_s <= 0:
                    return record
            except (Unreachable, Failed) as error:
                is_temporary = isinstance(error, Unreachable) or error.status == _TOO_MANY
                if not is_temporary or left_s <= _RETRY_S:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def consume(self, request_id: str, digest: str, *, idempotency_key: str = "") -> Ticket:
        """Consume an approval. Repeating the call with the same `idempotency_key` returns the same answer.

        Raises Failed if the approval was already used, belongs to another action, or does not exist.
        """
        headers = {"idempotency-key": idempotency_key} if idempotency_key else {}
        answer = await self.call(
            "POST", f"/confirm/{request_id}/consume", {"digest": digest}, headers=headers
        )
        return Ticket(request_id, "consumed", digest, answer["grant"])

    async def report(self, request_id: str, result: str, note: str = "") -> None:
        """Report the result of the action: executed or failed."""
        await self.call("POST", f"/confirm/{request_id}/report", {"result": result, "note": note[:4000]})

    async def cancel(self, request_id: str, reason: str = "") -> dict[str, Any]:
        """Cancel a request."""
        return await self.call("POST", f"/confirm/{request_id}/cancel", {"reason": reason})

    # --- deciding

    async def decide(self, request_id: str, verdict: str, **fields: Unpack[DecisionFields]) -> dict[str, Any]:
        """Approve or deny a request. Raises Failed if `digest` is given and the request has another one."""
        body = {name: value for name, value in fields.items() if value}
        return await self.call("POST", f"/confirm/{request_id}/{verdict}", body)

    async def list(self, status: str = "pending", limit: int = 50) -> list[dict[str, Any]]:
        """Return requests, newest first."""
        try:
            answer = await self.call("GET", f"/confirm?status={status}&limit={limit}")
        except Failed as error:
            if error.status in (404, 405):  # the service always answers this call
                raise not_the_service(self.url) from error
            raise
        if not isinstance(requests := answer.get("requests"), list):
            raise not_the_service(self.url)
        return cast("list[dict[str, Any]]", requests)

    async def events(self, after_id: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield events as they arrive: those after `after_id`, or new ones only.

        A lost connection is resumed after the last event. Raises Failed, or Unreachable if the connection is
        lost before the first event and `after_id` is None.
        """
        while True:
            headers = {} if after_id is None else {"last-event-id": str(after_id)}
            try:
                async with self._http.stream(
                    "GET", "/events", headers=headers, timeout=httpx2.Timeout(_TIMEOUT_S, read=_BEAT_S)
                ) as answer:
                    if answer.status_code >= 400:
                        body = from_json(await answer.aread(), dict[str, Any])
                        raise Failed(str(body.get("error")), status=answer.status_code, body=body)
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            event = from_json(line[6:], dict[str, Any])
                            after_id = int(event["id"])
                            yield event
            except (httpx2.HTTPError, OSError) as error:
                if after_id is None:
                    raise self._unreachable(error) from error
            await asyncio.sleep(_RETRY_S)

    async def call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> dict[str, Any]:
        """Make one call and return its JSON. Raises Failed for a status of 400 or more, or Unreachable."""
        try:
            answer = await self._http.request(method, path, json=body, headers=headers, timeout=timeout_s)
            if answer.status_code == 401 and take_rotated_token(self._http, self._token_path):
                answer = await self._http.request(method, path, json=body, headers=headers, timeout=timeout_s)
        except (httpx2.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        except (ValueError, RecursionError) as error:  # NaN, a lone surrogate, thousands of nesting levels
            why = "its text holds half a character" if isinstance(error, UnicodeError) else str(error)
            raise Failed(f"this can't be asked: {why}", status=400, body={}) from error
        content = read_content(answer, self.url)
        if answer.status_code >= 400:
            message = str(content.get("error") or f"answered {answer.status_code}")
            wait = answer.headers.get("retry-after", "0")
            raise Failed(
                message,
                status=answer.status_code,
                body=content,
                retry_after_s=float(wait) if wait.isdigit() else 0.0,
            )
        return content

    def _unreachable(self, error: Exception) -> Unreachable:
        return self._problem or Unreachable(
            f"the confirmation service at {self.url} can't be reached ({type(error).__name__})",
            hint=f"start it with: whet confirm serve; if it runs elsewhere, {URL_HINT}",
        )

    async def consume_approval(self, ticket: Ticket, record: dict[str, Any]) -> Ticket:
        """Consume the approval of a request that has ended with this record.

        Raises ConfirmationRefused if it was not approved, and Failed like `consume`.
        """
        status = str(record["status"])
        if status not in ("approved", "auto_approved"):
            raise ConfirmationRefused(_refusal_reason(record), status=status, request_id=ticket.id)
        used = await self.consume(ticket.id, ticket.digest)
        return msgspec.structs.replace(used, resolved_by=str(record.get("resolved_by", "")))

    async def _withdraw(self, submission: asyncio.Task[Ticket]) -> None:
        """Cancel a request once its submission returns: the service may have stored it already."""
        with contextlib.suppress(ConfirmationRefused, Failed, Unreachable):  # the request expires by itself
            ticket = await submission
            await self.cancel(ticket.id, "the caller stopped waiting")


class BlockingClient:
    """The same calls for programs without an event loop.

    Use `client.run(client.calls.confirm(...))`; the three calls that most programs need are plain methods.
    """

    def __init__(self, url: str = "", token: str = "", *, role: str = "submit") -> None:
        self.calls: ConfirmClient = ConfirmClient(url, token, role=role)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.calls.close())
        self._runner.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run one call to its end. Raises RuntimeError inside a running event loop."""
        return self._runner.run(call)

    def confirm(
        self,
        action: str,
        description: str,
        details: dict[str, Any] | None = None,
        ask: ConfirmOptions = _DEFAULT_OPTIONS,
    ) -> Ticket:
        """Ask and wait; see ConfirmClient.confirm."""
        return self.run(self.calls.confirm(action, description, details, ask))

    def submit(
        self,
        action: str,
        description: str,
        details: dict[str, Any] | None = None,
        ask: ConfirmOptions = _DEFAULT_OPTIONS,
    ) -> Ticket:
        """Ask and return at once; see ConfirmClient.submit."""
        return self.run(self.calls.submit(action, description, details, ask))

    def report(self, request_id: str, result: str, note: str = "") -> None:
        """Report the result of the action; see ConfirmClient.report."""
        self.run(self.calls.report(request_id, result, note))


def requires_confirmation(
    action: str, *, describe: str = "", ask: ConfirmOptions = _DEFAULT_OPTIONS, url: str = "", token: str = ""
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function, plain or async, so that it runs only after a person approved this very call.

    The call's arguments are the details; values that are not JSON are shown by their repr. `describe` may
    name arguments in braces. Raises ConfirmationRefused instead of running. The result of the run is
    reported.
    """

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        async def confirm_and_run(call: Callable[[], Any], *args: P.args, **kwargs: P.kwargs) -> Any:
            details = _bind_arguments(signature, args, kwargs)
            text = describe.format_map(details) if describe else f"{function.__qualname__}{signature}"
            async with ConfirmClient(url, token) as client:
                ticket = await client.confirm(action, text, details, ask)
                try:
                    if _bind_arguments(signature, args, kwargs) != details:
                        message = "the arguments changed while a person decided"
                        raise ConfirmationRefused(message, status="refused", request_id=ticket.id)
                    result = call()
                    if inspect.isawaitable(result):
                        result = await result
                except BaseException as error:
                    await _report(client, ticket, "failed", type(error).__name__)
                    raise
                await _report(client, ticket, "executed", "")
                return result

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                return await confirm_and_run(functools.partial(function, *args, **kwargs), *args, **kwargs)

            return cast("Callable[P, T]", run_async)

        @functools.wraps(function)
        def run_blocking(*args: P.args, **kwargs: P.kwargs) -> T:
            call = functools.partial(function, *args, **kwargs)
            return cast("T", asyncio.run(confirm_and_run(call, *args, **kwargs)))

        return run_blocking

    return wrap


async def _report(client: ConfirmClient, ticket: Ticket, result: str, note: str) -> None:
    with contextlib.suppress(Failed, Unreachable):
        # The action has run: a report that can't be stored must not change its outcome.
        await client.report(ticket.id, result, note)


def _bind_arguments(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return {name: _to_json_value(value) for name, value in bound.arguments.items()}


def _to_json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value)
        members = {str(key): _to_json_value(item) for key, item in items.items()}
        # a dict would lose one of two keys that have the same text
        return members if len(members) == len(items) else repr(items)
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in cast("list[Any]", value)]
    return repr(value)


def _refusal_reason(record: dict[str, Any]) -> str:
    status, by = record["status"], record.get("resolved_by") or "nobody"
    reason = f": {record['reason']}" if record.get("reason") else ""
    if status == "pending":
        return "nobody has decided yet"
    if status == "expired":
        return "nobody decided in time; silence is a denial"
    return f"{status} by {by}{reason}"
