"""`whet skills improve NAME`: search for better steps of a learned skill, and prove them on its cases."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import apsw
import click

from whet.cli.learned_items.changes import with_learning
from whet.config.load import load
from whet.config.paths import Home
from whet.config.secrets import load_secrets
from whet.contract.errors import NotFound
from whet.contract.messages import Message
from whet.contract.origin import Origin
from whet.contract.protocols import ModelReply, Provider
from whet.memory import settling, skill_store
from whet.memory.cases import SkillCase, load_cases
from whet.memory.requests import SkillRequest
from whet.memory.service import LearningService
from whet.memory.skill_changes import hash_tree
from whet.store import learned
from whet.terminal.output import emit, home_and_json, number_option
from whet.terminal.wording import printable


@click.command("improve")
@click.argument("name")
@number_option("--budget", least=1, most=500, default=12, help="Answers of the model, at most.")
@home_and_json
def skills_improve(home: Home, name: str, budget: int, as_json: bool) -> None:
    """Look for better steps of the skill NAME and keep them if its cases prove them.

    The model proposes (GEPA, from its package: pip install 'whet-agent[improve]'); every proposal is
    replayed on recorded sessions, and nothing is run. Steps are kept if they are better on cases that no
    proposal was made from, and worse on none.
    """
    settings = load(home, {}, environ=os.environ).settings
    secrets = load_secrets(home, os.environ)

    async def search_steps(learning: LearningService) -> tuple[dict[str, object], str]:
        text, base_hash, cases = await _read_skill(learning, name)
        # Imported late because only this command needs them: the clients of model servers and the search.
        from whet.app.model_links.models import Dialer  # noqa: PLC0415
        from whet.app.parts import cap_calls  # noqa: PLC0415
        from whet.review.improving import improve, replace_steps  # noqa: PLC0415

        dialer = Dialer(settings, secrets)
        provider = dialer.connect_alone(settings.model)
        clock = learning.reader.clock
        provider = cap_calls(provider, learning.database, clock, settings.wallet, "review")
        loop = asyncio.get_running_loop()

        def ask(prompt: str) -> str:
            return asyncio.run_coroutine_threadsafe(_ask_model(provider, prompt), loop).result()

        try:
            result = await asyncio.to_thread(improve, text, cases, ask, budget)
        finally:
            await provider.aclose()
            dialer.close()
        scores: list[dict[str, object]] = [
            {
                "session_id": session_id,
                "before": result.before[session_id],
                "after": after,
                "held_out": session_id in result.held_out,
            }
            for session_id, after in result.after.items()
        ]
        report: dict[str, object] = {"name": name, "calls": result.calls, "cases": scores, "kept": False}
        if not result.is_gain:
            return report, _describe(scores, "nothing is changed: no steps were better on the held-out cases")
        gain = f"improved on {len(cases)} cases, {len(result.held_out)} of them held out"
        request = SkillRequest(
            "edit", name, content=replace_steps(text, result.steps), base_hash=base_hash, reason=gain
        )
        outcome = await learning.submit(request, Origin("user"))
        if not outcome.ok:
            raise NotFound(outcome.text)
        report |= {"kept": True, "change": outcome.ledger_id, "steps": list(result.steps)}
        return report, _describe(scores, f"{gain}; to take it back: whet undo {outcome.ledger_id}")

    report, text = with_learning(home, search_steps)
    emit(report, text, as_json=as_json)


async def _read_skill(learning: LearningService, name: str) -> tuple[str, str, list[SkillCase]]:
    """Return a skill's SKILL.md, its hash and its cases. Raises NotFound if the skill may not be changed."""
    skill_store.load(learning.library, name)
    info = learning.library.find(name)
    trusted = learning.changes.trusted_tools

    def read(connection: apsw.Connection) -> tuple[bool, str, list[SkillCase]]:
        is_pinned = learned.get_mark(connection, learning.profile, name).pinned
        tree_hash = hash_tree(settling.read_skill_hashes(connection, learning.profile, name))
        return is_pinned, tree_hash, load_cases(connection, learning.profile, name, trusted)

    is_pinned, base_hash, cases = await learning.database.read(read)
    if is_pinned or info is None or info.source != "home":
        raise NotFound(f"the skill {name} is not changed: it is pinned, or not of this home")
    path = Path(info.folder) / "SKILL.md"
    return path.read_text("utf-8"), base_hash, cases


async def _ask_model(provider: Provider, prompt: str) -> str:
    link = provider.open("You improve written procedures.", [], "")
    async for item in link.stream([Message(role="user", content=prompt)]):
        if isinstance(item, ModelReply):
            return item.message.text
    return ""


def _describe(scores: list[dict[str, object]], end: str) -> str:
    lines = [
        f"case {score['session_id']}: {score['before']:.2f} → {score['after']:.2f}"
        + (" (held out)" if score["held_out"] else "")
        for score in scores
    ]
    return printable("\n".join([*lines, end]))
