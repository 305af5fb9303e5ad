"""Draws a placebo for a warm template: equally many examples of the same size, from random other calls."""

from __future__ import annotations

import random
from datetime import datetime

import apsw
import msgspec

from whet.warm.compose import BuildOptions, ExampleMaker, make_template
from whet.warm.mine import MiningResult
from whet.warm.outline import PAD
from whet.warm.shape import shape_of
from whet.warm.template import Example, Template, example_tokens

_SIZE_SLACK = 0.1


def make_placebo(
    connection: apsw.Connection,
    mined: MiningResult,
    like: Template,
    options: BuildOptions,
    now: datetime,
    seed: int,
) -> Template:
    """Return a template of the same size whose examples are drawn at random from calls that worked.

    Each example of `like` is matched by one with as many tokens, within a tenth; none of them is one of
    its own calls or a call of the same shape. There are fewer examples if the store has no more.
    """
    rng = random.Random(seed)
    maker = ExampleMaker(connection, options)
    pool = sorted(mined.sample, key=lambda call: call.order)
    rng.shuffle(pool)
    used_shapes = {shape_of(example.tool_name, example.arguments) for example in like.examples}
    own_calls = {(example.session_id, example.message_seq) for example in like.examples}
    drawn: list[Example] = []
    for candidate in pool:
        if (candidate.session.id, candidate.seq) in own_calls or shape_of(
            candidate.name, candidate.arguments
        ) in used_shapes:
            continue
        new_example = maker.make(candidate, "drawn by chance")
        if (
            new_example is not None
            and shape_of(new_example.tool_name, new_example.arguments) not in used_shapes
        ):
            drawn.append(msgspec.structs.replace(new_example, why=""))
    examples: list[Example] = []
    for example in like.examples:
        fitted = _take_by_size(drawn, example_tokens(example))
        if fitted is not None:
            examples.append(fitted)
    template = make_template(options, examples, now)
    return msgspec.structs.replace(template, max_examples=like.max_examples, budget_tokens=like.budget_tokens)


def _take_by_size(drawn: list[Example], tokens: int) -> Example | None:
    """Remove and return the first example of about that many tokens, or a shorter one, padded."""
    if not drawn:
        return None
    off = [example_tokens(example) - tokens for example in drawn]
    near = [index for index, gap in enumerate(off) if abs(gap) <= tokens * _SIZE_SLACK]
    short = [index for index, gap in enumerate(off) if gap < 0]
    index = (near or short or [min(range(len(off)), key=off.__getitem__)])[0]
    example = drawn.pop(index)
    while example_tokens(example) < tokens * (1 - _SIZE_SLACK / 2):
        example = msgspec.structs.replace(example, result_summary=example.result_summary + PAD)
    return example
