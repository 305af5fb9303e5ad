"""Convert the errors of model servers into our error classes. The class decides who acts on an error.

Each vendor words its errors differently, and only this module reads those words: an overflow of the window
with its limit, exhausted credit, unknown models, waiting times. Sources: the vendors' error pages and the
error texts of llama.cpp, vLLM, Ollama, LM Studio (November 2026). Does no I/O.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from whet.contract.errors import (
    AuthRejected,
    BadRequest,
    ContextOverflow,
    ModelRefused,
    ProviderError,
    QuotaExhausted,
    RateLimited,
    Unavailable,
    UnknownModel,
    WireError,
)
from whet.contract.protocols import ModelInfo
from whet.contract.texts import from_foreign_json
from whet.http1.response import retry_after_s
from whet.log import mask
from whet.providers.refusals import drop_echo, texts_in

_EXCERPT_CHARS = 500
# The patterns are plain texts, because only an error needs them compiled.
_OVERFLOW_WORDS = (
    r"(?i)context_length_exceeded|exceed_context_size|context[_ ]window|maximum context length"
    r"|maximum model length|maximum prompt length|max_model_len|context size|context length|context limit"
    r"|prompt is too long|input is too long|too many input tokens|reduce the length of|input token count"
    r"|input length exceeds|input tokens exceed|request too large for model|max_new_tokens\W{0,3}must be <="
)
_PLAIN_OVERFLOW_WORDS = r"(?i)maximum context length|context size|context window of"
_OVERFLOW_TYPES = {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}
_LIMITS = (
    r"(?i)maximum (?:context|model|prompt) length (?:is|of|:)\s*([\d,_]+)",
    r"(?i)([\d,_]+)\s+(?:tokens )?maximum(?: context length)?",
    r"(?i)exceed context limit:.*>\s*([\d,_]+)",
    r"(?i)maximum number of (?:input )?tokens (?:allowed )?\(?([\d,_]+)",
    r"(?i)context (?:size|length|window)\D{0,12}\(?([\d,_]+)",
    r"(?i)must be <= ([\d,_]+)",
    r"(?i)\bLimit:? ([\d,_]+)",
    r"(?i)>\s*([\d,_]+)",
)
_QUOTA = (
    r"(?i)insufficient_quota|credit balance is too low|insufficient balance|insufficient credits"
    r"|billing_error|billing_hard_limit|requires more credits|run out of credits"
)
_NO_MODEL = (
    r"(?i)model_not_found|not a valid model|no such model|model .{0,80}(?:not found|does not exist|not exist)"
    r"|not found.{0,20}pull"
)
_REFUSED = r"(?i)content_policy|content_filter|content management policy|flagged|safety system|moderation"
_NO_TOOLS = (
    r"(?i)(?:not|n't) support (?:tools?\b|tool[_ ](?:use|call)|function[_ -]call)"
    r"|endpoints found that support tool|--enable-auto-tool-choice|tools param requires --jinja"
)
_REFUSED_HINT = "/undo takes the request back, or the next one is refused with it; or choose another model"
_NO_TOOLS_HINT = (
    "an agent needs a model that can call tools: choose another (whet model list), or start the server with "
    "tool calls (vLLM: --enable-auto-tool-choice --tool-call-parser NAME; llama.cpp: --jinja)"
)
# Not the request's fault: the server could not read a call in the model's answer.
_FAILED_CALL = r"(?i)tool_use_failed|failed_generation"
_TRY_AGAIN = r"(?i)(?:try again|retry) (?:in|after) (?:(\d+)m)?(\d+\.?\d*)\s*(ms|s)"
_DURATION = r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+\.?\d*)s)?(?:(\d+\.?\d*)ms)?"


class ServerError(msgspec.Struct, frozen=True):
    """A server's error object. `kind` joins its type, code and status; `detail` joins all its texts."""

    message: str
    kind: str = ""
    status: int | None = None
    limit_tokens: int | None = None
    retry_after_s: float | None = None
    detail: str = ""


def from_response(
    info: ModelInfo, status: int, headers: Mapping[str, str], body: bytes, where: str
) -> ProviderError:
    """Return the error for an answer with a status other than 2xx. `where` names the host to the person."""
    server_error = read_error(body) or _describe_answer(status, headers, body, where)
    error = classify(info, status, server_error, answered=status)
    wait_s = waiting_time_s(headers)
    if isinstance(error, RateLimited | Unavailable) and wait_s is not None:
        error.retry_after_s = wait_s
    if headers.get("x-should-retry", "").lower() == "false":  # the vendors' own clients follow it too
        error.retryable = False
    error.request_id = headers.get("x-request-id") or headers.get("request-id") or ""
    return error


def from_payload(info: ModelInfo, payload: bytes) -> ProviderError:
    """Return the error for an error object inside a stream that began with 200."""
    server_error = read_error(payload)
    if server_error is None:
        return unreadable_error(info, payload)
    return classify(
        info, server_error.status or _guess_status(server_error), server_error, answered=server_error.status
    )


def unreadable_error(
    info: ModelInfo, data: bytes, subject: str = "something that can't be read"
) -> WireError:
    """Return a WireError with a short, masked excerpt of `data`."""
    excerpt = _excerpt(data)
    error = WireError(
        f"{info.provider} sent {subject}: {excerpt[:120]!r}",
        hint="check model.base_url and model.format (whet config get model.base_url)",
        provider=info.provider,
        model=info.model,
    )
    error.excerpt = excerpt
    return error


def cut_stream_error(info: ModelInfo, reason: str = "") -> Unavailable:
    """Return the error for a stream that ended early. `reason` is the server's own, if it sent one."""
    message = f"{info.provider}: the stream ended before the answer did" + (f": {reason}" if reason else "")
    hint = "trying again usually helps; the session goes on with --continue"
    return Unavailable(message, hint=hint, provider=info.provider, model=info.model)


def refusal_error(info: ModelInfo, why: str = "") -> ModelRefused:
    """Return the error for an answer that the vendor's safety system withheld."""
    return ModelRefused(
        f"{info.provider} declined to answer" + (f": {mask(why)[:200]}" if why else ""),
        hint=_REFUSED_HINT,
        provider=info.provider,
        model=info.model,
    )


def classify(
    info: ModelInfo, status: int, server_error: ServerError, *, answered: int | None
) -> ProviderError:
    """Return the error of the right class. Words take precedence over the status, because vendors reuse
    status codes.

    `answered` is the status that the server sent, or None if `status` is a guess.
    """
    line = f"{info.provider}: {_add_status(mask(server_error.message)[:300], answered)}"
    error = _by_words(info, status, server_error, line) or _by_status(status, server_error, line)
    error.provider, error.model = info.provider, info.model
    error.status, error.code = status, server_error.kind
    error.detail = drop_echo(server_error.detail or server_error.message)
    return error


def _add_status(text: str, answered: int | None) -> str:
    if answered is None or f"HTTP {answered}" in text:
        return text
    return f"{text} (HTTP {answered})" if text else f"HTTP {answered}"


def _by_words(info: ModelInfo, status: int, server_error: ServerError, line: str) -> ProviderError | None:
    text = f"{server_error.kind} {server_error.message}"
    if status in (400, 413, 422, 429, 500) and _is_overflow(
        server_error, text, may_guess=status not in (429, 500)
    ):
        return _overflow(line, server_error)
    if status == 402 or re.search(_QUOTA, text):
        return QuotaExhausted(line, hint=f"add credit at {info.provider}, or set another key or model")
    if status != 429 and re.search(_FAILED_CALL, text):
        # Each attempt costs money, so it is not retried for as long as an outage.
        return WireError(line, hint="the model wrote a call that its server could not read; try again")
    if status in (400, 404, 422, 500, 501) and re.search(_NO_TOOLS, text):
        return BadRequest(line, hint=_NO_TOOLS_HINT)
    if status in (400, 403, 404, 422) and re.search(_NO_MODEL, text):
        return UnknownModel(line, hint="see what the server has: whet model list")
    if status in (400, 403, 422) and re.search(_REFUSED, text):
        return ModelRefused(line, hint=_REFUSED_HINT)
    return None


def _by_status(status: int, server_error: ServerError, line: str) -> ProviderError:
    if status in (401, 403):
        return AuthRejected(line, hint="check the key: whet doctor shows which variable is used")
    if status == 429:
        limited = RateLimited(line, hint="wait, or add another key")
        limited.retry_after_s = server_error.retry_after_s or _find_wait_s(server_error.message)
        return limited
    if status in (408, 409, 425) or status >= 500:
        return Unavailable(line, hint="the server is busy or down; trying again usually helps")
    if status == 413:
        return _overflow(line, server_error)
    if status == 407:
        return BadRequest(line, hint="a proxy wants a name and a password: check HTTPS_PROXY and HTTP_PROXY")
    if status == 404:
        return BadRequest(line, hint="check model.base_url (most end in /v1) and the model: whet model list")
    return BadRequest(
        line, hint="the server did not accept the request's shape: whet model probe shows what it accepts"
    )


def _overflow(line: str, server_error: ServerError) -> ContextOverflow:
    overflow = ContextOverflow(line, hint="start over with /new, or take a model with a larger window")
    overflow.limit_tokens = server_error.limit_tokens or _find_limit(server_error.message)
    return overflow


def read_error(body: bytes) -> ServerError | None:
    """Read the error object of any known vendor from a JSON body, or return None."""
    try:
        value = from_foreign_json(body, object)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if isinstance(value, list) and value:
        value = value[0]  # pyright: ignore[reportUnknownVariableType] - Gemini wraps its error in a list
    if not isinstance(value, dict):
        return None
    outer: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    response = outer.get("response")
    error = outer.get("error") or (response.get("error") if isinstance(response, dict) else None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(error, str):
        return ServerError(error)
    inner: dict[str, Any] = error if isinstance(error, dict) else outer  # pyright: ignore[reportUnknownVariableType]
    message = inner.get("message") or inner.get("detail") or outer.get("message")
    if not message:
        return None
    return _build_error(inner, message if isinstance(message, str) else msgspec.json.encode(message).decode())


def _build_error(inner: dict[str, Any], message: str) -> ServerError:
    code = inner.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else None
    metadata = inner.get("metadata")
    if isinstance(metadata, dict):
        raw = metadata.get("raw")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - OpenRouter: the upstream vendor's words
        message = f"{message}: {raw}" if isinstance(raw, str) else message
    limit = inner.get("n_ctx")
    return ServerError(
        message=message,
        kind=" ".join(str(inner[key]) for key in ("type", "code", "status") if inner.get(key)),
        status=status,
        limit_tokens=limit if isinstance(limit, int) and limit > 0 else None,
        retry_after_s=_retry_delay(inner.get("details")),
        detail="\n".join([message, *texts_in(inner)]),
    )


def _retry_delay(details: Any) -> float | None:
    """Return the seconds in Gemini's {"@type": ".../RetryInfo", "retryDelay": "39s"}, or None."""
    if isinstance(details, list):
        for detail in details:  # pyright: ignore[reportUnknownVariableType]
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            if isinstance(delay, str):
                return _parse_duration_s(delay)
    return None


def _guess_status(server_error: ServerError) -> int:
    """Guess the status that an error object inside a stream would have had."""
    kinds = (
        ("overloaded", 529),
        ("rate_limit", 429),
        ("authentication", 401),
        ("permission", 403),
        ("not_found", 404),
        ("invalid_request", 400),
        ("billing", 402),
        ("too_large", 413),
    )
    for word, status in kinds:
        if word in server_error.kind:
            return status
    return (
        400
        if _is_overflow(server_error, f"{server_error.kind} {server_error.message}", may_guess=True)
        else 500
    )


def _is_overflow(server_error: ServerError, text: str, *, may_guess: bool) -> bool:
    """Return whether an error means that the request is longer than the window. `may_guess`: vague words are
    enough."""
    if server_error.limit_tokens or any(kind in text for kind in _OVERFLOW_TYPES):
        return True
    # A 429 or 500 needs clearer words than a 400, or "rate limit of input tokens" would count as an overflow.
    return bool(re.search(_OVERFLOW_WORDS if may_guess else _PLAIN_OVERFLOW_WORDS, text))


def _find_limit(message: str) -> int | None:
    for pattern in _LIMITS:
        match = re.search(pattern, message)
        digits = re.sub(r"[,_]", "", match.group(1)) if match else ""
        if digits:
            return int(digits)
    return None


def waiting_time_s(headers: Mapping[str, str], now_s: float | None = None) -> float | None:
    """Return the seconds to wait according to the answer's headers, or None if they don't say."""
    now = time.time() if now_s is None else now_s
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    after = headers.get("retry-after")
    return retry_after_s(after, now) if after else _reset_s(headers, now)


def _reset_s(headers: Mapping[str, str], now: float) -> float | None:
    reset = _parse_number(headers.get("x-ratelimit-reset"))
    if reset is not None:
        # Depending on the vendor: seconds to wait, or the epoch in seconds or in milliseconds.
        return max(reset / 1000 - now if reset > 1e12 else reset - now if reset > 1e9 else reset, 0.0)
    waits = [
        _parse_duration_s(headers.get(f"x-ratelimit-reset-{kind}", ""))
        for kind in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{kind}") == "0"
    ]
    known_waits = [wait for wait in waits if wait is not None]
    return max(known_waits) if known_waits else None


def _find_wait_s(message: str) -> float | None:
    match = re.search(_TRY_AGAIN, message)
    if not match:
        return None
    amount = float(match.group(2))
    return int(match.group(1) or 0) * 60 + (amount / 1000 if match.group(3).lower() == "ms" else amount)


def _parse_duration_s(text: str) -> float | None:
    match = re.fullmatch(_DURATION, text.strip())
    if not match or not text.strip():
        return _parse_number(text)
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def _parse_number(text: str | None) -> float | None:
    """Parse a finite number from 0 up, or return None."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def _describe_answer(status: int, headers: Mapping[str, str], body: bytes, where: str) -> ServerError:
    if 300 <= status < 400:
        return ServerError(f"{where} redirects to {headers.get('location', '')[:120]}; set that as base_url")
    is_page = b"<html" in body[:2000].lower() or b"<!doctype" in body[:200].lower()
    excerpt = _excerpt(body)[:120]
    words = "an HTML page" if is_page else repr(excerpt) if excerpt else "no explanation"
    return ServerError(f"{where} answered HTTP {status} with {words}")


def _excerpt(data: bytes) -> str:
    text = mask(data[: _EXCERPT_CHARS * 4].decode("utf-8", "replace"))
    return " ".join(text.split())[:_EXCERPT_CHARS]
