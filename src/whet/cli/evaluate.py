"""`whet eval`: does it help? A table of evaluations that are imported when they are called."""

from __future__ import annotations

import importlib

import click

# Name: (module:attribute, what it does). One line per evaluation.
EVALUATIONS: dict[str, tuple[str, str]] = {
    "warm": ("whet.cli.eval_warm:warm", "Warm sessions: cold, warm and a placebo on your tasks."),
    "context": ("whet.cli.eval_context:context", "Context engines, side by side, on one long conversation."),
    "bench": ("whet.cli.eval_bench:bench_command", "Search on public memory benchmarks, beside plain BM25."),
    "learning": ("whet.cli.eval_learning:learning", "Memory and skills: a world of facts, or your tasks."),
}


class EvaluationTable(click.Group):
    """A click group that imports an evaluation's module when that evaluation is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names in the table's order."""
        return list(EVALUATIONS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the evaluation."""
        if cmd_name not in EVALUATIONS:
            return None
        module, _, attribute = EVALUATIONS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the evaluations from the table; no module is imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in EVALUATIONS.items()])


@click.group("eval", cls=EvaluationTable)
def evaluate() -> None:
    """Measure whether what Whet keeps helps, and at what cost."""
