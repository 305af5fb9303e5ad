"""How well a second model judges: lessons that were taken for what they say, and for something else.

    python -m benchmarks.judge --provider openai --model gpt-5-mini [--every 4]

The claims are those of the corpora in `lessons/data` that reach a judge at all, twelve a call and mixed. It
asks a real model, so it is no row of the results.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.lessons.pointed import cases, request_of, steps_of
from benchmarks.lessons.world import World
from whet.config.schema import ModelSettings
from whet.contract.messages import Message
from whet.contract.protocols import ModelReply, Provider
from whet.providers.connect import connect_one
from whet.review import wording
from whet.review.judge import read_refused_numbers, write_question
from whet.store.ledger import LedgerRow

_AT_ONCE = 12


async def claimed(folder: Path, every: int) -> list[tuple[str, LedgerRow]]:
    """Give the claims that reach a judge, each with its kind: genuine, or how it is twisted."""
    world, found = World(folder), list[tuple[str, LedgerRow]]()
    for name in ("genuine", "twisted"):
        for case in cases(name, every):
            rows = await world.staged(await world.session(steps_of(case)), [request_of(case)])
            found += [("genuine" if name == "genuine" else case["kind"], row) for row in rows]
    world.close()
    random.Random(7).shuffle(found)
    return found


async def judged(provider: Provider, found: Sequence[tuple[str, LedgerRow]]) -> tuple[Counter[str], int]:
    """Ask about all of them; give how many of each kind it says no to, and the tokens."""
    no, tokens = Counter[str](), 0
    for start in range(0, len(found), _AT_ONCE):
        part = found[start : start + _AT_ONCE]
        link = provider.open(wording.read_prompt("judge.md"), [], "")
        async for item in link.stream(
            [Message(role="user", content=write_question([row for _, row in part]))]
        ):
            if isinstance(item, ModelReply):
                tokens += item.usage.total_tokens
                numbers = {
                    number for number in read_refused_numbers(item.message.text) if 0 < number <= len(part)
                }
                no.update(part[number - 1][0] for number in numbers)
    return no, tokens


async def main() -> None:
    """Run it and print a table."""
    given = argparse.ArgumentParser(description=__doc__)
    for name in ("provider", "model", "base-url", "api-key-env"):
        given.add_argument(f"--{name}", default="", required=name in ("provider", "model"))
    given.add_argument("--every", type=int, default=1)
    args = given.parse_args()
    model = ModelSettings(
        provider=args.provider, model=args.model, base_url=args.base_url, api_key_env=args.api_key_env
    )
    with tempfile.TemporaryDirectory() as name:
        found = await claimed(Path(name), args.every)
    provider = connect_one(model, dict(os.environ))
    try:
        no, tokens = await judged(provider, found)
    finally:
        await provider.aclose()
    of = Counter(kind for kind, _ in found)
    for kind in sorted(of):
        print(f"{kind:14} {no[kind]:4} of {of[kind]:4} held back  {no[kind] / of[kind]:6.1%}")
    print(f"{len(found)} claims, {tokens:,} tokens")


if __name__ == "__main__":
    asyncio.run(main())
