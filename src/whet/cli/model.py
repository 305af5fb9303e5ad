"""`whet model`: show the model and the origins of its settings, list the server's models, choose another."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import click
import msgspec

from whet.app.model_links.discover import list_by_keys, needs_model, no_model_error
from whet.app.model_links.models import MEMORY_FILE
from whet.app.parts import learn_prices
from whet.app.plugins.parts import temporary_provider
from whet.cli.main import run_on_loop
from whet.clock import SystemClock
from whet.config.edit import set_value
from whet.config.fields import fields
from whet.config.key_hosts import check_account
from whet.config.load import LoadedSettings, load
from whet.config.paths import Home
from whet.config.secrets import IN_KEYRING, load_secrets, read_env
from whet.contract.errors import ConfigError
from whet.contract.messages import Message
from whet.contract.protocols import ModelInfo, ModelReply, Provider
from whet.contract.tools import ToolSpec
from whet.log import mask
from whet.providers.catalog import SERVERS, describe_model
from whet.providers.connect import ServerProvider, learn_windows
from whet.providers.dialect_memory import (
    describe_dialect,
    find_dialect_faults,
    forget_dialects,
    read_dialects,
)
from whet.terminal.output import emit, emit_json, home_and_json
from whet.terminal.wording import printable

model: click.Group = click.Group("model", help="Show, list and choose the model.")


@model.command("show")
@home_and_json
def show(home: Home, as_json: bool) -> None:
    """Show the model, the origin of each setting, its window and its prices."""
    loaded = _load(home)
    learn_prices(home, SystemClock())
    with _connect_provider(home, loaded) as provider:
        run_on_loop(_learn_window(provider))
        info = provider.info
    origins = {key: loaded.origins[f"model.{key}"] for key in ("provider", "model", "base_url")}
    if as_json:
        return emit_json({"model": info, "origins": origins, "fallback": loaded.settings.fallback.model})
    click.echo(f"model     {printable(info.model) or '(the server decides)'}  ({_origin(origins['model'])})")
    click.echo(f"provider  {info.provider}  ({_origin(origins['provider'])})")
    if loaded.settings.model.account:
        click.echo(
            f"account   {printable(loaded.settings.model.account)}  ({loaded.origins['model.account']})"
        )
    if loaded.settings.model.base_url:
        click.echo(f"base URL  {mask(loaded.settings.model.base_url)}  ({origins['base_url']})")
    click.echo(f"window    {info.window_tokens:,} tokens, answers up to {info.max_output_tokens:,}")
    click.echo(f"price     {price(info)}")
    if loaded.settings.fallback.model:
        click.echo(f"fallback  {loaded.settings.fallback.model}")


def _origin(origin: str) -> str:
    return "the provider's default" if origin == "default" else origin


def price(info: ModelInfo) -> str:
    """Return a text with the prices per million tokens."""
    parts = {
        "input": info.input_usd_per_mtok,
        "output": info.output_usd_per_mtok,
        "cache read": info.cache_read_usd_per_mtok,
        "cache write": info.cache_write_usd_per_mtok,
    }
    if not any(parts.values()):
        return "unknown" if info.input_usd_per_mtok is None else "free"
    return (
        ", ".join(f"{name} ${usd:g}" for name, usd in parts.items() if usd is not None)
        + " per million tokens"
    )


@model.command("list")
@home_and_json
def list_(home: Home, as_json: bool) -> None:
    """Ask the server which models it serves."""
    with _connect_provider(home, _load(home)) as provider:
        names = run_on_loop(_list_models(provider))
        info = provider.info
    current, aliases = info.model, _load(home).settings.model.aliases
    if as_json:
        return emit_json({"provider": info.provider, "model": current, "models": names, "aliases": aliases})
    for alias, name in aliases.items():
        click.echo(f"{'*' if name == current else ' '} {printable(alias)} = {printable(name)}")
    if not names:
        return click.echo("The server lists no models; `whet model set NAME` takes any name.")
    for name in names:
        click.echo(f"{'*' if name == current else ' '} {printable(name)}")


async def _learn_window(provider: Provider) -> None:
    async with aclosing(provider):
        await learn_windows(provider)


async def _list_models(provider: Provider) -> list[str]:
    async with aclosing(provider):
        return await provider.list_models()


@model.command("account")
@click.argument("name", required=False)
@home_and_json
def account(home: Home, name: str | None, as_json: bool) -> None:
    """List the provider's accounts, or use NAME from now on; "default" is the provider's own key."""
    from whet.app.model_links.accounts import account_lines, list_accounts  # noqa: PLC0415 - few have any

    settings = _load(home).settings.model
    if name is not None:
        chosen = "" if name == "default" else name
        check_account(settings, chosen)
        set_value(home, "model.account", chosen)
        settings = _load(home).settings.model
    accounts = list_accounts(settings, load_secrets(home, os.environ))
    emit(
        {"provider": settings.provider, "accounts": accounts},
        "\n".join(account_lines(accounts)),
        as_json=as_json,
    )


@model.command("probe")
@click.option("--forget", is_flag=True, help="First forget what was learned of all servers.")
@home_and_json
def probe(home: Home, forget: bool, as_json: bool) -> None:
    """Ask the model once, with a tool on offer, and show its server's answer and dialect.

    What a server refuses is kept for 30 days in model-servers.json. Correct an entry there by hand; one
    without a day is yours and stays.
    """
    memory = home.root / MEMORY_FILE
    if forget:
        forget_dialects(memory)
    loaded = _load(home)
    with _connect_provider(home, loaded, memory) as provider:
        reply = run_on_loop(_ask_once(provider))
        name = provider.info.model
        key = provider.wiring.memory_key if isinstance(provider, ServerProvider) else ""
    learned = read_dialects(memory, datetime.now(UTC).date())
    faults, answer, sent = find_dialect_faults(memory), reply.message.text.strip(), _list_sent(reply)
    if as_json:
        facts = {"model": name, "answer": answer, "sent": sent, "entry": key, "learned": learned}
        return emit_json({**facts, "faults": faults, "path": str(memory)})
    click.echo(f"{printable(name)} answers: {printable(answer[:80]) or '(no text)'}")
    click.echo(f"it sent: {', '.join(map(printable, sent)) or 'nothing'}")
    for entry_key, entry in learned.items():
        click.echo(f"{printable(entry_key)}\n  {printable(describe_dialect(entry))}")
    for fault in faults:
        click.echo(f"no effect: {printable(fault)}")
    if key not in learned:
        click.echo("its server takes every request as usual")
    if key:
        click.echo(f'a wrong entry can be changed in {memory}: "{printable(key)}"')


def _list_sent(reply: ModelReply) -> list[str]:
    """Return the names of the parts that an answer had: text, calls, the server's own fields, usage."""
    message = reply.message
    fields: list[str] = []
    if message.replay:
        blocks: object = msgspec.json.decode(message.replay.blocks_json)
        is_object = isinstance(blocks, dict)
        fields = [*cast("dict[str, object]", blocks)] if is_object else [f"{message.replay.format} items"]
    parts = {
        "text": message.text,
        "reasoning": message.reasoning and not fields,
        "calls": message.tool_calls,
    }
    has_usage = reply.usage.estimated_tokens < reply.usage.total_tokens
    return [*(name for name, value in parts.items() if value), *fields, *(["usage"] if has_usage else [])]


async def _ask_once(provider: Provider) -> ModelReply:
    tool = ToolSpec("note", "Write a note.", {"type": "object", "properties": {"text": {"type": "string"}}})
    async with aclosing(provider):
        link = provider.open("You are asked whether you can be reached.", [tool], "probe")
        items = [item async for item in link.stream([Message("user", "Answer with the word ok.")])]
    return cast("ModelReply", items[-1])


@model.command("set")
@click.argument("name")
@click.option("--provider", default="", help="Switch the provider too.")
@home_and_json
def set_(home: Home, name: str, provider: str, as_json: bool) -> None:
    """Choose the model for new requests; NAME as the server knows it."""
    if not name.strip():
        raise ConfigError("a model has a name", hint="whet model list shows those of the server")
    loaded = _load(home)
    if provider and provider not in SERVERS and not loaded.settings.model.base_url:
        raise ConfigError(f"provider {provider!r} is not known", hint=f"one of {', '.join(SERVERS)}")
    if provider:
        set_value(home, "model.provider", provider)
    change = set_value(home, "model.model", name)
    settings = loaded.settings.model
    learn_prices(home, SystemClock())
    info = describe_model(provider or settings.provider, settings.aliases.get(name, name))
    emit(
        {"model": info, "before": change.before},
        f"{info.model}: window {info.window_tokens:,} tokens, price {price(info)}",
        as_json=as_json,
    )
    for key in ("model.model", "model.provider"):
        if fields()[key].variable in os.environ:
            click.echo(f"warning: {fields()[key].variable} in the environment overrides it", err=True)


def _load(home: Home) -> LoadedSettings:
    return load(home, environ=os.environ)


@contextmanager
def _connect_provider(home: Home, loaded: LoadedSettings, memory: Path | None = None) -> Generator[Provider]:
    secrets, settings = load_secrets(home, os.environ), loaded.settings
    if needs_model(settings):
        raise no_model_error(list_by_keys(secrets))
    with temporary_provider(home, settings, secrets, memory) as provider:
        yield provider


@model.command("login")
@click.argument("provider", type=click.Choice(["openrouter"]))
@click.pass_obj
def login(home: Home, provider: str) -> None:
    """Get a key by logging in with the browser, and keep it.

    With the extra keyring (pip install 'whet-agent[keyring]') it is kept in the system's keyring, if there is
    one, and otherwise in .env.
    """
    import webbrowser  # noqa: PLC0415 only a login opens one

    from whet.app.model_links.key_login import log_in  # noqa: PLC0415 an HTTP client and a listener of its own

    def show(address: str) -> None:
        click.echo(f"Log in here (a browser opens where there is one):\n{address}")
        if sys.stdout.isatty():
            webbrowser.open(address)

    name = run_on_loop(log_in(home, show))
    loaded = _load(home)
    if not (loaded.settings.model.provider or loaded.settings.model.base_url):
        set_value(home, "model.provider", provider)
        click.echo(f"{provider} answers from now on")
    is_in_ring = read_env(home).values.get(name) == IN_KEYRING
    location = "the system's keyring" if is_in_ring else str(home.env)
    click.echo(f"the key is kept as {name} in {location}; `whet model list` shows what it reaches")
