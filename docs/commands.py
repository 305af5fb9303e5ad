"""Write docs/commands.md: every command with its purpose, its options and an example that uses an option.

    PYTHONPATH=src python docs/commands.py          writes the page
    PYTHONPATH=src python docs/commands.py --check  exits with 1 if the page is stale

Options that many commands share are described once, above the commands. A command whose module is not in
this checkout is left out. No command is named here.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from whet.cli.group import whet
from whet.contract.errors import NotFound

DOCS = Path(__file__).parent
PAGE = DOCS / "commands.md"
COMMON_FROM = 3  # an option that so many commands describe in the same words
HEAD = """\
# Commands

Every command with its purpose and its options; `whet COMMAND --help` says more. How to use them:
[chat](chat.md), [providers](providers.md), [sessions and settings](sessions.md). Written by
`docs/commands.py`.

Every command has `-h`, `--help`. These options, named in a command's brackets, mean the same everywhere:

"""


class CommandEntry(NamedTuple):
    """A command on the page. `usage` is its name with its arguments; `options` are names and help."""

    path: str
    usage: str
    text: str
    example: str
    options: list[tuple[str, str]]
    is_group: bool


def main() -> int:
    """Write the page, or report whether it is stale; return the exit code."""
    wanted = format_page(list(read_commands(whet, "whet", None)))
    if "--check" in sys.argv[1:]:
        is_stale = not PAGE.exists() or PAGE.read_text("utf-8") != wanted
        sys.stdout.write("docs/commands.md is stale: python docs/commands.py\n" if is_stale else "")
        return int(is_stale)
    PAGE.write_text(wanted, "utf-8")
    return 0


def read_commands(command: click.Command, path: str, parent: click.Context | None) -> Iterator[CommandEntry]:
    """Yield a command and all commands below it, depth first."""
    settings = {} if parent else command.context_settings
    context = click.Context(command, parent=parent, info_name=path.rsplit(" ", 1)[-1], **settings)
    is_group = isinstance(command, click.Group)
    arguments = [
        word
        for word in command.collect_usage_pieces(context)
        if not word.startswith(("[OPTIONS]", "COMMAND"))
    ]
    usage = path if is_group else " ".join([path, *arguments])
    text, example = read_help(command, path)
    yield CommandEntry(path, usage, text, example, list(read_options(command, context)), is_group)
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        try:
            inner = command.get_command(context, name)
        except NotFound:
            continue
        if inner is not None:
            yield from read_commands(inner, f"{path} {name}", context)


def read_help(command: click.Command, path: str) -> tuple[str, str]:
    """Return the first sentence of a command's help, and its first example or an empty string.

    Paragraphs that click may not wrap are examples and tables; they begin with a backspace.
    """
    paragraphs = (command.help or "").split("\f")[0].split("\n\n")
    text = " ".join(" ".join(part.split()) for part in paragraphs if not part.lstrip(" \n").startswith("\b"))
    text = re.split(r"(?<=\.) (?=[A-Z])", text)[0]
    example = re.search(rf"^ *({path} .+)$", "\n".join(part for part in paragraphs if "\b" in part), re.M)
    return text, read_line(example[1]) if example and not isinstance(command, click.Group) else ""


def read_line(line: str) -> str:
    """Return a line without its comment, or an empty string if it goes on or has a gap to fill in."""
    typed = re.split(r"\s{2,}|\s#|;", line)[0]
    return (
        ""
        if typed.endswith("\\") or re.search(r"\[|\.\.\.|\b(?:ID|NAME|DIR|CHANGE|CODE)\b", typed)
        else typed
    )


def read_options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the names and the help of each option that is shown, without --help."""
    for parameter in command.params:
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is not None:
            yield record[0], record[1]


def format_page(entries: list[CommandEntry]) -> str:
    """Return the whole page: the common options, then a section for each command of the first level."""
    counts = Counter(option for entry in entries for option in entry.options)
    common = {option for option, count in counts.items() if count >= COMMON_FROM}
    examples = read_examples(entries) | {entry.path: entry.example for entry in entries if entry.example}
    parts = [HEAD + "".join(format_option(option) for option in sorted(common))]
    parts += [format_entry(entry, common, examples.get(entry.path, "")) for entry in entries]
    return "\n".join(parts)


def format_entry(entry: CommandEntry, common: set[tuple[str, str]], example: str) -> str:
    """Return a command's heading, its sentence, its options and its example."""
    names = [name.split(", ")[-1].split()[0] for name, text in entry.options if (name, text) in common]
    usage = " ".join([entry.usage, *(f"[{name}]" for name in names)])
    level = "##" if entry.path.count(" ") < 2 else "###"
    lines = [f"{level} {entry.path}\n"] if entry.is_group or level == "##" else []
    shown = f"**`{usage}`** " if names or not entry.is_group else ""
    is_telling = " -" in example and example not in entry.text  # the usage line shows plain arguments
    line = f"{shown}{entry.text}" + (f" Example: `{example}`" if is_telling else "")
    lines.append(line + "\n")
    options = "".join(format_option(option) for option in entry.options if option not in common)
    if options:
        lines.append(options)
    return "\n".join(lines)


def format_option(option: tuple[str, str]) -> str:
    """Return an option as an item of a list."""
    name, text = option
    name = re.sub(r"( (?:INTEGER|FLOAT)) RANGE", r"\1", name)
    text = re.sub(r"\s+", " ", text)
    return f"- `{name}` {text}\n"


def read_examples(entries: list[CommandEntry]) -> dict[str, str]:
    """Return for each command the shortest line with it that another page asks a reader to type."""
    paths = sorted((entry.path for entry in entries if not entry.is_group), key=len, reverse=True)
    examples: dict[str, str] = {}
    for page in sorted(DOCS.glob("*.md")):
        if page == PAGE:
            continue
        for line in re.findall(r"^(?: {4}|\$ )(whet .*)$", page.read_text("utf-8"), re.M):
            typed = read_line(line)
            path = next((path for path in paths if typed.startswith(f"{path} ")), "")
            if path and (path not in examples or len(typed) < len(examples[path])):
                examples[path] = typed
    return examples


if __name__ == "__main__":
    sys.exit(main())
