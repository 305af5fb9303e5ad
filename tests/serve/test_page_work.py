"""What the page offers besides messages: the list of sessions, the box, changes, files, goals; by forms."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.serve.conftest import WAIT_S, Api
from tests.serve.test_board import HOSTILE, csrf
from tests.serve.test_desk import begin, ended
from whet.store import schedules, sessions
from whet_lab.practice.ask import PracticeCall
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = pytest.mark.unconfined


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with PracticeServer() as model:
        api = Api(tmp_path_factory.mktemp("page"), model, mode="auto", web=True)
        yield api
        api.close()


def send(person: httpx2.Client, path: str, **fields: str) -> httpx2.Response:
    return person.post(path, data={"csrf": csrf(person), **fields})


def side_of(text: str) -> str:
    return text.partition('id="side"')[2].partition("</aside>")[0]


@pytest.mark.slow
def test_a_session_is_renamed_pinned_and_archived(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("One."), ScriptedReply("Two."))
    first, second = begin(person, "an older thing"), begin(person, "a newer thing")
    ended(person, first)
    ended(person, second)
    name = first.rpartition("/")[2]
    answer = send(person, f"{first}/rename", title=f" named  {HOSTILE} ", back=name)
    assert answer.headers["location"] == first
    send(person, f"{first}/pin", on="1")
    shown = side_of(person.get(second).text)
    at = [shown.index(words) for words in ("Pinned", "named", "work</h2>", "a newer thing")]
    assert at == sorted(at)
    assert "<script>" not in shown and "&lt;script&gt;" in shown
    send(person, f"{first}/pin", on="0")
    assert "Pinned" not in side_of(person.get("/").text)
    send(person, f"{first}/archive", on="1", back=name)
    assert "named" not in side_of(person.get("/").text)
    assert '<b class="status">archived</b>' in person.get("/sessions?q=named").text
    send(person, f"{first}/archive", on="0")
    assert "named" in side_of(person.get("/").text)
    assert send(person, f"{first}/rename", title="  ").status_code == 400
    assert send(person, "/sessions/none/pin", on="1").status_code == 404
    assert (
        send(person, f"{first}/pin", back="//evil.example/").headers["location"]
        == "/sessions/%2F%2Fevil.example%2F"
    )


@pytest.mark.slow
def test_the_model_and_the_mode_are_set_at_the_box(board: Api, person: httpx2.Client) -> None:
    board.say(ScriptedReply("One."), ScriptedReply("Two."))
    page = begin(person, "which model?")
    ended(person, page)
    assert send(person, f"{page}/set", model="practice-2").status_code == 303
    assert send(person, f"{page}/set", mode="plan").status_code == 303
    bar = person.get(page).text.partition('id="bar"')[2]
    assert "</span> practice-2</summary>" in bar and "</span> plan</summary>" in bar
    person.post(f"{page}/say", data={"csrf": csrf(person), "text": "and now?"})
    ended(person, page, 2)
    assert json.loads(board.model.requests[-1].body)["model"] == "practice-2"
    send(person, f"{page}/set", model="default")
    send(person, f"{page}/set", mode="auto")
    bar = person.get(page).text.partition('id="bar"')[2]
    assert "</span> practice</summary>" in bar and "</span> auto</summary>" in bar
    for wrong in ({"mode": "odd"}, {"model": "  "}):
        assert send(person, f"{page}/set", **wrong).status_code == 400


@pytest.mark.slow
def test_a_new_session_has_the_folder_model_and_mode_that_were_chosen(
    board: Api, person: httpx2.Client, tmp_path: Path
) -> None:
    board.say(ScriptedReply("One."), ScriptedReply("Two."))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    chosen = {"folder": str(tmp_path), "model": "practice-3", "mode": "plan", "mode_was": "auto"}
    answer = send(person, "/sessions", text="work there", **chosen)
    page = answer.headers["location"].removesuffix("#end")
    text = ended(person, page)
    assert "feature/x" in text and "</span> practice-3</summary>" in text and "</span> plan</summary>" in text
    row = board.app.database.read_now(lambda db: sessions.get(db, page.rpartition("/")[2]))
    assert row.workspace == str(tmp_path.resolve())
    # An older page that still names the mode of then does not set it again.
    unchanged = {"mode": "deny", "mode_was": "deny", "model": "practice", "model_was": "practice"}
    ended(person, send(person, "/sessions", text="x", **unchanged).headers["location"].removesuffix("#end"))
    assert board.app.services.gate.get().mode == "auto"
    for folder in ("relative", "/nothing/there"):
        typed = {"text": f"\nfirst {HOSTILE}", "model": "practice-4", "mode": "plan", "private": "1"}
        refused = send(person, "/sessions", folder=folder, **typed)
        assert refused.status_code == 400 and "not a folder on this machine" in refused.text
        assert ">\n\nfirst &lt;script&gt;" in refused.text and f'value="{folder}"' in refused.text
        assert 'value="practice-4"' in refused.text and '<option value="plan" selected>' in refused.text
        assert 'name="private" checked' in refused.text and "data-live" not in refused.text


@pytest.mark.slow
def test_all_changes_of_a_session_are_shown_and_single_files_taken_back(
    board: Api, person: httpx2.Client
) -> None:
    work = board.workspace
    (work / "old.py").write_text("def port(text):\n    return int(text)\n")
    edit = {"path": "old.py", "old_string": "int(text)", "new_string": "max(1, int(text))"}
    board.app.services.gate.get().set_mode("auto")
    board.say(
        ScriptedReply(tool_calls=(PracticeCall("read_file", '{"path":"old.py"}'),)),
        ScriptedReply(
            tool_calls=(
                PracticeCall("patch", json.dumps(edit)),
                PracticeCall("write_file", json.dumps({"path": "new.txt", "content": HOSTILE})),
            )
        ),
        ScriptedReply("Done."),
    )
    page = begin(person, "change two files")
    ended(person, page)
    shown = person.get(f"{page}/changes").text
    assert "2 files" in shown and "<script>" not in shown.partition("<main")[2].partition("</main>")[0]
    assert '<span class="c-keyword">return</span>' in shown and "<mark" in shown
    taken = send(person, f"{page}/restore", file="old.py")
    assert "restored 1 path: old.py" in taken.text and "1 file ·" in taken.text
    assert (work / "old.py").read_text() == "def port(text):\n    return int(text)\n"
    undone = send(person, f"{page}/restore", file="old.py", undo="1")
    assert "2 files" in undone.text and "max(1" in (work / "old.py").read_text()
    (work / "new.txt").write_text("somebody else's\n")
    asked = send(person, f"{page}/restore", file="new.txt")
    assert "Nothing was done yet" in asked.text and (work / "new.txt").exists()
    assert send(person, f"{page}/restore", file="new.txt", own_edits="replace").status_code == 200
    assert not (work / "new.txt").exists()
    assert "max(1" in (work / "old.py").read_text(), "the other file stays"
    send(person, f"{page}/restore", own_edits="keep")
    assert "has changed no file" in person.get(f"{page}/changes").text


@pytest.mark.slow
def test_the_files_of_a_session_are_shown_and_no_link_is_followed(
    board: Api, person: httpx2.Client, tmp_path: Path
) -> None:
    board.say(ScriptedReply("One."))
    page = begin(person, "show files")
    ended(person, page)
    work = board.workspace
    (work / "lib").mkdir()
    (work / "lib" / "a.py").write_text(f"def f():\n    return '{HOSTILE}'\n")
    (work / "lib" / "b.bin").write_bytes(b"\0\1")
    (tmp_path / "secret.txt").write_text("outside")
    (work / "out").symlink_to(tmp_path)
    (work / "lib" / "out.txt").symlink_to(tmp_path / "secret.txt")
    listed = person.get(f"{page}/files").text
    assert "lib/</a>" in listed and 'out <span class="under">a link' in listed
    source = person.get(f"{page}/files?path=lib/a.py").text
    assert '<span class="c-keyword">def</span>' in source
    assert "<script>" not in source.partition("<main")[2].partition("</main>")[0]
    assert "This is not text." in person.get(f"{page}/files?path=lib/b.bin").text
    for path in ("../x", "lib/../../x", "out/secret.txt", "lib/out.txt", "none", "lib/a.py/x", "a%00b"):
        answer = person.get(f"{page}/files?path={path}")
        assert answer.status_code == 404 and "outside" not in answer.text, path


@pytest.mark.slow
def test_a_goal_is_begun_shown_and_removed(board: Api, person: httpx2.Client) -> None:
    answer = send(person, "/activity/goals", text="make it green", verify="make test", budget="2.50")
    assert answer.status_code == 303
    (row,) = board.app.database.read_now(schedules.list_schedules)
    assert row.goal is not None and (row.goal.verify, row.goal.budget_usd) == ("make test", 2.5)
    shown = person.get("/activity").text
    assert "make it green" in shown and "proved by <code>make test</code>" in shown
    refused = send(person, "/activity/goals", text=f"go {HOSTILE}", verify="make all", budget="much")
    assert refused.status_code == 400 and '<details class="panel fold" open><summary>New goal' in refused.text
    assert "go &lt;script&gt;" in refused.text and 'value="make all"' in refused.text
    assert 'role="alert"' in refused.text and 'value="much"' in refused.text
    assert send(person, "/activity/goals", text=" ").status_code == 400
    assert send(person, f"/activity/{row.name}", do="odd").status_code == 400
    assert send(person, f"/activity/{row.name}", do="stop").status_code == 303
    assert board.app.database.read_now(schedules.list_schedules) == []
    assert send(person, f"/activity/{row.name}", do="remove").status_code == 409


@pytest.mark.slow
def test_a_schedule_is_added_shown_and_removed(board: Api, person: httpx2.Client, tmp_path: Path) -> None:
    fields = {"prompt": f"sum up {HOSTILE}", "time_zone": "Europe/Berlin", "folder": str(tmp_path)}
    answer = send(person, "/activity/schedules", expression="0 9 * * 1-5", name="daily", **fields)
    assert answer.headers["location"] == "/activity#schedules"
    (row,) = board.app.database.read_now(schedules.list_schedules)
    stored = (row.name, row.expression, row.time_zone, row.workspace, row.goal)
    assert stored == ("daily", "0 9 * * 1-5", "Europe/Berlin", str(tmp_path), None)
    assert board.app.database.read_now(lambda db: schedules.find_next_due(db, row.id))
    shown = person.get("/activity").text.partition('id="schedules"')[2]
    assert "<code>0 9 * * 1-5</code> Europe/Berlin" in shown and "&lt;script&gt;" in shown
    for wrong, problem in (
        ({"expression": "often"}, "is not a cron expression"),
        ({"expression": "@daily", "at": "+2h"}, "a cron expression or one time"),
        ({"at": "+2h", "time_zone": "Mars"}, "there is no time zone"),
        ({"at": "+2h", "prompt": " "}, "there is no prompt"),
        ({"at": "+2h", "name": "daily"}, "there is a schedule daily already"),
        ({"at": "+2h", "target": "slack:nobody"}, "the gateway knows no conversation"),
    ):
        refused = send(person, "/activity/schedules", **(fields | wrong))
        assert refused.status_code == 400 and problem in refused.text, wrong
        assert '<details class="panel fold" open><summary>New schedule' in refused.text, wrong
        assert all(text in html.unescape(refused.text) for text in (fields | wrong).values()), wrong
        assert HOSTILE not in refused.text and "<h1>Activity</h1>" in refused.text, wrong
    assert send(person, "/activity/daily", do="remove").status_code == 303
    assert board.app.database.read_now(schedules.list_schedules) == []


@pytest.mark.slow
def test_no_form_of_these_pages_is_taken_without_its_token(person: httpx2.Client, board: Api) -> None:
    for path in ("rename", "pin", "archive", "set", "restore"):
        assert person.post(f"/sessions/x/{path}", data={"on": "1"}).status_code == 403
    for path in ("/activity/goals", "/activity/schedules", "/activity/x"):
        assert person.post(path, data={"text": "x", "do": "remove"}).status_code == 403
    with httpx2.Client(base_url=board.url, timeout=WAIT_S) as stranger:
        for path in ("/activity", "/sessions/x/files", "/sessions/x/changes", "/sessions/x/images/1/0"):
            assert stranger.get(path).status_code == 303
