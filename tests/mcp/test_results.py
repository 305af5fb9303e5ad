"""What of a server's result reaches the model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from whet.mcp.results import as_output

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
ITEMS: dict[str, object] = {"items": [{"id": "T-77", "title": "Boiler"}], "more": False}


def text_of(structured: object, *blocks: dict[str, Any]) -> str:
    output = as_output("notes", {"content": list(blocks), "structuredContent": structured}, {}, 9_000)
    return output.text.partition("\n")[2]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_a_structured_result_reaches_the_model_beside_a_short_text() -> None:
    """https://github.com/anomalyco/opencode/issues/38923"""
    assert text_of(ITEMS, text("1 item")) == '1 item\n{"items":[{"id":"T-77","title":"Boiler"}],"more":false}'


@pytest.mark.parametrize(
    ("structured", "blocks"),
    [
        (ITEMS, [json.dumps(ITEMS, indent=1)]),
        ({"name": "Café"}, ['{"name": "Caf\\u00e9"}']),
        ({"result": "a plan\nof two lines"}, ["a plan\nof two lines"]),
        ({"result": [3, 5]}, ["3", "5"]),
        ({"result": None}, ["nothing, which is null"]),
        ({"found": True, "n": 2.5}, ["found: true, n: 2.5"]),
        ({}, ["empty"]),
    ],
)
def test_a_structured_result_that_the_text_tells_is_not_said(structured: object, blocks: list[str]) -> None:
    assert text_of(structured, *(text(block) for block in blocks)) == "\n".join(blocks)


def test_a_picture_and_a_structured_result_both_reach_the_model() -> None:
    """https://github.com/anthropics/claude-code/issues/54737"""
    picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
    output = as_output("notes", {"content": [picture], "structuredContent": {"width": 640}}, {}, 9_000)
    assert len(output.images) == 1 and output.text.splitlines()[1:] == [
        "[image 1, image/png]",
        '{"width":640}',
    ]


def test_a_deep_or_large_structured_result_is_compared_in_bounded_time() -> None:
    deep: object = "end"
    for _ in range(60):
        deep = {"in": deep}
    large = {"rows": ["y" for _ in range(200_000)]}
    assert "end" in text_of(deep, text("x"))
    assert text_of(large, text("y" * 5_000)) == "y" * 5_000
