"""From a clone to the first approval on a phone-sized page by push, as docs/inbox.md says; prints the times.

    python -m tests.browser.first_approval [--programs FOLDER] [--picture FILE.png]

The clone is fresh and the home is empty. Chromium is the phone, with a push service beside it that speaks the
protocol. The agent is Claude Code if it is found (a scripted model stands in for the vendor's), otherwise the
hook that its setting names. The service listens at free ports, since others may run on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.browser.chromium import Browser
from tests.browser.conftest import Daemon
from tests.browser.test_push import Installed
from tests.confirm.scripted_model import ScriptedModel
from tests.confirm.vendors.push import PushServer

ROOT = Path(__file__).parents[2]
LIMIT_S = 300


class Story:
    """The steps of the page, each with the time that it took."""

    def __init__(self, folder: Path, programs: str) -> None:
        self.folder = folder
        self.began_s = self.last_s = time.monotonic()
        path = f"{folder}/python/bin:{programs}:/usr/local/bin:/usr/bin:/bin"
        self.environ = {"HOME": str(folder / "home"), "PATH": path, "LANG": "C.UTF-8"}
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        self.environ |= pip  # where this machine's packages come from
        (folder / "home").mkdir()
        page = (ROOT / "docs" / "inbox.md").read_text()
        self.lines = [line.strip() for line in page.splitlines() if line.startswith("    ")]

    def type(self, line: str, typed: str = "") -> None:
        """Run a line that the page shows; `typed` is what the trial types instead, if that differs."""
        if not any(shown.startswith(line) for shown in self.lines):
            raise LookupError(f"docs/inbox.md does not show: {line}")
        subprocess.run(["sh", "-ec", typed or line], cwd=self.folder, env=self.environ, check=True)
        self.note(typed or line)

    def note(self, what: str) -> None:
        """Print a step that is done."""
        now_s = time.monotonic()
        print(f"{now_s - self.began_s:6.1f} s  (+{now_s - self.last_s:5.1f})  {what}", flush=True)
        self.last_s = now_s


def main() -> None:
    """Play the page from its first line to the approval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", default="", help="a folder with claude, such as node_modules/.bin")
    parser.add_argument("--picture", type=Path, help="where to write what the phone shows in the end")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "chromium").mkdir()
        browser = Browser(folder / "chromium")  # it is there before the first line, as a phone is
        try:
            story = Story(folder, str(Path(asked.programs).absolute()) if asked.programs else "")
            _play(story, browser, asked.picture)
        finally:
            browser.close()
    total_s = story.last_s - story.began_s
    print(f"{total_s:.0f} s from the clone to the approval (goal: {LIMIT_S} s)")
    sys.exit(total_s > LIMIT_S)


def _play(story: Story, browser: Browser, picture: Path | None) -> None:
    story.type(
        "pip install whet-agent",
        f"git clone -q {ROOT} whet && python3 -m venv python && pip install -q ./whet",
    )
    home = story.folder / "home" / ".whet"
    program = (str(story.folder / "python" / "bin" / "whet"),)
    options = ("--allow-private-callbacks",)  # the push service is on this machine
    with PushServer() as push, browser.page() as page:
        daemon = Daemon(home, *options, environ=story.environ, program=program)
        try:
            story.note("whet confirm serve: listens")
            phone = Installed(page, daemon, push)
            story.note("signed in on the phone, Devices, Notify me on this device")
            story.environ["WHET_CONFIRM_URL"] = daemon.api
            story.type("whet confirm adopt claude-code")
            request_id = _run_agent(story, phone, browser)
            page.open(f"{daemon.url}/r/{request_id}")
            if picture is not None:
                page.shot(picture)
        finally:
            daemon.stop()


def _run_agent(story: Story, phone: Installed, browser: Browser) -> str:
    """Have the agent run a command, and approve it on the notification. Return the request's id."""
    work = story.folder / "work"
    work.mkdir()
    with ScriptedModel("touch ran") as model:
        agent = threading.Thread(target=_agent, args=(story, work, model), daemon=True)
        agent.start()
        (message,) = phone.push.wait(lambda: list(phone.phone.shown.values())[:1], "the push message", 120)
        request_id = str(message["request"])
        phone.deliver(request_id, is_open=True)
        phone.shown("n.actions === 2")
        story.note(f"the phone shows: {message['title']}")
        phone.press(browser, "approve")
        phone.shown("n.body.includes('was approved by ')")
        story.note("Approve pressed on the notification")
        agent.join(120)
    if not (work / "ran").exists():
        raise RuntimeError("the agent did not run its command")
    story.note("the agent ran its command")
    return request_id


def _agent(story: Story, work: Path, model: ScriptedModel) -> None:
    environ = story.environ | {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "x"}
    if shutil.which("claude", path=story.environ["PATH"]):
        line = ["claude", "-p", "go"]
        subprocess.run(line, cwd=work, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        return
    settings = json.loads((story.folder / "home" / ".claude" / "settings.json").read_text())
    hook = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "touch ran"}}
    event |= {"session_id": "s", "tool_use_id": "c", "cwd": str(work)}
    line = ["sh", "-c", hook]
    done = subprocess.run(
        line, input=json.dumps(event), text=True, env=environ, capture_output=True, check=True
    )
    if re.search(r'"permissionDecision": "allow"', done.stdout):
        (work / "ran").touch()


if __name__ == "__main__":
    main()
