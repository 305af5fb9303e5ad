"""Decide on one action: allow, ask or deny, from rules, grants and the mode. Has no side effects.

Precedence: deny rules, forbidden actions, ask rules, allow rules and grants, the mode. A deny or ask rule
applies if any piece of an action matches. Rules allow an action only if they allow each of its pieces. A
dangerous piece needs an allow rule that names its program; a forbidden piece can't be allowed. A deny or
ask rule that names a program applies to a command of which nobody can tell what it runs.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from whet.approval.actions import ActionView
from whet.approval.patterns import PatternRule, has_wildcard, matches, parse_rule
from whet.approval.risk import Piece, UnknownProgram, UnknownVerb
from whet.config.permission_settings import ApprovalMode, ApprovalSettings
from whet.contract.tags import BUILT_IN
from whet.contract.tools import tags_of

if TYPE_CHECKING:
    from whet.shell.reading import ReadPart

_MAX_SESSIONS = 5_000
_COMMAND_TOOLS = tuple(name for name, tags in BUILT_IN.items() if "command" in tags)


class PolicyGrant(msgspec.Struct, frozen=True):
    """A person's standing permission: the pattern covers calls of `tool` in `workspace` (empty:
    everywhere). With `call`, a digest, it covers only the calls with this digest."""

    tool: str
    pattern: str
    workspace: str = ""
    call: str = ""


class SessionDownloads:
    """The files that sessions have downloaded."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, frozenset[str]] = OrderedDict()

    def of(self, session_id: str) -> frozenset[str]:
        """Return those of a session."""
        return self._files.get(session_id, frozenset())

    def add(self, session_id: str, files: frozenset[str]) -> None:
        """Add files of a session, if there are any."""
        if not files:
            return
        self._files[session_id] = self.of(session_id) | files
        while len(self._files) > _MAX_SESSIONS:
            self._files.popitem(last=False)


class SessionGrants:
    """What a person allowed until the session ends, by the session that the person talks to. Of thousands of
    sessions, those that were allowed nothing for longest are forgotten, and are asked again."""

    def __init__(self) -> None:
        self._by_session: OrderedDict[str, list[PolicyGrant]] = OrderedDict()

    def list_grants(self, session_id: str) -> Sequence[PolicyGrant]:
        """Return the grants of a session, oldest first."""
        return tuple(self._by_session.get(session_id, ()))

    def add(self, session_id: str, grants: Iterable[PolicyGrant]) -> None:
        """Add grants to those of a session."""
        self._by_session.setdefault(session_id, []).extend(grants)
        self._by_session.move_to_end(session_id)
        if len(self._by_session) > _MAX_SESSIONS:
            self._by_session.popitem(last=False)

    def revoke(self, session_id: str) -> None:
        """End all grants of a session."""
        self._by_session.pop(session_id, None)


class Ruling(msgspec.Struct, frozen=True):
    """The policy's decision. `reason` is for the model after a denial.

    `lasting`: a grant may cover it. `by_rule`: a rule or a grant decided, not the mode. `change`: how the
    tool differs from the one that a rule or a grant allowed.
    """

    verdict: Literal["allow", "ask", "deny"]
    reason: str = ""
    lasting: bool = False
    by_rule: bool = False
    change: str = ""


class GatePolicy:
    """The rules of one configuration. Raises ConfigError, naming the rule, if one is malformed."""

    def __init__(self, settings: ApprovalSettings) -> None:
        self.mode: ApprovalMode = settings.mode
        self._allow = _rules("allow", settings.allow)
        self._ask = _rules("ask", settings.ask)
        self._deny = _rules("deny", settings.deny)

    def judge(
        self, action: ActionView, grants: Iterable[PolicyGrant], asks: str = "", digest: str = ""
    ) -> Ruling:
        """Decide on `action`, given the grants that apply in its session and workspace.

        `asks` is a reason why a person must decide even if something would allow it, `digest` the call's.
        """
        typed = tuple(action.as_command(tool) for tool in _COMMAND_TOOLS if action.typed)
        denied = _find_rule(self._deny, action, *typed)
        if denied is not None:
            return Ruling("deny", f"the rule deny: {denied.source} forbids it", by_rule=True)
        if possible := _first_possible(self._deny, action, *typed):
            rule, why = possible
            return Ruling("deny", f"the rule deny: {rule.source} may forbid it: {why}. Write what it runs")
        level = action.level
        if level == "forbidden":
            worst = dict.fromkeys(why for p in action.pieces if p.level == "forbidden" for why in p.reasons)
            return Ruling("deny", f"it is never allowed: {'; '.join(worst)}")
        if why := self._find_question(action, typed):
            return self._needs_person(why, False, True)
        if asks:
            return self._needs_person(asks, False, True)
        active_grants = tuple(grants)
        if level == "safe":
            return Ruling("allow")
        if digest and any(grant.tool == action.tool and grant.call == digest for grant in active_grants):
            return Ruling("allow", by_rule=True)
        if all(self._is_covered(action.tool, piece, active_grants) for piece in action.pieces):
            return Ruling("allow", by_rule=True)
        if self.mode == "auto" and level == "normal":
            return Ruling("allow")
        return self._needs_person("; ".join(action.reasons), level == "normal")

    def _find_question(self, action: ActionView, typed: tuple[ActionView, ...]) -> str:
        if (rule := _find_rule(self._ask, action, *typed)) is not None:
            return f"the rule ask: {rule.source} wants a person's decision"
        if possible := _first_possible(self._ask, action, *typed):
            rule, why = possible
            return f"the rule ask: {rule.source} wants a person's decision: {why}"
        return ""

    def _needs_person(self, reason: str, lasting: bool, by_rule: bool = False) -> Ruling:
        if self.mode == "deny":
            why = f" ({reason})" if reason else ""
            reason = f"the approval mode is deny, and this would need a person's decision{why}"
            return Ruling("deny", reason, by_rule=by_rule)
        return Ruling("ask", reason, lasting, by_rule)

    def _is_covered(self, tool: str, piece: Piece, grants: tuple[PolicyGrant, ...]) -> bool:
        """Return whether a piece may run without a question: it is safe, or a rule or a grant allows it."""
        if piece.level == "safe":
            return True
        if any(matches(rule.tool, tool) and _allows(rule, piece) for rule in self._allow):
            return True
        return any(
            grant.tool == tool and not grant.call and _grants(grant.pattern, piece, tool) for grant in grants
        )


def _rules(kind: str, texts: Iterable[str]) -> tuple[PatternRule, ...]:
    """Parse the rules of a setting. A deny or ask rule that ends in `:*`, as Claude Code writes them, also
    holds for the command with any arguments."""
    rules = [parse_rule(text, f"approval.{kind}") for text in texts]
    prefixes = [
        msgspec.structs.replace(rule, pattern=f"{rule.pattern[:-2]} *")
        for rule in rules
        if kind != "allow" and rule.pattern and rule.pattern.endswith(":*")
    ]
    return (*rules, *prefixes)


def _find_rule(rules: Sequence[PatternRule], *actions: ActionView) -> PatternRule | None:
    """Return the first rule that matches one of the actions: the whole text, a piece, or one of its commands
    with the variables that it sets filled in, in each way that a program may take its words."""
    for action in actions if rules else ():
        texts = [action.full_text, *action.spellings]
        texts += (text for piece in action.pieces for text in (piece.text, *piece.also))
        texts += (line for part in _parts(action) for line in part.lines)
        if rule := next((rule for rule in rules if rule.fits(action.tool, texts)), None):
            return rule
    return None


def _parts(action: ActionView) -> Iterable[ReadPart]:
    """Return the simple commands of an action that a shell runs."""
    if not tags_of(action.tool) & {"command", "background"}:
        return ()
    from whet.shell.reading import read  # noqa: PLC0415  50 ms of CPU: tree-sitter

    return read(action.full_text).parts


def _find_doubt(action: ActionView, kind: type[UnknownProgram | UnknownVerb]) -> str:
    """Return why it is unknown which program, or which git command, a command runs, or an empty string."""
    reasons = (reason for piece in action.pieces for reason in piece.reasons)
    return next((reason for reason in reasons if isinstance(reason, kind)), "")


def _first_possible(
    rules: Sequence[PatternRule], action: ActionView, *typed: ActionView
) -> tuple[PatternRule, str] | None:
    """Return the first rule about a program that the action's command may turn out to run, and why: any, if
    the program is unknown, one about a git command, if that is unknown, else one that a word of it, or of the
    `typed` text, may become."""
    doubt = _find_doubt(action, UnknownProgram)
    if doubt and (rule := next(_program_rules(rules, action.tool), None)):
        return rule, doubt
    for view in (action, *typed):
        parts, alias = None, _find_doubt(view, UnknownVerb)
        for rule in _program_rules(rules, view.tool):
            program, _, rest = (rule.pattern or "").partition(" ")
            if alias and rest and matches(program, "git"):
                return rule, alias
            if parts is None:
                parts = list(_parts(view))
            if any(part.may_match(rule.pattern or "") for part in parts):
                return rule, "can't tell what it runs"
    return None


def _program_rules(rules: Sequence[PatternRule], tool: str) -> Iterator[PatternRule]:
    return (rule for rule in rules if rule.names_program and matches(rule.tool, tool))


def _allows(rule: PatternRule, piece: Piece) -> bool:
    if piece.level == "forbidden":
        return False
    if rule.pattern is None:
        return (piece.level == "normal" and not piece.is_diverted) or piece.program == rule.tool
    if piece.is_diverted and not rule.is_exact:
        return False
    if not piece.program and not rule.is_exact:
        return False
    if piece.level == "dangerous" and not (rule.names_what_runs and _names_hidden_parts(rule.pattern, piece)):
        return False
    return any(matches(rule.pattern, text) for text in _permission_texts(piece, rule.pattern))


def _names_hidden_parts(pattern: str | None, piece: Piece) -> bool:
    """Return whether a pattern names the parts of a dangerous path that begin with a dot: `docs/*` does not
    mean `docs/.envrc` or `docs/.git/hooks/x`, but `*.env` means `.env`."""
    parts = piece.text.split("/") if piece.program == piece.text else ()
    named = [part for part in (pattern or "").split("/") if part.lstrip("*").startswith(".")]
    hidden = [part for part in parts if re.match(r"\.[^.]", part)]
    return all(any(matches(name, part) for name in named) for part in hidden)


def _grants(pattern: str, piece: Piece, tool: str) -> bool:
    if piece.is_elsewhere or (piece.is_diverted and has_wildcard(pattern)):
        return False
    if piece.level != "normal" or not piece.program:
        if piece.level == "forbidden" or "command" in tags_of(tool):
            return False  # a part of a command does something else in another place; its digest says which
        return not has_wildcard(pattern) and matches(pattern, piece.text)
    if piece.exact and not has_wildcard(pattern):
        return matches(pattern, piece.exact)
    return any(matches(pattern, text) for text in _permission_texts(piece, pattern))


def _permission_texts(piece: Piece, pattern: str) -> tuple[str, ...]:
    """Return the texts that a permission may match.

    For a path through a link these are only the target's. For an address it is the host, unless the
    pattern is itself an address (`*.a.org` must not match `http://b/x.a.org`).
    """
    if piece.also and "://" in piece.text and "://" not in pattern:
        return piece.also
    return (piece.text, *piece.also[-2:])
