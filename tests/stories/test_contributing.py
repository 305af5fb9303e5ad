"""The five changes of CONTRIBUTING.md, each made as the page says, in a copy of the tree that stays green."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.stories.program import ROOT, assert_requests_are_sound, does, use
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FOLDERS = ("src", "tests", "docs", "benchmarks", "examples", "typings", "requirements", "deploy")
BINARIES = Path(sys.executable).parent


class Row(NamedTuple):
    """A few lines that are added to a file before or after a line of it."""

    path: str
    anchor: str
    lines: str
    after: bool = False


# A tool
TOOL_WORK = '''"""Count the words of a text."""


def count_words(text: str) -> str:
    """Return the number of words as text."""
    return str(len(text.split()))
'''
TOOL = Row(
    "src/whet/tools/toolsets/planning.py",
    '    @tool_method(effects={"read"}, repeatable=True, timeout_s=None)\n',
    '''\
    @tool_method(effects={"read"}, parallel=True, repeatable=True)
    async def count_words(self, ctx: ToolContext, text: str) -> str:
        """Count the words of a text."""
        from whet.tools.word_count import count_words

        return count_words(text)

''',
)
TAGS = Row(
    "src/whet/contract/tags.py",
    '        "clarify": frozenset((',
    '        "count_words": frozenset(("looks", "local")),\n',
)
TOOL_PAGE = Row("docs/tools.md", "| `planning` |", "| `planning` | `todo`, `count_words`, `clarify` |\n")
# A model server
SERVER = Row(
    "src/whet/config/model_servers.py",
    '    "xai": KnownServer(',
    '    "acme": KnownServer("https://api.acme.example/v1", ("ACME_API_KEY",), model="anvil-1"),\n',
)
# A setting, and a slash command that reads it
SETTING = Row(
    "src/whet/config/schema.py",
    '    """Whether answers are rendered as Markdown."""\n',
    '    greeting: str = "hello"\n    """What /greet answers."""\n',
    after=True,
)
HANDLER = '''"""/greet in the chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whet.cli.interactive.commands import ChatControl


async def greet(chat: ChatControl, argument: str) -> None:
    """Answer with the greeting of the settings."""
    chat.say(f"{chat.services.settings.ui.greeting} {argument}".strip())
'''
COMMAND = Row(
    "src/whet/cli/interactive/slash_commands.py",
    "SLASH_COMMANDS: tuple[SlashCommand[ChatControl], ...] = (\n",
    '    SlashCommand("greet", "Answer a greeting.", LateHandler("whet.cli.greet:greet"), remote=True),\n',
    after=True,
)
# A channel
CHANNEL = '''"""A channel whose messages go nowhere."""

from __future__ import annotations

import asyncio

import msgspec

from whet.contract.channels import (
    ChatPlace,
    FileRef,
    Incoming,
    Memo,
    Outgoing,
    Platform,
    PlatformLimits,
    SendFailed,
    Take,
    Verb,
)


class SilentSettings(msgspec.Struct, frozen=True):
    """The settings of a `[[channel]]` of this kind."""

    motto: str = ""


class Silent:
    """The channel."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.limits: PlatformLimits = PlatformLimits(1_000, 1.0, 1.0)

    async def listen(self, take: Take, memo: Memo, wants: frozenset[Verb]) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()

    async def send(self, place: ChatPlace, message: Outgoing, key: str) -> str:
        """Return an id; nobody receives the message."""
        return key

    async def edit(self, place: ChatPlace, ref: str, message: Outgoing) -> None:
        """Change nothing."""

    async def typing(self, place: ChatPlace) -> None:
        """Show nothing."""

    async def fetch(self, file: FileRef, max_bytes: int) -> bytes:
        """Raise SendFailed: there are no files."""
        raise SendFailed("there are no files", is_final=True)

    async def answer(self, press: Incoming, text: str, *, is_alert: bool = False) -> None:
        """Show nothing."""

    async def aclose(self) -> None:
        """Close nothing."""


PLATFORM = Platform(SilentSettings, lambda name, settings, tokens: Silent(name))
'''
CHANNEL_ROW = Row("src/whet/channels/loading.py", '    "webhook",\n', '    "silent",\n', after=True)
ROWS = (TOOL, TAGS, SERVER, SETTING, COMMAND, CHANNEL_ROW)
FILES = {"tools/word_count.py": TOOL_WORK, "cli/greet.py": HANDLER, "channels/silent.py": CHANNEL}
TABLE_TESTS = (
    *("tests/tools/test_toolsets.py", "tests/tools/test_tags.py", "tests/tools/test_sent_tools.py"),
    *(
        "tests/config/test_settings_read.py",
        "tests/config/test_model_servers.py",
        "tests/config/test_fields.py",
    ),
    *("tests/config/test_key_hosts.py", "tests/config/test_load.py", "tests/cli/test_config.py"),
    *("tests/cli/test_model.py", "tests/app/test_slash.py"),
    *("tests/review/test_told.py", "tests/gateway/test_door.py", "tests/test_bare_imports.py"),
    *("tests/test_readme.py", "tests/cli/test_main.py"),
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with the five changes."""
    tree = tmp_path_factory.mktemp("tree")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    for name, text in FILES.items():
        (tree / "src/whet" / name).write_text(text, "utf-8")
    for row in ROWS:
        text = (tree / row.path).read_text("utf-8")
        assert text.count(row.anchor) == 1, row
        lines = row.anchor + row.lines if row.after else row.lines + row.anchor
        (tree / row.path).write_text(text.replace(row.anchor, lines), "utf-8")
    page = (tree / TOOL_PAGE.path).read_text("utf-8")
    changed = [
        TOOL_PAGE.lines.strip() if line.startswith(TOOL_PAGE.anchor) else line for line in page.split("\n")
    ]
    (tree / TOOL_PAGE.path).write_text("\n".join(changed), "utf-8")
    for page in ("tree", "commands", "errors"):
        run(tree, "python", f"docs/{page}.py")
    return tree


def run(tree: Path, *command: str, **environ: str) -> str:
    """Run a program in the copy, with the copy's package, and return its output."""
    path = os.pathsep.join((str(tree / "src"), str(tree)))
    done = subprocess.run(
        [BINARIES / command[0], *command[1:]],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def run_whet(tree: Path, home: Path, *words: str, **environ: str) -> str:
    code = "from whet.cli.main import main; main()"
    return run(tree, "python", "-c", code, *words, WHET_HOME=str(home), **environ)


@pytest.mark.parametrize(
    "command",
    [
        "ruff format --check --no-cache src tests benchmarks docs examples",
        "ruff check --no-cache src tests benchmarks docs examples", "pyright", "lint-imports --no-cache",
        "python tests/sizes.py", "python tests/typed.py", "python tests/language.py",
        "python docs/tree.py --check", "python docs/commands.py --check", "python docs/errors.py --check",
    ],
)  # fmt: skip
def test_make_check_is_green_after_the_five_changes(tree, command):
    run(tree, *command.split())


def test_no_test_of_a_table_needs_an_edit_after_the_five_changes(tree, tmp_path):
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not soak and not live",
        f"--basetemp={tmp_path / 'runs'}",
    )
    run(tree, "python", "-m", "pytest", *options, *TABLE_TESTS)


def test_the_model_can_call_the_new_tool(tree, tmp_path):
    replies = [does(use("count_words", text="one two three")), ScriptedReply("There are three.")]
    with PracticeServer(script=replies) as server:
        flags = ("--provider", "practice", "--base-url", server.base_url, "--model", "practice")
        done = json.loads(run_whet(tree, tmp_path, "chat", "-q", "count", "--json", "--yes", *flags))
        assert done["text"] == "There are three."
        assert server.requests[-1].json_body["messages"][-1]["content"] == "3"
        assert_requests_are_sound(server)


def test_the_new_model_server_and_its_model_are_known(tree, tmp_path):
    run_whet(tree, tmp_path, "config", "set", "model.provider", "acme")
    shown = run_whet(tree, tmp_path, "model", "show", "--json", ACME_API_KEY="a-key-of-acme")
    assert "acme" in shown and "anvil-1" in shown


def test_the_new_setting_is_accepted_and_listed(tree, tmp_path):
    run_whet(tree, tmp_path, "config", "set", "ui.greeting", "good day")
    assert "good day" in run_whet(tree, tmp_path, "config", "list")


GREET = """
import asyncio
from types import SimpleNamespace
from whet.app.conversations.slash import Commands
from whet.cli.interactive.slash_commands import SLASH_COMMANDS
from whet.config.schema import Settings
commands = Commands()
for command in SLASH_COMMANDS:
    commands.add(command)
chat = SimpleNamespace(services=SimpleNamespace(settings=Settings()), say=print)
asyncio.run(commands.get("greet").run(chat, "Ada"))
"""
OPEN = """
from whet.channels.loading import kinds, open_channel
channel, tokens = open_channel("silent", "it", {"motto": "x"}, {})
print("silent" in kinds(), channel.name)
"""


def test_the_new_slash_command_answers_with_the_setting(tree):
    assert run(tree, "python", "-c", GREET).strip() == "hello Ada"


def test_the_new_channel_is_opened(tree):
    assert run(tree, "python", "-c", OPEN).split() == ["True", "it"]
