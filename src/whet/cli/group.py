"""The top of the command line for click: options before the command, late imports, one way to fail.

It knows the table in `cli/main.py` and no command.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from whet.cli.main import COMMANDS, DEFAULT_COMMAND
from whet.cli.wording import printable
from whet.config.fields import nearest
from whet.config.paths import Home, find_home
from whet.contract.errors import NotFound, WhetError
from whet.contract.texts import encodable
from whet.log import mask

COMPLETION_VARIABLE = "_WHET_COMPLETE"
_homes: list[Home] = []


class LateGroup(click.Group):
    """A click group that imports a command's module when that command is called. `table` has, for each name,
    module:attribute and what it does."""

    table: Mapping[str, tuple[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names in the table's order."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command. Raises NotFound where this installation lacks its module."""
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            raise NotFound(
                f"`{ctx.command_path} {cmd_name}` is not part of this installation", hint="whet --help"
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table; no module is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


class CommandTable(LateGroup):
    """The top of the command line."""

    table: Mapping[str, tuple[str, str]] = COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; one that is not of the table begins the default command: `whet --continue`."""
        own = {
            name: option for option in self.get_params(ctx) for name in (*option.opts, *option.secondary_opts)
        }
        at = 0
        while at < len(args) and args[at].startswith("-") and args[at] != "--":
            name, _, value = args[at].partition("=")
            if name not in own:
                if not any(long.startswith(name) for long in own):  # nor the beginning of one
                    args = [*args[:at], DEFAULT_COMMAND, *args[at:]]
                break
            option = own[name]
            at += 2 if isinstance(option, click.Option) and not option.is_flag and not value else 1
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of `args`; an unknown one is a usage error that names the nearest."""
        if args[0] in COMMANDS:
            return args[0], self.get_command(ctx, args[0]), args[1:]
        close = nearest(args[0], list(COMMANDS))
        hint = f"did you mean `whet {close}`?" if close else 'to ask something: whet chat -q "..."'
        raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        rows = COMMANDS.items()
        return [CompletionItem(name, help=text) for name, (_, text) in rows if name.startswith(incomplete)]


@click.group(
    cls=CommandTable,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Without a command: chat. `whet COMMAND --help` tells more.",
)
@click.option(
    "-p", "--profile", default="", metavar="NAME", envvar="WHET_PROFILE", help="Use that profile's home."
)
@click.option("-V", "--version", is_flag=True, help="Print the version.")
@click.pass_context
def whet(ctx: click.Context, profile: str, version: bool) -> None:
    """An AI agent that gets better at its owner's work by doing it."""
    home = find_home(profile)
    _homes[:] = [home]
    ctx.obj = home
    if version:
        ctx.invoke(_command(ctx, "version"))
    elif ctx.invoked_subcommand is None:
        command = _command(ctx, DEFAULT_COMMAND)
        with command.make_context(DEFAULT_COMMAND, [], parent=ctx) as inner:
            command.invoke(inner)


def _command(ctx: click.Context, name: str) -> click.Command:
    command = ctx.command
    assert isinstance(command, CommandTable)
    found = command.get_command(ctx, name)
    assert found is not None
    return found


def active_home() -> Home:
    """Give the home of the command that runs, the default one before that is known."""
    return _homes[-1] if _homes else find_home()


def run(arguments: list[str]) -> int:
    """Run one command line and give its exit code; a person's errors are printed, bugs go up."""
    if COMPLETION_VARIABLE in os.environ:
        from whet.cli.completion import answer  # noqa: PLC0415 - only a shell's Tab needs it

        return answer(whet, COMPLETION_VARIABLE)
    try:
        with whet.make_context("whet", arguments) as ctx:
            whet.invoke(ctx)
        return 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        return fail(error.format_message())
    except (click.Abort, EOFError):
        click.echo(err=True)
        return 130
    except WhetError as error:
        return fail(error.message, error.hint)
    except UnicodeEncodeError:
        odd = [text for argument in arguments if (text := encodable(argument)) != argument]
        if not odd:
            raise
        return fail(f"the argument {odd[0]!r} is not UTF-8 text", "write it in UTF-8")


def fail(message: str, hint: str = "") -> int:
    """Print a failure as one line and its hint, secrets masked; give exit code 1."""
    click.echo(f"error: {printable(mask(' '.join(message.split())))}", err=True)
    if hint:
        click.echo(f"hint: {printable(mask(hint))}", err=True)
    return 1


def _usage(error: click.UsageError) -> int:
    fail(error.format_message(), f"{error.ctx.command_path if error.ctx else 'whet'} --help")
    return 2
