"""Improve a learned procedure on its own cases with the GEPA package: proposals are replayed on recorded
sessions, and one that gains on held-out cases without losing on any case becomes active.

The model proposes steps; the program writes them, using only commands that succeeded in a session. Nothing
is run. GEPA is imported on demand. Source of the interface: the package's `GEPAAdapter`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from whet.contract.errors import ConfigError, NotFound
from whet.memory.cases import SkillCase, parse_steps, replay
from whet.memory.entries import format_code

_STEPS = "steps"
_MIN_CASES = 2
_PROMPT = """These are the numbered steps of a procedure, one command in backticks each:

```
<curr_param>
```

It was replayed on recorded sessions. What worked in them, and what of the steps did:

<side_info>

Write better steps: the commands that worked, in an order that worked, with CAPITALS for what differs from
session to session. No command that no session shows. Give all of them, numbered, each as `command`, within
``` blocks."""

Ask = Callable[[str], str]
"""Sends a prompt to the model and returns its answer. Blocks."""


class Improvement(msgspec.Struct, frozen=True):
    """The result: the steps, each case's score before and after by session, and the held-out sessions.
    `is_gain`: better on the held-out cases, worse on no case."""

    steps: tuple[str, ...]
    before: dict[str, float]
    after: dict[str, float]
    held_out: tuple[str, ...]
    calls: int

    @property
    def is_gain(self) -> bool:
        """Whether the steps may become active."""
        gained = sum(self.after[session_id] - self.before[session_id] for session_id in self.held_out)
        return gained > 0 and all(
            self.after[session_id] >= self.before[session_id] for session_id in self.before
        )


def improve(text: str, cases: Sequence[SkillCase], ask: Ask, budget: int) -> Improvement:
    """Search for better steps with at most `budget` model answers. Raises NotFound if there are too few cases
    to hold any out, ConfigError without the package."""
    steps = parse_steps(text)
    if not steps:
        raise NotFound("the skill has no numbered steps", hint="whet skills show NAME")
    if len(cases) < _MIN_CASES:
        raise NotFound(
            f"the skill has {len(cases)} cases, and one must be held out",
            hint="it gets a case with each session that it is learned from: whet skills check NAME",
        )
    # Every second case is held out, so that old and new ones are on both sides.
    training, held_out = cases[::2], cases[1::2]
    search = _Search(ask, budget)
    candidates = search.run(steps, training)
    useful = [step for step in candidates if any(step in replay([step], case).shown for case in training)]
    chosen = useful or steps
    return Improvement(
        tuple(chosen),
        {case.session_id: score(steps, case, cases) for case in cases},
        {case.session_id: score(chosen, case, cases) for case in cases},
        tuple(case.session_id for case in held_out),
        search.calls,
    )


def replace_steps(text: str, steps: Sequence[str]) -> str:
    """Return a skill's text with these steps instead of its numbered lines."""
    lines = text.splitlines()
    old = {at: line_steps[0] for at, line in enumerate(lines) if (line_steps := parse_steps(line))}
    tails = {step: lines[at].partition(format_code(step))[2] for at, step in old.items()}
    numbered = [f"{number}. {format_code(step)}{tails.get(step, '')}" for number, step in enumerate(steps, 1)]
    first = min(old, default=len(lines))
    remaining = [lines[at] for at in range(first, len(lines)) if at not in old]
    return "\n".join([*lines[:first], *numbered, *remaining]) + "\n"


def score(steps: Sequence[str], case: SkillCase, cases: Sequence[SkillCase] = ()) -> float:
    """Return how well steps cover the commands that a case needed, from 0 to 1.

    It is the F1 score of the steps that succeeded there, in order: precision against all steps, recall
    against the commands that were needed. Needed is what worked in most of `cases`; what worked in one
    session only was that session's own, so copying it all scores little. 0 if one of the steps failed.
    """
    needed = _needed_commands(case, cases)
    result = replay(steps, case)
    if result.failed or not steps or not needed:
        return 0.0
    covers = {
        step: [command for command in needed if replay([step], _with_only(case, command)).shown]
        for step in result.shown
    }
    useful = list(dict.fromkeys(step for step in result.shown if covers[step]))
    covered = {command for commands in covers.values() for command in commands}
    precision, recall = len(useful) / len(steps), len(covered) / len(needed)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _needed_commands(case: SkillCase, cases: Sequence[SkillCase]) -> list[str]:
    """Return the commands of a case that worked, of more than two cases those that worked in most."""
    worked = list(dict.fromkeys(command for command, failed in case.commands if not failed))
    if len(cases) <= _MIN_CASES:
        return worked
    forms = [
        {_mask_values(command, other) for command, failed in other.commands if not failed} for other in cases
    ]
    shared = [
        command
        for command in worked
        if 2 * sum(_mask_values(command, case) in form for form in forms) > len(cases)
    ]
    return shared or worked


def _mask_values(command: str, case: SkillCase) -> str:
    """Return a command without the words that the request gave it and without numbers."""
    requested = set(re.findall(r"[\w./-]+", case.request.rstrip(".?!").casefold()))
    return " ".join(
        "_" if any(char.isdigit() for char in word) or word.casefold() in requested else word
        for word in command.split()
    )


class _Search:
    """GEPA's view of a procedure: one text, scored case by case."""

    propose_new_texts = None

    def __init__(self, ask: Ask, budget: int) -> None:
        self.calls = 0
        self._ask = ask
        self._cases: Sequence[SkillCase] = ()
        self._budget = budget

    def run(self, steps: Sequence[str], cases: Sequence[SkillCase]) -> list[str]:
        """Return the best steps found on these cases."""
        self._cases = cases
        result = _gepa().optimize(
            seed_candidate={_STEPS: _number_steps(steps)},
            trainset=list(cases),
            valset=list(cases),
            adapter=self,
            reflection_lm=self._answer,
            reflection_prompt_template=_PROMPT,
            reflection_minibatch_size=min(3, len(cases)),
            max_metric_calls=self._budget * 6 * len(cases),
            stop_callbacks=self._is_spent,
            logger=_Silent(),
        )
        return parse_steps(result.best_candidate[_STEPS]) or list(steps)

    def evaluate(
        self, batch: list[SkillCase], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        """Replay a candidate on cases."""
        steps = parse_steps(candidate[_STEPS])
        replays = [replay(steps, case) for case in batch]
        scores = [score(steps, case, self._cases) for case in batch]
        batch_of = importlib.import_module("gepa.core.adapter").EvaluationBatch
        return batch_of(outputs=replays, scores=scores, trajectories=replays if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return, for each case, the commands that worked and the results of the steps."""
        records = [
            {
                "Inputs": {
                    "asked": result.case.request,
                    "ran": [
                        f"{'failed' if failed else 'worked'}: {run}" for run, failed in result.case.commands
                    ],
                },
                "Generated Outputs": {
                    "steps that worked": list(result.shown),
                    "steps that failed": list(result.failed),
                },
                "Feedback": f"{case_score:.2f} of 1",
            }
            for result, case_score in zip(eval_batch.trajectories, eval_batch.scores, strict=True)
        ]
        return dict.fromkeys(components_to_update, records)

    def _is_spent(self, state: object) -> bool:
        return self.calls >= self._budget

    def _answer(self, prompt: str) -> str:
        self.calls += 1
        return self._ask(prompt)


class _Silent:
    """Takes GEPA's log lines and shows none."""

    def log(self, message: str) -> None:
        """Drop a line."""


def _gepa() -> Any:
    try:
        return importlib.import_module("gepa")
    except ImportError as error:
        from whet.extras import install_command  # noqa: PLC0415 - few processes lack an extra

        raise ConfigError(
            "improving skills needs GEPA, which is not installed",
            hint=install_command("improve"),
        ) from error


def _with_only(case: SkillCase, command: str) -> SkillCase:
    return msgspec.structs.replace(case, commands=((command, False),))


def _number_steps(steps: Sequence[str]) -> str:
    return "\n".join(f"{number}. {format_code(step)}" for number, step in enumerate(steps, 1))
