"""`whet chat` and plain `whet`: a conversation at the terminal, or one question with -q.

This module defines the options. `cli/oneshot.py` runs one question. `cli/interactive/repl.py` runs the
conversation and is imported only for it: importing rich and prompt_toolkit takes longer than a question may.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from whet.cli.command_table import COMMANDS
from whet.cli.group import is_question
from whet.cli.launch import ChatOptions, Output, load_settings, model_flags, model_options, text_option
from whet.config.paths import Home
from whet.contract.errors import ConfigError


@click.command("chat")
@click.argument("words", nargs=-1, metavar="[QUESTION]")
@click.option("-q", "--question", help="Ask this and print the answer; - takes it from standard input.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--stream-json", is_flag=True, help="Print each event as a line of JSON, the result last.")
@text_option("--session", "session_id", default="", metavar="ID", help="Go on with this session.")
@click.option(
    "-c", "--continue", "continues_latest", is_flag=True, help="Go on with this folder's latest session."
)
@click.option(
    "-r",
    "--resume",
    "picks_session",
    is_flag=True,
    help="Pick the session to go on with, or go on with [ID].",
)
@click.option("--yes", is_flag=True, help="Don't ask about what is not dangerous (--approvals auto).")
@click.option(
    "--approvals", type=click.Choice(["ask", "plan", "auto", "deny"]), help="What runs without a question."
)
@click.option("--max-steps", type=click.IntRange(1), help="Most model calls of one turn.")
@text_option("--image", "images", multiple=True, metavar="FILE", help="Send an image along; repeatable.")
@text_option("--toolsets", metavar="A,B", help="Only these groups of tools.")
@model_options
@text_option("--workspace", metavar="DIR", help="The folder to work in.")
@click.option("--private", is_flag=True, help="Keep the new session out of search and learning.")
@text_option(
    "--warm", "warm_template", default="", metavar="NAME", help="Start with this template, auto, or off."
)
@text_option("--title", default="", help="The new session's title.")
@click.pass_context
def chat(context: click.Context, /, **options: Any) -> None:
    """Chat at the terminal, or ask one question: with -q, or in words after the options."""
    _read_words(options, options.pop("words"))
    if options["session_id"] and options["continues_latest"]:
        raise click.UsageError("--session and --continue exclude each other")
    if options["warm_template"] and (options["session_id"] or options["continues_latest"]):
        raise click.UsageError("--warm is for a new session; one that exists keeps how it was started")
    if options["picks_session"] and (
        options["session_id"] or options["continues_latest"] or options["question"] is not None
    ):
        raise click.UsageError("--resume picks a session in the chat; it goes with no other and with no -q")
    if options["as_json"] and options["stream_json"]:
        raise click.UsageError("--json and --stream-json exclude each other")
    context.exit(run(_build_options(context.obj, options)))


def _read_words(options: dict[str, Any], words: tuple[str, ...]) -> None:
    """Read the words of the command line as a question. After --resume, the first word is the session's id.
    Raises UsageError if the words may mean something else."""
    if words and options["picks_session"] and not is_question(words[0]):
        options["session_id"], options["picks_session"], words = words[0], False, words[1:]
    if not words:
        return
    text = " ".join(words).replace('"', "'")
    if options["question"] is not None:
        raise click.UsageError(f'quote the question: whet chat -q "{options["question"]} {text}"')
    if words[0] in COMMANDS:
        raise click.UsageError(f'the command is `whet {text}`; to ask it: whet chat -q "{text}"')
    options["question"] = " ".join(words)


def run(options: ChatOptions) -> int:
    """Run one question or the terminal chat, and return the exit code."""
    if options.question is None and sys.stdin.isatty() and options.output == "text":
        settings = load_settings(options, input)
        from whet.terminal.first_frame import FirstFrame  # noqa: PLC0415 - the chat's alone

        with FirstFrame(settings.ui.theme) as frame:
            from whet.cli.interactive import repl  # noqa: PLC0415 - prompt_toolkit and the loop take 200 ms

            return repl.run(options, settings, frame)
    if options.question is None and sys.stdin.isatty():
        raise ConfigError("--json and --stream-json need a question", hint='-q "..." asks one')
    from whet.cli import oneshot  # noqa: PLC0415 - with the agent's loop, which the chat needs later

    return oneshot.run(options)


def _build_options(home: Home, options: dict[str, Any]) -> ChatOptions:
    is_plan_mode = options["approvals"] == "plan"
    flags = model_flags(options) | {
        "approval.mode": None if is_plan_mode else options["approvals"],
        "agent.max_steps": options["max_steps"],
        "tools.workspace": options["workspace"],
    }
    if options["toolsets"] is not None:
        flags["tools.toolsets"] = options["toolsets"]
    if options["yes"] and not options["approvals"]:
        flags["approval.mode"] = "auto"
    output: Output = "json" if options["as_json"] else "stream-json" if options["stream_json"] else "text"
    names = (
        "question",
        "session_id",
        "continues_latest",
        "private",
        "title",
        "warm_template",
        "picks_session",
    )
    images = tuple(Path(name) for name in options["images"])
    values = {name: options[name] for name in names}
    return ChatOptions(home, flags, output=output, images=images, is_plan_mode=is_plan_mode, **values)
