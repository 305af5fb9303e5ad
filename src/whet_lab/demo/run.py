"""A running demo, which all chapters share: its stage, its world, real turns, and the list of checks."""

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

from whet.contract.events import Event, TextDelta, ToolFinished, ToolStarted, TurnEnd
from whet.contract.texts import shared_decoder
from whet_lab.demo.facts import Prefixes, count_prefixes
from whet_lab.demo.stage import DemoStage
from whet_lab.demo.world import DemoWorld, SeenRequest, signal_pid

_TURN_LIMIT_S = 60.0
_decoder: msgspec.json.Decoder[Event] = shared_decoder(Event)


class Check(msgspec.Struct, frozen=True):
    """A claim of the demo, and whether it holds. `detail` describes the state that the check read."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(slots=True)
class DemoTurn:
    """One turn as its process reported it. A negative `exit_code` is the signal that ended the process."""

    events: list[Event]
    pid: int
    exit_code: int = 0
    complaint: str = ""

    @property
    def end(self) -> TurnEnd | None:
        """The turn's end, or None if the process died before it."""
        return next((event for event in self.events if isinstance(event, TurnEnd)), None)

    @property
    def calls(self) -> list[ToolFinished]:
        """The calls that got a result, in order."""
        return [event for event in self.events if isinstance(event, ToolFinished)]

    @property
    def text(self) -> str:
        """All text of the model."""
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
        """Seconds since the demo began."""
        return round(time.monotonic() - self._began_s, 2)

    def check(self, name: str, ok: bool, detail: str = "") -> bool:
        """Record whether a claim holds."""
        self.checks.append(Check(name, ok, detail))
        return ok

    def check_turn(self, name: str, turn: DemoTurn) -> None:
        """Record whether a turn ended with an answer."""
        ok = turn.end is not None and turn.end.reason == "answered" and turn.exit_code == 0
        self.check(name, ok, turn.complaint if not ok else "")

    def check_requests(self, requests: Sequence[SeenRequest]) -> Prefixes:
        """Check that the server accepted every request and that each began with the one before.

        Returns the counts of the second check.
        """
        refused = [request.refused for request in requests if request.refused]
        counts = count_prefixes(requests)
        self.check("every_request_valid", not refused, "; ".join(refused))
        self.check(
            "each_request_prefix_of_next", counts.held == counts.pairs > 0, f"{counts.held} of {counts.pairs}"
        )
        return counts

    def whet(self, *arguments: str) -> tuple[int, str]:
        """Show a `whet` command as typed, run it, show its output, and return its exit code and output."""
        self.stage.command("whet " + " ".join(arguments))
        code, output = self.world.run([sys.executable, "-P", "-m", "whet", *arguments])
        for line in output.splitlines():
            self.stage.write(f"{line}\n")
        return code, output

    def conclude(self, text: str) -> None:
        """Show `text` as the conclusion, or the checks that failed since the last conclusion."""
        failed = [check for check in self.checks[self._concluded :] if not check.ok]
        self._concluded = len(self.checks)
        details = "; ".join(f"{check.name} ({check.detail or 'no'})" for check in failed)
        self.stage.show_conclusion(text if not failed else f"This did not go as it should: {details}")

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

        `shows` picks the events to draw. The process gets SIGKILL at the first event for which `kill_at`
        returns True, or after `limit_s` seconds. `meanwhile` is called after each event was drawn, while
        the process continues.
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


def is_start_of(event: Event, text: str) -> bool:
    """Return whether the event is the start of a call whose arguments contain `text`."""
    return isinstance(event, ToolStarted) and text in event.arguments
