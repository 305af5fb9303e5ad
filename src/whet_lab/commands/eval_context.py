"""`whet eval context`: engines side by side on one long conversation, as a table, a chart or JSON."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import click
import msgspec

from whet.app.model_links.discover import list_by_keys, needs_model, no_model_error
from whet.cli.main import run_on_loop
from whet.cli.stored import open_database
from whet.clock import SystemClock
from whet.config.load import load
from whet.config.paths import Home
from whet.config.permission_settings import ApprovalSettings
from whet.config.schema import FallbackSettings, Settings
from whet.config.secrets import load_secrets
from whet.contract.errors import BadInput, NotFound
from whet.contract.texts import plural
from whet.providers.connect import connect
from whet.store import sessions
from whet.store.rows import SEQ_LIMIT
from whet.store.search import read_span
from whet.terminal.output import Column, ProgressLine, emit_json, home_and_json, table, wrap_text
from whet.terminal.wording import count, printable
from whet_lab.evals import context_story
from whet_lab.evals.chart import draw_bars
from whet_lab.evals.context_replay import EngineResult, ReplaySetup, count_tokens, list_engines, run
from whet_lab.evals.context_story import ModelJudge, Story
from whet_lab.practice.server import PracticeServer

_MAX_MESSAGES = 1_000_000
_LEGEND = (
    "Found: one tool call brings it back, recall's or the engine's. Size after: of the threshold. Between: "
    "requests that follow no compaction. Per request: CPU of the host, no compaction."
)


@click.command("context")
@click.option("--engine", "wanted", multiple=True, metavar="NAME", help="This engine; again for more.")
@click.option(
    "--session", "session_id", default="", metavar="ID", help="A stored session, not a made-up one."
)
@click.option("--messages", default=1_000, show_default=True, help="Length of the made-up conversation.")
@click.option("--window", default=32_000, show_default=True, help="The window, in tokens.")
@click.option(
    "--live", is_flag=True, help="Summaries by your own model instead of the stand-in; costs money."
)
@click.option("--judge", default=0, metavar="N", help="With --live: also ask your model for N of the facts.")
@click.option("--chart", type=click.Path(dir_okay=False, path_type=Path), help="Write a chart (SVG) here.")
@home_and_json
def context(  # noqa: PLR0913 one parameter an option
    home: Home,
    wanted: tuple[str, ...],
    session_id: str,
    messages: int,
    window: int,
    live: bool,
    judge: int,
    chart: Path | None,
    as_json: bool,
) -> None:
    """Replay a long conversation through context engines and ask for facts from it.

    Without --engine: the built-in one and those of enabled plugins. Without --live nothing leaves this
    machine: summaries are by the practice model, a scripted stand-in that copies and understands nothing.
    """
    if judge and not live:
        raise BadInput("--judge asks a real model", hint="whet eval context --live --judge 20")
    if messages < 10 or window < 2_000:
        raise BadInput("at least 10 messages and a window of 2,000 tokens", hint="whet eval context --help")
    story = _load_story(home, session_id) if session_id else context_story.make_synthetic(messages)
    results = _replay(home, story, wanted, window, judge if live else -1)
    if chart is not None:
        chart.write_text(_chart(story, window, results), "utf-8")
    if as_json:
        return emit_json({"story": story.name, "window_tokens": window, "live": live, "engines": results})
    click.echo(
        f"{printable(story.name)}, window {count(window)} tokens, {plural(len(story.facts), 'fact')}\n"
    )
    click.echo("\n".join(_report(results)))
    if chart is not None:
        click.echo(f"\nchart: {chart}")


def _replay(
    home: Home, story: Story, engines: tuple[str, ...], window: int, judged: int
) -> list[EngineResult]:
    """Replay with the practice model (`judged` is -1), or with the person's own model."""
    secrets = dict(load_secrets(home, os.environ))
    settings = load(home, environ=os.environ).settings
    if judged >= 0:
        if needs_model(settings):
            raise no_model_error(list_by_keys(secrets))
        replay = ReplaySetup(_for_replay(settings, window), secrets, home, _progress())
        return run_on_loop(_replay_all(replay, story, engines, judged))
    with PracticeServer() as server:
        model = msgspec.structs.replace(
            settings.model,
            provider="practice",
            model="practice",
            base_url=server.base_url,
            format="auto",
            api_key_env="",
        )
        settings = msgspec.structs.replace(settings, model=model)
        replay = ReplaySetup(
            _for_replay(settings, window),
            secrets,
            home,
            _progress(),
            lambda: count_tokens([request.body for request in server.requests]),
        )
        return run_on_loop(_replay_all(replay, story, engines, 0))


async def _replay_all(
    replay: ReplaySetup, story: Story, engines: tuple[str, ...], judged: int
) -> list[EngineResult]:
    available = await list_engines(replay)
    missing = [name for name in engines if name not in available]
    if missing:
        raise NotFound(f"there is no engine {missing[0]!r}", hint=f"there are: {', '.join(available)}")
    if not judged:
        return [await run(replay, name, story) for name in engines or available]
    async with aclosing(connect(replay.settings.model, replay.settings.fallback, replay.secrets)) as provider:
        replay = msgspec.structs.replace(replay, judge=ModelJudge(provider), judged_facts=judged)
        return [await run(replay, name, story) for name in engines or available]


def _for_replay(settings: Settings, window: int) -> Settings:
    return msgspec.structs.replace(
        settings,
        model=msgspec.structs.replace(settings.model, window_tokens=window),
        fallback=FallbackSettings(),
        approval=ApprovalSettings(mode="deny"),
    )


def _load_story(home: Home, session_id: str) -> Story:
    with open_database(home) as database:
        full_id = database.read_now(lambda db: sessions.resolve_id(db, session_id))
        rows = database.read_now(lambda db: read_span(db, full_id, 1, SEQ_LIMIT - 1, _MAX_MESSAGES))
        row = database.read_now(lambda db: sessions.get(db, full_id))
    story = context_story.build_story(f"session {row.title or full_id}", [message for _, message in rows])
    if not story.messages or not story.facts:
        raise NotFound("that session is too short to ask anything of", hint="whet sessions list")
    return story


def _progress() -> Callable[[str, int, int], None]:
    """Return a function that shows the progress of a replay."""
    line = ProgressLine("replaying", SystemClock())

    def show(engine: str, done: int, of: int) -> None:
        line.update(f"{engine}, {done:,} of {of:,} messages") if done < of else line.finish()

    return show


def _report(results: list[EngineResult]) -> list[str]:
    """Return the lines of the table, with a column for each engine, and of the engines' notices."""
    measures: list[tuple[str, Callable[[EngineResult], str]]] = [
        ("facts found", lambda result: f"{result.recoverable}/{result.facts}"),
        ("  by its tool", lambda result: f"{result.by_own_tool}/{result.facts}"),
        ("  in window", lambda result: f"{result.in_context}/{result.facts}"),
        ("paths found", lambda result: f"{result.paths_found}/{result.paths}"),
        ("compactions", lambda result: str(result.compactions)),
        ("saving, mean", lambda result: f"{result.saving_mean:.0%}"),
        ("saving, least", lambda result: f"{result.saving_least:.0%}"),
        ("size after", lambda result: f"{result.size_after:.0%}"),
        ("tokens/turn", lambda result: count(round(result.tokens_per_turn))),
        (
            "for summaries",
            lambda result: "-" if result.summary_tokens is None else count(result.summary_tokens),
        ),
        ("cache hit", lambda result: f"{result.cache_hit:.1%}"),
        ("  between", lambda result: f"{result.cache_hit_between:.1%}"),
        ("compacting", lambda result: f"{result.compaction_s:.2f} s"),
        ("per request", lambda result: f"{result.host_ms_per_request:.2f} ms"),
    ]
    if any(result.judged is not None for result in results):
        measures.append(("judged", lambda result: "-" if result.judged is None else f"{result.judged:.0%}"))
    columns: list[Column[tuple[str, Callable[[EngineResult], str]]]] = [
        Column("", lambda measure: measure[0]),
        *(_engine_column(result) for result in results),
    ]
    lines = [table(measures, columns), ""]
    lines.append(wrap_text(_LEGEND))
    for result in results:
        lines += [wrap_text(printable(f"{result.engine}: {notice}")) for notice in result.notices[:3]]
    return lines


def _engine_column(result: EngineResult) -> Column[tuple[str, Callable[[EngineResult], str]]]:
    return Column(printable(result.engine), lambda measure: measure[1](result), right=True)


def _chart(story: Story, window: int, results: list[EngineResult]) -> str:
    def values_by_engine(value: Callable[[EngineResult], float]) -> dict[str, float]:
        return {result.engine: value(result) for result in results}

    return draw_bars(
        f"{story.name}, window {count(window)} tokens",
        [
            (
                "facts that one tool call brings back",
                values_by_engine(lambda engine: engine.recoverable / engine.facts),
                "{:.0%}",
            ),
            (
                "facts in the window at the end",
                values_by_engine(lambda engine: engine.in_context / engine.facts),
                "{:.0%}",
            ),
            ("saving per compaction", values_by_engine(lambda engine: engine.saving_mean), "{:.0%}"),
            ("prompt tokens per turn", values_by_engine(lambda engine: engine.tokens_per_turn), "{:,.0f}"),
            ("prompt cache hit", values_by_engine(lambda engine: engine.cache_hit), "{:.1%}"),
            ("seconds in compactions", values_by_engine(lambda engine: engine.compaction_s), "{:.2f}"),
        ],
    )
