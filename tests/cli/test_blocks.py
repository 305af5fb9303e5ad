"""Blocks are the same however the text was cut into deltas, and none of it gets lost."""

from __future__ import annotations

import pytest

from tests.growing import grows_in_proportion
from whet.terminal.blocks import Blocks, MarkdownBlock

ANSWER = """# Title
para one
still

- a
- b
  nested
  - deeper

  ```py
  x
  ```
- c

1. one
2. two

| a | b |
|---|---|
| 1 | 2 |

text:
```python
def f():

    return 1
```
after
* x
"""


def cut(text: str, size: int) -> list[MarkdownBlock]:
    blocks = Blocks()
    markdown_blocks: list[MarkdownBlock] = []
    for start in range(0, len(text), size):
        markdown_blocks += blocks.feed(text[start : start + size])
    return markdown_blocks + blocks.finish()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_blocks_do_not_depend_on_the_deltas(size: int) -> None:
    assert [(block.text, block.tight) for block in cut(ANSWER, size)] == [
        ("# Title", False),
        ("para one\nstill", False),
        ("- a", False),
        ("- b\n  nested\n  - deeper\n\n  ```py\n  x\n  ```", True),
        ("- c", True),
        ("1. one", False),
        ("2. two", True),
        ("| a | b |\n|---|---|\n| 1 | 2 |", False),
        ("text:", False),
        ("```python\ndef f():\n\n    return 1\n```", False),
        ("after", False),
        ("* x", False),
    ]


def test_no_line_is_lost_or_said_twice() -> None:
    lines = [line for line in ANSWER.split("\n") if line.strip()]
    shown = [line for block in cut(ANSWER, 3) for line in block.text.split("\n") if line.strip()]
    assert shown == lines


def test_the_tail_is_what_no_block_holds_yet() -> None:
    blocks = Blocks()
    assert blocks.feed("one\n\ntwo\nthr") == [MarkdownBlock("one")]
    assert blocks.tail == "two\nthr"
    assert blocks.tail_end(1, 100) == "two\nthr"
    assert blocks.tail_end(5, 2) == "hr"
    assert blocks.finish() == [MarkdownBlock("two\nthr")]
    assert blocks.tail == ""


def test_an_open_fence_is_finished_at_the_end() -> None:
    assert cut("```\na\n\n# not a heading\n- not an item", 4) == [
        MarkdownBlock("```\na\n\n# not a heading\n- not an item")
    ]


def test_a_long_fence_costs_in_proportion() -> None:
    def shown(lines: int) -> None:
        blocks = Blocks()
        blocks.feed("```\n")
        for number in range(lines):
            blocks.feed(f"line {number}\n")
            blocks.tail_end(10, 4000)

    assert grows_in_proportion(shown, 250)
