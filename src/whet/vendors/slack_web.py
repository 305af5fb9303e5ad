"""Slack's Web API: call a method and read its answer. Slack reports most errors with status 200.

It needs no websocket, so the confirmation service can ask for user groups without the extra `slack`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from whet.vendors.http import SendFailed, VendorAnswer, VendorHttp, refused

BASE_URL = "https://slack.com/api"
# According to Slack's documentation, "some aspect of the operation" may have "succeeded before the error".
_MAYBE_DONE = frozenset(("fatal_error", "internal_error"))
_LIMITED = frozenset(("ratelimited", "rate_limited"))
_TRANSIENT = _MAYBE_DONE | _LIMITED | {"service_unavailable", "request_timeout"}
_BARRED = frozenset(
    (
        "invalid_auth",
        "not_authed",
        "token_revoked",
        "token_expired",
        "account_inactive",
        "team_access_not_granted",
    )
)


class SlackAnswer(msgspec.Struct):
    """The fields that Whet reads from the answers of all methods."""

    ok: bool = False
    error: str = ""
    channel: str = ""
    ts: str = ""
    url: str = ""
    user_id: str = ""
    team_id: str = ""
    upload_url: str = ""
    file_id: str = ""
    users: list[str] = msgspec.field(default_factory=list[str])


async def call_method(http: VendorHttp, method: str, body: dict[str, Any]) -> SlackAnswer:
    """Call a method and return its answer. Raises SendFailed."""
    return check_answer(await http.call("POST", f"/{method}", body))


def check_answer(answer: VendorAnswer) -> SlackAnswer:
    """Return the fields of an answer. Raises SendFailed if it reports an error or is invalid."""
    body = answer.read(SlackAnswer) or SlackAnswer()
    if answer.status == 200 and body.ok:
        return body
    if answer.status == 200:
        raise SendFailed(
            f"Slack answered: {body.error or 'something that is not its protocol'}",
            is_final=bool(body.error) and body.error not in _TRANSIENT,
            retry_after_s=answer.retry_after_s,
            maybe_sent=not body.error or body.error in _MAYBE_DONE,
            is_barred=body.error in _BARRED,
            status=429 if body.error in _LIMITED else 200,
        )
    raise refused("Slack", answer, body.error)
