"""Notes come along with the message that they are about: few, once, as they are now, and nobody else's."""

from __future__ import annotations

from pathlib import Path

from tests.review.rig import Bench, bench, says
from whet.agent.loop import run_turn
from whet.app.conversations.session_parts import Principal
from whet.app.learning.note_recall import nearest_notes
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest
from whet.store import learned

NOTES = (
    "Host of gallery is cedar.",
    "Host of payroll is amber.",
    "Host of courier is fjord.",
    "Der Drucker im Lager heisst lp-7.",
    "請求書は毎月五日に送る。",
    "Reports are written in metric units.",
)


def test_the_words_that_few_notes_have_decide() -> None:
    assert nearest_notes("Please restart payroll", NOTES, 3) == [NOTES[1]]
    assert nearest_notes("Ist der Drucker an?", NOTES, 3) == [NOTES[3]]
    assert nearest_notes("請求書を送って", NOTES, 3) == [NOTES[4]]
    assert nearest_notes("gallery, courier and payroll, please", NOTES, 2) == list(NOTES[:2])
    pairs = ("Beta is blue.", "Beta is green.", "Alpha is red.", *NOTES[3:])
    assert nearest_notes("beta, alpha", pairs, 1) == ["Alpha is red."], "the rarer word decides"
    assert nearest_notes("Good morning!", NOTES, 3) == []
    assert nearest_notes("Which host is it?", [*NOTES, "Host of atlas is basalt."], 3) == [], (
        "most notes have it"
    )


def test_words_of_the_quoted_error_count_more_than_those_of_the_failed_call() -> None:
    pool = [
        f"Pitfall: `./ops {tool} {target} {number}` → “refused: `{tool}` needs `flag={flag}`”"
        for number, (tool, target, flag) in enumerate(
            (
                ("rollup", "billing", "--solo"),
                ("shipit", "billing", "--ack"),
                ("failover", "quarry", "--quorum"),
                ("failover", "gallery", "--pinned"),
                ("digest", "quarry", "--staged"),
            )
        )
    ]
    assert nearest_notes("Run failover on billing", pool, 2) == pool[2:4], "the later of two comes last"


async def test_a_note_that_the_prompt_has_no_room_for_comes_with_its_message(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("Yes.")] * 3, settings={"memory.prompt_chars": "60"}) as b:
        await keep(b, *NOTES)
        prompt = (await b.app.learning.reader.build_prompt_part()).text
        assert NOTES[-1] in prompt and NOTES[1] not in prompt
        assert NOTES[1] in await requested(b, "Restart payroll")


async def test_what_a_local_tool_returned_is_evidence_and_what_came_from_outside_is_not(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, []) as b:
        trusted = b.app.learning.owner_service.changes.trusted_tools
        assert trusted & {"read_file", "web_fetch", "web_search"} == {"read_file"}


async def keep(b: Bench, *texts: str, profile: str = "") -> None:
    for text in texts:
        learning = b.app.learning.service_of(profile)
        assert (await learning.submit(MemoryRequest("add", "memory", text), Origin("user"))).ok


async def requested(b: Bench, text: str, profile: str = "") -> str:
    """What is sent for a message that begins a session."""
    session = await b.app.new_session(whose=Principal(profile=profile))
    await run_turn(session, session.user_message(text), b.events.append)
    return session.log.messages[0].note


async def test_a_message_brings_its_notes_once_and_later_requests_have_the_same_bytes(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("Yes.")] * 4) as b:
        await keep(b, *NOTES)
        session = await b.app.new_session()
        for text in ("Restart payroll", "And payroll again", "Now courier"):
            await run_turn(session, session.user_message(text), b.events.append)
        first, second, third = (message.note for message in session.log.messages if message.role == "user")
        assert "<remembered>" in first and "Host of payroll is amber." in first
        assert "cedar" not in first and "<remembered>" not in second and "Host of courier" in third
        bodies = [request.body for request in b.server.requests]
        shared = bodies[0][: bodies[0].rindex(b"Restart payroll")]
        assert all(body.startswith(shared) and b"payroll is amber" in body for body in bodies)


async def test_what_was_learned_since_the_session_began_comes_along(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("Yes.")] * 3) as b:
        await keep(b, NOTES[0])
        assert "<remembered>" not in await requested(b, "Look at gallery"), "the prompt shows it at a glance"
        session = await b.app.new_session()
        await keep(b, NOTES[1])
        await run_turn(session, session.user_message("Restart payroll"), b.events.append)
        assert "Host of payroll is amber." in session.log.messages[0].note


async def test_nobody_elses_and_what_chance_keeps_from_a_session_stays_out(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("Yes.")] * 3) as b:
        await keep(b, *NOTES)
        assert "<remembered>" not in await requested(b, "Restart payroll", "anna")
        session = await b.app.new_session()
        part = await b.app.learning.reader.build_prompt_part()
        held = next(item for item in part.items if "payroll" in item.label)
        item = learned.ContextItem(held.kind, held.name, held.hash)
        write = b.app.database.write_now
        write(lambda db: learned.record_items(db, session.id, (), (item,), randomised=True))
        await run_turn(session, session.user_message("Restart payroll"), b.events.append)
        assert "<remembered>" not in session.log.messages[0].note


async def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async with bench(tmp_path, [says("Yes.")], settings={"memory.brought_along": "0"}) as b:
        await keep(b, *NOTES)
        assert "<remembered>" not in await requested(b, "Restart payroll")
