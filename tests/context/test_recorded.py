"""What an engine is asked with, and which list of its is taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.agent.rig import Rig, rig
from tests.context.engines import Puppet
from whet.context.host import EngineHost
from whet.contract.context_engine import ChatRows
from whet_lab.practice.script import ScriptedReply


class Quiet(Puppet):
    """Compacts by hand alone, and keeps what it was asked with."""

    def __init__(self, *given: dict[str, Any]) -> None:
        super().__init__(lambda rows: rows, "quiet")
        self.asked: list[dict[str, Any]] = list(given)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: ChatRows, **kwargs: Any) -> ChatRows:  # type: ignore[override]
        self.asked.append(kwargs)
        return super().compress(messages)


def host_of(one: Rig) -> EngineHost:
    assert isinstance(one.session.context, EngineHost)
    return one.session.context


async def test_an_engine_is_asked_with_the_size_the_focus_and_what_memory_says(tmp_path: Path) -> None:
    engine = Quiet()
    async with rig(tmp_path, [ScriptedReply("yes")], engine=engine) as one:
        await one.turn("hello")
        host, seen = host_of(one), list[int]()
        text = ""

        async def memory(rows: ChatRows) -> str:
            seen.append(len(rows))
            return text

        await host.compact("", one.events.append)
        host.before_compaction = memory
        await host.compact("", one.events.append)
        text = "Ports are in app.toml."
        await host.compact("the plan", one.events.append)
        tokens = engine.asked[0]["current_tokens"]
        assert tokens > 0 and seen == [2, 2]
        plain = {"current_tokens": tokens, "focus_topic": None, "force": True}
        assert engine.asked == [plain, plain, {**plain, "focus_topic": "the plan", "memory_context": text}]
