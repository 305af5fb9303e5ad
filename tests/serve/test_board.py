"""The dashboard over HTTP: who comes in, what it shows, what it changes, and that stored text stays text."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx2
import pytest

from tests.serve.conftest import WAIT_S, Api, sign_in
from whet.contract.origin import Origin
from whet.memory.requests import MemoryRequest
from whet.store import ledger
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply

PAGES = (
    "/",
    "/sessions",
    "/activity",
    "/learning",
    "/inbox",
    "/notes",
    "/skills",
    "/warm",
    "/reviews",
    "/confirmations",
    "/costs",
)
HOSTILE = (
    "<script>window.owned=1</script><img src=x onerror='window.owned=1'>\"'>{{7*7}}</pre></title>"
    "<a href='javascript:window.owned=1'>x</a>\u202e\u2066\u200b"
)


@pytest.fixture
def person(board: Api) -> Iterator[httpx2.Client]:
    """A browser that is signed in with the owner's token."""
    with httpx2.Client(base_url=board.url, timeout=WAIT_S) as client:
        sign_in(client, board, board.token)
        yield client


def csrf(client: httpx2.Client, path: str = "/") -> str:
    match = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert match is not None
    return match[1]


def remember(board: Api, text: str, state: str = "active") -> ledger.LedgerRow:
    learning = board.app.learning.owner_service
    outcome = board.call(learning.submit(MemoryRequest("add", "memory", text), Origin("user")))
    assert outcome.ok, outcome.text
    if state != "active":
        board.app.database.write_now(lambda db: ledger.set_state(db, outcome.ledger_id, state))  # type: ignore[arg-type]
    return board.call(learning.get_change(outcome.ledger_id))


@pytest.mark.slow
def test_only_the_owner_comes_in_and_revoking_signs_out(board: Api) -> None:
    with httpx2.Client(base_url=board.url, timeout=WAIT_S) as client:
        for path in (*PAGES, "/sessions/x", "/learning/1"):
            answer = client.get(path)
            assert answer.status_code == 303 and answer.headers["location"].startswith("/login?next=")
        assert client.get("/live").status_code == 403
        assert client.get("/login").status_code == 200
        assert sign_in(client, board, "sk-whet-wrong").status_code == 403
        refused = sign_in(client, board, board.new_token("webui"))
        assert refused.status_code == 403 and "converse only" in refused.text
        assert client.get("/").status_code == 303
        cookieless = client.post("/login", data={"token": board.token})  # no Origin: not our page
        assert cookieless.status_code == 403
        second = board.new_token("cockpit", "owner")
        answer = sign_in(client, board, second)
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=strict" in cookie
        assert client.get("/").status_code == 200
        board.revoke("cockpit")
        assert client.get("/").status_code == 303
        elsewhere = client.get("/login?next=//evil.example/")
        assert "evil.example" not in elsewhere.text


@pytest.mark.slow
def test_every_page_is_there_when_there_is_nothing_and_has_the_policy(
    board: Api, person: httpx2.Client
) -> None:
    for path in PAGES:
        answer = person.get(path)
        assert answer.status_code == 200, answer.text
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert " style=" not in answer.text and "<script>" not in answer.text
    assert person.get("/sessions/none").status_code == 404
    assert person.get("/learning/999999").status_code == 404
    assert person.get("/skills/..%2f..%2fetc").status_code == 404
    assert person.get("/warm/none").status_code == 404
    missing = person.get("/nothing-here")
    assert missing.status_code == 404 and missing.headers["content-type"].startswith("text/html")
    asset = re.search(r'href="(/static/site\.[0-9a-f]+\.css)"', person.get("/").text)
    assert asset is not None and "immutable" in person.get(asset[1]).headers["cache-control"]


@pytest.mark.slow
def test_a_session_is_found_read_replayed_and_its_text_stays_text(board: Api, person: httpx2.Client) -> None:
    (board.workspace / "notes.txt").write_text(HOSTILE)
    board.say(
        ScriptedReply(
            HOSTILE + " zebra", tool_calls=(PracticeCall("read_file", '{"path":"notes.txt"}', "c1"),)
        ),
        ScriptedReply(f"Done. {HOSTILE}", reasoning=HOSTILE),
    )
    body = {"model": "whet", "messages": [{"role": "user", "content": f"{HOSTILE} about quaggas"}]}
    with board.http() as http:
        session_id = http.post("/v1/chat/completions", json=body).headers["x-whet-session"]
    text = person.get("/sessions", params={"q": "quaggas"}).text
    assert f"/sessions/{session_id}?from=1#m1" in text and "<mark>quaggas</mark>" in text
    whole = person.get(f"/sessions/{session_id}").text
    assert whole.count('class="said ') == 4 and "notes.txt" in whole and "Turn 1" in whole
    replayed = person.get(f"/sessions/{session_id}?at=2").text
    assert replayed.count('class="said ') == 2 and f"/sessions/{session_id}?at=3" in replayed
    for page in (text, whole, replayed, person.get("/").text, person.get("/costs").text):
        assert "<script>window" not in page and "<img src=x" not in page and "href='javascript" not in page
        assert "49" not in re.findall(r"\{\{.{0,9}\}\}", page) and "\u202e" not in page
    assert "&lt;script&gt;window.owned=1&lt;/script&gt;" in whole and "&lt;U+202E&gt;" in whole


@pytest.mark.slow
def test_a_learned_change_is_shown_with_its_diff_and_taken_back(board: Api, person: httpx2.Client) -> None:
    row = remember(board, "We deploy on Tuesdays.")
    listed = person.get("/learning").text
    assert f'href="/learning/{row.id}"' in listed
    page = person.get(f"/learning/{row.id}").text
    assert 'class="added"' in page and "We deploy on Tuesdays." in page
    path, origin = f"/learning/{row.id}/undo", {"origin": board.url}
    token = csrf(person, f"/learning/{row.id}")
    assert person.post(path, data={"csrf": token}).status_code == 403  # no Origin
    assert person.post(path, data={"csrf": "x" * 43}, headers=origin).status_code == 403
    foreign = person.post(path, data={"csrf": token}, headers={"origin": "http://evil.example"})
    assert foreign.status_code == 403
    assert person.get(path).status_code == 405
    assert board.call(board.app.learning.owner_service.get_change(row.id)).state == "active"
    done = person.post(path, data={"csrf": token}, headers=origin)
    assert done.status_code == 303
    assert board.call(board.app.learning.owner_service.get_change(row.id)).state == "undone"
    assert "Taken back by" in person.get(f"/learning/{row.id}").text
    again = person.post(path, data={"csrf": token}, headers=origin)
    assert again.status_code == 409 and "Nothing was changed" in again.text
    assert "We deploy on Tuesdays." not in person.get("/notes").text


def test_what_waits_is_accepted_or_rejected(board: Api, person: httpx2.Client) -> None:
    bad = remember(board, f"Remember: {HOSTILE[:60]} is fine to print.", "inbox")
    origin = {"origin": board.url}
    inbox = person.get("/inbox").text
    assert f"/learning/{bad.id}/accept" in inbox and "&lt;script&gt;" in inbox
    form = {"csrf": csrf(person, "/inbox"), "back": "inbox"}
    rejected = person.post(f"/learning/{bad.id}/reject", data=form, headers=origin)
    assert rejected.headers["location"] == "/inbox"
    assert board.call(board.app.learning.owner_service.get_change(bad.id)).state == "rejected"
    assert "Nothing waits." in person.get("/inbox").text


def test_a_question_is_answered_on_the_page(board: Api, person: httpx2.Client) -> None:
    board.say(
        ScriptedReply(tool_calls=(PracticeCall("terminal", '{"command":"echo y > yes.txt"}', "c1"),)),
        ScriptedReply("Made."),
    )
    with board.http() as http:
        session_id = http.post("/api/sessions", json={}).json()["id"]
        with http.stream("GET", f"/api/sessions/{session_id}/events") as answer:
            lines = answer.iter_lines()
            next(lines)
            http.post(f"/api/sessions/{session_id}/turns", json={"text": "make it"})
            assert any("approval_asked" in line for line in lines)
            page = person.get("/").text
            assert "echo y &gt; yes.txt" in page
            match = re.search(r'action="(/questions/[^"]+)"', page)
            assert match is not None
            form = {"csrf": csrf(person), "answer": "once"}
            answered = person.post(match[1], data=form, headers={"origin": board.url})
            assert answered.status_code == 303
            assert any('"type":"turn_end"' in line for line in lines)
    assert (board.workspace / "yes.txt").exists()
    whole = person.get(f"/sessions/{session_id}").text
    assert re.search(r"<summary>did: .*1 command", whole)
    assert re.search(r"\$ echo y &gt; yes\.txt +\[exit 0\]", whole)
    late = person.post(match[1], data=form, headers={"origin": board.url})
    assert late.status_code == 404 and "Nothing was decided" in late.text


def test_programs_are_refused_in_their_own_words_beside_the_pages(board: Api) -> None:
    with httpx2.Client(base_url=board.url, timeout=WAIT_S) as client:
        for path in ("/mcp", "/v1/chat/completions", "/api/sessions"):
            answer = client.post(path, json={})
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "missing_api_key", path
            assert answer.headers["www-authenticate"].startswith("Bearer")
