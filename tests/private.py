"""Fail if a test reads a private name of Whet, or of another test.

Run by `make check`. Tests reach behaviour through faces, so that code can be rewritten behind them. A class
may use what its base class keeps for it (`self`, `cls`, `super()`), and names of others' packages are theirs.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN_PACKAGES = ("tests", "benchmarks", "whet", "whet_confirm", "whet_lab")
BY_NAME = ("setattr", "getattr", "delattr", "hasattr", "attrgetter")
# Python documents these as the public names of a named tuple, which may have fields of any other name.
OF_TUPLES = ("_replace", "_fields", "_asdict", "_make", "_field_defaults")
_DEFINED = re.compile(
    r"^\s*(?:async def|def|class) (_[A-Za-z]\w*)|\b(?:self|cls)\.(_[A-Za-z]\w*)\s*(?::[^=\n]+)?=[^=]"
    r"|^\s*(_[A-Za-z]\w*)\s*(?::[^=\n]+)?=[^=]",
    re.MULTILINE,
)
_MAY_ACCESS = re.compile(r"(?<!\bself)(?<!\bcls)\._[A-Za-z]|\bimport\b[^\n]*\b_|attr(?:getter)?\(")


def main() -> int:
    """Print each access, and return 1 if there is one."""
    texts = {path: path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("*.py"))}
    sources = (path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    own = {name for text in (*texts.values(), *sources) for name in list_private_names(text)}
    accesses = [
        f"{path.relative_to(ROOT)}:{access}"
        for path, text in texts.items()
        if _MAY_ACCESS.search(text)
        for access in find_accesses(text, own)
    ]
    print("\n".join([*accesses, f"{len(accesses)} private accesses in tests, limit 0"]))
    return int(bool(accesses))


def list_private_names(text: str) -> set[str]:
    """Return the private names that a module, its classes and its functions define."""
    return {name for match in _DEFINED.findall(text) for name in match if name and name not in OF_TUPLES}


def find_accesses(text: str, own: set[str]) -> Iterator[str]:
    """Yield "line: code" for each use of one of our private names from outside."""
    tree = ast.parse(text)
    foreign = set(_list_foreign_modules(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=value, attr=name) if name in own:
                if not _is_at_home(value) and _root_of(value) not in foreign:
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom(module=str(module), names=aliases):
                parts = [*module.split("."), *(alias.name for alias in aliases)]
                if parts[0] in OWN_PACKAGES and any(re.match("_[A-Za-z]", part) for part in parts):
                    yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
                texts = [part.value for part in arguments if isinstance(part, ast.Constant)]
                last_parts = {text.rpartition(".")[2] for text in texts if isinstance(text, str)}
                if name in BY_NAME and last_parts & own:
                    yield f"{node.lineno}: {ast.unparse(node)}"


def _is_at_home(value: ast.expr) -> bool:
    match value:
        case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
            return True
        case _:
            return False


def _root_of(value: ast.expr) -> str:
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _list_foreign_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.partition(".")[0]
                if package not in OWN_PACKAGES:
                    yield alias.asname or package


if __name__ == "__main__":
    sys.exit(main())
