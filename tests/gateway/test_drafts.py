"""The answer as it grows, and the outbox that puts the whole one in its place: neither disturbs the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.gateway.test_outbox_order import AWAY, Notes, Post, posting
from whet.contract.channels import ChatPlace, Outgoing, PlatformLimits, SendFailed
from whet.contract.events import ReasoningDelta, StreamRestarted, TextDelta, ToolFinished, ToolStarted
from whet.gateway.deliveries import DRAFT, DeliveryWaits
from whet.gateway.drafts import Drafts, MessageDraft
from whet.store import chats
from whet.store.database import StateDatabase

LONG = "a long answer that grows word by word "


class Slow(Notes):
    """A board on which changes may be made at any pace, and whose changes wait while `holds_edits` is set."""

    holds_edits: asyncio.Event | None = None
    edits_begun = 0
    pause_s = 0.0

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        self.edits_begun += 1
        if self.pause_s:
            raise SendFailed("too many", retry_after_s=self.pause_s)
        if self.holds_edits is not None:
            await self.holds_edits.wait()
        await super().edit(place, ref, message)


def _begun(post: Post, board: Slow, drafts: Drafts, chat: int) -> MessageDraft:
    board.limits = PlatformLimits(1000, 0.001, 0.001)
    record = post.database.read_now(lambda db: chats.get_chat(db, chat))
    draft = MessageDraft(post.database, board, record, post.deliveries, first_after_s=0.001)
    drafts.begin(draft)
    return draft


def _slow(post: Post) -> Slow:
    board = post.board = Slow(post.clock)
    return board


async def _shown(post: Post, board: Slow, draft: MessageDraft) -> None:
    draft.handle_event(TextDelta(LONG * 2))
    await post.until(lambda: len(board.said) == 1)


async def test_the_outbox_waits_for_a_change_of_the_draft_that_is_on_its_way(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        board, drafts = _slow(post), Drafts()
        chat = await post.put()
        draft = _begun(post, board, drafts, chat)
        await _shown(post, board, draft)
        board.holds_edits = asyncio.Event()
        draft.handle_event(TextDelta(LONG))
        await post.until(lambda: board.edits_begun == 1)
        settled = asyncio.create_task(drafts.end_if_shown(chat))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not settled.done() and board.edits == []
        board.holds_edits.set()
        await settled
        assert len(board.edits) == 1
        draft.handle_event(TextDelta(LONG))
        await asyncio.sleep(0.02)  # long enough for another change, if one were made
        assert len(board.edits) == 1


async def test_a_platform_that_asks_for_a_pause_gets_it(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        board, drafts = _slow(post), Drafts()
        draft = _begun(post, board, drafts, await post.put())
        await _shown(post, board, draft)
        board.pause_s = 60.0
        draft.handle_event(TextDelta(LONG))
        await post.until(lambda: board.edits_begun == 1)
        board.pause_s = 0.0
        draft.handle_event(TextDelta(LONG))
        await asyncio.sleep(0.02)  # long enough for another try, if one were made
        assert board.edits_begun == 1


async def test_the_answer_before_does_not_end_a_draft_that_shows_nothing_yet(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        board, drafts = _slow(post), Drafts()
        chat = await post.put()
        draft = _begun(post, board, drafts, chat)
        await drafts.end_if_shown(chat)
        await _shown(post, board, draft)
        await drafts.end(chat)
        draft.handle_event(TextDelta(LONG))
        await asyncio.sleep(0.02)
        assert board.edits == [] and len(board.said) == 1


async def test_a_draft_waits_until_what_was_said_before_it_has_been_sent(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        drafts, board = Drafts(), post.board
        board.holds = asyncio.Event()
        chat = await post.put(Outgoing("the answer before"))
        post.deliveries.wake(chat)
        await post.until(lambda: board.is_held)
        other = Slow(post.clock)
        draft = _begun(post, other, drafts, chat)
        draft.handle_event(TextDelta(LONG * 2))
        await asyncio.sleep(0.02)
        assert other.said == []
        board.holds.set()
        await post.until(lambda: len(other.said) == 1)
        await drafts.end(chat)


async def test_an_answer_given_up_leaves_no_draft_and_another_message_untouched(tmp_path: Path) -> None:
    def drafts(database: StateDatabase, chat: int) -> str:
        return database.read_now(lambda db: chats.get_chat(db, chat)).draft

    async with posting(tmp_path, waits=DeliveryWaits(retry_s=0.0)) as post:
        chat = await post.put(Outgoing("a file of before"))
        await post.database.append(lambda db: chats.set_draft(db, chat, "r9"))
        post.board.failing += [AWAY] * 12
        await post.go(chat)
        assert post.texts("failed") == ["a file of before"] and drafts(post.database, chat) == "r9"
        post.board.edit_failures += [AWAY] * 12
        await post.go(await post.put(Outgoing("the answer", edits=DRAFT)))
        assert post.texts("failed") == ["a file of before", "the answer"]
        assert drafts(post.database, chat) == ""


async def test_a_draft_goes_on_after_a_failure_that_passes_not_after_one_that_stays(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        board, drafts = _slow(post), Drafts()
        chat = await post.put()
        draft = _begun(post, board, drafts, chat)
        await _shown(post, board, draft)
        board.edit_failures.append(AWAY)
        draft.handle_event(TextDelta(LONG))
        await post.until(lambda: len(board.edits) == 1)
        assert board.edits[0][1].startswith(LONG * 2)
        board.edit_failures.append(SendFailed("no such message", is_final=True, status=404))
        draft.handle_event(TextDelta(LONG))
        await post.until(lambda: not board.edit_failures)
        draft.handle_event(TextDelta(LONG))
        await asyncio.sleep(0.02)  # long enough for another change, if one were made
        assert len(board.edits) == 1
        await drafts.end(chat)


async def test_a_draft_shows_what_was_said_since_the_last_call(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        board, chat = _slow(post), await post.put()
        board.limits = PlatformLimits(300, 1.0, 1.0)
        record = post.database.read_now(lambda db: chats.get_chat(db, chat))
        draft = MessageDraft(post.database, board, record, post.deliveries, first_after_s=1.0)
        seen: list[str] = []
        for event in (
            TextDelta("x" * 39),
            TextDelta("y"),
            ReasoningDelta("z" * 40),
            StreamRestarted("it broke"),
            TextDelta("a" * 40),
            ToolStarted("c1", "look", "{}"),
            TextDelta("b" * 40),
            ToolFinished("c1", "look", 0.1),
            TextDelta("c " * 200),
        ):
            draft.handle_event(event)
            seen.append(draft.draft_text())
        first = "x" * 39 + "y …"
        assert seen[:6] == ["", first, first, "", "a" * 40 + " …", ""]
        assert seen[6:8] == ["b" * 40 + " …"] * 2
        assert seen[8].startswith("b" * 40 + "c c") and 200 < len(seen[8]) <= 300 - 40
        assert not draft.is_shown and board.said == []


async def test_a_channel_that_changes_nothing_or_a_turn_that_wants_none_has_no_draft(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        board, chat = _slow(post), await post.put()
        record = post.database.read_now(lambda db: chats.get_chat(db, chat))
        for can_edit, first_after_s, tasks in ((True, 1.0, 2), (True, 0.0, 1), (False, 1.0, 1)):
            board.limits = PlatformLimits(1000, 1.0, 1.0, can_edit=can_edit)
            draft = MessageDraft(post.database, board, record, post.deliveries, first_after_s=first_after_s)
            before = asyncio.all_tasks()
            draft.start()
            assert len(asyncio.all_tasks() - before) == tasks
            await draft.stop()
            assert asyncio.all_tasks() == before


async def test_a_draft_that_did_not_get_through_is_none(tmp_path: Path) -> None:
    async with posting(tmp_path) as post:
        board, drafts = _slow(post), Drafts()
        chat = await post.put()
        draft = _begun(post, board, drafts, chat)
        board.failing.append(SendFailed("too many", retry_after_s=60.0))
        await _shown(post, board, draft)

        def known() -> str:
            return post.database.read_now(lambda db: chats.get_chat(db, chat)).draft

        await post.until(lambda: not known())
        await drafts.end(chat)
        assert known() == "" and len(board.said) == 1
