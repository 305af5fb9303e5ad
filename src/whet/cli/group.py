"""The click group of `whet`: parse the options before a command, import only that command, print errors.

The commands are listed in `cli/command_table.py`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import click
from click.shell_completion import CompletionItem

from whet.cli.command_table import COMMANDS, DEFAULT_COMMAND
from whet.clock import use_zone
from whet.config.fields import find_nearest
from whet.config.paths import Home, find_home
from whet.config.secrets import list_known_secrets
from whet.contract.errors import NotFound, WhetError
from whet.contract.texts import replace_surrogates
from whet.log import mask, protect_later
from whet.terminal.wording import printable

COMPLETION_VARIABLE = "_WHET_COMPLETE"
_homes: list[Home] = []


class LateGroup(click.Group):
    """A click group that imports a command's module when that command is called.

    `table` maps each name to module:attribute and a description.
    """

    table: Mapping[str, tuple[str, str]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command. Raises NotFound if this installation lacks its module."""
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
        """List the commands from the table, without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])


class CommandTable(LateGroup):
    """The group of all commands."""

    table: Mapping[str, tuple[str, str]] = COMMANDS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the command.

        An option that is not known here belongs to the default command: `whet --continue`. If the value of -p
        has several words, it is not a profile but a question: `whet -p "fix the bug"`. `whet help COMMAND` is
        `whet COMMAND --help`.
        """
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        options = {
            name: option for option in self.get_params(ctx) for name in (*option.opts, *option.secondary_opts)
        }
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] != "--":
            name, _, value = args[index].partition("=")
            if name not in options:
                is_abbreviation = any(long.startswith(name) for long in options)
                if not is_abbreviation:
                    args = [*args[:index], DEFAULT_COMMAND, *args[index:]]
                break
            option = options[name]
            if option.name == "profile" and not value and is_question(" ".join(args[index + 1 : index + 2])):
                args = [*args[:index], DEFAULT_COMMAND, "--question", *args[index + 1 :]]
                break
            index += 2 if isinstance(option, click.Option) and not option.is_flag and not value else 1
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` name, or the default command if they begin with a question.

        Raises UsageError for an unknown command. If the word is another agent's, its message names Whet's
        command for it, otherwise the command with the nearest name.
        """
        if args[0] in COMMANDS:
            return args[0], self.get_command(ctx, args[0]), args[1:]
        if is_question(args[0]):
            return DEFAULT_COMMAND, self.get_command(ctx, DEFAULT_COMMAND), args
        from whet.app.peer_words import SHELL_WORDS, find_meaning, find_near_meaning  # noqa: PLC0415 - for wrong words

        hint = find_meaning(args[0], SHELL_WORDS, args)
        if not hint and args[0].startswith("/"):  # a command of the chat, or a prompt file
            hint = f"type it in the chat: `whet`, then {args[0]}"
        elif not hint:
            close = find_nearest(args[0], list(COMMANDS))
            words = " ".join(args).replace('"', "'")
            hint = f"did you mean `whet {close}`?" if close else find_near_meaning(args[0], SHELL_WORDS, args)
            hint = hint or f'to ask it: whet chat -q "{words}"'
        raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table."""
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        rows = COMMANDS.items()
        return [CompletionItem(name, help=text) for name, (_, text) in rows if name.startswith(incomplete)]


def is_question(text: str) -> bool:
    """Return whether a text can't be a command's name, because it has several words or other letters."""
    return len(text.split()) > 1 or (not text.isascii() and bool(text.strip()))


@click.group(
    cls=CommandTable,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='Without a command: chat; `whet "several words"` asks once. `whet COMMAND --help` tells more.',
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
    protect_later(partial(list_known_secrets, home, os.environ))
    use_zone(partial(_read_zone, home))
    if version:
        ctx.invoke(_get_command(ctx, "version"))
        ctx.exit()
    elif ctx.invoked_subcommand is None:
        is_typed = ctx.get_parameter_source("profile") is click.core.ParameterSource.COMMANDLINE
        if is_typed and profile and not home.root.exists():
            click.echo(
                f'note: -p begins the new profile {profile}; to ask: whet chat -q "{profile}"', err=True
            )
        command = _get_command(ctx, DEFAULT_COMMAND)
        with command.make_context(DEFAULT_COMMAND, [], parent=ctx) as inner:
            command.invoke(inner)


def _read_zone(home: Home) -> str:
    """Return the owner's time zone, or an empty string if it is not set or the settings can't be read."""
    from whet.config.load import load  # noqa: PLC0415 - only commands that show times need it

    with suppress(WhetError):
        return load(home, environ=os.environ).settings.agent.time_zone
    return ""


def _get_command(ctx: click.Context, name: str) -> click.Command:
    command = ctx.command
    assert isinstance(command, CommandTable)
    subcommand = command.get_command(ctx, name)
    assert subcommand is not None
    return subcommand


def active_home() -> Home:
    """Return the home of the running command, or the default home before the options were parsed."""
    return _homes[-1] if _homes else find_home()


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. User errors are printed; bugs are raised."""
    if COMPLETION_VARIABLE in os.environ:
        from whet.cli.completion import print_completions  # noqa: PLC0415 - only a shell's Tab needs it

        return print_completions(whet, COMPLETION_VARIABLE)
    try:
        with whet.make_context("whet", arguments) as ctx:
            whet.invoke(ctx)
        return 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.NoSuchOption as error:
        from whet.cli.negative_numbers import mark_values  # noqa: PLC0415 - only a wrong option needs it

        marked = mark_values(error, arguments)
        return run(marked) if marked else _report_usage(error, arguments)
    except click.UsageError as error:
        return _report_usage(error, arguments)
    except click.ClickException as error:
        return fail(error.format_message())
    except (click.Abort, EOFError):
        click.echo(err=True)
        return 130
    except WhetError as error:
        return fail(error.message, error.hint)
    except (FileNotFoundError, UnicodeEncodeError) as error:
        return _report_surroundings(error, arguments)


def _report_surroundings(error: FileNotFoundError | UnicodeEncodeError, arguments: list[str]) -> int:
    """Report that the current folder is missing, or that an argument or the folder's name is not UTF-8.
    Raises the error if it has another cause."""
    if isinstance(error, FileNotFoundError):
        try:
            os.getcwd()
        except FileNotFoundError:
            return fail("the current folder was deleted", "change to a folder that exists: cd DIR")
        raise error
    invalid = [text for argument in arguments if (text := replace_surrogates(argument)) != argument]
    if invalid:
        return fail(f"the argument {invalid[0]!r} is not UTF-8 text", "write it in UTF-8")
    if (folder := replace_surrogates(os.getcwd())) != os.getcwd():
        return fail(f"the folder {folder!r} has a name that is not UTF-8", "rename it: mv OLD NEW")
    raise error


def fail(message: str, hint: str = "") -> int:
    """Print a failure as one line and its hint, with secrets masked; return exit code 1."""
    click.echo(f"error: {printable(mask(' '.join(message.split())))}", err=True)
    if hint:
        click.echo(f"hint: {printable(mask(hint))}", err=True)
    return 1


def _report_usage(error: click.UsageError, arguments: list[str]) -> int:
    """Print a usage error with a hint, and return exit code 2.

    If the option or command is another agent's, the hint is Whet's own, with the question in `arguments`.
    """
    questions = ["", *(text for text in arguments if is_question(text))]
    hint = f"{error.ctx.command_path if error.ctx else 'whet'} --help"
    if isinstance(error, click.NoSuchOption):
        from whet.app.peer_words import OPTION_WORDS, find_meaning  # noqa: PLC0415 - only a wrong option needs them

        if meaning := find_meaning(error.option_name, OPTION_WORDS, questions):
            hint = meaning
            error = click.NoSuchOption(error.option_name, ctx=error.ctx)  # without near spellings
    elif isinstance(error, click.MissingParameter) and error.ctx is not None:
        from whet.app.peer_words import OTHER_MEANINGS, find_meaning  # noqa: PLC0415 - only a wrong call needs them

        hint = find_meaning(error.ctx.info_name or "", OTHER_MEANINGS, questions) or hint
    elif error.ctx is not None and error.ctx.parent and isinstance(group := error.ctx.command, click.Group):
        from whet.app.peer_words import find_subcommand  # noqa: PLC0415 - only a wrong call needs it

        path, names = error.ctx.command_path, group.list_commands(error.ctx)
        name = str(getattr(error, "command_name", ""))  # an older click lacks it
        hint = f"{path} has: {', '.join(names)}"
        if meaning := find_subcommand(name, names):
            error = click.UsageError(f"there is no command {name!r} in {path}", error.ctx)
            hint = f"`{path} {meaning}`; {hint}"
    fail(error.format_message(), hint)
    return 2
