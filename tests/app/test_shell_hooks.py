"""Shell hooks around real calls: what they are told, what they refuse, and that they fail closed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.agent.rig import calls
from tests.app.opened import ask, open_app, practice_model
from tests.support import cancel_task
from tests.tools.test_shell import is_running
from whet.config.paths import Home
from whet.config.permission_settings import ApprovalSettings, HookSettings, HooksSettings, SandboxSettings
from whet.contract.errors import ConfigError, WhetError
from whet.contract.events import Event, Notice, TurnEnd
from whet.hooks.repository import accept, is_accepted, read_repository_hooks, refuse
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

DONE = ScriptedReply("done")
WRITE = calls(("write_file", '{"path":"a.txt","content":"hi"}'))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def turn(
    work: Path, hooks: dict[str, HookSettings], *script: ScriptedReply
) -> tuple[TurnEnd, list[str], list[Event]]:
    async def main() -> tuple[TurnEnd, list[str], list[Event]]:
        with PracticeServer(script=[*script, DONE]) as server:
            async with open_app(
                work.parent / "home",
                work,
                practice_model(server.base_url),
                approval=ApprovalSettings(mode="auto"),
                hooks=HooksSettings(hooks),
            ) as app:
                session = await app.new_session()
                seen: list[Event] = []
                end = await ask(session, "do it", seen)
                texts = [m.text + m.note for m in session.log.messages if m.role != "assistant"]
                return end, texts, seen

    return asyncio.run(main())


def hook(event: str, command: str, **more: object) -> HookSettings:
    return msgspec.convert({"event": event, "command": command, **more}, HookSettings)


@pytest.mark.slow
def test_a_hook_is_told_what_it_stands_before_and_after(work: Path):
    hooks = {
        "before": hook("PreToolUse", "cat > before.json", tools="write_.*"),
        "other": hook("PreToolUse", "touch wrong", tools="read_file"),
        "after": hook("PostToolUse", "cat > after.json; echo formatted"),
        "prompt": hook("UserPromptSubmit", "cat > prompt.json; echo branch main"),
        "stop": hook("Stop", "cat > stop.json"),
    }
    end, texts, _ = turn(work, hooks, WRITE)
    before, after, prompt, stop = (
        msgspec.json.decode((work / f"{name}.json").read_bytes())
        for name in ("before", "after", "prompt", "stop")
    )
    assert end.reason == "answered" and (work / "a.txt").read_text() == "hi"
    about = {"hook_event_name": "PreToolUse", "session_id": end.session_id, "cwd": str(work)}
    call = {"tool_name": "write_file", "tool_input": {"path": "a.txt", "content": "hi"}}
    assert before == about | call
    assert after["hook_event_name"] == "PostToolUse" and "a.txt" in after["tool_response"]
    assert prompt["prompt"] == "do it" and stop["reason"] == "answered"
    assert "branch main" in texts[0] and "[A hook says: formatted]" in texts[1]
    assert not (work / "wrong").exists()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo not there >&2; exit 2", "not there"),
        ("""echo '{"decision": "block", "reason": "not on friday"}'""", "not on friday"),
        (
            """echo '{"hookSpecificOutput": {"permissionDecision": "deny",
            "permissionDecisionReason": "never"}}'""",
            "never",
        ),
        ("exit 1", "exit 1"),
        ("no-such-program-anywhere", "exit 127"),
        ("sleep 30", "limit of 0.2 s"),
        ("kill -9 $$", "failed with exit"),
    ],
)
def test_a_hook_before_a_call_refuses_it_and_fails_closed(work: Path, command: str, reason: str):
    _, texts, _ = turn(
        work, {"guard": hook("PreToolUse", command, timeout_s=0.2 if "sleep" in command else 20)}, WRITE
    )
    assert "nothing was run" in texts[1] and reason in texts[1] and not (work / "a.txt").exists()


@pytest.mark.parametrize(
    "printed",
    [
        '{"decision": "deny", "reason": "never"}',
        '{"permissionDecision": "deny", "reason": "never"}',
        '{"hookSpecificOutput": {"permissionDecision": "defer", "permissionDecisionReason": "never"}}',
        'loading\\n{"decision": "block", "reason": "never"}',
        '{"decision": "block", "reason": "never \\\\ud83d"}',
        '{"decision": "approve"}\\n{"decision": "block", "reason": "never"}',
        'loading\\n{\\n "decision": "block",\\n "reason": "never"\\n}\\ndone',
    ],
)
def test_a_decision_that_is_not_a_yes_is_a_no_wherever_it_is_printed(work: Path, printed: str):
    """https://github.com/anthropics/claude-code/issues/84656"""
    _, texts, _ = turn(work, {"guard": hook("PreToolUse", f"printf '{printed}'")}, WRITE)
    assert "nothing was run: never" in texts[1] and not (work / "a.txt").exists()


@pytest.mark.parametrize(("content", "runs"), [("hi", True), ("bye", False)])
def test_a_call_that_a_hook_wants_changed_does_not_run_as_it_was(work: Path, content: str, runs: bool):
    """https://github.com/anthropics/claude-code/issues/90725"""
    specific = {"permissionDecision": "allow", "updatedInput": {"content": content}}
    answer = msgspec.json.encode({"hookSpecificOutput": specific}).decode()
    _, texts, _ = turn(work, {"rewrite": hook("PreToolUse", f"echo '{answer}'")}, WRITE)
    assert (work / "a.txt").exists() is runs
    assert runs or "the hook rewrite did not agree: it wants to change the call" in texts[1]


def test_what_a_hook_prints_beside_json_is_no_decision(work: Path):
    command = """printf '[1]\\n{not json}\\n{"reason": null}\\n {"decision": "block"}\\n'"""
    turn(work, {"chatty": hook("PreToolUse", command)}, WRITE)
    assert (work / "a.txt").read_text() == "hi"


def test_a_hook_s_yes_allows_nothing(work: Path):
    yes = """echo '{"decision": "approve", "hookSpecificOutput": {"permissionDecision": "allow"}}'"""
    removing = calls(("terminal", '{"command":"rm -rf /"}'))
    _, texts, _ = turn(work, {"yes": hook("PreToolUse", yes)}, removing)
    assert "nobody" in texts[1].lower() or "denied" in texts[1].lower()


@pytest.mark.parametrize("command", ["echo no secrets here >&2; exit 2", "exit 7"])
def test_a_prompt_can_be_refused_before_anything_is_stored(work: Path, command: str):
    with pytest.raises(WhetError, match="a hook refused this message"):
        turn(work, {"guard": hook("UserPromptSubmit", command)}, WRITE)
    assert not (work / "a.txt").exists()


def test_a_failing_hook_after_a_turn_is_named(work: Path):
    end, _, events = turn(work, {"tidy": hook("Stop", "exit 7")})
    notices = [event.text for event in events if isinstance(event, Notice) and event.must_show]
    assert end.reason == "answered" and any("tidy" in text and "exit 7" in text for text in notices)


@pytest.mark.slow
def test_a_hook_after_a_call_can_object_and_its_failure_breaks_nothing(work: Path):
    end, texts, _ = turn(work, {"lint": hook("PostToolUse", "echo bad style >&2; exit 2")}, WRITE)
    assert "[A hook objects: bad style]" in texts[1] and (work / "a.txt").exists()
    end, texts, _ = turn(work, {"lint": hook("PostToolUse", "exit 9")}, WRITE)
    assert end.reason == "answered" and "exit 9" in texts[1]


@pytest.mark.slow
def test_the_model_reads_a_hooks_objection_to_a_call_that_failed(work: Path):
    hooks = {"lint": hook("PostToolUse", "echo look first >&2; exit 2")}
    _, texts, _ = turn(work, hooks, calls(("patch", '{"path":"a.txt","old_string":"x","new_string":"y"}')))
    assert "a.txt" in texts[1] and texts[1].endswith("[A hook objects: look first]")


MEET = "touch {0}.here; while [ ! -e {1}.here ]; do sleep 0.01; done; {2}"


@pytest.mark.slow
def test_hooks_of_one_event_run_at_the_same_time_and_answer_in_order(work: Path):
    hooks = {
        "first": hook(
            "UserPromptSubmit",
            MEET.format("a", "b", "until [ -e second ]; do sleep 0.01; done; echo 1"),
            timeout_s=10,
        ),
        "second": hook("UserPromptSubmit", MEET.format("b", "a", "touch second; echo 2"), timeout_s=10),
    }
    end, texts, _ = turn(work, hooks)
    assert end.reason == "answered" and "1\n2" in texts[0]


@pytest.mark.slow
def test_one_block_among_hooks_that_agree_refuses_the_call(work: Path):
    hooks = {
        "agrees": hook("PreToolUse", MEET.format("a", "b", "echo fine"), timeout_s=10),
        "blocks": hook("PreToolUse", MEET.format("b", "a", "echo not today >&2; exit 2"), timeout_s=10),
        "fails": hook("PreToolUse", "exit 7"),
        "also agrees": hook("PreToolUse", 'echo \'{"decision": "approve"}\''),
    }
    _, texts, _ = turn(work, hooks, WRITE)
    assert not (work / "a.txt").exists() and "nothing was run: not today\nthe hook fails failed" in texts[1]


@pytest.mark.slow
async def test_a_cancelled_turn_leaves_none_of_its_hooks_running(work: Path):
    command = "echo $$ > $$.part; mv $$.part $$.pid; sleep 600"
    hooks = {str(number): hook("UserPromptSubmit", command) for number in range(160)}
    async with open_app(
        work.parent / "home",
        work,
        practice_model("http://127.0.0.1:9"),
        sandbox=SandboxSettings(mode="off"),
        hooks=HooksSettings(hooks),
    ) as app:
        running = asyncio.ensure_future(ask(await app.new_session(), "do it"))
        while len(list(work.glob("*.pid"))) < 20:
            await asyncio.sleep(0)
        await cancel_task(running)
    pids = [int(path.stem) for path in work.glob("*.pid")]
    assert 20 <= len(pids) <= 128 and not [pid for pid in pids if is_running(pid)]


def test_secrets_do_not_reach_a_hook(work: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    turn(work, {"spy": hook("UserPromptSubmit", "env > env.txt")})
    assert "s3cret" not in (work / "env.txt").read_text()


def bring(work: Path, command: str, event: str = "PreToolUse", **more: object) -> None:
    """Have the repository bring a hook `guard` along."""
    (work / ".whet").mkdir(exist_ok=True)
    hooks = {"guard": {"event": event, "command": command, **more}}
    (work / ".whet/hooks.json").write_bytes(msgspec.json.encode(hooks))


def accept_hooks(work: Path) -> None:
    repository = read_repository_hooks(work)
    assert repository is not None
    accept(Home(work.parent / "home"), repository)


def are_accepted(work: Path) -> bool:
    repository = read_repository_hooks(work)
    assert repository is not None
    return is_accepted(Home(work.parent / "home"), repository)


@pytest.mark.slow
def test_a_repository_s_hooks_run_only_once_they_were_accepted(work: Path):
    bring(work, "sh ./guard.sh")
    (work / "guard.sh").write_text("echo theirs >&2; exit 2")
    _, _, seen = turn(work, {}, WRITE)
    assert (work / "a.txt").exists()
    assert any(e.text.startswith("this repository brings") for e in seen if isinstance(e, Notice))
    accept_hooks(work)
    assert "theirs" in turn(work, {}, WRITE)[1][1]
    (work / "guard.sh").write_text("echo changed >&2; exit 2")
    assert not are_accepted(work)
    result = turn(work, {}, WRITE)[1][1]
    assert "changed since you accepted them" in result and "changed\n" not in result
    home = Home(work.parent / "home")
    assert refuse(home, work) and not refuse(home, work)
    assert "refused" not in turn(work, {}, WRITE)[1][1]


CHANGES = {
    "Makefile": ("make check", "check:\n\ttrue\n"),
    "lib/inner.sh": ("sh ./outer.sh", "true"),
    "tools/helper.py": ("python3 -m tools.helper", "pass"),
    "guard_me.py": ("python3 -m guard_me", "pass"),
    "parts/a.sh": ("sh scripts/all.sh", "true"),
    "checks/a.sh": ("for f in checks/*.sh; do sh $f; done", "true"),
    "named.sh": ("S=named.sh; sh ./$S", "true"),
    "imported.py": ("python3 run.py", "pass"),
    "d/in.sh": ("cd d && sh in.sh", "true"),
    "d/deep/in.sh": ("cd d; cd deep; ./in.sh", "true"),
    "w.sh": ('sh "$WHET_PROJECT_DIR/w.sh"', "true"),
    "required.js": ("node hk.js", "1"),
    "modules/index.js": ("node hk.js", "1"),
    "bin/tool1": ("PATH=$PWD/bin:$PATH tool1", "true"),
    "scripts/lib.inc": ("sh scripts/self.sh", "true"),
    "pk/Makefile": ("cd pk && make", "all:\n\ttrue\n"),
    "pk/package.json": ("cd pk && npm run x", "{}"),
    "pk/called.sh": ("cd pk && sh ../scripts/calls.sh", "true"),
}


@pytest.mark.fast_rows("Makefile", "guard_me.py", "d/deep", "required.js", "w.sh", "bin/tool1")
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_an_accepted_hook_runs_takes_the_acceptance_back(work: Path, name: str):
    command, text = CHANGES[name]
    (work / "outer.sh").write_text("#!/bin/sh\n. lib/inner.sh\n")
    (work / "run.py").write_text("import imported\n")
    (work / "scripts").mkdir()
    (work / "scripts/all.sh").write_text('for part in ../parts/*.sh; do . "$part"; done\n')
    (work / "scripts/self.sh").write_text('. "$(dirname "$0")/lib.inc"\n')
    (work / "scripts/calls.sh").write_text("sh called.sh\n")
    (work / "hk.js").write_text("require('./required'); require('./modules')\n")
    (work / "README.md").write_text("Read me.")
    (work / name).parent.mkdir(exist_ok=True, parents=True)
    (work / name).write_text(text)
    bring(work, command)
    accept_hooks(work)
    (work / "README.md").write_text("Read me again.")
    assert are_accepted(work)
    (work / name).write_text(text + "\n# and more\n")
    assert not are_accepted(work)


@pytest.mark.parametrize(
    "command", ["ruff check src", "make test", "python3 -m pytest tests", "cat src/*.txt"]
)
def test_an_edit_of_what_an_accepted_hook_only_looks_at_leaves_it_accepted(work: Path, command: str):
    for name in ("src/app.py", "src/checker.py", "tests/test_app.py", "Makefile"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("x")
    bring(work, command, "PostToolUse")
    accept_hooks(work)
    for name in ("src/app.py", "src/checker.py", "tests/test_app.py"):
        (work / name).write_text("edited")
    assert are_accepted(work)


def test_the_files_of_hooks_that_nobody_accepted_are_not_read(work: Path):
    (work / "run.sh").write_text("exit 0")
    bring(work, "sh run.sh")
    home = Home(work.parent / "home")
    hooks = read_repository_hooks(work)
    assert hooks is not None and not is_accepted(home, hooks)
    (work / "run.sh").write_text("exit 1")
    accept(home, hooks)  # reads them now
    assert are_accepted(work)


@pytest.mark.slow
def test_an_accepted_hook_for_a_tool_that_there_is_not_is_named(work: Path):
    (work / ".whet").mkdir()
    hooks = {
        name: {"event": "PreToolUse", "tools": name, "command": "exit 2"} for name in ("Bash", "write_file")
    }
    (work / ".whet/hooks.json").write_bytes(msgspec.json.encode(hooks))
    accept_hooks(work)
    _, _, seen = turn(work, {})
    assert [e.text for e in seen if isinstance(e, Notice) and "never runs" in e.text] == [
        f"hooks: {work.name}/Bash names no tool, so it never runs"
        " (commands are terminal, edits write_file|patch)"
    ]


@pytest.mark.slow
def test_a_hook_that_names_everything_is_read_within_limits(work: Path):
    words = " ".join(f"word{number}" for number in range(2_000))
    for number in range(300):
        (work / f"script{number}.sh").write_text(f"{words} d{number}/*/x script{number + 1}.sh")
    bring(work, "sh script0.sh; cat **/* */*/*/*")
    accept_hooks(work)
    (work / "script0.sh").write_text("exit 1")
    assert not are_accepted(work)


@pytest.mark.slow
def test_a_hook_s_script_that_changes_during_a_session_does_not_run_again(work: Path):
    bring(work, "sh ./guard.sh")
    (work / "guard.sh").write_text("exit 0")
    accept_hooks(work)
    edit = calls(("write_file", '{"path":"guard.sh","content":"touch ran"}'))
    _, texts, _ = turn(work, {}, edit, WRITE)
    assert (work / "guard.sh").read_text() == "touch ran"
    assert not (work / "ran").exists() and not (work / "a.txt").exists()
    assert any("changed since you accepted them" in text for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["guard.sh", ".whet/hooks.json"])
def test_an_accepted_hook_that_changes_between_sessions_refuses_what_it_guards(work: Path, name: str):
    bring(work, "sh ./guard.sh")
    (work / "guard.sh").write_text("exit 0")
    accept_hooks(work)
    (work / name).write_text((work / name).read_text() + "\n")
    _, texts, seen = turn(work, {}, WRITE)
    assert not (work / "a.txt").exists()
    assert any("changed since you accepted them" in text for text in texts)
    assert any("changed since" in event.text for event in seen if isinstance(event, Notice))


@pytest.mark.slow
@pytest.mark.parametrize("writes", [False, True])
def test_a_repository_s_hook_writes_the_workspace_only_if_that_was_accepted(work: Path, writes: bool):
    bring(work, "touch mark 2>/dev/null; true", writes=writes)
    accept_hooks(work)
    turn(work, {}, WRITE)
    assert (work / "a.txt").exists() and (work / "mark").exists() == writes


def test_a_broken_file_of_a_repository_is_said_and_runs_nothing(work: Path):
    (work / ".whet").mkdir()
    (work / ".whet/hooks.json").write_text("{")
    with pytest.raises(ConfigError):
        read_repository_hooks(work)
    end, _, seen = turn(work, {}, WRITE)
    assert end.reason == "answered" and any("hooks.json" in e.text for e in seen if isinstance(e, Notice))
