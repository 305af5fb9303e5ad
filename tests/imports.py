"""Which modules of a source tree can be imported with its declared dependencies alone, read from the source.

A module needs an extra if it imports one of the extra's packages at module level, or imports another module
that does. Such a module may be imported only where the code checks for the extra: inside
`try ... except ImportError`, inside `with needs_...():`, in a function that calls `find_spec` first, or under
a condition that holds only if the package was imported before (PROOFS). A late import of the package itself
may also rely on such a check elsewhere in its module.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_BY_NAME = re.compile(r"(whet(?:\.\w+)+)(?::\w+)?")
# Conditions that hold only if a package is there: a team's database was opened with its driver.
PROOFS = {"is_team": "psycopg"}
# Parts of declared packages that need one of their own extras.
PARTS = {"httpx2.websockets": "wsproto"}


class Import(NamedTuple):
    """One import. `is_late`: it runs in a function; `is_guarded`: its failure is caught; `after`: packages
    that were checked for before it."""

    target: str
    line: int
    is_late: bool
    is_guarded: bool
    after: frozenset[str] = frozenset()


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.imports: list[Import] = []
        self.checked: set[str] = set()
        self._late = self._guarded = 0
        self._after: frozenset[str] = frozenset()

    def _add(self, target: str, line: int) -> None:
        if self._guarded:
            self.checked.add(target.partition(".")[0])
        self.imports.append(Import(target, line, self._late > 0, self._guarded > 0, self._after))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._add(f"{node.module}.{alias.name}", node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func).rpartition(".")[2]
        first = node.args[0] if node.args else None
        if name == "import_module" and isinstance(first, ast.JoinedStr):
            start = first.values[0]
            if isinstance(start, ast.Constant) and str(start.value).endswith("."):
                self._add(f"{start.value}*", node.lineno)  # any module of that folder
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            if name == "import_module":
                self._add(first.value, node.lineno)
            if name == "find_spec":
                self.checked.add(first.value.partition(".")[0])
                self._after |= {first.value.partition(".")[0]}
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and (match := _BY_NAME.fullmatch(node.value)):
            self.imports.append(Import(match[1], node.lineno, is_late=True, is_guarded=False))

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.orelse:
                self.visit(child)
            return
        before = self._after
        self.visit(node.test)
        self._after |= {PROOFS[word] for word in re.findall(r"\w+", ast.unparse(node.test)) if word in PROOFS}
        for child in node.body:
            self.visit(child)
        self._after = before | ({*self._after} - {*PROOFS.values()})
        for child in node.orelse:
            self.visit(child)

    def visit_Try(self, node: ast.Try) -> None:
        types = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
        is_guard = "ImportError" in types or "ModuleNotFoundError" in types
        self._guarded += is_guard
        for child in node.body:
            self.visit(child)
        self._guarded -= is_guard
        for child in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(child)

    def visit_With(self, node: ast.With) -> None:
        is_guard = any(ast.unparse(item.context_expr).startswith("needs_") for item in node.items)
        self._guarded += is_guard
        self.generic_visit(node)
        self._guarded -= is_guard

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before = self._guarded, self._after
        self._guarded, self._after = 0, frozenset()
        self._late += 1
        self.generic_visit(node)
        self._late -= 1
        self._guarded, self._after = before

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)


class ImportGraph:
    """The imports of every module below `source/whet`, and which packages are not declared in `project`."""

    def __init__(self, source: Path, project: Path) -> None:
        self.modules: dict[str, _Reader] = {}
        for path in sorted((source / "whet").rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = reader = _Reader()
            reader.visit(ast.parse(path.read_text("utf-8")))
        self._declared = _declared(project)
        self.chains: dict[str, dict[str, str]] = {}
        self._run_queueing()

    def undeclared(self, target: str) -> str:
        """Return the package that an import needs beyond the declared ones, or an empty string."""
        for part, package in PARTS.items():
            if f"{target}.".startswith(f"{part}."):
                return package
        top = target.partition(".")[0]
        known = top == "whet" or top in sys.stdlib_module_names or top in self._declared
        return "" if known else top

    def faults(self) -> Iterator[str]:
        """Yield one line for each import that fails in a bare installation without naming an extra."""
        used: set[str] = set()
        for name, reader in self.modules.items():
            for one in reader.imports:
                used.update(self._imported(one.target))
                yield from self._unchecked(name, reader, one)
        for name in self.chains.keys() - used:
            for package, chain in self.chains[name].items():
                yield f"{name}, which no module imports, needs {package}: {chain}"

    def _unchecked(self, name: str, reader: _Reader, one: Import) -> Iterator[str]:
        for package, chain in self._needs(one.target).items():
            is_known = package in one.after or package in self.chains.get(name, ())
            is_known = is_known or (chain == one.target and package in reader.checked)
            if one.is_late and not one.is_guarded and not is_known:
                yield f"{name}:{one.line} imports {chain} without a check for {package}"

    def _needs(self, target: str) -> dict[str, str]:
        """Return the undeclared packages that importing `target` needs, with the way to each."""
        if package := self.undeclared(target):
            return {package: target}
        found: dict[str, str] = {}
        for module in self._imported(target):
            for package, chain in self.chains.get(module, {}).items():
                found[package] = f"{module} -> {chain}"
        return found

    def _imported(self, target: str) -> list[str]:
        """Return the modules of the tree that importing `target` runs: itself and its parents; of `folder.*`
        every module in the folder."""
        if target.endswith(".*"):
            return [name for name in self.modules if name.startswith(target[:-1])]
        parts = target.split(".")
        names = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return [name for name in names if name in self.modules]

    def _run_queueing(self) -> None:
        is_new = True
        while is_new:
            is_new = False
            for name, reader in self.modules.items():
                for one in reader.imports:
                    if one.is_late or one.is_guarded:
                        continue
                    for package, chain in self._needs(one.target).items():
                        if package not in self.chains.setdefault(name, {}):
                            self.chains[name][package] = chain
                            is_new = True


def _declared(project: Path) -> set[str]:
    """Return the top-level modules that the project's dependencies bring, without any extra."""
    lines = tomllib.loads(project.read_text("utf-8"))["project"]["dependencies"]
    names = {_plain(match[0]) for line in lines if (match := _NAME.match(line))}
    return {
        top
        for top, packages in packages_distributions().items()
        if names & {_plain(name) for name in packages}
    }


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
