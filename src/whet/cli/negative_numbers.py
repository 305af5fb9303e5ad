"""Take a negative number on the command line as a value: `whet config set KEY -1`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

import click

_NUMBER = re.compile(r"-\.?\d[\w.]*")


def mark_values(error: click.NoSuchOption, arguments: Sequence[str]) -> list[str] | None:
    """Return the command line with the values of its command after `--`, or None if the unknown option is not
    a number."""
    ctx = error.ctx
    if ctx is None or "--" in arguments or not re.fullmatch(r"-[\d.]", error.option_name):
        return None
    start = 0
    for name in ctx.command_path.split()[1:]:
        if name not in arguments[start:]:
            return None
        start = arguments.index(name, start) + 1
    takes_value = {
        name: not option.is_flag and not option.count
        for option in ctx.command.get_params(ctx)
        if isinstance(option, click.Option)
        for name in option.opts
    }
    options: list[str] = []
    values: list[str] = []
    remaining = iter(arguments[start:])
    for argument in remaining:
        if not argument.startswith("-") or argument == "-" or _NUMBER.fullmatch(argument):
            values.append(argument)
            continue
        options.append(argument)
        if takes_value.get(argument):
            options += islice(remaining, 1)
    return [*arguments[:start], *options, "--", *values]
