"""The gate: what runs without a question, what is asked, what is denied, and what the model is told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support import cancel_task
from whet.approval.gate import NO_PARTS, GateParts, PolicyGate
from whet.approval.policy import PolicyGrant
from whet.approval.risk import RiskScope, ShellRisk
from whet.config.permission_settings import ApprovalSettings
from whet.contract.changes import hash_call
from whet.contract.errors import StoreFull
from whet.contract.events import ApprovalAsked, ApprovalDecided, Event, Notice
from whet.contract.messages import ToolCall
from whet.contract.protocols import Answer, ApprovalRequest, Decision, GateCall, Reply
from whet.contract.tools import Effect, Tool, ToolContext, ToolOutput, ToolSpec, tags_of
from whet.tools.diffs import find_named_files


class Someone:
    """A person with prepared answers, who remembers what was asked."""

    def __init__(self, *answers: Answer | Reply | None) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
        self.asked.append(request)
        return self.answers.pop(0) if self.answers else None

    async def clarify(self, question: str, choices: Sequence[str]) -> str | None:
        return None


class Kept:
    """Grants in a list; full on request."""

    def __init__(self, *grants: PolicyGrant, full: bool = False) -> None:
        self.grants = list(grants)
        self.full = full

    async def add(self, tool: str, pattern: str, workspace: str) -> None:
        if self.full:
            raise StoreFull("no space is left")
        self.grants.append(PolicyGrant(tool, pattern, workspace))

    async def all(self) -> Sequence[PolicyGrant]:
        return self.grants


EFFECTS: dict[str, set[Effect]] = {
    "terminal": {"execute"},
    "process": {"execute"},
    "read_file": {"read"},
    "search_files": {"read"},
    "write_file": {"write"},
    "patch": {"write"},
    "web_fetch": {"network"},
    "todo": {"read"},
    "delegate_task": {"read"},
    "clarify": {"read"},
    "send_message": {"send"},
    "odd": set(),
    "send_file": {"read"},
}


async def _never(ctx: ToolContext, arguments: dict[str, object]) -> ToolOutput:
    raise AssertionError("the gate runs nothing")


class Bench:
    """A gate over a workspace, and the events it emitted."""

    def __init__(
        self,
        folder: Path,
        person: Someone,
        kept: Kept | None = None,
        parts: GateParts = NO_PARTS,
        **settings: object,
    ) -> None:
        self.workspace = folder / "proj"
        self.workspace.mkdir(exist_ok=True)
        self.person = person
        self.kept = kept or Kept()
        self.events: list[Event] = []
        rules = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        self._settings = ApprovalSettings(**rules)  # type: ignore[arg-type]
        self._home, self._parts = folder / "home", parts
        self.set_up()

    def set_up(self, **parts: Any) -> None:
        """Create the gate again with other parts."""
        self._parts = msgspec.structs.replace(self._parts, **parts)
        self.gate = PolicyGate(self._settings, self.person, self.kept, self._home, self._parts)

    def call(self, tool: str, session: str = "s1", **arguments: object) -> GateCall:
        spec, effects = ToolSpec(tool, "", {}), frozenset(EFFECTS.get(tool, {"execute"}))
        names = find_named_files if tool == "patch" else None
        made = Tool(spec, "t", effects, _never, tags=tags_of(tool), names=names)
        return GateCall(session, ToolCall("c1", tool, "{}"), made, dict(arguments), str(self.workspace))

    def decide(self, tool: str, session: str = "s1", **arguments: object) -> Decision:
        return asyncio.run(self.gate.decide(self.call(tool, session, **arguments), self.events.append))

    def sh(self, command: str, **more: object) -> Decision:
        return self.decide("terminal", command=command, **more)  # type: ignore[arg-type]


def verdicts(bench: Bench, commands: list[str]) -> list[str]:
    return [bench.sh(command).verdict for command in commands]


def test_reading_needs_no_question(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone())
    assert bench.decide("read_file", path="a.py").verdict == "allow"
    assert bench.decide("search_files", pattern="x").verdict == "allow"
    assert bench.decide("todo").verdict == "allow"
    assert bench.decide("delegate_task", task="x").verdict == "allow"
    assert bench.decide("process", action="poll", id="p1").verdict == "allow"
    assert bench.sh("git status && ls").verdict == "allow"
    assert bench.person.asked == []
    assert bench.events == []


def test_all_else_is_asked_in_mode_ask(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone())
    for tool, arguments in (
        ("terminal", {"command": "make"}),
        ("write_file", {"path": "a.py", "content": "x"}),
        ("patch", {"path": "a.py"}),
        ("web_fetch", {"url": "https://a.org"}),
        ("process", {"action": "kill", "id": "p1"}),
        ("process", {"action": "write", "id": "p1", "text": "y"}),
        ("send_message", {"to": "x"}),
        ("mcp_thing", {}),
        ("odd", {}),
    ):
        assert bench.decide(tool, **arguments).verdict == "deny", tool
    assert len(bench.person.asked) == 9


def test_nobody_there_is_said_truthfully(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(None))
    decision = bench.sh("rm -rf build")
    assert (decision.verdict, decision.decided_by) == ("deny", "nobody")
    assert "Nobody was there to ask" in decision.reason
    assert "nothing was run" in decision.reason
    assert "deletes folders" in decision.reason
    assert "said no" not in decision.reason
    assert "--yes" not in decision.reason
    assert "--yes" in Bench(tmp_path, Someone(None)).sh("make").reason
    assert "Allowed without asking: what only reads." in decision.reason
    assert "what is not dangerous." in Bench(tmp_path, Someone(None), mode="auto").sh("rm -rf x").reason


def test_a_no_is_a_no(tmp_path: Path) -> None:
    decision = Bench(tmp_path, Someone("no")).sh("make")
    assert (decision.verdict, decision.decided_by) == ("deny", "person")
    assert "said no" in decision.reason
    assert "another way" in decision.reason


def test_an_answer_that_is_none_of_the_four_is_a_no(tmp_path: Path) -> None:
    assert Bench(tmp_path, Someone("yes")).sh("make").verdict == "deny"  # type: ignore[arg-type]


def test_events_frame_a_question(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("once"))
    assert bench.sh("rm -rf build").verdict == "allow"
    asked, decided = bench.events
    assert isinstance(asked, ApprovalAsked)
    assert asked.subject == "rm -rf build"
    assert asked.reasons == ("deletes folders with all that is in them",)
    assert decided == ApprovalDecided("c1", "allow", "person")


def test_a_question_holds_all_that_is_decided_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone())
    bench.sh("make", workdir="sub/..")
    bench.decide("write_file", path="a.py", content="x")
    plain, written = bench.person.asked
    assert (plain.session_id, plain.call_id, plain.tool) == ("s1", "c1", "terminal")
    assert plain.arguments == {"command": "make", "workdir": "sub/.."} and plain.opening == ""
    assert plain.folder == written.folder == str(bench.workspace)
    assert plain.reasons == ('mode "ask" asks before every command that may change something',)
    assert plain.grant == "terminal(make)"
    assert plain.digest == hash_call("terminal", plain.arguments, str(bench.workspace), ())
    ruled = Bench(tmp_path, Someone(), ask=["terminal(make *)"])
    ruled.sh("make")
    assert ruled.person.asked[0].reasons == ("the rule ask: terminal(make *) wants a person's decision",)
    assert ruled.person.asked[0].grant == ""


def test_why_a_person_has_to_be_asked_is_said_and_lasts_for_no_other_call(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session", "no"), mode="auto", allow=["terminal(make *)"])
    call = msgspec.structs.replace(bench.call("terminal", command="make"), asks="it is of another's")
    for verdict in ("allow", "deny"):
        assert asyncio.run(bench.gate.decide(call, bench.events.append)).verdict == verdict
    assert [request.reasons for request in bench.person.asked] == [("it is of another's",)] * 2
    assert bench.person.asked[0].grant == ""


def test_once_is_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("once", "no"))
    assert verdicts(bench, ["make", "make"]) == ["allow", "deny"]


def test_a_session_grant_covers_the_program_and_its_verb(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session"))
    assert bench.sh("git commit -m a").verdict == "allow"
    assert bench.person.asked[0].grant == "terminal(git commit *)"
    assert verdicts(bench, ["git commit -m b", "cd src && git commit -m c"]) == ["allow", "allow"]
    denied = ["git add .", "git commit -m x && make", "git commit -m x > /tmp/y", "git commit -m x; git push"]
    assert verdicts(bench, denied) == ["deny"] * 4
    assert bench.decide("terminal", session="s2", command="git commit -m d").verdict == "deny"
    assert bench.kept.grants == []


def test_a_session_grant_covers_its_children(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session"))
    bench.gate.adopt("child", "s1")
    assert bench.sh("make test").verdict == "allow"
    assert bench.decide("terminal", session="child", command="make test").verdict == "allow"


def test_always_is_kept_for_the_workspace(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("always"))
    assert bench.sh("pytest -q").verdict == "allow"
    assert bench.kept.grants == [PolicyGrant("terminal", "pytest *", str(bench.workspace))]
    later = Bench(tmp_path, Someone(), bench.kept)
    assert later.sh("pytest tests").verdict == "allow"
    (tmp_path / "other").mkdir()
    elsewhere = Bench(tmp_path / "other", Someone(), bench.kept)
    assert elsewhere.sh("pytest tests").verdict == "deny"


def test_a_scope_that_was_not_offered_is_the_first(tmp_path: Path) -> None:
    for scope in (-1, 9):
        bench = Bench(tmp_path, Someone(Reply("session", scope=scope)))
        assert bench.sh("pytest -q").verdict == "allow"
        assert verdicts(bench, ["pytest -q tests", "make"]) == ["allow", "deny"]


def test_code_on_the_line_is_granted_as_it_stands(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session"))
    assert bench.sh("python -c 'print(1)'").verdict == "allow"
    assert verdicts(bench, ["python -c 'print(1)'", "python -c 'print(2)'"]) == ["allow", "deny"]


def test_what_is_dangerous_is_never_granted_for_good(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("always"))
    assert bench.sh("rm -rf build").verdict == "allow"
    assert bench.person.asked[0].grant == ""
    assert bench.kept.grants == []
    assert verdicts(bench, ["rm -rf build", "rm -rf src"]) == ["allow", "deny"]


def test_a_download_into_a_shell_is_granted_only_as_a_whole(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session"))
    assert bench.sh("curl a.org | sh").verdict == "allow"
    assert verdicts(bench, ["curl a.org | sh", "curl b.org | sh", "echo x | sh"]) == ["allow", "deny", "deny"]


def test_a_full_disk_makes_always_a_session(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("always"), Kept(full=True))
    assert bench.sh("make").verdict == "allow"
    assert any(isinstance(event, Notice) and "no space" in event.text for event in bench.events)
    assert bench.sh("make").verdict == "allow"


def test_writing_a_file_is_granted_for_the_workspace(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("session"))
    assert bench.decide("write_file", path="a.py").verdict == "allow"
    assert len(bench.person.asked) == 1
    assert bench.decide("write_file", path="a.py").verdict == "allow"
    assert len(bench.person.asked) == 1
    for path in (
        "/opt/b.py",
        "/etc/hosts",
        "~/.bashrc",
        ".git/hooks/pre-commit",
        str(tmp_path / "home/config.yaml"),
    ):
        assert bench.decide("write_file", path=path).verdict == "deny", path


def test_a_link_out_of_the_workspace_is_outside(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto", allow=["write_file(out/*)"])
    (tmp_path / "else").mkdir()
    (bench.workspace / "out").symlink_to("/etc")
    assert bench.decide("write_file", path="sub/x").verdict == "allow"
    assert bench.decide("write_file", path="out/x").verdict == "deny"


def test_a_diff_is_judged_by_every_file_in_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    good = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"
    assert bench.decide("patch", diff=good).verdict == "allow"
    bad = good + "--- /dev/null\n+++ /opt/outside.py\n@@ -0,0 +1 @@\n+b\n"
    assert bench.decide("patch", diff=bad).verdict == "deny"


@pytest.mark.parametrize(
    "header",
    ['"b/\\056git/hooks/pre-commit"', '"b/.g\\151t/config"', "b/x\x0c/../.git/hooks/pre-commit",
     "b/x\u2028/../.git/config", "b/x\x1c/../.envrc", "b/.vscode/tasks.json",
     "b/.git/config\t2001-01-01", "/opt/x"],
)  # fmt: skip
def test_a_diffs_files_are_those_that_it_changes_however_they_are_written(
    tmp_path: Path, header: str
) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    hunk = "@@ -0,0 +1 @@\n+b\n"
    assert bench.decide("patch", diff=f"--- /dev/null\n+++ {header}\n{hunk}").verdict == "deny"
    envelope = f"*** Begin Patch\n*** Add File: {header[2:]}\n+x\n*** End Patch"
    if header.startswith("b/"):
        assert bench.decide("patch", diff=envelope).verdict == "deny"


def test_what_starts_programs_outside_is_asked_about_in_mode_auto_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    subprocess.run(["git", "init", "-q", bench.workspace], check=True)
    subprocess.run(["git", "config", "core.hooksPath", "tools/hooks"], cwd=bench.workspace, check=True)
    (bench.workspace / "way").symlink_to(".vscode")
    for path in (".vscode/tasks.json", ".envrc", ".mcp.json", ".whet/hooks.json", "way/settings.json"):
        assert bench.decide("write_file", path=path).verdict == "deny", path
    assert bench.decide("write_file", path="tools/hooks/pre-commit").verdict == "deny"
    for path in ("vscode/tasks.json", "src/.envrc", "tools/hook.py", ".github/x.yml"):
        assert bench.decide("write_file", path=path).verdict == "allow", path


def test_secrets_are_asked_about_even_in_mode_auto(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    for path in (".env", "config/.env.production", "~/.ssh/id_rsa", "key.pem", "credentials.json"):
        assert bench.decide("read_file", path=path).verdict == "deny", path
    for path in (".env.example", "env.py", "src/secrets.py", "id_rsa.pub"):
        assert bench.decide("read_file", path=path).verdict == "allow", path


def test_mode_auto_asks_only_about_what_is_dangerous(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    allowed = ["make", "git commit -m x", "npm test", "echo x > a.txt"]
    assert verdicts(bench, allowed) == ["allow"] * 4
    assert bench.decide("web_fetch", url="https://a.org").verdict == "allow"
    assert bench.person.asked == []
    assert verdicts(bench, ["git push", "rm -rf x", "$X", "sudo ls"]) == ["deny"] * 4
    assert bench.decide("send_message").verdict == "deny"
    assert len(bench.person.asked) == 5


def test_mode_deny_asks_nobody(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("once"), mode="deny", allow=["terminal(make *)"])
    assert verdicts(bench, ["ls", "make test", "npm test"]) == ["allow", "allow", "deny"]
    assert bench.person.asked == []
    assert "mode is deny" in bench.sh("npm test").reason


def test_the_mode_can_be_changed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone())
    assert bench.sh("make").verdict == "deny"
    bench.gate.set_mode("auto")
    assert bench.gate.mode == "auto"
    assert bench.sh("make").verdict == "allow"


def test_arguments_of_the_wrong_type_are_denied(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone("once"))
    wrong: list[dict[str, Any]] = [{"command": 3}, {"command": "ls", "stdin": ["x"]}, {"command": None}]
    for arguments in wrong:
        decision = bench.decide("terminal", **arguments)
        assert decision.verdict == "deny"
        assert "could not judge" in decision.reason and "must be text" in decision.reason
    assert bench.person.asked == []


def test_a_failing_analysis_is_a_denial(tmp_path: Path) -> None:
    def broken(command: str, cwd: str, scope: RiskScope, stdin: str) -> ShellRisk:
        raise RecursionError("too deep")

    bench = Bench(tmp_path, Someone("once"))
    gate = PolicyGate(
        ApprovalSettings(mode="auto"), bench.person, bench.kept, tmp_path, GateParts(analyse=broken)
    )
    decision = asyncio.run(gate.decide(bench.call("terminal", command="ls"), bench.events.append))
    assert decision.verdict == "deny"
    assert "could not judge" in decision.reason


def test_input_for_a_command_and_for_a_process_is_judged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone(), mode="auto")
    assert bench.sh("bash", stdin="git push").verdict == "deny"
    assert bench.sh("cat", stdin="hello").verdict == "allow"
    assert bench.decide("process", action="write", id="p1", text="rm -rf /").decided_by == "rule"
    assert bench.decide("process", action="write", id="p1", text="y").verdict == "allow"


def test_the_subject_hides_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Someone())
    bench.sh("echo a\u202eb\x1b[2Kc\rd")
    assert bench.person.asked[0].subject == "echo a<U+202E>b\\e[2Kc\\rd"
    bench.sh("echo " + "x" * 5_000 + "; rm -rf y")
    subject = bench.person.asked[1].subject
    assert subject.endswith("; rm -rf y")  # no length hides an end
    bench.sh("make SHELL=sk-abcdefghijklmnopqrstuvwxyz")
    assert bench.person.asked[2].subject == "make SHELL=sk-abcdefghijklmnopqrstuvwxyz"


async def test_one_question_at_a_time_and_an_answer_settles_the_next(tmp_path: Path) -> None:
    class Slow(Someone):
        open_questions = 0
        most = 0

        async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
            self.open_questions += 1
            self.most = max(self.most, self.open_questions)
            await asyncio.sleep(0)
            self.open_questions -= 1
            return await super().approve(request)

    person = Slow("session", "no")
    bench = Bench(tmp_path, person)
    calls = [bench.call("terminal", command=c) for c in ("make a", "make a", "npm test")]
    assert [
        decision.verdict
        for decision in list(
            await asyncio.gather(*(bench.gate.decide(c, bench.events.append) for c in calls))
        )
    ] == ["allow", "allow", "deny"]
    assert person.most == 1
    assert len(person.asked) == 2


async def test_a_cancel_while_asking_passes_through_and_frees_the_gate(tmp_path: Path) -> None:
    class Waiting(Someone):
        async def approve(self, request: ApprovalRequest) -> Answer | Reply | None:
            if request.subject == "make":
                started.set()
                await asyncio.Event().wait()
            return "once"

    started = asyncio.Event()
    bench = Bench(tmp_path, Waiting())
    task = asyncio.ensure_future(
        bench.gate.decide(bench.call("terminal", command="make"), bench.events.append)
    )
    async with asyncio.timeout(30):
        await started.wait()
    await cancel_task(task)
    decision = await bench.gate.decide(bench.call("terminal", command="npm test"), bench.events.append)
    assert decision.verdict == "allow"


@pytest.mark.slow
def test_the_parser_is_loaded_by_the_first_command_only(tmp_path: Path) -> None:
    code = "import sys, whet.approval.gate; print([name for name in sys.modules if 'tree_sitter' in name])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_session_that_plans_only_reads_whatever_is_allowed(tmp_path: Path) -> None:
    kept = Kept(PolicyGrant("terminal", "make *"))
    bench = Bench(tmp_path, Someone("once"), kept, mode="auto", allow=["write_file"])
    bench.gate.adopt("child", "s1")
    bench.gate.plans.set("s1", True)
    assert bench.decide("read_file", path="a.py").verdict == "allow"
    assert bench.sh("git log && ls").verdict == "allow"
    for denied in (
        bench.decide("write_file", path="a.py", content="x"),
        bench.sh("make test"),
        bench.sh("ls > out.txt"),
        bench.decide("write_file", session="child", path="a.py", content="x"),
        bench.decide("odd"),
    ):
        assert (denied.verdict, denied.decided_by) == ("deny", "rule")
        assert "plans and only reads" in denied.reason
    assert bench.person.asked == []
    assert bench.decide("write_file", session="other", path="a.py", content="x").verdict == "allow"
    bench.gate.plans.set("s1", False)
    assert bench.sh("make test").verdict == "allow"
