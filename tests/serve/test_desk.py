"""Working in a session from the page: forms alone are enough, a stream carries the text as it comes, and
questions are answered where the work is. Nothing that was stored becomes markup or a way in."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx2
import pytest

from tests.serve.conftest import WAIT_S, Api
from tests.serve.test_board import HOSTILE, csrf
from whet.store import forks
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import Fault, ScriptedReply

pytestmark = pytest.mark.unconfined
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
SECRET = "sk-proj-" + "a1B2" * 8


def eventually(look: Callable[[], Any]) -> Any:
    until = time.monotonic() + 60
    while not (text := look()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return text


def begin(person: httpx2.Client, text: str, **more: Any) -> str:
    """Begin a session with a form, as a browser without a script does; gives its page."""
    answer = person.post("/sessions", data={"csrf": csrf(person), "text": text}, **more)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].endswith("#end")
    return answer.headers["location"].removesuffix("#end")


def say(person: httpx2.Client, page: str, text: str, **more: Any) -> httpx2.Response:
    return person.post(f"{page}/say", data={"csrf": csrf(person), "text": text}, **more)


def ended(person: httpx2.Client, page: str, turns: int = 1) -> str:
    """Wait until so many turns have ended; gives the page."""

    def look() -> str:
        text = person.get(page).text
        is_over = 'data-running=""' in text and text.count(" steps ·") + text.count(" step ·") >= turns
        return text if is_over else ""

    return str(eventually(look))


class Following:
    """Reads a page's stream in a thread of its own."""

    def __init__(self, person: httpx2.Client, page: str) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._stop = False
        self._thread = threading.Thread(target=self._read, args=(person, page), daemon=True)
        self._thread.start()

    def _read(self, person: httpx2.Client, page: str) -> None:
        with person.stream("GET", f"{page}/follow") as answer:
            kind = ""
            for line in answer.iter_lines():
                if self._stop:
                    return
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    self.events.append((kind, json.loads(line[6:])))

    def text(self) -> str:
        """Put the text together as the page's script does."""
        shown, step = "", -1
        for kind, data in [*self.events]:
            if kind == "text":
                shown, step = (shown if data["step"] == step else ""), data["step"]
                units = shown.encode("utf-16-le")[: 2 * data["at"]] + data["text"].encode("utf-16-le")
                shown = units.decode("utf-16-le")
        return shown

    def close(self) -> None:
        self._stop = True
        self._thread.join(30)


@pytest.mark.slow
def test_a_session_is_begun_and_gone_on_with_by_forms_alone(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("I see **it**."), ScriptedReply("Second."))
    files = [
        ("files", ("shot.png", PNG, "image/png")),
        ("files", ("../../evil\u202e.txt", b"hello", "text/plain")),
    ]
    page = begin(person, "look\r\nhere", files=files)
    shown = ended(person, page)
    assert "look\nhere" in shown and "<strong>it</strong>" in shown
    image = person.get(f"{page}/images/1/0")
    assert f'<img src="{page}/images/1/0"' in shown and image.content == PNG
    assert image.headers["content-type"] == "image/png"
    assert "sandbox" in image.headers["content-security-policy"]
    assert [person.get(f"{page}/images/{at}").status_code for at in ("1/1", "2/0", "9/0")] == [404] * 3
    assert "[file received: received/evil_.txt, 5 bytes]" in shown
    assert (board.workspace / "received" / "evil_.txt").read_bytes() == b"hello"
    assert not (board.workspace.parent / "evil_.txt").exists()
    first = json.loads(board.model.requests[0].body)["messages"][-1]["content"]
    assert [part["type"] for part in first][:2] == ["text", "image_url"]
    assert say(person, page, "and now?").status_code == 303
    assert "Second." in ended(person, page, 2)
    empty = say(person, page, "  ")
    assert empty.status_code == 400 and "Nothing was written." in empty.text and "I see" in empty.text
    idle = person.post(f"{page}/stop", data={"csrf": csrf(person, page)})
    assert idle.status_code == 409 and "Nothing of this session runs" in idle.text
    assert say(person, "/sessions/none", "x").status_code == 404


def test_the_forks_of_a_session_are_shown_as_a_tree(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("One."))
    page = begin(person, "a forked thing")
    assert "sessions of one tree" not in ended(person, page)
    old, at = page.rpartition("/")[2], "2099-01-01T00:00:00.000Z"
    board.app.database.write_now(lambda db: forks.fork(db, old, 1, "forked", at))
    shown = person.get("/sessions/forked").text
    assert "2 sessions of one tree" in shown and f'<a href="/sessions/{old}">a forked thing</a>' in shown
    assert "1 turn, of its own after turn 1" in shown
    listed = person.get("/sessions").text
    above, below = (listed.index(f'href="/sessions/{name}"') for name in (old, "forked"))
    assert above < below and "└" in listed[above:below]


@pytest.mark.slow
def test_a_session_is_forked_with_a_press(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("One."), ScriptedReply("Two."), ScriptedReply("Three."))
    page = begin(person, "the first thing")
    ended(person, page)
    say(person, page, "the second thing")
    shown = ended(person, page, 2)
    assert shown.count('aria-label="Fork after turn') == 2
    form = {"csrf": csrf(person, page), "turn": "1"}
    text = person.post(f"{page}/fork", data=form).headers["location"].removesuffix("#end")
    assert text != page
    shown = person.get(text).text
    assert "the first thing" in shown and "the second thing" not in shown
    say(person, text, "another way")
    assert "Three." in ended(person, text, 2)
    assert "another way" not in person.get(page).text
    refused = person.post(f"{page}/fork", data={**form, "turn": "7"})
    assert refused.status_code == 400 and "there is no turn 7 that has ended" in refused.text
    assert person.post("/sessions/none/fork", data=form).status_code == 404


@pytest.mark.slow
def test_a_session_begins_with_a_plan_and_not_where_there_is_none(board: Api, person: httpx2.Client) -> None:
    practice_call = PracticeCall("write_file", '{"path":"planned.txt","content":"x"}')
    board.say(ScriptedReply(tool_calls=(practice_call,)), ScriptedReply("1. Write it."))
    page = begin(person, "/plan make it so")
    shown = ended(person, page)
    assert "make it so" in shown and "/plan make" not in shown
    assert not (board.workspace / "planned.txt").exists()
    assert f'action="{page}/plan"' in shown
    listed = person.get("/sessions").text
    for text in ("/plan", "/plan go", "/plan steps\nmake it"):
        refused = person.post("/sessions", data={"csrf": csrf(person), "text": text})
        assert refused.status_code == 400 and "Nothing is planned yet" in refused.text
    assert person.get("/sessions").text.count(page) == listed.count(page)
    assert person.get("/sessions").text.count('href="/sessions/') == listed.count('href="/sessions/')


@pytest.mark.slow
def test_a_turn_is_taken_back_with_a_press_and_brought_again(board: Api, person: httpx2.Client) -> None:
    path = board.workspace / "taken-back.txt"
    call = PracticeCall("write_file", json.dumps({"path": path.name, "content": "made\n"}))
    board.say(ScriptedReply("One."), ScriptedReply(tool_calls=(call,)), ScriptedReply("Two."))
    page = begin(person, "say one")
    ended(person, page)
    say(person, page, "make a file")
    asked = eventually(lambda: text if path.name in (text := _asked(person.get(page).text)) else "")
    action, form = _form(asked, page)
    person.post(action, data={**form, "answer": "once"})
    ended(person, page, 2)
    assert path.read_text() == "made\n"
    form = {"csrf": csrf(person, page)}
    gone = person.post(f"{page}/rewind", data={**form, "turn": "2"})
    assert gone.status_code == 200 and "restored 1 path: taken-back.txt" in gone.text
    assert not path.exists() and "· undone" in gone.text and 'value="0">Take that back' in gone.text
    again = person.post(f"{page}/rewind", data={**form, "turn": "0"})
    assert again.status_code == 200 and path.read_text() == "made\n" and "· undone" not in again.text
    refused = person.post(f"{page}/rewind", data={**form, "turn": "9"})
    assert refused.status_code == 409 and "there is no point 9" in refused.text
    assert person.post("/sessions/none/rewind", data=form).status_code == 404


@pytest.mark.slow
def test_a_rewind_asks_about_files_that_the_person_changed_since(board: Api, person: httpx2.Client) -> None:
    path = board.workspace / "edited-since.txt"
    call = PracticeCall("write_file", json.dumps({"path": path.name, "content": "made\n"}))
    board.say(ScriptedReply(tool_calls=(call,)), ScriptedReply("Written."))
    page = begin(person, "make that file")
    asked = eventually(lambda: text if path.name in (text := _asked(person.get(page).text)) else "")
    action, form = _form(asked, page)
    person.post(action, data={**form, "answer": "once"})
    ended(person, page)
    path.write_text("mine\n")
    form = {"csrf": csrf(person, page), "turn": "1"}
    shown = person.post(f"{page}/rewind", data=form).text
    assert "left as it is (changed since by someone else): edited-since.txt" in shown
    assert "Nothing was done yet" in shown and "· undone" not in shown and path.read_text() == "mine\n"
    assert 'name="own_edits" value="replace"' in shown and "Take that back" not in shown
    kept = person.post(f"{page}/rewind", data={**form, "own_edits": "keep"}).text
    assert "· undone" in kept and path.read_text() == "mine\n"
    person.post(f"{page}/rewind", data={**form, "turn": "0"})
    gone = person.post(f"{page}/rewind", data={**form, "own_edits": "replace"}).text
    assert "restored 1 path: edited-since.txt" in gone and not path.exists()
    person.post(f"{page}/rewind", data={**form, "turn": "0"})
    assert path.read_text() == "mine\n"


@pytest.mark.slow
def test_a_plan_is_seen_changed_and_carried_out(board: Api, person: httpx2.Client) -> None:
    def wrote(*items: tuple[str, str]) -> ScriptedReply:
        listed = [
            {"id": str(n), "content": text, "status": state} for n, (text, state) in enumerate(items, 1)
        ]
        return ScriptedReply(tool_calls=(PracticeCall("todo", json.dumps({"items": listed})),))

    look = PracticeCall("terminal", '{"command":"ls"}')
    board.say(
        ScriptedReply("Hello."),
        wrote(("look around", "pending"), (f"write {HOSTILE}", "pending")),
        ScriptedReply("That is the plan."),
        wrote(("look around", "in_progress"), ("tell", "pending")),
        ScriptedReply(tool_calls=(look,)),
        wrote(("look around", "completed"), ("tell", "in_progress")),
        ScriptedReply("Carried out."),
    )
    page = begin(person, "hi")
    assert 'id="plan" aria-label="The plan"></section>' in ended(person, page)
    say(person, page, "/plan do it well")
    shown = ended(person, page, 2)
    steps = re.search(r'<textarea name="steps"[^>]*>(.*?)</textarea>', shown, re.S)
    assert steps is not None and "0 of 2 done" in shown
    assert steps[1].startswith("look around\nwrite &lt;script") and HOSTILE not in shown
    form = {"csrf": csrf(person, page), "do": "go", "steps": "look around\r\ntell\r\n"}
    assert person.post(f"{page}/plan", data=form).status_code == 303
    shown = ended(person, page, 3)
    assert "1. look around\n2. tell" in shown and 'name="steps"' not in shown
    assert "1 of 2 done" in shown
    assert 'look around <span class="under">' in shown


@pytest.mark.slow
def test_no_form_is_taken_from_elsewhere_and_no_stream_given_away(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("Hello."))
    page = begin(person, "hi")
    ended(person, page)
    token = csrf(person, page)
    for path in ("/sessions", f"{page}/say", f"{page}/stop", f"{page}/fork", f"{page}/plan", "/questions/x"):
        for data, headers, status in (
            ({"csrf": token, "text": "no"}, {"origin": "http://evil.example"}, 403),
            ({"csrf": "x" * 43, "text": "no"}, {}, 403),
            ({"csrf": token, "text": "no"}, {"origin": ""}, 403),
            ({"text": "no"}, {}, 403),
            ({"csrf": token, "text": "no"}, {"host": "evil.example"}, 421),
        ):
            assert person.post(path, data=data, headers=headers).status_code == status, (path, data)
        with httpx2.Client(base_url=board.url, timeout=WAIT_S) as nobody:
            assert nobody.post(path, data={"csrf": token, "text": "no"}).status_code == 403
            assert nobody.get(f"{page}/follow").status_code == 403
    assert person.get(f"{page}/say").status_code == 405
    assert person.get(page).text.count('class="said user"') == 1
    assert person.get("/sessions/none/follow").status_code == 404
    junk = person.post(
        "/sessions", content=b"--x\r\n", headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert junk.status_code == 400 and "Nothing was done" in junk.text


@pytest.mark.slow
def test_text_comes_as_it_is_written_and_no_key_is_seen_growing(board: Api, person: httpx2.Client) -> None:
    text = f"Line one 😀\nthe key is {SECRET} and\u202e more\n" + "word " * 40
    board.say(ScriptedReply(text + "\nend", pieces=60, fault=Fault(stall_after=50)), ScriptedReply("Next."))
    page = begin(person, HOSTILE)
    follower = Following(person, page)
    try:
        board.model.wait_for_stall()
        eventually(lambda: "word word" in follower.text())
        so_far = follower.text()
        assert so_far.startswith("Line one 😀\nthe key is [REDACTED] and<U+202E> more\n")
        sent = "".join(data["text"] for kind, data in follower.events if kind == "text")
        assert SECRET[:16] not in sent and len(sent) < 3 * len(text)  # what is known is not sent again
        plain = person.get(page).text  # without a script, a reload shows as much
        assert "word word" in plain and SECRET[:16] not in plain and 'data-running="1"' in plain
        assert "<script>window" not in plain and "<img src=x" not in plain
        assert say(person, page, "a word meanwhile").status_code == 303
        board.model.release()
        shown = ended(person, page, 1)
        assert "a word meanwhile" in shown and "Next." in shown  # it was read by the turn that ran
        eventually(lambda: follower.events[-1][0] == "stored")
    finally:
        board.model.release()
        follower.close()


def test_stop_ends_a_turn_and_what_was_said_stays(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("Half of it and more", pieces=8, fault=Fault(stall_after=4)))
    page = begin(person, "a long one")
    try:
        board.model.wait_for_stall()
        assert person.post(f"{page}/stop", data={"csrf": csrf(person, page)}).status_code == 303
        assert "cancelled" in ended(person, page)
    finally:
        board.model.release()


@pytest.mark.slow
def test_a_question_is_answered_where_the_work_is(board: Api, person: httpx2.Client) -> None:
    calls = [PracticeCall("terminal", json.dumps({"command": f"touch {name}"})) for name in ("one", "two")]
    board.say(*(ScriptedReply(tool_calls=(call,)) for call in calls), ScriptedReply("Done."))
    page = begin(person, "make them")

    def asked(command: str) -> str:
        return str(eventually(lambda: text if command in (text := _asked(person.get(page).text)) else ""))

    question = asked("touch one")
    assert "Always:" in question and "touch one</textarea>" in question and 'name="reason"' in question
    path, fields = _form(question, page)
    other = person.post(path, data={**fields, "digest": "0" * 64, "answer": "once"})
    assert other.status_code == 409 and "look again" in other.text
    edited = {**fields, "draft": "touch mine &&\r\ntouch too", "answer": "once"}
    done = person.post(path, data=edited)
    assert done.status_code == 303 and done.headers["location"] == f"{page}#end"
    path, fields = _form(asked("you edited it"), page)
    assert person.post(path, data={**fields, "answer": "once"}).status_code == 303
    path, fields = _form(asked("touch two"), page)
    assert person.post(path, data={**fields, "answer": "no", "reason": "not that one"}).status_code == 303
    shown = ended(person, page)
    assert "Done." in shown and "not that one" in shown and "These arguments ran" in shown
    there = {name: (board.workspace / name).exists() for name in ("one", "mine", "too", "two")}
    assert there == {"one": False, "mine": True, "too": True, "two": False}


def _asked(page: str) -> str:
    return page.partition('id="asked"')[2].partition("</section>")[0]


def _form(question: str, page: str) -> tuple[str, dict[str, str]]:
    path = re.search(r'action="(/questions/[^"]+)"', question)
    assert path is not None
    fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', question))
    assert fields["back"] == page.rpartition("/")[2] and len(fields["digest"]) == 64
    return path[1], fields


@pytest.mark.slow
def test_a_session_that_another_program_goes_on_with_is_followed(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("From here."), ScriptedReply("From elsewhere."))
    page = begin(person, "first")
    ended(person, page)
    with closing(Following(person, page)) as follower:
        eventually(lambda: follower.events)
        before = len(follower.events)
        # Beside the server's own turns: its feed says nothing, as with a program of its own.
        session_id = page.rpartition("/")[2]
        board.call(board.hosted.submit(session_id, "second", emit=lambda event: None))
        eventually(lambda: [event for event in follower.events[before:] if event[0] == "stored"])
        assert "From elsewhere." in ended(person, page, 2)


@pytest.mark.slow
def test_times_window_and_timeline_are_shown(board: Api, person: httpx2.Client) -> None:
    board.say(
        ScriptedReply(tool_calls=(PracticeCall("read_file", '{"path":"none.txt"}'),)), ScriptedReply("Gone.")
    )
    page = begin(person, "read it")
    ended(person, page)
    times = person.get(f"{page}/time").text
    assert times.count('class="span model"') == 2 and 'class="span tool failed"' in times
    assert "Context window" in times and "% cached" in times and " style=" not in times
    assert times.count('role="img" aria-label="begins at') == 3
    assert "What was learned when" in person.get("/learning/timeline").text
    assert person.get("/sessions/none/time").status_code == 404
