"""A review's course: settled once, tried again, given up; each with a clear line and nothing lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.review.rig import LESSON, SAID, Bench, bench, corrected, does, remember, says, talk, use
from tests.support import beat
from whet.contract.errors import ConfigError, NotFound
from whet.contract.events import ReviewFinished
from whet.review.wording import GO_ON
from whet.store import jobs, session_deletion
from whet.store.leases import HEARTBEAT_S
from whet_lab.practice.script import Fault, ScriptedReply, server_error

SAVED = [does(LESSON, use("skills_list")), says("Saved one fact.")]
"""A step that saves and looks, so that the model is asked once more."""
REVOKED = ScriptedReply(
    fault=Fault(status=401, message="Incorrect API key provided: sk-live-0123456789abcdef0123." + " No." * 99)
)


FAILS = "CREATE TRIGGER full BEFORE UPDATE OF state ON ledger BEGIN SELECT RAISE(ABORT, 'full'); END"


def due_now(b: Bench) -> None:
    b.app.database.write_now(lambda db: db.execute("UPDATE jobs SET run_after = created"))


async def test_a_correction_is_reviewed_and_what_it_taught_is_in_the_next_session(tmp_path: Path) -> None:
    script = corrected(does(LESSON, when=SAID), says("hello"))
    async with bench(tmp_path, script) as b:
        await talk(b)
        assert [event.kinds for event in b.queued] == [("memory", "skill")]
        [done] = await b.review()
        assert (done.state, done.session_id, done.by_hand) == ("saved", b.session.id, False)
        assert done.summary == "Self-improvement review: Memory updated (1 quote)"
        assert "./check --fast" in b.memory()
        [row] = b.rows()
        assert (row.state, row.origin.write_origin, row.origin.task_id) == ("active", "review", done.job_id)
        assert row.origin.parent_session_id == b.session.id
        [listed] = b.listed()
        assert (listed.state, listed.summary, listed.note) == ("done", done.summary, "")
        assert listed.usage.cache_read_tokens > 0.7 * listed.usage.prompt_tokens
        assert await b.review() == []
        b.session = await b.app.new_session()
        await b.turn("hi")
        assert "./check --fast" in b.server.requests[-1].body.decode()


async def test_a_review_ends_without_another_request_once_its_lessons_are_taken(tmp_path: Path) -> None:
    lost = remember("They run on Mars.", "on Mars it is")
    async with bench(tmp_path, corrected(does(LESSON), does(LESSON), says("Done."))) as b:
        await talk(b)
        [done] = await b.review()
        assert (done.state, done.note, len(b.server.requests)) == ("saved", "", 3)
        assert "Hand in all lessons in one answer" in b.server.requests[-1].body.decode()
        queued = await b.app.reviews.queue_review(b.session.id)
        await b.app.reviews.run(queued.job_id)
        assert len(b.server.requests) == 5, "by hand the model ends it"
    async with bench(tmp_path, corrected(does(lost), says("Done."))) as b:
        await talk(b)
        await b.review()
        assert len(b.server.requests) == 4, "a refused lesson can be pointed at better"


async def test_nothing_to_save_is_a_good_end_and_garbage_is_no_harm(tmp_path: Path) -> None:
    garbage = does(
        use("memory", action="explode"),
        use("memory", action="add", content="The tests run on Mars.", evidence=["on Mars it is"]),
        use("skill_manage", action="create", name="../../etc", content="no front matter"),
    )
    async with bench(tmp_path, corrected(garbage, says("{]"))) as b:
        await talk(b)
        [done] = await b.review()
        assert (done.state, done.note) == ("nothing", "")
        assert "nothing saved, 1 refused" in done.summary, "what was refused is told"
        assert b.memory() == "" and [row for row in b.rows() if row.state == "active"] == []


async def test_a_loop_ends_at_the_limit_of_steps_and_keeps_what_it_saved(tmp_path: Path) -> None:
    again = [does(use("skills_list", query=str(n))) for n in range(20)]
    async with bench(tmp_path, corrected(SAVED[0], *again), settings={"review.max_steps": "4"}) as b:
        await talk(b)
        b.app.database.write_now(lambda db: db.execute(FAILS))
        assert [done.state for done in await b.review()] == ["waiting"]
        b.app.database.write_now(lambda db: db.execute("DROP TRIGGER full"))
        due_now(b)
        [done] = await b.review()
        assert done.state == "saved" and "4 steps" in done.note
        assert len(b.server.requests) == 2 + 4, "it had come to its end before"


@pytest.mark.slow
async def test_a_model_that_stalls_is_stopped_at_the_time_limit_and_what_was_saved_stays(
    tmp_path: Path,
) -> None:
    stalls = ScriptedReply("never", fault=Fault(stall_after=-1))
    settings = {"review.timeout_s": "0.5"}
    async with bench(tmp_path, corrected(SAVED[0], stalls), settings=settings) as b:
        await talk(b)
        [done] = await b.review()
        b.server.release()
        assert done.state == "saved" and "limit" in done.note
        assert b.memory().count("./check --fast") == 1
        assert await b.review() == [], "it has come to its end"


async def test_a_long_review_keeps_its_lease_and_ends_where_another_worker_took_it(tmp_path: Path) -> None:
    stalls = ScriptedReply("never", fault=Fault(stall_after=-1))
    async with bench(tmp_path, corrected(SAVED[0], stalls)) as b:
        await talk(b)
        running = asyncio.create_task(b.review())
        await asyncio.to_thread(b.server.wait_for_stall)
        b.app.database.write_now(lambda db: db.execute("UPDATE jobs SET lease_until = 'long ago'"))
        await beat(b.app.database, HEARTBEAT_S)
        assert b.jobs()[0].lease_until != "long ago"
        b.app.database.write_now(lambda db: db.execute("UPDATE jobs SET owner = 'w2', lease_until = '9999'"))
        await beat(b.app.database, HEARTBEAT_S)
        assert await running == [], "it is the other worker's"
        b.server.release()
        assert [job.owner for job in b.jobs()] == ["w2"]
        assert [row.state for row in b.rows()] == ["staged"], "and so is what was saved"


async def test_a_revoked_key_is_one_line_and_the_review_waits_for_the_person(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected(REVOKED, *SAVED)) as b:
        await talk(b)
        [done] = await b.review()
        assert done.state == "waiting" and done.until and "\n" not in done.note
        assert "0123456789abcdef" not in done.note, "a vendor may quote the key"
        assert len(done.note) == 300 and done.until > b.jobs()[0].created
        assert await b.review() == [], "not before its time"
        due_now(b)
        assert [again.state for again in await b.review()] == ["saved"]
        reviews = [r for r in b.server.requests if b"Self-improvement" in r.body]
        assert reviews[0].body == reviews[1].body, "started over, byte for byte"


async def test_a_review_that_broke_in_the_middle_goes_on_and_saves_nothing_twice(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected(SAVED[0], server_error(), SAVED[1])) as b:
        await talk(b)
        [done] = await b.review()
        assert done.state == "waiting"
        assert [row.state for row in b.rows()] == ["staged"] and b.memory() == ""
        due_now(b)
        [done] = await b.review()
        assert done.state == "saved" and [row.state for row in b.rows()] == ["active"]
        assert GO_ON in b.server.requests[-1].body.decode()
        assert b.memory().count("./check --fast") == 1


async def test_a_review_that_cannot_be_stored_waits_and_says_why(tmp_path: Path) -> None:
    fails = (
        "CREATE TRIGGER full BEFORE INSERT ON messages WHEN new.content LIKE '%Saved one fact%'"
        " BEGIN SELECT RAISE(ABORT, 'no'); END"
    )
    async with bench(tmp_path, corrected(*SAVED, SAVED[1])) as b:
        await talk(b)
        b.app.database.write_now(lambda db: db.execute(fails))
        [done] = await b.review()
        assert (done.state, done.note) == ("waiting", "another process has continued this session")
        b.app.database.write_now(lambda db: db.execute("DROP TRIGGER full"))
        due_now(b)
        assert [again.state for again in await b.review()] == ["saved"]


@pytest.mark.slow
async def test_after_five_failures_it_is_given_up_and_can_be_asked_for_again(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected(SAVED[0], *[server_error()] * 5, *SAVED)) as b:
        await talk(b)
        states: list[str] = []
        waits: list[str] = []
        for _ in range(5):
            states += [done.state for done in await b.review()]
            waits += [job.run_after for job in b.jobs()]
            due_now(b)
        assert states == ["waiting"] * 4 + ["failed"]
        assert waits[0] < waits[1] < waits[2]
        assert [row.state for row in b.rows()] == ["rejected"] and b.memory() == ""
        [row] = b.listed()
        assert row.state == "failed" and row.failures == 5 and row.note
        queued = await b.app.reviews.queue_review(b.session.id)
        done = await b.app.reviews.run(queued.job_id)
        assert done is not None and done.state == "saved" and "./check" in b.memory()


async def test_a_refusal_by_the_vendor_is_not_tried_again(tmp_path: Path) -> None:
    refused = ScriptedReply("I can't help with that.", stop="refusal")
    async with bench(tmp_path, corrected(refused), wire="anthropic_messages") as b:
        await talk(b)
        assert [done.state for done in await b.review()] == ["failed"]


async def test_a_session_deleted_or_made_private_before_its_review(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected(says("hi"), says("ok"))) as b:
        await talk(b)
        await b.session.log.details.set_private(True)
        [done] = await b.review()
        assert done.state == "failed" and "private" in done.note
        [listed] = b.listed()
        assert (listed.state, listed.note) == ("failed", done.note) and listed.finished > listed.created
        with pytest.raises(ConfigError, match="private"):
            await b.app.reviews.queue_review(b.session.id)
        b.session = await b.app.new_session()
        await talk(b)
        await b.app.database.write(lambda db: session_deletion.delete_session(db, b.session.id))
        [done] = await b.review()
        assert done.state == "failed" and "no session" in done.note
        assert len(b.server.requests) == 4, "neither was sent anywhere"
        assert [job.state for job in b.jobs()] == ["failed", "failed"]


async def test_a_review_whose_worker_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected(server_error(), *SAVED)) as b:
        await talk(b)
        b.app.database.write_now(lambda db: db.execute("UPDATE jobs SET attempts = 39"))
        assert [done.state for done in await b.review()] == ["waiting"], "the fortieth try is one more"
        due_now(b)
        [done] = await b.review()
        assert done.state == "failed" and "begun 41 times" in done.note
        assert done.until == "" and len(b.server.requests) == 3


async def test_switched_off_means_no_request_also_for_what_waits(tmp_path: Path) -> None:
    async with bench(tmp_path, corrected(*SAVED)) as b:
        await talk(b)
        session_id, server = b.session.id, b.server
        async with bench(
            tmp_path, server=server, session_id=session_id, settings={"review.writes": "off"}
        ) as off:
            assert await off.review() == []
            with pytest.raises(ConfigError, match="off"):
                await off.app.reviews.queue_review(session_id)
        assert len(server.requests) == 2 and [job.state for job in b.jobs()] == ["waiting"]
        assert [done.state for done in await b.review()] == ["saved"]


async def test_in_mode_ask_it_waits_in_the_inbox_and_a_word_brings_it_into_force(tmp_path: Path) -> None:
    host = "Remember that the deploy host is called stg-2."
    second = remember("The deploy host is called stg-2.", "the deploy host is called stg-2")
    script = [*corrected(), says("Noted."), does(LESSON, second), says("Two.")]
    async with bench(tmp_path, script, settings={"review.writes": "ask"}) as b:
        await talk(b)
        await b.turn(host)
        [done] = await b.review()
        assert (done.state, len(done.ledger_ids)) == ("saved", 2)
        assert done.summary.endswith("2 wait for you: whet review inbox")
        assert b.memory() == ""
        accepted, rejected = done.ledger_ids
        await b.app.reviews.learning.accept(accepted)
        await b.app.reviews.learning.reject(rejected)
        assert "./check --fast in this project" in b.memory() and "stg-2" not in b.memory()


async def test_the_daily_budget_is_a_ceiling(tmp_path: Path) -> None:
    """Nothing is sent that is expected to pass it, in the middle of a review neither."""

    async with bench(tmp_path, corrected(*SAVED), settings={"review.daily_tokens": "100"}) as b:
        await talk(b)
        [done] = await b.review()
        assert done.state == "waiting" and "budget" in done.note and len(b.server.requests) == 2
        assert done.until > b.jobs()[0].created
        context = b.session.log.session.usage.total_tokens // 2
        session_id, server = b.session.id, b.server
        limit = {"review.daily_tokens": str(context * 2 + 800)}
        due_now(b)
        async with bench(tmp_path, server=server, session_id=session_id, settings=limit) as rich:
            [done] = await rich.review()
            spent = rich.listed()[0].usage.total_tokens
            assert 0 < spent <= int(limit["review.daily_tokens"])
            assert (done.state, len(server.requests)) == ("saved", 3), "one call, and what it saved holds"
            assert "budget" in done.note


async def test_a_limit_in_money_is_not_kept_by_guessing(tmp_path: Path) -> None:
    settings = {"review.daily_usd": "1"}
    async with bench(tmp_path, corrected(*SAVED), settings=settings) as b:
        await talk(b)
        [done] = await b.review()
        known = b.session.model.input_usd_per_mtok is not None
        assert done.state == ("saved" if known else "waiting")
        assert known or "price" in done.note


async def test_a_stopped_worker_frees_the_job_and_the_next_one_goes_on_in_the_same_child(
    tmp_path: Path,
) -> None:
    stall = ScriptedReply("x", fault=Fault(stall_after=-1))
    async with bench(tmp_path, corrected(SAVED[0], stall, SAVED[1])) as b:
        await talk(b)
        running = asyncio.create_task(b.review())
        await asyncio.to_thread(b.server.wait_for_stall)
        assert await b.app.reviews.run(b.jobs()[0].id) is None, "one review of a conversation at a time"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        [job] = b.jobs()
        assert (job.state, job.owner) == ("waiting", "")
        child = b.listed()[0].review_session_id
        [done] = await b.review()
        assert (done.state, done.review_session_id) == ("saved", child)
        assert [row.state for row in b.rows()] == ["active"]


@pytest.mark.parametrize("fault", [Fault(stall_after=-1), Fault(stall_after=0, error_after=1)])
async def test_a_worker_that_lost_its_lease_writes_nothing(tmp_path: Path, fault: Fault) -> None:
    stall = ScriptedReply("Saved.", fault=fault)
    async with bench(tmp_path, corrected(SAVED[0], stall, SAVED[1])) as b:
        await talk(b)
        slow = asyncio.create_task(b.review())
        await asyncio.to_thread(b.server.wait_for_stall)
        b.app.database.write_now(
            lambda db: db.execute("UPDATE jobs SET owner = 'x', attempts = attempts + 1")
        )
        b.server.release()
        assert await slow == []
        assert [row.state for row in b.rows()] == ["staged"] and b.memory() == ""
        assert [(job.state, job.owner) for job in b.jobs()] == [("running", "x")]


async def test_an_order_that_cannot_be_read_is_given_up(tmp_path: Path) -> None:
    async with bench(tmp_path, []) as b:
        new = jobs.NewJob("review", '{"from": "the future"}')
        b.app.database.write_now(lambda db: jobs.enqueue(db, new, b.app.clock))
        told: list[ReviewFinished] = []
        b.app.reviews.listeners.append(told.append)
        [done] = await b.review()
        assert done.state == "failed" and "can't be read" in done.note and told == [done]


async def test_what_cannot_be_reviewed_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("hi")]) as b:
        with pytest.raises(NotFound, match="nothing was finished"):
            await b.app.reviews.queue_review(b.session.id)
        with pytest.raises(NotFound):
            await b.app.reviews.queue_review("absent")
