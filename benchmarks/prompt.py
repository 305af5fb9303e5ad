"""How large the first request for `hi` is: system prompt, tools and message, at 4 characters a token."""

from __future__ import annotations

import json

from benchmarks.startup import first_request
from benchmarks.table import Row


def run(runs: int, full: bool) -> list[Row]:
    """All default tools, and file and terminal only."""
    rows: list[Row] = []
    for name, options, goal in (
        ("default tools", (), 1_700),
        ("file and terminal only", ("--toolsets", "file,terminal"), 900),
    ):
        body = json.loads(first_request(["hi"], *options).first)
        tools = json.dumps(body["tools"], ensure_ascii=False, separators=(",", ":"))
        messages = json.dumps(body["messages"], ensure_ascii=False, separators=(",", ":"))
        tokens = (len(tools) + len(messages)) / 4
        rows.append(
            Row(
                f"prompt-{name.split()[0]}",
                f"first request for `hi`, {name} ({len(body['tools'])} tools)",
                f"≤ {goal:,} tokens",
                f"{tokens:,.0f} tokens",
                "hermes-agent 13,746; pi with 4 tools 3,400 (published run)",
                tokens <= goal,
                "python -m benchmarks prompt",
            )
        )
    return rows
