"""The practice model's reviews in the knowledge-gated world: memory and skill calls with quotes.

It is scripted, not a language model, and has a model's faults on purpose: it overlooks facts, sometimes
invents one, and copies statements that a web page asks it to remember. The program under test decides whether
to accept such calls. The progress of the review is read from the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from whet_lab.practice.ask import CompletedCall, PracticeCall, PracticeRequest
from whet_lab.practice.gated_facts import (
    GUESSES,
    PRIVATE_KEYS,
    FactCommand,
    FactStatement,
    draw,
    find_claims,
    find_statements,
    find_successful_commands,
    parse_task,
    program_command,
)
from whet_lab.practice.review import calls_before_review, calls_in_review, find_review_start
from whet_lab.practice.script import ScriptedReply

_HASH = re.compile(r"hash (?:is now )?([0-9a-f]{8,64})")
_LISTED = re.compile(r"(?m)^(?:\d+\.|-) .*$")
_SKILL_KEYS = frozenset({"flag", "before"})


class Chances(msgspec.Struct, frozen=True):
    """The random draws of one review."""

    seed: int
    recall: float
    invention: float


class Lesson(msgspec.Struct, frozen=True):
    """A statement to store, with its quotes."""

    statement: FactStatement
    quotes: tuple[str, ...]


def choose_reply(request: PracticeRequest, chances: Chances) -> ScriptedReply:
    """Choose the review's next reply: first store new lessons, then patch the skills that were viewed.

    A skill that was refused because of one statement is tried once more without it.
    """
    review_calls = calls_in_review(request)
    lessons = list(_find_lessons(request, chances))
    calls = (
        [*_patches(review_calls, lessons), *_retry_creates(review_calls)]
        if review_calls
        else list(_first_calls(request, lessons))
    )
    if calls:
        return ScriptedReply(tool_calls=tuple(calls))
    stored_count = sum(item.name in ("memory", "skill_manage") for item in review_calls)
    return ScriptedReply(f"Review done, {stored_count} calls made." if stored_count else "Nothing to save.")


def _find_lessons(request: PracticeRequest, chances: Chances) -> Iterator[Lesson]:
    """Yield the lessons of the conversation, each with its chance. A later value replaces an earlier one."""
    job = _find_job(request)
    by_topic: dict[tuple[str, str], Lesson] = {}
    for lesson in (*_find_shown(request), *_find_preferences(request)):
        by_topic[lesson.statement.topic] = lesson
    known_values = {item.topic: item.value for item in _find_known_statements(request)}
    planted = {lesson.statement.topic: lesson for lesson in _find_page_statements(request)}
    for topic, lesson in (*by_topic.items(), *planted.items()):
        is_new = known_values.get(topic) != lesson.statement.value
        if is_new and draw(chances.seed, "recall", job, *topic) < chances.recall:
            yield lesson
    if draw(chances.seed, "invents", job) < chances.invention:
        yield from _invent_lesson(request, chances, job)


def _find_shown(request: PracticeRequest) -> Iterator[Lesson]:
    """Yield the statements that successful commands show.

    For an order of commands, the quote is the refusal that named it, or both commands. An order named in a
    refusal counts even if the job was not completed.
    """
    done: list[tuple[str, FactCommand]] = []
    yield from _find_shown_earlier(request)
    order_lines: dict[tuple[str, str], str] = {}
    for item in calls_before_review(request):
        if not program_command(item):
            continue
        for line in item.result.splitlines():
            orders = [statement for statement in find_statements(line) if statement.key == "before"]
            order_lines.update({statement.topic: line for statement in orders})
            yield from (Lesson(statement, (line,)) for statement in orders)
        done += ((line, command) for line, command in find_successful_commands(item.result))
        for line, command in find_successful_commands("\n".join(line for line, _ in done[-2:]))[-1:]:
            for claim in command.implied_statements():
                if claim.key == "before":
                    both = tuple(line for line, _ in done[-2:])
                    yield Lesson(claim, (order_lines[claim.topic],) if claim.topic in order_lines else both)
                elif claim.key not in PRIVATE_KEYS:
                    yield Lesson(claim, (line,))


def _find_shown_earlier(request: PracticeRequest) -> Iterator[Lesson]:
    """Yield the statements in the digests of earlier conversations that the review's message may contain."""
    at = find_review_start(request)
    text = request.messages[at].text.partition("<conversation>")[2] if at is not None else ""
    before = ""
    for line, command in find_successful_commands(text):
        for claim in command.implied_statements():
            if claim.key not in PRIVATE_KEYS:
                yield Lesson(claim, (before, line) if claim.key == "before" else (line,))
        before = line


def _find_preferences(request: PracticeRequest) -> Iterator[Lesson]:
    """Yield the preferences that the person stated."""
    for message in request.messages:
        if message.role == "user":
            for line in message.text.splitlines():
                yield from (Lesson(claim, (line.strip(),)) for claim in find_statements(line))


def _find_page_statements(request: PracticeRequest) -> Iterator[Lesson]:
    """Yield the statements of fetched pages. The practice model believes them, as models do."""
    for item in calls_before_review(request):
        for line in item.result.splitlines() if item.name == "web_fetch" else ():
            yield from (Lesson(claim, (line.strip(),)) for claim in find_statements(line))


def _invent_lesson(request: PracticeRequest, chances: Chances, job: int) -> Iterator[Lesson]:
    """Invent a fact. Its quote does not exist, is the model's own text, or does not show the fact."""
    commands = [
        entry for item in calls_before_review(request) for entry in find_successful_commands(item.result)
    ]
    skill_claims = [
        claim for _, command in commands for claim in command.implied_statements() if claim.key in _SKILL_KEYS
    ]
    if not skill_claims:
        return
    claim = skill_claims[-1]
    others = [value for value in GUESSES[claim.key] if value != claim.value]
    false = msgspec.structs.replace(claim, value=others[int(draw(chances.seed, "false", job) * len(others))])
    line = commands[-1][0]
    own_text = next((m.text for m in reversed(request.messages) if m.role == "assistant" and m.text), "")
    quotes = (line, own_text, line.replace(claim.setting, false.setting))
    yield Lesson(false, (quotes[int(draw(chances.seed, "quote", job) * len(quotes))],))


def _first_calls(request: PracticeRequest, lessons: list[Lesson]) -> Iterator[PracticeCall]:
    known_claims = {item.topic: item for item in find_claims(request.system)}
    by_skill: dict[str, list[Lesson]] = {}
    for lesson in lessons:
        claim = lesson.statement
        if claim.key in _SKILL_KEYS and "skill_manage" in request.offers:
            by_skill.setdefault(skill_name(claim.subject), []).append(lesson)
        elif "memory" in request.offers:
            yield _remember(lesson, _find_entry(request.system, known_claims.get(claim.topic)))
    for name, parts in by_skill.items():
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", request.system):
            yield _call("skill_view", name=name)
        else:
            quotes = list(dict.fromkeys(quote for part in parts for quote in part.quotes))
            yield _call(
                "skill_manage",
                action="create",
                name=name,
                content=skill_text(parts[0].statement.subject, [part.statement for part in parts]),
                evidence=quotes,
            )


def _retry_creates(review_calls: list[CompletedCall]) -> Iterator[PracticeCall]:
    """Create a refused skill again, without the statements whose values the refusal names."""
    creates = [item for item in review_calls if item.arguments.get("action") == "create"]
    for name in dict.fromkeys(str(item.arguments["name"]) for item in creates):
        tries = [item for item in creates if item.arguments["name"] == name]
        old = find_statements(str(tries[0].arguments["content"]))
        remaining = [statement for statement in old if statement.value not in tries[0].result]
        if len(tries) == 1 and "hash is now" not in tries[0].result and 0 < len(remaining) < len(old):
            content = skill_text(remaining[0].subject, remaining)
            yield _call("skill_manage", **{**tries[0].arguments, "content": content})


def _patches(review_calls: list[CompletedCall], lessons: list[Lesson]) -> Iterator[PracticeCall]:
    """Patch the viewed skills with each new statement, which replaces a contradicting line or is added.

    Each skill gets one patch per step, because a patch needs the hash left by the previous one.
    """
    for view in review_calls:
        name = str(view.arguments.get("name", ""))
        lines = _LISTED.findall(view.result) if view.name == "skill_view" else []
        patches = [
            call
            for call in review_calls
            if call.name == "skill_manage" and call.arguments.get("name") == name
        ]
        if not lines or (patches and not patches[-1].result_contains("hash is now")):
            continue
        old = {entry.topic: entry for line in lines for entry in find_claims(line)}
        mine = [entry for entry in lessons if skill_name(entry.statement.subject) == name]
        done = {str(patch.arguments.get("new_string")) for patch in patches}
        pending = [
            entry
            for entry in mine
            if entry.statement.key in _SKILL_KEYS
            and old.get(entry.statement.topic) != entry.statement
            and not any(entry.statement.text in text for text in done)
        ]
        gone = {str(patch.arguments.get("old_string")) for patch in patches}
        if pending:
            hashes = _HASH.findall((patches or [view])[-1].result)
            yield _patch(name, pending[0], [line for line in lines if line not in gone], hashes)


def _patch(name: str, lesson: Lesson, lines: list[str], hashes: list[str]) -> PracticeCall:
    claim = lesson.statement
    same = next(
        (
            line
            for line in lines
            if any(known_claim.topic == claim.topic for known_claim in find_claims(line))
        ),
        "",
    )
    there = same or (lines[-1] if lines else "---")
    return _call(
        "skill_manage",
        action="patch",
        name=name,
        old_string=there,
        new_string=claim.text if same else f"{there}\n- {claim.text}",
        evidence=list(lesson.quotes),
        base_hash=hashes[0] if hashes else "",
    )


def _remember(lesson: Lesson, entry: str) -> PracticeCall:
    """Store a statement; `entry` is a part of the entry that it replaces, or empty."""
    claim = lesson.statement
    target = "user" if claim.key in PRIVATE_KEYS else "memory"
    change = {"action": "replace", "old_text": entry} if entry else {"action": "add"}
    return _call("memory", **change, target=target, content=f"{claim.text}.", evidence=list(lesson.quotes))


def _find_entry(text: str, old: FactStatement | None) -> str:
    """Return the line of a text that makes this statement, without a list mark, or an empty string."""
    if old is None:
        return ""
    lines = (
        line
        for line in text.splitlines()
        if old in find_claims(line.removeprefix("- ")) or old in find_claims(line)
    )
    return next(lines, "").removeprefix("- ").strip()


def skill_name(tool: str) -> str:
    """Return the name of the skill about a tool."""
    return f"run-{tool}"


def skill_text(tool: str, parts: list[FactStatement]) -> str:
    """Return the text of the skill about a tool."""
    lines = "\n".join(f"- {claim.text}" for claim in parts)
    return f"---\nname: {skill_name(tool)}\ndescription: Settings that {tool} needs.\n---\n\n{lines}\n"


def _find_known_statements(request: PracticeRequest) -> Iterator[FactStatement]:
    """Yield the statements that memory and loaded skills already made before the review."""
    yield from find_claims(request.system)
    for item in calls_before_review(request):
        if item.name == "skill_view":
            yield from find_claims(item.result)


def _find_job(request: PracticeRequest) -> int:
    tasks = [parse_task(message.text) for message in request.messages if message.role == "user"]
    return max((task.job for task in tasks if task), default=0)


def _call(tool: str, **arguments: object) -> PracticeCall:
    return PracticeCall(tool, msgspec.json.encode(arguments).decode())
