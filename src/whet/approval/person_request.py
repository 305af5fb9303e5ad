"""Build the question that a person is asked about a call, and the denials that follow from the answer."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from whet.approval.actions import ActionView
from whet.approval.policy import Ruling
from whet.approval.request_words import describe_intent, describe_mode, describe_sandbox, describe_undo
from whet.approval.risk import RiskScope
from whet.approval.scopes import escape_pattern, scopes_of
from whet.config.permission_settings import ApprovalMode
from whet.contract.changes import TextChange, hash_call
from whet.contract.protocols import ApprovalRequest, Decision, GateCall, GrantScope
from whet.question import NOTHING_ELSE
from whet.sandbox.policy import Opening
from whet.visible import list_hidden_codes, visible

OPENS = "sandbox"
"""The tool name under which openings are stored as grants."""


class JailedCall(msgspec.Struct, frozen=True):
    """A call that will run in a sandbox. `held` are the openings from before, `wanted` those it still needs.

    `stopped`: an earlier run failed at the sandbox, and its output shows the missing openings. `is_lost`:
    the command is dangerous, and no rewind brings back the files that it changes.
    """

    held: tuple[Opening, ...]
    wanted: tuple[Opening, ...]
    stopped: bool = False
    is_lost: bool = False

    @property
    def leaves(self) -> bool:
        """Whether it would have to run outside the sandbox."""
        return any(opening.kind == "run" for opening in self.wanted)

    @property
    def needs_person(self) -> bool:
        """Whether only a person can allow the missing openings: writes outside, and openings that the
        command's failure showed."""
        return bool(self.wanted) and (
            self.stopped or any(opening.kind in ("run", "write") for opening in self.wanted)
        )

    @property
    def scopes(self) -> tuple[GrantScope, ...]:
        """The scopes of a lasting permission. There are none for a command that runs outside the sandbox."""
        if not self.wanted or self.leaves:
            return ()
        patterns = tuple(f"{opening.kind} {opening.target}" for opening in self.wanted)
        needs = " and ".join(opening.words for opening in self.wanted)
        words = f"let any command in the sandbox {needs}{NOTHING_ELSE}"
        return (GrantScope(OPENS, patterns, words=words),)


class GateCase(msgspec.Struct, frozen=True):
    """A call being judged."""

    call: GateCall
    action: ActionView
    scope: RiskScope
    jailed: JailedCall | None = None

    @property
    def digest(self) -> str:
        """The digest of a command with its folder, its input and what its sandbox is opened for; empty for
        other tools.

        The same words do something else in another folder, after other words, or through a link that has
        changed.
        """
        if "command" not in self.call.tool.tags:
            return ""
        wanted = [[opening.kind, opening.target] for opening in self.jailed.wanted] if self.jailed else []
        arguments = {**self.call.arguments, "": wanted}
        return hash_call(self.call.tool.name, arguments, self.call.workspace, ())


_DENIED = "The person said no, and nothing was run."
_NOT_ANOTHER_WAY = (
    " Don't try to reach the same in another way; ask them what they want instead, or go on without it."
)
_LOST = "files are not recorded here: /rewind can't bring back what it changes"
_EDITED = "you edited it: this is your version"
_MAX_CODES = 4
NOBODY_NOTICE = "denied: nobody was there to ask"


def explain_absence(mode: ApprovalMode, case: GateCase, reasons: Sequence[str]) -> str:
    """Return the reason of a denial for the model, if nobody can be asked."""
    why = f" It needs one because: {'; '.join(reasons)}." if reasons else ""
    without = "what only reads" if mode == "ask" else "what is not dangerous"
    if case.jailed is not None and not case.jailed.is_lost:
        without += ", and commands that stay in the sandbox"
    rule = "an allow rule" if case.action.level == "normal" else "an allow rule that names it"
    if mode == "ask" and case.action.level == "normal" and not (case.jailed and case.jailed.needs_person):
        rule = f"--yes or {rule}"
    return visible(
        f"Nobody was there to ask (a non-interactive run), so nothing was run. This needs a person's"
        f" decision.{why} Allowed without asking: {without}. The person can permit this with {rule}."
    )


def decide_unasked(call: GateCall, ruling: Ruling, *, is_high_risk: bool) -> Decision | None:
    """Return the decision if no person is to be asked, else None. A call to which a running one leads is
    never asked about."""
    if ruling.verdict == "deny":
        reason = f"Denied by policy, nobody was asked and nothing was run: {ruling.reason}."
        return Decision("deny", "rule", visible(reason))
    if not call.unasked:
        return None
    is_of_mode = ruling.verdict == "ask" and not ruling.by_rule and call.unasked == "rules"
    if not is_high_risk and (ruling.verdict == "allow" or is_of_mode):
        return Decision("allow", "rule")
    why = f" ({ruling.reason})" if ruling.reason else ""
    return Decision(
        "deny", "rule", visible(f"it needs a decision of its own{why}: call {call.tool.name} with it")
    )


def deny_for_person(words: str) -> Decision:
    """Return the denial for a person's no. The model gets the person's words as theirs; the instructions for
    the model are not attributed to the person."""
    words = words.strip()
    if not words:
        return Decision("deny", "person", _DENIED + _NOT_ANOTHER_WAY, "you said no")
    return Decision("deny", "person", f"{_DENIED} Their words: {words}", f"you said no: {visible(words)}")


def build_request(
    case: GateCase,
    ruling: Ruling,
    changes: tuple[TextChange, ...],
    *,
    is_recorded: bool = True,
    is_edited: bool = False,
) -> ApprovalRequest:
    """Return the question about a call, with the grants that its answer can store. `is_recorded`: a rewind
    restores the files of the workspace. `is_edited`: the person wrote the call's arguments."""
    call, action = case.call, case.action
    reasons = action.reasons or ((ruling.reason,) if ruling.reason else ())
    if call.asks and call.asks not in reasons:
        reasons = (*reasons, call.asks)
    if case.jailed is not None and case.jailed.is_lost:
        reasons = (*reasons, _LOST)
    if ruling.change and ruling.change not in reasons:
        reasons = (*reasons, ruling.change)
    openings = case.jailed.wanted if case.jailed is not None else ()
    opening = ", ".join(wanted.words for wanted in openings)
    if not reasons and action.level == "normal" and not opening:
        reasons = (describe_mode(call.tool, has_changes=bool(changes)),)
    if openings:
        reasons = (*reasons, describe_sandbox(openings))
    if is_edited:
        reasons = (*reasons, _EDITED)
    if codes := _hidden_codes(call, changes):
        reasons = (
            *reasons,
            f"the text has characters that hide or reorder text, shown as codes: {codes};"
            " a lasting yes to this covers such text, too",
        )
    opens = case.jailed.scopes if case.jailed is not None and action.level != "dangerous" else ()
    leaves = case.jailed is not None and case.jailed.leaves
    lasting = ruling.lasting and action.level == "normal" and not leaves
    scopes = opens or scopes_of(call.tool.name, action.pieces, lasting=lasting, same_call=_same_call(case))
    workdir = call.arguments.get("workdir")
    return ApprovalRequest(
        call.session_id,
        call.call.id,
        call.tool.name,
        action.subject,
        tuple(visible(reason) for reason in reasons),
        visible(scopes[0].text) if scopes[0].always else "",
        changes=changes,
        scopes=scopes,
        arguments=call.arguments,
        folder=os.path.normpath(os.path.join(call.workspace, workdir if isinstance(workdir, str) else "")),
        opening=opening,
        digest=digest_of(call, changes),
        intent="" if changes else describe_intent(call, action, openings),
        undo=describe_undo(
            call, action, openings, changes, is_confined=case.jailed is not None, is_recorded=is_recorded
        ),
    )


def _same_call(case: GateCase) -> GrantScope | None:
    """Return the scope that covers exactly this command, or None for other tools."""
    patterns, digest = (escape_pattern(case.action.full_text),), case.digest
    return GrantScope(case.call.tool.name, patterns, always=False, call=digest) if digest else None


def _hidden_codes(call: GateCall, changes: Sequence[TextChange]) -> str:
    """Return the codes of hidden characters in the lines that a call adds, or in the arguments of a call that
    changes no file."""
    texts = [value for value in call.arguments.values() if isinstance(value, str)]
    if changes:
        lines = [
            set((change.new or "").split("\n")) - set((change.old or "").split("\n")) for change in changes
        ]
        texts = [line.removesuffix("\r") for added in lines for line in added]
    codes = list_hidden_codes("\n".join(texts))
    return ", ".join(codes[:_MAX_CODES]) + (" …" if len(codes) > _MAX_CODES else "")


async def preview_changes(call: GateCall) -> tuple[TextChange, ...]:
    """Check the call's arguments and return the changes it would write. Raises ToolError; then no question is
    asked."""
    return await call.preview(call.arguments) if call.preview is not None else ()


def digest_of(call: GateCall, changes: Sequence[TextChange]) -> str:
    """Return the digest that binds an approval to a call and its changes."""
    return hash_call(call.tool.name, call.arguments, call.workspace, changes)
