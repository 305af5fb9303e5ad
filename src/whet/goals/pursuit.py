"""Pursue a goal round by round until it is proven, its budget is spent, or two rounds bring nothing new.

A round is a turn of the goal's session, followed by a judgement: Whet runs the verifier, or checks the claims
that the model made with `finish`. Each state is stored before the next begins, so another process can
continue after a kill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import apsw
import msgspec

from whet.agent.session import Session, TurnLimits
from whet.app.conversations.session_parts import NO_EXTRAS, Principal, SessionExtras
from whet.app.helpers.follow_up_turns import run_followups, run_with_followups
from whet.clock import iso
from whet.contract.errors import ConfigError, NotFound, ToolError
from whet.contract.events import Emit, Notice, TurnEnd
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.goals import verifier
from whet.goals.checks import command_of, describe_checks
from whet.goals.claims import GoalClaim
from whet.goals.judge import CheckContext, GoalJudge, Judgements, accepted_claims
from whet.goals.roles import find_subjects, find_unwanted, may_change_file
from whet.goals.text import GoalReport, GoalWish, round_message
from whet.store import facts, goals, sessions, wallet
from whet.store.goals import GoalRow, GoalState
from whet.store.jobs import QueuedJob
from whet.tools.signature import tool

if TYPE_CHECKING:
    from whet.app.conversations.sessions import SessionOpener
    from whet.app.services import Services

_STALLED_ROUNDS = 2


def finish_tool(judge: GoalJudge) -> Tool:
    """Create the tool `finish`, which judges the goal as the end of the turn will, and returns why it is not
    reached."""

    @tool(toolset="goal", effects={"read"}, timeout_s=None)  # the verifier has its own limit
    async def finish(
        ctx: ToolContext,
        claims: Annotated[list[GoalClaim], "one for each thing that shows that the goal is reached"],
    ) -> ToolOutput:
        """End the goal. Each claim points at a call of yours by its command, path, url or query, or by the
        tool's name; `shows` is copied from its result, for an edit names the file, for what was sent or noted
        is copied from that. Every pointer is checked."""
        goal = await judge.services.database.read(lambda db: goals.find_last_goal(db, ctx.session_id))
        if goal is None:
            raise ToolError("there is no goal here")
        state, text = await judge.judge_claims(
            goal, CheckContext(ctx.workspace, ctx.ask), () if goal.verify else claims
        )
        if state == "running":
            return ToolOutput(f"Not finished:\n{text}", error_kind="failed")
        return ToolOutput("Accepted. End your turn now.")

    return finish


@dataclass(frozen=True, slots=True)
class GoalRunner:
    """Pursues goals in sessions that it opens. `emit` receives the events of the turns, and a notice for each
    state of a goal."""

    opener: SessionOpener
    emit: Emit
    judgements: Judgements = field(default_factory=Judgements)

    @property
    def services(self) -> Services:
        """The services of the process."""
        return self.opener.services

    async def start(self, wish: GoalWish) -> tuple[GoalRow, Session]:
        """Store a goal with a new session. Raises ConfigError."""
        session = await self.open_session(wish)
        return await self.begin(wish, session), session

    async def open_session(
        self, wish: GoalWish, extras: SessionExtras = NO_EXTRAS, session_id: str = ""
    ) -> Session:
        """Return a new session for a goal, with the tool `finish`, or open `session_id`, which was created
        for it. Raises ConfigError."""
        if not wish.text.strip():
            raise ConfigError("a goal needs a text", hint='whet goal start "..." --verify "make test"')
        goal_extras = self._add_finish(extras)
        if session_id:
            return await self.opener.open_session(session_id, extras=goal_extras)
        title = sessions.make_title(wish.text)
        return await self.opener.new_session(
            title=title, whose=Principal(tools=goal_extras.tools), extras=goal_extras
        )

    async def begin(self, wish: GoalWish, session: Session) -> GoalRow:
        """Store a goal in this session, which must have no open goal. Raises StoreBusy."""
        services = self.services
        command = wish.verify or command_of(wish.text)
        hashes = verifier.hash_guarded_files(command, session.workspace)
        find = find_unwanted if wish.verify else find_subjects
        subjects = find(command, session.workspace)
        guarded = {
            name: digest
            for name, digest in hashes.items()
            if not may_change_file(name, wish.may_change) and name not in subjects
        }
        goal = GoalRow(
            id=services.clock.new_id(),
            session=session.id,
            text=wish.text,
            verify=wish.verify,
            guarded=guarded | verifier.hash_guarded_files("", session.workspace, wish.guard),
            budget_usd=wish.budget_usd,
            max_steps=wish.steps,
            state="running",
            first_turn=1,
            begun=iso(services.clock.now()),
        )
        await GoalJudge(services).begin(goal, session.workspace, wish.may_change)
        await services.database.write(lambda db: goals.add(db, goal))
        if not wish.verify:
            self.emit(Notice(f"goal: {describe_checks(wish.text)}"))
        return goal

    async def reopen(self, goal: GoalRow, extras: SessionExtras = NO_EXTRAS) -> Session:
        """Open the session of a goal that was interrupted or paused."""
        return await self.opener.open_session(goal.session, extras=self._add_finish(extras))

    def _add_finish(self, extras: SessionExtras) -> SessionExtras:
        return msgspec.structs.replace(
            extras, tools=(*extras.tools, finish_tool(GoalJudge(self.services, self.judgements)))
        )

    async def pursue(self, goal: GoalRow, session: Session) -> GoalRow:
        """Pursue an open goal until it ends or pauses, and return its row. A cancel pauses it. Raises
        StoreBusy if another process is pursuing it."""
        if self.services.models.wallet is None:
            self.services.models.open_wallet(self.services.database, self.services.clock)
        try:
            while goal.state in goals.OPEN:
                goal = await self._run_round(goal, session)
                if goal.state == "paused":
                    break
        except BaseException:
            await self._end(goal, "paused", "interrupted; whet goal resume continues it")
            raise
        return goal

    async def _run_round(self, goal: GoalRow, session: Session) -> GoalRow:
        limits = await self._read_limits(goal, session)
        if isinstance(limits, str):
            return await self._end(goal, "budget", limits)
        limited = msgspec.structs.replace(session, limits=limits)
        end = await self._run_turn(goal, limited)
        goal = await self._reload(goal)
        if goal.state not in goals.OPEN:
            return goal
        if end is not None and end.reason not in ("answered", "budget"):
            is_over_cap = end.hint == "--budget" or end.hint.startswith("wallet.")
            return await self._end(goal, "budget" if is_over_cap else "paused", end.error or end.reason)
        context = CheckContext(session.workspace, session.person.clarify)
        state, text = await GoalJudge(self.services, self.judgements).judge(goal, context)
        goal = await self._reload(goal)
        return await self._store_round(goal, text, state)

    async def _read_limits(self, goal: GoalRow, session: Session) -> TurnLimits | str:
        """Return the limits of the next turn, or the reason why the budget is used up."""
        key = session.log.live.key
        steps, spent = await self.services.database.read(
            lambda db: (
                goals.count_steps(db, key, goal.first_turn),
                wallet.read_spending(db, ("goal", goal.id))[0],
            )
        )
        if goal.max_steps and steps >= goal.max_steps:
            return f"{steps} of {goal.max_steps} steps are taken"
        if goal.budget_usd and spent >= goal.budget_usd:
            return f"${spent:.2f} of ${goal.budget_usd:.2f} is spent"
        base = session.limits
        steps_left = min(base.steps, goal.max_steps - steps) if goal.max_steps else base.steps
        return TurnLimits(steps_left, base.turn_s)

    async def _run_turn(self, goal: GoalRow, session: Session) -> TurnEnd | None:
        """Run the round's turn or resume it. Returns None if it has already ended."""
        if goal.asked > goal.round:
            try:
                return await run_with_followups(self.opener.helpers, session, None, self.emit)
            except NotFound:
                return await run_followups(self.opener.helpers, session, self.emit, None)

        def record_request(connection: apsw.Connection) -> Sequence[QueuedJob]:
            goals.note_round_message(connection, goal)
            return ()

        message = session.user_message(round_message(goal))
        return await run_with_followups(self.opener.helpers, session, message, self.emit, record_request)

    async def _store_round(self, goal: GoalRow, text: str, state: GoalState) -> GoalRow:
        """Store a round's judgement. The goal is stuck after rounds with the same text."""
        output_hash = verifier.hash_output(text)
        stalled = goal.stalled + 1 if output_hash == goal.mark else 0
        note = text.partition("\n")[0] if state == "unproven" else ""
        if state == "running" and stalled >= _STALLED_ROUNDS:
            state, note = "stuck", f"{_STALLED_ROUNDS} rounds brought nothing new"
        judged_goal = msgspec.structs.replace(
            goal,
            round=goal.round + 1,
            state=state,
            said=text,
            stalled=stalled,
            mark=output_hash,
            note=note,
            ended="" if state in goals.OPEN else iso(self.services.clock.now()),
        )
        await self.services.database.write(lambda db: goals.store_judgement(db, judged_goal))
        stored = await self._reload(goal)
        if stored.state not in goals.OPEN:
            GoalJudge(self.services).forget(stored)
        state_text: str = stored.state
        if stored.state == "running":
            state_text = f"not reached after round {stored.round}, going on"
        self.emit(Notice(f"goal: {state_text}" + (f" ({stored.note})" if stored.note else "")))
        return stored

    async def _end(self, goal: GoalRow, state: GoalState, note: str) -> GoalRow:
        at = iso(self.services.clock.now())
        await self.services.database.write(lambda db: goals.end_goal(db, goal.id, state, note, at))
        if state not in goals.OPEN:
            GoalJudge(self.services).forget(goal)
        self.emit(Notice(f"goal: {state} ({note})"))
        return await self._reload(goal)

    async def _reload(self, goal: GoalRow) -> GoalRow:
        return await self.services.database.read(lambda db: goals.get(db, goal.id))


def report(connection: apsw.Connection, goal: GoalRow) -> GoalReport:
    """Return a report of a goal, computed from its calls."""
    key = sessions.key_of(connection, goal.session)
    usd, tokens = wallet.read_spending(connection, ("goal", goal.id))
    receipt = facts.sum_up(facts.list_session_facts(connection, key, since_turn=goal.first_turn))
    if goal.verify and goal.state == "achieved":
        receipt = msgspec.structs.replace(receipt, state="none")  # the verifier ran after all calls
    steps = goals.count_steps(connection, key, goal.first_turn)
    return GoalReport(goal, receipt, steps, usd, tokens, accepted_claims(connection, goal))
