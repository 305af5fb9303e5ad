"""`whet config`: read and change settings, and show where each value comes from.

Keys such as model.provider are stored in config.yaml. Names such as OPENAI_API_KEY are secrets, are stored
in .env, and are never printed.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from whet.config import secrets
from whet.config.edit import SettingChange, set_value, unset_value
from whet.config.fields import Value, fields, find_nearest, format_value, help_texts, split_list
from whet.config.load import LoadedSettings, find_field, load
from whet.config.paths import Home
from whet.config.redact import mask_secrets
from whet.config.schema import Settings
from whet.contract.errors import ConfigError
from whet.contract.tags import BUILT_IN
from whet.terminal.output import Column, emit, emit_json, emit_rows, home_and_json, style_text, wrap_text
from whet.terminal.wording import printable

config: click.Group = click.Group("config", help="Read and change settings; say where a value comes from.")


def complete_key(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a setting's key."""
    return [key for key in fields() if key.startswith(incomplete)]


_key = click.argument("key", shell_complete=complete_key)


def _redact(key: str, value: Value) -> Value:
    """Return a value that is safe to print. In a table, secrets that a person wrote there are masked."""
    return mask_secrets(str(value)) if fields()[key].kind == "table" else value


def _load(home: Home) -> LoadedSettings:
    loaded = load(home, environ=os.environ)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    return loaded


@config.command("get")
@_key
@home_and_json
def get(home: Home, key: str, as_json: bool) -> None:
    """Print a setting's value."""
    if secrets.is_secret_name(key) and "." not in key:
        return _get_secret(home, key, as_json)
    find_field(key)
    loaded = _load(home)
    if as_json:
        return emit_json(
            {"key": key, "value": _redact(key, loaded.value(key)), "origin": loaded.origins[key]}
        )
    click.echo(printable(format_value(_redact(key, loaded.value(key)))))


def _get_secret(home: Home, name: str, as_json: bool) -> None:
    origin = _secret_origin(home, name)
    if as_json:
        return emit_json({"key": name, "is_set": bool(origin), "origin": origin})
    click.echo(f"{name} is set in {origin}" if origin else f"{name} is not set")


def _secret_origin(home: Home, name: str) -> str:
    if os.environ.get(name):
        return "the environment"
    value = secrets.read_env(home).values.get(name)
    if value == secrets.IN_KEYRING:
        return "the system's keyring"
    return str(home.env) if value else ""


@config.command("set")
@_key
@click.argument("value", required=False)
@home_and_json
def set_(home: Home, key: str, value: str | None, as_json: bool) -> None:
    """Write a setting to config.yaml; lists are comma-separated.

    A name in capitals, such as OPENAI_API_KEY, is a secret and goes to .env, or with the extra keyring to the
    system's keyring. Leave its VALUE out to type it unseen.
    """
    if _is_secret_name(key):
        secret = _secret_value(key, value)
        if not secret:
            raise ConfigError(f"no value came for {key}", hint=f"whet config set {key} asks for it unseen")
        location = secrets.store_secret(home, key, secret)
        return _emit({"key": key, "path": location}, f"{key} is stored in {location}", as_json)
    if value is None:
        raise click.UsageError("Missing argument 'VALUE'.", click.get_current_context())
    _refuse_unusable(home, key, value)
    change = set_value(home, key, value)
    after = format_value(_redact(key, change.after)) if change.after is not None else ""
    before = (
        f" (was {format_value(_redact(key, change.before))})"
        if change.before is not None and change.before != change.after
        else ""
    )
    _emit(
        {"key": key, "value": change.after, "before": change.before, "path": str(home.config)},
        f"{key} = {after}{before}",
        as_json,
    )
    if note := _note_replaced(change):
        click.echo(printable(note), err=True)
    if fields()[key].variable in os.environ:
        click.echo(f"warning: {fields()[key].variable} in the environment overrides it", err=True)
    if not _warn_of_faults(home) and key == "model.provider" and change.before != change.after:
        settings = load(home, environ=os.environ).settings
        if warning := _warn_of_provider(settings):
            click.echo(printable(warning), err=True)
        model_name = settings.model.model
        if model_name:
            click.echo(
                f"note: model.model is still {model_name}; whet config unset model.model takes the default",
                err=True,
            )


def _warn_of_provider(settings: Settings) -> str:
    """Return a warning if no chat could begin with the provider, or an empty string. A name with a base URL
    is never unknown, and plugins may provide any."""
    name = settings.model.provider
    if not name or settings.model.base_url or settings.plugins.enabled:
        return ""
    from whet.providers.catalog import SERVERS  # noqa: PLC0415 - for this setting alone

    if name in SERVERS:
        return ""
    close = find_nearest(name, list(SERVERS))
    guess = f", did you mean {close}?" if close else ";"
    return f"warning: no provider {name} is known{guess} any name works once model.base_url is set"


def _note_replaced(change: SettingChange) -> str:
    """Return how to keep the items that a new list dropped, or an empty string if it dropped none."""
    before = change.before if isinstance(change.before, tuple) else ()
    after = change.after if isinstance(change.after, tuple) else ()
    dropped = [item for item in before if item not in after]
    if not dropped:
        return ""
    both = shlex.quote(",".join([*dropped, *after]))
    return f"note: this is the whole list now; to keep both: whet config set {change.key} {both}"


def _refuse_unusable(home: Home, key: str, value: str) -> None:
    """Raise ConfigError for a missing workspace or an unknown tool: every chat would refuse it.

    If plugins or MCP servers are configured, or if the file has a fault, tool names are not checked: only a
    chat knows all tools.
    """
    if key == "tools.workspace" and value and not Path(value).expanduser().is_dir():
        raise ConfigError(f"tools.workspace can't be {value!r}: it is not a folder")
    if key not in ("tools.toolsets", "tools.disabled"):
        return
    try:
        settings = load(home, environ=os.environ).settings
    except ConfigError:
        return  # the fault may be this setting's, and it is reported after the change
    if settings.plugins.enabled or settings.mcp.servers:
        return
    from whet.tools.registry import TOOLSETS  # noqa: PLC0415 - for this setting alone

    known_names = list(TOOLSETS) if key == "tools.toolsets" else list(BUILT_IN)
    if unknown := [name for name in split_list(value) if name not in known_names]:
        close = find_nearest(unknown[0], known_names)
        raise ConfigError(
            f"{key} can't name {unknown[0]!r}" + (f", did you mean {close}?" if close else ""),
            hint=f"known: {', '.join(known_names)}",
        )


def _is_secret_name(key: str) -> bool:
    """Return whether a key is the name of a secret in .env rather than a setting's."""
    return key.isupper() and "." not in key


def _secret_value(name: str, value: str | None) -> str:
    if value is None and sys.stdin.isatty():
        return str(click.prompt(name, hide_input=True)).strip()
    return sys.stdin.readline().strip() if value in (None, "-") else str(value).strip()


@config.command("unset")
@_key
@home_and_json
def unset(home: Home, key: str, as_json: bool) -> None:
    """Remove a setting from config.yaml, so that its default applies, or a secret from .env."""
    if _is_secret_name(key):
        was_set = secrets.remove_secret(home, key)
        text = f"{key} is removed from {home.env}" if was_set else f"{key} was not in {home.env}"
        _emit({"key": key, "was_set": was_set, "path": str(home.env)}, text, as_json)
        if os.environ.get(key):
            click.echo(f"warning: {key} is still set in the environment", err=True)
        return
    change = unset_value(home, key)
    field = fields().get(key)
    default = field.default if field else None
    if change.before is None:
        text = f"{key} was not in {home.config}"
    elif field is None:
        text = f"{key} is not a setting; it is removed from {home.config}"
    else:
        text = f"{key} is back to its default: {format_value(field.default) or '(empty)'}"
    _emit({"key": key, "before": change.before, "default": default}, text, as_json)
    _warn_of_faults(home)


def _warn_of_faults(home: Home) -> bool:
    """Print what is still wrong with config.yaml, and return whether something is."""
    try:
        load(home, environ={})
    except ConfigError as error:
        click.echo(f"warning: {printable(error.message)}", err=True)
        return True
    return False


@config.command("path")
@home_and_json
def path(home: Home, as_json: bool) -> None:
    """Print where config.yaml is."""
    _emit(
        {"config": str(home.config), "env": str(home.env), "home": str(home.root)}, str(home.config), as_json
    )


@config.command("why")
@_key
@home_and_json
def why(home: Home, key: str, as_json: bool) -> None:
    """Explain a setting, the origin of its value, and the values that it overrides."""
    field = find_field(key)
    value, origin, overridden, broken = field.default, "default", (), ""
    try:
        loaded = _load(home)
        value, origin, overridden = loaded.value(key), loaded.origins[key], loaded.overridden[key]
    except ConfigError as error:
        # The command still explains the key: its help matters most when its value is wrong.
        broken = error.message
    value = _redact(key, value)
    if as_json:
        rows = [{"value": _redact(key, setting.value), "origin": setting.origin} for setting in overridden]
        facts: dict[str, object] = {"key": key, "value": value, "origin": origin, "overrides": rows}
        facts |= {
            "allowed": field.allowed_text,
            "help": help_texts()[key],
            "variable": field.variable,
            "error": broken,
        }
        return emit_json(facts)
    click.echo(f"{style_text(key, 'bold')} = {printable(format_value(value)) or '(empty)'}")
    _print_row("from", origin)
    for setting in overridden:
        _print_row(
            "overrides",
            f"{printable(format_value(_redact(key, setting.value))) or '(empty)'}, {setting.origin}",
        )
    _print_row("allowed", field.allowed_text)
    _print_row("variable", field.variable)
    _print_row("meaning", help_texts()[key])
    if broken:
        _print_row("wrong now", broken)


def _print_row(label: str, text: str) -> None:
    click.echo(f"  {label:<11}" + wrap_text(text, indent=13)[13:])


@config.command("list")
@click.option("--changed", is_flag=True, help="Only what is not the default.")
@home_and_json
def list_(home: Home, changed: bool, as_json: bool) -> None:
    """List every setting with its value and its origin."""
    loaded = _load(home)
    keys = [key for key in fields() if not changed or loaded.origins[key] != "default"]
    columns: list[Column[str]] = [
        Column("setting", str),
        Column(
            "value", lambda key: format_value(_redact(key, loaded.value(key))) or "-", grows=True, least=8
        ),
        Column("from", lambda key: loaded.origins[key], rank=1),
    ]
    facts = {key: {"value": _redact(key, loaded.value(key)), "origin": loaded.origins[key]} for key in keys}
    none = "Every setting has its default. Change one: whet config set KEY VALUE"
    emit_rows(keys, columns, facts, none=none, as_json=as_json)


@config.command("edit")
@click.pass_obj
def edit(home: Home) -> None:
    """Open config.yaml in $EDITOR and check it afterwards."""
    home.ensure()
    if not home.config.exists():
        home.config.touch(mode=0o600)
    click.edit(filename=str(home.config))
    load(home, environ={})
    click.echo(f"{home.config} is fine.")


def _emit(facts: dict[str, object], text: str, as_json: bool) -> None:
    emit(facts, printable(text), as_json=as_json)
