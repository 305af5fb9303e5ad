"""`whet confirm setup`: ask four questions, start the service, try its channels, and write agents' hooks.

It calls the functions of `serve`, `try-channels` and `adopt`. A new channel is written into the file only
after its trial message arrived, so that a wrong chat can be corrected by running it again.
"""

from __future__ import annotations

import getpass
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from whet.config.paths import Home, read_small, replace_file
from whet.config.secrets import load_secrets, store_secret
from whet.contract.errors import ConfigError, WhetError
from whet.terminal.output import emit_json, json_option
from whet.visible import escape_characters
from whet_confirm.client import DEFAULT_URL
from whet_confirm.commands.adopt import open_adoption
from whet_confirm.commands.background import RunningService, find_service, start_service
from whet_confirm.commands.channels import ChannelTrial, send_trials
from whet_confirm.commands.files import find_approver
from whet_confirm.hook import HOOK_AGENTS

_KINDS = "telegram, slack, discord, apprise (e-mail and others), webhook"
_ONE_WAY_FIELDS = {"webhook": "url", "apprise": ""}


class SetupAnswers(msgspec.Struct, frozen=True):
    """The answers: who decides, where the page is reached, a further channel, and the agents that wait."""

    name: str = ""
    public_url: str = ""
    channel: str = ""
    chat: str = ""
    user_id: str = ""
    agents: tuple[str, ...] = ()


class AgentSetting(msgspec.Struct, frozen=True):
    """An agent whose hook was written, and why its calls would not wait (empty: they do)."""

    agent: str
    problems: tuple[str, ...] = ()


@click.command()
@click.option("--name", default="", metavar="NAME", help="Who decides; recorded with each decision.")
@click.option("--public-url", default="", metavar="URL", help="Where a phone reaches the page, for links.")
@click.option("--channel", default="", metavar="KIND", help="telegram, slack, discord, apprise or webhook.")
@click.option("--chat", default="", metavar="ID", help="The chat to post to; of a webhook, its address.")
@click.option("--user-id", default="", metavar="ID", help="Your id there: whose presses decide.")
@click.option(
    "--agent", "agents", multiple=True, type=click.Choice(HOOK_AGENTS), help="An agent whose calls wait."
)
@click.option("--port", default=6000, show_default=True, help="The API; 0 takes any.")
@click.option("--web-port", default=6080, show_default=True, help="The page; 0 takes any.")
@click.option("--yes", "is_quiet", is_flag=True, help="Ask nothing; the options are the answers.")
@json_option
@click.pass_obj
def setup(home: Home, port: int, web_port: int, is_quiet: bool, as_json: bool, **options: Any) -> None:
    """Ask four questions, start the service, and send a trial message to each channel.

    Exits with 1 if a message did not arrive or an agent would not wait. Can be run again at any time.

    \b
    whet confirm setup
    whet confirm setup --yes --channel telegram --chat -1001234567890 --user-id 123456789
    """
    if not (is_quiet or sys.stdin.isatty()):
        raise ConfigError("there is no terminal to ask at", hint="--yes, with the answers as options")
    running = _find_running(port)
    approver = find_approver(home)
    answers = SetupAnswers(**options)
    if not is_quiet:
        answers = _ask(answers, approver)
    answers = _check_answers(answers, approver)
    if not is_quiet:
        _ask_secrets(home, answers.channel)
    trials, is_added = _try_channels(home, answers)
    is_stale = running is not None and is_added
    chosen = (
        ("--port", str(port), "6000"),
        ("--web-port", str(web_port), "6080"),
        ("--public-url", answers.public_url, ""),
    )
    words = [word for option, value, default in chosen if value != default for word in (option, value)]
    service = running or start_service(home, words, answers.name)
    settings = [_write_hook(home, name, service.url) for name in answers.agents]
    is_good = not is_stale and all(trial.sent for trial in trials) and not any(s.problems for s in settings)
    if as_json:
        emit_json({"name": answers.name, "service": service, "channels": trials, "agents": settings,
                   "needs_restart": is_stale, "ok": is_good})  # fmt: skip
    else:
        _report(home, answers, service, trials, settings, is_stale=is_stale)
    if not is_good:
        sys.exit(1)


def _find_running(port: int) -> RunningService | None:
    """Return the service that this home's commands would use, or None if one has to be started.

    Raises ConfigError if WHET_CONFIRM_URL names an address where nothing answers.
    """
    if named := os.environ.get("WHET_CONFIRM_URL", ""):
        hint = "unset WHET_CONFIRM_URL to start a service here"
        if running := find_service(named, hint):
            return running
        raise ConfigError(f"nothing answers at {named}", hint=hint)
    return find_service(f"http://127.0.0.1:{port}") if port else None


# --- the questions


def _ask(given: SetupAnswers, approver: str) -> SetupAnswers:
    """Ask for the answers that no option gave. The name is not asked for if there is an approver already."""
    name = given.name or approver
    name = name or _prompt("1/4  Your name, as the record shows it", getpass.getuser())
    public_url = given.public_url or _prompt(
        "2/4  The page's https address for your phone (Enter: this machine only)"
    )
    channel = given.channel or _prompt(f"3/4  Another way to reach you: {_KINDS} (Enter: only the page)")
    chat, user_id = given.chat, given.user_id
    place = _ONE_WAY_FIELDS.get(channel, "chat")
    if channel and place and not chat:
        chat = _prompt("     The webhook's address" if place == "url" else f"     The chat's id in {channel}")
    if place == "chat" and channel and not user_id:
        user_id = _prompt(f"     Your own id in {channel}, whose presses decide")
    agents = given.agents
    if not agents:
        default = ", ".join(_installed_agents())
        text = _prompt(f"4/4  Agents whose calls wait: {', '.join(HOOK_AGENTS)}, or none", default or "none")
        agents = tuple(word for word in text.replace(",", " ").split() if word != "none")
    return SetupAnswers(name, public_url, channel, chat, user_id, agents)


def _prompt(question: str, default: str = "") -> str:
    return str(click.prompt(question, default=default, show_default=bool(default), err=True)).strip()


def _installed_agents() -> list[str]:
    """Return the agents that have a folder of settings here."""
    from whet_confirm.adopt.agents import AGENTS  # noqa: PLC0415 - only the question needs it

    return [
        name for name, agent in AGENTS.items() if agent.path(os.environ, Path.home()).parent.is_dir()
    ]  # fmt: skip


def _ask_secrets(home: Home, channel: str) -> None:
    """Ask for the channel's tokens that are not set, and store them. Raises ConfigError."""
    if not channel:
        return
    from whet_confirm.notify.settings import secret_names  # noqa: PLC0415 - channels take long to import

    secrets = load_secrets(home, os.environ)
    for name in secret_names(channel):
        if not secrets.get(name):
            value = str(click.prompt(f"     {name} (not shown)", hide_input=True, err=True)).strip()
            click.echo(f"     stored in {store_secret(home, name, value)}", err=True)


def _check_answers(answers: SetupAnswers, approver: str) -> SetupAnswers:
    """Return the answers with a name. Raises ConfigError if they are invalid."""
    if approver and answers.name not in ("", approver):
        raise ConfigError(
            f"the approve token here is {approver}'s",
            hint=f"--name {approver}, or whet confirm token create --role approve --name {answers.name}",
        )
    if unknown := [name for name in answers.agents if name not in HOOK_AGENTS]:
        raise ConfigError(f"there is no agent {unknown[0]!r}", hint=f"one of: {', '.join(HOOK_AGENTS)}")
    if answers.public_url and not answers.public_url.startswith(("https://", "http://")):
        raise ConfigError(
            f"{answers.public_url!r} is not an address", hint="type an address that starts with https://"
        )
    place = _ONE_WAY_FIELDS.get(answers.channel, "chat")
    if answers.channel and place and not answers.chat:
        raise ConfigError(f"--channel {answers.channel} needs --chat", hint="whet confirm setup --help")
    return msgspec.structs.replace(answers, name=answers.name or approver or getpass.getuser())


# --- what is done


def _try_channels(home: Home, answers: SetupAnswers) -> tuple[list[ChannelTrial], bool]:
    """Try every channel of the file and the new one, which is added if its message arrived.

    Returns the results, and whether the file was changed.
    """
    from whet_confirm.notify.channel_text import NewChannel, add_channel  # noqa: PLC0415 - see above
    from whet_confirm.notify.settings import parse_channels  # noqa: PLC0415
    from whet_confirm.open import service_paths  # noqa: PLC0415

    path = service_paths(home).folder / "channels.toml"
    before = read_small(path) or ""
    text, channel = before, None
    if answers.channel:
        is_webhook = _ONE_WAY_FIELDS.get(answers.channel) == "url"
        channel = NewChannel(answers.channel, **{"url" if is_webhook else "chat": answers.chat})
        text = add_channel(before, path, channel, (answers.name, answers.user_id))
    channels = parse_channels(text, path)
    trials = send_trials(channels, load_secrets(home, os.environ)) if channels.channel else []
    entry = channel.find(channels) if channel else None
    arrived = {trial.channel for trial in trials if trial.sent}
    if text == before or entry is None or (entry.name or entry.kind) not in arrived:
        return trials, False
    home.ensure()
    replace_file(path, text, mode=0o600)
    return trials, True


def _write_hook(home: Home, name: str, url: str) -> AgentSetting:
    """Write an agent's hook, and return why its calls would not wait."""
    adoption, command = open_adoption(home, name)
    if url != DEFAULT_URL:
        command = msgspec.structs.replace(command, environ={**command.environ, "WHET_CONFIRM_URL": url})
    try:
        adoption.write(command)
    except WhetError as error:
        return AgentSetting(name, (error.message,))
    return AgentSetting(name, tuple(adoption.find_problems(command)))


def _report(
    home: Home,
    answers: SetupAnswers,
    service: RunningService,
    trials: list[ChannelTrial],
    settings: list[AgentSetting],
    *,
    is_stale: bool,
) -> None:
    """Print the results, then what to do next."""
    started = f"started, process {service.pid}, log {service.log}" if service.pid else "was running already"
    lines = {"service": f"{service.url}: {started}"}
    if service.page_url:
        lines["page"] = answers.public_url or service.page_url
    lines["sign in"] = f"as {answers.name}, with the token in {home.root / 'confirm' / 'approve.token'}"
    lines |= {trial.channel: trial.text for trial in trials}
    lines |= {s.agent: "; ".join(f"problem: {p}" for p in s.problems) or "its calls wait" for s in settings}
    width = max(map(len, lines))
    for name, text in lines.items():
        click.echo(escape_characters(f"{name:<{width}}  {text}"))
    if is_stale:
        click.echo("The service does not read the new channel yet: end it, and run this again.")
    for line in _next_steps(answers, service, trials):
        click.echo(line)


def _next_steps(
    answers: SetupAnswers, service: RunningService, trials: list[ChannelTrial]
) -> Mapping[str, None]:
    """Return the hints on what to do now, each once."""
    lines: list[str] = []
    if any(not trial.sent for trial in trials):
        lines.append("Not every message arrived: correct it and run this again.")
    if service.url != DEFAULT_URL:
        lines.append(f"For whet confirm list and others: export WHET_CONFIRM_URL={service.url}")
    if service.pid:
        lines.append(f"Stop it: kill {service.pid}. Start it again: {shlex.join(service.command)}")
    if not answers.agents:
        lines.append("Hold an agent's calls: whet confirm adopt claude-code")
    return dict.fromkeys(lines)
