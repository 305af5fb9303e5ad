"""Replays a conversation through one context engine, in the real host and store, and asks for its facts.

Only the engine's own calls reach a model: answers and results come from the conversation, and each request
is only counted, with a simulated prefix cache. The engine's files are in a separate home.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Protocol

import msgspec

from whet.agent.session import Session
from whet.app.build import App
from whet.config.paths import Home
from whet.config.schema import Settings
from whet.contract.events import Compaction, Event, Notice
from whet.contract.messages import Message, Usage, to_dict
from whet.contract.protocols import NobodyPresent
from whet.contract.tools import Tool, ToolContext, ToolOutput
from whet.store.transcript import TurnRecord
from whet_lab.evals.context_story import Fact, Story
from whet_lab.practice.cache import PrefixCache, tokens

_QUERY_ARGUMENTS = ("query", "pattern", "text", "search", "q")
_RECALL = "recall"
Progress = Callable[[str, int, int], None]


class EngineResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one engine on a story. Shares are between 0 and 1; tokens are counted, not billed."""

    engine: str
    source: str
    compactions: int
    saving_mean: float
    saving_least: float
    size_after: float
    """The largest list after a compaction, as a share of the threshold."""
    facts: int
    in_context: int
    recoverable: int
    """With one call of a tool: the engine's own or recall."""
    by_own_tool: int
    paths: int
    paths_found: int
    requests: int
    prompt_tokens: int
    tokens_per_turn: float
    summary_tokens: int | None
    cache_hit: float
    cache_hit_between: float
    """Without the requests that follow a compaction."""
    compaction_s: float
    host_ms_per_request: float
    """CPU time of requests without a compaction."""
    judged: float | None = None
    notices: list[str] = []


class AnswerJudge(Protocol):
    """Asks a model about facts."""

    async def score(self, view: Sequence[Message], facts: Sequence[Fact]) -> float:
        """Return how well a model that sees `view` answers the questions about `facts`, between 0 and 1."""
        ...


class ReplaySetup(msgspec.Struct, frozen=True):
    """The settings of a replay. `home` has the plugins; `summary_tokens` returns the tokens used so far."""

    settings: Settings
    secrets: dict[str, str]
    home: Home
    progress: Progress = lambda engine, done, of: None
    summary_tokens: Callable[[], int] | None = None
    judge: AnswerJudge | None = None
    judged_facts: int = 0


async def list_engines(replay: ReplaySetup) -> list[str]:
    """Return the engines that can be compared: all except the one that never compacts."""
    with tempfile.TemporaryDirectory(prefix="whet-eval-") as folder:
        async with aclosing(await _start(replay, Path(folder), "compressor")) as app:
            return [name for name in app.services.contexts.engines if name != "none"]


async def run(replay: ReplaySetup, engine: str, story: Story) -> EngineResult:
    """Replay `story` through the engine of that name."""
    with tempfile.TemporaryDirectory(prefix="whet-eval-") as folder:
        async with aclosing(await _start(replay, Path(folder), engine)) as app:
            return await _Run(app, replay, engine, story).result()


async def _start(replay: ReplaySetup, folder: Path, engine: str) -> App:
    """Start a program in a separate home that has the person's plugins."""
    home = Home(folder / "home")
    home.ensure()
    for name in ("plugins", ".env"):
        if (replay.home.root / name).exists() and not (home.root / name).exists():
            (home.root / name).symlink_to((replay.home.root / name).resolve())
    workspace = folder / "work"
    workspace.mkdir()
    settings = replay.settings
    context = msgspec.structs.replace(settings.context, engine=engine)
    settings = msgspec.structs.replace(settings, context=context)
    return await App.start(home, settings, replay.secrets, NobodyPresent(), workspace)


class _Run:
    """One replay. A request without a compaction before it is a steady one."""

    def __init__(self, app: App, replay: ReplaySetup, engine: str, story: Story) -> None:
        self._app = app
        self._replay = replay
        self._engine = engine
        self._story = story
        self._cache = PrefixCache()
        self._encoded: dict[int, tuple[Message, bytes]] = {}
        self._compactions: list[Compaction] = []
        self._notices: list[str] = []
        self._requests = self._turns = 0
        self._prompt_tokens = self._cached_tokens = 0
        self._steady_prompt_tokens = self._steady_cached_tokens = 0
        self._compaction_s = self._cpu_s = 0.0
        self._largest = 0.0

    async def result(self) -> EngineResult:
        """Replay the story, then ask for its facts."""
        count_summary_tokens = self._replay.summary_tokens
        summary_tokens_before = count_summary_tokens() if count_summary_tokens else 0
        session = await self._app.new_session()
        host = self._app.services.contexts.host(session.context)
        prefix = [msgspec.json.encode([tool.spec for tool in session.tools.values()])]
        await self._replay_messages(session, prefix)
        view = await session.context.view(session.log.messages, self._on_event)
        status = await session.context.status()
        visible_text = "\n".join((*(message.text for message in view), *_arguments(view)))
        facts = self._story.facts
        own_tools = [tool for tool in host.runner.tools or [] if _query_argument(tool)]
        recall = [tool for name, tool in session.tools.items() if name == _RECALL]
        by_own = {fact.value for fact in facts if await _recovers(session, own_tools, fact)}
        by_recall = {fact.value for fact in facts if await _recovers(session, recall, fact)}
        paths = await _read_touched_files(session, recall)
        savings = [
            1 - compaction.tokens_after / max(compaction.tokens_before, 1) for compaction in self._compactions
        ]
        judge = self._replay.judge
        sample = facts[:: max(len(facts) // max(self._replay.judged_facts, 1), 1)]
        judged = await judge.score(view, sample) if judge else None
        return EngineResult(
            engine=self._engine,
            source=status.source,
            compactions=len(self._compactions),
            saving_mean=sum(savings) / len(savings) if savings else 0.0,
            saving_least=min(savings, default=0.0),
            size_after=self._largest,
            facts=len(facts),
            in_context=sum(fact.value in visible_text for fact in facts),
            recoverable=len(by_own | by_recall),
            by_own_tool=len(by_own),
            paths=len(self._story.paths),
            paths_found=sum(path in paths or path in visible_text for path in self._story.paths),
            requests=self._requests,
            prompt_tokens=self._prompt_tokens,
            tokens_per_turn=self._prompt_tokens / max(self._turns, 1),
            summary_tokens=count_summary_tokens() - summary_tokens_before if count_summary_tokens else None,
            cache_hit=self._cached_tokens / max(self._prompt_tokens, 1),
            cache_hit_between=self._steady_cached_tokens / max(self._steady_prompt_tokens, 1),
            compaction_s=self._compaction_s,
            host_ms_per_request=self._cpu_s * 1000 / max(self._requests - len(self._compactions), 1),
            judged=judged,
            notices=list(dict.fromkeys(self._notices)),
        )

    async def _replay_messages(self, session: Session, prefix: list[bytes]) -> None:
        log = session.log
        turn: TurnRecord | None = None
        results = {result.tool_call_id: result for result in self._story.messages if result.role == "tool"}
        total = len(self._story.messages)
        for number, message in enumerate(self._story.messages):
            if number % 50 == 0:
                self._replay.progress(self._engine, number, total)
            if message.role == "user":
                if turn is not None:
                    await log.end_turn(turn, "answered", "")
                self._turns += 1
                turn = await log.begin_turn(message)
            elif message.role == "assistant" and turn is not None:
                await self._request(session, prefix)
                await log.append_reply(turn, message, Usage(), session.model.model)
                for call in log.open_calls(turn):
                    answer = results.get(call.call.id) or Message(
                        "tool", "(no result)", tool_call_id=call.call.id, tool_name=call.call.name
                    )
                    await log.store_call_start(turn, call, "rule")
                    output = ToolOutput(answer.text)
                    await log.store_call_result(turn, call, answer, output=output, duration_s=0.0)
                log.live.fold_results()
        if turn is not None:
            await log.end_turn(turn, "answered", "")
        self._replay.progress(self._engine, total, total)

    async def _request(self, session: Session, prefix: list[bytes]) -> None:
        """Build the list of the next request, and count it as a server would."""
        before, began_s, cpu_s = len(self._compactions), time.monotonic(), time.process_time()
        view = await session.context.view(session.log.messages, self._on_event)
        compacted = len(self._compactions) > before
        if compacted:
            self._compaction_s += time.monotonic() - began_s
        else:
            self._cpu_s += time.process_time() - cpu_s
        tally = self._cache.count_automatic("replay", [*prefix, *map(self._encode, view)])
        self._requests += 1
        self._prompt_tokens += tally.prompt
        self._cached_tokens += tally.read
        if not compacted:
            self._steady_prompt_tokens += tally.prompt
            self._steady_cached_tokens += tally.read
        session.context.observe(
            Usage(prompt_tokens=tally.prompt, input_tokens=tally.prompt, cache_read_tokens=tally.read)
        )
        if compacted:
            status = await session.context.status()
            self._largest = max(self._largest, tally.prompt / max(status.threshold_tokens, 1))

    def _encode(self, message: Message) -> bytes:
        entry = self._encoded.get(id(message))
        if entry is None:
            # The entry keeps the message alive, so that no other object can get its id.
            entry = self._encoded[id(message)] = (message, msgspec.json.encode(to_dict(message)))
        return entry[1]

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Compaction):
            self._compactions.append(event)
            self._encoded.clear()
        elif isinstance(event, Notice) and event.text.startswith("context engine"):
            self._notices.append(event.text)


async def _recovers(session: Session, tools: Sequence[Tool], fact: Fact) -> bool:
    """Return whether one call of one of the tools returns the fact."""
    for tool in tools:
        arguments: dict[str, Any] = {_query_argument(tool): fact.key}
        output = await tool.run(_context(session), arguments)
        if fact.value in output.text:
            return True
    return False


async def _read_touched_files(session: Session, recall: Sequence[Tool]) -> str:
    """Read the list of touched files, page by page."""
    pages: list[str] = []
    ref = "files"
    while recall and ref:
        text = (await recall[0].run(_context(session), {"ref": ref})).text
        pages.append(text)
        next_page = re.search(r"\[more: recall ref=(.+)\]$", text)
        ref = next_page[1] if next_page else ""
    return "\n".join(pages)


def _query_argument(tool: Tool) -> str:
    """Return the argument that a tool searches by, or an empty string."""
    properties: object = tool.spec.parameters.get("properties")
    names = list(properties) if isinstance(properties, dict) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] (any JSON schema)
    return next((name for name in _QUERY_ARGUMENTS if name in names), "")


def _context(session: Session) -> ToolContext:
    return ToolContext(session.id, "", "", session.workspace, lambda _text: None, _no_answer)


async def _no_answer(_question: str, _choices: Sequence[str]) -> str | None:
    return None


def _arguments(view: Sequence[Message]) -> list[str]:
    return [call.arguments for message in view for call in message.tool_calls]


def count_tokens(bodies: Sequence[bytes]) -> int:
    """Count the tokens of requests that a practice server recorded."""
    return sum(tokens(len(body)) for body in bodies)
