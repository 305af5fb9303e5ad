"""Write the table of docs/troubleshooting.md: every error line that has a hint, as it stands in the source.

    python docs/errors.py          writes the table
    python docs/errors.py --check  exit code 1 where it is stale

It reads the source's syntax and imports nothing of whet. What is filled in at run time is shown as `…`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).with_name("troubleshooting.md")
SOURCE = Path(__file__).parents[1] / "src" / "whet"
BEGIN, END = "<!-- written by docs/errors.py -->\n", "<!-- end -->\n"
# The page's sections, and the folders of the source whose errors belong there.
SECTIONS = (
    ("The model and its server", ("providers", "http1")),
    ("Settings, keys and the home", ("config",)),
    ("Sessions and the database", ("store", "sqlite", "rewind")),
    ("The command line", ("cli", "app", "sandbox")),
    ("Approval and confirmations", ("approval", "confirm")),
    ("Memory, skills, reviews and warm starts", ("memory", "review", "warm", "evals")),
    ("Context engines, plugins and MCP", ("context", "plugins", "mcp")),
    ("Channels, the API and editors", ("channels", "vendors", "gateway", "serve", "web", "editors")),
    ("Moving in and schedules", ("moving", "schedules")),
)


def error_classes() -> set[str]:
    """Give the name of each class that stands below WhetError."""
    found, bases = {"WhetError"}, dict[str, set[str]]()
    for path in SOURCE.rglob("*.py"):
        for name, above in re.findall(r"^class (\w+)\(([\w, ]+)", path.read_text("utf-8"), re.M):
            bases[name] = set(above.split(", "))
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def errors(folder: Path, classes: set[str]) -> Iterator[tuple[str, str]]:
    """Yield each error's message and hint."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes
            ):
                continue
            hint = next((word.value for word in node.keywords if word.arg == "hint"), None)
            message = written(node.args[0]) if node.args else ""
            says = sum(char.isalpha() for char in message)
            if hint is not None and says > 3 and (advice := written(hint)).strip("… "):
                yield message, advice


def written(node: ast.expr) -> str:
    """Give a text as the source has it, with `…` for what is filled in; "" for what is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(written(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (written(node.left) or "…") + (written(node.right) or "…")
    return ""


def table() -> str:
    """Give all sections, each with its errors in alphabetical order."""
    parts: list[str] = []
    classes = error_classes()
    for title, folders in SECTIONS:
        rows = sorted({row for folder in folders for row in errors(SOURCE / folder, classes)})
        parts += [f"### {title}", "", "| error | hint |", "|---|---|"]
        parts += [f"| {cell(message)} | {cell(hint)} |" for message, hint in rows]
        parts.append("")
    return "\n".join(parts)


def cell(text: str) -> str:
    """Give a text as code in a table's cell."""
    inner = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return f"`{inner}`"


def main() -> int:
    """Write the page, or say whether it is fresh."""
    page = PAGE.read_text("utf-8")
    head, rest = page.split(BEGIN)
    fresh = head + BEGIN + table() + END + rest.partition(END)[2]
    if "--check" in sys.argv:
        if page != fresh:
            sys.stdout.write("docs/troubleshooting.md is stale: run python docs/errors.py\n")
        return int(page != fresh)
    PAGE.write_text(fresh, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
