"""Git working trees for helpers: made at what the workspace is now, and their edits merged back into it.

Git works a merge out on snapshots, with nothing of the person's index or branches touched. What is to be
written is stored before the first file changes, so that what a kill cuts off is finished, not begun again.
Where a file conflicts, nothing is written, and the edits stay under a ref. A tree is removed only if all that
is in it is in the workspace too: see `tree_leftovers`. Blocking; no hook is run.

One at a time works on a repository's trees, since git stumbles over those that another git is still making.
The lock goes to git itself, so that one that outlives a killed program keeps the next program out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Set
from contextlib import suppress
from pathlib import Path
from stat import S_IFREG, S_ISREG

import msgspec

from whet.app.helpers.exact_bytes import list_converted, read_blob, store_bytes
from whet.app.helpers.repository_git import (
    disable_programs,
    last_error_line,
    list_nested_repositories,
    lock_repository,
    run_git,
    run_git_process,
)
from whet.app.helpers.tree_leftovers import Leftovers, bring, find_leftovers
from whet.beneath import has_all_links, put_in_place
from whet.contract.changes import TextChange, hash_bytes
from whet.contract.errors import ToolError
from whet.regular import open_regular, read_regular_text
from whet.sandbox.nofollow import create_entry, parent_of
from whet.sandbox.path_rules import NO_RULES, PathRules
from whet.store.helper_rows import MergePlan, WorkingTree
from whet.tools.output import clean

_TRIES = 5
_SHOWN_CHARS = 4_000
_LARGE_BYTES = 1_000_000
_CHANGED = "what a command that still runs has changed since"
_UNFIT = "a folder that git does not carry has the file's name, or the files changed during the merge"
_COMPLETE = ".whole"
_REF = "refs/whet/helpers/"
_NOTHING = ("0" * 40, "0" * 64)

StorePlan = Callable[[MergePlan], None]
ReadPlan = Callable[[], MergePlan | None]
FindRule = Callable[[str], str]
"""`StorePlan` stores how far a merge is, durable on return; `ReadPlan` reads it."""


def plan_tree(workspace: Path, helper_id: str, folder: Path, rules: PathRules = NO_RULES) -> WorkingTree:
    """Return the working tree that a helper will have, based on the present workspace; nothing is checked
    out. Raises ToolError if the workspace is not in a repository's own working tree, or if the deny rules
    protect a file that they would not protect in the tree."""
    top = run_git(workspace, "rev-parse", "--show-toplevel").strip()
    if not workspace.resolve().is_relative_to(Path(top).resolve()):
        raise ToolError(f"core.worktree of this repository leads elsewhere, to {top}", hint="git config -l")
    repository = Path(top)
    with lock_repository(repository):
        parent = run_git(repository, "rev-parse", "--verify", "--quiet", "HEAD", check=False).strip()
        converted, exact = _store_trees(repository, helper_id)
        head = _commit(repository, converted, parent)
        base = head if exact == converted else _commit(repository, exact, head)
        tree = WorkingTree(str(folder / helper_id / repository.name), top, base, head)
        _check_rules(tree, workspace, rules)
    return tree


def _check_rules(tree: WorkingTree, workspace: Path, rules: PathRules) -> None:
    """Raise ToolError if a rule names a file of the workspace by its absolute path: the tree's copy of it
    would be open to the helper."""
    absolute = PathRules(tuple(rule for rule in rules.rules if rule.is_absolute()))
    if not absolute.rules:
        return
    repository, place = Path(tree.repository), Path(tree.place)
    inside = place / os.path.relpath(workspace.resolve(), repository.resolve())
    for path in _carried(repository, tree.base):
        rule = absolute.find(repository / path, workspace, writes=True)
        if rule and not rules.find(place / path, inside, writes=True):
            raise ToolError(
                f"the rule deny: {rule} protects {path} here, and not in a helper's copy of the workspace",
                hint="name the file in the rule as it is called in the workspace",
            )


def check_out_tree(tree: WorkingTree, helper_id: str, workspace: Path) -> Path:
    """Check out a working tree, unless it exists, and return the helper's workspace in it."""
    folder = Path(tree.place)
    marker = folder.parent / _COMPLETE
    repository = Path(tree.repository)
    with lock_repository(repository):
        if not marker.exists():  # it does not exist, or a kill interrupted its checkout
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            run_git(repository, "update-ref", _REF + helper_id, tree.base)
            _clear_half_made(repository, folder.parent.parent)
            _add(repository, folder, tree.head or tree.base)
            _restore_bytes(repository, folder, tree.base)
            marker.touch()
    inside = folder / os.path.relpath(workspace.resolve(), repository.resolve())
    inside.mkdir(parents=True, exist_ok=True)
    return inside


def merge(
    tree: WorkingTree,
    helper_id: str,
    read_plan: ReadPlan,
    store_plan: StorePlan,
    find_rule: FindRule = lambda path: "",
) -> MergePlan:
    """Merge a helper's edits into its parent's workspace, or return the conflicting files.

    `find_rule` returns the deny rule that protects a file of the repository, or an empty string: nothing is
    written if there is an edit of such a file. An interrupted merge is completed; if another call has
    finished it meanwhile, that one is returned. Raises ToolError if git fails.
    """
    repository = Path(tree.repository)
    with lock_repository(repository):
        current = read_plan()
        if current is not None and (current.done or current.conflicts):
            return current
        unfit: list[str] = []
        for _ in range(_TRIES):
            current = current or _refuse_protected(_compute_merge(tree, helper_id), find_rule)
            if current.conflicts:
                break
            unfit = _list_unfit(current, repository)
            if not unfit:  # else nothing is written
                store_plan(current)
                if _write(current, repository, Path(tree.place)):
                    break
            current = None
        else:
            current = MergePlan(conflicts=tuple(unfit) or ("the workspace",), note=_UNFIT)
        if current.conflicts:
            store_plan(current)
            return current
        brought, kept = _bring_leftovers(tree, helper_id, find_rule)
        ended = msgspec.structs.replace(current, done=True, brought=brought, kept=kept)
        store_plan(ended)
        if not kept:
            _forget(tree, helper_id)
    return ended


def _refuse_protected(merge_plan: MergePlan, find_rule: FindRule) -> MergePlan:
    """Return the plan, or a conflict if it changes files that deny rules protect."""
    rules = {path: rule for path in merge_plan.will if (rule := find_rule(path))}
    if not rules:
        return merge_plan
    note = "\n".join(f"the rule deny: {rule} protects {clean(path)}" for path, rule in rules.items())
    return MergePlan(merge_plan.patch, conflicts=tuple(rules), note=note)


def _bring_leftovers(
    tree: WorkingTree, helper_id: str, find_rule: FindRule
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy what git does not carry into the workspace; return what was copied and what was not."""
    place, repository = Path(tree.place), Path(tree.repository)
    if not place.is_dir():  # it was removed by hand
        return (), ()
    merged = run_git(repository, "rev-parse", "--verify", "--quiet", _REF + helper_id, check=False).strip()
    merged = merged or _snapshot(tree, helper_id, place)
    leftovers = find_leftovers(place, _carried(repository, merged))
    brought, kept = bring(leftovers, place, repository, find_rule)
    if not kept and not _is_unchanged(tree, helper_id, merged, leftovers):
        kept = (_CHANGED,)
    return brought, kept


def _is_unchanged(tree: WorkingTree, helper_id: str, merged: str, leftovers: Leftovers) -> bool:
    """Return whether a tree is still what was merged: a command of the helper's may still run in it."""
    place, repository = Path(tree.place), Path(tree.repository)
    now = _snapshot(tree, helper_id, place)
    if run_git(repository, "rev-parse", f"{merged}^{{tree}}") != run_git(
        repository, "rev-parse", f"{now}^{{tree}}"
    ):
        return False
    return find_leftovers(place, _carried(repository, merged)) == leftovers


def _carried(repository: Path, commit: str) -> Set[str]:
    """Return the paths of a commit; also those of submodules, which are empty folders in a helper's tree."""
    return set(run_git(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit).split("\0"))


def _forget(tree: WorkingTree, helper_id: str) -> None:
    """Remove a working tree, and the ref that kept its commits."""
    folder, repository = Path(tree.place), Path(tree.repository)
    run_git(repository, "worktree", "remove", "--force", "--force", str(folder), check=False)
    shutil.rmtree(folder.parent, ignore_errors=True)
    run_git(repository, "update-ref", "-d", _REF + helper_id, check=False)


def text_changes(merge_plan: MergePlan, tree: WorkingTree) -> tuple[TextChange, ...]:
    """Return the file changes of a merge, as people see them."""
    repository, changes = Path(tree.repository), list[TextChange]()
    for path, will in merge_plan.will.items():
        old, new = _text(repository, merge_plan.was[path]), _text(repository, will)
        note = "" if (old or new) is not None else "binary"
        changes.append(
            TextChange(path, str(repository / path), old, new, hash_bytes((old or "").encode()), note)
        )
    return tuple(changes)


def _add(repository: Path, folder: Path, base: str) -> None:
    """Add a working tree, and try again if git met a tree that another git was still creating.

    Its files are written by a git of its own, under the settings that hold there.
    """
    words = ("worktree", "add", "--no-checkout", "--detach", "--force", str(folder), base)
    for _ in range(_TRIES):
        result = run_git_process(repository, words)
        if b"failed to read" not in result.stderr:
            break
    else:
        raise ToolError("git worktree: another program works on this repository's trees", hint="try again")
    if result.returncode:
        raise ToolError(f"git worktree: {last_error_line(result)}", hint="git status says more")
    with disable_programs(folder):
        run_git(folder, "reset", "--hard", "--quiet", "--no-recurse-submodules")


def _restore_bytes(repository: Path, folder: Path, base: str) -> None:
    """Give the files that git converted when it wrote them their bytes in the workspace. In the index they
    are as git converts them back, so that no file looks changed."""
    converted = list_converted(repository, base, folder)
    for path, number in converted.items():
        with (folder / path).open("r+b") as file:
            file.write(read_blob(repository, number))
            file.truncate()
    if converted:
        with disable_programs(folder):
            run_git(folder, "update-index", "-z", "--stdin", stdin="".join(f"{path}\0" for path in converted))


def _clear_half_made(repository: Path, ours: Path) -> None:
    """Remove the remains of trees below `ours` that a killed git left: git can't add another tree beside
    them."""
    folder = Path(run_git(repository, "rev-parse", "--absolute-git-dir").strip())
    for half in folder.glob("worktrees/*"):
        try:
            where, common = (read_regular_text(half / name, 4_096) for name in ("gitdir", "commondir"))
        except OSError:
            continue  # git skips it, or it is not ours
        if not common.strip() and Path(where.strip()).is_relative_to(ours):
            shutil.rmtree(half, ignore_errors=True)


def _compute_merge(tree: WorkingTree, helper_id: str) -> MergePlan:
    """Merge a helper's state into the workspace's, as objects only."""
    repository = Path(tree.repository)
    theirs = _snapshot(tree, helper_id, Path(tree.place))
    run_git(repository, "update-ref", _REF + helper_id, theirs)
    if not run_git(repository, "diff-tree", "-r", "--name-only", tree.base, theirs).strip():
        return MergePlan(note="it changed no files")
    plain = ("--binary", "--no-ext-diff", "--no-textconv", "--submodule=short")
    patch = run_git(repository, "diff", *plain, tree.base, theirs)
    patch_id = run_git(repository, "hash-object", "-w", "--stdin", stdin=patch).strip()
    ours = _snapshot(tree, helper_id)
    result = run_git_process(repository, ("merge-tree", "--write-tree", "--name-only", "-z", ours, theirs))
    if result.returncode not in (0, 1):
        raise ToolError(f"git can't merge: {last_error_line(result)}", hint="install git 2.38 or newer")
    parts = result.stdout.decode("utf-8", "surrogateescape").split("\0")
    if result.returncode == 1:
        names = tuple(dict.fromkeys(parts[1 : parts.index("", 1)]))
        return MergePlan(patch_id, conflicts=names, note=_conflict_text(repository, parts[0], names))
    was, will = _diff_trees(repository, ours, parts[0])
    summary = run_git(repository, "diff-tree", "-r", "--shortstat", ours, parts[0])
    return MergePlan(patch_id, was, will, note=clean(summary.strip()))


def _snapshot(tree: WorkingTree, name: str, work_tree: Path | None = None) -> str:
    """Store the present bytes of the workspace, or of a helper's tree, as a commit."""
    repository = Path(tree.repository)
    _, exact = _store_trees(repository, name, tree.base, work_tree)
    return _commit(repository, exact, tree.base)


def _commit(repository: Path, tree_id: str, parent: str) -> str:
    parents = ("-p", parent) if parent else ()
    return run_git(repository, "commit-tree", tree_id, *parents, "-m", "whet").strip()


def _store_trees(
    repository: Path, name: str, base: str = "", work_tree: Path | None = None
) -> tuple[str, str]:
    """Store the contents of a working tree without touching its index, its branch or its ignored files.

    Returns the tree of its files as git converts them (line ends, encodings), and that of their exact bytes.
    `work_tree` is a helper's tree. The location of git's own files is never read from it, because a helper
    can write there.
    """
    folder = Path(run_git(repository, "rev-parse", "--absolute-git-dir").strip())
    index, root = folder / f"whet-{name}.index", work_tree or repository
    environment = {"GIT_INDEX_FILE": str(index), "GIT_DIR": str(folder), "GIT_WORK_TREE": str(root)}
    Path(f"{index}.lock").unlink(missing_ok=True)  # left by a killed git
    try:
        if work_tree is not None:
            run_git(repository, "read-tree", base, env=environment)
        elif (folder / "index").is_file():
            _copy_index(folder / "index", index)
        # Another git would run in a submodule, under its own settings; of other repositories git would carry
        # the name alone.
        nested = list_nested_repositories(root, environment)
        excluded = (f":(top,exclude,literal){name}" for name in nested)
        run_git(root, "add", "--all", "--", ":/", *excluded, env=environment)
        converted = run_git(repository, "write-tree", env=environment).strip()
        store_bytes(root, environment)
        return converted, run_git(repository, "write-tree", env=environment).strip()
    finally:
        index.unlink(missing_ok=True)
        Path(f"{index}.lock").unlink(missing_ok=True)


def _copy_index(index: Path, copy: Path) -> None:
    """Copy an index with its time, by which git knows which files to read again. No link is followed."""
    copy.unlink(missing_ok=True)
    with open_regular(index, index.parent) as source:
        state = os.fstat(source.fileno())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(copy, flags, 0o600), "wb") as target:
            shutil.copyfileobj(source, target)
            target.flush()
            os.utime(target.fileno(), ns=(state.st_atime_ns, state.st_mtime_ns))


def _diff_trees(repository: Path, ours: str, merged: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return each file that a merge changes, with its mode and object before and after."""
    listed = run_git(repository, "diff-tree", "-r", "-z", "--no-renames", "--raw", ours, merged).split("\0")
    was: dict[str, str] = {}
    will: dict[str, str] = {}
    for summary, path in zip(listed[::2], listed[1::2], strict=False):
        old_mode, new_mode, old, new, _ = summary.lstrip(":").split()
        was[path] = "" if old in _NOTHING else f"{old_mode} {old}"
        will[path] = "" if new in _NOTHING else f"{new_mode} {new}"
    return was, will


def _list_unfit(merge_plan: MergePlan, repository: Path) -> list[str]:
    """Return the files that have neither their state from before the merge nor already the merged one."""
    return [
        path
        for path, will in merge_plan.will.items()
        if _current_state(repository, path) not in (merge_plan.was[path], will)
    ]


def _current_state(repository: Path, path: str) -> str:
    """Return a file's present mode and object, or an empty string if it does not exist."""
    full_path = repository / path
    if _leads_out(full_path, repository):
        return "elsewhere"
    if full_path.is_symlink():
        target = os.readlink(full_path).encode("utf-8", "surrogateescape")
        return f"120000 {run_git(repository, 'hash-object', '--stdin', stdin=target).strip()}"
    if not full_path.is_file():
        return "folder" if full_path.is_dir() else ""
    mode = "100755" if full_path.stat().st_mode & 0o100 else "100644"
    return f"{mode} {run_git(repository, 'hash-object', '--no-filters', '--', path).strip()}"


def _leads_out(path: Path, repository: Path) -> bool:
    return any(folder.is_symlink() for folder in path.parents if folder.is_relative_to(repository)
               and folder != repository)  # fmt: skip


def _write(merge_plan: MergePlan, repository: Path, place: Path) -> bool:
    """Write a merge's files, each completely or not at all. Returns False if a file is in neither its old nor
    its new state."""
    if any(will.startswith("160000") for will in merge_plan.will.values()):
        raise ToolError("the edits can't be written: a repository takes a file's place")
    try:
        for path, will in merge_plan.will.items():
            target, now = repository / path, _current_state(repository, path)
            if now == will:
                continue
            if now != merge_plan.was[path]:
                return False
            # A running command may replace a folder with a link, so each folder is held open.
            with parent_of(str(target), str(repository), make=bool(will)) as (folder, name):
                half = f".{name}.whet-half" if will else name
                with suppress(FileNotFoundError):
                    os.unlink(half, dir_fd=folder)
                if will:
                    mode, _, number = will.partition(" ")
                    wanted = _mode(mode, target if now else place / path)
                    create_entry(folder, half, wanted, read_blob(repository, number))
                    if S_ISREG(wanted):
                        keeps_links = has_all_links(repository, folder, name)
                        put_in_place(folder, half, name, keeps_links=keeps_links, mode=wanted & 0o777)
                    else:
                        os.rename(half, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        raise ToolError(f"the edits can't be written: {error.strerror or error}") from error
    return True


def _mode(mode: str, path: Path) -> int:
    """Return the mode in which a file is written: that of `path`, executable if git has it so."""
    wanted = int(mode, 8)
    with suppress(OSError):
        state = path.lstat()
        if S_ISREG(state.st_mode) and S_ISREG(wanted):
            permissions = state.st_mode & 0o777
            if wanted & 0o100 and not permissions & 0o100:
                permissions |= (permissions & 0o444) >> 2
            return S_IFREG | (permissions if wanted & 0o100 else permissions & 0o666)
    return wanted


def _conflict_text(repository: Path, merged: str, names: tuple[str, ...]) -> str:
    """Return the conflicts with git's markers, cut if they are long."""
    sections: list[str] = []
    for name in names:
        text = run_git(repository, "cat-file", "-p", f"{merged}:{name}", check=False)
        marked = [line for line in _conflict_lines(text.splitlines())]
        sections.append(
            f"{name}:\n" + ("\n".join(marked) or "(one side removed or replaced it, or it is binary)")
        )
    return clean("\n".join(sections))[:_SHOWN_CHARS]


def _conflict_lines(lines: list[str]) -> list[str]:
    conflict_lines: list[str] = []
    inside = False
    for line in lines:
        inside = inside or line.startswith("<<<<<<< ")
        if inside:
            conflict_lines.append(line)
        inside = inside and not line.startswith(">>>>>>> ")
    return conflict_lines


def _text(repository: Path, mode_and_object: str) -> str | None:
    mode, _, number = mode_and_object.partition(" ")
    if not number or mode == "160000":
        return None
    raw = run_git_process(repository, ("cat-file", "blob", number)).stdout
    if b"\0" in raw or len(raw) > _LARGE_BYTES:
        return None
    return raw.decode("utf-8", "replace")
