"""Merge the streamed pieces of reasoning blocks, and collect reasoning fields that only some servers have.

OpenRouter has `reasoning_details`, LiteLLM `thinking_blocks`, Copilot `reasoning_opaque`. A server may refuse
its own earlier answers without them.
"""

from __future__ import annotations

from typing import Any, cast

from whet.config.model_servers import REASONING_FIELDS
from whet.contract.texts import NOT_JSON, from_json
from whet.late import late_pattern

_IN_DATA = late_pattern(rb'"((?:reasoning|think|thought)\w*)":')
_NAME = late_pattern(r"(?:reasoning|think|thought)\w*\Z")
_KNOWN = frozenset((*REASONING_FIELDS, "reasoning_tokens"))
_NOT_TEXT = ("opaque", "signature", "encrypted", "id")


def merge_detail(details: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Add a piece to `details`: merge it into the last block if it continues that, else append it. The result
    is the list that an answer without streaming has."""
    last = details[-1] if details else None
    if last is None or any(last.get(key) != piece.get(key) for key in ("type", "index")):
        details.append(dict(piece))
        return
    field = {"reasoning.text": "text", "reasoning.summary": "summary", "thinking": "thinking"}.get(
        str(piece.get("type"))
    )
    if field is None or (field == "thinking" and last.get("signature")):
        details.append(dict(piece))
        return
    for key, value in piece.items():
        if key == field and isinstance(value, str):
            last[key] = f"{last.get(key) or ''}{value}"
        elif value is not None:
            last[key] = value


def read_other_reasoning(data: bytes, kept: dict[str, Any]) -> str:
    """Add an event's reasoning fields with a name of the server's own to `kept`, and return the readable text
    in them."""
    if data.find(b'"rea') < 0 and data.find(b'"th') < 0:  # `in` costs more, and a pattern ten times that
        return ""
    names = {name.decode() for name in _IN_DATA.findall(data)} - _KNOWN
    if not names:
        return ""
    try:
        event = from_json(data, dict[str, Any])
        choice = event["choices"][0]
        delta: dict[str, object] = choice.get("delta") or choice.get("message") or {}
    except (*NOT_JSON, LookupError, TypeError, AttributeError):
        return ""
    texts: list[str] = []
    for name in names.intersection(delta):
        value = delta[name]
        if isinstance(value, str) and isinstance(kept.get(name, ""), str):
            kept[name] = kept.get(name, "") + value
            texts += [] if any(word in name for word in _NOT_TEXT) else [value]
        elif isinstance(value, list) and isinstance(kept.setdefault(name, []), list):
            for piece in cast("list[object]", value):
                if isinstance(piece, dict):
                    merge_detail(kept[name], cast("dict[str, Any]", piece))
    return "".join(texts)


def is_other_reasoning(name: str) -> bool:
    """Return whether a message's field contains reasoning but has a name of the server's own."""
    return name not in _KNOWN and bool(_NAME.match(name))
