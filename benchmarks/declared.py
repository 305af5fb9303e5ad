"""What a benchmark runs with instead of the shipped settings, as RESULTS.md prints it beside the figure.

`shipped.check` compares each text with the source: what a benchmark changes is named here in backquotes.
"""

from __future__ import annotations

from whet_lab.evals import world_run

_STEPS = "`agent.max_steps` above the 90 that ship"
_LOOP = f"{_STEPS}; the tool is an empty one that reads: no question, sandbox or record takes part"
_SERVING = "`review.writes` off"
_GOALS = (
    "`approval.mode` auto with `approval.allow` and `approval.ask`, `sandbox.mode` off, `lsp.enabled` off, "
    "`rewind.record` off "
    "in part, `agent.delegate_parallel` as each case needs"
)
_GATEWAY = (
    "`gateway.flood_per_minute` 1,000,000 (20 ships) and, in part, `gateway.busy` queue (steer ships), "
    "`gateway.stream_after_s` 0 (1.5 ships: answers are shown as they grow), `gateway.idle_after_s` 1 (60 "
    "ships), `review.worker` off, `approval.mode` auto; the loop beside it has `agent.max_steps` of its own"
)
_REVIEW = (
    "`approval.mode` auto and `review.worker` off; all rows but the one of a day's cost lift the budget "
    "(`review.share` 1, `review.free_tokens` 1,000,000,000), and set `review.turns`, `review.writes` and "
    "`model.max_retries`"
)
_MEMORY = (
    "`memory.memory_chars` and `memory.prompt_chars` 200,000 (30,000 and 2,000 ship), `memory.user_chars` "
    "100,000 (6,000), in part"
)
_AUTO = "`approval.mode` auto"
_OFF = "`sandbox.mode` off"

_LEARNING = (
    "`review.free_tokens` 1,000,000,000 and `review.turns` 1 in the arms no-budget and no-gate, "
    "`model.window_tokens` 4,000,000 in the arm conversation, "
    "`approval.mode` auto, `tools.toolsets` terminal, web and the arm's, `tools.web_allow_private` on"
)
DIFFERS = {
    "overhead": _LOOP,
    "streaming": _LOOP,
    "instructions": _LOOP,
    "growth": _LOOP,
    "waiting": _LOOP,
    "programs": f"{_OFF}, as the other programs; the loops have {_STEPS}",
    "page": _SERVING,
    "shell": _OFF,
    "team": f"`store.url` its own server, `store.lease_s` short, {_AUTO}, {_OFF}",
    "queues": "`store.lease_s` short, so that a dead worker's turns are taken over soon",
    "prompt": (
        "tokens are estimated at four characters each, on every side; `tools.toolsets` file, terminal in the "
        "row that names them"
    ),
    "goals": _GOALS,
    "wallet": _GOALS,
    "forecast": _GOALS,
    "helpers": _GOALS,
    "steps": _AUTO,
    "warm": f"{_AUTO}; templates on",
    "warm-mining": f"{_AUTO}; templates on",
    "warm-world": f"{_AUTO}; templates on",
    "context-host": "`model.window_tokens` 128,000 named; `context.engine` each of four in one row",
    "learning": _LEARNING,
    "learning-long": _LEARNING,
    "learning-project": _LEARNING,
    "gate": _MEMORY,
    "learning-gate": _MEMORY,
    "learning-generated": _MEMORY,
    "review": _REVIEW,
    "review-kills": _REVIEW,
    "questions": (
        "`sandbox.mode` off, `approval.mode` ask and, for some interfaces, `model.max_retries`, "
        "`review.worker`, `review.turns`, `review.steps`, `review.on_correction`, `review.on_recovery`, "
        "`schedules.worker` and `gateway.drain_s`, none of which a question about a write depends on"
    ),
    "sandbox": "`sandbox.memory_mb` 1,024",
    "confirm": "no rate limit (`--rate-limit 100000000`), no approvers' page (`--web-port -1`)",
    "approval": "`approval.mode` each of the three",
    "api": f"{_SERVING}; the loop beside it has {_STEPS}",
    "clients": _SERVING,
    "serve-memory": f"{_SERVING}; the loop beside it has {_STEPS}",
    "gateway": _GATEWAY,
    "gateway-kills": _GATEWAY,
}

# Modules that a benchmark runs as a command of the program.
COMMANDS = {
    "learning": (world_run.__name__,),
    "learning-long": (world_run.__name__,),
    "learning-project": (world_run.__name__,),
}
