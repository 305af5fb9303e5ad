"""Named accounts of a provider: who is used, where their keys go, and what shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.running import Tty, invoke
from whet.cli.checks import check_accounts, check_provider
from whet.config.key_hosts import derive_second_model, key_names
from whet.config.load import load
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet_lab.practice.script import ScriptedReply
from whet_lab.practice.server import PracticeServer

ACCOUNTS = "  accounts:\n    openai: {work: OPENAI_WORK_KEY, mine: OPENAI_API_KEY}\n    own: {a: A_KEY}\n"
SECRET = "sk-work-0123456789abcdef"


def run(home: Path, *arguments: str, **env: str) -> Result:
    return invoke("model", *arguments, env=env)


def write(home: Path, text: str) -> Home:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(text)
    return Home(home)


def configure(home: Path, text: str) -> Home:
    return write(home, f"model:\n{text}{ACCOUNTS}")


@pytest.mark.parametrize(
    ("text", "environ", "names"),
    [
        ("  provider: openai\n", {}, ("OPENAI_API_KEY",)),
        ("  provider: openai\n  account: work\n", {}, ("OPENAI_WORK_KEY",)),
        ("  provider: openai\n", {"WHET_MODEL_ACCOUNT": "work"}, ("OPENAI_WORK_KEY",)),
        ("  provider: own\n  base_url: http://a.example/v1\n  account: a\n", {}, ("A_KEY",)),
        # the keys of the file do not go to an address of the environment
        ("  provider: openai\n  account: work\n", {"WHET_MODEL_BASE_URL": "http://evil.example/v1"}, ()),
        (
            "  provider: own\n  base_url: http://a.example/v1\n  account: a\n",
            {"WHET_MODEL_BASE_URL": "http://evil.example/v1"},
            (),
        ),
        # another provider for one run has its own key
        ("  provider: openai\n  account: work\n", {"WHET_MODEL_PROVIDER": "groq"}, ("GROQ_API_KEY",)),
    ],
)
def test_the_key_of_an_account_goes_to_its_own_server(
    home: Path, text: str, environ: dict[str, str], names: tuple[str, ...]
) -> None:
    settings = load(configure(home, text), environ=environ).settings.model
    assert key_names(settings) == names


def test_a_key_of_another_provider_is_not_sent_as_an_account(home: Path) -> None:
    write(home, "model:\n  provider: groq\n  account: x\n  accounts:\n    groq: {x: OPENAI_API_KEY}\n")
    assert key_names(load(Home(home), environ={}).settings.model) == ()


def test_a_fallback_of_another_provider_has_its_own_key(home: Path) -> None:
    configure(home, "  provider: openai\n  account: work\n")
    with (home / "config.yaml").open("a") as file:
        file.write("fallback: {provider: groq, model: x}\n")
    settings = load(Home(home), environ={}).settings
    assert key_names(derive_second_model(settings.model, settings.fallback)) == ("GROQ_API_KEY",)
    assert key_names(derive_second_model(settings.model, settings.review)) == ("OPENAI_WORK_KEY",)


def test_an_unknown_account_and_a_pasted_key_are_refused(home: Path) -> None:
    with pytest.raises(ConfigError) as unknown:
        load(configure(home, "  provider: openai\n  account: wrok\n"), environ={})
    assert unknown.value.message == "openai has no account 'wrok' (model.account, config.yaml line 3)"
    assert unknown.value.hint == "one of work, mine"
    write(home, f"model:\n  accounts:\n    openai: {{work: {SECRET}}}\n")
    with pytest.raises(ConfigError) as pasted:
        load(Home(home), environ={})
    assert "openai.work is not the name of a variable" in pasted.value.message
    assert SECRET not in pasted.value.message + pasted.value.hint


def test_the_command_lists_and_chooses_accounts_and_doctor_says_whose_key_is_missing(home: Path) -> None:
    configure(home, "  provider: openai\n")
    listed = run(home, "account", OPENAI_API_KEY=SECRET).output
    assert listed.splitlines() == [
        "* default: OPENAI_API_KEY",
        "  work: OPENAI_WORK_KEY  (not set)",
        "  mine: OPENAI_API_KEY",
    ]
    assert SECRET not in listed
    chosen = json.loads(run(home, "account", "mine", "--json", OPENAI_API_KEY=SECRET).stdout)
    assert [account["is_used"] for account in chosen["accounts"]] == [False, False, True]
    settings = load(Home(home), environ={}).settings
    assert settings.model.account == "mine"
    assert "account   mine" in run(home, "show", OPENAI_API_KEY=SECRET).output
    environ = {"OPENAI_API_KEY": SECRET}
    assert "account mine" in check_provider(Home(home), settings, environ).text
    (finding,) = check_accounts(Home(home), settings, environ)
    assert finding.text == "work has no key" and "OPENAI_WORK_KEY" in finding.fix
    error = run(home, "account", "nobody").exception
    assert isinstance(error, ConfigError) and error.hint == "one of work, mine"
    run(home, "account", "default")
    assert load(Home(home), environ={}).settings.model.account == ""


@pytest.mark.slow
@pytest.mark.unconfined
def test_the_chat_switches_accounts_and_keeps_its_prefix(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORK_KEY", SECRET)
    monkeypatch.setenv("MINE_KEY", "sk-mine-0123456789abcdef")
    replies = [ScriptedReply(f"Answer {number}.") for number in range(3)]
    (folder := tmp_path / "work").mkdir()
    with PracticeServer(script=replies) as server:
        write(
            home,
            f"model:\n  provider: practice\n  model: practice\n  base_url: {server.base_url}\n"
            "  account: mine\n  accounts:\n    practice: {work: WORK_KEY, mine: MINE_KEY, empty: NO_KEY}\n",
        )
        with Tty(["chat"], folder, columns=100) as tty:
            tty.wait_for("Ctrl-D")
            tty.type("one\r", "Answer 0.")
            tty.type("/account\r", "* mine: MINE_KEY")
            tty.type("/account empty\r", "no key for practice")
            tty.type("/account work\r", "* work: WORK_KEY")
            tty.type("two\r", "Answer 1.")
            tty.type("/model\r", "(practice, account work)", "practice (work)")
            tty.type("/account nobody\r", "no account 'nobody'")
            assert SECRET not in tty.seen
        first, second = server.requests
        assert [request.headers["authorization"] for request in (first, second)] == [
            "Bearer sk-mine-0123456789abcdef",
            f"Bearer {SECRET}",
        ]
        assert second.body.startswith(first.body[: first.body.rindex(b"}]")])
