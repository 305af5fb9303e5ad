"""docs/library.md does what it prints: each program on it runs, against the practice server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agent.rig import calls
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

PAGE = Path(__file__).parents[2] / "docs" / "library.md"
ORDER = calls(("order_parts", '{"item":"nut"}'))
SCRIPTS = {
    "From Python": ([ScriptedReply("A file.")], "A file.\n"),
    "In an event loop": ([ScriptedReply("Hello."), ScriptedReply("1 2 3")], "answered Hello.\n1 2 3"),
    "Events": (
        [calls(("read_file", '{"path":"notes.txt"}')), ScriptedReply("It says hi.")],
        'runs read_file {"path":"notes.txt"}\ndone\nIt says hi.\n',
    ),
    "Your functions as tools": (
        [calls(("stock", '{"item":"nut"}')), ORDER, ScriptedReply("I could not order.")],
        "I could not order.\n['0', \"Nobody was there to ask",
    ),
    "Answer approvals": ([ORDER, ScriptedReply("Done.")], 'asked: order_parts {"item": "nut"}\nDone.\n'),
    "Continue a session": ([ScriptedReply("Noted."), ScriptedReply("Heron.")], "Heron.\n4 True\n"),
    "Images, steering, cancelling": (
        [
            ScriptedReply("A plan."),
            calls(("read_file", '{"path":"notes.txt"}')),
            ScriptedReply("a b c d", pieces=4, fault=Fault(stall_after=2), when="Be brief."),
            ScriptedReply("It has a door."),  # if the step had begun when the program steered
        ],
        "A plan.\ncancelled\n",
    ),
    "Errors": ([], "there is no session no-such-session"),
}


def programs() -> dict[str, str]:
    """The first program below each heading of the page."""
    texts: dict[str, str] = {}
    for section in re.split(r"^#+ ", PAGE.read_text("utf-8"), flags=re.M)[1:]:
        heading, _, body = section.partition("\n")
        code = re.search(r"(?:^    .*\n|^\n)+", "\n" + body[body.find("\n    ") :], re.M)
        assert code is not None, heading
        texts[heading] = re.sub(r"^    ", "", code[0], flags=re.M)
    return texts


def test_each_section_has_a_script() -> None:
    assert list(programs()) == list(SCRIPTS)


@pytest.mark.fast_rows("Answer approvals", "Events", "From Python")
@pytest.mark.parametrize("heading", SCRIPTS)
def test_the_program_of_a_section_runs(
    heading: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, printed = SCRIPTS[heading]
    (tmp_path / "notes.txt").write_text("hi")
    (tmp_path / "plan.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    monkeypatch.chdir(tmp_path)
    with PracticeServer(script=script) as server:
        monkeypatch.setenv("WHET_MODEL_PROVIDER", "practice")
        monkeypatch.setenv("WHET_MODEL_BASE_URL", server.base_url)
        exec(compile(programs()[heading], f"{PAGE.name}: {heading}", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.startswith(printed)
