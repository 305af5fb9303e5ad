"""An editor that does not answer for its files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from acp import Client

from whet.editors import buffers
from whet.editors.editor import Editor


class Silent:
    """An editor that takes requests and answers none."""

    def __init__(self) -> None:
        self.asked = 0

    async def read_text_file(self, **kwargs: Any) -> None:
        self.asked += 1
        await asyncio.get_running_loop().create_future()


async def test_an_editor_that_never_answers_is_given_up_on_after_two_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffers, "ANSWER_LIMIT_S", 0.01)
    silent, texts = Silent(), list[str]()
    editor = Editor(cast(Client, silent))
    editor.reads = editor.writes = True
    held = buffers.EditorBuffers(editor, "session", texts.append)
    for _ in range(4):
        assert await asyncio.to_thread(held.read, Path("/a")) is None
    assert silent.asked == 2
    assert len(texts) == 1 and "what is on disk counts" in texts[0]
