"""Operations on warm templates: build, list, load for later, delete, import, export, measure.

The command line and the tool `warm_session` both use this module. It needs the home and the store, no
model.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import apsw
import msgspec

from whet.clock import Clock, iso
from whet.config import paths
from whet.config.paths import Home
from whet.contract.errors import ConfigError
from whet.contract.tools import ToolSpec
from whet.memory.effects import Effect, compare_items, sum_by_session
from whet.stats import Interval
from whet.store import learned, outcomes, warm
from whet.store.database import StateDatabase
from whet.warm import template as templates
from whet.warm.compose import BuildOptions, Composition, compose
from whet.warm.label import label_all
from whet.warm.mine import MiningResult, MiningScope, Progress, mine
from whet.warm.proof import measure_uplift, update_verdict
from whet.warm.rates import Rates, measure
from whet.warm.select import Situation, why_left_out
from whet.warm.template import Broken, Template


def silent(done: int, total: int) -> None:
    """Show no progress."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list. `problem` is not empty if the template is broken or was switched off."""

    name: str
    description: str = ""
    examples: int = 0
    tags: tuple[str, ...] = ()
    created_at: str = ""
    warm_sessions: int = 0
    held_out_sessions: int = 0
    uplift: Interval | None = None
    verdict: str = ""
    state: str = "ready"
    problem: str = ""


class Built(msgspec.Struct, frozen=True):
    """The result of a build: the template, the numbers of sessions and messages read, the tools' error rates,
    and the number of left-out examples by reason."""

    template: Template
    sessions: int
    messages: int
    error_rates: dict[str, float]
    left_out: dict[str, int]
    path: str


class WarmTemplates(msgspec.Struct, frozen=True):
    """The templates of one home and its store."""

    home: Home
    database: StateDatabase
    clock: Clock

    def build(self, options: BuildOptions, choice: MiningScope, progress: Progress = silent) -> Built:
        """Mine the store and write the template completely or not at all. Raises NotFound, ConfigError."""
        templates.path_of(self.home, options.name)
        now = self.clock.now()

        def work(connection: apsw.Connection) -> tuple[MiningResult, Composition]:
            mined = mine(connection, choice, progress)
            return mined, compose(connection, mined, options, now, self.home.root)

        mined, composed = self.database.read_now(work)
        path = templates.save(self.home, composed.template)
        rates = {name: tally.error_rate for name, tally in sorted(mined.tools.items())}
        return Built(composed.template, mined.sessions, mined.messages, rates, composed.left_out, str(path))

    def list_rows(self) -> list[Listed]:
        """Return a row for every template with its measured effect, and switch off templates that do harm."""
        rows: list[Listed] = []
        for template in templates.iter_templates(self.home):
            if isinstance(template, Broken):
                rows.append(Listed(name=template.name, state="broken", problem=template.reason))
            else:
                rows.append(self._make_row(template))
        return rows

    def _make_row(self, template: Template) -> Listed:
        now = iso(self.clock.now())
        effect = self.database.read_now(lambda db: measure_uplift(db, template.hash))
        state = self.database.read_now(lambda db: warm.list_states(db).get(template.hash))
        if effect.verdict == "hurts" and not (state and state.off_reason):
            self.database.write_now(lambda db: update_verdict(db, template.hash, template.name, now))
            state = self.database.read_now(lambda db: warm.list_states(db).get(template.hash))
        off = state.off_reason if state else ""
        return Listed(
            name=template.name,
            description=template.description,
            examples=len(template.examples),
            tags=template.tags,
            created_at=template.created_at,
            warm_sessions=effect.warm_sessions,
            held_out_sessions=effect.held_out_sessions,
            uplift=effect.interval if effect.verdict != "too few" else None,
            verdict=effect.verdict,
            state="off" if off else "ready",
            problem=off,
        )

    def load(self, name: str) -> Template:
        """Read a template. Raises NotFound, ConfigError."""
        return templates.load(self.home, name)

    def find_stale(self, template: Template, tools: dict[str, ToolSpec] | None, now: datetime) -> list[str]:
        """Return for each example the reason why it would be skipped, or an empty string."""
        private, gone = self.hidden_sources(template)
        states = self.database.read_now(warm.list_states)
        wins = {hash_: state.last_win for hash_, state in states.items()}
        situation = Situation(tools=tools, now=now, private=private, gone=gone, last_wins=wins)
        return [why_left_out(template, example, situation) for example in template.examples]

    def effects(self, template: Template) -> list[Effect | None]:
        """Return for each example how sessions went with it and without it; None if no session had it."""

        def read(db: apsw.Connection) -> list[Effect]:
            turns = outcomes.list_turn_outcomes(db)
            return compare_items(outcomes.list_item_uses(db, ("example",)), sum_by_session(turns))

        by_item = {(effect.item.name, effect.item.hash): effect for effect in self.database.read_now(read)}
        return [by_item.get((template.name, example.hash)) for example in template.examples]

    def hidden_sources(self, template: Template) -> tuple[set[str], set[str]]:
        """Return the template's sessions that are private, and those that no longer exist."""
        ids = list(dict.fromkeys(e.session_id for e in template.examples if e.session_id))
        return self.database.read_now(lambda db: warm.find_hidden_sources(db, ids))

    def apply(self, name: str, workspace: str) -> Template:
        """Start the next new session in `workspace` with a template; durable on return."""
        template, now = self.load(name), iso(self.clock.now())
        self.database.write_now(lambda db: learned.set_next(db, workspace, name, now))
        return template

    def delete(self, name: str) -> None:
        """Remove a template. Sessions that were started with it keep their bytes. Raises NotFound."""
        templates.delete(self.home, name)
        self.database.write_now(lambda db: learned.forget_next(db, "", name))

    def import_file(self, source: Path, name: str) -> Template:
        """Import a template from a file. Raises ConfigError."""
        return templates.import_file(self.home, source, name, self.clock.now())

    def export(self, name: str, target: Path | None) -> str:
        """Return a template as JSON, and write it to `target` if given. Raises ConfigError."""
        text = templates.encode(self.load(name))
        if target is not None:
            if target.exists():
                raise ConfigError(f"{target} exists", hint="name another file")
            paths.replace_file(target, text, mode=0o600)
        return text

    def label(self, progress: Progress = silent, *, again: bool = False) -> tuple[int, int]:
        """Judge calls that have no outcome yet. Returns the numbers of sessions and calls."""
        return label_all(self.database, progress, again=again)

    def rates(self, progress: Progress = silent) -> Rates:
        """Measure error rates over the whole store, after judging new calls."""
        self.label(progress)
        return self.database.read_now(measure)
