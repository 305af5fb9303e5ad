"""AGENTS.md of folders inside the workspace: given with the first result that touches them, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.agent.rig import calls
from tests.app.opened import ask, open_app, practice_model
from whet.config.permission_settings import ApprovalSettings
from whet.context.prompt import NestedInstructions
from whet.contract.events import Event, Notice
from whet.contract.tools import Tool, ToolContext, ToolOutput, ToolSpec
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def read(*paths: str) -> ScriptedReply:
    return calls(*[("read_file", msgspec.json.encode({"path": path}).decode()) for path in paths])


def results(folder: Path, script: list[ScriptedReply], *, reopen: int = 0) -> list[str]:
    """Run one turn, closing the program and opening the session again before the last `reopen` replies."""

    async def main() -> list[str]:
        session_id = ""
        parts = [script[: len(script) - reopen], script[len(script) - reopen :]]
        texts: list[str] = []
        for part in filter(None, parts):
            with PracticeServer(script=part) as server:
                model = practice_model(server.base_url)
                async with open_app(folder / "home", folder / "work", model) as app:
                    session = await (app.open_session(session_id) if session_id else app.new_session())
                    session_id = session.id
                    end = await ask(session, "go")
                    assert end.reason == "answered", end
                    texts = [m.text for m in session.log.messages if m.role == "tool"]
                    prompts = [m.text for m in session.log.messages if m.role == "user"]
                    assert not any("Instructions for" in text for text in prompts)
        return texts

    return asyncio.run(main())


def project(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    write(work / "AGENTS.md", "ROOT RULES")
    write(work / "packages/AGENTS.md", "PACKAGES RULES")
    write(work / "packages/web/CLAUDE.md", "WEB RULES")
    for name in ("a.py", "packages/web/b.py", "packages/web/deep/c.py", "packages/api/d.py"):
        write(work / name, f"text of {name}\n")
    return work


DONE = ScriptedReply("done")


def test_each_file_comes_with_the_first_call_below_it_and_once(tmp_path: Path):
    project(tmp_path)
    texts = results(
        tmp_path,
        [read("a.py"), read("packages/web/deep/c.py"), read("packages/web/b.py", "packages/api/d.py"), DONE],
    )
    assert [("PACKAGES RULES" in t, "WEB RULES" in t) for t in texts] == [
        (False, False),
        (True, True),
        (False, False),
        (False, False),
    ]
    assert "text of packages/web/deep/c.py" in texts[1] and not any("ROOT RULES" in t for t in texts)
    assert texts[1].index("PACKAGES RULES") < texts[1].index("WEB RULES")


def test_after_a_restart_it_is_not_given_again(tmp_path: Path):
    project(tmp_path)
    texts = results(
        tmp_path, [read("packages/web/b.py"), DONE, read("packages/web/deep/c.py"), DONE], reopen=2
    )
    assert "WEB RULES" in texts[0] and "RULES" not in texts[1]


def test_agents_md_stands_before_claude_md_in_one_folder(tmp_path: Path):
    write(project(tmp_path) / "packages/web/AGENTS.md", "WEB AGENTS")
    (text,) = results(tmp_path, [read("packages/web/b.py"), DONE])
    assert "WEB AGENTS" in text and "WEB RULES" not in text


def test_another_repository_a_hidden_folder_and_a_link_out_are_not_the_project_s(tmp_path: Path):
    work = project(tmp_path)
    for name in ("clone", ".venv", "linked"):
        write(work / name / "x.py", "x\n")
    write(work / "clone/.git/HEAD", "ref: refs/heads/main\n")
    write(work / "clone/AGENTS.md", "STRANGE RULES")
    write(work / ".venv/AGENTS.md", "STRANGE RULES")
    write(tmp_path / "elsewhere.md", "STRANGE RULES")
    (work / "linked/AGENTS.md").symlink_to(tmp_path / "elsewhere.md")
    texts = results(tmp_path, [read("clone/x.py", ".venv/x.py", "linked/x.py"), DONE])
    assert not any("STRANGE" in text for text in texts)


def test_a_long_file_is_cut_and_the_result_stays_whole(tmp_path: Path):
    write(project(tmp_path) / "packages/api/AGENTS.md", "Rule. " * 5_000)
    (text,) = results(tmp_path, [read("packages/api/d.py"), DONE])
    assert "text of packages/api/d.py" in text and "characters cut" in text and len(text) < 9_000


@pytest.mark.parametrize("denied", [True, False])
async def test_instructions_in_a_protected_file_are_left_out_with_one_notice(
    tmp_path: Path, denied: bool
) -> None:
    work = project(tmp_path)
    (work / "CLAUDE.md").symlink_to("AGENTS.md")
    rules = ("read(AGENTS.md)", "read(packages/web/*.md)") if denied else ()
    script = [read("packages/web/b.py"), read("packages/web/deep/c.py"), DONE]
    with PracticeServer(script=script) as server:
        model, approval = practice_model(server.base_url), ApprovalSettings(deny=rules)
        events: list[Event] = []
        async with open_app(tmp_path / "home", work, model, approval=approval) as app:
            await ask(await app.new_session(), "go", events)
        requests = " ".join(request.body.decode() for request in server.requests)
        sent, notices = requests, [event.text for event in events if isinstance(event, Notice)]
    assert ("ROOT RULES" in sent, "WEB RULES" in sent) == (not denied, not denied)
    assert "PACKAGES RULES" in sent and "text of packages/web/b.py" in sent
    left_out = [line for line in notices if "left out: the rule deny" in line]
    assert [("AGENTS.md" in line, "packages/web/CLAUDE.md" in line) for line in left_out] == (
        [(True, False), (False, True)] if denied else []
    )


async def test_links_to_instructions_that_are_not_read_are_named_once(tmp_path: Path) -> None:
    work = tmp_path / "linked"
    (work / ".git").mkdir(parents=True)
    write(tmp_path / "elsewhere.md", "STRANGE RULES")
    (work / "AGENTS.md").symlink_to(tmp_path / "elsewhere.md")
    (work / "CLAUDE.md").symlink_to("nowhere.md")
    with PracticeServer(script=[DONE]) as server:
        events: list[Event] = []
        async with open_app(tmp_path / "home", work, practice_model(server.base_url)) as app:
            await ask(await app.new_session(), "go", events)
        assert "STRANGE" not in server.requests[0].body.decode()
    (line,) = [event.text for event in events if isinstance(event, Notice) and "left out" in event.text]
    assert f"AGENTS.md are left out: its link leads out of the repository to {tmp_path}" in line
    assert "CLAUDE.md are left out: its link leads nowhere" in line


def test_only_tools_of_this_machine_that_name_places_have_instructions_behind_them(tmp_path: Path) -> None:
    nested = NestedInstructions(tmp_path, list)

    async def run(ctx: ToolContext, arguments: dict[str, object]) -> ToolOutput:
        return ToolOutput("")

    for tags, is_wrapped in (((), False), (("path",), True), (("command",), True), (("path", "mcp"), False)):
        tool = Tool(ToolSpec("t", "", {}), "t", frozenset(), run, tags=frozenset(tags))
        assert (nested.wrap(tool) is not tool) is is_wrapped, tags


@pytest.mark.parametrize("rules", ["", "WEB RULES"])
def test_a_result_is_capped_with_and_without_instructions_behind_it(tmp_path: Path, rules: str) -> None:
    """https://github.com/openclaw/openclaw/issues/128967"""
    write(tmp_path / "work" / "web" / "rows.txt", "".join(f"{number:09d}\n" for number in range(6_000)))
    if rules:
        write(tmp_path / "work" / "web" / "AGENTS.md", rules)
    arguments = '{"pattern": "0", "path": "web/rows.txt", "limit": 6000}'
    (text,) = results(tmp_path, [calls(("search_files", arguments)), ScriptedReply("done")])
    assert "characters cut ...]" in text and 29_000 < len(text) < 30_200 and (rules in text[-200:])
