"""`whet run --parallel`: many tasks, one table, gone on with by the same file."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.app.helper_runs import mind, program, shell, steps
from tests.cli.running import invoke
from whet.app.helpers.task_runs import is_success, name_of, read_tasks, run_tasks
from whet.contract.delegation import HelperWish
from whet.contract.errors import ConfigError
from whet.store import claims
from whet_lab.practice.server import PracticeServer


def tasks(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "tasks.yaml"
    path.write_text(json.dumps({"tasks": rows}))
    return path


def test_a_file_of_tasks_is_done_once_and_gone_on_with(tmp_path: Path) -> None:
    once = steps([shell("echo x >> count")], answer="counted")
    path = tasks(tmp_path, {"name": "count", "task": once}, {"name": "say", "task": steps(answer="said")})

    async def main(base_url: str) -> list[tuple[str, str, str]]:
        async with program(tmp_path, base_url) as app:
            done = await run_tasks(app.sessions, read_tasks(path, app.services.workspace), "run tasks.yaml")
            assert all(map(is_success, done))
            return [(name_of(row), row.reason, row.answer) for row in done]

    with PracticeServer(responder=mind) as server:
        first = asyncio.run(main(server.base_url))
        assert first == [("count", "answered", "counted"), ("say", "answered", "said")]
        assert asyncio.run(main(server.base_url)) == first
    assert (tmp_path / "work" / "count").read_text() == "x\n"


@pytest.mark.slow
def test_a_task_whose_program_is_still_being_killed_is_gone_on_with_when_it_is_gone(tmp_path: Path) -> None:
    path = tasks(tmp_path, {"name": "say", "task": steps(answer="said")})

    async def main(base_url: str, other: subprocess.Popen[bytes]) -> None:
        async with program(tmp_path, base_url) as app:
            wanted = read_tasks(path, app.services.workspace)
            session, wish = await app.new_session(), HelperWish(wanted.tasks[0].task, background=True)
            await app.helpers.add_helper(session.id, f"run {wanted.key} say", wish)
            host, _, _, *rest = claims.owner_name("t").split(" ")
            owner = " ".join((host, str(other.pid), claims.read_process_birth(other.pid), *rest))
            app.database.write_now(lambda db: db.execute("UPDATE helpers SET owner = ?", (owner,)))
            running = asyncio.create_task(run_tasks(app.sessions, wanted, "run tasks.yaml"))
            assert not (await asyncio.wait({running}, timeout=0.2))[0]
            other.kill()
            async with asyncio.timeout(30):
                (row,) = await running
            assert (row.reason, row.answer) == ("answered", "said")

    with PracticeServer(responder=mind) as server, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        asyncio.run(main(server.base_url, other))


def test_the_command_prints_a_table_and_says_by_its_code_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    schema = {"type": "object"}
    path = tasks(tmp_path, {"name": "one", "task": steps(answer="first")}, {"task": "x", "schema": schema})
    with PracticeServer(responder=mind) as server:
        settings = {"PROVIDER": "practice", "MODEL": "practice-echo", "BASE_URL": server.base_url}
        for name, value in settings.items():
            monkeypatch.setenv(f"WHET_MODEL_{name}", value)
        ran = invoke("run", "--parallel", str(path), "--jobs", "2")
        assert ran.exit_code == 1, ran.output
        assert "one" in ran.output and "answered" in ran.output and "failed" in ran.output
        ran = invoke("run", "--parallel", str(path), "--json")
        rows = json.loads(ran.stdout)["tasks"]
        assert [(row["task"], row["end"]) for row in rows] == [("one", "answered"), ("2", "failed")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tasks: []", "has 0 tasks"),
        ("- task: a\n  name: x\n- task: b\n  name: x\n", "two tasks are called x"),
        ("- tusk: a\n", "tusk"),
        ("tasks: [{task: a}]\nkeys: x\n", "keys"),
        ("tasks: [", "tasks.yaml"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tasks.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_tasks(path, tmp_path)
