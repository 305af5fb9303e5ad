"""Select the template that fits a session, and its examples: by the first message, the project and the tools.

"None fits" is a valid answer. Examples that are stale, or whose session was made private or deleted since,
are always left out. This module reads only templates; proof and hold-out are decided elsewhere.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec

from whet.contract.tools import ToolSpec
from whet.memory.folding import content_words
from whet.warm.template import Example, Template, example_tokens, staleness

MIN_SCORE = 0.5


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a session before its first request. `tools` None: unknown. `private` and `gone`: sessions
    whose calls may not be shown."""

    text: str = ""
    workspace: str = ""
    tools: Mapping[str, ToolSpec] | None
    now: datetime
    private: Collection[str] = ()
    gone: Collection[str] = ()
    last_wins: Mapping[str, str] = {}


def usable_examples(template: Template, situation: Situation) -> list[Example]:
    """Return the examples that may be shown now."""
    return [
        example
        for example in template.examples
        if example.result_success and not why_left_out(template, example, situation)
    ]


def why_left_out(template: Template, example: Example, situation: Situation) -> str:
    """Return why an example may not be shown now, or an empty string."""
    if example.session_id in situation.private:
        return "its session is private"
    if example.session_id in situation.gone and not template.imported_at:
        return "its session was deleted"
    last_win = situation.last_wins.get(template.hash, "")
    return staleness(example, situation.tools, situation.now, last_win)


def rank_templates(templates: Sequence[Template], situation: Situation) -> list[tuple[Template, float]]:
    """Return the templates that fit, the best first; a template must share a rare word with the task."""
    task_words = set(content_words(situation.text))
    bags = [set(content_words(_template_text(template))) for template in templates]
    word_counts = Counter(word for bag in bags for word in bag)
    ranked: list[tuple[Template, float]] = []
    for template, bag in zip(templates, bags, strict=True):
        matched = task_words & bag
        score = sum(_rarity(word_counts[word], len(bags)) for word in matched)
        strong = set(content_words(f"{template.name} {template.subject} {' '.join(template.tags)}"))
        if len(matched) < 2 and not matched & strong:
            continue
        same_folder = _is_here(template, situation.workspace)
        score += 0.5 if same_folder and score else 0.0
        if score >= MIN_SCORE:
            ranked.append((template, round(score, 6)))
    return sorted(ranked, key=lambda row: (-row[1], row[0].name))


def pick_examples(template: Template, situation: Situation) -> list[Example]:
    """Return the examples to show: those that fit the task's words, the nearest first, no two alike, at most
    `max_examples`, and within the template's token budget. Often none fits."""
    task_words = set(content_words(situation.text))
    usable = usable_examples(template, situation)
    word_counts = Counter(word for example in usable for word in set(content_words(_example_text(example))))
    examples = [example for example in usable if _fits(example, task_words, word_counts, len(usable))]
    order = sorted(
        range(len(examples)),
        key=lambda index: (-_nearness(examples[index], task_words, word_counts, len(usable)), index),
    )
    chosen: list[int] = []
    spent = 0
    for index in order:
        tokens = example_tokens(examples[index])
        alike = any(_are_alike(examples[index], examples[other]) for other in chosen)
        if len(chosen) < template.max_examples and spent + tokens <= template.budget_tokens and not alike:
            chosen.append(index)
            spent += tokens
    return [examples[index] for index in sorted(chosen)]


def _rarity(holders: int, templates: int) -> float:
    return math.log(1 + (templates - holders + 0.5) / (holders + 0.5)) if templates > 1 else 1.0


def _nearness(example: Example, task_words: set[str], word_counts: Counter[str], count: int) -> float:
    example_words = set(content_words(_example_text(example)))
    return sum(math.log(1 + count / word_counts[word]) for word in example_words & task_words) + (
        0.5 if example.why else 0.0
    )


def _fits(example: Example, task_words: set[str], word_counts: Counter[str], count: int) -> bool:
    """Return whether an example shares two words with the task, or one that few examples have.

    The request of a call that mended nothing does not count: such a call may have had little to do with it.
    """
    texts = _example_text(example) if example.why or not example.session_id else _argument_text(example)
    shared = task_words & set(content_words(texts))
    return len(shared) > 1 or any(word_counts[word] <= max(2, count / 3) for word in shared)


def _are_alike(example: Example, other: Example) -> bool:
    if example.tool_name != other.tool_name:
        return False
    first, second = (set(content_words(" ".join(map(str, e.arguments.values())))) for e in (example, other))
    return len(first & second) > 0.8 * len(first | second)


def _is_here(template: Template, workspace: str) -> bool:
    folders = {template.project, *(example.workspace for example in template.examples)}
    return any(os.path.expanduser(folder) == workspace for folder in folders if folder)


def _template_text(template: Template) -> str:
    examples = " ".join(map(_example_text, template.examples))
    return f"{template.name} {template.subject} {' '.join(template.tags)} {examples}"


def _example_text(example: Example) -> str:
    return f"{example.context_hint} {_argument_text(example)}"


def _argument_text(example: Example) -> str:
    return " ".join(str(value) for value in example.arguments.values())[:400]
