"""`whet completion SHELL`: the script that lets a shell complete commands, options, keys and session ids.

The script calls `whet` with an environment variable set (click's protocol); `print_completions` handles
that call.
"""

from __future__ import annotations

import os
import sys

import click
from click.shell_completion import BashComplete, get_completion_class, shell_complete

_VARIABLE = "_WHET_COMPLETE"
_INSTALL = {
    "bash": 'eval "$(whet completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(whet completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "whet completion fish > ~/.config/fish/completions/whet.fish",
}


class _Bash(BashComplete):
    # click would start bash to check its version, which takes time
    @staticmethod
    def _check_version() -> None:
        return None


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_INSTALL)))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash: eval "$(whet completion bash)"   in ~/.bashrc
    zsh:  eval "$(whet completion zsh)"    in ~/.zshrc, after compinit
    fish: whet completion fish > ~/.config/fish/completions/whet.fish
    """
    kind = _Bash if shell == "bash" else get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.Group("whet"), {}, "whet", _VARIABLE).source())
    if sys.stdout.isatty():
        click.echo(f"to install: {_INSTALL[shell]}", err=True)


def print_completions(command: click.Command, variable: str) -> int:
    """Print the completions that the shell asks for, and return the exit code."""
    return shell_complete(command, {}, "whet", variable, os.environ[variable])
