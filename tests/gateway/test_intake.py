"""What comes in: messages, edits, floods and presses; and what is posted beside answers."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Literal

import msgspec

from tests import reviewed
from tests.gateway.parts import Rig, model, place, rig
from whet.contract.channels import Incoming, Outgoing, PlatformLimits
from whet.contract.events import ReviewFinished
from whet.contract.protocols import ApprovalRequest, Reply
from whet.gateway import outbox
from whet.gateway.asking import ChatPerson
from whet.gateway.conversations import Conversation
from whet.mcp.elicitation import elicit
from whet.store import chats, lesson_counts

__all__ = ["model", "rig"]  # fixtures


async def took(rig: Rig, *updates: Incoming) -> list[str]:
    await rig.intake.take(updates)
    return rig.texts()


def says(user: str, update_id: str, text: str = "x", **more: Any) -> Incoming:
    return Incoming(place(user), update_id, "message", text=text, at_s=1.0, **more)


async def test_an_update_is_taken_offered_a_code_or_left_alone(rig: Rig) -> None:
    assert await took(rig, says("8", "u1")) == [] and rig.state("u1") == "waiting"
    assert rig.conversations.count == 1
    assert await rig.conversations.drain(30) and rig.conversations.count == 0
    assert await rig.conversations.drain(0), "nothing runs any more"
    rig.conversations.nudge(rig.chat(place("8")).id)
    assert rig.conversations.count == 0, "it begins nothing more"
    assert await took(rig, says("8", "u1")) == [] and len(rig.woken) == 0
    (offer,) = await took(rig, says("44", "u2"))
    assert offer.startswith("This assistant is private. Your pairing code is `")
    assert "good for 10 minutes." in offer and rig.woken == [rig.chat(place("44")).id]
    assert await took(rig, says("44", "u3")) == [], "a code is given once"
    edited = msgspec.structs.replace(says("45", "u4"), verb="edit")
    assert await took(rig, edited) == [] and rig.state("u4") == ""
    grouped = Incoming(place("8", "g", group=True), "u5", "message", text="x")
    assert await took(rig, grouped) == [] and rig.state("u5") == ""


async def test_a_flood_is_told_once_and_what_is_over_is_not_read(rig: Rig) -> None:
    texts = await took(rig, *(says("8", f"u{number}") for number in range(5)))
    assert texts == ["That was a lot at once: 2 messages a minute are read. This one was not."]
    assert [rig.state(f"u{number}") for number in range(5)] == ["waiting", "waiting", "", "", ""]
    assert rig.woken == [rig.chat(place("8")).id], "only what was said has to be sent"
    vague = [msgspec.structs.replace(says("7", f"w{number}"), at_s=0.0) for number in range(3)]
    told = [await took(rig, update) for update in vague]
    assert told == [[], [], texts], "where the platform does not say when, it was said now"
    over_minutes = [
        msgspec.structs.replace(says("9", f"v{number}"), at_s=number * 60.0) for number in range(4)
    ]
    assert await took(rig, *over_minutes) == [], "each counts at the time when it was said"
    await rig.conversations.drain(30)


async def test_an_edit_counts_while_its_message_waits_and_is_told_about_where_that_was_read(rig: Rig) -> None:
    late = "An edited message is read only until it is answered; that one was. Send it again."
    rig.received(place(), "u1")
    edit = msgspec.structs.replace(says("8", "u2", "better", ref="ru1"), verb="edit")
    assert await took(rig, edit) == []
    (row,) = await (await rig.rows(place())).waiting()
    assert msgspec.json.decode(row.body)["text"] == "better" and rig.state("u2") == "done"
    emptied = msgspec.structs.replace(edit, update_id="u3", text="", place=place("9"))
    assert await took(rig, emptied) == []
    await (await rig.rows(place())).mark(row, "done")
    again = msgspec.structs.replace(edit, update_id="u4", text="best", place=place("8"), at_s=100.0)
    assert await took(rig, again) == [late] and rig.woken == [rig.chat(place()).id]


def presses(user: str, data: str, **more: Any) -> Incoming:
    return Incoming(place(user, "g", group=True), "p", "press", "Ann\u202e", data, ref="m1", **more)


async def test_a_press_decides_for_those_who_may_in_the_chat_of_the_question(rig: Rig) -> None:
    asking = rig.parts.asking
    rows = await rig.rows(place("8", "g", group=True))

    async def asked() -> tuple[str, asyncio.Task[str]]:
        buttons = [(outbox.MessageButton("Yes", "1"), "once")]
        task = asyncio.create_task(asking.ask(rows.question_route(), ["May I?"], buttons, open_ended=False))
        while not (outgoings := rig.queued()):
            await asyncio.sleep(0)
        return outgoings[0].buttons[0].data, task

    data, task = await asked()
    for user, said in (("44", "You may not decide this."), ("8", "You may not decide this.")):
        await rig.intake.take([presses(user, data)])
        assert rig.board.answers.pop() == said and not task.done()
    elsewhere = Incoming(place("7"), "p", "press", "Ann", data, ref="m1")
    await rig.intake.take([elsewhere])
    assert rig.board.answers.pop() == "This question is over." and not task.done()
    await rig.intake.take([presses("7", data)])
    assert rig.board.answers.pop() == "Allowed once." and await task == "once"
    assert rig.queued() == [Outgoing("May I?\n\n**Allowed once.** Ann<U+202E>", edits="m1")]
    await rig.intake.take([presses("7", data)])
    assert rig.board.answers.pop() == "This question is over." and rig.queued() == []
    data, task = await asked()
    rig.board.limits = PlatformLimits(200, 1.0, 1.0, can_edit=False)
    await rig.intake.take([presses("9", data)])
    said = [Outgoing("**Allowed once.** Ann<U+202E>")]
    assert await task == "once" and rig.queued() == said, "its messages can't be changed"


async def test_the_button_under_a_notice_shows_what_may_be_missing_once(rig: Rig) -> None:
    rows = await rig.rows(place("8", "g", group=True))
    await rows.post([Outgoing("lost")])
    (row,) = rig.app.database.read_now(lambda db: chats.list_messages(db, ("queued",)))
    rig.app.database.write_now(lambda db: chats.end_sending(db, row.id, "unknown", error="cut"))
    rig.woken.clear()
    await rig.intake.take([presses("44", outbox.SHOW)])
    assert rig.board.answers.pop() == "It is shown." and rig.texts() == [] and rig.woken == []
    await rig.intake.take([presses("8", outbox.SHOW)])
    assert rig.board.answers.pop() == "Here it is." and rig.texts() == ["lost"]
    assert rig.woken == [rows.chat.id]
    await rig.intake.take([presses("8", outbox.SHOW)])
    assert rig.board.answers.pop() == "It is shown." and rig.texts() == [] and len(rig.woken) == 1


# What is posted beside answers.


async def test_a_review_that_saved_something_is_told_to_its_conversation(rig: Rig) -> None:
    rows, ben = await rig.rows(place("8")), rig.parts.router.find_in_file(place("8"))
    assert ben is not None
    session_id = await rows.session_id(ben)
    send = rig.app.services.tools.by_name["send_file"]
    assert send.toolset == "file"

    def finished(state: Literal["saved", "nothing"], summary: str, session: str = session_id) -> None:
        rig.server.report_review(ReviewFinished("j1", session, "r1", state, summary))

    def untold() -> int:
        return rig.app.database.read_now(lambda db: lesson_counts.count_unread(db, "ben")).learned

    rig.app.database.write_now(lambda db: reviewed.leave(db, "ben", "j1"))
    finished("saved", "")
    finished("nothing", "x")
    finished("saved", "Learned it.", "unknown")
    await rig.app.database.append(lambda db: None)
    assert untold() == 1
    finished("saved", "Learned it.")
    await rig.app.database.append(lambda db: None)
    assert untold() == 0
    assert rig.queued() == [Outgoing("_Learned it._", quiet=True)]
    assert await rig.server.post(session_id, Outgoing("a file")) is True
    assert await rig.server.post("unknown", Outgoing("a file")) is False
    assert rig.texts() == ["a file"] and rig.woken == [rows.chat.id]


async def test_in_a_group_its_person_or_an_approver_answers_and_a_command_names_its_own(rig: Rig) -> None:
    """Ben (8) and the owner ann (7) in one group, a permission of each open; then the model's question and an
    MCP server's to ann."""

    asking = rig.parts.asking
    anns, bens = [await rig.conversation(place(user, "g", group=True)) for user in ("7", "8")]

    async def posted() -> dict[str, str]:
        while not (messages := [message for message in rig.queued() if message.buttons]):
            await asyncio.sleep(0)
        await rig.app.database.append(lambda db: None)  # the post before it has returned by then
        return {button.label: button.data for button in messages[-1].buttons}

    def person(of: Conversation, name: str) -> ChatPerson:
        return ChatPerson(asking, of.record.question_route(), name, None)

    edit = ApprovalRequest("s", "c", "terminal", "touch mine", ())
    hers = asyncio.create_task(person(anns, "ann").approve(edit))
    await posted()
    deletes = ApprovalRequest("s", "c", "terminal", "rm -rf build", ())
    his = asyncio.create_task(person(bens, "ben").approve(deletes))
    await posted()
    await rig.commands.run(anns, "approve", "")
    (which,) = rig.queued()
    assert "2 questions are open here" in which.text and not hers.done() and not his.done()
    name = re.findall(r"`/approve (\w+)`.*asked by ann", which.text)[0]
    await rig.commands.run(bens, "approve", name)
    assert rig.queued()[0].text == "You may not decide this." and not hers.done()
    await rig.commands.run(anns, "approve", f"{name} once")
    assert rig.queued()[0].text == "Allowed once: `touch mine` (asked by ann)"
    assert await hers == "once" and not his.done()
    await rig.commands.run(anns, "deny", "not here")
    assert rig.queued()[0].text == "Denied: `rm -rf build` (asked by ben)"
    assert await his == Reply("no", words="not here")

    asked = asyncio.create_task(person(anns, "ann").clarify("Which?", ["this"]))
    data = await posted()
    await rig.intake.take([presses("8", data["this"])])
    assert rig.board.answers.pop() == "You may not decide this." and not asked.done()
    await rig.intake.take([presses("7", data["this"])])
    assert rig.board.answers.pop() == "Noted: this." and await asked == "this"
    rig.queued()

    form = {"message": "Delete the production database?"}
    asked_by_server = asyncio.create_task(elicit("db", form, person(anns, "ann").clarify))
    data = await posted()
    await rig.intake.take([presses("8", data["Agree"])])
    assert rig.board.answers.pop() == "You may not decide this." and not asked_by_server.done()
    await rig.intake.take([presses("9", data["Decline to answer"])])  # cat may approve
    assert rig.board.answers.pop() == "Noted: Decline to answer."
    assert await asked_by_server == {"action": "decline"}
