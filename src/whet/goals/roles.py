"""Decide which changed files of a workspace are the program that a goal is about; the others judge it.

A file belongs to the program if the checks refer to it: a module that a test imports, or a source file that a
script names and that runs no other file. Files that are used without being referred to (a runner's settings,
an interpreter hook, a test) judge the program. So do files that run other files for a script.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import msgspec

from whet.agent.test_runs import mentions_runner
from whet.goals.base import Difference, read_text
from whet.goals.check_subjects import absent_files, subject_files
from whet.goals.checks import find_removed_names

_SUFFIXES = (
    "py pyx js mjs cjs jsx ts tsx go rs c h cc cpp cxx hpp hh m java kt kts rb php lua swift cs scala ex exs"
    " erl hs ml clj zig nim dart jl r pl pm f90 v sv vhd"
)
_CODE = frozenset(f".{suffix}" for suffix in _SUFFIXES.split())
_TESTS = re.compile(
    r"(?:^|/)(?:conftest\.py|test_[^/]*|[^/]*_test\.\w+|[^/]*_spec\.\w+|[^/]*\.(?:test|spec)\.\w+|[^/]*Tests?\.\w+)$"
    r"|(?:^|/)(?:tests?|__tests__|specs?|testing|testdata)/"
)
_HOOKS = re.compile(r"(?:^|/)(?:sitecustomize|usercustomize)(?:\.\w+)+$|\.(?:pth|egg-link)$|(?:^|/)\.git/")
_FRAMEWORKS = re.compile(r"^\s*(?:import|from)\s+(?:unittest|pytest|doctest|nose2?)\b", re.MULTILINE)
_DEFINES = re.compile(r"^\s*(?:async )?def test", re.MULTILINE)
_IMPORTS = re.compile(r"\bfrom\s+([\w.]+)\s+import\s+(\([^)]*\)|[\w .,*]*)|\bimport\s+([\w.][\w., ]*)")
_WORDS = re.compile(r"[^\W\d]\w*")
_PATHS = re.compile(r"[\w./~+@-]+")
_INCLUDES = re.compile(
    r"(?:^|[;&|({]|\b(?:then|do|else)\b)[ \t]*(?:-?include|sinclude|source|\.)[ \t]([^\n;&|)}]*)",
    re.MULTILINE,
)
_OPTIONAL = re.compile(r"\b(?:ImportError|ModuleNotFoundError|Exception|suppress|except\s*:)")
_PROSE = frozenset({".md", ".rst", ".txt", ".adoc", ".log", ""})
_SETTINGS = re.compile(
    r"(?:^|/)(?:[^/]*\.(?:ini|cfg|toml|mk|lock)|(?:GNU)?[Mm]akefile|[^/]*\.config\.\w+|[^/]*rc|package\.json)$"
)
_MAKEFILES = re.compile(r"(?:^|/)(?:(?:GNU)?[Mm]akefile|[^/]*\.mk)$")
_TARGETS = re.compile(r"^([^\s#:=][^#:=]*):(?!=)", re.MULTILINE)
_INDEX = frozenset({"__init__", "mod", "index", "lib", "main"})
_ASK = (
    "import importlib.util, os, site, sys\n"
    "above = os.path.dirname(os.path.dirname(sys.executable))\n"
    "own = os.path.join(above, 'pyvenv.cfg')\n"
    "said = open(own).read() if os.path.isfile(own) else 'packages = true'\n"
    "sys.path += site.getsitepackages([above] * os.path.isfile(own) + site.PREFIXES * ('= true' in said))\n"
    "def there(name):\n"
    "    try: return importlib.util.find_spec(name) is not None\n"
    "    except (ImportError, ValueError): return False\n"
    "print('\\n'.join(name for name in sys.argv[1:] if there(name)))\n"
)


_FindFiles = Callable[
    [str, Callable[[str], bool], Callable[[str], str], Callable[[str], bool]], frozenset[str]
]


class CheckedTree(msgspec.Struct, frozen=True):
    """The facts from which the roles of changed files are derived.

    `was` are the recorded paths; `old` and `now` return a path's recorded and present text. `command` is the
    verifier, `goal` the goal's text, `may_change` the paths that the person lets change, `installed` those of
    installed packages, `missed` the new files that the verifier asks for, and `roots` the folders from which
    modules are imported.
    """

    was: frozenset[str]
    old: Callable[[str], str]
    now: Callable[[str], str]
    command: str
    goal: str
    may_change: tuple[str, ...] = ()
    installed: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ("",)
    workspace: Path = Path("/nowhere")


def judging_files(tree: CheckedTree, changed: Mapping[str, Difference]) -> dict[str, Difference]:
    """Return the changed files that judge the program."""
    allowed = {name for name in changed if may_change_file(name, tree.may_change)}
    excluded = allowed | _find_rule_targets(tree) | _find_hiding_files(tree, changed)
    candidates = [name for name in changed if name not in excluded]
    program = allowed | {name for name in candidates if _is_requested_by_person(name, tree, changed)}
    subjects = _find_changed_subjects(tree, changed).intersection(candidates)
    program |= {name for name in subjects if not _judges(name, tree)}
    texts = {name: text for name in sorted(tree.was) if (text := tree.old(name))}
    named_paths = _paths_in_scripts(texts, tree)
    if not any(_is_test(name, text) for name, text in texts.items()):
        # No test existed before: the goal is to write them.
        program |= {name for name in candidates if changed[name] == "new" and _is_first_test(name, tree)}
    remaining = [name for name in candidates if name not in program and not _judges(name, tree)]
    mentions = _Mentions([*texts.items(), ("command.sh", tree.command)])
    has_grown = True
    while has_grown:
        has_grown = False
        for name in remaining:
            if name not in program and _is_program(name, changed, (tree, mentions, named_paths)):
                program.add(name)
                mentions.add(name, tree.now(name))
                has_grown = True
    return {name: how for name, how in changed.items() if name not in program}


def _find_changed_subjects(tree: CheckedTree, changed: Mapping[str, Difference]) -> set[str]:
    """Return the changed files that the check is about. A file that is gone counts only if the check or the
    goal's text wants that, because many checks pass without their file."""
    arguments = (tree.command, tree.was.__contains__, tree.old, is_check_script)
    unwanted = absent_files(*arguments) | find_removed_names(tree.goal)
    wanted = {"new": frozenset[str](), "changed": subject_files(*arguments), "gone": unwanted}
    return {name for name, how in changed.items() if name in wanted[how]}


def find_optional_files(tree: CheckedTree, judging: Mapping[str, Difference]) -> frozenset[str]:
    """Return the new files that scripts name. A script may require such a file, or only use it if it
    exists."""
    new = {name for name, how in judging.items() if how == "new" and not _SETTINGS.search(name)}
    if not new:
        return frozenset()
    texts = {name: text for name in sorted(tree.was) if (text := tree.old(name))}
    return _paths_in_scripts(texts, tree) & new


def easing_files(tree: CheckedTree, changed: Mapping[str, Difference]) -> dict[str, Difference]:
    """Return the changed judging files that may have made existing tests pass, so no new tests.

    If there was no test before, return the files that run with every program or hide an installed module.
    """
    if not any(_is_test(name, tree.old(name)) for name in tree.was):
        hiding_files = _find_hiding_files(tree, changed)
        return {name: how for name, how in changed.items() if name in hiding_files or is_hook(name)}
    return {
        name: how
        for name, how in judging_files(tree, changed).items()
        if how != "new" or not _is_first_test(name, tree)
    }


def _find_hiding_files(tree: CheckedTree, changed: Iterable[str]) -> frozenset[str]:
    """Return the files of new modules that hide an installed module."""
    modules: dict[str, set[str]] = {}
    for root in tree.roots:
        existing = {_top(name, root) for name in tree.was if name.startswith(root)}
        for name in changed:
            if name.startswith(root) and (top := _top(name, root)) not in existing:
                modules.setdefault(top, set()).add(name)
    tops = {top for top, names in modules.items() if any(n.endswith(".py") for n in names)}
    hiding = _hidden_modules(tops, tree.workspace)
    return frozenset(name for top in hiding for name in modules.get(top, ()))


def _find_rule_targets(tree: CheckedTree) -> frozenset[str]:
    """Return the targets of make's rules that did not exist: if such a file exists, make skips its rule."""
    paths: set[str] = set()
    for name in filter(_MAKEFILES.search, tree.was):
        folder = PurePosixPath(name).parent
        targets = " ".join(_TARGETS.findall(tree.old(name))).split()
        paths |= {str(folder / target) for target in targets if str(folder / target) not in tree.was}
    return frozenset(paths)


def is_hook(name: str) -> bool:
    """Return whether a file runs with every program of its kind, wherever it is, so that a check in a copy of
    the workspace is not safe from it."""
    return _HOOKS.search(name) is not None


def is_test_name(name: str) -> bool:
    """Return whether a file is a test by its name."""
    return is_code(name) and _TESTS.search(name) is not None


def find_subjects(command: str, workspace: Path) -> frozenset[str]:
    """Return the data files that a command is about, as the workspace is now."""
    return _look_at(subject_files, command, workspace)


def find_unwanted(command: str, workspace: Path) -> frozenset[str]:
    """Return the files that a command wants to be gone, as the workspace is now."""
    return _look_at(absent_files, command, workspace)


def _look_at(look: _FindFiles, command: str, workspace: Path) -> frozenset[str]:
    return look(
        command,
        lambda name: (workspace / name).is_file(),
        lambda name: read_text(workspace / name, workspace),
        is_check_script,
    )


def is_check_script(name: str) -> bool:
    """Return whether a file is a script, source code or settings by its name, so that a check consists of
    it."""
    return (
        is_code(name)
        or PurePosixPath(name).suffix in (".sh", ".bash")
        or _SETTINGS.search(name) is not None
        or _MAKEFILES.search(name) is not None
    )


def is_code(name: str) -> bool:
    """Return whether a file is source of a programming language, not a script of commands or settings."""
    return PurePosixPath(name).suffix in _CODE


class _Mentions:
    """The modules that files import, and the words of their code by language."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self._imported: set[str] = set()
        self._needed: set[str] = set()
        self._words: dict[str, set[str]] = {}
        for name, text in texts:
            self.add(name, text)

    def add(self, name: str, text: str) -> None:
        """Add a file's text."""
        suffix = PurePosixPath(name).suffix
        imported = {word for parts in _IMPORTS.findall(text) for word in _WORDS.findall(" ".join(parts))}
        self._imported |= imported
        self._needed |= imported - optional_imports(text) if suffix == ".py" else imported
        if suffix in _CODE and suffix != ".py":
            self._words.setdefault(_list_family_keys(suffix), set()).update(_WORDS.findall(text))

    def has(self, name: str, *, is_new: bool = False) -> bool:
        """Return whether a text refers to a file as a module. A new file counts only if the text requires
        it."""
        path = PurePosixPath(name)
        stem = path.parent.name if path.stem in _INDEX and path.parent.name else path.stem
        if path.suffix == ".py":
            imported = self._needed if is_new else self._imported
            return stem in imported or any(part in imported for part in path.parts[:-1])
        if path.suffix == ".go":
            return True  # a package's files name each other's contents, not the files
        return stem in self._words.get(_list_family_keys(path.suffix), ()) or stem in self._imported


def optional_imports(text: str) -> set[str]:
    """Return the words of the imports of a Python text that may fail, unless other imports have them too."""
    if not _OPTIONAL.search(text):
        return set()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    free: set[str] = set()
    needed: set[str] = set()
    pending: list[tuple[ast.AST, bool]] = [(tree, False)]
    while pending:
        node, is_caught = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            words = set(_WORDS.findall(ast.unparse(node)))
            (free if is_caught else needed).update(words)
        guarded = node.body if isinstance(node, ast.Try | ast.With | ast.AsyncWith) else []
        catches = bool(guarded) and (not isinstance(node, ast.Try) or bool(node.handlers))
        for child in ast.iter_child_nodes(node):
            pending.append((child, is_caught or (catches and child in guarded)))
    return free - needed


def _list_family_keys(suffix: str) -> str:
    if suffix in (".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx"):
        return "js"
    return "c" if suffix in (".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".m") else suffix


def _is_program(
    name: str, changed: Mapping[str, Difference], context: tuple[CheckedTree, _Mentions, frozenset[str]]
) -> bool:
    tree, mentions, named_paths = context
    suffix = PurePosixPath(name).suffix
    if suffix in _CODE and mentions.has(name, is_new=changed[name] == "new"):
        return True
    if name not in named_paths:
        return False
    if changed[name] == "new":
        return name in tree.missed
    return suffix in _CODE and not _refers(tree.old(name), name, tree.was)


def _refers(text: str, name: str, paths_before: frozenset[str]) -> bool:
    """Return whether a file runs or imports another file of the workspace, or runs a test runner."""
    if mentions_runner(text):
        return True
    mentions = _Mentions([(name, text)])
    paths = set(_PATHS.findall(text))
    return any(
        other != name
        and (other in paths or (PurePosixPath(other).suffix in _CODE and _imports(mentions, other)))
        for other in paths_before
    )


def _imports(mentions: _Mentions, other: str) -> bool:
    return PurePosixPath(other).suffix != ".go" and mentions.has(other)


def _is_first_test(name: str, tree: CheckedTree) -> bool:
    if PurePosixPath(name).name in ("conftest.py", "__init__.py") or is_hook(name):
        return False
    text = tree.now(name)
    return is_test_name(name) or (_tests_itself(name, text) and _DEFINES.search(text) is not None)


def _judges(name: str, tree: CheckedTree) -> bool:
    text = tree.old(name) if name in tree.was else tree.now(name)
    if (
        name in tree.installed
        or is_hook(name)
        or any(part.startswith(".") for part in PurePosixPath(name).parts)
    ):
        return True
    if PurePosixPath(name).name == "conftest.py":
        return True
    return _is_test(name, text) or _tests_itself(name, tree.now(name))


def _is_test(name: str, text: str) -> bool:
    return is_test_name(name) or _tests_itself(name, text)


def _tests_itself(name: str, text: str) -> bool:
    return name.endswith(".py") and _FRAMEWORKS.search(text) is not None


def may_change_file(name: str, may_change: Iterable[str]) -> bool:
    """Return whether the person lets a file change: they named it, its folder or a matching pattern."""
    return any(
        fnmatch(name, pattern) or name == pattern.rstrip("/") or name.startswith(pattern.rstrip("/") + "/")
        for pattern in may_change
    )


def _is_requested_by_person(name: str, tree: CheckedTree, changed: Mapping[str, Difference]) -> bool:
    """Return whether the person's own words name a file: the command names it and it did not exist yet, or
    the goal's text names it and it is not an existing test."""
    path = PurePosixPath(name)
    words = set(_PATHS.findall(tree.command))
    in_command = not words.isdisjoint({name, f"./{name}"}) or (
        path.suffix == ".py" and not words.isdisjoint({".".join((*path.parent.parts, path.stem))})
    )
    if changed[name] == "new" and in_command and not is_hook(name):
        return True
    in_goal = {word.rstrip(".") for word in _PATHS.findall(tree.goal)}
    if in_goal.isdisjoint({name, f"./{name}"}) or path.name == "conftest.py" or is_hook(name):
        return False
    if changed[name] == "gone":
        return False  # that the text names a file does not mean that it wants the file removed
    return not _is_test(name, tree.old(name)) or changed[name] == "new"


def _paths_in_scripts(texts: Mapping[str, str], tree: CheckedTree) -> frozenset[str]:
    return _named_paths((text for name, text in texts.items() if _is_runnable(name, text)), tree.command)


def _named_paths(texts: Iterable[str], command: str) -> frozenset[str]:
    """Return the paths that texts name, except those of files that they include."""
    paths: set[str] = set()
    included: set[str] = set()
    for text in (*texts, command):
        paths |= _paths(_INCLUDES.sub("", text))
        included |= _paths("\n".join(_INCLUDES.findall(text)))
    return frozenset(paths - included)


def _paths(text: str) -> set[str]:
    return {path.removeprefix("./") for path in _PATHS.findall(text)}


def _is_runnable(name: str, text: str) -> bool:
    """Return whether a file is code, a script or settings, and not prose."""
    return (
        PurePosixPath(name).suffix not in _PROSE
        or text.startswith("#!")
        or _SETTINGS.search(name) is not None
    )


def _top(name: str, root: str) -> str:
    return PurePosixPath(name.removeprefix(root)).parts[0].partition(".")[0]


def _hidden_modules(tops: set[str], workspace: Path) -> set[str]:
    """Return the new top-level Python modules that hide an installed one."""
    hidden = {top for top in tops if top in sys.stdlib_module_names or top.startswith("_")}
    return hidden | installed_modules(sorted(top for top in tops - hidden if top.isidentifier()), workspace)


def installed_modules(modules: list[str], workspace: Path) -> set[str]:
    """Return those of the modules that are installed for an interpreter of the search path. The interpreters
    are run without access to the workspace's modules; one inside the workspace, where commands can write, is
    not run: its folders are searched."""
    if not modules:
        return set()
    names: set[str] = set()
    for python in _pythons():
        if (folder := Path(python).parent.resolve()).is_relative_to(workspace.resolve()):
            sites = list(folder.parent.glob("lib/python3*/site-packages"))
            names |= {name for name in modules for site in sites if any(site.glob(f"{name}*"))}
            continue
        try:
            process = subprocess.run(
                # without site: a `.pth` file there may lead to the workspace, and code there would be run
                [python, "-I", "-S", "-c", _ASK, *modules],
                capture_output=True,
                check=False,
                timeout=20,
                cwd=Path("/"),
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        names |= set(process.stdout.decode("utf-8", "replace").split())
    return names


def _pythons() -> list[str]:
    """Return the interpreters of the search path and that of this process, without duplicates in a folder."""
    paths = [path for name in ("python3", "python", sys.executable) if (path := shutil.which(name))]
    unique = {(Path(path).parent, Path(path).resolve()): path for path in reversed(paths)}
    return list(unique.values())
