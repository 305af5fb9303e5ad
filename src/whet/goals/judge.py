"""Judge whether a goal is proven: by its verifier with the checks of the beginning, or by claims and their
calls.

If other files than the program's may have caused a pass, the verifier runs again in a copy of the
workspace in which those files are restored. Only if that fails is the person asked; if no one is present,
the answer is no.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import apsw
import msgspec

from whet.agent.session import Session
from whet.agent.test_runs import test_counts
from whet.contract.errors import ToolError
from whet.contract.receipts import TestCounts
from whet.contract.texts import from_json
from whet.contract.tools import tags_of
from whet.goals import base as goal_base
from whet.goals import verifier
from whet.goals.base import Difference, TreeBase
from whet.goals.checks import command_of, weigh_claims
from whet.goals.claims import (
    FINISH,
    GoalCall,
    GoalClaim,
    add_later_changes,
    is_stale,
    join_facts,
    text_arguments,
)
from whet.goals.roles import (
    CheckedTree,
    easing_files,
    find_optional_files,
    is_code,
    is_hook,
    judging_files,
)
from whet.goals.test_proof import last_change_s, lost_tests, new_program, rerunnable_part, run_folder
from whet.rewind.recordings import Recordings
from whet.store import calls, facts, goals, sessions
from whet.store.goals import GoalRow, GoalState

if TYPE_CHECKING:
    from whet.app.services import Services

_YES, _NO = "accept", "refuse"
_NOT_FINISHED = "You ended your turn without calling finish."
_NAMED_FILES = 5
_TEXT_CHARS = 2_000
_HIT = re.compile(r"\s*\d+\|")
_WORDS = re.compile(r"[\w./~+@-]*\w")

RoleSplit = tuple[Mapping[str, Difference], frozenset[str]]
"""The changed files that judge, with how they changed, and the changed files of the program."""
Verdict = tuple[bool, str]  # whether a goal is proven, and the text that explains it


@dataclass(frozen=True, slots=True)
class GoalJudge:
    """Judges goals with the services of one process."""

    services: Services

    async def begin(self, goal: GoalRow, workspace: Path, may_change: Sequence[str]) -> None:
        """Record the workspace: the checks that exist now will judge the goal's end."""
        await asyncio.to_thread(
            goal_base.save_base, workspace, self._base_folder(goal), _search_path(), tuple(may_change)
        )

    def forget(self, goal: GoalRow) -> None:
        """Remove the record of a goal that has ended."""
        goal_base.remove_base(self._base_folder(goal))

    async def judge(self, goal: GoalRow, session: Session) -> tuple[GoalState, str]:
        """Return the state of a goal after a round, with the verifier's output or the reasons."""
        if not goal.verify:
            return await self._judge_claims(goal, session)
        passed, text = await self._judge_by_verifier(goal, session)
        return ("achieved" if passed else "running"), text

    async def _judge_by_verifier(self, goal: GoalRow, session: Session) -> Verdict:
        if changed := await self._check_verifier_files(goal, session):
            return False, changed
        base = await asyncio.to_thread(goal_base.read_base, self._base_folder(goal))
        try:
            if base is None:  # begun by an older version
                output = await verifier.run_verifier(self.services, session.workspace, goal.verify, goal.id)
                passed, text = (
                    verifier.is_pass(goal.verify, output, ""),
                    verifier.output_end(output),
                )
            else:
                passed, text = await self._run_verifier(goal, session, base)
        except ToolError as error:
            return False, error.message
        goal = await self.services.database.read(lambda db: goals.get(db, goal.id))
        if changed := await self._check_verifier_files(goal, session):  # changed while the verifier ran
            return False, changed
        return passed, text

    async def _run_verifier(self, goal: GoalRow, session: Session, base: TreeBase) -> Verdict:
        workspace = session.workspace
        before = await asyncio.to_thread(goal_base.read_change_times, base, workspace)
        tree, changed = await asyncio.to_thread(self._tree, goal, workspace, base)
        judging, program = await asyncio.to_thread(_split_by_role, tree, changed, (goal, workspace))
        programs = await asyncio.to_thread(goal_base.find_changed_programs, base, _search_path())
        output = await verifier.run_verifier(self.services, workspace, goal.verify, goal.id)
        text, scripts = verifier.output_end(output), self._scripts(goal, base)
        if not verifier.is_pass(goal.verify, output, scripts):
            return False, text or f"exit code {output.exit_code}"
        moved = self._is_busy() or before != await asyncio.to_thread(
            goal_base.read_change_times, base, workspace
        )
        if missed := await self._find_requested_files(
            goal, workspace, base, find_optional_files(tree, judging)
        ):
            tree = msgspec.structs.replace(tree, missed=missed)
            judging, program = await asyncio.to_thread(_split_by_role, tree, changed, (goal, workspace))
        if not (judging or programs or moved):
            return True, text
        why = ""
        if not programs and not any(is_hook(name) for name in judging):
            why = await self._verify_in_copy(goal, workspace, base, (judging, program))
            if not why:
                return True, text
        decisive = {**judging, **dict.fromkeys(programs, "changed")}
        return await self._ask_to_accept(
            goal, session, decisive or {"what changed while it ran": "changed"}, why
        )

    def _tree(
        self, goal: GoalRow, workspace: Path, base: TreeBase, *, is_claimed: bool = False
    ) -> tuple[CheckedTree, dict[str, Difference]]:
        """Return the facts from which the changed files' roles are read, and how each file changed."""
        folder = self._base_folder(goal)
        changed = goal_base.find_differences(base, workspace)
        tree = CheckedTree(
            frozenset(base.files),
            lambda name: goal_base.read_old_text(folder, name),
            lambda name: goal_base.read_text(workspace / name, workspace),
            "" if is_claimed else goal.verify,  # for claims, the model chose the command, not the person
            goal.text,
            base.may_change,
            frozenset(name for name in changed if goal_base.installed_folder(name, workspace)),
            roots=tuple({"", _path_prefix(run_folder(goal.verify, workspace), workspace)}),
            workspace=workspace,
        )
        return tree, changed

    async def _find_requested_files(
        self, goal: GoalRow, workspace: Path, base: TreeBase, names: frozenset[str]
    ) -> frozenset[str]:
        """Return the new files that the verifier asks for by name in the recorded workspace; nothing that the
        model wrote can influence it there."""
        if not names:
            return names
        text = await self._verify_in_copy(
            goal, workspace, base, ({name: "new" for name in names}, frozenset())
        )
        words = set(_WORDS.findall(text))
        return frozenset(name for name in names if not words.isdisjoint({name, PurePosixPath(name).name}))

    def _scripts(self, goal: GoalRow, base: TreeBase) -> str:
        """Return the recorded texts of the files that the command runs: the files that it names, and
        makefiles if it runs make."""
        names = [*goal.guarded]
        if "make" in goal.verify.split():
            names += [name for name in ("GNUmakefile", "makefile", "Makefile") if name in base.files]
        return "\n".join(
            goal_base.read_old_text(self._base_folder(goal), name) for name in names if not is_code(name)
        )

    def _is_busy(self) -> bool:
        """Return whether commands of this program still run; they could change files at any moment."""
        table = self.services.processes.made
        return table is not None and any(process.is_alive() for process in table.list_background())

    async def _verify_in_copy(self, goal: GoalRow, workspace: Path, base: TreeBase, split: RoleSplit) -> str:
        """Run the verifier in a copy with everything but the program restored. Return an empty string if it
        passes, else its output."""
        folder = Path(tempfile.mkdtemp(prefix="whet-goal-")).resolve()
        copy = folder / workspace.name
        try:
            base_folder = self._base_folder(goal)
            judging, program = split
            await asyncio.to_thread(
                goal_base.restore_tree, base, base_folder, (workspace, copy), program, judging
            )
            output = await verifier.run_verifier(self.services, workspace, goal.verify, goal.id, copy)
            if verifier.is_pass(goal.verify, output, self._scripts(goal, base)):
                return ""
            return verifier.output_end(output).replace(str(copy), str(workspace)) or "it failed"
        except ToolError as error:
            return error.message
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _ask_to_accept(
        self, goal: GoalRow, session: Session, judging: Mapping[str, str], why: str
    ) -> Verdict:
        names = _join_names([f"{name} ({how})" for name, how in judging.items()])
        question = (
            f"`{goal.verify}` passes only with files changed that decide over it: {names}. Accept them?"
        )
        if await session.person.clarify(question, (_YES, _NO)) == _YES:
            return True, f"passed, with changes that were accepted: {names}"
        message = (
            f"It passes here, but not with the files that decide over it as they were, and nobody accepted"
            f" their change: {names}. Put them back, and change the program instead."
        )
        return False, f"{message}\n{why[-_TEXT_CHARS:]}" if why else message

    async def _judge_claims(self, goal: GoalRow, session: Session) -> tuple[GoalState, str]:
        session_calls = await self.services.database.read(lambda db: goal_calls(db, goal.session))
        finished = [call for call in session_calls if call.name == FINISH]
        if goal.guarded and (changed := await self._check_verifier_files(goal, session)):
            return "running", changed
        if not finished or finished[-1].error_kind:
            return "running", finished[-1].result if finished else _NOT_FINISHED
        session_calls = await add_current_state(
            self.services.recordings.get(), session.workspace, goal, session_calls
        )
        weighed = weigh_claims(goal.text, _claims(finished[-1]), session_calls, session.workspace)
        if weighed.state != "achieved":
            return weighed.state, weighed.text
        passed, text = await self._confirm_runs(goal, session, weighed.proofs, session_calls)
        return ("achieved" if passed else "running"), text

    async def _confirm_runs(
        self, goal: GoalRow, session: Session, proofs: Sequence[GoalCall], session_calls: Sequence[GoalCall]
    ) -> Verdict:
        """Run again what proves nothing by itself, and judge whether the checks are as strict as before."""
        ran: list[GoalCall] = []
        for proof in proofs:
            call = proof
            if command := call.alone if is_stale(call, session_calls) else call.rerun_command:
                tests, text = await _run_again(self.services, goal, session, command)
                if tests is None:
                    return False, text
                call = with_tests(call, tests)
            ran.append(call)
        if command := command_of(goal.text):
            passed, text = await self._recheck(msgspec.structs.replace(goal, verify=command), session)
            if text:
                return passed, text
        by_seq = {call.seq: call for call in ran}
        session_calls = [by_seq.get(call.seq, call) for call in session_calls]
        return await self._judge_tests(goal, session, ran, session_calls)

    async def _judge_tests(
        self, goal: GoalRow, session: Session, ran: Sequence[GoalCall], session_calls: Sequence[GoalCall]
    ) -> Verdict:
        """Judge whether the passing tests are at least as many and as strict as before."""
        for command in dict.fromkeys(call.alone for call in ran if call.alone):
            checked = msgspec.structs.replace(goal, verify=command)
            passed, text = await self._recheck(checked, session, is_claimed=True)
            if text:
                return passed, text
        counts = [call.facts.tests for call in ran if call.facts.tests is not None]
        lost = lost_tests(counts, [call.facts for call in session_calls])
        if not lost:
            return True, ""
        question = f"The goal's tests are fewer than they were: {lost}. Accept that?"
        if await session.person.clarify(question, (_YES, _NO)) == _YES:
            return True, f"accepted: {lost}"
        return False, f"{lost}, and nobody accepted that. Put the tests back."

    async def _recheck(self, goal: GoalRow, session: Session, *, is_claimed: bool = False) -> Verdict:
        """Judge whether a command still passes with every deciding file restored. New tests are allowed to
        stay if the model chose the command (`is_claimed`)."""
        base = await asyncio.to_thread(goal_base.read_base, self._base_folder(goal))
        if base is None:
            return True, ""  # begun by an older version
        tree, changed = await asyncio.to_thread(
            self._tree, goal, session.workspace, base, is_claimed=is_claimed
        )
        judges = easing_files if is_claimed else judging_files
        split = await asyncio.to_thread(_split_by_role, tree, changed, (goal, session.workspace), judges)
        why = await self._verify_in_copy(goal, session.workspace, base, split) if split[0] else ""
        return await self._ask_to_accept(goal, session, split[0], why) if why else (True, "")

    async def _check_verifier_files(self, goal: GoalRow, session: Session) -> str:
        """Return a message if the verifier's files changed and the person does not accept that, else an empty
        string."""
        changed = verifier.find_changed_files(goal.guarded, session.workspace)
        if not changed:
            return ""
        names = _join_names(changed)
        question = f"The goal's verifier was changed: {names}. Accept it as it is now?"
        if await session.person.clarify(question, (_YES, _NO)) == _YES:
            hashes = verifier.hash_guarded_files(goal.verify, session.workspace, tuple(goal.guarded))
            now = {name: digest for name, digest in hashes.items() if name in goal.guarded}
            await self.services.database.write(lambda db: goals.store_guarded_hashes(db, goal.id, now))
            return ""
        return f"The verifier's files were changed and nobody accepted that: {names}. Put them back."

    def _base_folder(self, goal: GoalRow) -> Path:
        return self.services.home.root / "goals" / goal.id


async def _run_again(
    services: Services, goal: GoalRow, session: Session, command: str
) -> tuple[TestCounts | None, str]:
    """Run the part of a command that runs tests. Return the counts if they pass, else None and the
    output."""
    try:
        output = await verifier.run_verifier(services, session.workspace, command, goal.id)
    except ToolError as error:
        return None, error.message
    tests = test_counts(command, output.text)
    if not output.error_kind and tests is not None and tests.passed and not tests.failed:
        return tests, ""
    text = verifier.output_end(output)
    return None, f"Whet ran the tests of that command by themselves ({command}); they don't pass:\n{text}"


class _Finish(msgspec.Struct, frozen=True):
    claims: list[GoalClaim]


def _split_by_role(
    tree: CheckedTree,
    changed: Mapping[str, Difference],
    context: tuple[GoalRow, Path],
    judges: Callable[[CheckedTree, Mapping[str, Difference]], dict[str, Difference]] = judging_files,
) -> RoleSplit:
    """Split the changed files into those that judge and the others."""
    goal, workspace = context  # a change of the verifier's own files is confirmed separately
    accepted = {name for name in changed if name in goal.guarded}
    links = {name for name in changed if (workspace / name).is_symlink()}
    judging_names = judges(tree, changed).keys() | links
    judging: dict[str, Difference] = {
        name: how for name, how in changed.items() if name in judging_names and name not in accepted
    }
    return judging, frozenset(changed.keys() - judging.keys())


def _claims(finish: GoalCall) -> list[GoalClaim]:
    return from_json(finish.arguments, _Finish, strict=False).claims


def accepted_claims(connection: apsw.Connection, goal: GoalRow) -> tuple[GoalClaim, ...]:
    """Return the claims that ended a goal without a verifier."""
    is_claimed = not goal.verify and goal.state in ("achieved", "unproven")
    session_calls = goal_calls(connection, goal.session) if is_claimed else []
    finished = [call for call in session_calls if call.name == FINISH]
    return tuple(_claims(finished[-1])) if finished else ()


def goal_calls(connection: apsw.Connection, session_id: str) -> list[GoalCall]:
    """Return the calls of a goal's session that were not undone."""
    key = sessions.key_of(connection, session_id)
    undone = calls.list_undone_turns(connection, key)
    stored = [call for call in calls.stream_calls(connection, key) if call.turn not in undone]
    return join_facts(stored, facts.list_session_facts(connection, key))


async def add_current_state(
    recordings: Recordings, workspace: Path, goal: GoalRow, recorded: Sequence[GoalCall]
) -> list[GoalCall]:
    """Add the present state of the workspace to the calls, for comparison with the state at the end of each
    command.

    A background process, a helper or a person may change files outside of any call. Calls that ran tests
    also get the program that runs them; calls that read a file get its present text.
    """
    steps = {call.step for call in recorded if call.facts.command and call.exit_code == 0}
    updated = add_later_changes(recorded, await recordings.changed_since(workspace, goal.session, steps))
    return await asyncio.to_thread(_add_programs, updated, workspace, goal)


def _add_programs(recorded: Sequence[GoalCall], workspace: Path, goal: GoalRow) -> list[GoalCall]:
    begun_s, folder = datetime.fromisoformat(goal.begun).timestamp(), workspace
    updated: list[GoalCall] = []
    for call in recorded:
        arguments = text_arguments(call.arguments)
        command = arguments.get("command", "") if call.facts.command else ""
        inside = workspace / arguments["workdir"] if arguments.get("workdir") else folder
        part = rerunnable_part(command, inside)
        reads = {"path", "local"} <= tags_of(call.name) and not call.changed_paths
        now = (
            goal_base.read_text(workspace / arguments["path"], workspace) or None
            if reads and "path" in arguments
            else None
        )
        unfit = (
            _read_objection(call, workspace, begun_s)
            if reads
            else _run_objection(part or command, inside, workspace, begun_s)
        )
        updated.append(msgspec.structs.replace(call, unfit=unfit, alone=part, now=now))
        folder = workspace / call.facts.folder if call.facts.folder is not None else folder
    return updated


def _path_prefix(folder: Path, workspace: Path) -> str:
    """Return a folder of the workspace as the prefix of its files' paths; "" for the workspace itself and for
    folders outside."""
    path = os.path.relpath(folder.resolve(), workspace.resolve())
    return "" if path.startswith("..") or path == "." else path + "/"


def _run_objection(command: str, folder: Path, workspace: Path, begun_s: float) -> str:
    """Return why the tests that a command ran prove nothing (a new runner, or another folder), or an empty
    string."""
    if new := new_program(command, folder, begun_s):
        return f"{new} was made or changed during the goal, it is no known test runner"
    ran_in = run_folder(command, folder).resolve()
    return "" if ran_in.is_relative_to(workspace.resolve()) else f"{ran_in} is not the workspace"


def _read_objection(call: GoalCall, workspace: Path, begun_s: float) -> str:
    """Return why a file proves nothing if it was read, or found by a search, but was written since the goal
    began."""
    names = [text_arguments(call.arguments).get("path", "")]
    if "search" in tags_of(call.name):
        names += [line for line in call.result.splitlines() if not _HIT.match(line)]
    new_name = next((name for name in names if name and last_change_s(workspace / name) > begun_s), "")
    return (
        f"{new_name} was made or changed during the goal: it shows only what was written" if new_name else ""
    )


def with_tests(call: GoalCall, tests: TestCounts) -> GoalCall:
    """Return a call with the test counts of Whet's own run."""
    return msgspec.structs.replace(call, facts=msgspec.structs.replace(call.facts, tests=tests))


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_FILES
    return ", ".join(names[:_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")


def _search_path() -> str:
    return os.environ.get("PATH", "")
