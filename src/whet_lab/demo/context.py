"""The demo's chapter on context: a conversation of 2,000 messages in a window of 8,000 tokens.

The practice model surveys a thousand stations in one turn, one file a step, far beyond its window. Then it
is asked for code words that only some of those files held. Every measurement comes from the database and
the recorded requests, not from the demo's own output.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import msgspec

from whet.cli.stored import open_database
from whet.contract.events import Compaction, Event, TextDelta, ToolFinished, ToolStarted, TurnEnd
from whet.contract.texts import plural
from whet.store import compactions, counts
from whet_lab.demo.facts import read_sums
from whet_lab.demo.run import DemoRun
from whet_lab.demo.stage import DemoStage
from whet_lab.demo.world import SeenRequest
from whet_lab.practice.survey_task import station_page, station_path

STATIONS, FACTS, WINDOW = 1_000, 20, 8_000
_ASKED_AT_ONCE = 4
_SURVEY_LIMIT_S = 600.0
_EXTRA = f"""\
  window_tokens: {WINDOW}
agent:
  max_steps: {STATIONS + 10}
"""


class ContextFigures(msgspec.Struct, frozen=True):
    """Figures about the session from the database and the requests."""

    messages: int
    live_messages: int
    compactions: int
    saved_tokens: int
    largest_prompt_tokens: int
    cache_hit_ratio: float
    facts: int
    answered: int


def run_chapter(run: DemoRun) -> None:
    """Run the chapter."""
    stage = run.stage
    stage.title("A long conversation in a small window")
    stage.say(
        "Everything here is real but the model: the practice model is a scripted stand-in that sees each "
        "request and nothing else. It surveys a thousand weather stations in one turn, one file a step. Its "
        f"window holds {WINDOW:,} tokens, enough for some thirty of them."
    )
    words = _write_stations(run)
    survey = ["-q", f"Survey the {STATIONS} stations."]
    first = run.chat(survey, pace=0.0, shows=_event_filter(stage), limit_s=_SURVEY_LIMIT_S)
    session_id = first.end.session_id if first.end else ""
    run.check_turn("survey_ended", first)
    items = [event for event in first.events if isinstance(event, Compaction)]
    run.check("compacted_often", len(items) >= 10, plural(len(items), "compaction"))
    run.conclude(
        f"What you just saw: whenever the window was three quarters full, older messages were replaced by a "
        f"summary, {len(items)} times, and the work went on. Nothing was deleted: what left the window is in "
        "the store, and the summary says under which numbers."
    )
    stage.title("What has left the window")
    stage.say(f"{FACTS} of the files held a code word. None of them is in the window any more. Ask for all:")
    right = _ask_all(run, words)
    run.check("every_fact_answered", right == FACTS, f"{right} of {FACTS}")
    run.conclude(
        "What you just saw: where its window lacks the answer, the model calls `recall` and gets the very "
        "message back."
    )
    _measure(run, session_id, words, right)


def _write_stations(run: DemoRun) -> dict[int, str]:
    """Write the stations' files and the settings; return the code words by station."""
    chosen = [7 + number * (STATIONS - 60) // FACTS for number in range(FACTS)]
    words = {n: f"amber-{zlib.crc32(str(n).encode()) % 90_000 + 10_000}" for n in chosen}
    (run.world.project / "stations").mkdir()
    for station in range(1, STATIONS + 1):
        page = station_page(station, words.get(station, ""))
        (run.world.project / station_path(station)).write_text(page, "utf-8")
    config = run.world.home.config
    config.write_text(config.read_text("utf-8").replace("approval:", f"{_EXTRA}approval:"), "utf-8")
    return words


def _event_filter(stage: DemoStage) -> Callable[[Event], bool]:
    """Return a filter that shows the first calls, a few compactions, and the end.

    A thousand lines would show nothing more.
    """
    calls = compactions = 0

    def shows(event: Event) -> bool:
        nonlocal calls, compactions
        if isinstance(event, Compaction):
            compactions += 1
            return compactions <= 3
        if isinstance(event, ToolFinished):
            calls += 1
            if calls % 100 == 0:
                stage.write(f"  ... station {calls:,}, {compactions} compactions so far ...\n")
            return calls <= 3
        if isinstance(event, ToolStarted):
            return calls < 3
        return isinstance(event, TextDelta | TurnEnd)

    return shows


def _ask_all(run: DemoRun, words: dict[int, str]) -> int:
    """Ask for every code word, several at once; return the number of correct answers."""
    stations, right = list(words), 0
    for begin in range(0, len(stations), _ASKED_AT_ONCE):
        batch = stations[begin : begin + _ASKED_AT_ONCE]
        names = ", ".join(map(str, batch))
        is_shown = begin < 2 * _ASKED_AT_ONCE
        turn = run.chat(
            ["--continue", "-q", f"Which code words have stations {names}?"],
            pace=0.3,
            shows=lambda _event, is_shown=is_shown: is_shown,
        )
        right += sum(f"Station {station}: {words[station]}" in turn.text for station in batch)
    return right


def _facts_left_window(requests: Sequence[SeenRequest], words: dict[int, str]) -> bool:
    """Return whether the first request with a question contained no code word.

    Later requests may: the message that `recall` finds has other stations' pages beside it.
    """
    asking = (request.body for request in requests if "Which code words have stations" in request.body)
    first = next(asking, "")
    return bool(first) and not any(word in first for word in words.values())


def _measure(run: DemoRun, session_id: str, words: dict[int, str], right: int) -> None:
    stage = run.stage
    stage.title("What was measured")
    with open_database(run.world.home) as database:
        sums = database.read_now(lambda db: compactions.sum_compactions(db, session_id))
        messages = database.read_now(lambda db: counts.count_messages(db, session_id))
        largest = database.read_now(lambda db: counts.read_largest_prompt(db, session_id))
        live = database.read_now(lambda db: counts.count_live_messages(db, session_id))
    requests = run.world.requests()
    total, refused = read_sums(run.world), [request.refused for request in requests if request.refused]
    saved, hits = sums.saved_tokens, total.cache_hit_ratio
    figures = ContextFigures(messages, live, sums.count, saved, largest, hits, FACTS, right)
    run.check("two_thousand_messages", messages >= 2 * STATIONS, f"{messages:,}")
    run.check("every_request_in_the_window", 0 < largest <= WINDOW, f"{largest:,} tokens")
    run.check("every_request_valid", not refused, "; ".join(refused[:3]))
    run.check(
        "facts_were_out_of_the_window",
        _facts_left_window(requests, words),
        "a code word was still in a request",
    )
    run.measured |= {"context": figures, "wall_s": run.wall_s}
    stage.write("\n")
    stage.table(
        [
            ("messages", f"{messages:,} in the store, {live} in the window at the end"),
            ("compactions", f"{sums.count}, {sums.saved_tokens:,} tokens saved in all"),
            ("largest request", f"{largest:,} tokens of {WINDOW:,}, as the server counted"),
            ("prompt cache", f"{total.cache_hit_ratio:.1%} of all prompt tokens (simulated by the practice "
             "server)"),
            ("facts", f"{right} of {FACTS} answered, none of them in the window when the first was asked"),
            ("wall time", f"{run.measured['wall_s']:.0f} s"),
        ]
    )  # fmt: skip
