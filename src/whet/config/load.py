"""Load the settings from config.yaml, the environment and flags, and record the origin of each value.

Flags override the environment, which overrides config.yaml. Every value is checked, even an overridden one,
so that an error names its source. A missing file counts as empty. This module does not know secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from whet.config.fields import Field, Value, fields, find_nearest, read_text, sections
from whet.config.key_hosts import ServerBlock, check_account, resolve_server
from whet.config.paths import Home, read_small
from whet.config.schema import ModelSettings, Settings
from whet.contract.errors import ConfigError
from whet.contract.forms import FORMS
from whet.contract.texts import from_values, strip_credentials

if TYPE_CHECKING:
    from whet.config.yaml_file import SectionNode, YamlEntry

FLAGS = {"approval.mode": "--approvals", "tools.disabled": "--disable-tool"}
"""Flags whose name differs from the field's."""
_TYPED_TABLES = ("model.extra", "model.accounts")
NOT_SETTINGS = {"WHET_HOME", "WHET_PROFILE", "WHET_COMPLETE"}


class SettingOrigin(msgspec.Struct, frozen=True):
    """A value of a setting and its origin.

    The origin is "config.yaml line 3", "environment WHET_MODEL_MODEL", "flag --model" or "default".
    """

    value: Value
    origin: str


class LoadedSettings(msgspec.Struct, frozen=True):
    """The settings, the origin of each by key, and the values that were overridden, strongest first."""

    settings: Settings
    origins: dict[str, str]
    overridden: dict[str, tuple[SettingOrigin, ...]] = msgspec.field(
        default_factory=dict[str, tuple[SettingOrigin, ...]]
    )
    warnings: tuple[str, ...] = ()

    def value(self, key: str) -> Value:
        """Return the value of a known key such as model.provider. A table is the text of a JSON object."""
        section, _, name = key.partition(".")
        value = getattr(getattr(self.settings, section), name)
        return msgspec.json.encode(value).decode() if fields()[key].kind == "table" else value


def load(
    home: Home, flags: Mapping[str, object] | None = None, *, environ: Mapping[str, str]
) -> LoadedSettings:
    """Load the settings of `home`. `flags` maps keys to values, which are None if not given.

    Raises ConfigError, which names the key, the value, its source and the allowed values.
    """
    layers = (
        {key: SettingOrigin(spec.default, "default") for key, spec in fields().items()},
        dict(_from_file(home)),
        dict(_from_environment(environ)),
        dict(_from_flags(flags or {})),
    )
    chosen: dict[str, SettingOrigin] = {}
    overridden: dict[str, tuple[SettingOrigin, ...]] = {}
    for key in fields():
        settings = [layer[key] for layer in reversed(layers) if key in layer]
        chosen[key] = settings[0]
        overridden[key] = tuple(settings[1:])
    notes = (
        *_resolve_model(chosen, overridden),
        *_resolve_accounts(chosen),
        *_resolve_servers(chosen, overridden),
    )
    origins = {key: setting.origin for key, setting in chosen.items()}
    return LoadedSettings(
        _assemble(chosen), origins, overridden, (*_unknown_variable_notices(environ), *notes)
    )


# Sections whose server is not a model server. They inherit nothing from the model's section.
_OTHER_SERVERS = ("search", "voice", "embeddings")


def _resolve_servers(
    chosen: dict[str, SettingOrigin], overridden: dict[str, tuple[SettingOrigin, ...]]
) -> Iterator[str]:
    """Withhold keys from servers that they don't belong to. Changes `chosen` and `overridden`.

    Yields notices for the person.
    """
    first: ServerBlock | None = None
    absent = {"provider": SettingOrigin("", "default"), "format": SettingOrigin("auto", "default")}
    for section in ("model", "fallback", "review", "judge", *_OTHER_SERVERS):
        settings = [chosen.get(f"{section}.{name}") or absent[name] for name in ServerBlock.__struct_fields__]
        raw_block = ServerBlock(*((str(setting.value), _rank_layer(setting)) for setting in settings))
        resolved = resolve_server(section, raw_block, None if section in _OTHER_SERVERS else first)
        first = first or resolved.block
        for name, value in resolved.changed.items():
            key = f"{section}.{name}"
            decided_by = "base_url" if name != "base_url" else "provider"
            overridden[key] = (chosen[key], *overridden[key])
            deciding_origin = chosen[f"{section}.{decided_by}"].origin
            if deciding_origin == "default" and section not in _OTHER_SERVERS:
                deciding_origin = chosen[f"model.{decided_by}"].origin
            chosen[key] = SettingOrigin(value, deciding_origin)
        if resolved.note:
            yield resolved.note


def _resolve_model(
    chosen: dict[str, SettingOrigin], overridden: dict[str, tuple[SettingOrigin, ...]]
) -> Iterator[str]:
    """Use the provider's default model if the model was set for another server.

    That is so if a stronger layer names the provider. Yields a notice for the person.
    """
    model, provider = chosen["model.model"], chosen["model.provider"]
    strength = _rank_layer(model)
    if not strength or _rank_layer(provider) <= strength:
        return

    def is_no_stronger(setting: SettingOrigin) -> bool:
        return 0 < _rank_layer(setting) <= strength

    providers = [setting.value for setting in overridden["model.provider"] if is_no_stronger(setting)]
    addresses = (chosen["model.base_url"], *overridden["model.base_url"])
    is_for_another = providers[0] != provider.value if providers else any(map(is_no_stronger, addresses))
    if is_for_another:
        chosen["model.model"] = SettingOrigin("", provider.origin)
        overridden["model.model"] = (model, *overridden["model.model"])
        yield f"{model.value} ({model.origin}) is another server's model; {provider.value} uses its default"


def _resolve_accounts(chosen: dict[str, SettingOrigin]) -> Iterator[str]:
    """Drop the accounts if a stronger layer names the address, which must not get their keys.

    Drop the choice of an account if a stronger layer names another provider. Yields notices for the person.
    """
    address, accounts, account = (chosen[f"model.{name}"] for name in ("base_url", "accounts", "account"))
    if _rank_layer(address) > _rank_layer(accounts):
        if accounts.origin != "default":
            chosen["model.accounts"] = SettingOrigin("{}", address.origin)
        if account.value:
            chosen["model.account"] = SettingOrigin("", address.origin)
            yield f"no key of model.accounts is sent to the address of {address.origin}"
    provider = chosen["model.provider"]
    names = msgspec.json.decode(str(accounts.value)).get(str(provider.value), {})
    if account.value and account.value not in names and _rank_layer(provider) > _rank_layer(account):
        chosen["model.account"] = SettingOrigin("", provider.origin)


def _rank_layer(setting: SettingOrigin) -> int:
    """Return the layer of a value: 1 config.yaml, 2 the environment, 3 a flag, 0 a default."""
    if not setting.value or setting.origin == "default":
        return 0
    return {"environment": 2, "flag": 3}.get(setting.origin.partition(" ")[0], 1)


def _assemble(chosen: Mapping[str, SettingOrigin]) -> Settings:
    tree: dict[str, dict[str, object]] = {section: {} for section in sections()}
    for key, setting in chosen.items():
        section, _, name = key.partition(".")
        is_table = fields()[key].kind == "table"
        tree[section][name] = msgspec.json.decode(str(setting.value)) if is_table else setting.value
    settings = from_values(tree, Settings, strict=False)
    _check_aliases(settings.model.aliases, chosen["model.aliases"].origin)
    _check_accounts(settings.model, chosen["model.accounts"].origin, chosen["model.account"].origin)
    return _resolve_aliases(settings)


def _check_aliases(aliases: Mapping[str, str], origin: str) -> None:
    """Raise ConfigError if an alias leads to another alias, because aliases are resolved only once."""
    for name, model in aliases.items():
        if model in aliases and model != name:
            raise ConfigError(
                f"model.aliases: {name} leads to {model}, which is an alias itself ({origin})",
                hint="name the model as its server knows it",
            )


def _check_accounts(model: ModelSettings, accounts_origin: str, account_origin: str) -> None:
    """Raise ConfigError if an account is not the name of a variable, or if the chosen account does not exist.

    The message does not show the wrong value, which may be a pasted key.
    """
    for provider, accounts in model.accounts.items():
        for name, variables in accounts.items():
            if not FORMS["variables"].is_valid(variables):
                raise ConfigError(
                    f"model.accounts: {provider}.{name} is not the name of a variable ({accounts_origin})",
                    hint="put the key into .env as NAME=KEY, and NAME here",
                )
    check_account(model, model.account, f"model.account, {account_origin}")


def _resolve_aliases(settings: Settings) -> Settings:
    """Return the settings with every model under the name that its server knows."""
    if not settings.model.aliases:
        return settings
    replace, context, aliases = msgspec.structs.replace, settings.context, settings.model.aliases

    def resolve(name: str) -> str:
        return aliases.get(name, name)

    return replace(
        settings,
        model=replace(settings.model, model=resolve(settings.model.model)),
        fallback=replace(settings.fallback, model=resolve(settings.fallback.model)),
        judge=replace(settings.judge, model=resolve(settings.judge.model)),
        review=replace(settings.review, model=resolve(settings.review.model)),
        context=replace(context, summary_model=resolve(context.summary_model)),
    )


def parse_file(home: Home, text: str) -> tuple[SectionNode, ...]:
    """Parse the text of config.yaml, whose entries may have faults. Raises ConfigError, which names the
    line."""
    from whet.config.yaml_file import parse  # noqa: PLC0415 - yaml costs 35 ms, many homes have no file

    tables = {key for key, spec in fields().items() if spec.kind == "table"}
    return parse(text, home.config.name, tables, _TYPED_TABLES)


def check_file(home: Home, text: str) -> dict[str, SettingOrigin]:
    """Parse the text of a config.yaml and return its settings by key. Raises ConfigError."""
    settings: dict[str, SettingOrigin] = {}
    for section in parse_file(home, text):
        if section.name not in sections():
            raise _unknown_key_error(
                section.name, list(sections()), f"{home.config.name} line {section.key.line + 1}"
            )
        for entry in section.entries:
            key, where = f"{section.name}.{entry.name}", f"{home.config.name} line {entry.line}"
            if key not in fields():
                raise _unknown_key_error(key, list(fields()), where)
            if entry.value is not None:
                settings[key] = SettingOrigin(read_entry(home, key, entry), where)
    return settings


def read_entry(home: Home, key: str, entry: YamlEntry) -> Value:
    """Return the value of a setting's entry in config.yaml. Raises ConfigError, which names the line."""
    if entry.fault is not None:
        raise entry.fault
    text = "" if entry.value is None else entry.value
    return _convert(find_field(key), text, f"{home.config.name} line {entry.line}")


def _from_file(home: Home) -> Mapping[str, SettingOrigin]:
    text = read_small(home.config)
    return check_file(home, text) if text and not text.isspace() else {}


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, SettingOrigin]]:
    for key, spec in fields().items():
        if spec.variable in environ:
            where = f"environment {spec.variable}"
            yield key, SettingOrigin(_convert(spec, environ[spec.variable], where), where)


def _from_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, SettingOrigin]]:
    for key, value in flags.items():
        if value is None:
            continue
        where = f"flag {FLAGS.get(key) or '--' + key.rpartition('.')[2].replace('_', '-')}"
        texts = tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] (a flag's list is checked item by item)
        yield key, SettingOrigin(_convert(find_field(key), texts, where), where)


def find_field(key: str) -> Field:
    """Return the field of `key`. Raises ConfigError, which names the most similar key."""
    if key not in fields():
        raise _unknown_key_error(key, list(fields()), "")
    return fields()[key]


def _convert(spec: Field, value: str | tuple[str, ...], where: str) -> Value:
    in_file = where.startswith("config.yaml")
    if isinstance(value, tuple) and spec.kind == "list" and all(map(spec.accepts, value)):
        return value
    if isinstance(value, tuple) or (in_file and spec.kind == "list"):
        raise _bad_value_error(spec, value, where)
    try:
        return read_text(spec, value)
    except ValueError as error:
        if spec.kind == "table":
            message = f"{where}: {spec.key}: {error}"
            raise ConfigError(message, hint=f"whet config why {spec.key}") from error
        raise _bad_value_error(spec, value, where) from error


def _bad_value_error(spec: Field, value: str | tuple[str, ...], where: str) -> ConfigError:
    value_text = strip_credentials(f"[{', '.join(value)}]" if isinstance(value, tuple) else value)
    if len(value_text) > 60:
        value_text = value_text[:60] + "..."
    return ConfigError(
        f"{where}: {spec.key} is {value_text!r}; allowed: {spec.allowed_text}",
        hint=f"whet config why {spec.key}",
    )


def _unknown_key_error(key: str, candidates: list[str], where: str) -> ConfigError:
    close = find_nearest(key, candidates)
    prefix = f"{where}: " if where else ""
    last = key.rpartition(".")[2].lower()
    if last.endswith(("api_key", "apikey", "token", "secret", "password")):
        return ConfigError(f"{prefix}{key} is not a setting", hint="keys go into the environment or .env")
    hint = f"did you mean {close}?" if close else "whet config list shows every key"
    return ConfigError(f"{prefix}{key} is not a setting", hint=hint)


def _unknown_variable_notices(environ: Mapping[str, str]) -> Iterator[str]:
    variables = {spec.variable for spec in fields().values()}
    prefixes = tuple(f"WHET_{section.upper()}_" for section in sections())
    for name in sorted(environ):
        if name.startswith(prefixes) and name not in variables and name not in NOT_SETTINGS:
            close = find_nearest(name, sorted(variables))
            yield f"environment {name} is not a setting" + (f"; did you mean {close}?" if close else "")


def names_model(given: Mapping[str, object]) -> bool:
    """Return whether settings that a person gave at this start name the model or its server: that is a choice
    for the session that is opened."""
    return any(given.get(key) for key in ("model.model", "model.provider", "model.base_url"))
