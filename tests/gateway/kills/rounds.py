"""A gateway under load, killed again and again, at any time and at the moments that matter.

`python -m tests.gateway.kills.rounds telegram queue 100` prints what came of it.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.gateway.kills.oracle import FILLER, Tally, accepted, judge, left, troubles
from tests.gateway.kills.platforms import PLATFORMS, Platform
from tests.gateway.kills.troubles import Moment, Troubles
from tests.gateway.running import GatewayProcess, running
from whet_lab.practice.ask import PracticeRequest
from whet_lab.practice.script import Fault, ScriptedReply
from whet_lab.practice.server import PracticeServer

MOMENTS: tuple[Moment, ...] = (
    "any time",
    "any time",
    "any time",
    "before a send",
    "after a send",
    "before an acknowledgement",
    "at the model",
)
_TURN_S = 0.02
_STILL_S = 120
"""Longer than any wait of the gateway that these troubles bring about."""


class Rounds:
    """One soak: `people` conversations on a platform, `each` messages for a kill."""

    def __init__(
        self, home: Path, platform: Platform, busy: str, each: int, *, streams: bool = False
    ) -> None:
        self._platform = platform
        self._troubles: Troubles = platform.troubles
        self._chance = random.Random(7)
        self._each = each
        self._busy = busy
        self._streams = streams
        self._written: dict[int, list[str]] = {user: [] for user in platform.users}
        self._struck = threading.Event()
        self._moments: Counter[str] = Counter()
        self._model = PracticeServer(responder=self._echo)
        self._home = home
        self._gateway: GatewayProcess | None = None

    def run(self, moments: Sequence[Moment]) -> Tally:
        """Kill at each of these moments, let everything come to rest, and judge."""
        with self._platform, self._model:
            process = self._gateway = GatewayProcess(
                self._home,
                self._platform.file(),
                self._model,
                busy=self._busy,
                flood_per_minute=1_000_000,
                stream_after_s=_TURN_S if self._streams else 0,
            )
            with running(process):
                self._platform.begin()
                for user in self._platform.users:
                    self._write(user)
                self._rest()
                for moment in moments:
                    self._run_round(process, moment)
                self._rest()
                if process.stop() != 0:
                    raise AssertionError(f"it did not stop in order\n{process.output()[-3000:]}")
            tally = judge(self._home, self._platform, self._written, self._busy)
        tally.kills = len(moments)
        tally.moments = dict(self._moments)
        return tally

    def _run_round(self, process: GatewayProcess, moment: Moment) -> None:
        """Write, kill at this moment, write on while nobody is there, start again."""
        chance = self._chance
        self._struck.clear()
        before = self._platform.count()
        if chance.random() < 0.3:
            self._troubles.cut_sends(chance.choice(("before", "after")))
        for number in range(self._each):
            self._write(chance.choice(self._platform.users))
            if number == self._each // 2:
                self._platform.shake(chance)
            if chance.random() < 0.2:
                time.sleep(chance.random() * 0.01)
        if moment == "any time":
            self._until_answers(before + chance.randint(0, 2 if self._busy == "steer" else self._each // 2))
            time.sleep(chance.random() * 0.05)  # the moment of the kill is what is random
            self._strike()
        else:
            self._until_answers(before + 1)
            self._troubles.arm(moment, self._strike)
            self._write(chance.choice(self._platform.users))
            if not self._struck.wait(3):
                moment = "any time"
                self._strike()
        self._troubles.disarm()
        assert process.process is not None
        process.process.wait(30)
        self._moments[moment] += 1
        if chance.random() < 0.5:
            self._write(chance.choice(self._platform.users))
        process.start()

    def _write(self, user: int) -> None:
        text = f"m{user}-{len(self._written[user])}"
        self._written[user].append(text)
        self._platform.write(user, text)

    def _strike(self) -> None:
        """Kill it now; from any thread."""
        assert self._gateway is not None and self._gateway.process is not None
        with contextlib.suppress(ProcessLookupError):
            self._gateway.process.send_signal(signal.SIGKILL)
        self._struck.set()

    def _until_answers(self, number: int) -> None:
        """Wait until so many messages were sent; a round in which everything was unknown goes on too."""
        until_s = time.monotonic() + 15
        while self._platform.count() < number and time.monotonic() < until_s:
            time.sleep(0.01)

    def _rest(self) -> None:
        """Wait until nothing is on its way any more, however long that takes on a machine that is busy with
        other things. Raises AssertionError where nothing has moved for a while."""
        wanted = Counter(text for texts in self._written.values() for text in texts)
        seen: object = None
        still_s = time.monotonic()
        while time.monotonic() < still_s + _STILL_S:
            with contextlib.suppress(Exception):
                came, waits = accepted(self._home), left(self._home)
                now = (self._platform.unacknowledged(), self._platform.count(), came.total(), waits)
                if not now[0] and not waits and came >= wanted:
                    return
                if now != seen:
                    seen, still_s = now, time.monotonic()
            time.sleep(0.1)
        assert self._gateway is not None
        missing = list((wanted - accepted(self._home)).items())[:5]
        raise AssertionError(
            f"nothing has moved for {_STILL_S} s: {left(self._home)} still wait ({troubles(self._home)}),"
            f" {missing} did not come in, {self._platform.unacknowledged()} not acknowledged\n"
            f"{self._gateway.output()[-3000:]}"
        )

    def _echo(self, ask: PracticeRequest) -> ScriptedReply:
        self._troubles.strikes("at the model")
        text = f"echo {ask.last_user.split()[0]}"
        if self._streams:
            return ScriptedReply(text + FILLER, pieces=8, fault=Fault(delay_s=_TURN_S))
        return ScriptedReply(text, fault=Fault(delay_s=_TURN_S) if self._busy == "steer" else Fault())


def survive(home: Path, platform: str, busy: str, kills: int, *, streams: bool = False) -> Tally:
    """Run a soak of 20 conversations and give what came of it. `streams`: answers are shown as they grow."""
    users = list(range(101, 121))
    chance = random.Random(kills)
    moments: list[Moment] = [chance.choice(MOMENTS) for _ in range(kills)]
    return Rounds(home, PLATFORMS[platform](users), busy, 25, streams=streams).run(moments)


def main() -> int:
    """Run one from the command line: platform, busy mode, kills, and `streams`."""
    platform, busy, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tally = survive(Path(folder) / "home", platform, busy, kills, streams="streams" in sys.argv)
    print(f"{platform} {busy}: {tally} in {time.monotonic() - began_s:.0f} s", flush=True)
    return 0 if tally.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
