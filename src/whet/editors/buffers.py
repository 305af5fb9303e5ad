"""Let a session's tools read and write the files that the editor has open, unsaved changes included.

They wait for the editor's answer in their own threads. An editor that does not answer delays a call by
seconds, but not the cancellation of a turn. After two failures the tools use only the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, TypeVar

from acp import RequestError

from whet.editors.editor import Editor
from whet.lanes import call_in_loop

T = TypeVar("T")
ANSWER_LIMIT_S = 5.0
_MAX_FAILURES = 2
_NO_SUCH_METHOD = -32601


class EditorBuffers:
    """The editor's files of one session. `report` gets a line when the editor is not asked any more.

    Create it in the event loop of the editor's connection, and call `read` and `write` in other threads.
    """

    def __init__(self, editor: Editor, session_id: str, report: Callable[[str], None]) -> None:
        self._editor = editor
        self._session_id = session_id
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._failures = 0
        self._seen: dict[Path, str] = {}
        self._replaced: dict[str, tuple[str | None, str]] = {}

    def read(self, path: Path) -> str | None:
        """Return a file's text from the editor, or None if the editor does not provide it."""
        if not self._editor.reads:
            return None
        answer = self._ask(
            lambda: self._editor.client.read_text_file(session_id=self._session_id, path=str(path))
        )
        if answer is None:
            self._seen.pop(path, None)
            return None
        self._seen[path] = answer.content
        return answer.content

    def write(self, path: Path, text: str) -> bool:
        """Let the editor apply and save a text. Returns False if it did not."""
        if not self._editor.writes:
            return False
        before = self._seen.pop(path, None)
        if not self._ask(lambda: self._write(path, text)):
            return False
        self._replaced[str(path)] = (before, text)
        return True

    def take_writes(self) -> dict[str, tuple[str | None, str]]:
        """Return the texts written since the last call, by path, as (text before, text after)."""
        replaced, self._replaced = self._replaced, {}
        return replaced

    async def _write(self, path: Path, text: str) -> bool:
        await self._editor.client.write_text_file(session_id=self._session_id, path=str(path), content=text)
        return True

    def _ask(self, request: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Return the editor's answer to a request, or None without one."""
        if self._failures >= _MAX_FAILURES or self._loop.is_closed():
            return None
        future = asyncio.run_coroutine_threadsafe(request(), self._loop)
        try:
            answer = future.result(ANSWER_LIMIT_S)
        except TimeoutError:
            future.cancel()
            self._count_failure()
            return None
        except RequestError as error:
            if error.code == _NO_SUCH_METHOD:
                self._failures = _MAX_FAILURES
            return None
        except (ConnectionError, CancelledError, ValueError):
            return None
        self._failures = 0
        return answer

    def _count_failure(self) -> None:
        self._failures += 1
        if self._failures == _MAX_FAILURES:
            line = "The editor does not answer for its files; what is on disk counts from here on."
            call_in_loop(self._loop, self._report, line)
