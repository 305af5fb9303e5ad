"""Print every module below src/ with the first sentence of its docstring.

    python docs/tree.py            prints all folders
    python docs/tree.py store cli  prints these folders and the folders inside them
    python docs/tree.py --check    exits with 1 if a module has no docstring that begins with a sentence

Folders come in the order of the layers. Nothing of whet is imported.
"""

from __future__ import annotations

import ast
import re
import signal
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
# Top to bottom, as in .importlinter; folders that are not listed come last.
ORDER = ("contract", "config", "store", "agent", "app", "context", "approval", "providers", "tools", "cli")

_DOCSTRING = re.compile(r'(?:#.*\n|\s)*"""(?s:.*?)"""')


def main(arguments: list[str]) -> int:
    """Print the folders that the arguments name, or check all modules; return the exit code."""
    folders = read_folders()
    if "--check" in arguments:
        missing = [path for paths in folders.values() for path in paths if not read_sentence(path)]
        sys.stdout.write("".join(f"{path}: its docstring begins with no sentence\n" for path in missing))
        return int(bool(missing))
    for argument in arguments:
        if not any(_is_inside(folder, argument) for folder in folders):
            sys.stderr.write(f"error: there is no folder {argument}\nhint: one of {', '.join(folders)}\n")
            return 2
    for folder, paths in folders.items():
        if not arguments or any(_is_inside(folder, argument) for argument in arguments):
            sys.stdout.write(format_folder(folder, paths))
    return 0


def read_folders() -> dict[str, list[Path]]:
    """Return the modules of each folder, named from src/, in reading order."""
    folders: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        folders.setdefault(path.parent.relative_to(SOURCE).as_posix(), []).append(path)
    return {folder: folders[folder] for folder in sorted(folders, key=_sort_key)}


def _sort_key(folder: str) -> tuple[str, int, str]:
    package, _, inner = folder.partition("/")
    name = inner.partition("/")[0]
    rank = ORDER.index(name) if name in ORDER else len(ORDER)
    return package, rank if inner else -1, inner


def _is_inside(folder: str, argument: str) -> bool:
    """Return whether a folder is the one that was named or below it; `whet/` may be left out."""
    name = argument.strip("/").removeprefix("src/")
    return any(f"{folder}/".startswith(f"{wanted}/") for wanted in (name, f"whet/{name}"))


def format_folder(folder: str, paths: list[Path]) -> str:
    """Return a folder's heading with the sentence of its package, then a line for each other module."""
    heading = f"src/{folder}/"
    lines: list[str] = []
    for path in paths:
        if path.name == "__init__.py":
            heading += f"  {read_sentence(path)}"
        else:
            lines.append(f"  {path.name}: {read_sentence(path)}\n")
    return f"{heading}\n{''.join(lines)}\n"


def read_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring on one line, or an empty string if there is none."""
    head = _DOCSTRING.match(path.read_text("utf-8"))
    docstring = (head and ast.get_docstring(ast.parse(head[0]))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s(?=[A-Z`])", paragraph, maxsplit=1)[0]
    return sentence if sentence.endswith((".", "!", "?", ":")) else ""


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends the command quietly
    sys.exit(main(sys.argv[1:]))
