"""Build a template from the mined calls: calls of the best groups, checked, redacted and cut.

A call becomes an example only if it only reads (unless changes are requested), needed no person's
approval, contains nothing from the network, and holds no secret and no sentence. Only the outline of its
result is kept. Left-out calls are counted by reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import apsw
import msgspec

from whet.approval.risk import RiskScope
from whet.approval.secrets import is_secret
from whet.approval.shell_risk import analyse
from whet.clock import iso
from whet.config.redact import mask_secrets, redact
from whet.contract.errors import NotFound
from whet.contract.texts import collect_texts, from_json, map_texts, plural
from whet.contract.tools import ToolSpec, clip, tags_of
from whet.memory.scan import find_hidden
from whet.store import calls
from whet.store.calls import MinedSession
from whet.warm.foreign_calls import is_foreign
from whet.warm.mine import MIN_ERROR_RATE, Candidate, Group, MiningResult
from whet.warm.outline import is_prose, outline
from whet.warm.template import (
    FRAME_TOKENS,
    Example,
    Template,
    example_tokens,
    fits,
    schema_hash,
)

_CHANGES = "it changes something"


class BuildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a template. `with_changes`: calls that change files or run programs may be shown too;
    `least_error_rate`: tools that fail less often get no example."""

    name: str
    description: str = ""
    tags: tuple[str, ...] = ()
    budget_tokens: int = 1_500
    max_examples: int = 12
    with_changes: bool = False
    project: str = ""
    least_error_rate: float = MIN_ERROR_RATE


class Composition(msgspec.Struct, frozen=True):
    """A template, and the number of left-out calls by reason."""

    template: Template
    left_out: dict[str, int]


def compose(
    connection: apsw.Connection,
    mined: MiningResult,
    options: BuildOptions,
    now: datetime,
    whet_home: Path | None = None,
) -> Composition:
    """Choose the examples. Raises NotFound, which says what is missing, if there is nothing to choose."""
    failing_tools = mined.failing_tools(options.least_error_rate)
    if not mined.sessions:
        raise NotFound(
            "there is no finished session to learn from",
            hint="sessions need 20 messages (--min-messages); private ones and reviews never count",
        )
    if not failing_tools:
        raise NotFound(
            f"no tool failed in {options.least_error_rate:.0%} or more of its calls"
            f" ({mined.sessions} sessions)",
            hint="there is nothing that examples could mend; whet warm stats shows the rates",
        )
    maker = ExampleMaker(connection, options, whet_home)
    total = sum(rate for _, rate in failing_tools) or 1.0
    examples: list[Example] = []
    remaining = options.budget_tokens
    for name, rate in failing_tools:
        share = min(remaining, max(int(options.budget_tokens * rate / total), FRAME_TOKENS * 3))
        for example, tokens in maker.make_for_tool(mined, name, share, options.max_examples - len(examples)):
            examples.append(example)
            remaining -= tokens
    if not examples:
        names = ", ".join(name for name, _ in failing_tools)
        raise NotFound(
            f"no call of {names} may be shown: {_count_text(maker.left_out)}",
            hint="--with-changes takes calls that change something too"
            if _CHANGES in maker.left_out and not options.with_changes
            else "",
        )
    return Composition(make_template(options, examples, now), dict(maker.left_out))


class ExampleMaker:
    """Builds examples from candidates, or counts why not. `whet_home` is ~/.whet unless it is named."""

    def __init__(
        self, connection: apsw.Connection, options: BuildOptions, whet_home: Path | None = None
    ) -> None:
        self._connection = connection
        self._options = options
        self._whet_home = whet_home or Path.home() / ".whet"
        self._schemas: dict[int, dict[str, ToolSpec]] = {}
        self.left_out: Counter[str] = Counter()

    def make_for_tool(
        self, mined: MiningResult, tool: str, max_tokens: int, max_examples: int
    ) -> list[tuple[Example, int]]:
        """Return examples of a tool from its best groups, using at most `max_tokens` tokens, but at least one
        example."""
        examples: list[tuple[Example, int]] = []
        spent = 0
        for group in mined.rank_groups(tool):
            if len(examples) >= max_examples or spent >= max_tokens:
                break
            example = self._make_for_group(group, mined.tools[tool].error_rate)
            if example is None:
                continue
            tokens = example_tokens(example)
            if spent + tokens <= max_tokens or not examples:
                examples.append((example, tokens))
                spent += tokens
        return examples

    def _make_for_group(self, group: Group, error_rate: float) -> Example | None:
        ordered = sorted(group.candidates, key=lambda candidate: (not candidate.repairs, candidate.order))
        because = (
            f"in {plural(group.sessions, 'session')}, {group.calls} calls"
            f"{f', {group.repairs} of them mended a failure' if group.repairs else ''}; "
            f"{group.name} fails in {error_rate:.0%}"
        )
        examples = (self.make(candidate, because) for candidate in ordered)
        return next((example for example in examples if example is not None), None)

    def make(self, candidate: Candidate, because: str) -> Example | None:
        """Return the example of a candidate, or None if it may not be shown; the reason is counted."""
        if reason := self._refusal(candidate):
            self.left_out[reason] += 1
            return None
        spec = self._specs(candidate.session).get(candidate.name)
        return Example(
            tool_name=candidate.name,
            arguments=map_texts(candidate.arguments, redact),
            result_summary=outline(
                calls.read_result_text(self._connection, candidate.session.key, candidate.seq)
            ),
            context_hint=redact(candidate.hint),
            why=_why_text(candidate),
            session_id=candidate.session.id,
            message_seq=candidate.seq,
            at=iso(datetime.fromtimestamp(candidate.at_ms / 1000, UTC)),
            model=candidate.session.model,
            schema_hash=schema_hash(spec) if spec else "",
            workspace=redact(candidate.session.workspace),
            chosen_because=because,
        )

    def _refusal(self, candidate: Candidate) -> str:
        """Return why a candidate may not be shown, or an empty string."""
        written = msgspec.json.encode(candidate.arguments).decode()
        if mask_secrets(written) != written:
            return "its arguments hold a secret"
        if any(is_prose(text) for text in collect_texts(candidate.arguments)):
            return "its arguments hold sentences"
        if find_hidden(written) or find_hidden(candidate.hint):
            return "it holds characters that people don't see"
        # A call from another program has no schemas: see `staleness`.
        if specs := self._specs(candidate.session):
            if candidate.name not in specs:
                return "its tool is not known any more"
            if not fits(candidate.arguments, specs[candidate.name]):
                return "its arguments don't fit the tool"
        return self._effect_refusal(candidate)

    def _effect_refusal(self, candidate: Candidate) -> str:
        path = candidate.arguments.get("path", "")
        if not isinstance(path, str):
            return "its arguments don't fit the tool"
        tags = tags_of(candidate.name)
        if "path" in tags and ("edits" not in tags or self._options.with_changes):
            return "it reads a private place" if _is_private(path) else ""
        if "command" not in tags:
            return _CHANGES if "edits" in tags else "its result is not from this machine"
        command, stdin = candidate.arguments.get("command"), candidate.arguments.get("stdin", "")
        if (
            not isinstance(command, str)
            or not isinstance(stdin, str)
            or candidate.arguments.get("background")
        ):
            return _CHANGES
        scope = RiskScope(candidate.session.workspace or "/", str(Path.home()), str(self._whet_home))
        risk = analyse(command, candidate.session.workspace or "/", scope, stdin)
        if risk.network:
            return "its result is not from this machine"
        if any(map(_is_private, command.split())):
            return "it reads a private place"
        takes_others = self._options.with_changes or candidate.mend is not None
        if risk.level == "safe" or (risk.level == "normal" and takes_others):
            return ""
        return _CHANGES if risk.level == "normal" else "outside a sandbox it needs a person's yes"

    def _specs(self, session: MinedSession) -> dict[str, ToolSpec]:
        if session.key not in self._schemas:
            text = calls.read_tools_json(self._connection, session.key)
            try:
                specs = from_json(text, tuple[ToolSpec, ...])
            except msgspec.DecodeError:
                specs = ()
            self._schemas[session.key] = {spec.name: spec for spec in specs}
        return self._schemas[session.key]


def _is_private(word: str) -> bool:
    """Return whether a word is a path of secrets, or in a folder of them: `~/.ssh/config` too."""
    path = PurePosixPath(word.strip("'\"`;|&<>()=,"))
    return any(is_secret(str(folder)) for folder in (path, *path.parents))


def make_template(options: BuildOptions, examples: Sequence[Example], now: datetime) -> Template:
    """Return the template of these examples, with a default description if the options have none."""
    template = Template(
        name=options.name,
        description=options.description,
        examples=tuple(examples),
        tags=options.tags,
        source_session_ids=tuple(dict.fromkeys(example.session_id for example in examples)),
        created_at=iso(now),
        budget_tokens=options.budget_tokens,
        project=redact(options.project),
    )
    if template.description:
        return template
    return msgspec.structs.replace(template, description=template.default_description)


def _why_text(candidate: Candidate) -> str:
    """Return the failure that a call repaired, and the program that it ran in if that was another one."""
    source = candidate.session.source
    ran = f"It ran in {source}, as that program's own tool." if is_foreign(source) else ""
    if not candidate.repairs or is_prose(candidate.repairs):
        return ran
    line = f"Before it, {clip(redact(candidate.repairs), 200)} had failed ({candidate.repairs_why})."
    return f"{line} {ran}".strip()


def _count_text(left_out: Counter[str]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in sorted(left_out.items())) or "there is none"
