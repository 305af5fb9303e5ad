"""Print the errors that a person can meet, with their hints, by subject.

    PYTHONPATH=src python docs/errors.py          prints the list
    PYTHONPATH=src python docs/errors.py --check  exits with 1 if a hint names a command that does not exist

It reads the source's syntax. Text that is filled in at run time is shown as `…`. Left out are errors that a
model reads (they end with a full stop, or belong to a tool), mistyped names and arguments, whose hint lists
the right ones, and errors of few fixed words. No page repeats the list: the program prints each hint.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from whet.cli.group import whet

SOURCE = Path(__file__).parents[1] / "src"
MIN_LETTERS = 18
# The folders whose errors for a call of a tool a person reads, too.
FOR_PEOPLE = ("cli", "terminal", "app", "goals", "hooks", "sandbox")
# The list's sections, and the folders of the source whose errors belong there.
SECTIONS = (
    ("The model and its server", ("providers", "http1")),
    ("Settings, keys and the home", ("config",)),
    ("Sessions and the database", ("store", "sqlite", "rewind")),
    ("The command line", (*FOR_PEOPLE, "whet_lab/commands", "whet_lab/demo")),
    ("Approval and confirmations", ("approval", "whet_confirm")),
    ("Memory, skills, reviews and warm starts", ("memory", "review", "warm", "whet_lab/evals")),
    ("Context engines, plugins and MCP", ("context", "plugins", "mcp")),
    ("Channels, the API and editors", ("channels", "vendors", "gateway", "serve", "web", "editors")),
    ("Moving in and schedules", ("moving", "schedules")),
)


def error_classes() -> tuple[set[str], set[str]]:
    """Return the names of the classes whose errors a person has to look up, and of those for tool calls."""
    bases: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for name, above in re.findall(r"^class (\w+)\(([\w, ]+)", path.read_text("utf-8"), re.M):
            bases[name] = set(above.split(", "))
    typing_errors = _classes_below("NotFound", bases) | _classes_below("BadInput", bases)
    return _classes_below("WhetError", bases) - typing_errors, _classes_below("ToolError", bases)


def _classes_below(top: str, bases: dict[str, set[str]]) -> set[str]:
    names = {top}
    while more := {name for name, above in bases.items() if above & names} - names:
        names |= more
    return names


def errors(folder: Path, classes: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the message and the hint of each error of these classes that says enough to be searched for."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
            ):
                continue
            hint = next((word.value for word in node.keywords if word.arg == "hint"), None)
            message = written(node.args[0]) if node.args else ""
            letters = sum(char.isalpha() for char in message)
            advice = written(hint) if hint is not None else ""
            if letters >= MIN_LETTERS and advice.strip("… ") and not advice.endswith("."):
                yield message, advice


def written(node: ast.expr) -> str:
    """Return a text as the source has it, with `…` for filled-in parts, or "" if it is not a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (written(node.left) or "…") + (written(node.right) or "…")
    return ""


def table() -> str:
    """Return all sections: each hint once, after the errors that it is for, in alphabetical order."""
    parts: list[str] = []
    classes, for_models = error_classes()
    for title, folders in SECTIONS:
        hints: dict[str, set[str]] = {}
        for folder in folders:
            shown = classes if title == "The command line" else classes - for_models
            for message, hint in errors(_find_folder(folder), shown):
                hints.setdefault(code(hint), set()).add(code(message))
        rows = sorted((", ".join(sorted(messages)), hint) for hint, messages in hints.items())
        parts += [f"### {title}", "", *(f"- {messages}: {hint}" for messages, hint in rows), ""]
    return "\n".join(parts)


def _find_folder(name: str) -> Path:
    return SOURCE / name if name.startswith("whet_") else SOURCE / "whet" / name


def code(text: str) -> str:
    """Return a text as code in one line."""
    inner = " ".join(text.split()).replace("`", "'")
    return f"`{inner}`"


def missing_commands() -> Iterator[str]:
    """Yield each command that a hint of the source names and that does not exist."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text("utf-8")
        if "hint=" not in text or "whet " not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                for words in re.findall(r"(?:^|[:;,] |')whet((?: [a-z][a-z-]+)+)", written(node.value)):
                    yield from [f"{path.relative_to(SOURCE)}: whet{words}"] * (not is_command(words.split()))


def is_command(words: list[str]) -> bool:
    """Return whether these words after `whet` lead to a command; words after its name are its arguments."""
    command: click.Command = whet
    for word in words:
        if not isinstance(command, click.Group):
            break
        inner = command.get_command(click.Context(command), word)
        if inner is None:
            return command is not whet and command.invoke_without_command  # as in `whet hooks lists them`
        command = inner
    return True


def main() -> int:
    """Print the list, or the hints that name no command; return the exit code."""
    if "--check" not in sys.argv:
        sys.stdout.write(table())
        return 0
    missing = list(missing_commands())
    sys.stdout.write("".join(f"{line}: no such command\n" for line in missing))
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
