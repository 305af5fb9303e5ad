"""Write docs/tree.md: every module of src/whet with the first sentence of its docstring.

    python docs/tree.py          writes the page
    python docs/tree.py --check  exit code 1 where the page is stale

Knows the folders' order of reading, which is that of the layers; imports nothing of whet.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("tree.md")
SOURCE = Path(__file__).parents[1] / "src" / "whet"
# Top to bottom, as in .importlinter; a folder that is not listed comes last.
ORDER = (
    "",
    "contract",
    "config",
    "store",
    "agent",
    "app",
    "context",
    "approval",
    "providers",
    "tools",
    "cli",
)
HEAD = """\
# Every module

Written by `docs/tree.py` from the first sentence of each module's docstring; a test fails when this page is
stale. What runs on the way to a model, in order, is in [architecture](architecture.md). Which folder may
import which is in `.importlinter`, why it is so in [design](design.md).
"""


def page() -> str:
    """Give the whole page."""
    folders: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        folders.setdefault(str(path.parent.relative_to(SOURCE)).replace(".", "", 1), []).append(path)
    ranked = sorted(folders, key=lambda name: (_rank(name), name))
    return "\n".join([HEAD, *(_section(name, folders[name]) for name in ranked)])


def _rank(folder: str) -> int:
    top = folder.partition("/")[0]
    return ORDER.index(top) if top in ORDER else len(ORDER)


def _section(folder: str, paths: list[Path]) -> str:
    title = f"src/whet/{folder}" if folder else "src/whet"
    lines = [f"## {title}", ""]
    for path in paths:
        if path.name == "__init__.py" and folder:
            lines.insert(1, "")
            lines.insert(2, first_sentence(path))
        else:
            lines.append(f"- `{path.name}`: {first_sentence(path)}")
    return "\n".join(lines) + "\n"


def first_sentence(path: Path) -> str:
    """Give the first sentence of a module's docstring, on one line."""
    text = " ".join((ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s(?=[A-Z`])", text, maxsplit=1)[0]


def main() -> int:
    """Write the page, or say whether it is stale; give the exit code."""
    wanted = page()
    if "--check" in sys.argv[1:]:
        is_stale = not PAGE.exists() or PAGE.read_text("utf-8") != wanted
        sys.stdout.write("docs/tree.md is stale: python docs/tree.py\n" if is_stale else "")
        return int(is_stale)
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
