"""List the accounts of the answering provider for a person. Keys are named by their variables, never
shown."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from whet.config.key_hosts import key_names
from whet.config.schema import ModelSettings


class ProviderAccount(msgspec.Struct, frozen=True):
    """An account of the provider. The account without a name uses the provider's own key. `has_key` is
    whether one of its variables is set, or None if that was not checked."""

    name: str
    variables: tuple[str, ...]
    is_used: bool
    has_key: bool | None = None


def list_accounts(model: ModelSettings, secrets: Mapping[str, str] | None = None) -> list[ProviderAccount]:
    """Return the account without a name and those of `model.accounts`, with the variables of their keys."""
    accounts: list[ProviderAccount] = []
    for name in ("", *model.accounts.get(model.provider, {})):
        variables = key_names(msgspec.structs.replace(model, account=name))
        has_key = None if secrets is None else any(secrets.get(variable) for variable in variables)
        accounts.append(ProviderAccount(name, variables, name == model.account, has_key))
    return accounts


def account_lines(accounts: list[ProviderAccount]) -> list[str]:
    """Return a line for each account; the one in use has a star."""
    lines: list[str] = []
    for account in accounts:
        missing = "  (not set)" if account.has_key is False and account.variables else ""
        keys = ", ".join(account.variables) or "no key is sent"
        lines.append(f"{'*' if account.is_used else ' '} {account.name or 'default'}: {keys}{missing}")
    return lines
