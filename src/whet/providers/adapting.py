"""Adapt a dialect to a server's refusal: leave out, fill in or rename the field that the refusal names.

A dialect is how one server wants requests of a wire format written. A refusal counts only if it names
something in the bytes that were sent, or a reasoning field that messages lack. The link tries each change
once and keeps it if the server then answers. Loaded after a refusal only. Does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from whet.config.model_servers import ServerDialect
from whet.contract.errors import ContextOverflow, ProviderError
from whet.providers.output_room import fit_output
from whet.providers.reasoning_details import is_other_reasoning
from whet.providers.refusals import is_named, read_positions

Change = tuple[ServerDialect, str]
"""The new dialect, and the change in words ("X, so Y")."""
_ESSENTIAL = frozenset({"model", "messages", "input", "tools", "stream", "system", "instructions"})
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_REASONING = ("reasoning_content", "reasoning")
_REASONING_NAMES = ("reasoning_content", "reasoning_details", "reasoning")
_CALL_ID = r"(?i)(?:tool[ _]?|function[ _]?)?(?:call|use)s?\W{0,2}[ _]?id\b|tool_(?:calls|use)\S*\.id\b"
_ID_FIELDS = (b'"tool_call_id":', b'"tool_use_id":', b'"call_id":')
_ALTERNATE = r"(?i)\balternat(?:e|es|ing|ion)\b|\brole\W{1,3}user\W{1,3}after role\W{1,3}tool\b"
_ID_RULE = r"(?i)a-z|length|pattern|characters|alphanumeric|too long"
_MISSING = r"(?i)missing|required|must (?:be|have|include|contain)|pass(?:ed)? back|expected"
_WANTED = r"(?i)\bmissing\b|\brequired\b|pass(?:ed)? back"
_TOO_LARGE = r"(?i)too (?:large|big|high|long)|range|exceed|at most|maximum|less than|<="
_IS_MANDATORY = r"(?i)\b(?:reasoning|thinking)\b.{0,40}\b(?:mandatory|can ?not be disabled|not support)"
_EFFORTS = ("reasoning_effort", "reasoning", "thinking")
_UNSIGNED = r"(?i)\bthought[_ ]?signature"
_RESPONSES = r"(?i)v1/responses\b|/responses\b|\bresponses (?:api|endpoint)\b"
_OTHER_ENDPOINT = r"(?i)chat[/_]completions?\b|unsupported_api"
_NULL = r"(?i)\bcontent\b(?![.\[]\w)|\bnull\b|NoneType"


def adapt_common(
    refusal: ProviderError,
    body: bytes,
    dialect: ServerDialect,
    prompt_tokens: int,
    optional: Sequence[str],
) -> Change | None:
    """Return the dialect that avoids a refusal, by changes that fit every wire format: a parameter left out,
    shorter ids, alternating turns. Returns None if there is none. `optional`: the fields inside messages and
    tools that the format can do without."""
    if isinstance(refusal, ContextOverflow):
        return fit_output(refusal, body, dialect, prompt_tokens)
    name = leave_out(refusal, body, optional)
    if limited := _limit_output(name, refusal.detail, body, dialect):
        return limited
    if name:
        left_out = msgspec.structs.replace(dialect, left_out=(*dialect.left_out, name))
        return left_out, f"{name}, so it is left out"
    return _adapt_ids(refusal.detail, body, dialect) or _adapt_turns(refusal.detail, dialect)


def adapt_dialect(
    refusal: ProviderError, body: bytes, dialect: ServerDialect, prompt_tokens: int
) -> Change | None:
    """Return the dialect that avoids a refusal of a Chat Completions request, and the change in words.

    Returns None if the refusal names nothing that can be sent in another way.
    """
    if isinstance(refusal, ContextOverflow):
        return fit_output(refusal, body, dialect, prompt_tokens)
    request, text = _read_request(body), refusal.detail
    rows = cast("list[dict[str, Any]]", request.get("messages") or [])
    positions = [steps[1] for steps in read_positions(text) if steps[0] == "messages"]
    at = next((int(position) for position in positions if position.isdecimal()), None)
    name = leave_out(refusal, body)
    return (
        _adapt_signatures(text, rows, dialect)
        or _adapt_fields(text, rows, at, dialect)
        or _limit_output(name, text, body, dialect)
        or _adapt_parameter(name, dialect)
        or _adapt_endpoint(f"{refusal.code} {text}", dialect)
        or _adapt_ids(text, body, dialect)
        or _adapt_turns(text, dialect)
        or _adapt_role(text, rows, at, dialect)
        or _adapt_content(text, rows, at, dialect)
    )


def leave_out(refusal: ProviderError, body: bytes, optional: Sequence[str] = ()) -> str:
    """Return the request's parameter or optional field that a refusal names, or an empty string."""
    text = refusal.detail
    for name in optional:
        if is_named(text, name) and f'"{name}":'.encode() in body:
            return name
    if read_positions(text):
        return ""
    names = [name for name in _read_request(body) if name not in _ESSENTIAL]
    named = next((name for name in names if is_named(text, name)), "")
    if named or not re.search(_IS_MANDATORY, text):
        return named
    return next((name for name in _EFFORTS if name in names), "")


def _read_request(body: bytes) -> dict[str, Any]:
    value: object = msgspec.json.decode(body)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _adapt_fields(
    text: str, rows: list[dict[str, Any]], at: int | None, dialect: ServerDialect
) -> Change | None:
    """Leave out a field that the server refuses in earlier answers, or fill in one that it requires there."""
    answers = [row for row in rows if row.get("role") == "assistant"]
    callers = [row for row in answers if row.get("tool_calls")]
    if is_named(text, "extra_content") and "extra_content" in dialect.replay_fields:
        return _drop_field("extra_content", dialect)
    others = {name for row in answers for name in row}
    for name in (*_REASONING_NAMES, *filter(is_other_reasoning, sorted(others))):
        if not is_named(text, name):
            continue
        senders = [row for row in rows if name in row]
        lacking = [row for row in callers if name not in row]
        if not lacking and re.search(_WANTED, text):
            lacking = [row for row in answers if name not in row]
        is_missing = bool(lacking)
        if senders and lacking:
            row = rows[at] if at is not None and at < len(rows) else None
            is_missing = name not in row if row is not None else bool(re.search(_MISSING, text))
        if is_missing and name in _REASONING and name != dialect.needs_reasoning:
            fields = tuple(dict.fromkeys((*dialect.replay_fields, name)))
            filled = msgspec.structs.replace(dialect, needs_reasoning=name, replay_fields=fields)
            return filled, f"messages without {name}, so each answer has one"
        if senders:
            return _drop_field(name, dialect)
    return None


def _drop_field(name: str, dialect: ServerDialect) -> Change:
    fields = tuple(field for field in dialect.replay_fields if field != name)
    needed = "" if dialect.needs_reasoning == name else dialect.needs_reasoning
    left_out = (*dialect.left_out, name) if is_other_reasoning(name) else dialect.left_out
    dropped = msgspec.structs.replace(
        dialect, replay_fields=fields, needs_reasoning=needed, left_out=left_out
    )
    return dropped, f"{name} in messages, so it is left out"


def _limit_output(name: str, text: str, body: bytes, dialect: ServerDialect) -> Change | None:
    """Lower the output limit to the number of tokens that a refusal names."""
    sent = _read_request(body).get(name) if "max" in name else None
    if not isinstance(sent, int) or not re.search(_TOO_LARGE, text):
        return None
    numbers = [int(digits.replace(",", "")) for digits in re.findall(r"\b\d[\d,]*\b", text)]
    limit = max((number for number in numbers if 1 < number < sent), default=0)
    if not limit:
        return None
    limited = msgspec.structs.replace(dialect, output_limit=limit)
    return limited, f"{name} above {limit}, so {limit} is sent"


def _adapt_endpoint(text: str, dialect: ServerDialect) -> Change | None:
    """Use the Responses endpoint if a refusal of Chat Completions names it."""
    names_responses = re.search(_RESPONSES, text) or "unsupported_api" in text
    if dialect.endpoint or not names_responses or not re.search(_OTHER_ENDPOINT, text):
        return None
    adapted = msgspec.structs.replace(dialect, endpoint="responses", left_out=())
    return adapted, "chat/completions for this model, so it is asked at /responses"


def _adapt_signatures(text: str, rows: list[dict[str, Any]], dialect: ServerDialect) -> Change | None:
    is_missing = re.search(_UNSIGNED, text) and re.search(_MISSING, text)
    if dialect.signs_calls or not is_missing or not any(row.get("tool_calls") for row in rows):
        return None
    adapted = msgspec.structs.replace(
        dialect,
        signs_calls=True,
        replay_fields=tuple(dict.fromkeys((*dialect.replay_fields, "extra_content"))),
    )
    return adapted, "calls without a thought signature, so those of other models have a placeholder"


def _adapt_parameter(name: str, dialect: ServerDialect) -> Change | None:
    if not name:
        return None
    if name in _LIMITS and _LIMITS[name] not in dialect.left_out and name not in dialect.left_out:
        # If the other name is refused too, both are left out.
        renamed = msgspec.structs.replace(
            dialect,
            max_tokens_field=cast("Any", _LIMITS[name]),
            left_out=(*dialect.left_out, name),
        )
        return renamed, f"{name}, so {_LIMITS[name]} is sent"
    left_out = msgspec.structs.replace(dialect, left_out=(*dialect.left_out, name))
    return left_out, f"{name}, so it is left out"


def _adapt_ids(text: str, body: bytes, dialect: ServerDialect) -> Change | None:
    has_calls = any(field in body for field in _ID_FIELDS)
    if dialect.short_ids or not has_calls or not re.search(_CALL_ID, text) or not re.search(_ID_RULE, text):
        return None
    # Nine letters and digits satisfy the rule of every known server.
    return msgspec.structs.replace(dialect, short_ids=True), "tool call ids, so shorter ones are sent"


def _adapt_turns(text: str, dialect: ServerDialect) -> Change | None:
    if dialect.alternates or not re.search(_ALTERNATE, text):
        return None
    adapted = msgspec.structs.replace(dialect, alternates=True)
    return adapted, "two messages of a user in a row, so a short answer stands between them"


def _adapt_role(
    text: str, rows: list[dict[str, Any]], at: int | None, dialect: ServerDialect
) -> Change | None:
    role = str(rows[0].get("role")) if rows else ""
    is_first = at == 0 and "role" in text
    is_named = at is None and "role" in text.lower() and role in text.lower()
    if role not in ("system", "developer") or not (is_first or is_named):
        return None
    next_role = "developer" if role == "system" and "developer" in text else "user"
    adapted = msgspec.structs.replace(dialect, system_role=cast("Any", next_role))
    return adapted, f"the role {role}, so the instructions are sent as {next_role}"


def _adapt_content(
    text: str, rows: list[dict[str, Any]], at: int | None, dialect: ServerDialect
) -> Change | None:
    if at is not None and at < len(rows):
        # A proxy that sends the instructions apart counts the messages without them.
        is_shifted = rows[0].get("role") in ("system", "developer")
        if not any(map(_is_bare_call, rows[at : at + 1 + is_shifted])):
            return None
    if not re.search(_NULL, text) or not any(map(_is_bare_call, rows)) or dialect.call_content == "absent":
        return None
    content, words = ("empty", "empty") if dialect.call_content == "null" else ("absent", "left out")
    adapted = msgspec.structs.replace(dialect, call_content=cast("Any", content))
    return adapted, f"the content of a message with tool calls, so it is {words}"


def _is_bare_call(row: dict[str, Any]) -> bool:
    return bool(row.get("tool_calls")) and not row.get("content")
