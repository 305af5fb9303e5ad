"""`whet confirm adopt`: hooks in the settings of other agents, and answers that each agent understands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.confirm.real_agents import PROGRAMS, find_fault
from tests.confirm.test_clients import Person
from whet_confirm.adopt.agents import AGENTS, HookCommand
from whet_confirm.adopt.json_insert import insert_item
from whet_confirm.hook import HOOK_AGENTS, HookAsk, run_hook

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "qwen-code": ".qwen/settings.json",
    "copilot": ".copilot/hooks/whet.json",
    "cursor": ".cursor/hooks.json",
    "opencode": ".config/opencode/plugins/whet.js",
    "pi": ".pi/agent/extensions/whet.js",
}
EVENTS: dict[str, dict[str, Any]] = {
    "codex": {"hook_event_name": "PreToolUse", "tool_use_id": "call_1", "session_id": "s"},
    "gemini": {"hook_event_name": "BeforeTool", "session_id": "s"},
    "cursor": {"hook_event_name": "preToolUse", "conversation_id": "s", "tool_use_id": "c"},
    "copilot": {"sessionId": "s", "toolName": "bash", "toolArgs": {"command": "make"}},
}
DENIED = {
    "codex": {"permissionDecision": "deny"},
    "gemini": {"decision": "deny"},
    "cursor": {"permission": "deny"},
    "copilot": {"permissionDecision": "deny"},
}
ALLOWED = {
    "codex": {},  # it rejects "allow"
    "gemini": {"decision": "allow"},
    "cursor": {"permission": "allow"},
    "copilot": {"permissionDecision": "allow"},
}


def adopt(folder: Path, *arguments: str, **environ: str) -> forked.Done:
    base = {"HOME": str(folder), "WHET_HOME": str(folder / "whet"), "WHET_CONFIRM_URL": "http://127.0.0.1:9"}
    return forked.run(("confirm", "adopt", *arguments), folder, environ=base | environ)


def make_folder(folder: Path, agent: str) -> Path:
    """Return an agent's file, whose folder is there."""
    (folder / FILES[agent]).parent.mkdir()
    return folder / FILES[agent]


@pytest.mark.parametrize("agent", HOOK_AGENTS)
def test_a_setting_is_written_checked_and_removed(tmp_path, agent):
    file = tmp_path / FILES[agent]
    assert "does not have the setting" in adopt(tmp_path, agent, "--check").out
    assert adopt(tmp_path, agent).code == 0
    text = file.read_text()
    assert f"confirm hook --agent {agent} --timeout 300" in text and "exit 2" in text
    if agent not in ("opencode", "pi"):
        json.loads(text)
    checked = adopt(tmp_path, agent, "--check")
    assert checked.code == 1 and "the setting" not in checked.out and "can't be reached" in checked.out
    again = adopt(tmp_path, agent)
    assert again.code == 0 and file.read_text() == text
    assert adopt(tmp_path, agent, "--remove").code == 0 and not file.exists()
    assert "no setting" in adopt(tmp_path, agent, "--remove").err


SETTINGS = [
    "{}",
    '{ "hooks" : { } }\n',
    '{"hooks":{"PreToolUse":[]},"hooks2":{"PreToolUse":1}}',
    '\n{\t"a": "x",\r\n  "hooks": {"Stop": [ 1 ], "PreToolUse": [{"b": "a]}\\""} , {"b": 1}\n] }}\n\n',
    '{"a":{"hooks":{"PreToolUse":[]}},"hooks":{"PreToolUse":[0]},"e":1.0e5,"é":"\\u00e9"}',
    '{"hooks":{"PreToolUse":["first"]},"hooks":{"PreToolUse":["last"]}}',
]


@pytest.mark.parametrize("text", SETTINGS, ids=range(len(SETTINGS)))
def test_an_insertion_changes_no_other_byte(text):
    keys, item = ("hooks", "PreToolUse"), {"matcher": "*"}
    insertion = insert_item(text, keys, item)
    assert insertion.text.replace(insertion.piece, "", 1) == text
    before, after = json.loads(text), json.loads(insertion.text)
    items = after["hooks"]["PreToolUse"]
    assert items.pop() == item and items == before.get("hooks", {}).get("PreToolUse", [])
    for settings in (before, after):
        settings.get("hooks", {}).pop("PreToolUse", None)
    assert after == {"hooks": {}} | before


@pytest.mark.parametrize(
    "text", ["[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', "{} // comment", "x"]
)
def test_a_file_of_another_shape_is_left_alone(tmp_path, text):
    file = make_folder(tmp_path, "claude-code")
    file.write_text(text)
    done = adopt(tmp_path, "claude-code")
    assert done.code != 0 and "by hand" in done.err and file.read_text() == text


COMMENTED = [
    '\ufeff{\r\n  // mine\r\n  "theme": "Dracula", /* keep */\r\n  "hooks": {"AfterTool": [1]}\r\n}\r\n',
    '// first {\n{ /* "hooks": {"BeforeTool": [ */ }\n// last',
    '{"hooks": { // "BeforeTool": [\n "BeforeTool" /* : */ : [ // ["\n {"a": "// no /* comment"} // b\n ]}}',
    '{"a\\"//": "b\\\\", /* " */ "hooks": /**/ {"BeforeTool": [/* none */]}}',
]


@pytest.mark.parametrize("before", COMMENTED, ids=range(len(COMMENTED)))
def test_a_file_with_comments_is_extended_checked_and_restored(tmp_path, before):
    file = make_folder(tmp_path, "gemini")
    file.write_bytes(before.encode())
    assert "does not have the setting" in adopt(tmp_path, "gemini", "--check").out
    for options in ([], ["--timeout", "77"]):
        done = adopt(tmp_path, "gemini", *options)
        assert done.code == 0, done.err
        checked = adopt(tmp_path, "gemini", "--check").out
        assert "the setting" not in checked and "can't be read" not in checked
    text = file.read_bytes().decode()
    assert text.count("confirm hook --agent") == 1 and "--timeout 77 " in text
    assert adopt(tmp_path, "gemini", "--remove").code == 0
    assert file.read_bytes().decode() == before


def test_comments_stay_after_the_setting_was_edited(tmp_path):
    file = make_folder(tmp_path, "gemini")
    file.write_text('{"hooks": {"BeforeTool": [ // mine\n {"matcher": "x"} // last\n]}}')
    assert adopt(tmp_path, "gemini").code == 0
    file.write_text(file.read_text().replace('"hooks": [', '"hooks":\n[').replace("// last", ", 1 // last"))
    assert "the setting" not in adopt(tmp_path, "gemini", "--check").out
    assert "rewritten" in adopt(tmp_path, "gemini", "--remove").out
    text = file.read_text()
    assert "// mine" in text and "// last" in text and "confirm hook" not in text
    plain = text.replace("// mine", "").replace("// last", "")
    assert json.loads(plain) == {"hooks": {"BeforeTool": [{"matcher": "x"}, 1]}}


def test_the_check_reads_a_setting_written_by_hand_and_names_a_file_it_can_not_read(tmp_path):
    file = make_folder(tmp_path, "gemini")
    file.write_text('{"theme": 1,}')
    entry = adopt(tmp_path, "gemini").err.partition("by hand: ")[2].splitlines()[0]
    checked = adopt(tmp_path, "gemini", "--check").out
    assert checked.count("settings.json can't be read: ") == 1 and "the setting" not in checked
    file.write_text(f'{{ // mine\n "hooks": {{"BeforeTool": [{entry}]}}}}')
    assert "the setting" not in adopt(tmp_path, "gemini", "--check").out
    file.write_text(file.read_text().replace("// mine", '"hooksConfig": {"enabled": false}, // mine'))
    assert "turns all hooks off" in adopt(tmp_path, "gemini", "--check").out


@pytest.mark.parametrize(
    "before",
    [b'\xef\xbb\xbf{\n\t"theme": "Gr\xc3\xbcn"\n}', b'\xef\xbb\xbf{"theme": 1}\r\n', b"\xef\xbb\xbf",
     b"\xef\xbb\xbf \r\n", b"", b"\r\n\r\n", b'{\r\n\t"model": "opus"\r\n}',
     b'{"hooks": {"PreToolUse": [], "BeforeTool": [{"matcher": "x"}]}}', None],
)  # fmt: skip
@pytest.mark.slow
def test_removal_after_updates_restores_every_byte(tmp_path, before):
    agent = "gemini"
    file = make_folder(tmp_path, agent)
    if before is not None:
        file.write_bytes(before)
    for options in ([], ["--timeout", "900", "--match", "Bash"], ["--timeout", "35"]):
        done = adopt(tmp_path, agent, *options)
        assert done.code == 0, done.err
    text = file.read_bytes()
    assert text.startswith(b"\xef\xbb\xbf") == (before or b"").startswith(b"\xef\xbb\xbf")
    json.loads(text.decode("utf-8-sig"))
    assert text.count(b"confirm hook --agent") == 1
    assert b"--timeout 35 " in text and b"--match" not in text
    assert "the setting" not in adopt(tmp_path, agent, "--check").out
    assert adopt(tmp_path, agent, "--remove").code == 0
    assert (file.read_bytes() if file.exists() else None) == before


def test_an_update_after_the_agent_rewrote_its_file_leaves_one_hook(tmp_path):
    file = make_folder(tmp_path, "claude-code")
    file.write_text('{"model": "a", "hooks": {"PreToolUse": [{"matcher": "Read"}]}}')
    assert adopt(tmp_path, "claude-code").code == 0
    file.write_text(json.dumps(json.loads(file.read_text()), indent="\t"))
    assert adopt(tmp_path, "claude-code", "--timeout", "900").code == 0
    assert file.read_text().count("confirm hook --agent") == 1 and "--timeout 900" in file.read_text()
    assert adopt(tmp_path, "claude-code", "--remove").code == 0
    assert json.loads(file.read_text()) == {"model": "a", "hooks": {"PreToolUse": [{"matcher": "Read"}]}}


def test_a_setting_without_a_record_or_in_another_folder_is_refused(tmp_path):
    file = tmp_path / FILES["claude-code"]
    assert adopt(tmp_path, "claude-code").code == 0
    text = file.read_text()
    other_home = adopt(tmp_path, "claude-code", WHET_HOME=str(tmp_path / "other"))
    assert other_home.code != 0 and "did not write" in other_home.err
    other_folder = adopt(tmp_path, "claude-code", CLAUDE_CONFIG_DIR=str(tmp_path / "second"))
    assert other_folder.code != 0 and "has the setting of Claude Code" in other_folder.err
    assert file.read_text() == text and not (tmp_path / "second").exists()
    assert adopt(tmp_path, "claude-code", "--remove").code == 0 and not file.exists()


def test_removal_keeps_what_the_owner_changed_since(tmp_path):
    file = make_folder(tmp_path, "claude-code")
    link = tmp_path / "dotfiles.json"
    link.write_text('{\n   "model": "a",  "hooks": {"PreToolUse": [{"matcher": "Read"}]}}')
    link.chmod(0o640)
    file.symlink_to(link)
    assert adopt(tmp_path, "claude-code").code == 0
    file.write_text(file.read_text().replace('"a",  ', '"b",  '))
    assert adopt(tmp_path, "claude-code", "--remove").out.count("rewritten") == 0
    assert link.read_text() == '{\n   "model": "b",  "hooks": {"PreToolUse": [{"matcher": "Read"}]}}'
    assert file.is_symlink() and link.stat().st_mode & 0o777 == 0o640
    assert adopt(tmp_path, "claude-code").code == 0
    file.write_text(json.dumps(json.loads(file.read_text()), indent="\t"))  # as an agent writes its settings
    assert "the setting" not in adopt(tmp_path, "claude-code", "--check").out
    assert "had been rewritten" in adopt(tmp_path, "claude-code", "--remove").out
    assert json.loads(file.read_text()) == {"model": "b", "hooks": {"PreToolUse": [{"matcher": "Read"}]}}


def test_the_check_finds_hooks_that_are_turned_off_or_not_trusted(tmp_path):
    adopt(tmp_path, "claude-code")
    adopt(tmp_path, "codex")
    assert "does not trust the hook yet" in adopt(tmp_path, "codex", "--check").out
    file = tmp_path / FILES["codex"]
    trusted = f'[hooks.state."{file}:pre_tool_use:0:0"]\ntrusted_hash = "sha256:1"\n'
    (file.parent / "config.toml").write_text(trusted)
    assert "trust" not in adopt(tmp_path, "codex", "--check").out
    (file.parent / "config.toml").write_text(f"{trusted}[features]\nhooks = false\n")
    assert "turns all hooks off (features.hooks)" in adopt(tmp_path, "codex", "--check").out
    file = tmp_path / FILES["claude-code"]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"disableAllHooks": True}))
    assert "turns all hooks off (disableAllHooks)" in adopt(tmp_path, "claude-code", "--check").out


def test_an_agent_with_a_folder_of_its_own_is_found_there(tmp_path):
    folder = tmp_path / "other"
    assert adopt(tmp_path, "codex", CODEX_HOME=str(folder)).code == 0
    assert (folder / "hooks.json").exists() and not (tmp_path / ".codex").exists()


@pytest.mark.fast_rows("codex", "gemini")
@pytest.mark.parametrize("agent", EVENTS)
def test_each_agent_gets_an_answer_in_its_own_form(server, monkeypatch, agent):
    monkeypatch.setenv("CONFIRMATION_TOKEN", server.token("submit", "agent"))
    fields = {"tool_name": "bash", "tool_input": {"command": "make"}, "cwd": "/tmp"} | EVENTS[agent]
    ask = HookAsk(server.url)

    def run(**changed: Any) -> dict[str, Any]:
        answer = json.loads(run_hook(json.dumps(fields | changed), agent, ask))
        return answer.get("hookSpecificOutput", answer)

    with Person(server, "deny", reason="use staging"):
        denied = run()
        assert denied.items() >= DENIED[agent].items() and "use staging" in str(denied)
    with Person(server, "approve"):
        allowed = run(tool_use_id="another")
        assert allowed.items() >= ALLOWED[agent].items() and bool(allowed) is bool(ALLOWED[agent])
    rows = server.rows("SELECT action, requester, session_key, details FROM requests")
    assert set(rows) == {("tool:bash", agent, "s", '{"command":"make"}')}


def test_a_hook_that_can_not_run_blocks_the_tool(tmp_path):
    """Agents run the tool after any exit code but 2, and some after a 2 without words."""
    for program in ("/does/not/exist", "/bin/false"):
        line = HookCommand("codex", (program,), {"WHET_HOME": "/a b"}, ("Ba*",)).line
        done = subprocess.run(["sh", "-c", line], capture_output=True, check=False, input=b"{}")
        assert done.returncode == 2 and b"whet confirm hook failed" in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
@pytest.mark.parametrize("agent", ["opencode", "pi"])
def test_a_plugin_holds_the_tool_until_a_person_decides(server, tmp_path, agent):
    environ = {"WHET_HOME": str(tmp_path / "home"), "WHET_CONFIRM_URL": server.url}
    command = HookCommand(agent, (sys.executable, "-m", "whet"), environ)
    (tmp_path / "whet.mjs").write_text(AGENTS[agent].make_content(command))
    (tmp_path / "try.mjs").write_text(DRIVERS[agent])

    def run(tool: str) -> str:
        environ = os.environ | {"CONFIRMATION_TOKEN": server.token("submit", f"agent-{tool}-{len(tool)}")}
        command = ["node", "try.mjs", tool]
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert run("read") == "ran"
    with Person(server, "approve"):
        assert run("bash") == "ran"
    with Person(server, "deny", reason="use staging"):
        assert "denied by alice: use staging" in run("write")


DRIVERS = {
    "opencode": """
import { WhetConfirm } from "./whet.mjs"
const hooks = await WhetConfirm({ directory: "/tmp" })
const call = { tool: process.argv[2], sessionID: "s", callID: "c" }
await hooks["tool.execute.before"](call, { args: { command: "make" } })
  .then(() => console.log("ran"), (error) => console.log(error.message))
""",
    "pi": """
import install from "./whet.mjs"
let handle
install({ on: (name, handler) => { handle = handler } })
const event = { toolName: process.argv[2], toolCallId: "c", input: { command: "make" } }
console.log((await handle(event, { cwd: "/tmp" }))?.reason ?? "ran")
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("agent", PROGRAMS)
def test_the_real_program_is_held(server, tmp_path, agent):
    if shutil.which(PROGRAMS[agent].program) is None:
        pytest.skip(f"{PROGRAMS[agent].program} is not installed")
    assert find_fault(server, agent, tmp_path / "home") == ""


@pytest.mark.parametrize("command", [("adopt", "claude-code"), ("gateway",)])
def test_less_time_than_the_service_gives_people_is_refused(tmp_path, command):
    rest = ("--", "true") if command == ("gateway",) else ()
    home = {"HOME": str(tmp_path), "WHET_HOME": str(tmp_path / "whet")}
    done = forked.run(("confirm", *command, "--timeout", "29", *rest), tmp_path, environ=home)
    assert done.code == 2 and "29 is not in the range x>=30" in done.err
