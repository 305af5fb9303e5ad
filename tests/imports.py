"""Which modules of a source tree can be imported with its declared dependencies alone, read from the source.

A module needs an extra if it imports one of the extra's packages at module level, or imports another module
that does. Such a module may be imported only where the code checks for the extra: inside
`try ... except ImportError`, inside `with needs_...():`, in a function that calls `find_spec` first, or under
a condition that holds only if the package was imported before (PROOFS). A late import of the package itself
may also rely on such a check elsewhere in its module.

With an extra, everything that it is for can be imported: each package belongs to an extra, and one extra
brings all that a module needs. `python tests/imports.py` checks src; `make check` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_BY_NAME = re.compile(r"(whet(?:_[a-z]+)?(?:\.\w+)+)(?::\w+)?")
# Conditions that hold only if a package is there: a team's database was opened with its driver.
PROOFS = {"is_team": "psycopg"}
# Parts of declared packages that need one of their own extras.
PARTS = {"httpx2.websockets": "wsproto"}
# Packages that no extra brings, because they are on no index: the page of each says how to get it.
BY_HAND = {"tau2": "docs/evaluate.md"}
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")


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
            if name in ("import_module", "__import__"):
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
    """The imports of every module below `source`, and which packages are not declared in `project`."""

    def __init__(self, source: Path, project: Path) -> None:
        self.modules: dict[str, _Reader] = {}
        for path in sorted(source.glob("whet*/**/*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = reader = _Reader()
            reader.visit(ast.parse(path.read_text("utf-8")))
        self._own = {name.partition(".")[0] for name in self.modules}
        self._declared, self.extras = _declared(project)
        self.chains: dict[str, dict[str, str]] = {}
        self._run_queueing()

    def undeclared(self, target: str) -> str:
        """Return the package that an import needs beyond the declared ones, or an empty string."""
        for part, package in PARTS.items():
            if f"{target}.".startswith(f"{part}."):
                return package
        top = target.partition(".")[0]
        known = top in self._own or top in sys.stdlib_module_names or top in self._declared
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

    def faults_of_extras(self) -> Iterator[str]:
        """Yield one line for each import that no extra makes possible, and for each extra without a use."""
        needs: dict[str, set[str]] = {}
        for name, reader in self.modules.items():
            packages = {self.undeclared(one.target) for one in reader.imports} - {"", *BY_HAND}
            for package in sorted(packages - set().union(*self.extras.values())):
                line = next(one.line for one in reader.imports if self.undeclared(one.target) == package)
                yield f"{name}:{line} imports {package}, which neither whet nor an extra of it depends on"
            for package in packages:
                needs.setdefault(package, set()).add(name)
        for name, chains in self.chains.items():
            texts = set(chains) & set().union(*self.extras.values())
            if texts and not any(texts <= packages for packages in self.extras.values()):
                yield f"{name} needs {' and '.join(sorted(texts))}, which no extra brings together"
        for extra, packages in self.extras.items():
            if not packages & needs.keys():
                yield f"no module imports a package of the extra {extra}"

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
        texts: dict[str, str] = {}
        for module in self._imported(target):
            for package, chain in self.chains.get(module, {}).items():
                texts[package] = f"{module} -> {chain}"
        return texts

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


def _declared(project: Path) -> tuple[set[str], dict[str, set[str]]]:
    """Return the top-level modules that the project's dependencies bring without an extra, and those that
    each extra adds."""
    table = tomllib.loads(project.read_text("utf-8"))["project"]
    tops: dict[str, set[str]] = {}
    for top, packages in _installed().items():
        for package in packages:
            tops.setdefault(_plain(package), set()).add(top)

    def modules(lines: list[str]) -> set[str]:
        names = {name for line in lines for name in _brought(line)}
        return set().union(*(tops.get(name, set()) for name in names))

    base = modules(table["dependencies"])
    extras = table.get("optional-dependencies", {})
    return base, {extra: modules(lines) - base for extra, lines in extras.items()}


@cache
def _installed() -> Mapping[str, list[str]]:
    """Return the packages of each top-level module, read once: that takes half a second."""
    return packages_distributions()


def _brought(line: str) -> Iterator[str]:
    """Yield the packages that a requirement names: its own, and those of the extras in its brackets."""
    match = _REQUIREMENT.match(line)
    if match is None:
        return
    yield _plain(match[1])
    for extra in filter(None, re.split(r"[,\s]+", match[2] or "")):
        try:
            lines = requires(match[1]) or []
        except PackageNotFoundError:
            return  # an extra that is not installed here
        for more in lines:
            if (only := _EXTRA.search(more)) and _plain(only[1]) == _plain(extra):
                yield from _brought(more)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    root = Path(__file__).parents[1]
    graph = ImportGraph(root / "src", root / "pyproject.toml")
    faults = [*graph.faults(), *graph.faults_of_extras()]
    print("\n".join(faults) or f"imports: {len(graph.modules)} modules, {len(graph.extras)} extras")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
