"""`whet eval`: measure whether Whet helps. A table of evaluations, each imported when it is called."""

from __future__ import annotations

from whet.cli.group import LateGroup

# Name to (module:attribute, description). One line per evaluation.
EVALUATIONS: dict[str, tuple[str, str]] = {
    "warm": ("whet_lab.commands.eval_warm:warm", "Warm sessions: cold, warm and a placebo on your tasks."),
    "context": (
        "whet_lab.commands.eval_context:context",
        "Context engines, side by side, on one long conversation.",
    ),
    "bench": (
        "whet_lab.commands.eval_bench:bench_command",
        "Search on public memory benchmarks, beside plain BM25.",
    ),
    "learning": (
        "whet_lab.commands.eval_learning:learning",
        "Memory and skills: a world of facts, or your tasks.",
    ),
    "days": ("whet_lab.commands.eval_days:days", "Days with one correction: reviewed, and kept?"),
}


class _Evaluations(LateGroup):
    table = EVALUATIONS


evaluate: LateGroup = _Evaluations("eval", help="Measure whether what Whet keeps helps, and at what cost.")
