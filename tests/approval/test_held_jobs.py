"""While a command that would run outside the sandbox waits for a person, and while it runs, nothing in a
sandbox of the session changes a file."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.approval.test_gate import Bench, Someone
from tests.sandbox.engines import ENGINES, EngineCase
from tests.tools.running import context, find_tool
from whet.approval.confined import JailGate
from whet.approval.gate import GateParts
from whet.contract.errors import ToolError
from whet.contract.events import Notice
from whet.contract.protocols import Answer, ApprovalRequest, Decision, Reply
from whet.contract.tools import ToolOutput
from whet.sandbox.backend import ConfinementSettings
from whet.sandbox.confinement import Confinement
from whet.sandbox.jail import JailedCommand, Started
from whet.sandbox.status import EngineStatus
from whet.tools.shell import command_environment
from whet.tools.toolsets.terminal import SharedProcesses, ShellTools

pytestmark = pytest.mark.slow
STOPPED = "what still runs in the sandbox is stopped until this command is decided on and has run"
# Who writes: a child, a double fork in its own session, a thread's child, or a chain of processes of which
# each starts the next.
LOOP = "while :; do echo x >> d/e.sh; done"
JOBS = {
    "child": f"({LOOP}) & wait",
    "double fork": f"setsid sh -c '(setsid sh -c \"{LOOP}\" &)' & sleep 60",
    "thread's child": 'python3 -c "import threading,subprocess as s;'
    f"threading.Thread(target=s.run,args=(['sh','-c','{LOOP}'],)).start()\"",
    "chain": "printf 'echo x >> d/e.sh\\nsh d/next & exit\\n' > d/next; sh d/next; sleep 60",
}


class OneEngine(Confinement):
    """A confinement that uses a given engine."""

    def __init__(self, case: EngineCase, home: Path) -> None:
        super().__init__(ConfinementSettings("auto", home))
        self._case = case.status()
        self.jobs: list[Started] = []

    def status(self) -> EngineStatus:
        return self._case

    @property
    def known_status(self) -> EngineStatus:
        return self._case


class Watcher(Someone):
    """A person who looks at the workspace before the answer."""

    def __init__(self, look: Callable[[], Awaitable[Answer | Reply | None]]) -> None:
        super().__init__()
        self.look = look

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        self.asked.append(request)
        return await self.look()


@pytest.fixture(params=ENGINES, ids=str)
def confinement(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OneEngine]:
    case: EngineCase = request.param
    (tmp_path / "proj/d").mkdir(parents=True)
    engine = OneEngine(case, tmp_path / "home")
    yield engine
    engine.close()
    for job in engine.jobs:
        job.wait(10)


def bench_of(folder: Path, person: Someone, confinement: OneEngine, mode: str = "ask") -> Bench:
    gate = JailGate(lambda: confinement)
    return Bench(folder, person, None, GateParts(jails=lambda: gate), mode=mode)


def start_job(confinement: OneEngine, workspace: Path, text: str, session: str = "s1") -> None:
    """Start a command of a session in its sandbox, and wait until it has written."""
    jail = confinement.jail(workspace, session)
    assert jail is not None
    environment = jail.environment(command_environment(os.environ))
    with open(os.devnull, "r+b") as null:
        handles = (null.fileno(), null.fileno(), null.fileno())
        confinement.jobs.append(
            jail.spawn(JailedCommand(["bash", "-c", text], environment, workspace), handles)
        )
    wait_for_growth(workspace)


def wait_for_growth(workspace: Path) -> None:
    """Wait until the job has written again: it writes all the time."""
    file, deadline = workspace / "d/e.sh", time.monotonic() + 60
    size = file.stat().st_size if file.exists() else 0
    while not file.exists() or file.stat().st_size <= size:
        assert time.monotonic() < deadline, "the job does not write"
        os.sched_yield()


def sizes(workspace: Path) -> set[int]:
    """Return the sizes of the job's file, in many looks between which other processes get their turns."""
    sizes: set[int] = set()
    for _ in range(500):
        sizes.add((workspace / "d/e.sh").stat().st_size)
        os.sched_yield()
    return sizes


async def run_approved(bench: Bench, confinement: OneEngine, command: str) -> ToolOutput:
    """Decide on a command and run it, as a turn does."""
    call = bench.call("terminal", command=command)
    assert (await bench.gate.decide(call, bench.events.append)).verdict == "allow"
    shared = SharedProcesses(confine=lambda: confinement)
    try:
        tool = find_tool(ShellTools(shared), "terminal")
        return await tool.run(context(bench.workspace), {"command": command})
    finally:
        shared.close()


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
def test_no_job_writes_between_the_question_and_the_end_of_the_run(
    tmp_path: Path, confinement: OneEngine, job: str
) -> None:
    workspace, shown = tmp_path / "proj", set[int]()

    async def look() -> Answer:
        shown.update(sizes(workspace))
        return "once"

    bench = bench_of(tmp_path, Watcher(look), confinement)
    start_job(confinement, workspace, job)
    command = "sudo -n true; cd d && for i in $(seq 100); do wc -c < e.sh; done | uniq"
    output = asyncio.run(run_approved(bench, confinement, command))
    assert [event.text for event in bench.events if isinstance(event, Notice)] == [STOPPED]
    assert len(shown) == 1
    assert [line for line in output.text.splitlines() if line.isdigit()] == [str(size) for size in shown]
    wait_for_growth(workspace)


@pytest.mark.parametrize("answer", ["no", None])
def test_jobs_continue_after_a_no(tmp_path: Path, confinement: OneEngine, answer: Answer | None) -> None:
    workspace = tmp_path / "proj"

    async def look() -> Answer | None:
        assert len(sizes(workspace)) == 1
        return answer

    bench = bench_of(tmp_path, Watcher(look), confinement)
    start_job(confinement, workspace, JOBS["double fork"])
    assert bench.sh("sudo -n true; cd d && sh e.sh").verdict == "deny"
    wait_for_growth(workspace)


def test_jobs_continue_at_the_end_of_a_turn_in_which_the_command_never_ran(
    tmp_path: Path, confinement: OneEngine
) -> None:
    start_job(confinement, tmp_path / "proj", JOBS["child"])
    bench = bench_of(tmp_path, Someone("once"), confinement)
    assert bench.sh("sudo -n true").verdict == "allow"
    wait_for_growth(tmp_path / "proj")


def test_a_question_about_a_command_in_the_sandbox_stops_nothing(
    tmp_path: Path, confinement: OneEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "other").mkdir()

    async def look() -> Answer:
        wait_for_growth(tmp_path / "proj")
        return "no"

    start_job(confinement, tmp_path / "proj", JOBS["child"])
    bench = bench_of(tmp_path, Watcher(look), confinement)
    assert bench.sh("touch ~/other/x").verdict == "deny"
    assert len(bench.person.asked) == 1


@pytest.mark.parametrize("is_new", [False, True], ids=["its sandbox runs", "a new sandbox"])
def test_a_command_that_starts_meanwhile_lets_the_jobs_go_on_and_this_one_be_refused(
    tmp_path: Path, confinement: OneEngine, is_new: bool
) -> None:
    workspace = tmp_path / "proj"

    async def go() -> None:
        call = bench.call("terminal", command="sudo -n true; touch ran")
        assert (await bench.gate.decide(call, bench.events.append)).verdict == "allow"
        start_job(confinement, workspace, JOBS["child"])
        shared = SharedProcesses(confine=lambda: confinement)
        try:
            tool = find_tool(ShellTools(shared), "terminal")
            with pytest.raises(ToolError, match="another command ran since this one was decided on"):
                await tool.run(context(workspace), {"command": "sudo -n true; touch ran"})
        finally:
            shared.close()
        assert not (workspace / "ran").exists()
        await run_approved(bench, confinement, "sudo -n true; touch ran")

    bench = bench_of(tmp_path, Someone("once", "once"), confinement)
    if not is_new:
        start_job(confinement, workspace, JOBS["child"])
    asyncio.run(go())
    assert (workspace / "ran").exists()


def test_helpers_go_on_and_the_person_is_told(tmp_path: Path, confinement: OneEngine) -> None:
    workspace = tmp_path / "proj"

    async def look() -> Answer:
        wait_for_growth(workspace)
        return "once"

    bench = bench_of(tmp_path, Watcher(look), confinement)
    bench.gate.adopt("s2", "s1")
    start_job(confinement, workspace, JOBS["child"], session="s2")
    assert bench.sh("sudo -n true").verdict == "allow"
    notices = [event.text for event in bench.events if isinstance(event, Notice)]
    assert notices == [
        "some commands in the sandbox can't be stopped here: they can change files while you decide"
    ]


def test_a_question_that_is_cancelled_while_jobs_stop_leaves_none_stopped(
    tmp_path: Path, confinement: OneEngine
) -> None:
    workspace = tmp_path / "proj"

    async def go() -> None:
        for turns in range(0, 60, 5):  # of the loop, until it is cancelled
            call = bench.call("terminal", command="sudo -n true")
            deciding = asyncio.create_task(bench.gate.decide(call, bench.events.append))
            for _ in range(turns):
                await asyncio.sleep(0)
            deciding.cancel()
            await asyncio.wait([deciding])

    answers: list[Answer] = ["once"] * 12
    bench = bench_of(tmp_path, Someone(*answers), confinement)
    start_job(confinement, workspace, JOBS["child"])
    asyncio.run(go())
    wait_for_growth(workspace)


def test_sessions_of_others_go_on(tmp_path: Path, confinement: OneEngine) -> None:
    workspace = tmp_path / "proj"

    async def look() -> Answer:
        wait_for_growth(workspace)
        write = bench.call("write_file", session="s2", path="d/new.txt", content="x")
        async with asyncio.timeout(60):
            assert (await bench.gate.decide(write, bench.events.append)).verdict == "allow"
        return "once"

    bench = bench_of(tmp_path, Watcher(look), confinement, mode="auto")
    start_job(confinement, workspace, JOBS["child"], session="s2")
    assert bench.sh("sudo -n true").verdict == "allow"


FORMS = {
    "sourced": ("sh ./x.sh", {"x.sh": ". ./lib.sh", "lib.sh": "true"}, "lib.sh"),
    "made meanwhile": ("sh ./x.sh", {"x.sh": "[ -f opt.sh ] && . ./opt.sh"}, "opt.sh"),
    "make": ("make", {"Makefile": "include more.mk\nall:\n\t@true", "more.mk": "X = 1"}, "more.mk"),
    "python import": ("python3 run.py", {"run.py": "import helper", "helper.py": "1"}, "helper.py"),
    "python module": ("python3 -m p", {"p/__main__.py": "from p import core", "p/core.py": "1"}, "p/core.py"),
    "node require": ("node a.js", {"a.js": "require('./b')", "b.js": "1"}, "b.js"),
    "glob": ("for f in s/*.sh; do sh $f; done", {"s/a.sh": "true"}, "s/new.sh"),
    "input": ("sh < in.txt", {"in.txt": "true"}, "in.txt"),
    "another folder": ("cd sub && ./z.sh", {"sub/z.sh": ". ./y.sh", "sub/y.sh": "true"}, "sub/y.sh"),
    "search path": ('PATH="$PWD/bin:$PATH" tool', {"bin/tool": "true"}, "bin/tool"),
    "image": ("true", {"Dockerfile": "FROM x"}, "Dockerfile"),
    "many words": ("sh ./x.sh", {"x.sh": f"# {' '.join(map(str, range(2_500)))}\n. ./lib.sh"}, "lib.sh"),
    "a long file": ("sh ./x.sh", {"x.sh": f"#{'0' * 70_000}\n. ./lib.sh"}, "lib.sh"),
    "a blank in a name": ("sh ./x.sh", {"x.sh": '. "./my lib.sh"'}, "my lib.sh"),
    "a package": ("python3 r.py", {"r.py": "from pk.q import z", "pk/__init__.py": ""}, "pk/z.py"),
    "a quoted name": ('sh ./li""b.sh', {"lib.sh": "true"}, "lib.sh"),
    "no name": ("sh ./x.sh", {"x.sh": ". ./$(ls | grep -v log)"}, "more"),
    "a hook of git": ("git commit", {".git/hooks/pre-commit": "true"}, ".git/hooks/pre-commit"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
def test_a_file_that_another_program_changes_meanwhile_does_not_run_with_full_rights(
    tmp_path: Path, confinement: OneEngine, form: tuple[str, dict[str, str], str]
) -> None:
    command, files, changed = form
    workspace = tmp_path / "proj"
    for name, text in files.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(f"{text}\n")

    def decide(change: str) -> Decision:
        async def look() -> Answer:
            (workspace / change).write_text("touch evil\n")
            return "once"

        bench = bench_of(tmp_path, Watcher(look), confinement)
        call = bench.call("terminal", command=f"docker build . && {command}")
        return asyncio.run(bench.gate.decide(call, bench.events.append))

    assert decide("unrelated.log").verdict == "allow"
    decision = decide(changed)
    why = f"The command may run {workspace / changed}, which changed while the question was open."
    assert decision.verdict == "deny" and decision.reason.startswith(why)


def test_a_refusal_names_one_changed_file_on_one_line_and_counts_the_others(
    tmp_path: Path, confinement: OneEngine
) -> None:
    workspace = tmp_path / "proj"

    async def change() -> Answer:
        for name in ("a\nb.sh", "b.sh", "c.sh"):
            (workspace / name).write_text("touch evil\n")
        return "once"

    bench = bench_of(tmp_path, Watcher(change), confinement)
    call = bench.call("terminal", command="docker build . && sh ./b.sh")
    decision = asyncio.run(bench.gate.decide(call, bench.events.append))
    assert decision.verdict == "deny" and "\n" not in decision.reason
    assert "a\\nb.sh and 2 more files, which changed" in decision.reason


def test_what_programs_write_in_the_background_is_no_change(
    tmp_path: Path, confinement: OneEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "proj"
    monkeypatch.setenv("HOME", str(workspace))
    names = (".cache/x", ".local/state/y", ".git/index", ".git/objects/ab", "d/dev.log", "d/app.db-wal")
    for name in names:
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)

    def decide(name: str) -> str:
        async def look() -> Answer:
            (workspace / name).write_text("new\n")
            return "once"

        bench = bench_of(tmp_path, Watcher(look), confinement)
        return bench.sh("docker build . && ./run").verdict

    assert [decide(name) for name in names] == ["allow"] * len(names)
    assert decide("d/more") == "deny"
