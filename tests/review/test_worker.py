from __future__ import annotations

import asyncio
from pathlib import Path

from tests.review.rig import LESSON, SAID, bench, corrected, does, says, talk


def test_a_correction_is_reviewed_and_what_it_taught_is_in_the_next_session(tmp_path: Path) -> None:
    script = corrected(does(LESSON, when=SAID), says("Saved one fact."), says("hello"))

    async def main() -> None:
        async with bench(tmp_path, script) as b:
            await talk(b)
            assert [event.kinds for event in b.queued] == [("memory", "skill")]
            [done] = await b.review()
            assert (done.state, done.session_id, done.by_hand) == ("saved", b.session.id, False)
            assert done.summary == "Self-improvement review: Memory updated (1 quote)"
            assert "./check --fast" in b.memory()
            [row] = b.rows()
            assert (row.state, row.origin.write_origin, row.origin.task_id) == (
                "active",
                "review",
                done.job_id,
            )
            assert row.origin.parent_session_id == b.session.id
            [listed] = b.listed()
            assert (listed.state, listed.summary, listed.note) == ("done", done.summary, "")
            assert listed.usage.cache_read_tokens > 0.8 * listed.usage.prompt_tokens
            assert await b.review() == []
            fresh = await b.app.new_session()
            b.session = fresh
            await b.turn("hi")
            assert "./check --fast" in b.server.requests[-1].body.decode()

    asyncio.run(main())
