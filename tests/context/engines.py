"""Engines for tests: one that writes down every call, and one that does what a test tells it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from whet.contract.context_engine import ChatRows, ContextEngine


class RecordingEngine(ContextEngine):
    """Compacts to a summary and the last rows when told to; every call is a line of `trace`."""

    def __init__(self, trace: list[str], label: str = "") -> None:
        self.trace = trace
        self.label = label
        self.wants = False
        self.keep = 1
        self.threads: set[str] = set()

    def _write(self, line: str) -> None:
        self.threads.add(threading.current_thread().name)
        self.trace.append(f"{self.label}{line}")

    @property
    def name(self) -> str:
        return "recording"

    def update_model(self, **given: Any) -> None:
        self._write(f"update_model {json.dumps(given, sort_keys=True)}")
        super().update_model(**given)

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self._write(f"on_session_start {session_id} {json.dumps(kwargs, sort_keys=True)}")

    def on_session_end(self, session_id: str, messages: ChatRows) -> None:
        self._write(f"on_session_end {session_id} {shape(messages)}")

    def on_session_reset(self) -> None:
        super().on_session_reset()
        self._write("on_session_reset")

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]
        self._write(f"update_from_response {' '.join(usage)}")

    def should_compress_preflight(self, messages: ChatRows) -> bool:
        self._write(f"should_compress_preflight {shape(messages)}")
        return False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        self._write(f"should_compress {type(prompt_tokens).__name__}")
        wants, self.wants = self.wants, False
        return wants

    def has_content_to_compress(self, messages: ChatRows) -> bool:
        self._write(f"has_content_to_compress {shape(messages)}")
        return len(messages) > 2

    def compress(
        self, messages: ChatRows, current_tokens: int | None = None, focus_topic: str | None = None
    ) -> ChatRows:
        self._write(f"compress {shape(messages)} {type(current_tokens).__name__} focus={focus_topic}")
        self.compression_count += 1
        return [{"role": "user", "content": "Sum."}, *messages[-self.keep :]]

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        self._write("get_tool_schemas")
        return [{"name": "rec_find", "description": "Find.", "parameters": {"type": "object"}}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        self._write(f"handle_tool_call {name} {json.dumps(args)} {shape(kwargs['messages'])}")
        return json.dumps({"found": args})

    def shutdown(self) -> None:
        self._write("shutdown")


class Puppet(ContextEngine):
    """Wants to compact always; `act` gets the rows and gives what compress returns."""

    def __init__(self, act: Callable[[ChatRows], Any], name: str = "puppet") -> None:
        self.act = act
        self.calls = 0
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def update_from_response(self, usage: dict[str, Any]) -> None:
        pass

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True

    def compress(self, messages: ChatRows, **kwargs: Any) -> ChatRows:  # type: ignore[override]
        self.calls += 1
        return self.act(messages)


def shape(messages: ChatRows) -> str:
    """Write a list's roles as letters."""
    return "".join(row["role"][0] for row in messages)
