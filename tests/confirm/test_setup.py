"""`whet confirm setup`: questions or options, a service in the background, trial messages, hooks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.cli.running import Tty
from tests.confirm.notify.test_notifier import SECRET, Receiver
from tests.confirm.notify.test_trial import write_channels
from tests.confirm.test_clients import whet
from tests.confirm.vendors.telegram import TOKEN, TelegramServer
from whet.contract.errors import ConfigError
from whet_confirm.notify.channel_text import NewChannel, add_channel

PATH = Path("channels.toml")
PORTS = ("--port", "0", "--web-port", "0")


class Operator:
    """Somebody with an empty home, who ends every service that was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            "HOME": str(folder),
            "WHET_HOME": str(folder / "whet"),
            "CONFIRMATION_WEBHOOK_SECRET": SECRET,
            "TELEGRAM_BOT_TOKEN": TOKEN,
        }
        self._started: list[int] = []

    def run(self, *words: str) -> forked.Done:
        return forked.run(("confirm", *words), self.folder, environ=self.environ)

    def setup(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = self.run("setup", "--yes", "--json", *PORTS, *words)
        assert done.err == "", done
        facts = json.loads(done.out)
        if facts["service"]["pid"]:
            self.remember(facts["service"]["url"], facts["service"]["pid"])
        return done.code, facts

    def remember(self, url: str, pid: int) -> None:
        self._started.append(pid)
        self.environ["WHET_CONFIRM_URL"] = url

    @property
    def channels(self) -> str:
        path = self.folder / "whet/confirm/channels.toml"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        for pid in self._started:
            os.kill(pid, signal.SIGTERM)


@pytest.fixture
def operator(tmp_path):
    person = Operator(tmp_path)
    yield person
    person.close()


@pytest.mark.slow
def test_setup_starts_a_service_whose_channel_and_agent_work_and_changes_nothing_when_run_again(operator):
    with Receiver() as hook:
        words = ("--name", "ann", "--channel", "webhook", "--chat", f"{hook.url}/hook", "--agent", "gemini")
        code, facts = operator.setup(*words)
        assert code == 0 and facts["ok"] and facts["name"] == "ann"
        assert [(c["channel"], c["sent"]) for c in facts["channels"]] == [("webhook", True)]
        assert facts["agents"] == [{"agent": "gemini", "problems": []}]
        assert json.loads(hook.got[0][1])["type"] == "confirmation.trial"
        assert facts["service"]["url"] in (operator.folder / ".gemini/settings.json").read_text()
        tokens = json.loads(operator.run("token", "list", "--json").out)["tokens"]
        assert {row["role"]: row["name"] for row in tokens} == {"submit": "agent", "approve": "ann"}
        files = operator.channels, (operator.folder / ".gemini/settings.json").read_bytes()
        code, again = operator.setup(*words)
        assert (
            code == 0 and again["service"]["pid"] == 0 and again["service"]["url"] == facts["service"]["url"]
        )
        assert (operator.channels, (operator.folder / ".gemini/settings.json").read_bytes()) == files
        assert json.loads(operator.run("list", "--json").out)["requests"] == []


@pytest.mark.slow
def test_a_channel_that_does_not_answer_is_named_and_not_written_and_the_rest_is_done(operator):
    with Receiver() as hook, TelegramServer() as telegram:
        write_channels(operator.folder / "whet", telegram, -1001, -9)
        before = operator.channels
        hook.fail_next("hook", True)
        code, facts = operator.setup("--channel", "webhook", "--chat", f"{hook.url}/hook")
        sent = {trial["channel"]: trial["sent"] for trial in facts["channels"]}
        assert code == 1 and not facts["ok"] and facts["service"]["pid"]
        assert sent == {"chat0": True, "chat1": False, "webhook": False}
        assert operator.channels == before
        code, facts = operator.setup("--channel", "webhook", "--chat", f"{hook.url}/hook")
        assert code == 1 and facts["needs_restart"] and facts["service"]["pid"] == 0
        assert operator.channels.startswith(before) and 'kind = "webhook"' in operator.channels
        text = operator.run("setup", "--yes").out
        assert "chat1    failed: " in text and "chat not found" in text and "run this again" in text


def test_setup_names_the_variable_that_leads_to_the_service_of_another_home(server, operator):
    operator.environ["WHET_CONFIRM_URL"] = url = server.url
    done = operator.run("setup", "--yes", *PORTS)
    done.assert_error(f"something else answers at {url}", "unset WHET_CONFIRM_URL")


@pytest.mark.slow
def test_at_a_terminal_it_asks_four_questions(operator):
    (operator.folder / ".gemini").mkdir()
    words = ["confirm", "setup", *PORTS]
    with Receiver() as hook, Tty(words, operator.folder, environ=operator.environ) as tty:
        tty.wait_for("1/4")
        tty.type("ann\r")
        tty.wait_for("2/4")
        tty.type("\r")
        tty.wait_for("3/4")
        tty.type("webhook\r")
        tty.wait_for("The webhook's address")
        tty.type(f"{hook.url}/hook\r")
        assert "[gemini]" in tty.wait_for("4/4") + tty.wait_for("]")
        tty.type("\r")
        text = tty.wait_for("Stop it: kill ") + tty.wait_for("Start it again")
    pid, url = re.search(r"Stop it: kill (\d+)", text), re.search(r"service +(http://\S+):", text)
    assert pid is not None and url is not None, text
    operator.remember(url[1], int(pid[1]))
    assert "webhook  arrived" in text and "gemini   its calls wait" in text and "as ann" in text
    assert json.loads(hook.got[0][1])["type"] == "confirmation.trial"


@pytest.mark.slow
def test_a_service_that_does_not_start_is_named(operator, tmp_path):
    (tmp_path / "whet/confirm").mkdir(parents=True)
    (tmp_path / "whet/confirm/oidc.toml").write_text("issuer = 5")
    operator.run("setup", "--yes", *PORTS).assert_error("the service did not start", "oidc.toml")


def test_setup_refuses_what_it_can_not_do(operator):
    operator.run("setup").assert_error("no terminal", "--yes")
    operator.run("setup", "--yes", "--channel", "telegram").assert_error("needs --chat")
    operator.run("setup", "--yes", "--public-url", "here").assert_error("is not an address")
    operator.environ["WHET_CONFIRM_URL"] = "http://127.0.0.1:9"
    operator.run("setup", "--yes").assert_error("nothing answers at http://127.0.0.1:9")
    assert not (operator.folder / "whet").exists()


def test_a_channel_and_a_persons_id_are_added_once_and_comments_stay():
    text = '# ours\n[people."ann.b"]  # she\nslack = "U1"\n\n[[channel]]\nkind = "slack"\nchat = "C1"\n'
    telegram = NewChannel("telegram", chat="-100")
    added = add_channel(text, PATH, telegram, ("ann.b", "7"))
    assert add_channel(added, PATH, telegram, ("ann.b", "7")) == added
    assert "# ours" in added and "# she" in added
    tables = tomllib.loads(added)
    assert tables["people"] == {"ann.b": {"slack": "U1", "telegram": "7"}}
    second = add_channel(added, PATH, NewChannel("telegram", chat="-200"), ("bob", "8"))
    assert [one.get("name") for one in tomllib.loads(second)["channel"]] == [None, "telegram", "telegram2"]
    with pytest.raises(ConfigError, match="another telegram id for bob"):
        add_channel(second, PATH, telegram, ("bob", "9"))
    with pytest.raises(ConfigError):
        add_channel("people = {}", PATH, telegram, ("ann", "7"))


@pytest.mark.slow
def test_a_service_with_a_token_from_before_says_that_it_makes_no_first_ones(tmp_path):
    assert whet(tmp_path, "token", "create", "--role", "audit", "--name", "ci").code == 0
    command = [sys.executable, "-m", "whet", "confirm", "serve", "--port", "0", "--web-port", "-1"]
    environ = {**os.environ, "WHET_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environ, text=True, stdout=-1, stderr=-1) as program:
        assert program.stdout is not None and program.stderr is not None
        assert program.stdout.readline().startswith("confirmation service: ")
        line = program.stderr.readline()
        program.terminate()
        program.communicate(timeout=30)
    assert line == "no submit.token and approve.token: tokens exist already; whet confirm token list\n"


def test_a_broken_policy_does_not_hint_at_the_check_itself(tmp_path):
    (tmp_path / "bad.toml").write_text('[[rules]]\neffect="perhaps"\n')
    broken = whet(tmp_path, "policy", "check", str(tmp_path / "bad.toml"))
    assert broken.code == 1 and "policy check" not in broken.err and "hint: change that rule" in broken.err
