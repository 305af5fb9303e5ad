"""Where files' bytes are from, by the disk and by what the store knows of calls of any session."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import msgspec
import pytest
from benchmarks.lessons.world import Run, User, World

from tests.memory.evidence import locate, said_by, session, shell
from tests.memory.home import talk
from whet.contract.receipts import CallEffects, FileLines
from whet.memory.gate import judge_from_sessions
from whet.memory.provenance import FileOrigins, names_installed_path
from whet.memory.requests import Claim
from whet.memory.taint import why_foreign_line
from whet.memory.transcript import load_transcript
from whet.shell.fetches import find_fetched_packages, reaches_out
from whet.shell.reading import read
from whet.store import sessions

LINE = "deploy_host = x.example"
LONG_AGO = -60_000
GOT = CallEffects(received=True)


def stored(world: World, folder: Path, *made: tuple[Run, CallEffects, int]) -> str:
    """Store a session of calls, each at so many milliseconds from when conf.ini was changed last."""
    session_id = talk(world, User("Have a look."), *(run for run, _, _ in made))
    changed_ms = int((folder / "conf.ini").stat().st_ctime * 1000)

    def place(db: apsw.Connection) -> None:
        key = sessions.key_of(db, session_id)
        rows = db.execute("SELECT seq FROM tool_calls WHERE session = ? ORDER BY seq", (key,)).fetchall()
        db.execute(
            "UPDATE sessions SET started = '2020-01-01T00:00:00Z', workspace = ? WHERE key = ?",
            (str(folder), key),
        )
        for (seq,), (run, effects, at_ms) in zip(rows, made, strict=True):
            facts = msgspec.structs.replace(effects, command=run.given.get("command", ""))
            db.execute(
                "UPDATE tool_calls SET started = ?3, finished = ?3, facts = ?4"
                " WHERE session = ?1 AND seq = ?2",
                (key, seq, changed_ms + at_ms, msgspec.json.encode(facts).decode()),
            )

    world.database.write_now(place)
    return session_id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    (path / "conf.ini").write_text(LINE + "\n")
    return path


def why(world: World, folder: Path, path: str = "conf.ini") -> str | None:
    return world.database.read_now(lambda db: FileOrigins(db, str(folder)).why_foreign(path))


@pytest.mark.parametrize("what", ["still runs", "was seen to end", "its session ended"])
def test_a_process_in_the_background_counts_until_its_end_was_seen(
    world: World, folder: Path, what: str
) -> None:
    begun = (shell("./serve", "[running]"), CallEffects(received=True, runs_on="p1"), LONG_AGO)
    seen = (Run("process", {"action": "poll", "id": "p1"}, "[p1 exit 0]"), CallEffects(over="p1"), -30_000)
    stored(world, folder, begun, *([seen] if what == "was seen to end" else []))
    if what == "its session ended":
        world.database.write_now(
            lambda db: db.execute("UPDATE sessions SET ended = '2020-01-01T00:00:00Z'") and None
        )
    assert bool(why(world, folder)) is (what == "still runs")


@pytest.mark.parametrize(
    "later", [shell("touch conf.ini", ""), Run("patch", {"path": "conf.ini"}, "patched")]
)
def test_a_file_that_was_only_touched_since_is_still_foreign(world: World, folder: Path, later: Run) -> None:
    brought = CallEffects(received=True, touched=(FileLines("conf.ini", 1, 0),))
    stored(world, folder, (shell("./sync", ""), brought, LONG_AGO), (later, CallEffects(received=False), 0))
    assert "./sync" in (why(world, folder) or "")
    stored(world, folder, (shell("./sync", ""), GOT, 0))
    (folder / "other").write_text("x")
    assert why(world, folder, "other") is not None and why(world, folder, "missing") is None


def test_what_an_archive_held_that_is_gone_is_foreign(world: World, folder: Path) -> None:
    brought = CallEffects(received=True, touched=(FileLines("a.tgz", 1, 0),))
    unpacked = (shell("tar xzf a.tgz && rm a.tgz", ""), CallEffects(received=False), 0)
    stored(world, folder, (shell("./sync", ""), brought, LONG_AGO), unpacked)
    assert "tar xzf" in (why(world, folder) or "")


def test_another_archive_of_the_same_name_makes_nothing_foreign(world: World, folder: Path) -> None:
    brought = CallEffects(received=True, touched=(FileLines("other/a.tgz", 1, 0),))
    unpacked = (shell("tar xzf a.tgz && rm a.tgz", ""), CallEffects(received=False), 0)
    stored(world, folder, (shell("./sync", ""), brought, LONG_AGO), unpacked)
    assert why(world, folder) == ""


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("unpack.py", "import tarfile as t\nt.open('dl/a.tgz').extractall()\n"),
        ("unpack.sh", 'set -e\ncd "$HOME" && tar xzf dl/a.tgz\n'),
        ("unpack.sh", "tar xzf dl/b.tgz\n"),
    ],
)
def test_what_a_script_unpacks_is_where_the_archive_is_from(
    world: World, folder: Path, name: str, script: str
) -> None:
    (folder / name).write_text(script)
    brought = CallEffects(received=True, touched=(FileLines("dl/a.tgz", 1, 0),))
    ran = (shell(f"python3 {name}", ""), CallEffects(received=False), 0)
    stored(world, folder, (shell("./sync", ""), brought, LONG_AGO), ran)
    assert ("python3 unpack" in (why(world, folder) or "")) is ("a.tgz" in script)


def test_what_a_file_names_itself_does_not_make_it_foreign(world: World, folder: Path) -> None:
    (folder / "conf.ini").write_text("source = dl/a.tgz\n")
    brought = CallEffects(received=True, touched=(FileLines("dl/a.tgz", 1, 0),))
    wrote = (shell("./make conf.ini", ""), CallEffects(received=False), 0)
    stored(world, folder, (shell("./sync", ""), brought, LONG_AGO), wrote)
    assert why(world, folder) == ""


@pytest.mark.parametrize("path", ["conf.ini", "*.ini", "./c*.ini", "{work}/conf.ini", "link.ini", "hard.ini"])
def test_a_foreign_file_is_so_by_every_name(world: World, folder: Path, path: str) -> None:
    os.symlink("conf.ini", folder / "link.ini")
    os.link(folder / "conf.ini", folder / "hard.ini")
    stored(world, folder, (shell("./sync", ""), GOT, 0))
    assert "came with `./sync`" in (why(world, folder, path.replace("{work}", str(folder))) or "")


def test_what_can_be_no_file_is_none(world: World, folder: Path) -> None:
    for path in ("a" * 5_000, "a\0b", "*\0", "[", "~nobody-here/x", "conf.ini/x"):
        assert not why(world, folder, path), path
        origins = world.database.read_now(
            lambda db, path=path: FileOrigins(db, str(folder)).why_any_foreign([path])
        )
        assert origins == ""


def test_a_link_is_where_it_leads(world: World, folder: Path) -> None:
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "a.ini").write_text(LINE)
    os.symlink("node_modules/a.ini", folder / "own.ini")
    os.symlink("node_modules", folder / "lib")
    for path in ("own.ini", "lib/a.ini"):
        assert "installed" in (why(world, folder, path) or ""), path
    assert why(world, folder) == ""


@pytest.mark.parametrize(
    "look",
    [
        shell("grep -rn deploy_host", "conf.ini:1:" + LINE),
        shell("python3 -c \"print(open('conf.ini').read())\"", LINE),
        shell("cat {conf,b}.ini", LINE),
        shell("while read l; do echo $l; done <conf.ini", LINE),
        Run("search_files", {"pattern": "deploy_host"}, "conf.ini\n1|" + LINE),
    ],
)
def test_what_a_look_brings_of_a_foreign_file_is_foreign(world: World, folder: Path, look: Run) -> None:
    stored(world, folder, (shell("./sync", ""), GOT, 0))
    session_id = stored(world, folder, (look, CallEffects(received=False), LONG_AGO))
    claim = Claim("memory", LINE, (LINE,))
    assert judge_from_sessions(world.database, [session_id], (), claim, foreground=False).trust == "untrusted"


@pytest.mark.parametrize("head", ["", "[main]\n"])
def test_what_an_edit_took_from_a_page_stays_the_pages_in_later_sessions(
    world: World, folder: Path, head: str
) -> None:
    page = Run("web_fetch", {"url": "https://page.test"}, "The host is x.example.")
    wrote = Run("write_file", {"path": "conf.ini", "content": head + LINE}, "Wrote conf.ini")
    edited = CallEffects(edits=(FileLines("conf.ini", 1, 0),))
    look = (Run("read_file", {"path": "conf.ini"}, head + LINE), CallEffects(), LONG_AGO)
    claim = Claim("memory", LINE, (LINE,))

    def waits() -> bool:
        session_id = stored(world, folder, look)
        return (
            judge_from_sessions(world.database, [session_id], (), claim, foreground=False).trust
            == "untrusted"
        )

    stored(world, folder, (wrote, edited, LONG_AGO))
    assert not waits()  # nothing but the assistant's own: the project's file by now
    stored(world, folder, (page, CallEffects(), LONG_AGO), (wrote, edited, LONG_AGO))
    assert waits()


def test_a_sentence_that_the_assistant_wrote_is_its_own_in_later_sessions(world: World, folder: Path) -> None:
    text = f"{LINE}\n# Always deploy on fridays.\n[main]\nnote=Always deploy on mondays"
    wrote = Run("write_file", {"path": "conf.ini", "content": text}, "Wrote")
    look = Run("read_file", {"path": "conf.ini"}, text)

    def why_own(quote: str) -> str:
        session_id = stored(world, folder, (look, CallEffects(), LONG_AGO))
        passage = world.database.read_now(lambda db: load_transcript(db, session_id).find_passage(quote))
        assert passage is not None
        return world.database.read_now(lambda db: why_foreign_line(db, session_id, passage))

    stored(world, folder, (shell(f"grep '{text}' conf.ini", "no"), CallEffects(), LONG_AGO))
    assert why_own("Always deploy on fridays") == ""
    stored(world, folder, (wrote, CallEffects(edits=(FileLines("conf.ini", 1, 0),)), LONG_AGO))
    assert "the assistant wrote it" in why_own("Always deploy on fridays") and why_own(LINE) == ""
    assert "the assistant wrote it" in why_own("deploy on mondays")


def test_numbers_before_read_lines_are_no_part_of_them() -> None:
    wrote = Run("write_file", {"path": "a.ini", "content": "[mail]\nhost = b\nport = 2525\n"}, "Wrote a.ini")
    looked = Run("read_file", {"path": "a.ini"}, "1|[mail]\n2|host = b\n3|port = 2525")
    assert [source_text.text for source_text in said_by([User("go"), looked])][
        -1
    ] == "[mail]\nhost = b\nport = 2525"
    own = locate(session(User("go"), wrote, looked), "3|port = 2525")
    assert own.tier == "own"
    seen = locate(session(User("go"), looked), "port = 2525")
    assert (seen.tier, seen.unit) == ("observed", "[mail]\nport = 2525")
    hit = locate(
        session(User("go"), Run("search_files", {"pattern": "port"}, "a.ini\n3|port = 2525")), "port ="
    )
    assert hit.unit == "a.ini\nport = 2525"


def test_a_helpers_report_is_a_helpers_by_whatever_tool_it_comes() -> None:
    for name, tier in (("helper-1", "untrusted"), ("p1", "observed")):
        assert said_by([User("go"), Run("process", {"action": "wait", "id": name}, LINE)])[-1].tier == tier


@pytest.mark.parametrize(
    ("command", "out"),
    [
        ("python3 <<'EOF'\nfrom netCDF4 import Dataset\nnc = Dataset('a.nc')\nEOF", False),
        ('python3 -c "\ngh = 1\nprint(gh)"', False),
        ("git commit -m 'curl is\nwget now'", False),
        ("bash <<'EOF'\ncurl -s x.example/c\nEOF", True),
        ("bash -c 'cd x; curl -s x.example/c'", True),
        ('echo "$(curl -s x.example/c)"', True),
        ("cat urls | while read u; do curl -s $u; done", True),
        ("cat urls | xargs -n1 curl -s", True),
        ("timeout 9 curl -s x.example/c", True),
        ("env -i A=1 curl -s x.example/c", True),
        ("sudo wget x.example", True),
        ("ssh host cat notes", True),
        ("curl http://localhost.evil.example/", True),
        ("curl -s http://127.0.0.1/x", False),
        ("git log --oneline", False),
        ("npm test", False),
        ("make check", False),
        ("python3 -c \"x.find('{http://w3.example/a}t')\"", False),
        ("python3 -c \"x.open('http://w3.example/a')\"", True),
        ('curl "{http://w3.example/a,b}"', True),
    ],
)
def test_a_command_is_read_as_a_shell_reads_it(command: str, out: bool) -> None:
    assert reaches_out(command) is out


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        (".venv/bin/pytest -q", False),
        ("source .venv/bin/activate && pytest -q", False),
        ("uv venv --python 3.12 /opt/py", False),
        ("node_modules/.bin/tsc -p .", False),
        ("cat .venv/lib/a.txt", True),
        (".venv/bin/python -c \"print(open('.venv/lib/a').read())\"", True),
        ("grep -r port venv", True),
        ("~/Downloads/setup.sh", True),
        ("cat vendor/bin/run.sh", True),
    ],
)
def test_running_a_program_is_no_reading_of_its_folder(command: str, reads: bool) -> None:
    assert names_installed_path(command) is reads


def test_the_words_that_may_name_files() -> None:
    assert read("cat {a,b}.ini").files == ("a.ini", "b.ini")
    assert read("python3 -c \"print(open('dl/a.ini'))\"").files == ("dl/a.ini",)
    assert read("./cat cat").files == ("./cat", "cat")


def test_the_packages_that_a_command_names() -> None:
    assert find_fetched_packages("npm ci && pip install -r requirements.txt") == set()
    assert find_fetched_packages('pip install -q "Padz>=2" kiln 2>&1 | tail -3') == {"padz", "kiln"}
    for other in ("git clone kiln", "pip install git+https://x.example/a.git", "curl -s x.example/a"):
        assert find_fetched_packages(other) is None, other


@pytest.mark.parametrize(
    "command", ["git pull", "git submodule update --init", "git -C . fetch && git merge"]
)
def test_a_file_that_changed_while_a_command_reached_out_came_with_it(
    world: World, folder: Path, command: str
) -> None:
    stored(world, folder, (shell(command, "Updating 1..2"), CallEffects(), 0))
    assert command[:8] in (why(world, folder) or "")
