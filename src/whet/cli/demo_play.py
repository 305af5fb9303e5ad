"""What every chapter of the demo works with: the stage, the world, real turns, and the list of checks."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from whet.cli.demo_facts import Prefixes, prefixes
from whet.cli.demo_stage import DemoStage
from whet.cli.demo_world import DemoWorld, SeenRequest, signal_pid
from whet.contract.events import Event, TextDelta, ToolFinished, ToolStarted, TurnEnd
from whet.contract.texts import decoder

_TURN_LIMIT_S = 60.0
_decoder: msgspec.json.Decoder[Event] = decoder(Event)


class Check(msgspec.Struct, frozen=True):
    """Something that the demo claims, and whether it holds; `detail` says what was found."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(slots=True)
class DemoTurn:
    """One turn as its process reported it. `exit_code` is negative for the signal that ended it."""

    events: list[Event]
    pid: int
    exit_code: int = 0
    complaint: str = ""

    @property
    def end(self) -> TurnEnd | None:
        """The turn's end, None where the process did not live to see it."""
        return next((event for event in self.events if isinstance(event, TurnEnd)), None)

    @property
    def calls(self) -> list[ToolFinished]:
        """The calls that got a result, in order."""
        return [event for event in self.events if isinstance(event, ToolFinished)]

    @property
    def text(self) -> str:
        """All that the model said."""
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


@dataclass(slots=True)
class DemoRun:
    """A running demo. Chapters add to `checks` and `measured`."""

    stage: DemoStage
    world: DemoWorld
    checks: list[Check] = field(default_factory=list[Check])
    measured: dict[str, object] = field(default_factory=dict[str, object])
    _began_s: float = field(default_factory=time.monotonic)
    _concluded: int = 0

    @property
    def wall_s(self) -> float:
        """How long it has run."""
        return round(time.monotonic() - self._began_s, 2)

    def check(self, name: str, ok: bool, detail: str = "") -> bool:
        """Note whether something that was claimed holds."""
        self.checks.append(Check(name, ok, detail))
        return ok

    def answered(self, name: str, turn: DemoTurn) -> None:
        """Note whether a turn ended with an answer."""
        ok = turn.end is not None and turn.end.reason == "answered" and turn.exit_code == 0
        self.check(name, ok, turn.complaint if not ok else "")

    def requests_hold(self, requests: Sequence[SeenRequest]) -> Prefixes:
        """Note whether the server took every request and each began the next one; gives how many did."""
        refused, held = [one.refused for one in requests if one.refused], prefixes(requests)
        self.check("every_request_valid", not refused, "; ".join(refused))
        self.check("each_request_prefix_of_next", held.held == held.pairs > 0, f"{held.held} of {held.pairs}")
        return held

    def whet(self, *arguments: str) -> tuple[int, str]:
        """Show a command of ours as typed, run it and show what it says; gives its exit code too."""
        self.stage.command("whet " + " ".join(arguments))
        code, said = self.world.run([sys.executable, "-P", "-m", "whet", *arguments])
        for line in said.splitlines():
            self.stage.write(f"{line}\n")
        return code, said

    def conclude(self, text: str) -> None:
        """Say what was just seen; where a check since the last conclusion fails, say that instead."""
        failed = [check for check in self.checks[self._concluded :] if not check.ok]
        self._concluded = len(self.checks)
        found = "; ".join(f"{check.name} ({check.detail or 'no'})" for check in failed)
        self.stage.saw(text if not failed else f"This did not go as it should: {found}")

    def chat(
        self,
        arguments: Sequence[str],
        *,
        pace: float = 1.0,
        shows: Callable[[Event], bool] = lambda event: True,
        kill_at: Callable[[Event], bool] = lambda event: False,
        meanwhile: Callable[[Event], None] = lambda event: None,
        limit_s: float = _TURN_LIMIT_S,
    ) -> DemoTurn:
        """Run `whet chat` with `arguments` in its own process and show the turn as the chat does.

        `shows` picks the events to draw; at the first event that `kill_at` is true for, the process gets
        SIGKILL; so it does after `limit_s`. `meanwhile` is called after each event was drawn, while the
        process goes on.
        """
        self.stage.command("whet chat " + shlex.join(arguments))
        process = self.world.whet(["chat", *arguments, "--stream-json"])
        guard = threading.Timer(limit_s, signal_pid, (process.pid, signal.SIGKILL))
        guard.daemon = True
        guard.start()
        try:
            turn = self._follow(process, pace, shows, kill_at, meanwhile)
        finally:
            guard.cancel()
        return turn

    def _follow(
        self,
        process: subprocess.Popen[str],
        pace: float,
        shows: Callable[[Event], bool],
        kill_at: Callable[[Event], bool],
        meanwhile: Callable[[Event], None],
    ) -> DemoTurn:
        assert process.stdout is not None and process.stderr is not None
        view, turn = self.stage.view(), DemoTurn([], process.pid)
        view.begin()
        for line in process.stdout:
            if line.startswith('{"type":"result"'):
                continue
            event = _decoder.decode(line)
            turn.events.append(event)
            if shows(event):
                view.emit(event)
                self.stage.after(event, pace)
            meanwhile(event)
            if kill_at(event):
                signal_pid(process.pid, signal.SIGKILL)
        turn.exit_code = process.wait()
        turn.complaint = process.stderr.read().strip()
        if turn.end is None:
            view.stop()
        return turn


def started(event: Event, text: str) -> bool:
    """Whether the event is the start of a call whose arguments hold `text`."""
    return isinstance(event, ToolStarted) and text in event.arguments
