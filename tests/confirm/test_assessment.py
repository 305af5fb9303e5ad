"""Votes, what is missing and the danger of a command: one reading on every face of the service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.confirm.people import Desk, channel, off
from tests.confirm.running import Running, field_of
from tests.confirm.vendors.telegram import TOKEN, TelegramServer
from whet_confirm import tokens
from whet_confirm.commands.risk import read_risk

POLICY = """
groups = {ops = ["ann", "ben"], security = ["cat"]}
rules = [{name = "two", action = "deploy", effect = "ask", quorum = "1 of ops and 1 of security"}]
"""
DEADLY = {"action": "tool:Bash", "description": "Tidy", "details": {"command": "rm -rf / --no-preserve-root"}}
PUBLISHING = {"action": "tool:Bash", "description": "Release", "details": {"command": "npm publish"}}
MILD = {"action": "tool:Bash", "description": "Look", "details": {"command": "ls"}}


@pytest.fixture
def server(tmp_path):
    with Running(tmp_path, policy=POLICY) as running:
        running.service.risks.reader = read_risk
        yield running


def ask(server: Running, body: dict[str, Any] | None = None) -> str:
    body = body or {"action": "deploy", "description": "Release", "details": {"version": "2"}}
    return str(server.client("submit", "agent").post("/confirm", json=body).json()["id"])


def whet(folder: Path, *args: str, **env: str) -> str:
    done = forked.run(("confirm", *args), folder, environ={"WHET_HOME": str(folder), **env})
    assert done.code == 0, done.err
    return done.out


def test_the_record_names_the_votes_and_what_is_missing(server):
    request_id = ask(server)
    ann = server.client("approve", "ann")
    before = ann.get(f"/confirm/{request_id}").json()
    assert (before["votes"], before["missing"]) == ([], "1 of ops and 1 of security")
    first = ann.post(f"/confirm/{request_id}/approve", json={"reason": "tested"})
    assert first.status_code == 202
    needs = "it takes 1 of ops and 1 of security; missing: 1 of security"
    assert first.json()["message"] == f"counted; {needs}"
    assert ann.post(f"/confirm/{request_id}/approve").json()["message"] == f"already counted; {needs}"
    (listed,) = ann.get("/confirm?status=pending").json()["requests"]
    for record in (listed, ann.get(f"/confirm/{request_id}").json()):
        (vote,) = record["votes"]
        assert (vote["by"], vote["verdict"], vote["reason"]) == ("ann", "approve", "tested")
        assert record["missing"] == "1 of security"
    kinds = server.kinds(request_id)
    assert kinds.count("vote") == 1
    server.client("approve", "cat").post(f"/confirm/{request_id}/approve")
    ended = ann.get(f"/confirm/{request_id}").json()
    assert [vote["by"] for vote in ended["votes"]] == ["ann", "cat"] and "missing" not in ended


def test_the_vote_of_a_person_whose_token_was_revoked_counts_no_more(server):
    request_id = ask(server)
    assert server.client("approve", "ann").post(f"/confirm/{request_id}/approve").status_code == 202
    ((token_id,),) = server.rows("SELECT id FROM tokens WHERE name = ?", "ann")
    server.change(lambda tx: tokens.rotate(tx, token_id, by="owner"))
    ben = server.client("approve", "ben")
    assert ben.get(f"/confirm/{request_id}").json()["missing"] == "1 of security"
    for (rotated_id,) in server.rows("SELECT id FROM tokens WHERE name = ? AND revoked_at IS NULL", "ann"):
        server.change(lambda tx, token_id=rotated_id: tokens.revoke(tx, token_id, by="owner"))
    assert ben.get(f"/confirm/{request_id}").json()["missing"] == "1 of ops and 1 of security"
    assert server.client("approve", "cat").post(f"/confirm/{request_id}/approve").status_code == 202
    assert ben.post(f"/confirm/{request_id}/approve").json()["status"] == "approved"
    assert server.stored(request_id).resolved_by == "cat, ben"


def test_a_changed_vote_and_a_new_reason_are_counted_again(server):
    request_id = ask(server)
    ann = server.client("approve", "ann")
    for reason in ("", "later", "later"):
        ann.post(f"/confirm/{request_id}/approve", json={"reason": reason})
    votes = server.service.votes(request_id)
    assert [(vote.principal, vote.reason) for vote in votes] == [("ann", "later")]
    kinds = server.kinds(request_id)
    assert kinds.count("vote") == 2


def test_the_page_shows_votes_and_danger_in_its_lists(server):
    request_id, deadly = ask(server), ask(server, DEADLY)
    ann = server.signed_in("ann")
    page = ann.get(f"/r/{request_id}").text
    values = {"csrf": field_of(page, "csrf"), "digest": field_of(page, "digest"), "verdict": "approve"}
    ann.post(f"/r/{request_id}/decide", data=values)
    home = ann.get("/").text
    assert "missing 1 of security" in home and '<b class="risk">Dangerous</b>' in home
    assert '<b class="risk small">Dangerous</b>' in ann.get("/history").text
    detail = ann.get(f"/r/{request_id}").text
    assert "<b>ann</b> approved" in detail and "Missing: 1 of security." in detail
    ann.get(f"/r/{deadly}")
    several = ann.get("/several").text
    assert '<b class="risk small">Dangerous</b>' in several and f'name="r.{deadly}"' not in several


def test_a_dangerous_command_is_not_approved_among_others(server):
    ids = [ask(server, MILD), ask(server, DEADLY), ask(server, {**MILD, "details": {"text": "x" * 40_000}})]
    ann, browser = server.client("approve", "ann"), server.signed_in("ann")
    items = []
    for request_id in ids:
        items.append({"id": request_id, "digest": ann.get(f"/confirm/{request_id}").json()["digest"]})
    form = {f"r.{item['id']}": item["digest"] for item in items[1:]}
    form |= {"verdict": "approve", "csrf": field_of(browser.get("/several").text, "csrf")}
    page = browser.post("/several", data=form)
    assert page.text.count("Not decided") == 2
    outcomes = ann.post("/decisions", json={"verdict": "approve", "items": items}).json()["outcomes"]
    assert [outcome["counted"] for outcome in outcomes] == [True, False, False]
    assert "deletes" in outcomes[1]["message"] and "too long" in outcomes[2]["message"]
    assert ann.post(f"/confirm/{ids[1]}/approve").json()["status"] == "approved"


@pytest.mark.parametrize(
    ("body", "level"),
    [(DEADLY, "dangerous"), (PUBLISHING, "dangerous"), (MILD, "safe"), (None, None)],
)
def test_the_record_holds_the_reading_of_danger(server, body, level):
    request_id = ask(server, body)
    record = server.client("approve", "ann").get(f"/confirm/{request_id}").json()
    assert record.get("risk", {}).get("level") == level


@pytest.mark.slow
def test_the_list_tells_held_calls_apart_at_80_columns(server, tmp_path):
    text = "An agent called by a long name wants to use its tool in /home/ann/work/service"
    held: list[tuple[str, dict[str, Any]]] = [
        ("tool:Bash", {"command": "make all"}),
        ("tool:files.x", {"server": "files", "tool": "x", "arguments": {"path": "/srv/a"}}),
        ("tool:odd", {"arguments": ["no", "object"], "url": "http://a.b/c"}),
        ("tool:mute", {"count": 1}),
        ("deploy", {"command": "not a held call"}),
    ]
    for action, details in held:
        ask(server, {"action": action, "description": text, "details": details})
    env = server.access("approve", "ben") | {"COLUMNS": "80"}
    rows = whet(tmp_path, "list", **env).splitlines()[1:]
    for row, start in zip(rows, ("An ag", "An ag", "http:", "/srv", "make"), strict=True):
        assert f"  {start}" in row and len(row) <= 80


@pytest.mark.slow
def test_the_command_line_shows_votes_and_danger(server, tmp_path):
    request_id, deadly = ask(server), ask(server, DEADLY)
    server.client("approve", "ann").post(f"/confirm/{request_id}/approve")
    env = server.access("approve", "ben") | {"COLUMNS": "160"}
    listed = whet(tmp_path, "list", **env)
    assert "DANGEROUS" in listed and "missing 1 of security" in listed
    shown = whet(tmp_path, "show", deadly, **env)
    assert "DANGEROUS" in shown and "risk         Dangerous, as Whet reads the command" in shown
    shown = whet(tmp_path, "show", request_id, **env)
    assert "vote         ann approved" in shown and "missing      1 of security" in shown
    counted = "ounted; it takes 1 of ops and 1 of security; missing: 1 of security.\n"
    digest = server.stored(request_id).digest
    unseen = forked.run(
        ("confirm", "approve", request_id), tmp_path, environ={"WHET_HOME": str(tmp_path), **env}
    )
    assert unseen.code == 1 and "was not shown" in unseen.err and len(server.service.votes(request_id)) == 1
    assert whet(tmp_path, "approve", request_id, "--digest", digest, **env) == f"C{counted}"
    assert whet(tmp_path, "approve", request_id, "--digest", digest, **env) == f"Already c{counted}"


@pytest.mark.slow
def test_a_first_vote_is_seen_in_the_chat(tmp_path):
    desk = Desk(tmp_path, POLICY)
    for name in ("ann", "cat"):
        desk.token(name)

    async def play() -> None:
        with TelegramServer() as telegram:
            file = "[people]\nann.telegram = 7\ncat.telegram = 8\n"
            file += channel("telegram", chat=-1001, base_url=telegram.url)
            async with desk.notifying(file, {"TELEGRAM_BOT_TOKEN": TOKEN}):
                await desk.submit("deploy")
                message = await off(telegram.message)
                assert "So far: nobody." in message["text"]
                answer = await off(telegram.answer, telegram.press(1, "Approve"))
                assert answer.startswith("Your vote was counted; ")
                answer = await off(telegram.answer, telegram.press(1, "Approve"))
                assert answer.startswith("Your vote was already counted; ")
                seen = "So far: ann approved. Missing: 1 of security."
                await off(telegram.wait, lambda: seen in telegram.messages[1]["text"], "the vote")
                await off(telegram.answer, telegram.press(1, "Approve", 8, "cat"))
                await off(telegram.wait, lambda: telegram.messages[1]["text"].startswith("Approved"), "it")

    try:
        asyncio.run(play())
    finally:
        desk.close()
