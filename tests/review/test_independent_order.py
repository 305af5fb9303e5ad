"""An order of steps is learned with a model that shares no word with the practice model's world.

The server is the standard library's, the program a kiln that wants a batch warmed before it is fired. The
model reads its request and nothing else: it warms first only where its prompt says so.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.review.independent import Vendor
from tests.review.rig import bench
from whet.agent.loop import run_turn

KILN = """#!/bin/sh
case "$1" in
  warm) touch ".warm-$2"; echo "batch $2 is at 300 degrees" ;;
  fire) if [ -e ".warm-$2" ]; then echo "batch $2 fired"; else
    echo "kiln: cold. Use './kiln warm BATCH' before './kiln fire BATCH'" >&2; exit 4; fi ;;
esac
"""
_ORDER = re.compile(r"'\./kiln (\w+) BATCH' before '\./kiln fire BATCH'")
_STEPS = re.compile(r"`\./kiln (\w+) BATCH`.*`\./kiln fire BATCH`", re.S)


def mind(by_calls: bool) -> Any:
    """Give the model: in a review it quotes the error, or what both calls printed (`by_calls`)."""

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        rows = body["messages"]
        asked = max(at for at, row in enumerate(rows) if row["role"] == "user")
        text, since = (
            rows[asked]["content"],
            [row["content"] for row in rows[asked + 1 :] if row["role"] == "tool"],
        )
        if text.startswith("Self-improvement review"):
            return {"content": "Kept."} if since else _remember(rows[:asked], by_calls)
        batch = re.findall(r"batch (b\d)", text)[0]
        read = "\n".join([rows[0]["content"], *since])
        if any("fired" in said for said in since):
            return {"content": "Fired."}
        named = _ORDER.search(read) or _STEPS.search(read)
        if named and not any("degrees" in said for said in since):
            return _call("terminal", command=f"./kiln {named[1]} {batch}")
        return _call("terminal", command=f"./kiln fire {batch}")

    return answer


def _remember(rows: list[dict[str, Any]], by_calls: bool) -> dict[str, Any]:
    lines = [row["content"].splitlines()[0] for row in rows if row["role"] == "tool"]
    quotes = [line for line in lines if ("cold" not in line) == by_calls]
    content = "`./kiln warm BATCH` comes before `./kiln fire BATCH`."
    return _call("memory", action="add", target="memory", content=content, evidence=quotes)


def _call(name: str, **arguments: object) -> dict[str, Any]:
    fields = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"c{name}", "type": "function", "function": fields}]}


@pytest.mark.slow
@pytest.mark.parametrize("by_calls", [False, True])
def test_the_next_session_does_the_first_step_first(tmp_path: Path, by_calls: bool) -> None:
    async def main() -> list[str]:
        vendor: Any = Vendor(mind=mind(by_calls))
        work = tmp_path / "work"
        work.mkdir()
        (work / "kiln").write_text(KILN)
        (work / "kiln").chmod(0o755)
        try:
            async with bench(tmp_path, server=vendor, settings={"review.free_tokens": "1000000000"}) as b:
                assert (await b.turn("Please fire batch b1")).reason == "answered"
                [done] = await b.review()
                assert done.state == "saved", b.rows()
                session = await b.app.new_session()
                await run_turn(session, session.user_message("Please fire batch b2"), b.events.append)
                calls = [call for message in session.log.messages for call in message.tool_calls]
                return [json.loads(call.arguments)["command"] for call in calls]
        finally:
            vendor.stop()

    assert asyncio.run(main()) == ["./kiln warm b2", "./kiln fire b2"]
