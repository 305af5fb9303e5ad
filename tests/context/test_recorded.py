"""What an engine is asked with, and which list of its is taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.rig import Rig, rig
from tests.context.engines import Puppet
from whet.context.host import EngineHost
from whet.contract.context_engine import ChatRows
from whet.contract.events import Compaction, Notice
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
        known = ""

        async def memory(rows: ChatRows) -> str:
            seen.append(len(rows))
            return known

        await host.compact("", one.events.append)
        host.before_compaction = memory
        await host.compact("", one.events.append)
        known = "Ports are in app.toml."
        await host.compact("the plan", one.events.append)
        tokens = engine.asked[0]["current_tokens"]
        assert tokens > 0 and seen == [2, 2]
        plain = {"current_tokens": tokens, "focus_topic": None, "force": True}
        assert engine.asked == [plain, plain, {**plain, "focus_topic": "the plan", "memory_context": known}]


@pytest.mark.parametrize(
    ("window", "kept", "chars", "is_taken"),
    [
        (100_000, 1, 80_000, True),  # fewer rows: more by 20,000 tokens, but it fits
        (10_000, 1, 80_000, False),  # nor does it fit
        (1_000, 1, 15_000, True),  # more by less than 4,096
        (1_000, 1, 17_000, False),
        (100_000, 2, 80_000, False),  # as many rows, and larger
    ],
)
async def test_a_larger_list_is_taken_where_it_has_fewer_rows_and_is_bearable(
    tmp_path: Path, window: int, kept: int, chars: int, is_taken: bool
) -> None:
    engine = Quiet()
    async with rig(tmp_path, [ScriptedReply("yes")] * 2, engine=engine, window=window) as one:
        await one.turn("hello")
        await one.turn("again")
        engine.act = lambda rows: [{"role": "user", "content": "x" * chars}, *rows[len(rows) - kept :]]
        if kept == 2:
            engine.act = lambda rows: [{"role": "user", "content": "x" * chars}, *rows[1:]]
        one.events.clear()
        said = await host_of(one).compact("", one.events.append)
        assert (said == "compacted") is is_taken, said
        done = [event for event in one.events if isinstance(event, Compaction)]
        told = [event.text for event in one.events if isinstance(event, Notice)]
        assert [event.messages_after for event in done if event.engine == "quiet"] == [2] * is_taken
        assert any("larger than what it replaced" in text for text in told) is not is_taken
