"""Runs one task of a checkout of Continual Learning Bench in its own Python, for `bench_clbench`.

This script runs in the checkout's folder. Its arguments are the package's name, the task's name and the
number of instances. It writes one JSON line for each query and reads one line with the answer. The last line
has the rewards. It imports the checkout's package, but no module of Whet.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any


def main(package: str, name: str, instances: int) -> None:
    """Hand out the queries of a task of the checkout's package until it is done."""
    registry, interface = (importlib.import_module(f"{package}.{part}") for part in ("registry", "interface"))
    task: Any = registry.get_task_class(name)(num_instances=instances)
    query = task.reset()
    brief = task.get_agent_brief()
    intro = interface.format_task_agent_brief(brief) if brief else ""
    feedback = ""
    while query is not None:
        schema = query.response_schema
        _write(
            instance=query.instance_index,
            prompt="\n\n".join(filter(None, (intro, feedback, query.prompt))),
            schema=schema.model_json_schema(),
        )
        intro = ""
        try:
            action = schema.model_validate_json(sys.stdin.readline())
        except ValueError as error:
            feedback = f"That answer was not valid: {error}"
            continue
        result = task.step(interface.Response(action=action))
        feedback = f"FEEDBACK: {result.observation.content}" if result.observation.content else ""
        if interface.observation_marks_instance_complete(result.observation):
            intro = interface.format_task_agent_brief(brief) if brief else ""
        query = None if result.done else result.next_query
        if query is None or interface.observation_marks_instance_complete(result.observation):
            _write(feedback=feedback)
            feedback = ""
    outcomes = task.evaluate().instance_outcomes
    _write(rewards=[float(outcome.reward) for outcome in outcomes])


def _write(**fields: Any) -> None:
    sys.__stdout__.write(json.dumps(fields) + "\n")  # type: ignore[union-attr]  a script has a standard output
    sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    sys.path.insert(0, ".")
    sys.stdout = sys.stderr  # a task may print; standard output is for the lines of this script
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
