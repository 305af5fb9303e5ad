"""Merge the streamed pieces of `reasoning_details`, the reasoning blocks of OpenRouter."""

from __future__ import annotations

from typing import Any


def merge_detail(details: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Merge the pieces of one reasoning block into the form of an answer that was not streamed."""
    last = details[-1] if details else None
    if last is None or any(last.get(key) != piece.get(key) for key in ("type", "index")):
        details.append(dict(piece))
        return
    field = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(str(piece.get("type")))
    if field is None:
        details.append(dict(piece))
        return
    for key, value in piece.items():
        if key == field and isinstance(value, str):
            last[key] = f"{last.get(key) or ''}{value}"
        elif value is not None:
            last[key] = value
