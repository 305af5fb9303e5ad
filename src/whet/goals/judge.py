"""Judge whether a goal is reached: by its verifier, or by claims and the calls that support them.

If the verifier passes but files have changed that can decide its result, it runs again in a copy of the
workspace in which these files are restored. If that fails, the person is asked; without a person the goal is
not reached.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.agent.test_runs import read_counts
from whet.contract.errors import ToolError
from whet.contract.receipts import TestCounts
from whet.contract.texts import from_json
from whet.goals import base as goal_base
from whet.goals import verifier
from whet.goals.base import Difference, TreeBase
from whet.goals.checks import command_of, weigh_claims
from whet.goals.claims import (
    FINISH,
    GoalCall,
    GoalClaim,
    is_stale,
)
from whet.goals.roles import (
    CheckedTree,
    easing_files,
    find_optional_files,
    is_code,
    is_hook,
    judging_files,
)
from whet.goals.session_calls import add_current_state, list_goal_calls
from whet.goals.test_proof import describe_lost_tests, find_run_folder
from whet.store import goals
from whet.store.goals import GoalRow, GoalState

if TYPE_CHECKING:
    from whet.app.services import Services

_YES, _NO = "accept", "refuse"
_NOT_FINISHED = "You ended your turn without calling finish."
_NAMED_FILES = 5
_TEXT_CHARS = 2_000
_WORDS = re.compile(r"[\w./~+@-]*\w")

RoleSplit = tuple[Mapping[str, Difference], frozenset[str]]
"""The changed files that decide over the goal (judging files), each with how it changed; and the other
changed files, which are the program."""
Judgements = dict[str, tuple[int, tuple[GoalState, str]]]
"""The last judgement of each goal, with a hash of the state for which it is valid."""
Verdict = tuple[bool, str]
"""Whether a goal is reached, and the text that explains it."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The workspace of a goal, and the function that asks its person a question."""

    workspace: Path
    ask: Callable[[str, Sequence[str]], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class GoalJudge:
    """Judges goals with the services of one process. `judgements` stores them, so that the end of a turn does
    not contradict `finish`."""

    services: Services
    judgements: Judgements = field(default_factory=Judgements)

    async def begin(self, goal: GoalRow, workspace: Path, may_change: Sequence[str]) -> None:
        """Record the workspace, so that the goal is judged by the checks that exist now."""
        await asyncio.to_thread(
            goal_base.save_base, workspace, self._base_folder(goal), _search_path(), tuple(may_change)
        )

    def forget(self, goal: GoalRow) -> None:
        """Remove the record of a goal that has ended."""
        shutil.rmtree(self._base_folder(goal), ignore_errors=True)

    async def judge(self, goal: GoalRow, context: CheckContext) -> tuple[GoalState, str]:
        """Return the state of a goal after a round, with the verifier's output or the reasons."""
        if goal.verify:
            return await self.judge_claims(goal, context, ())
        if goal.guarded and (changed := await self._check_verifier_files(goal, context)):
            return "running", changed
        session_calls = await self.services.database.read(lambda db: list_goal_calls(db, goal.session))
        finished = [call for call in session_calls if call.name == FINISH]
        if not finished or finished[-1].error_kind:
            return "running", finished[-1].result if finished else _NOT_FINISHED
        return await self.judge_claims(goal, context, _read_claims(finished[-1]))

    async def judge_claims(
        self, goal: GoalRow, context: CheckContext, claims: Sequence[GoalClaim]
    ) -> tuple[GoalState, str]:
        """Return the state that these claims would give a goal now. If it has a verifier, that alone decides.

        The judgement is reused within a round until a file changes or another call is made.
        """
        session_calls = await self.services.database.read(lambda db: list_goal_calls(db, goal.session))
        state = await asyncio.to_thread(_hash_state, goal, context.workspace, (claims, session_calls))
        judged_state, judgement = self.judgements.get(goal.id, (0, ("running", "")))
        if judged_state == state and not self._is_busy():
            return judgement
        if goal.verify:
            passed, text = await self._judge_by_verifier(goal, context)
            judgement = ("achieved" if passed else "running"), text
        else:
            judgement = await self._judge_by_claims(goal, context, claims, session_calls)
        goal = await self.services.database.read(lambda db: goals.get(db, goal.id))
        state = await asyncio.to_thread(_hash_state, goal, context.workspace, (claims, session_calls))
        self.judgements[goal.id] = (state, judgement)
        return judgement

    async def _judge_by_verifier(self, goal: GoalRow, context: CheckContext) -> Verdict:
        if changed := await self._check_verifier_files(goal, context):
            return False, changed
        base = await asyncio.to_thread(goal_base.read_base, self._base_folder(goal))
        try:
            if base is None:  # begun by an older version
                output = await verifier.run_verifier(self.services, context.workspace, goal.verify, goal)
                passed = verifier.is_pass(goal.verify, output, "")
                text = verifier.output_end(output)
            else:
                passed, text = await self._run_verifier(goal, context, base)
        except ToolError as error:
            return False, error.message
        goal = await self.services.database.read(lambda db: goals.get(db, goal.id))
        if changed := await self._check_verifier_files(goal, context):  # changed while the verifier ran
            return False, changed
        return passed, text

    async def _run_verifier(self, goal: GoalRow, context: CheckContext, base: TreeBase) -> Verdict:
        """Run the verifier. If it passes, judge whether changed files may have caused that."""
        workspace = context.workspace
        times_before = await asyncio.to_thread(goal_base.read_change_times, base, workspace)
        tree, changed = await asyncio.to_thread(_read_tree, self._base_folder(goal), goal, workspace, base)
        judging, program = await asyncio.to_thread(_split_by_role, tree, changed, (goal, workspace))
        programs = await asyncio.to_thread(goal_base.find_changed_programs, base, _search_path())
        output = await verifier.run_verifier(self.services, workspace, goal.verify, goal)
        text, scripts = (
            verifier.output_end(output),
            _read_recorded_scripts(self._base_folder(goal), goal, base),
        )
        if not verifier.is_pass(goal.verify, output, scripts):
            return False, text or f"exit code {output.exit_code}"
        times_after = await asyncio.to_thread(goal_base.read_change_times, base, workspace)
        has_moved = self._is_busy() or times_before != times_after
        optional = find_optional_files(tree, judging)
        if missed := await self._find_requested_files(goal, workspace, base, optional):
            tree = msgspec.structs.replace(tree, missed=missed)
            judging, program = await asyncio.to_thread(_split_by_role, tree, changed, (goal, workspace))
        if not (judging or programs or has_moved):
            return True, text
        failure = ""
        if not programs and not any(is_hook(name) for name in judging):
            failure = await self._verify_in_copy(goal, workspace, base, (judging, program))
            if not failure:
                return True, text
        decisive = {**judging, **dict.fromkeys(programs, "changed")} or {"what changed meanwhile": "changed"}
        return await self._ask_to_accept(goal, context, decisive, failure)

    async def _find_requested_files(
        self, goal: GoalRow, workspace: Path, base: TreeBase, names: frozenset[str]
    ) -> frozenset[str]:
        """Return those of the new files that the verifier asks for: it prints their names when it runs in the
        workspace as recorded, which the model has not influenced."""
        if not names:
            return names
        text = await self._verify_in_copy(
            goal, workspace, base, ({name: "new" for name in names}, frozenset())
        )
        words = set(_WORDS.findall(text))
        return frozenset(name for name in names if not words.isdisjoint({name, PurePosixPath(name).name}))

    def _is_busy(self) -> bool:
        """Return whether background commands still run, which could change files at any moment."""
        processes = self.services.processes.processes
        return processes is not None and any(process.is_alive() for process in processes.list_background())

    async def _verify_in_copy(self, goal: GoalRow, workspace: Path, base: TreeBase, split: RoleSplit) -> str:
        """Run the verifier in a copy of the workspace in which all files but the program are restored.
        Returns an empty string if it passes, else its output."""
        folder = Path(tempfile.mkdtemp(prefix="whet-goal-")).resolve()
        copy = folder / workspace.name
        try:
            base_folder = self._base_folder(goal)
            judging, program = split
            await asyncio.to_thread(
                goal_base.restore_tree, base, base_folder, (workspace, copy), program, judging
            )
            output = await verifier.run_verifier(self.services, workspace, goal.verify, goal, copy)
            if verifier.is_pass(
                goal.verify, output, _read_recorded_scripts(self._base_folder(goal), goal, base)
            ):
                return ""
            return verifier.output_end(output).replace(str(copy), str(workspace)) or "it failed"
        except ToolError as error:
            return error.message
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _ask_to_accept(
        self, goal: GoalRow, context: CheckContext, judging: Mapping[str, str], failure: str
    ) -> Verdict:
        """Ask the person to accept changed judging files. `failure` is the verifier's output without them."""
        names = _join_names([f"{name} ({how})" for name, how in judging.items()])
        question = (
            f"`{goal.verify}` passes only with files changed that decide over it: {names}. Accept them?"
        )
        if await context.ask(question, (_YES, _NO)) == _YES:
            return True, f"passed, with changes that were accepted: {names}"
        message = (
            f"It passes here, but not with the files that decide over it as they were, and nobody accepted"
            f" their change: {names}. Put them back, and change the program instead."
        )
        return False, f"{message}\n{failure[-_TEXT_CHARS:]}" if failure else message

    async def _judge_by_claims(
        self,
        goal: GoalRow,
        context: CheckContext,
        claims: Sequence[GoalClaim],
        session_calls: Sequence[GoalCall],
    ) -> tuple[GoalState, str]:
        if goal.guarded and (changed := await self._check_verifier_files(goal, context)):
            return "running", changed
        session_calls = await add_current_state(
            self.services.recordings.get(), context.workspace, goal, session_calls
        )
        weighed = weigh_claims(goal.text, claims, session_calls, context.workspace)
        if weighed.state != "achieved":
            return weighed.state, weighed.text
        passed, text = await self._confirm_runs(goal, context, weighed.proofs, session_calls)
        return ("achieved" if passed else "running"), text

    async def _confirm_runs(
        self,
        goal: GoalRow,
        context: CheckContext,
        proofs: Sequence[GoalCall],
        session_calls: Sequence[GoalCall],
    ) -> Verdict:
        """Repeat the test runs that are stale or prove nothing by themselves, then judge whether the checks
        are as strict as before."""
        confirmed: list[GoalCall] = []
        for proof in proofs:
            call = proof
            if command := call.test_command if is_stale(call, session_calls) else call.rerun_command:
                tests, text = await _run_again(self.services, goal, context, command)
                if tests is None:
                    return False, text
                call = msgspec.structs.replace(call, facts=msgspec.structs.replace(call.facts, tests=tests))
            confirmed.append(call)
        if command := command_of(goal.text):
            passed, text = await self._recheck(msgspec.structs.replace(goal, verify=command), context)
            if text:
                return passed, text
        by_seq = {call.seq: call for call in confirmed}
        session_calls = [by_seq.get(call.seq, call) for call in session_calls]
        return await self._judge_tests(goal, context, confirmed, session_calls)

    async def _judge_tests(
        self, goal: GoalRow, context: CheckContext, proofs: Sequence[GoalCall], calls: Sequence[GoalCall]
    ) -> Verdict:
        """Judge whether at least as many tests pass as before, and whether they are as strict."""
        for command in dict.fromkeys(call.test_command for call in proofs if call.test_command):
            test_goal = msgspec.structs.replace(goal, verify=command)
            passed, text = await self._recheck(test_goal, context, is_claimed=True)
            if text:
                return passed, text
        counts = [call.facts.tests for call in proofs if call.facts.tests is not None]
        lost = describe_lost_tests(counts, [call.facts for call in calls])
        if not lost:
            return True, ""
        question = f"The goal's tests are fewer than they were: {lost}. Accept that?"
        if await context.ask(question, (_YES, _NO)) == _YES:
            return True, f"accepted: {lost}"
        return False, f"{lost}, and nobody accepted that. Put the tests back."

    async def _recheck(self, goal: GoalRow, context: CheckContext, *, is_claimed: bool = False) -> Verdict:
        """Judge whether a command still passes with the judging files restored. If the model chose the
        command (`is_claimed`), new tests are not removed. The text is empty if no person had to be asked."""
        base = await asyncio.to_thread(goal_base.read_base, self._base_folder(goal))
        if base is None:
            return True, ""  # begun by an older version
        tree, changed = await asyncio.to_thread(
            _read_tree, self._base_folder(goal), goal, context.workspace, base, is_claimed=is_claimed
        )
        judges = easing_files if is_claimed else judging_files
        split = await asyncio.to_thread(_split_by_role, tree, changed, (goal, context.workspace), judges)
        failure = await self._verify_in_copy(goal, context.workspace, base, split) if split[0] else ""
        return await self._ask_to_accept(goal, context, split[0], failure) if failure else (True, "")

    async def _check_verifier_files(self, goal: GoalRow, context: CheckContext) -> str:
        """Return a message if the verifier's files changed and the person does not accept that, else an empty
        string."""
        changed = verifier.find_changed_files(goal.guarded, context.workspace)
        if not changed:
            return ""
        names = _join_names(changed)
        question = f"The goal's verifier was changed: {names}. Accept it as it is now?"
        if await context.ask(question, (_YES, _NO)) == _YES:
            hashes = verifier.hash_guarded_files(goal.verify, context.workspace, tuple(goal.guarded))
            now = {name: digest for name, digest in hashes.items() if name in goal.guarded}
            await self.services.database.write(lambda db: goals.store_guarded_hashes(db, goal.id, now))
            return ""
        return f"The verifier's files were changed and nobody accepted that: {names}. Put them back."

    def _base_folder(self, goal: GoalRow) -> Path:
        return self.services.home.root / "goals" / goal.id


async def _run_again(
    services: Services, goal: GoalRow, context: CheckContext, command: str
) -> tuple[TestCounts | None, str]:
    """Run the part of a command that runs tests. Returns the counts if they pass, else None and the
    output."""
    try:
        output = await verifier.run_verifier(services, context.workspace, command, goal)
    except ToolError as error:
        return None, error.message
    tests = read_counts(command, output.text)
    if not output.error_kind and tests is not None and tests.passed and not tests.failed:
        return tests, ""
    text = verifier.output_end(output)
    return None, f"Whet ran the tests of that command by themselves ({command}); they don't pass:\n{text}"


def _hash_state(
    goal: GoalRow, workspace: Path, evidence: tuple[Sequence[GoalClaim], Sequence[GoalCall]]
) -> int:
    """Return a hash of the claims, calls and files on which a judgement within a round depends.

    It contains the round, because a verifier may also read files outside the workspace.
    """
    claims, session_calls = evidence
    calls = tuple(call.seq for call in session_calls if call.name != FINISH)
    times_ns = tuple(goal_base.list_change_times(workspace))
    return hash((goal.round, tuple(claims), calls, tuple(goal.guarded.items()), times_ns))


class _Finish(msgspec.Struct, frozen=True):
    claims: list[GoalClaim]


def _read_tree(
    folder: Path, goal: GoalRow, workspace: Path, base: TreeBase, *, is_claimed: bool = False
) -> tuple[CheckedTree, dict[str, Difference]]:
    """Return the facts from which roles of changed files are derived, and how each file changed."""
    changed = goal_base.find_differences(base, workspace)
    tree = CheckedTree(
        frozenset(base.files),
        lambda name: goal_base.read_old_text(folder, name),
        lambda name: goal_base.read_text(workspace / name, workspace),
        "" if is_claimed else goal.verify,  # for claims, the model chose the command, not the person
        goal.text,
        base.may_change,
        frozenset(name for name in changed if goal_base.installed_folder(name, workspace)),
        roots=tuple({"", _path_prefix(find_run_folder(goal.verify, workspace), workspace)}),
        workspace=workspace,
    )
    return tree, changed


def _read_recorded_scripts(folder: Path, goal: GoalRow, base: TreeBase) -> str:
    """Return the recorded texts of the scripts that the verifier names, and of makefiles if it runs make."""
    names = [*goal.guarded]
    if "make" in goal.verify.split():
        names += [name for name in ("GNUmakefile", "makefile", "Makefile") if name in base.files]
    return "\n".join(goal_base.read_old_text(folder, name) for name in names if not is_code(name))


def _split_by_role(
    tree: CheckedTree,
    changed: Mapping[str, Difference],
    context: tuple[GoalRow, Path],
    judges: Callable[[CheckedTree, Mapping[str, Difference]], dict[str, Difference]] = judging_files,
) -> RoleSplit:
    """Split the changed files into those that decide over the goal and the others."""
    goal, workspace = context  # a change of the verifier's own files is confirmed separately
    accepted = {name for name in changed if name in goal.guarded}
    links = {name for name in changed if (workspace / name).is_symlink()}
    judging_names = judges(tree, changed).keys() | links
    judging: dict[str, Difference] = {
        name: how for name, how in changed.items() if name in judging_names and name not in accepted
    }
    return judging, frozenset(changed.keys() - judging.keys())


def _read_claims(finish: GoalCall) -> list[GoalClaim]:
    return from_json(finish.arguments, _Finish, strict=False).claims


def accepted_claims(connection: apsw.Connection, goal: GoalRow) -> tuple[GoalClaim, ...]:
    """Return the claims that ended a goal without a verifier."""
    is_claimed = not goal.verify and goal.state in ("achieved", "unproven")
    session_calls = list_goal_calls(connection, goal.session) if is_claimed else []
    finished = [call for call in session_calls if call.name == FINISH]
    return tuple(_read_claims(finished[-1])) if finished else ()


def _path_prefix(folder: Path, workspace: Path) -> str:
    """Return the prefix of the paths in a folder of the workspace. It is empty for the workspace itself and
    for folders outside."""
    path = os.path.relpath(folder.resolve(), workspace.resolve())
    return "" if path.startswith("..") or path == "." else path + "/"


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_FILES
    return ", ".join(names[:_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")


def _search_path() -> str:
    return os.environ.get("PATH", "")
