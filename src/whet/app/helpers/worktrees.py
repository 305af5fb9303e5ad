"""Create git working trees for helpers from the present workspace, and merge their edits back into it.

Git computes a merge on snapshots; the person's index and branches do not change. The merge is stored before
the first file is written, so that one which a kill interrupts is completed later. If a file conflicts,
nothing is written, and the edits stay under a ref. A tree is removed only if all its files are in the
workspace too: see `tree_leftovers`. The functions block, and run no hooks.

A lock lets one program at a time work on a repository's trees, because git fails on trees that another git is
still creating. Git inherits the lock, so a git that outlives its program keeps other programs out.
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
from whet.app.helpers.tree_leftovers import Leftovers, copy_leftovers, find_leftovers
from whet.beneath import has_all_links, put_in_place
from whet.contract.changes import TextChange, hash_bytes
from whet.contract.errors import ToolError
from whet.contract.texts import clean
from whet.regular import open_regular, read_regular_text
from whet.sandbox.nofollow import create_entry, parent_of
from whet.sandbox.path_rules import NO_RULES, PathRules
from whet.store.helper_rows import MergePlan, WorkingTree

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
"""`StorePlan` stores a merge's plan, durable on return; `ReadPlan` reads it. `FindRule` returns the deny rule
that protects a file, or an empty string."""


def plan_tree(workspace: Path, helper_id: str, folder: Path, rules: PathRules = NO_RULES) -> WorkingTree:
    """Return a helper's working tree, based on the present workspace, without checking it out. Raises
    ToolError if the workspace is not in a repository's own working tree, or if a deny rule protects a file
    here that it would not protect in the tree."""
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
    """Raise ToolError if a rule names a file of the workspace by its absolute path, because the helper could
    open the file's copy in the tree."""
    absolute = PathRules(tuple(rule for rule in rules.rules if rule.is_absolute()))
    if not absolute.rules:
        return
    repository, place = Path(tree.repository), Path(tree.place)
    inside = place / os.path.relpath(workspace.resolve(), repository.resolve())
    for path in _list_tracked(repository, tree.base):
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
        if not marker.exists():  # the tree does not exist, or a kill interrupted its checkout
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            run_git(repository, "update-ref", _REF + helper_id, tree.base)
            _remove_unfinished(repository, folder.parent.parent)
            _add_worktree(repository, folder, tree.head or tree.base)
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
    """Merge a helper's edits into its parent's workspace and return the plan as it was carried out.

    If a file conflicts, or `find_rule` returns a deny rule for it, nothing is written, and the plan names the
    files. An interrupted merge is completed. If another call has finished the merge, its plan is returned.
    Raises ToolError if git fails.
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
            if not unfit:
                store_plan(current)
                if _write_files(current, repository, Path(tree.place)):
                    break
            current = None
        else:
            current = MergePlan(conflicts=tuple(unfit) or ("the workspace",), note=_UNFIT)
        if current.conflicts:
            store_plan(current)
            return current
        copied, kept = _copy_untracked(tree, helper_id, find_rule)
        finished = msgspec.structs.replace(current, done=True, brought=copied, kept=kept)
        store_plan(finished)
        if not kept:
            _remove_tree(tree, helper_id)
    return finished


def _refuse_protected(merge_plan: MergePlan, find_rule: FindRule) -> MergePlan:
    """Return the plan, or a conflict if it changes files that deny rules protect."""
    rules = {path: rule for path in merge_plan.will if (rule := find_rule(path))}
    if not rules:
        return merge_plan
    note = "\n".join(f"the rule deny: {rule} protects {clean(path)}" for path, rule in rules.items())
    return MergePlan(merge_plan.patch, conflicts=tuple(rules), note=note)


def _copy_untracked(
    tree: WorkingTree, helper_id: str, find_rule: FindRule
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copy untracked files into the workspace. Returns the names of those that were copied and were not."""
    place, repository = Path(tree.place), Path(tree.repository)
    if not place.is_dir():  # it was removed by hand
        return (), ()
    merged = run_git(repository, "rev-parse", "--verify", "--quiet", _REF + helper_id, check=False).strip()
    merged = merged or _snapshot(tree, helper_id, place)
    leftovers = find_leftovers(place, _list_tracked(repository, merged))
    copied, kept = copy_leftovers(leftovers, place, repository, find_rule)
    if not kept and not _is_unchanged(tree, helper_id, merged, leftovers):
        kept = (_CHANGED,)
    return copied, kept


def _is_unchanged(tree: WorkingTree, helper_id: str, merged: str, leftovers: Leftovers) -> bool:
    """Return whether a tree is the same as when it was merged: a command of its helper may still run."""
    place, repository = Path(tree.place), Path(tree.repository)
    present = _snapshot(tree, helper_id, place)
    merged_id, present_id = (
        run_git(repository, "rev-parse", f"{commit}^{{tree}}") for commit in (merged, present)
    )
    return merged_id == present_id and find_leftovers(place, _list_tracked(repository, merged)) == leftovers


def _list_tracked(repository: Path, commit: str) -> Set[str]:
    """Return the paths of a commit, including submodules, which are empty folders in a helper's tree."""
    return set(run_git(repository, "ls-tree", "-r", "-z", "--name-only", "--full-tree", commit).split("\0"))


def _remove_tree(tree: WorkingTree, helper_id: str) -> None:
    """Remove a working tree, and the ref that kept its commits."""
    folder, repository = Path(tree.place), Path(tree.repository)
    run_git(repository, "worktree", "remove", "--force", "--force", str(folder), check=False)
    shutil.rmtree(folder.parent, ignore_errors=True)
    run_git(repository, "update-ref", "-d", _REF + helper_id, check=False)


def text_changes(merge_plan: MergePlan, tree: WorkingTree) -> tuple[TextChange, ...]:
    """Return the file changes of a merge, to be shown to people."""
    repository = Path(tree.repository)
    changes: list[TextChange] = []
    for path, will in merge_plan.will.items():
        old, new = _read_text(repository, merge_plan.was[path]), _read_text(repository, will)
        note = "" if (old or new) is not None else "binary"
        changes.append(
            TextChange(path, str(repository / path), old, new, hash_bytes((old or "").encode()), note)
        )
    return tuple(changes)


def _add_worktree(repository: Path, folder: Path, base: str) -> None:
    """Add a working tree; try again if git fails on a tree that another git is still creating.

    A second git writes the files, under the settings of the new tree.
    """
    arguments = ("worktree", "add", "--no-checkout", "--detach", "--force", str(folder), base)
    for _ in range(_TRIES):
        result = run_git_process(repository, arguments)
        if b"failed to read" not in result.stderr:
            break
    else:
        raise ToolError("git worktree: another program works on this repository's trees", hint="try again")
    if result.returncode:
        raise ToolError(f"git worktree: {last_error_line(result)}", hint="git status says more")
    with disable_programs(folder):
        run_git(folder, "reset", "--hard", "--quiet", "--no-recurse-submodules")


def _restore_bytes(repository: Path, folder: Path, base: str) -> None:
    """Restore the workspace's bytes in the files that git converted when it wrote them, and update the index,
    so that these files do not look changed."""
    converted = list_converted(repository, base, folder)
    for path, object_id in converted.items():
        with (folder / path).open("r+b") as file:
            file.write(read_blob(repository, object_id))
            file.truncate()
    if converted:
        with disable_programs(folder):
            run_git(folder, "update-index", "-z", "--stdin", stdin="".join(f"{path}\0" for path in converted))


def _remove_unfinished(repository: Path, ours: Path) -> None:
    """Remove git's entries of trees below `ours` that a killed git left unfinished: git can't add another
    tree beside them."""
    folder = Path(run_git(repository, "rev-parse", "--absolute-git-dir").strip())
    for entry in folder.glob("worktrees/*"):
        try:
            place, common = (read_regular_text(entry / name, 4_096) for name in ("gitdir", "commondir"))
        except OSError:
            continue  # git skips it, or it is not ours
        if not common.strip() and Path(place.strip()).is_relative_to(ours):
            shutil.rmtree(entry, ignore_errors=True)


def _compute_merge(tree: WorkingTree, helper_id: str) -> MergePlan:
    """Merge the helper's tree with the workspace in git's object store; no file is written."""
    repository = Path(tree.repository)
    theirs = _snapshot(tree, helper_id, Path(tree.place))
    run_git(repository, "update-ref", _REF + helper_id, theirs)
    if not run_git(repository, "diff-tree", "-r", "--name-only", tree.base, theirs).strip():
        return MergePlan(note="it changed no files")
    options = ("--binary", "--no-ext-diff", "--no-textconv", "--submodule=short")
    patch = run_git(repository, "diff", *options, tree.base, theirs)
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
    """Store the contents of a working tree without changing its index, its branch or its ignored files.

    Returns two tree objects: the files as git converts them (line ends, encodings), and their exact bytes.
    `work_tree` is a helper's tree. The location of git's own files is never read from there, because the
    helper can change it.
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
        # In a submodule git would run under its settings; of other repositories it would store only the name.
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
    """Copy an index with its times, which tell git which files to read again. Follows no link."""
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
    """Return the files that are neither in their state before the merge nor in the merged one."""
    return [
        path
        for path, will in merge_plan.will.items()
        if _current_state(repository, path) not in (merge_plan.was[path], will)
    ]


def _current_state(repository: Path, path: str) -> str:
    """Return a file's present mode and object, or an empty string if it does not exist."""
    full_path = repository / path
    parents = (folder for folder in full_path.parents if folder.is_relative_to(repository))
    if any(folder.is_symlink() for folder in parents if folder != repository):
        return "elsewhere"
    if full_path.is_symlink():
        target = os.readlink(full_path).encode("utf-8", "surrogateescape")
        return f"120000 {run_git(repository, 'hash-object', '--stdin', stdin=target).strip()}"
    if not full_path.is_file():
        return "folder" if full_path.is_dir() else ""
    mode = "100755" if full_path.stat().st_mode & 0o100 else "100644"
    return f"{mode} {run_git(repository, 'hash-object', '--no-filters', '--', path).strip()}"


def _write_files(merge_plan: MergePlan, repository: Path, place: Path) -> bool:
    """Write a merge's files, each in one step. Returns False if a file is in neither its old nor its new
    state. Raises ToolError."""
    if any(will.startswith("160000") for will in merge_plan.will.values()):
        raise ToolError("the edits can't be written: a repository takes a file's place")
    try:
        for path, will in merge_plan.will.items():
            target, present = repository / path, _current_state(repository, path)
            if present == will:
                continue
            if present != merge_plan.was[path]:
                return False
            # A running command may replace a folder with a link, so each folder is held open.
            with parent_of(str(target), str(repository), make=bool(will)) as (folder, name):
                new_name = f".{name}.whet-half" if will else name
                with suppress(FileNotFoundError):
                    os.unlink(new_name, dir_fd=folder)
                if will:
                    git_mode, _, object_id = will.partition(" ")
                    mode = _choose_mode(git_mode, target if present else place / path)
                    create_entry(folder, new_name, mode, read_blob(repository, object_id))
                    if S_ISREG(mode):
                        keeps_links = has_all_links(repository, folder, name)
                        put_in_place(folder, new_name, name, keeps_links=keeps_links, mode=mode & 0o777)
                    else:
                        os.rename(new_name, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        raise ToolError(f"the edits can't be written: {error.strerror or error}") from error
    return True


def _choose_mode(git_mode: str, path: Path) -> int:
    """Return the mode of a file to write: that of `path`, but executable only if git's mode is."""
    mode = int(git_mode, 8)
    with suppress(OSError):
        state = path.lstat()
        if S_ISREG(state.st_mode) and S_ISREG(mode):
            permissions = state.st_mode & 0o777
            if mode & 0o100 and not permissions & 0o100:
                permissions |= (permissions & 0o444) >> 2
            return S_IFREG | (permissions if mode & 0o100 else permissions & 0o666)
    return mode


def _conflict_text(repository: Path, merged: str, names: tuple[str, ...]) -> str:
    """Return the conflicts with git's markers, cut if they are long."""
    sections: list[str] = []
    for name in names:
        text = run_git(repository, "cat-file", "-p", f"{merged}:{name}", check=False)
        conflict = "\n".join(_conflict_lines(text.splitlines()))
        sections.append(f"{name}:\n{conflict or '(one side removed or replaced it, or it is binary)'}")
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


def _read_text(repository: Path, mode_and_object: str) -> str | None:
    """Return a file's text, or None if it is missing, binary or large."""
    mode, _, object_id = mode_and_object.partition(" ")
    if not object_id or mode == "160000":
        return None
    raw = run_git_process(repository, ("cat-file", "blob", object_id)).stdout
    if b"\0" in raw or len(raw) > _LARGE_BYTES:
        return None
    return raw.decode("utf-8", "replace")
